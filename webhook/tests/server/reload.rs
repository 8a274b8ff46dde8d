//! A running server reloads its TLS key pair.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use kcp_webhook::Limits;
use tokio::{
    sync::watch,
    task::{JoinSet, yield_now},
};

use crate::{
    client::{Answer, soon},
    running::Running,
};

const READS: &str = "certwatcher_read_certificate_total";
const ERRORS: &str = "certwatcher_read_certificate_errors_total";

/// The certificate on a new connection, if the client trusts it with the current authority.
async fn shown(server: &Running) -> Option<Vec<u8>> {
    let connection = server.try_connect(&["http/1.1"]).await.ok()?;
    let (_, session) = connection.0.get_ref();
    Some(session.peer_certificates()?.first()?.to_vec())
}

/// The certificate on a new connection, once it is one of the current authority.
async fn shown_once_trusted(server: &Running) -> Vec<u8> {
    soon(async {
        loop {
            if let Some(shown) = shown(server).await {
                break shown;
            }
        }
    })
    .await
}

#[tokio::test]
async fn new_connections_use_the_new_pair_and_open_ones_stay() {
    let server = Running::start(Limits::default()).await;
    let mut old = server.connect().await;
    let before = shown(&server).await.unwrap();
    server.certificates.issue();
    let after = shown_once_trusted(&server).await;
    assert_ne!(before, after);
    assert_eq!(old.review().await, Answer::allowed(false));
    assert_eq!(server.connect().await.review().await, Answer::allowed(false));
}

#[tokio::test]
async fn ignores_an_invalid_pair() {
    let server = Running::start(Limits::default()).await;
    let before = shown(&server).await.unwrap();
    fs::write(server.certificates.path("tls.crt"), "nonsense").unwrap();
    server.until_metric(ERRORS, "1").await;
    assert_eq!(shown(&server).await.unwrap(), before);
    assert_eq!(server.metric(READS).await, "1");
    assert_eq!(server.probe("/readyz").await.code, 200);
}

#[tokio::test]
async fn no_review_is_lost_while_pairs_are_replaced() {
    const CLIENTS: usize = 4;
    const PAIRS: usize = 5;
    const REVIEWS_PER_PAIR: usize = 25;
    let server = Running::start(Limits::default()).await;
    let (stop, stopped) = watch::channel(false);
    let answered = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let mut connection = server.connect().await;
        let (stopped, answered) = (stopped.clone(), answered.clone());
        clients.spawn(async move {
            while !*stopped.borrow() {
                assert_eq!(connection.review().await, Answer::allowed(false));
                answered.fetch_add(1, Relaxed);
            }
        });
    }
    for pair in 1..=PAIRS {
        let before = shown_once_trusted(&server).await;
        server.certificates.issue();
        assert_ne!(shown_once_trusted(&server).await, before, "pair {pair}");
        assert_eq!(server.connect().await.review().await, Answer::allowed(false));
        soon(async {
            while answered.load(Relaxed) < pair * REVIEWS_PER_PAIR {
                yield_now().await;
            }
        })
        .await;
    }
    stop.send_replace(true);
    soon(clients.join_all()).await;
    let counted = server
        .metric(r#"controller_runtime_webhook_requests_total{webhook="/validate",code="200"}"#)
        .await;
    assert_eq!(counted, (answered.load(Relaxed) + PAIRS).to_string());
}
