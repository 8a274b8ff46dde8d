use std::{convert::Infallible, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinSet, yield_now},
    time,
};

use super::*;

type Reads = Arc<SharedReads<&'static str, usize>>;

/// A read that has been sent: its number, and how to answer it.
type Sent = mpsc::UnboundedReceiver<oneshot::Sender<Result<usize, &'static str>>>;

/// Callers of one path, and the reads that they send.
fn callers(reads: &Reads, count: usize) -> (JoinSet<Result<usize, &'static str>>, Sent) {
    let (sender, sent) = mpsc::unbounded_channel();
    let mut callers = JoinSet::new();
    for _ in 0..count {
        let (reads, sender) = (reads.clone(), sender.clone());
        callers.spawn(async move {
            let read = async || {
                let (answer, answered) = oneshot::channel();
                sender.send(answer).unwrap();
                answered.await.unwrap()
            };
            reads.get(&"path", Peer::SELF, read).await
        });
    }
    (callers, sent)
}

async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

#[tokio::test]
async fn shares_one_read_between_those_that_ask_before_it_is_sent() {
    let reads: Reads = Arc::new(SharedReads::new(8));
    let (first, mut sent) = callers(&reads, 1);
    let one = sent.recv().await.unwrap();
    // These callers ask after the first read was sent, so its response may be too old for them.
    let (others, mut sent) = callers(&reads, 50);
    settle().await;
    assert!(sent.try_recv().is_err());
    one.send(Ok(1)).unwrap();
    sent.recv().await.unwrap().send(Ok(2)).unwrap();
    assert_eq!(first.join_all().await, [Ok(1)]);
    assert_eq!(others.join_all().await, [Ok(2); 50]);
    assert!(sent.try_recv().is_err());
    assert!(lock(&reads.paths).is_empty());
}

#[tokio::test]
async fn does_not_share_a_failure() {
    let reads: Reads = Arc::new(SharedReads::new(8));
    let (callers, mut sent) = callers(&reads, 3);
    sent.recv()
        .await
        .unwrap()
        .send(Err("this one's deadline"))
        .unwrap();
    sent.recv().await.unwrap().send(Ok(7)).unwrap();
    let mut results = callers.join_all().await;
    results.sort_unstable();
    assert_eq!(results, [Ok(7), Ok(7), Err("this one's deadline")]);
}

#[tokio::test]
async fn another_caller_reads_when_one_leaves() {
    let reads: Reads = Arc::new(SharedReads::new(8));
    let (first, mut sent) = callers(&reads, 1);
    let one = sent.recv().await.unwrap();
    let (leaves, _sent) = callers(&reads, 1);
    settle().await;
    let (stays, mut sent) = callers(&reads, 1);
    settle().await;
    drop(leaves);
    one.send(Ok(1)).unwrap();
    sent.recv().await.unwrap().send(Ok(7)).unwrap();
    assert_eq!(first.join_all().await, [Ok(1)]);
    assert_eq!(stays.join_all().await, [Ok(7)]);
    assert!(lock(&reads.paths).is_empty());
}

#[tokio::test]
async fn forgets_a_path_when_its_last_caller_leaves() {
    let reads: Reads = Arc::new(SharedReads::new(8));
    let never = reads.get(&"path", Peer::SELF, async || {
        std::future::pending::<()>().await;
        Ok::<_, Infallible>(0)
    });
    assert!(time::timeout(Duration::ZERO, never).await.is_err());
    assert!(lock(&reads.paths).is_empty());
}

#[tokio::test]
async fn limits_the_reads_of_all_paths() {
    let reads: Arc<SharedReads<usize, usize>> = Arc::new(SharedReads::new(3));
    let (sender, mut sent) = mpsc::unbounded_channel();
    let mut callers = JoinSet::new();
    for path in 0..4 {
        let (reads, sender) = (reads.clone(), sender.clone());
        callers.spawn(async move {
            let read = async || {
                let (answer, answered) = oneshot::channel();
                sender.send(answer).unwrap();
                answered.await
            };
            reads.get(&path, Peer::SELF, read).await
        });
    }
    let [first, _second] = [sent.recv().await.unwrap(), sent.recv().await.unwrap()];
    settle().await;
    assert!(sent.try_recv().is_err());
    first.send(7).unwrap();
    assert!(sent.recv().await.is_some());
}
