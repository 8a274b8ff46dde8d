//! Clients that disconnect early, do not read answers, or send invalid HTTP.

use std::time::Duration;

use kcp_webhook::Limits;
use tokio::io::AsyncWriteExt;

use crate::{
    client::{Answer, REVIEW, soon},
    running::Running,
};

const IN_FLIGHT: &str = r#"controller_runtime_webhook_requests_in_flight{webhook="/validate"}"#;

/// The answer to an incomplete body.
fn broken() -> Answer {
    Answer {
        code: 400,
        closes: true,
        body: "cannot read the body of the request: error reading a body from connection\n".to_owned(),
    }
}

#[tokio::test]
async fn answers_a_client_that_closed_its_sending_side() {
    let server = Running::start(Limits::default()).await;
    let mut connection = server.connect().await;
    connection.send_head("/validate", REVIEW.len()).await;
    connection.send(REVIEW).await;
    soon(connection.0.shutdown()).await.unwrap();
    assert_eq!(connection.answer().await, Answer::allowed(false));
    connection.ends().await;
}

#[tokio::test]
async fn rejects_half_a_review_when_the_client_closes_its_sending_side() {
    let server = Running::start(Limits::default()).await;
    let mut connection = server.connect().await;
    connection.send_head("/validate", REVIEW.len()).await;
    connection.send(&REVIEW[..20]).await;
    server.until_metric(IN_FLIGHT, "1").await;
    soon(connection.0.shutdown()).await.unwrap();
    assert_eq!(connection.answer().await, broken());
    connection.ends().await;
    assert_eq!(server.metric(IN_FLIGHT).await, "0");
}

#[tokio::test]
async fn disconnects_a_client_that_does_not_read_answers() {
    // Together the answers are more than the kernel buffers for both sides.
    const SENT: usize = 1_000;
    const TOGETHER: usize = 1_000;
    let server = Running::start(Limits {
        write_timeout: Duration::from_millis(50),
        ..Limits::default()
    })
    .await;
    let mut connection = server.connect().await;
    server.until_metric("kcp_webhook_connections", "1").await;
    let request = format!(
        "POST /validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{REVIEW}",
        REVIEW.len()
    );
    let requests = request.repeat(TOGETHER);
    let flood = async {
        for _ in 0..SENT {
            connection.0.write_all(requests.as_bytes()).await?;
        }
        std::io::Result::Ok(())
    };
    // The server stops reading while the client does not read its answers, and then closes.
    assert!(soon(flood).await.is_err());
    server.until_metric("kcp_webhook_connections", "0").await;
}

#[tokio::test]
async fn rejects_invalid_http_and_closes() {
    const JSON: &str = "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    let server = Running::start(Limits::default()).await;
    let refused = |code| Answer {
        code,
        closes: true,
        body: String::new(),
    };
    for (sent, expected) in [
        ("nonsense\r\n\r\n".to_owned(), refused(400)),
        ("POST /validate\r\n\r\n".to_owned(), refused(400)),
        ("POST /validate HTTP/3.0\r\n\r\n".to_owned(), refused(400)),
        (format!("{JSON}A : b\r\n\r\n"), refused(400)),
        (format!("{JSON}A: \0\r\n\r\n"), refused(400)),
        (format!("{JSON}Content-Length: -1\r\n\r\n"), refused(400)),
        (
            format!("{JSON}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}"),
            refused(400),
        ),
        (format!("{JSON}Transfer-Encoding: gzip\r\n\r\n"), refused(400)),
        (format!("{JSON}{}\r\n", "A: b\r\n".repeat(101)), refused(431)),
        (
            format!("{JSON}Transfer-Encoding: chunked\r\n\r\nZZ\r\n{{}}"),
            broken(),
        ),
        (
            format!("{JSON}Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n"),
            broken(),
        ),
    ] {
        let mut connection = server.connect().await;
        connection.send(&sent).await;
        assert_eq!(connection.answer().await, expected, "{sent:?}");
        connection.ends().await;
    }
    // An HTTP/2 client would not understand an HTTP/1.1 answer.
    let mut connection = server.connect().await;
    connection.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    connection.ends().await;
    assert_eq!(server.connect().await.review().await, Answer::allowed(false));
}

/// The server and a proxy could read a body with two lengths as two different reviews.
#[tokio::test]
async fn closes_the_connection_after_a_body_with_two_lengths() {
    let server = Running::start(Limits::default()).await;
    let mut connection = server.connect().await;
    connection
        .send(&format!(
            "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
             Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{REVIEW}\r\n0\r\n\r\n",
            REVIEW.len()
        ))
        .await;
    assert_eq!(connection.answer().await, Answer::allowed(true));
    connection.ends().await;
}
