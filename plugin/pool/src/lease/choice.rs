//! Which entry of an inventory a holder gets, and in which order entries are tried. Pure.

use std::cmp::Ordering;

use jiff::Timestamp;
use kcp_api::metadata::Object as _;

use crate::{
    install_config::patches::Unfit,
    lease::{
        generated_name::lease_id,
        rule::{Rule, Step},
        usage::{Clusters, Seen, is_own, users},
    },
    objects::{
        ClusterName, Holder,
        cluster_deployment::ClusterDeployment,
        entry::{Entry, Reservation, Reserved as _},
        record::{LeaseRecord, Unreadable},
    },
};

/// The entries of a pool, the entries that a holder has besides, and what else is known of them.
#[derive(Clone, Debug)]
pub struct Inventory<'l> {
    /// In the pool's order, each name once; then the entries that the pool does not list.
    pub slots: Vec<Slot<'l>>,
    pub clusters: &'l Clusters,
    pub rule: Rule,
}

/// One name of an inventory.
#[derive(Clone, Debug)]
pub struct Slot<'l> {
    pub name: &'l str,
    /// Whether the pool lists it. An entry that it does not list is never leased.
    pub is_named: bool,
    /// None if there is no such customization.
    pub entry: Option<&'l Entry>,
    /// Why it cannot be leased; none if that is not known.
    pub unfit: Option<Unfit>,
}

/// The state of one entry, for one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Ours,
    /// Nobody has it, or the lease of who had it is over.
    Free,
    /// Another holder has it.
    Held {
        /// None while Hive reserves the entry in two steps.
        cluster_deployment: Option<String>,
        pool: Option<String>,
        until: Option<Until>,
    },
    /// No holder has it, but a cluster uses it.
    Referenced {
        by: ClusterName,
    },
    /// Nobody has it, but it cannot be leased.
    Unusable(Unusable),
}

/// Until when another holder has an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Its cluster uses the entry.
    ClusterGone,
    /// Its lease ends.
    Time(Timestamp),
    /// The lease has ended. A look has to find that no cluster uses the entry.
    Look,
    Never,
}

/// Why an entry cannot be leased by a new holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    Unfit(Unfit),
    Cordoned(String),
    Deleting,
    /// The pool does not list it.
    Unnamed,
    /// There is no such customization.
    Missing,
    Unreadable(Unreadable),
}

/// What a holder gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice<'l> {
    /// What it already has.
    Held(&'l Entry),
    /// One of these, tried in this order. Never empty.
    Free(Vec<&'l Entry>),
    /// Nothing: the holder is bound to an entry, by its ClusterDeployment or by the entry's references, and cannot
    /// have it.
    Bound { name: &'l str, standing: Standing },
    /// Nothing: no entry of the pool is free.
    Exhausted {
        /// The state of each.
        standings: Vec<(&'l str, Standing)>,
        /// Leases that this look moves on.
        steps: Vec<Move<'l>>,
    },
}

/// A lease that a look moves on.
#[derive(Clone, Debug, PartialEq)]
pub struct Move<'l> {
    pub entry: &'l Entry,
    pub pool: String,
    pub record: LeaseRecord,
}

impl Standing {
    /// The ClusterDeployment and the pool that have it.
    pub fn user(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Held {
                cluster_deployment,
                pool,
                ..
            } => (cluster_deployment.as_deref(), pool.as_deref()),
            Self::Referenced { by } => (Some(&by.name), None),
            Self::Ours | Self::Free | Self::Unusable(_) => (None, None),
        }
    }
}

impl<'l> Inventory<'l> {
    /// What the holder gets. What it already has comes first, so that leasing twice leases one entry.
    pub fn choose(&self, holder: Holder<'_>) -> Choice<'l> {
        let standings: Vec<_> = self
            .slots
            .iter()
            .map(|slot| (slot, self.standing(slot, holder)))
            .collect();
        let is_bound = |slot: &Slot<'_>| {
            slot.entry
                .is_some_and(|entry| self.own_user(entry, holder).is_some())
        };
        if let Some((slot, standing)) = standings.iter().find(|(slot, _)| is_bound(slot)) {
            return match (standing, slot.entry) {
                (Standing::Ours, Some(entry)) => Choice::Held(entry),
                (Standing::Free, Some(entry)) => Choice::Free(vec![entry]),
                _ => bound(slot, standing),
            };
        }
        let with = |wanted: Standing| {
            standings
                .iter()
                .filter(move |(_, standing)| *standing == wanted)
                .filter_map(|(slot, _)| slot.entry)
        };
        if let Some(held) = with(Standing::Ours).next() {
            return Choice::Held(held);
        }
        let is_ours = |slot: &Slot<'_>| slot.entry.is_some_and(|entry| entry.names(holder));
        if let Some((slot, standing)) = standings.iter().find(|(slot, _)| is_ours(slot)) {
            return bound(slot, standing);
        }
        let mut free: Vec<_> = with(Standing::Free).collect();
        if !free.is_empty() {
            free.sort_by(|a, b| self.order(a, b, holder));
            return Choice::Free(free);
        }
        Choice::Exhausted {
            steps: self.steps(),
            standings: standings
                .into_iter()
                .filter(|(slot, _)| slot.is_named)
                .map(|(slot, standing)| (slot.name, standing))
                .collect(),
        }
    }

    /// The state of the entry. A lease stays although the entry is being deleted, cordoned, or left the inventory;
    /// only a new lease needs an entry without these.
    fn standing(&self, slot: &Slot<'_>, holder: Holder<'_>) -> Standing {
        let Some(entry) = slot.entry else {
            return Standing::Unusable(Unusable::Missing);
        };
        let reservation = entry.reservation();
        let is_ended = match &reservation {
            Reservation::Unreadable(why) => return Standing::Unusable(Unusable::Unreadable(why.clone())),
            _ if entry.names(holder) => return Standing::Ours,
            Reservation::Free => true,
            Reservation::Unrecorded => false,
            Reservation::Leased(record) => self.rule.step(record, self.clusters.seen(entry)) == Step::Free,
        };
        if !is_ended {
            return Standing::Held {
                cluster_deployment: entry.cluster_deployment().map(str::to_owned),
                pool: entry.cluster_pool().map(str::to_owned),
                until: self.until(entry, &reservation),
            };
        }
        if entry.is_deleting() {
            return Standing::Unusable(Unusable::Deleting);
        }
        if !slot.is_named {
            return Standing::Unusable(Unusable::Unnamed);
        }
        if let Some(by) = self.other_user(entry, holder) {
            return Standing::Referenced {
                by: ClusterName::new(by.namespace(), by.name()),
            };
        }
        if let Some(reason) = entry.cordoned() {
            return Standing::Unusable(Unusable::Cordoned(reason.to_owned()));
        }
        match &slot.unfit {
            Some(why) => Standing::Unusable(Unusable::Unfit(why.clone())),
            None => Standing::Free,
        }
    }

    fn until(&self, entry: &Entry, reservation: &Reservation) -> Option<Until> {
        let Reservation::Leased(record) = reservation else {
            return None;
        };
        Some(match (self.clusters.seen(entry), record.deadline) {
            (Seen::Used(_), _) => Until::ClusterGone,
            (_, None) => Until::Never,
            (_, deadline) if self.rule.has_ended(deadline) => Until::Look,
            (_, Some(deadline)) => Until::Time(deadline),
        })
    }

    fn own_user(&self, entry: &Entry, holder: Holder<'_>) -> Option<&'l ClusterDeployment> {
        let deployments = self.clusters.known()?;
        users(deployments, entry).find(|cluster| is_own(cluster, deployments.namespace(), holder))
    }

    fn other_user(&self, entry: &Entry, holder: Holder<'_>) -> Option<&'l ClusterDeployment> {
        let deployments = self.clusters.known()?;
        users(deployments, entry).find(|cluster| !is_own(cluster, deployments.namespace(), holder))
    }

    /// The leases of the inventory that this look moves on without freeing their entries.
    fn steps(&self) -> Vec<Move<'l>> {
        let named = self.slots.iter().filter(|slot| slot.is_named);
        let step = |entry: &'l Entry| match self.rule.look(entry, self.clusters.seen(entry), lease_id) {
            (pool, Step::Write(record)) => Some(Move { entry, pool, record }),
            (_, Step::Keep | Step::Free) => None,
        };
        named.filter_map(|slot| step(slot.entry?)).collect()
    }

    /// Entries that were free already, before those whose lease is over; then those whose last use succeeded, or that
    /// were never used, before those whose last use failed; then the one that was unused for longest; then an order of
    /// its own for each holder, so that many holders do not all try the same entry. A total order, unlike Hive's, which
    /// has cycles with three failed entries.
    fn order(&self, a: &Entry, b: &Entry, holder: Holder<'_>) -> Ordering {
        let key = |entry: &Entry| {
            let is_taken = entry.reservation() != Reservation::Free;
            let last = entry.last_result(self.rule.now.latest);
            (is_taken, last, scatter(holder, entry.name()))
        };
        key(a).cmp(&key(b)).then_with(|| a.name().cmp(b.name()))
    }
}

fn bound<'l>(slot: &Slot<'l>, standing: &Standing) -> Choice<'l> {
    Choice::Bound {
        name: slot.name,
        standing: standing.clone(),
    }
}

/// A hash of a holder and an entry: FNV-1a over both, then the finalizer of `SplitMix64`, because FNV alone keeps
/// names that differ in their last letter almost in order.
fn scatter(holder: Holder<'_>, entry: &str) -> u64 {
    let bytes = [holder.pool, "\0", holder.cluster_deployment, "\0", entry]
        .into_iter()
        .flat_map(str::bytes);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests;
