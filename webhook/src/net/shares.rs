//! What clients share, such as memory, and how much of it one client gets.
//!
//! An address may hold at most as much as is free. So one address alone gets half, and two addresses get a third each. An address
//! that holds nothing therefore always finds something free. A new share must also leave the same amount free for its address, so
//! that large shares do not keep small ones out.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time};

use crate::limits::MAX_WAIT;

/// A client that takes a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Whether the certificate of the client was verified. Such a client may hold everything that is free.
    pub(crate) verified: bool,
}

impl Peer {
    /// This program itself, for reads that belong to no review.
    pub(crate) const SELF: Self = Self {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        verified: true,
    };
}

/// Something that clients share, and who holds how much of it.
pub(crate) struct Shares {
    total: usize,
    /// The part of `total` that only verified clients get.
    reserved: usize,
    held: Mutex<Held>,
    freed: Notify,
}

#[derive(Default)]
struct Held {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Too little is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl Shares {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Self::with_reserve(total, 0)
    }

    pub(crate) fn with_reserve(total: usize, reserved: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            reserved,
            held: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// An empty share.
    pub(crate) fn open(self: &Arc<Self>, peer: Peer) -> Share {
        Share {
            shares: self.clone(),
            peer,
            amount: 0,
        }
    }

    /// Takes a share. If too little is free, waits for at most [`MAX_WAIT`].
    pub(crate) async fn take(self: &Arc<Self>, peer: Peer, amount: usize) -> Result<Share, Exhausted> {
        let share = time::timeout(MAX_WAIT, self.wait_for(peer, amount));
        share.await.map_err(|_| Exhausted)
    }

    /// Takes a share. If too little is free, waits until enough is free. The caller must set a time limit.
    pub(crate) async fn wait_for(self: &Arc<Self>, peer: Peer, amount: usize) -> Share {
        let mut share = self.open(peer);
        loop {
            let freed = self.freed.notified();
            if share.grow(amount, amount).is_ok() {
                return share;
            }
            freed.await;
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, held: &Held, peer: Peer, more: usize) -> bool {
        let Some(free) = self.total.checked_sub(held.all.saturating_add(more)) else {
            return false;
        };
        let of_address = held.by_address.get(&peer.address).copied().unwrap_or_default();
        peer.verified || of_address + more <= free.saturating_sub(self.reserved)
    }
}

/// The part that one client holds. Dropping it frees the part.
pub(crate) struct Share {
    shares: Arc<Shares>,
    peer: Peer,
    amount: usize,
}

impl Share {
    /// Makes the share at least `amount` large, if enough is free.
    pub(crate) fn grow_to(&mut self, amount: usize) -> Result<(), Exhausted> {
        self.grow(amount.saturating_sub(self.amount), 0)
    }

    /// Takes `more`, if `spare` would then still be free for the same client.
    fn grow(&mut self, more: usize, spare: usize) -> Result<(), Exhausted> {
        if more == 0 {
            return Ok(());
        }
        let mut held = self.shares.held();
        if !self.shares.admits(&held, self.peer, more + spare) {
            return Err(Exhausted);
        }
        self.amount += more;
        held.all += more;
        *held.by_address.entry(self.peer.address).or_default() += more;
        Ok(())
    }

    /// Makes the share at most `amount` large.
    pub(crate) fn shrink_to(&mut self, amount: usize) {
        let mut held = self.shares.held();
        let less = self.amount.saturating_sub(amount);
        self.amount -= less;
        held.all -= less;
        if let Some(of_address) = held.by_address.get_mut(&self.peer.address) {
            *of_address -= less;
            if *of_address == 0 {
                held.by_address.remove(&self.peer.address);
            }
        }
        drop(held);
        self.shares.freed.notify_waiters();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Peer {
        Peer {
            address: Ipv4Addr::new(192, 0, 2, last).into(),
            verified: false,
        }
    }

    /// As much as the client gets.
    fn most(shares: &Arc<Shares>, peer: Peer) -> Share {
        let mut share = shares.open(peer);
        while share.grow_to(share.amount + 1).is_ok() {}
        share
    }

    #[test]
    fn each_further_address_gets_half_of_the_rest() {
        for (total, reserved, expected) in [
            (100, 0, [50, 25, 12, 6, 3, 2]),
            (100, 40, [30, 15, 7, 4, 2, 1]),
            (32, 0, [16, 8, 4, 2, 1, 0]),
        ] {
            let shares = Shares::with_reserve(total, reserved);
            let all = [1, 2, 3, 4, 5, 6].map(|last| most(&shares, peer(last)));
            assert_eq!(all.each_ref().map(|share| share.amount), expected);
            assert_eq!(shares.open(peer(1)).grow_to(1), Err(Exhausted));
            let free = total - expected.iter().sum::<usize>();
            let verified = Peer {
                verified: true,
                ..peer(1)
            };
            assert_eq!(most(&shares, verified).amount, free);
            drop(all);
            let held = shares.held();
            assert_eq!((held.all, held.by_address.len()), (0, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_until_enough_is_free() {
        let shares = Shares::new(100);
        assert!(shares.take(peer(1), 26).await.is_err());
        let mut first = shares.take(peer(1), 25).await.unwrap();
        // A small share does not wait behind a large one.
        let large = shares.take(peer(2), 20);
        let small = shares.take(peer(2), 10);
        let (large, small) = tokio::join!(large, small);
        assert_eq!(large.err(), Some(Exhausted));
        let (large, ()) = tokio::join!(shares.take(peer(2), 20), async {
            first.shrink_to(0);
        });
        assert_eq!((large.unwrap().amount, small.unwrap().amount), (20, 10));
    }
}
