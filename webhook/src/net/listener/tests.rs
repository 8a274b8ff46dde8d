use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
};
use tokio::io::AsyncWriteExt;

use super::*;
use crate::testing::phase;

struct Panics;

impl Handle for Panics {
    async fn handle(&self, _: Request<Incoming>, _: &Client) -> Response<Full<Bytes>> {
        panic!("a panic for the test")
    }
}

#[tokio::test]
async fn a_panic_leaves_the_connection_gauge_right() {
    let socket = bind(Ipv4Addr::LOCALHOST.into(), 0).unwrap();
    let address = socket.local_addr().unwrap();
    let metrics = ConnectionMetrics::default();
    let listener = Listener {
        transport: Transport::Plain,
        handler: Panics,
        limits: Limits::default(),
        metrics: metrics.clone(),
        phase: phase(Phase::Serving),
    };
    tokio::spawn(listener.run(socket));
    let mut client = TcpStream::connect(address).await.unwrap();
    let until = async |open| {
        let reached = async {
            while metrics.open.get() != open {
                tokio::task::yield_now().await;
            }
        };
        time::timeout(Duration::from_secs(20), reached).await.unwrap();
    };
    until(1).await;
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    until(0).await;
}
