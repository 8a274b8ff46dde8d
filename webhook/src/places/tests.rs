use std::net::Ipv4Addr;

use tokio::time;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn places(
    connections: usize,
    connections_per_peer: usize,
    waiting_connections_per_peer: usize,
) -> Arc<Places> {
    let limits = Limits {
        connections,
        connections_per_peer,
        waiting_connections_per_peer,
        peer_grace: SECOND,
        ..Limits::default()
    };
    Places::new(&limits, Counter::default())
}

fn peer(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

async fn gave_way(place: &Place) -> bool {
    time::timeout(Duration::ZERO, place.evicted()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn the_oldest_waiting_connection_of_the_peer_with_most_gives_way() {
    let places = places(4, 4, 4);
    let other = places.take(peer(2)).unwrap();
    let proven = places.take(peer(1)).unwrap();
    proven.prove();
    let [old, new] = [1, 1].map(|last| places.take(peer(last)).unwrap());
    let newest = places.take(peer(3)).unwrap();
    assert!(gave_way(&old).await);
    for place in [&other, &proven, &new, &newest] {
        assert!(!gave_way(place).await);
    }
    assert_eq!(places.evicted.get(), 1);
    // A connection that gave way frees no place when it ends.
    drop(old);
    assert_eq!(places.open().connections.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn proven_connections_do_not_give_way() {
    let places = places(2, 2, 2);
    let both = [1, 2].map(|last| places.take(peer(last)).unwrap());
    both.iter().for_each(Place::prove);
    assert!(places.take(peer(3)).is_none());
    drop(both);
    assert!(places.take(peer(3)).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_peer_keeps_few_waiting_connections_for_longer_than_a_second() {
    let places = places(10, 4, 2);
    let [first, second, third] = [1, 1, 1].map(|last| places.take(peer(last)).unwrap());
    time::advance(SECOND).await;
    drop(places.take(peer(1)).unwrap());
    // The handshake with these takes longer than a second.
    assert!(!gave_way(&first).await);
    [&first, &second, &third].into_iter().for_each(Place::ready);
    drop(places.take(peer(1)).unwrap());
    assert!(!gave_way(&first).await);
    time::advance(SECOND).await;
    let fourth = places.take(peer(1)).unwrap();
    assert!(gave_way(&first).await);
    drop(first);
    let fifth = places.take(peer(1)).unwrap();
    assert!(gave_way(&second).await);
    drop(second);
    let sixth = places.take(peer(1)).unwrap();
    assert!(!gave_way(&third).await);
    // The limit on all connections of the peer.
    let seventh = places.take(peer(1)).unwrap();
    assert!(gave_way(&third).await);
    drop(third);
    for place in [&fourth, &fifth, &sixth, &seventh] {
        place.prove();
    }
    assert!(places.take(peer(1)).is_none());
    assert!(places.take(peer(2)).is_some());
    drop(sixth);
    assert!(places.take(peer(1)).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_ipv4_client_is_the_same_peer_on_a_socket_for_both_families() {
    let places = places(10, 1, 1);
    let place = places.take("::ffff:192.0.2.1".parse().unwrap()).unwrap();
    place.prove();
    assert!(places.take(peer(1)).is_none());
}
