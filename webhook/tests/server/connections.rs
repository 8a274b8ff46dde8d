//! TLS, HTTP and what one client may take.

use std::{convert::Infallible, future::pending, time::Duration};

use kcp_webhook::Limits;
use tokio::{
    io::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time,
};

use crate::{
    client::{Answer, Connection, REVIEW, soon},
    running::Running,
};

const SHORT: Duration = Duration::from_millis(50);

/// A connection that sends a byte now and then and for ever, and is never silent for [`SHORT`]; what comes back.
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
                // What the server said before it closed is still to be read.
                return pending().await;
            }
        }
    }

    /// Waits for an answer.
    async fn answer(mut self) -> Answer {
        tokio::select! {
            answer = self.reads.answer() => answer,
            never = Self::drip(self.writes) => match never {},
        }
    }

    /// Waits for the server to close without a word.
    async fn ends(mut self) {
        tokio::select! {
            () = self.reads.ends() => {}
            never = Self::drip(self.writes) => match never {},
        }
    }
}

#[tokio::test]
async fn offers_http_1_1_alone() {
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
async fn keeps_a_connection_for_the_next_review() {
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
async fn answers_reviews_that_are_sent_without_waiting() {
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
async fn closes_on_a_handshake_that_does_not_come() {
    let server = Running::start(Limits {
        handshake: SHORT,
        ..Limits::default()
    })
    .await;
    let stream = soon(TcpStream::connect(server.secure)).await.unwrap();
    Connection(stream).ends().await;
    assert_eq!(server.metric("kcp_webhook_tls_handshake_errors_total").await, "1");
}

#[tokio::test]
async fn closes_a_connection_that_is_idle_after_a_review() {
    let server = Running::start(Limits {
        idle: SHORT,
        ..Limits::default()
    })
    .await;
    let mut connection = server.connect().await;
    assert_eq!(connection.review().await, Answer::allowed(false));
    connection.ends().await;
}

#[tokio::test]
async fn a_silent_connection_has_as_long_as_a_head_and_not_as_long_as_an_idle_one() {
    let server = Running::start(Limits {
        // Long enough for a review on a busy machine.
        head: Duration::from_secs(1),
        ..Limits::default()
    })
    .await;
    let mut kept = server.connect().await;
    assert_eq!(kept.review().await, Answer::allowed(false));
    server.connect().await.ends().await;
    // The first connection is older, and has been answered.
    assert_eq!(kept.review().await, Answer::allowed(false));
}

#[tokio::test]
async fn closes_on_a_head_that_does_not_end() {
    let server = Running::start(Limits {
        head: SHORT,
        ..Limits::default()
    })
    .await;
    let mut connection = server.connect().await;
    connection.send("POST /validate HTTP/1.1\r\nHost: loc").await;
    connection.ends().await;
}

#[tokio::test]
async fn says_so_and_closes_on_a_body_that_does_not_end() {
    let server = Running::start(Limits {
        body: SHORT,
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
            body: "the body did not come within 0 s\n".to_owned()
        }
    );
    connection.ends().await;
}

#[tokio::test]
async fn a_byte_now_and_then_buys_a_head_no_more_time() {
    let server = Running::start(Limits {
        head: SHORT,
        ..Limits::default()
    })
    .await;
    let mut connection = server.connect().await;
    connection.send("POST /validate HTTP/1.1\r\nX: ").await;
    Dripping::new(connection).ends().await;
}

#[tokio::test]
async fn a_byte_now_and_then_buys_a_body_no_more_time() {
    let server = Running::start(Limits {
        body: SHORT,
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
            body: "the body did not come within 0 s\n".to_owned()
        }
    );
}

#[tokio::test]
async fn refuses_an_announced_body_before_it_comes() {
    let server = Running::start(Limits::default()).await;
    let mut connection = server.connect().await;
    connection.send_head("/validate", 7 * 1024 * 1024 + 1).await;
    assert_eq!(
        connection.answer().await,
        Answer {
            code: 413,
            closes: true,
            body: "the body is larger than 7340032 bytes\n".to_owned()
        }
    );
}

#[tokio::test]
async fn refuses_a_head_that_is_too_large() {
    let server = Running::start(Limits::default()).await;
    let mut connection = server.connect().await;
    connection
        .send(&format!(
            "POST /validate HTTP/1.1\r\nX: {}\r\n\r\n",
            "x".repeat(70_000)
        ))
        .await;
    let answer = connection.answer().await;
    assert_eq!((answer.code, answer.closes), (431, true));
}

#[tokio::test]
async fn tells_connections_beyond_the_limit_and_then_closes_them_unheard() {
    let server = Running::start(Limits {
        connections: 1,
        refused_connections: 1,
        ..Limits::default()
    })
    .await;
    let mut first = server.connect().await;
    assert_eq!(first.review().await, Answer::allowed(false));
    let mut second = server.connect().await;
    let mut third = Connection(soon(TcpStream::connect(server.secure)).await.unwrap());
    third.ends().await;
    assert_eq!(
        second.review().await,
        Answer {
            code: 503,
            closes: true,
            body: "too many connections are open; try again\n".to_owned()
        }
    );
    assert_eq!(first.review().await, Answer::allowed(false));
    assert_eq!(server.metric("kcp_webhook_connections_refused_total").await, "2");
    // The place is free again as soon as the first has gone.
    drop(first);
    server.until_metric("kcp_webhook_connections", "0").await;
    assert_eq!(server.connect().await.review().await, Answer::allowed(false));
}

#[tokio::test]
async fn turns_reviews_beyond_the_limit_away_until_there_is_room() {
    let server = Running::start(Limits {
        reviews: 1,
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
    assert_eq!(
        server.connect().await.review().await,
        Answer {
            code: 503,
            closes: false,
            body: "too many reviews are being answered; try again\n".to_owned()
        }
    );
    slow.send(REVIEW).await;
    assert_eq!(slow.answer().await, Answer::allowed(false));
    assert_eq!(server.connect().await.review().await, Answer::allowed(false));
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_behind() {
    let server = Running::start(Limits {
        reviews: 1,
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
async fn plain_http_gets_no_answer() {
    let server = Running::start(Limits::default()).await;
    let mut stream = soon(TcpStream::connect(server.secure)).await.unwrap();
    let mut bytes = Vec::new();
    Connection(&mut stream)
        .send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    _ = soon(stream.read_to_end(&mut bytes)).await;
    assert!(!String::from_utf8_lossy(&bytes).contains("HTTP"), "{bytes:?}");
}
