use std::net::Ipv4Addr;

use tokio::time;

use super::*;

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

/// A buffer with a body of `length` bytes, of which one has arrived.
fn joined(buffers: &Arc<Buffers>, length: usize) -> Buffer {
    let mut buffer = buffers.open(None);
    buffer.append(b"a", length);
    buffer
}

/// The number of vectors that are kept, and that bodies have.
fn vectors(buffers: &Buffers) -> (usize, usize) {
    let held = buffers.held();
    (held.kept.len(), held.lent)
}

#[test]
fn a_body_uses_the_vector_of_an_earlier_body() {
    let buffers = buffers();
    let earlier = joined(&buffers, MIN_KEPT_BODY_BYTES);
    assert_eq!(vectors(&buffers), (0, 1));
    let memory = earlier.joined().as_ptr();
    drop(earlier);
    assert_eq!(vectors(&buffers), (1, 0));
    let mut later = joined(&buffers, KEPT_VECTOR_BYTES);
    later.append(b"b", KEPT_VECTOR_BYTES);
    assert_eq!(vectors(&buffers), (0, 1));
    assert_eq!((later.joined(), later.joined().as_ptr()), (&b"ab"[..], memory));
}

#[test]
fn the_number_of_vectors_is_limited() {
    let buffers = buffers();
    let mut bodies: Vec<_> = (0..=MAX_KEPT_VECTORS)
        .map(|_| joined(&buffers, MIN_KEPT_BODY_BYTES))
        .collect();
    assert_eq!(vectors(&buffers), (0, MAX_KEPT_VECTORS));
    // The last body came too late for a vector that is kept.
    drop(bodies.pop());
    assert_eq!(vectors(&buffers), (0, MAX_KEPT_VECTORS));
    drop(bodies);
    assert_eq!(vectors(&buffers), (MAX_KEPT_VECTORS, 0));
    drop(joined(&buffers, MIN_KEPT_BODY_BYTES));
    assert_eq!(vectors(&buffers), (MAX_KEPT_VECTORS, 0));
}

#[test]
fn only_vectors_of_large_requests_are_kept() {
    for (buffers, length) in [
        (buffers(), MIN_KEPT_BODY_BYTES - 1),
        (buffers(), KEPT_VECTOR_BYTES + 1),
        (Buffers::new(100), MIN_KEPT_BODY_BYTES),
    ] {
        drop(joined(&buffers, length));
        assert_eq!(vectors(&buffers), (0, 0), "{length}");
    }
}

#[test]
fn a_vector_that_has_grown_is_not_kept() {
    let buffers = buffers();
    let mut grown = joined(&buffers, MIN_KEPT_BODY_BYTES);
    grown.append(&vec![0; KEPT_VECTOR_BYTES], MIN_KEPT_BODY_BYTES);
    drop(grown);
    assert_eq!(vectors(&buffers), (0, 0));
}
