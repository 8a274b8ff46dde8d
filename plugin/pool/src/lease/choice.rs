//! Decides which entry of an inventory a holder gets, and in which order free entries are tried. No I/O.

use std::cmp::Ordering;

use jiff::Timestamp;
use kcp_api::metadata::Object as _;

use crate::{
    install_config::patches::PatchProblem,
    lease::{
        generated_name::lease_id,
        rule::{Rule, Step},
        usage::{Clusters, Usage, is_own, users},
    },
    objects::{
        ClusterName, Holder,
        cluster_deployment::ClusterDeployment,
        entry::{Entry, EntryStatus as _, Reservation},
        record::{LeaseRecord, Unreadable},
    },
};

/// The entries of a pool, other entries of the holder, and the clusters.
#[derive(Clone, Debug)]
pub struct Inventory<'l> {
    /// One slot for each name in the inventory, in the pool's order, followed by the holder's entries that the pool does
    /// not list.
    pub slots: Vec<Slot<'l>>,
    pub clusters: &'l Clusters,
    pub rule: Rule,
}

/// One name of an inventory.
#[derive(Clone, Debug)]
pub struct Slot<'l> {
    pub name: &'l str,
    /// Whether the pool lists the entry. Other entries are never leased.
    pub is_named: bool,
    /// The entry; none if the customization does not exist.
    pub entry: Option<&'l Entry>,
    /// Why the entry's patches cannot be applied; none if no problem was found.
    pub unfit: Option<PatchProblem>,
}

/// Whether a holder can lease an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    Ours,
    /// The entry is free, or its lease has ended.
    Free,
    /// Another holder has the entry.
    Held {
        /// The other holder; none while Hive reserves the entry, which takes it two writes.
        cluster_deployment: Option<String>,
        pool: Option<String>,
        until: Option<Until>,
    },
    /// The entry has no holder, but a cluster uses it.
    Referenced {
        by: ClusterName,
    },
    /// The entry has no holder, but cannot be leased.
    Unusable(UnusableReason),
}

/// How long an entry stays with another holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until its cluster no longer exists.
    ClusterGone,
    /// Until its lease ends.
    Time(Timestamp),
    /// Until a check finds that no cluster uses the entry. The lease has ended.
    NextCheck,
    Never,
}

/// Why an entry cannot be leased by a new holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnusableReason {
    Patches(PatchProblem),
    Cordoned(String),
    Deleting,
    /// The pool does not list the entry.
    Unnamed,
    /// The customization does not exist.
    Missing,
    Unreadable(Unreadable),
}

/// The decision about the entry that a holder gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice<'l> {
    /// The holder already has this entry.
    Held(&'l Entry),
    /// The holder gets one of these free entries, which are tried in this order. Never empty.
    Free(Vec<&'l Entry>),
    /// The holder gets no entry: its ClusterDeployment or an earlier lease names this entry, but the holder cannot lease
    /// it.
    Bound {
        name: &'l str,
        availability: Availability,
    },
    /// The holder gets no entry, because none of the pool's entries is free.
    Exhausted {
        /// Why each entry is not free.
        availabilities: Vec<(&'l str, Availability)>,
        /// Leases whose records are out of date.
        steps: Vec<RecordUpdate<'l>>,
    },
}

/// A new record of a lease, because a cluster appeared or disappeared.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordUpdate<'l> {
    pub entry: &'l Entry,
    pub pool: String,
    pub record: LeaseRecord,
}

impl Availability {
    /// The ClusterDeployment and the pool that have the entry.
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
    /// Decides which entry the holder gets. An entry that the holder already has comes first, so that a repeated request
    /// leases only one entry.
    pub fn choose(&self, holder: Holder<'_>) -> Choice<'l> {
        let availabilities: Vec<_> = self
            .slots
            .iter()
            .map(|slot| (slot, self.availability(slot, holder)))
            .collect();
        let is_bound = |slot: &Slot<'_>| {
            slot.entry
                .is_some_and(|entry| self.own_user(entry, holder).is_some())
        };
        if let Some((slot, availability)) = availabilities.iter().find(|(slot, _)| is_bound(slot)) {
            return match (availability, slot.entry) {
                (Availability::Ours, Some(entry)) => Choice::Held(entry),
                (Availability::Free, Some(entry)) => Choice::Free(vec![entry]),
                _ => bound(slot, availability),
            };
        }
        let with = |wanted: Availability| {
            availabilities
                .iter()
                .filter(move |(_, availability)| *availability == wanted)
                .filter_map(|(slot, _)| slot.entry)
        };
        if let Some(held) = with(Availability::Ours).next() {
            return Choice::Held(held);
        }
        let is_ours = |slot: &Slot<'_>| slot.entry.is_some_and(|entry| entry.refers_to(holder));
        if let Some((slot, availability)) = availabilities.iter().find(|(slot, _)| is_ours(slot)) {
            return bound(slot, availability);
        }
        let mut free: Vec<_> = with(Availability::Free).collect();
        if !free.is_empty() {
            free.sort_by(|a, b| self.order(a, b, holder));
            return Choice::Free(free);
        }
        Choice::Exhausted {
            steps: self.steps(),
            availabilities: availabilities
                .into_iter()
                .filter(|(slot, _)| slot.is_named)
                .map(|(slot, availability)| (slot.name, availability))
                .collect(),
        }
    }

    /// Whether the holder can lease the entry. An existing lease continues while the entry is being deleted, is cordoned
    /// or is not in the inventory; a new lease requires an entry without these.
    fn availability(&self, slot: &Slot<'_>, holder: Holder<'_>) -> Availability {
        let Some(entry) = slot.entry else {
            return Availability::Unusable(UnusableReason::Missing);
        };
        let reservation = entry.reservation();
        let is_ended = match &reservation {
            Reservation::Unreadable(why) => {
                return Availability::Unusable(UnusableReason::Unreadable(why.clone()));
            }
            _ if entry.refers_to(holder) => return Availability::Ours,
            Reservation::Free => true,
            Reservation::Unrecorded => false,
            Reservation::Leased(record) => self.rule.step(record, self.clusters.usage(entry)) == Step::Free,
        };
        if !is_ended {
            return Availability::Held {
                cluster_deployment: entry.cluster_deployment().map(str::to_owned),
                pool: entry.cluster_pool().map(str::to_owned),
                until: self.until(entry, &reservation),
            };
        }
        if entry.is_deleting() {
            return Availability::Unusable(UnusableReason::Deleting);
        }
        if !slot.is_named {
            return Availability::Unusable(UnusableReason::Unnamed);
        }
        if let Some(by) = self.other_user(entry, holder) {
            return Availability::Referenced {
                by: ClusterName::new(by.namespace(), by.name()),
            };
        }
        if let Some(reason) = entry.cordoned() {
            return Availability::Unusable(UnusableReason::Cordoned(reason.to_owned()));
        }
        match &slot.unfit {
            Some(why) => Availability::Unusable(UnusableReason::Patches(why.clone())),
            None => Availability::Free,
        }
    }

    fn until(&self, entry: &Entry, reservation: &Reservation) -> Option<Until> {
        let Reservation::Leased(record) = reservation else {
            return None;
        };
        Some(match (self.clusters.usage(entry), record.deadline) {
            (Usage::Used(_), _) => Until::ClusterGone,
            (_, None) => Until::Never,
            (_, deadline) if self.rule.has_ended(deadline) => Until::NextCheck,
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

    /// New records for leases that the rule changes without freeing their entries.
    fn steps(&self) -> Vec<RecordUpdate<'l>> {
        let named = self.slots.iter().filter(|slot| slot.is_named);
        let step = |entry: &'l Entry| match self.rule.check(entry, self.clusters.usage(entry), lease_id) {
            (pool, Step::Write(record)) => Some(RecordUpdate { entry, pool, record }),
            (_, Step::Keep | Step::Free) => None,
        };
        named.filter_map(|slot| step(slot.entry?)).collect()
    }

    /// The order in which entries are tried. Free entries come before entries whose lease has ended. Entries whose last
    /// use succeeded or that were never used come before entries whose last use failed. Then comes the entry that was
    /// unused for the longest time. Equal entries have a different order for each holder, so that not all holders try
    /// the same entry first. Unlike Hive's order, which has cycles with three failed entries, this is a total order.
    fn order(&self, a: &Entry, b: &Entry, holder: Holder<'_>) -> Ordering {
        let key = |entry: &Entry| {
            let is_taken = entry.reservation() != Reservation::Free;
            let last = entry.last_result(self.rule.now.latest);
            (is_taken, last, tie_break_hash(holder, entry.name()))
        };
        key(a).cmp(&key(b)).then_with(|| a.name().cmp(b.name()))
    }
}

fn bound<'l>(slot: &Slot<'l>, availability: &Availability) -> Choice<'l> {
    Choice::Bound {
        name: slot.name,
        availability: availability.clone(),
    }
}

/// A hash of a holder and an entry: FNV-1a over both, followed by the last step of `SplitMix64`. With FNV alone, names
/// that differ in their last letter have almost the same order for every holder.
fn tie_break_hash(holder: Holder<'_>, entry: &str) -> u64 {
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
