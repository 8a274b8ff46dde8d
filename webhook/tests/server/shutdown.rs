//! The server loses no review when it shuts down.

use std::time::Duration;

use kcp_webhook::{Limits, serve::StopReason};
use tokio::net::TcpStream;

use crate::{
    client::{Answer, Connection, DEADLINE, REVIEW, soon},
    running::Running,
};

const IN_FLIGHT: &str = r#"controller_runtime_webhook_requests_in_flight{webhook="/validate"}"#;

/// A connection on which the server has received half a review.
macro_rules! half_sent {
    ($server:expr) => {{
        let mut connection = $server.connect().await;
        connection.send_head("/validate", REVIEW.len()).await;
        connection.send(&REVIEW[..20]).await;
        $server.until_metric(IN_FLIGHT, "1").await;
        connection
    }};
}

async fn until_not_ready(server: &Running) {
    soon(async { while server.probe("/readyz").await.code != 503 {} }).await;
}

#[tokio::test]
async fn answers_reviews_in_progress_and_closes_idle_connections() {
    let server = Running::start(Limits::default()).await;
    let mut idle = server.connect().await;
    assert_eq!(idle.review().await, Answer::allowed(false));
    let mut half = half_sent!(server);

    server.stop.send("test").unwrap();
    until_not_ready(&server).await;
    assert_eq!(server.probe("/livez").await.code, 200);
    idle.ends().await;
    // The port is closed, but the server still waits for the review.
    soon(async { while TcpStream::connect(server.secure).await.is_ok() {} }).await;
    half.send(&REVIEW[20..]).await;
    assert_eq!(half.answer().await, Answer::allowed(true));
    assert_eq!(server.ended().await, StopReason::Drained);
}

#[tokio::test]
async fn answers_a_review_that_arrives_while_an_idle_connection_closes() {
    let server = Running::start(Limits::default()).await;
    let mut kept = server.connect().await;
    assert_eq!(kept.review().await, Answer::allowed(false));
    // The server runs on the same thread, so it sees neither of the two before the next await.
    server.stop.send("test").unwrap();
    kept.send_head("/validate", REVIEW.len()).await;
    kept.send(REVIEW).await;
    assert_eq!(kept.answer().await, Answer::allowed(true));
    assert_eq!(server.ended().await, StopReason::Drained);
}

#[tokio::test]
async fn answers_a_review_whose_head_has_arrived_in_part() {
    let server = Running::start(Limits::default()).await;
    let mut kept = server.connect().await;
    assert_eq!(kept.review().await, Answer::allowed(false));
    kept.send("POST /validate HTTP/1.1\r\nHost: localhost\r\n").await;
    server.stop.send("test").unwrap();
    until_not_ready(&server).await;
    // Once the port is closed, every connection has started to close.
    soon(async { while TcpStream::connect(server.secure).await.is_ok() {} }).await;
    kept.send(&format!(
        "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{REVIEW}",
        REVIEW.len()
    ))
    .await;
    assert_eq!(kept.answer().await, Answer::allowed(true));
    assert_eq!(server.ended().await, StopReason::Drained);
}

#[tokio::test]
async fn keeps_serving_during_the_shutdown_delay() {
    let server = Running::start_with(Limits::default(), |arguments| {
        arguments.shutdown_delay = DEADLINE;
    })
    .await;
    let mut old = server.connect().await;
    server.stop.send("test").unwrap();
    until_not_ready(&server).await;
    assert_eq!(old.review().await, Answer::allowed(true));
    assert_eq!(server.connect().await.review().await, Answer::allowed(true));
    old.ends().await;
    server.stop.send("again").unwrap();
    assert_eq!(server.ended().await, StopReason::Aborted);
}

#[tokio::test]
async fn serves_connections_that_the_kernel_has_accepted() {
    let server = Running::start(Limits::default()).await;
    // The server runs on the same thread, so it sees neither of the two before the next await.
    let early = std::net::TcpStream::connect(server.secure).unwrap();
    server.stop.send("test").unwrap();
    early.set_nonblocking(true).unwrap();
    let secure = server.secure;
    let ca = server.certificates.path("ca.crt");
    let mut connection = crate::client::secure(TcpStream::from_std(early).unwrap(), &ca, &["http/1.1"])
        .await
        .unwrap();
    assert_eq!(connection.review().await, Answer::allowed(true));
    assert_eq!(server.ended().await, StopReason::Drained);
    assert!(TcpStream::connect(secure).await.is_err());
}

#[tokio::test]
async fn times_out_on_a_review_that_does_not_end() {
    let server = Running::start_with(Limits::default(), |arguments| {
        arguments.drain_timeout = Duration::from_millis(20);
    })
    .await;
    let _half = half_sent!(server);
    server.stop.send("test").unwrap();
    assert_eq!(server.ended().await, StopReason::TimedOut);
}

#[tokio::test]
async fn a_second_stop_request_aborts() {
    let server = Running::start(Limits::default()).await;
    let _half = half_sent!(server);
    server.stop.send("test").unwrap();
    until_not_ready(&server).await;
    server.stop.send("again").unwrap();
    assert_eq!(server.ended().await, StopReason::Aborted);
}

#[tokio::test]
async fn stops_immediately_without_open_connections() {
    let server = Running::start(Limits::default()).await;
    let health = server.health;
    server.stop.send("test").unwrap();
    assert_eq!(server.ended().await, StopReason::Drained);
    soon(async { while Connection(TcpStream::connect(health).await).0.is_ok() {} }).await;
}
