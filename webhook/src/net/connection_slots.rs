//! The slots for open connections, and which connection is evicted for a new one.
//!
//! If all slots are taken, a new connection evicts another one: of the addresses with an idle connection, the one with the most
//! connections gives up the connection that has been idle longest. A connection is idle if the server is not handling a review on it, even if the client has sent part of a
//! request.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

/// The slots for the connections of a listener.
pub(crate) struct ConnectionSlots {
    limit: usize,
    open: Mutex<OpenConnections>,
    evicted: Counter,
}

#[derive(Default)]
struct OpenConnections {
    /// The number of times that connections became idle.
    idled: u64,
    next: u64,
    by_id: BTreeMap<u64, Connection>,
}

struct Connection {
    peer: IpAddr,
    /// When the connection became idle, as a value of [`OpenConnections::idled`]; `None` while its review is handled.
    idle: Option<u64>,
    evicted: Arc<Notify>,
}

impl ConnectionSlots {
    pub(crate) fn new(limit: usize, evicted: Counter) -> Arc<Self> {
        Arc::new(Self {
            limit,
            open: Mutex::default(),
            evicted,
        })
    }

    /// Takes a slot for a new connection, and evicts another connection if necessary. Returns `None` if all slots are
    /// taken and the server is handling a review on every connection.
    pub(crate) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionSlot> {
        // On a socket for both IPv4 and IPv6, an IPv4 client has an IPv4-mapped IPv6 address. Use its IPv4 address, as on a
        // socket for IPv4.
        let peer = peer.to_canonical();
        let mut open = self.open();
        if open.by_id.len() >= self.limit {
            let longest_idle = open.longest_idle()?;
            let connection = open.by_id.remove(&longest_idle)?;
            connection.evicted.notify_one();
            self.evicted.inc();
        }
        let (id, evicted) = (open.next, Arc::new(Notify::new()));
        open.next += 1;
        let connection = Connection {
            peer,
            idle: Some(open.count_idle()),
            evicted: evicted.clone(),
        };
        open.by_id.insert(id, connection);
        drop(open);
        Some(ConnectionSlot {
            slots: self.clone(),
            id,
            peer,
            evicted,
        })
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    fn count_idle(&mut self) -> u64 {
        self.idled += 1;
        self.idled
    }

    /// Returns the id of the connection to evict. Considers the addresses that have an idle connection, and chooses the address
    /// with the most connections. Returns its connection that has been idle longest.
    fn longest_idle(&self) -> Option<u64> {
        let mut by_peer: HashMap<IpAddr, (usize, Option<(u64, u64)>)> = HashMap::new();
        for (id, connection) in &self.by_id {
            let (count, longest) = by_peer.entry(connection.peer).or_default();
            *count += 1;
            let idle = connection.idle.map(|since| (since, *id));
            *longest = longest.iter().copied().chain(idle).min();
        }
        let idle = by_peer
            .into_values()
            .filter_map(|(count, longest)| Some((count, longest?)));
        let most = idle.max_by_key(|(count, (since, _))| (*count, Reverse(*since)));
        most.map(|(_, (_, id))| id)
    }
}

/// The slot of one connection. Dropping it frees the slot.
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    id: u64,
    peer: IpAddr,
    evicted: Arc<Notify>,
}

impl ConnectionSlot {
    pub(crate) const fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Keeps the connection from being evicted until the returned guard is dropped.
    pub(crate) fn keep(&self) -> Kept<'_> {
        self.set_idle(false);
        Kept(self)
    }

    fn set_idle(&self, idle: bool) {
        let mut open = self.slots.open();
        let idle = idle.then(|| open.count_idle());
        if let Some(connection) = open.by_id.get_mut(&self.id) {
            connection.idle = idle;
        }
    }

    /// Waits until the connection is evicted.
    pub(crate) async fn wait_until_evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.open().by_id.remove(&self.id);
    }
}

/// A connection whose review the server handles.
pub(crate) struct Kept<'s>(&'s ConnectionSlot);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.set_idle(true);
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use tokio::time;

    use super::*;

    fn peer(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    async fn is_evicted(slot: &ConnectionSlot) -> bool {
        time::timeout(Duration::ZERO, slot.wait_until_evicted())
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn evicts_the_longest_idle_connection_of_the_address_with_the_most() {
        let slots = ConnectionSlots::new(5, Counter::default());
        let all = [2, 1, 1, 1, 2].map(|last| slots.take(peer(last)).unwrap());
        // This one was idle a moment ago, and the server handles a review on the next.
        drop(all[1].keep());
        let kept = all[2].keep();
        let newest = slots.take(peer(3)).unwrap();
        let mut evicted = Vec::new();
        for slot in all.iter().chain([&newest]) {
            evicted.push(is_evicted(slot).await);
        }
        assert_eq!(evicted, [false, false, false, true, false, false]);
        assert_eq!(slots.evicted.get(), 1);
        drop(kept);
        // An evicted connection frees no slot when it ends.
        drop(all);
        assert_eq!(slots.open().by_id.len(), 1);
    }

    #[test]
    fn does_not_evict_a_connection_whose_review_is_handled() {
        let slots = ConnectionSlots::new(1, Counter::default());
        let slot = slots.take(peer(1)).unwrap();
        let kept = slot.keep();
        assert!(slots.take(peer(2)).is_none());
        drop(kept);
        assert!(slots.take(peer(2)).is_some());
    }

    #[test]
    fn an_ipv4_client_is_the_same_peer_on_a_socket_for_both_families() {
        let slots = ConnectionSlots::new(1, Counter::default());
        let slot = slots.take("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert_eq!(slot.peer(), peer(1));
    }
}
