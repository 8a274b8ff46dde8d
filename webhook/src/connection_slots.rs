//! The slots for open connections, and which connection is evicted for a new one.
//!
//! A connection is proven once the client has sent a complete review on it, or once the server has verified the
//! client's certificate. A client that opens connections and then sends nothing, or sends slowly, has only unproven
//! connections, and only these are evicted.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;
use tokio::{sync::Notify, time::Instant};

use crate::limits::Limits;

/// The slots for the connections of a listener.
pub(crate) struct ConnectionSlots {
    limits: Limits,
    open: Mutex<OpenConnections>,
    evicted: Counter,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    /// Connections by id; the smallest id is the oldest connection.
    connections: BTreeMap<u64, Connection>,
}

struct Connection {
    peer: IpAddr,
    state: Arc<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    /// When the server began to wait for a request; unset during the TLS handshake.
    waits_since: OnceLock<Instant>,
    proven: AtomicBool,
    evicted: Notify,
}

impl ConnectionSlots {
    pub(crate) fn new(limits: &Limits, evicted: Counter) -> Arc<Self> {
        Arc::new(Self {
            limits: limits.clone(),
            open: Mutex::default(),
            evicted,
        })
    }

    /// Takes a slot for a new connection, and evicts another connection if necessary. Returns `None` if all slots are
    /// taken and no connection can be evicted.
    pub(crate) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionSlot> {
        // An IPv4 client is the same peer on a socket for both IPv4 and IPv6 as on a socket for IPv4.
        let peer = peer.to_canonical();
        let mut open = self.open();
        let now = Instant::now();
        let waiting = open
            .connections_from(peer)
            .filter(|connection| connection.is_unproven() && connection.waits_for(now).is_some())
            .count();
        let evicted = if open.connections.len() >= self.limits.connections {
            Some(open.longest_waiting(open.peer_with_most_unproven()?, now)?)
        } else if open.connections_from(peer).count() >= self.limits.connections_per_peer {
            Some(open.longest_waiting(peer, now)?)
        } else if waiting >= self.limits.waiting_connections_per_peer {
            let is_old = |id: &u64| {
                let connection = open.connections.get(id);
                let waits = connection.and_then(|connection| connection.waits_for(now));
                waits.is_some_and(|waits| waits >= self.limits.peer_grace)
            };
            open.longest_waiting(peer, now).filter(is_old)
        } else {
            None
        };
        if let Some(connection) = evicted.and_then(|id| open.connections.remove(&id)) {
            connection.state.evicted.notify_one();
            self.evicted.inc();
        }
        let (id, state) = (open.next, Arc::<ConnectionState>::default());
        open.next += 1;
        open.connections.insert(
            id,
            Connection {
                peer,
                state: state.clone(),
            },
        );
        drop(open);
        Some(ConnectionSlot {
            slots: self.clone(),
            id,
            peer,
            state,
        })
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    fn is_unproven(&self) -> bool {
        !self.state.proven.load(Relaxed)
    }

    /// How long the server has waited for a request on this connection; `None` during the TLS handshake.
    fn waits_for(&self, now: Instant) -> Option<Duration> {
        Some(now.duration_since(*self.state.waits_since.get()?))
    }
}

impl OpenConnections {
    fn connections_from(&self, peer: IpAddr) -> impl Iterator<Item = &Connection> {
        let connections = self.connections.values();
        connections.filter(move |connection| connection.peer == peer)
    }

    /// The peer with the most unproven connections; `None` if every connection is proven.
    fn peer_with_most_unproven(&self) -> Option<IpAddr> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.connections.values().filter(|it| it.is_unproven()) {
            *counts.entry(connection.peer).or_default() += 1;
        }
        counts
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(peer, _)| peer)
    }

    /// The id of the peer's unproven connection on which the server has waited longest for a request. If the
    /// server waits on none of them, the id of the oldest connection in its handshake.
    fn longest_waiting(&self, peer: IpAddr, now: Instant) -> Option<u64> {
        let connections = self.connections.iter();
        connections
            .filter(|(_, connection)| connection.peer == peer && connection.is_unproven())
            .max_by_key(|(id, connection)| (connection.waits_for(now), Reverse(**id)))
            .map(|(id, _)| *id)
    }
}

/// The slot of one connection. Dropping it frees the slot.
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    id: u64,
    peer: IpAddr,
    state: Arc<ConnectionState>,
}

impl ConnectionSlot {
    pub(crate) const fn peer(&self) -> IpAddr {
        self.peer
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.state.proven.load(Relaxed)
    }

    /// Records that the TLS handshake is complete, and that the server now waits for a request.
    pub(crate) fn mark_ready(&self) {
        self.state.waits_since.get_or_init(Instant::now);
    }

    /// Marks the connection as proven, so that it is no longer evicted.
    pub(crate) fn mark_proven(&self) {
        self.state.proven.store(true, Relaxed);
    }

    /// Waits until the connection is evicted.
    pub(crate) async fn wait_until_evicted(&self) {
        self.state.evicted.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.open().connections.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
