use std::net::Ipv4Addr;

use tokio::time;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn slots(
    connections: usize,
    connections_per_peer: usize,
    waiting_connections_per_peer: usize,
) -> Arc<ConnectionSlots> {
    let limits = Limits {
        connections,
        connections_per_peer,
        waiting_connections_per_peer,
        peer_grace: SECOND,
        ..Limits::default()
    };
    ConnectionSlots::new(&limits, Counter::default())
}

fn peer(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

async fn is_evicted(slot: &ConnectionSlot) -> bool {
    time::timeout(Duration::ZERO, slot.wait_until_evicted())
        .await
        .is_ok()
}

#[tokio::test(start_paused = true)]
async fn evicts_the_oldest_waiting_connection_of_the_peer_with_the_most() {
    let slots = slots(4, 4, 4);
    let other = slots.take(peer(2)).unwrap();
    let proven = slots.take(peer(1)).unwrap();
    proven.mark_proven();
    let [old, new] = [1, 1].map(|last| slots.take(peer(last)).unwrap());
    let newest = slots.take(peer(3)).unwrap();
    assert!(is_evicted(&old).await);
    for slot in [&other, &proven, &new, &newest] {
        assert!(!is_evicted(slot).await);
    }
    assert_eq!(slots.evicted.get(), 1);
    // An evicted connection frees no slot when it ends.
    drop(old);
    assert_eq!(slots.open().connections.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn does_not_evict_proven_connections() {
    let slots = slots(2, 2, 2);
    let both = [1, 2].map(|last| slots.take(peer(last)).unwrap());
    both.iter().for_each(ConnectionSlot::mark_proven);
    assert!(slots.take(peer(3)).is_none());
    drop(both);
    assert!(slots.take(peer(3)).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_peer_keeps_few_waiting_connections_for_longer_than_a_second() {
    let slots = slots(10, 4, 2);
    let [first, second, third] = [1, 1, 1].map(|last| slots.take(peer(last)).unwrap());
    time::advance(SECOND).await;
    drop(slots.take(peer(1)).unwrap());
    // The handshake with these takes longer than a second.
    assert!(!is_evicted(&first).await);
    [&first, &second, &third]
        .into_iter()
        .for_each(ConnectionSlot::mark_ready);
    drop(slots.take(peer(1)).unwrap());
    assert!(!is_evicted(&first).await);
    time::advance(SECOND).await;
    let fourth = slots.take(peer(1)).unwrap();
    assert!(is_evicted(&first).await);
    drop(first);
    let fifth = slots.take(peer(1)).unwrap();
    assert!(is_evicted(&second).await);
    drop(second);
    let sixth = slots.take(peer(1)).unwrap();
    assert!(!is_evicted(&third).await);
    // The limit on all connections of the peer.
    let seventh = slots.take(peer(1)).unwrap();
    assert!(is_evicted(&third).await);
    drop(third);
    for slot in [&fourth, &fifth, &sixth, &seventh] {
        slot.mark_proven();
    }
    assert!(slots.take(peer(1)).is_none());
    assert!(slots.take(peer(2)).is_some());
    drop(sixth);
    assert!(slots.take(peer(1)).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_ipv4_client_is_the_same_peer_on_a_socket_for_both_families() {
    let slots = slots(10, 1, 1);
    let slot = slots.take("::ffff:192.0.2.1".parse().unwrap()).unwrap();
    slot.mark_proven();
    assert!(slots.take(peer(1)).is_none());
}
