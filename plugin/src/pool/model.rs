//! Which entry of an inventory a holder gets: what is free, and in which order free entries are tried. Pure.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;

use super::{
    entry::{Entry, Holder},
    patching::Unfit,
    record::Record,
};

/// The customizations that a pool names, and what else is known about them.
#[derive(Clone, Debug, Default)]
pub(super) struct Inventory {
    /// In the pool's order, each name once.
    pub(super) slots: Vec<Slot>,
    /// Which `ClusterDeployment`s were made with each customization; none when they could not be read.
    pub(super) references: Option<References>,
}

/// One name of an inventory.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) name: String,
    /// None when there is no such customization.
    pub(super) entry: Option<Entry>,
    /// Who says to hold it, or to be about to.
    pub(super) record: Option<Record>,
    /// Why it cannot be taken: its name, or what came of its patches; none where nobody has tried those.
    pub(super) unfit: Option<Unfit>,
}

impl Slot {
    /// Whether another may be about to take it.
    fn is_sought(&self, holder: Holder<'_>, now: Timestamp) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| record.is_sought_by_another(holder, now))
    }
}

/// An entry of an inventory, and its record as it was listed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate<'i> {
    pub(super) entry: &'i Entry,
    pub(super) record: Option<&'i Record>,
}

impl Candidate<'_> {
    pub(super) fn name(&self) -> &str {
        self.entry.name()
    }
}

/// `ClusterDeployment`s by the customization that they reference.
pub(super) type References = BTreeMap<String, BTreeSet<Deployment>>;

/// A `ClusterDeployment` that references a customization.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Deployment {
    pub(super) name: String,
    pub(super) pool: String,
}

impl Deployment {
    pub(super) fn is(&self, holder: Holder<'_>) -> bool {
        self.name == holder.cluster_deployment && self.pool == holder.pool
    }
}

/// How things stand with one slot, for one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The holder has it.
    Ours,
    /// Its references name the holder, but it is marked available: the lease wants completing.
    OursUnmarked,
    /// It can be taken.
    Free,
    /// Another has it.
    Held {
        /// The `ClusterDeployment`; none while Hive writes the lease in two steps.
        cluster_deployment: Option<String>,
        /// The pool that it was taken for.
        pool: Option<String>,
    },
    /// Nobody has it, but a cluster was made with it.
    Referenced {
        /// That cluster.
        by: Deployment,
    },
    /// Nobody has it, but it cannot be taken.
    Unfit(Unfit),
    /// It is being deleted.
    Deleting,
    /// There is no such customization.
    Missing,
}

/// What a holder gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice<'i> {
    /// What it has already.
    Held(Candidate<'i>),
    /// One of these, tried in this order. Never empty.
    Free(Vec<Candidate<'i>>),
    /// Nothing yet: others are about to take what is free, and a moment tells.
    Sought,
    /// Nothing: its `ClusterDeployment` was made with an entry that it cannot have.
    Bound(&'i str),
    /// Nothing: no entry is free.
    Exhausted,
}

impl Slot {
    /// How things stand. A lease outlives the marks for deletion; only a free entry must have none.
    pub(super) fn standing(&self, holder: Holder<'_>, references: Option<&References>) -> Standing {
        let Some(entry) = &self.entry else {
            return Standing::Missing;
        };
        if entry.is_held_by(holder) {
            return Standing::Ours;
        }
        if entry.names(holder) {
            return Standing::OursUnmarked;
        }
        if entry.is_reserved() || entry.cluster_deployment().is_some() || entry.pool().is_some() {
            return Standing::Held {
                cluster_deployment: entry.cluster_deployment().map(str::to_owned),
                pool: entry.pool().map(str::to_owned),
            };
        }
        if entry.is_deleting() {
            return Standing::Deleting;
        }
        let mut deployments = references
            .and_then(|references| references.get(&self.name))
            .into_iter()
            .flatten();
        match deployments.find(|deployment| !deployment.is(holder)) {
            Some(by) => Standing::Referenced { by: by.clone() },
            None => self.unfit.clone().map_or(Standing::Free, Standing::Unfit),
        }
    }
}

impl Inventory {
    /// What the holder gets. Whatever it has already comes first, so that leasing twice is leasing once.
    pub(super) fn choose(&self, holder: Holder<'_>, now: Timestamp) -> Choice<'_> {
        let bound = self.slots.iter().find(|slot| self.is_bound(slot, holder));
        if let Some(bound) = bound {
            return match (self.standing(bound, holder), candidate(bound)) {
                (Standing::Ours, Some(entry)) => Choice::Held(entry),
                (Standing::Free, Some(_)) if bound.is_sought(holder, now) => Choice::Sought,
                (Standing::OursUnmarked | Standing::Free, Some(entry)) => Choice::Free(vec![entry]),
                _ => Choice::Bound(&bound.name),
            };
        }
        let with = |wanted: Standing| {
            self.slots
                .iter()
                .filter(move |slot| self.standing(slot, holder) == wanted)
        };
        if let Some(held) = with(Standing::Ours).find_map(candidate) {
            return Choice::Held(held);
        }
        if let Some(unmarked) = with(Standing::OursUnmarked).find_map(candidate) {
            return Choice::Free(vec![unmarked]);
        }
        let (sought, unsought): (Vec<_>, Vec<_>) =
            with(Standing::Free).partition(|slot| slot.is_sought(holder, now));
        let mut free: Vec<_> = unsought.into_iter().filter_map(candidate).collect();
        free.sort_by(|a, b| order(a.entry, b.entry, holder, now));
        match (free.is_empty(), sought.is_empty()) {
            (false, _) => Choice::Free(free),
            (true, false) => Choice::Sought,
            (true, true) => Choice::Exhausted,
        }
    }

    /// How things stand with each slot.
    pub(super) fn standings(&self, holder: Holder<'_>) -> impl Iterator<Item = (&str, Standing)> {
        self.slots
            .iter()
            .map(move |slot| (slot.name.as_str(), self.standing(slot, holder)))
    }

    fn standing(&self, slot: &Slot, holder: Holder<'_>) -> Standing {
        slot.standing(holder, self.references.as_ref())
    }

    fn is_bound(&self, slot: &Slot, holder: Holder<'_>) -> bool {
        let deployments = self
            .references
            .as_ref()
            .and_then(|references| references.get(&slot.name));
        deployments
            .into_iter()
            .flatten()
            .any(|deployment| deployment.is(holder))
    }
}

fn candidate(slot: &Slot) -> Option<Candidate<'_>> {
    Some(Candidate {
        entry: slot.entry.as_ref()?,
        record: slot.record.as_ref(),
    })
}

/// Succeeded or never used before failed; of those the one that has rested longest; and a different one for each
/// holder where that leaves a choice, so that many at once do not all try the same. Total, unlike Hive's own order,
/// which runs in a circle with three failed entries.
fn order(a: &Entry, b: &Entry, holder: Holder<'_>, now: Timestamp) -> Ordering {
    let key = |entry: &Entry| (entry.last_result(now), scatter(holder, entry.name()));
    key(a).cmp(&key(b)).then_with(|| a.name().cmp(b.name()))
}

/// A number that looks random and is always the same for a holder and an entry: FNV-1a over both, then the finalizer
/// of `SplitMix64`, because FNV alone leaves names that differ in their last letter in almost the same order.
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
