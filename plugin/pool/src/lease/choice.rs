//! Decides which entries of an inventory a holder gets, and in which order the free entries are tried. No I/O.

use std::cmp::Ordering;

use jiff::Timestamp;
use kcp_api::metadata::Object as _;

use crate::{
    install_config::patches::PatchProblem,
    lease::{
        generated_name::generate_lease_id,
        reuse::Reuse,
        rule::{Rule, Transition},
        usage::{Clusters, Usage, belongs_to_holder, belongs_to_lease, clusters_using},
    },
    objects::{
        CleaningRecord, ClusterName, Holder,
        cluster_deployment::ClusterDeployment,
        entry::{Entry, EntryStatus as _, LastResult, Reservation},
        record::Unreadable,
    },
};

/// A pool's inventory, with the facts that decide which of its entries a holder gets.
#[derive(Clone, Debug)]
pub struct Inventory<'l> {
    /// One slot for each name in the inventory, in its order, followed by entries that the holder holds although the pool
    /// does not list them.
    pub slots: Vec<InventorySlot<'l>>,
    pub clusters: &'l Clusters,
    pub rule: Rule,
}

/// A name in a pool's inventory, and the entry of that name.
#[derive(Clone, Debug)]
pub struct InventorySlot<'l> {
    pub name: &'l str,
    /// Whether the pool's inventory lists the name. An entry that is not listed is never leased to a new holder.
    pub is_in_inventory: bool,
    /// The customization of that name; `None` if it does not exist.
    pub entry: Option<&'l Entry>,
    /// Why the entry's patches cannot be applied; `None` if they can, or were not checked.
    pub patch_problem: Option<PatchProblem>,
    /// What becomes of the entry when its lease ends.
    pub reuse: Reuse,
}

/// Whether a holder can lease an entry, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    Ours,
    /// The entry is free, or its lease has ended.
    Free,
    /// Another holder holds the entry.
    Held {
        /// The ClusterDeployment that holds the entry; `None` between Hive's two writes of a reservation.
        cluster_deployment: Option<String>,
        pool: Option<String>,
        until: Option<HeldUntil>,
    },
    /// No holder holds the entry, but it must be cleaned first.
    Cleaning(CleaningRecord),
    /// No holder holds the entry, but a cluster uses it.
    Referenced {
        by: ClusterName,
    },
    /// No holder holds the entry, but it cannot be leased for this reason.
    Unusable(UnusableReason),
}

/// How long an entry stays with the holder that holds it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldUntil {
    /// Until the holder's cluster no longer exists.
    ClusterGone,
    /// Until the lease ends at this time.
    Time(Timestamp),
    /// Until a check finds that no cluster uses the entry. The lease has already ended.
    NextCheck,
    Never,
}

/// Why an entry without a holder cannot be leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnusableReason {
    Patches(PatchProblem),
    Cordoned(String),
    Deleting,
    /// The pool's inventory does not list the entry.
    NotInInventory,
    /// The customization that the inventory lists does not exist.
    Missing,
    Unreadable(Unreadable),
    /// The entry's lease has ended, but the pool for which it is reserved cannot be read, so it is unknown whether the entry
    /// must be cleaned. Contains the name of the pool.
    PoolUnknown(String),
}

/// Which entries a holder gets, or why it gets none.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseChoice<'l> {
    /// The holder already holds this entry.
    Held(&'l Entry),
    /// The holder gets one of these free entries, which are tried in this order. The list is never empty.
    Free(Vec<&'l Entry>),
    /// The holder gets this free entry, which no other holder can get, because its ClusterDeployment uses it.
    Own(&'l Entry),
    /// The holder gets several entries: those that it already holds, and `missing` of the free ones.
    Several(SeveralEntries<'l>),
    /// The holder already holds these entries, or its ClusterDeployment uses them: more than the request is for.
    HeldMore(Vec<&'l Entry>),
    /// The holder must get this entry again, because its ClusterDeployment or an earlier lease refers to it. But the entry
    /// is not available, so the holder gets none.
    BoundButUnavailable {
        name: &'l str,
        availability: Availability,
    },
    /// No entry of the pool is free, so the holder gets none.
    Exhausted {
        /// The entry's name, and why it is not free.
        availabilities: Vec<(&'l str, Availability)>,
        /// Leases whose records are out of date, because a cluster appeared or disappeared, or because the lease has ended and
        /// the entry must be cleaned.
        record_updates: Vec<RecordUpdate<'l>>,
    },
}

/// The entries of a holder that gets several, each list in the order in which they are written.
#[derive(Clone, Debug, PartialEq)]
pub struct SeveralEntries<'l> {
    pub held: Vec<&'l Entry>,
    /// The free entries that no other holder can get, because the holder's ClusterDeployment uses them.
    pub own: Vec<&'l Entry>,
    /// At least as many as are missing.
    pub free: Vec<&'l Entry>,
    /// How many of the free entries the holder gets.
    pub missing: usize,
}

/// The change of a lease's record after a cluster appeared or disappeared, or after the lease ended.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordUpdate<'l> {
    pub entry: &'l Entry,
    pub pool: String,
    pub transition: Transition,
}

impl Availability {
    /// The ClusterDeployment and the pool that hold or use the entry.
    pub fn cluster_deployment_and_pool(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Held {
                cluster_deployment,
                pool,
                ..
            } => (cluster_deployment.as_deref(), pool.as_deref()),
            Self::Referenced { by } => (Some(&by.name), None),
            Self::Ours | Self::Free | Self::Cleaning(_) | Self::Unusable(_) => (None, None),
        }
    }
}

impl<'l> LeaseChoice<'l> {
    /// The free entries for which others may have waited longer, and how many of them the holder gets.
    pub fn candidates(&mut self) -> Option<(&mut Vec<&'l Entry>, usize)> {
        match self {
            Self::Free(free) => Some((free, 1)),
            Self::Several(several) if several.missing > 0 => Some((&mut several.free, several.missing)),
            _ => None,
        }
    }
}

impl<'l> Inventory<'l> {
    /// Decides which entries the holder gets. Entries that the holder already holds come first, so that a repeated request
    /// never leases further entries.
    pub fn choose(&self, holder: Holder<'_>, count: usize) -> LeaseChoice<'l> {
        if count > 1 {
            return self.choose_several(holder, count);
        }
        let availabilities = self.availabilities(holder);
        let is_bound = |slot: &InventorySlot<'_>| {
            slot.entry
                .is_some_and(|entry| self.own_user(entry, holder).is_some())
        };
        if let Some((slot, availability)) = availabilities.iter().find(|(slot, _)| is_bound(slot)) {
            return match (availability, slot.entry) {
                (Availability::Ours, Some(entry)) => LeaseChoice::Held(entry),
                (Availability::Free, Some(entry)) => LeaseChoice::Own(entry),
                _ => bound(slot, availability),
            };
        }
        let matching = |wanted: Availability| {
            availabilities
                .iter()
                .filter(move |(_, availability)| *availability == wanted)
                .filter_map(|(slot, _)| slot.entry)
        };
        if let Some(held) = matching(Availability::Ours).next() {
            return LeaseChoice::Held(held);
        }
        let is_ours =
            |slot: &InventorySlot<'_>| slot.entry.is_some_and(|entry| self.is_kept(slot, entry, holder));
        if let Some((slot, availability)) = availabilities.iter().find(|(slot, _)| is_ours(slot)) {
            return bound(slot, availability);
        }
        let mut free: Vec<_> = matching(Availability::Free).collect();
        if !free.is_empty() {
            free.sort_by(|a, b| self.order(a, b, holder));
            return LeaseChoice::Free(free);
        }
        self.exhausted(holder)
    }

    fn choose_several(&self, holder: Holder<'_>, count: usize) -> LeaseChoice<'l> {
        let (mut held, mut own, mut free) = (Vec::new(), Vec::new(), Vec::new());
        for (slot, availability) in self.availabilities(holder) {
            let Some(entry) = slot.entry else { continue };
            let is_bound = self.own_user(entry, holder).is_some();
            match availability {
                Availability::Ours => held.push(entry),
                Availability::Free if is_bound => own.push(entry),
                availability if is_bound || self.is_kept(slot, entry, holder) => {
                    return bound(slot, &availability);
                }
                Availability::Free => free.push(entry),
                _ => {}
            }
        }
        for entries in [&mut held, &mut own, &mut free] {
            entries.sort_by_key(|entry| self.order_of_several(entry));
        }
        let Some(missing) = count.checked_sub(held.len() + own.len()) else {
            held.extend(own);
            return LeaseChoice::HeldMore(held);
        };
        if free.len() < missing {
            return self.exhausted(holder);
        }
        LeaseChoice::Several(SeveralEntries {
            held,
            own,
            free,
            missing,
        })
    }

    /// The choice if the holder gets none of the entries, even of free ones.
    pub fn exhausted(&self, holder: Holder<'_>) -> LeaseChoice<'l> {
        LeaseChoice::Exhausted {
            record_updates: self.record_updates(),
            availabilities: self
                .availabilities(holder)
                .into_iter()
                .filter(|(slot, _)| slot.is_in_inventory)
                .map(|(slot, availability)| (slot.name, availability))
                .collect(),
        }
    }

    pub fn availabilities(&self, holder: Holder<'_>) -> Vec<(&InventorySlot<'l>, Availability)> {
        let slots = self.slots.iter();
        slots
            .map(|slot| (slot, self.availability(slot, holder)))
            .collect()
    }

    /// Whether the holder can lease the entry. A new lease requires an entry that the inventory lists, and that is
    /// neither cordoned nor being deleted. An existing lease does not require this.
    fn availability(&self, slot: &InventorySlot<'_>, holder: Holder<'_>) -> Availability {
        let Some(entry) = slot.entry else {
            return Availability::Unusable(UnusableReason::Missing);
        };
        let reservation = entry.status.reservation();
        if let Some(record) = self.cleaning(slot, entry, &reservation) {
            return match entry.cordoned() {
                // No janitor cleans an entry that is cordoned.
                Some(why) => Availability::Unusable(UnusableReason::Cordoned(why.to_owned())),
                None => Availability::Cleaning(record),
            };
        }
        let is_ended = match &reservation {
            Reservation::Unreadable(why) => {
                return Availability::Unusable(UnusableReason::Unreadable(why.clone()));
            }
            _ if entry.refers_to(holder) => {
                let other = self.other_user(entry, holder);
                return match other.filter(|_| self.own_user(entry, holder).is_none()) {
                    Some(user) => Availability::Referenced {
                        by: ClusterName::new(user.namespace(), user.name()),
                    },
                    None => Availability::Ours,
                };
            }
            Reservation::Free => true,
            Reservation::Unrecorded | Reservation::Cleaning(_) => false,
            Reservation::Leased(record) => {
                match self.rule(slot).transition(record, self.clusters.usage(entry)) {
                    Transition::Free => true,
                    Transition::Unclear => {
                        let pool = entry.status.pool().unwrap_or_default().to_owned();
                        return Availability::Unusable(UnusableReason::PoolUnknown(pool));
                    }
                    Transition::Keep | Transition::Write(_) | Transition::Clean(_) => false,
                }
            }
        };
        if !is_ended {
            return Availability::Held {
                cluster_deployment: entry.status.holder().map(str::to_owned),
                pool: entry.status.pool().map(str::to_owned),
                until: self.until(entry, &reservation),
            };
        }
        if entry.is_deleting() {
            return Availability::Unusable(UnusableReason::Deleting);
        }
        if !slot.is_in_inventory {
            return Availability::Unusable(UnusableReason::NotInInventory);
        }
        if let Some(user) = self.other_user(entry, holder) {
            return Availability::Referenced {
                by: ClusterName::new(user.namespace(), user.name()),
            };
        }
        if let Some(reason) = entry.cordoned() {
            return Availability::Unusable(UnusableReason::Cordoned(reason.to_owned()));
        }
        match &slot.patch_problem {
            Some(why) => Availability::Unusable(UnusableReason::Patches(why.clone())),
            None => Availability::Free,
        }
    }

    /// Whether the holder has the entry and keeps it: its lease has not ended so that the entry must be cleaned.
    fn is_kept(&self, slot: &InventorySlot<'_>, entry: &Entry, holder: Holder<'_>) -> bool {
        entry.refers_to(holder) && self.cleaning(slot, entry, &entry.status.reservation()).is_none()
    }

    /// The record of an entry that must be cleaned before it is leased again, even by its last holder.
    fn cleaning(
        &self,
        slot: &InventorySlot<'_>,
        entry: &Entry,
        reservation: &Reservation,
    ) -> Option<CleaningRecord> {
        match reservation {
            Reservation::Cleaning(record) => Some(record.clone()),
            Reservation::Leased(record) => {
                match self.rule(slot).transition(record, self.clusters.usage(entry)) {
                    Transition::Clean(record) => Some(record),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn rule(&self, slot: &InventorySlot<'_>) -> Rule {
        Rule {
            reuse: slot.reuse,
            ..self.rule
        }
    }

    fn until(&self, entry: &Entry, reservation: &Reservation) -> Option<HeldUntil> {
        let Reservation::Leased(record) = reservation else {
            return None;
        };
        Some(match (self.clusters.usage(entry), record.deadline) {
            (Usage::Used(_), _) => HeldUntil::ClusterGone,
            (_, None) => HeldUntil::Never,
            (_, deadline) if self.rule.has_ended(deadline) => HeldUntil::NextCheck,
            (_, Some(deadline)) => HeldUntil::Time(deadline),
        })
    }

    fn own_user(&self, entry: &Entry, holder: Holder<'_>) -> Option<&'l ClusterDeployment> {
        let deployments = self.clusters.cluster_deployments()?;
        clusters_using(deployments, entry)
            .find(|cluster| belongs_to_holder(cluster, deployments.namespace(), holder))
    }

    fn other_user(&self, entry: &Entry, holder: Holder<'_>) -> Option<&'l ClusterDeployment> {
        let deployments = self.clusters.cluster_deployments()?;
        let reservation = entry.status.reservation();
        let is_of_lease = |cluster: &&ClusterDeployment| match &reservation {
            Reservation::Leased(record) if entry.refers_to(holder) => belongs_to_lease(cluster, record),
            _ => false,
        };
        clusters_using(deployments, entry).find(|cluster| {
            !belongs_to_holder(cluster, deployments.namespace(), holder) && !is_of_lease(cluster)
        })
    }

    /// The changes of leases that a check finds, except for those that only free an entry.
    fn record_updates(&self) -> Vec<RecordUpdate<'l>> {
        let named = self.slots.iter().filter(|slot| slot.is_in_inventory);
        let update = |slot: &InventorySlot<'l>| {
            let entry = slot.entry?;
            let usage = self.clusters.usage(entry);
            match self.rule(slot).check(entry, usage, generate_lease_id) {
                (pool, transition @ (Transition::Write(_) | Transition::Clean(_))) => Some(RecordUpdate {
                    entry,
                    pool,
                    transition,
                }),
                (_, Transition::Keep | Transition::Free | Transition::Unclear) => None,
            }
        };
        named.filter_map(update).collect()
    }

    /// The order in which free entries are tried. Entries without a lease come before entries whose lease has
    /// ended. Entries that were never used, or whose last use succeeded, come before entries whose last use
    /// failed. Among these, the entry that was unused for the longest time comes first. Entries that are
    /// still equal have a different order for each holder, so that not all holders try the same entry first.
    /// Unlike Hive's order, which has cycles with three failed entries, this is a total order.
    fn order(&self, a: &Entry, b: &Entry, holder: Holder<'_>) -> Ordering {
        let key = |entry: &Entry| {
            let is_taken = entry.status.reservation() != Reservation::Free;
            let last = entry.last_result(self.rule.now.latest);
            let words = [holder.pool, holder.cluster_deployment, entry.name()];
            (is_taken, last, stable_hash(&words))
        };
        key(a).cmp(&key(b)).then_with(|| a.name().cmp(b.name()))
    }

    /// The order in which the free entries are leased if a holder gets several: those whose last use failed come last. It is the
    /// same for each holder, so that two holders meet at their first common entry, and the one that does not get it has seldom
    /// taken others.
    fn order_of_several<'e>(&self, entry: &'e Entry) -> (bool, &'e str) {
        let last = entry.last_result(self.rule.now.latest);
        (matches!(last, LastResult::Failed(_)), entry.name())
    }
}

fn bound<'l>(slot: &InventorySlot<'l>, availability: &Availability) -> LeaseChoice<'l> {
    LeaseChoice::BoundButUnavailable {
        name: slot.name,
        availability: availability.clone(),
    }
}

/// A hash of some words, which orders equal entries and is the same in all versions: FNV-1a over the words and the separators
/// between them, followed by the last step of `SplitMix64`. With FNV alone, names that differ in their last letter have almost
/// the same order for every holder.
pub(super) fn stable_hash(words: &[&str]) -> u64 {
    let separated = words.iter().enumerate().flat_map(|(index, word)| {
        let separator = if index == 0 { "" } else { "\0" };
        [separator, word]
    });
    let bytes = separated.flat_map(str::bytes);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests;
