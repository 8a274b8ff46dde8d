use std::net::Ipv4Addr;

use tokio::time;

use super::*;
use crate::limits::MIN_KEPT_BODY_BYTES;

const SECOND: Duration = Duration::from_secs(1);

fn buffers() -> Arc<Buffers> {
    let limits = Limits {
        buffered_bytes: 100,
        buffered_bytes_per_peer: 30,
        buffered_bytes_per_proven_peer: 80,
        peer_grace: SECOND,
        ..Limits::default()
    };
    Buffers::for_clients(&limits, Counter::default())
}

fn sender(last: u8, proven: bool) -> Sender {
    let peer = IpAddr::from(Ipv4Addr::new(192, 0, 2, last));
    Sender { peer, proven }
}

async fn is_evicted(buffer: &Buffer) -> bool {
    time::timeout(Duration::ZERO, buffer.wait_until_evicted())
        .await
        .is_ok()
}

#[tokio::test(start_paused = true)]
async fn evicts_the_slowest_body_for_a_new_one() {
    let buffers = buffers();
    let [slow, slower] = [1, 2].map(|peer| buffers.open(Some(sender(peer, true))));
    slow.grow(40).unwrap();
    slower.grow(50).unwrap();
    time::advance(SECOND).await;
    let quick = buffers.open(Some(sender(3, false)));
    quick.grow(20).unwrap();
    assert!(is_evicted(&slower).await);
    assert!(!is_evicted(&slow).await);
    assert_eq!(slower.grow(1), Err(NoMemory));
    assert_eq!(buffers.held().bytes, 60);
    assert_eq!(buffers.evicted.get(), 1);
    // The largest body is the slowest, so it is not evicted for itself.
    assert_eq!(slow.grow(60), Err(NoMemory));
    drop((slow, slower, quick));
    assert_eq!(buffers.held().bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn does_not_evict_a_complete_body() {
    let buffers = buffers();
    let complete = buffers.open(Some(sender(1, true)));
    complete.grow(80).unwrap();
    complete.complete();
    time::advance(SECOND).await;
    assert_eq!(buffers.open(Some(sender(2, false))).grow(30), Err(NoMemory));
    assert!(!is_evicted(&complete).await);
}

#[tokio::test(start_paused = true)]
async fn an_unproven_peer_may_use_less_memory() {
    let buffers = buffers();
    let unproven = buffers.open(Some(sender(1, false)));
    // Within the first second only the limit of all bodies applies.
    unproven.grow(40).unwrap();
    time::advance(SECOND).await;
    assert_eq!(unproven.grow(1), Err(NoMemory));
    let proven = buffers.open(Some(sender(1, true)));
    proven.grow(30).unwrap();
    assert!(!is_evicted(&unproven).await);
    proven.grow(20).unwrap();
    assert!(is_evicted(&unproven).await);
}

#[tokio::test(start_paused = true)]
async fn does_not_evict_responses_of_the_api_server() {
    let buffers = Buffers::new(100);
    let first = buffers.open(None);
    first.grow(90).unwrap();
    time::advance(SECOND).await;
    assert_eq!(buffers.open(None).grow(11), Err(NoMemory));
    assert!(!is_evicted(&first).await);
}

#[test]
fn only_vectors_of_requests_are_kept() {
    let is_kept = |buffer: &Buffer| buffer.joined.as_ref().map(BodyVector::is_kept);
    for (buffers, kept) in [(buffers(), true), (Buffers::new(100), false)] {
        let mut earlier = buffers.open(None);
        earlier.append(b"earlier", MIN_KEPT_BODY_BYTES);
        assert_eq!(is_kept(&earlier), Some(kept));
        let memory = earlier.joined().as_ptr();
        drop(earlier);
        let mut later = buffers.open(None);
        later.append(b"later", MIN_KEPT_BODY_BYTES);
        assert_eq!(is_kept(&later), Some(kept));
        assert_eq!(later.joined(), b"later");
        if kept {
            assert_eq!(later.joined().as_ptr(), memory);
        }
    }
}
