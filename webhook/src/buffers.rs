//! The memory for request bodies. When it runs out, the server evicts the incomplete body with the highest product of
//! size and age. So slow clients cannot take the memory that fast clients need.

mod vectors;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;
use tokio::{sync::Notify, time::Instant};

use self::vectors::{BodyVector, KeptVectors};
use crate::limits::{Limits, MAX_KEPT_VECTORS};

/// The bodies in memory, and the limits on their memory.
pub(crate) struct Buffers {
    limit: usize,
    per_peer: Option<PeerLimits>,
    kept_vectors: Arc<KeptVectors>,
    held: Mutex<HeldBodies>,
    evicted: Counter,
}

/// The limits on the bodies from one IP address, in bytes, and the age from which they apply.
struct PeerLimits {
    bytes: usize,
    bytes_if_proven: usize,
    grace: Duration,
}

#[derive(Default)]
struct HeldBodies {
    bytes: usize,
    next: u64,
    bodies: BTreeMap<u64, Body>,
}

struct Body {
    sender: Option<Sender>,
    bytes: usize,
    since: Instant,
    complete: bool,
    evicted: Arc<Notify>,
}

/// The client that sends a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) peer: IpAddr,
    /// Whether the client has sent a complete review on this connection, or its certificate was verified.
    pub(crate) proven: bool,
}

/// There is not enough memory for a body, and no other body can be evicted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

impl Buffers {
    /// Memory for bodies that are never evicted, such as the API server's responses.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            per_peer: None,
            // Most responses come at the start, so their memory would be kept for nothing.
            kept_vectors: KeptVectors::new(0),
            held: Mutex::default(),
            evicted: Counter::default(),
        })
    }

    /// Memory for the bodies that clients send.
    pub(crate) fn for_clients(limits: &Limits, evicted: Counter) -> Arc<Self> {
        Arc::new(Self {
            limit: limits.buffered_bytes,
            per_peer: Some(PeerLimits {
                bytes: limits.buffered_bytes_per_peer,
                bytes_if_proven: limits.buffered_bytes_per_proven_peer,
                grace: limits.peer_grace,
            }),
            kept_vectors: KeptVectors::new(MAX_KEPT_VECTORS),
            held: Mutex::default(),
            evicted,
        })
    }

    /// Returns an empty buffer for a body from `sender`. A body without a sender is never evicted.
    pub(crate) fn open(self: &Arc<Self>, sender: Option<Sender>) -> Buffer {
        let evicted = Arc::new(Notify::new());
        let mut held = self.held();
        let id = held.next;
        held.next += 1;
        held.bodies.insert(
            id,
            Body {
                sender,
                bytes: 0,
                since: Instant::now(),
                complete: false,
                evicted: evicted.clone(),
            },
        );
        drop(held);
        Buffer {
            buffers: self.clone(),
            id,
            evicted,
            joined: None,
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldBodies> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grow(&self, id: u64, bytes: usize) -> Result<(), NoMemory> {
        let now = Instant::now();
        let mut held = self.held();
        let Some(body) = held.bodies.get_mut(&id) else {
            return Err(NoMemory);
        };
        body.bytes += bytes;
        let sender = body.sender;
        held.bytes += bytes;
        loop {
            let evicted = if held.bytes > self.limit {
                held.costliest(now, |_| true)
            } else if let Some((per_peer, sender)) = self.exceeded_limits(&held, sender) {
                let old = |body: &Body| now.duration_since(body.since) >= per_peer.grace;
                let evicted = held.costliest(now, |body| shares_limit(body, sender) && old(body));
                if evicted.is_none() {
                    return Ok(());
                }
                evicted
            } else {
                return Ok(());
            };
            match evicted.filter(|evicted| *evicted != id) {
                Some(evicted) => {
                    held.remove(evicted, |body| body.evicted.notify_one());
                    self.evicted.inc();
                }
                None => return Err(NoMemory),
            }
        }
    }

    /// The limits that apply to `sender`, if its bodies exceed them.
    fn exceeded_limits(&self, held: &HeldBodies, sender: Option<Sender>) -> Option<(&PeerLimits, Sender)> {
        let (per_peer, sender) = (self.per_peer.as_ref()?, sender?);
        let limit = if sender.proven {
            per_peer.bytes_if_proven
        } else {
            per_peer.bytes
        };
        let of_sender = held.bodies.values().filter(|body| shares_limit(body, sender));
        (of_sender.map(|body| body.bytes).sum::<usize>() > limit).then_some((per_peer, sender))
    }
}

/// Whether a body counts against the same limit as the bodies of `sender`.
fn shares_limit(body: &Body, sender: Sender) -> bool {
    body.sender
        .is_some_and(|other| other.peer == sender.peer && (sender.proven || !other.proven))
}

impl HeldBodies {
    /// The id of the incomplete body with the highest product of size and age.
    fn costliest(&self, now: Instant, filter: impl Fn(&Body) -> bool) -> Option<u64> {
        let may_be_evicted =
            |(_, body): &(&u64, &Body)| body.sender.is_some() && !body.complete && filter(body);
        let cost = |(_, body): &(&u64, &Body)| {
            let bytes = body.bytes as u128;
            (bytes * now.duration_since(body.since).as_millis(), bytes)
        };
        self.bodies
            .iter()
            .filter(may_be_evicted)
            .max_by_key(cost)
            .map(|(id, _)| *id)
    }

    fn remove(&mut self, id: u64, removed: impl FnOnce(&Body)) {
        if let Some(body) = self.bodies.remove(&id) {
            self.bytes -= body.bytes;
            removed(&body);
        }
    }
}

/// The memory of one body. Dropping it frees the memory for other bodies.
pub(crate) struct Buffer {
    buffers: Arc<Buffers>,
    id: u64,
    evicted: Arc<Notify>,
    /// The frames of the body, if it has several.
    joined: Option<BodyVector>,
}

impl Buffer {
    /// Counts `bytes` more bytes of this body, and evicts other bodies if necessary.
    pub(crate) fn grow(&self, bytes: usize) -> Result<(), NoMemory> {
        self.buffers.grow(self.id, bytes)
    }

    /// Appends a frame that [`Self::grow`] has counted to the frames of a body of `length` bytes.
    pub(crate) fn append(&mut self, frame: &[u8], length: usize) {
        let kept_vectors = &self.buffers.kept_vectors;
        let joined = self.joined.get_or_insert_with(|| kept_vectors.for_body(length));
        joined.bytes.extend_from_slice(frame);
    }

    /// The appended frames.
    pub(crate) fn joined(&self) -> &[u8] {
        self.joined.as_ref().map_or(&[], |joined| &joined.bytes)
    }

    /// Marks the body as complete, so that it is no longer evicted.
    pub(crate) fn complete(&self) {
        if let Some(body) = self.buffers.held().bodies.get_mut(&self.id) {
            body.complete = true;
        }
    }

    /// Waits until the body is evicted.
    pub(crate) async fn wait_until_evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Free the memory before other bodies may use it.
        self.joined = None;
        self.buffers.held().remove(self.id, |_| {});
    }
}

#[cfg(test)]
mod tests;
