//! TLS, HTTP, and the limits on one client.

use std::{
    convert::Infallible,
    future::pending,
    io::{Read as _, Write as _},
    net::Ipv4Addr,
    time::Duration,
};

use kcp_webhook::Limits;
use tokio::{
    io::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time,
};

use crate::{
    client::{Answer, Connection, REVIEW, connect_from, soon},
    running::Running,
};

const SHORT: Duration = Duration::from_millis(50);

/// A connection that keeps sending single bytes, always within [`SHORT`] of each other, while it reads the answer.
struct Dripping<S> {
    reads: Connection<io::Join<io::ReadHalf<S>, io::Sink>>,
    writes: io::WriteHalf<S>,
}

impl<S: AsyncRead + AsyncWrite> Dripping<S> {
    fn new(connection: Connection<S>) -> Self {
        let (reads, writes) = io::split(connection.0);
        Self {
            reads: Connection(io::join(reads, io::sink())),
            writes,
        }
    }

    async fn drip(mut writes: io::WriteHalf<S>) -> Infallible {
        let mut pace = time::interval(SHORT / 10);
        loop {
            pace.tick().await;
            let sent = async {
                writes.write_all(b"x").await?;
                writes.flush().await
            };
            if sent.await.is_err() {
                // The other half still reads what the server sent before it closed.
                return pending().await;
            }
        }
    }

    async fn answer(mut self) -> Answer {
        tokio::select! {
            answer = self.reads.answer() => answer,
            never = Self::drip(self.writes) => match never {},
        }
    }

    /// Waits until the server closes the connection without an answer.
    async fn ends(mut self) {
        tokio::select! {
            () = self.reads.ends() => {}
            never = Self::drip(self.writes) => match never {},
        }
    }
}

#[tokio::test]
async fn offers_only_http_1_1() {
    let server = Running::start(Limits::default()).await;
    let both = server.try_connect(&["h2", "http/1.1"]).await.unwrap();
    assert_eq!(both.0.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let none = server.try_connect(&[]).await.unwrap();
    assert_eq!(none.0.get_ref().1.alpn_protocol(), None);
    let h2 = server.try_connect(&["h2"]).await;
    let error = h2.map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "received fatal alert: NoApplicationProtocol");
    server
        .until_metric("kcp_webhook_tls_handshake_errors_total", "1")
        .await;
}

#[tokio::test]
async fn serves_several_reviews_on_one_connection() {
    let server = Running::start(Limits::default()).await;
    let mut connection = server.connect().await;
    for _ in 0..3 {
        assert_eq!(connection.review().await, Answer::allowed(false));
    }
    assert_eq!(
        server
            .metric(r#"controller_runtime_webhook_requests_total{webhook="/validate",code="200"}"#)
            .await,
        "3"
    );
    assert_eq!(server.metric("kcp_webhook_connections").await, "1");
    drop(connection);
    server.until_metric("kcp_webhook_connections", "0").await;
}

#[tokio::test]
async fn answers_pipelined_reviews() {
    let server = Running::start(Limits::default()).await;
    let mut connection = server.connect().await;
    let one = format!(
        "POST /validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{REVIEW}",
        REVIEW.len()
    );
    connection.send(&one.repeat(3)).await;
    for _ in 0..3 {
        assert_eq!(connection.answer().await, Answer::allowed(false));
    }
}

#[tokio::test]
async fn closes_a_connection_without_a_handshake() {
    let server = Running::start(Limits {
        handshake_timeout: SHORT,
        ..Limits::default()
    })
    .await;
    let stream = soon(TcpStream::connect(server.secure)).await.unwrap();
    Connection(stream).ends().await;
    assert_eq!(server.metric("kcp_webhook_tls_handshake_errors_total").await, "1");
}

#[tokio::test]
async fn closes_an_idle_connection_after_a_review() {
    let server = Running::start(Limits {
        idle_timeout: SHORT,
        ..Limits::default()
    })
    .await;
    let mut connection = server.connect().await;
    assert_eq!(connection.review().await, Answer::allowed(false));
    connection.ends().await;
}

#[tokio::test]
async fn a_new_connection_has_the_timeout_of_a_head() {
    let server = Running::start(Limits {
        // Long enough for a review on a busy machine.
        request_timeout: Duration::from_secs(1),
        ..Limits::default()
    })
    .await;
    let mut kept = server.connect().await;
    assert_eq!(kept.review().await, Answer::allowed(false));
    server.connect().await.ends().await;
    // The first connection is older, but had an answer.
    assert_eq!(kept.review().await, Answer::allowed(false));
}

#[tokio::test]
async fn closes_a_connection_with_an_incomplete_head() {
    let server = Running::start(Limits {
        request_timeout: SHORT,
        ..Limits::default()
    })
    .await;
    let mut connection = server.connect().await;
    connection.send("POST /validate HTTP/1.1\r\nHost: loc").await;
    connection.ends().await;
}

#[tokio::test]
async fn answers_408_to_an_incomplete_body_and_closes() {
    let server = Running::start(Limits {
        request_timeout: SHORT,
        ..Limits::default()
    })
    .await;
    let mut connection = server.connect().await;
    connection.send_head("/validate", REVIEW.len()).await;
    connection.send(&REVIEW[..20]).await;
    assert_eq!(
        connection.answer().await,
        Answer {
            code: 408,
            closes: true,
            body: "the body of the request did not arrive within 0 s\n".to_owned()
        }
    );
    connection.ends().await;
}

#[tokio::test]
async fn single_bytes_do_not_extend_the_timeout_of_a_head() {
    let server = Running::start(Limits {
        request_timeout: SHORT,
        ..Limits::default()
    })
    .await;
    let mut connection = server.connect().await;
    connection.send("POST /validate HTTP/1.1\r\nX: ").await;
    Dripping::new(connection).ends().await;
}

#[tokio::test]
async fn single_bytes_do_not_extend_the_timeout_of_a_body() {
    let server = Running::start(Limits {
        request_timeout: SHORT,
        ..Limits::default()
    })
    .await;
    let mut connection = server.connect().await;
    connection.send_head("/validate", 1024 * 1024).await;
    assert_eq!(
        Dripping::new(connection).answer().await,
        Answer {
            code: 408,
            closes: true,
            body: "the body of the request did not arrive within 0 s\n".to_owned()
        }
    );
}

#[tokio::test]
async fn rejects_a_body_by_its_content_length() {
    let server = Running::start(Limits::default()).await;
    let mut connection = server.connect().await;
    connection.send_head("/validate", 7 * 1024 * 1024 + 1).await;
    assert_eq!(
        connection.answer().await,
        Answer {
            code: 413,
            closes: true,
            body: "the body of the request is larger than 7340032 bytes\n".to_owned()
        }
    );
}

#[tokio::test]
async fn rejects_a_head_that_is_too_large() {
    let server = Running::start(Limits::default()).await;
    let mut connection = server.connect().await;
    // hyper checks the limit of 64 KiB before it reads up to 64 KiB more, so that only a head above 128 KiB is always too large.
    connection
        .send(&format!(
            "POST /validate HTTP/1.1\r\nX: {}\r\n\r\n",
            "x".repeat(132_000)
        ))
        .await;
    let answer = connection.answer().await;
    assert_eq!((answer.code, answer.closes), (431, true));
}

#[tokio::test]
async fn a_review_counts_only_once_its_body_has_arrived() {
    let server = Running::start(Limits {
        // One for an address.
        reviews: 4,
        ..Limits::default()
    })
    .await;
    let mut slow = server.connect().await;
    slow.send_head("/validate", REVIEW.len()).await;
    server
        .until_metric(
            r#"controller_runtime_webhook_requests_in_flight{webhook="/validate"}"#,
            "1",
        )
        .await;
    assert_eq!(server.connect().await.review().await, Answer::allowed(false));
    slow.send(REVIEW).await;
    assert_eq!(slow.answer().await, Answer::allowed(false));
}

/// Every connection has sent a complete request, and so has a response.
#[tokio::test]
async fn idle_connections_of_one_address_do_not_keep_others_out() {
    let server = Running::start(Limits {
        connections: 8,
        ..Limits::default()
    })
    .await;
    let ca = server.certificates.path("ca.crt");
    let mut idle = Vec::new();
    for number in 0..8 {
        let from = Ipv4Addr::new(127, 0, 0, if number == 0 { 3 } else { 2 });
        let mut connection = connect_from(from, server.secure, &ca).await.unwrap();
        assert_eq!(connection.review().await, Answer::allowed(false));
        idle.push(connection);
    }
    // The server still reads this body, which is no reason to keep the connection.
    idle[1].send_head("/validate", REVIEW.len()).await;
    assert_eq!(server.connect().await.review().await, Answer::allowed(false));
    idle[1].ends().await;
    assert_eq!(server.metric("kcp_webhook_connections_evicted_total").await, "1");
    for kept in [0, 2, 7] {
        assert_eq!(idle[kept].review().await, Answer::allowed(false));
    }
}

/// The test's thread is the server's thread for reviews, and this blocks it.
#[tokio::test]
async fn a_probe_is_answered_while_the_threads_for_reviews_are_busy() {
    let server = Running::start(Limits::default()).await;
    assert_eq!(server.connect().await.review().await, Answer::allowed(false));
    let mut probe = std::net::TcpStream::connect(server.health).unwrap();
    probe.set_read_timeout(Some(crate::client::DEADLINE)).unwrap();
    probe
        .write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = [0; 12];
    probe.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_client_that_disconnects_frees_its_review() {
    let server = Running::start(Limits {
        // One for an address.
        reviews: 4,
        ..Limits::default()
    })
    .await;
    let in_flight = r#"controller_runtime_webhook_requests_in_flight{webhook="/validate"}"#;
    let mut gone = server.connect().await;
    gone.send_head("/validate", REVIEW.len()).await;
    server.until_metric(in_flight, "1").await;
    drop(gone);
    server.until_metric(in_flight, "0").await;
    assert_eq!(server.connect().await.review().await, Answer::allowed(false));
}

#[tokio::test]
async fn does_not_answer_plain_http() {
    let server = Running::start(Limits::default()).await;
    let mut stream = soon(TcpStream::connect(server.secure)).await.unwrap();
    let mut bytes = Vec::new();
    Connection(&mut stream)
        .send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    _ = soon(stream.read_to_end(&mut bytes)).await;
    assert!(!String::from_utf8_lossy(&bytes).contains("HTTP"), "{bytes:?}");
}
