//! The key pair is replaced under a running server.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use kcp_webhook::Limits;
use tokio::task::yield_now;

use crate::{
    client::{Answer, soon},
    running::Running,
};

const READS: &str = "certwatcher_read_certificate_total";
const ERRORS: &str = "certwatcher_read_certificate_errors_total";

/// The certificate that a new connection is shown, by a client that trusts the authority there is now.
async fn shown(server: &Running) -> Option<Vec<u8>> {
    let connection = server.try_connect(&["http/1.1"]).await.ok()?;
    let (_, session) = connection.0.get_ref();
    Some(session.peer_certificates()?.first()?.to_vec())
}

#[tokio::test]
async fn new_connections_get_the_new_pair_and_old_ones_live_on() {
    let server = Running::start(Limits::default()).await;
    let mut old = server.connect().await;
    let before = shown(&server).await.unwrap();
    server.certificates.issue();
    let after = soon(async {
        loop {
            // Until the reload, the new authority does not vouch for what is shown.
            if let Some(after) = shown(&server).await {
                break after;
            }
        }
    })
    .await;
    assert_ne!(before, after);
    assert_eq!(old.review().await, Answer::allowed(false));
    assert_eq!(server.connect().await.review().await, Answer::allowed(false));
}

#[tokio::test]
async fn a_bad_pair_changes_nothing() {
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
    const PAIRS: usize = 5;
    let server = Running::start(Limits::default()).await;
    let done = AtomicBool::new(false);
    let answers = AtomicUsize::new(0);
    let client = async || {
        let mut connection = server.connect().await;
        while !done.load(Relaxed) {
            assert_eq!(connection.review().await, Answer::allowed(false));
            answers.fetch_add(1, Relaxed);
            // While the files are replaced, the authority may not be the one that vouches for what is shown.
            if let Ok(new) = server.try_connect(&["http/1.1"]).await {
                assert_eq!(connection.review().await, Answer::allowed(false));
                connection = new;
            }
        }
    };
    let replaced = async {
        for _ in 0..PAIRS {
            let before = shown(&server).await.unwrap();
            server.certificates.issue();
            soon(async { while shown(&server).await.is_none_or(|now| now == before) {} }).await;
            let enough = answers.load(Relaxed) + 10;
            soon(async {
                while answers.load(Relaxed) < enough {
                    yield_now().await;
                }
            })
            .await;
        }
        done.store(true, Relaxed);
    };
    tokio::join!(client(), client(), client(), replaced);
    let reads: usize = server.metric(READS).await.parse().unwrap();
    assert!(reads > PAIRS, "{reads}");
}
