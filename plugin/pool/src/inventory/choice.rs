//! Which entry of an inventory a holder gets, and in which order free entries are tried. Pure.

use std::cmp::Ordering;

use jiff::Timestamp;

use crate::{
    install_config::patches::Unfit,
    objects::{
        cluster_deployment::{Deployment, References},
        entry::{Entry, Holder},
        record::Record,
    },
};

/// The entries of a pool, the entries that a holder has besides, and what else is known of them.
#[derive(Clone, Debug, Default)]
pub struct Inventory<'l> {
    /// In the pool's order, each name once; then the entries that the pool does not list.
    pub slots: Vec<Slot<'l>>,
    /// Which ClusterDeployments use each customization; none if they could not be read.
    pub references: Option<&'l References>,
}

/// One name of an inventory.
#[derive(Clone, Debug)]
pub struct Slot<'l> {
    pub name: &'l str,
    /// Whether the pool lists it. An entry that it does not list is never leased.
    pub is_named: bool,
    /// None if there is no such customization.
    pub entry: Option<&'l Entry>,
    /// Who holds it, or is about to.
    pub record: Option<&'l Record>,
    /// Why it cannot be leased; none if that is not known.
    pub unfit: Option<Unfit>,
}

/// An entry, and its record as it was listed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'l> {
    pub entry: &'l Entry,
    pub record: Option<&'l Record>,
}

impl<'l> Candidate<'l> {
    pub fn name(&self) -> &'l str {
        self.entry.name()
    }
}

/// The state of one entry, for one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Ours,
    /// Its references name the holder, but it is marked available: the lease is incomplete.
    OursUnmarked,
    Free,
    /// Another holder has it.
    Held {
        /// None while Hive reserves the entry in two steps.
        cluster_deployment: Option<String>,
        pool: Option<String>,
    },
    /// No holder has it, but a cluster uses it.
    Referenced {
        by: Deployment,
    },
    /// Free, but it cannot be leased.
    Unfit(Unfit),
    Deleting,
    /// The pool does not list it, and the holder does not have it.
    Unnamed,
    /// There is no such customization.
    Missing,
}

/// What a holder gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice<'l> {
    /// What it already has.
    Held(Candidate<'l>),
    /// One of these, tried in this order. Never empty.
    Free(Vec<Candidate<'l>>),
    /// Nothing yet: other clients are about to reserve the free entries. Try again in a moment.
    BeingReserved,
    /// Nothing: the holder is bound to an entry, by its ClusterDeployment or by the entry's references, and cannot
    /// have it.
    Bound { name: &'l str, standing: Standing },
    /// Nothing: no entry of the pool is free. The state of each.
    Exhausted(Vec<(&'l str, Standing)>),
}

impl Standing {
    /// The ClusterDeployment and the pool that have it.
    pub fn user(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Held {
                cluster_deployment,
                pool,
            } => (cluster_deployment.as_deref(), pool.as_deref()),
            Self::Referenced { by } => (Some(&by.name), Some(&by.pool)),
            Self::Ours
            | Self::OursUnmarked
            | Self::Free
            | Self::Unfit(_)
            | Self::Deleting
            | Self::Unnamed
            | Self::Missing => (None, None),
        }
    }
}

impl<'l> Slot<'l> {
    /// The state of the entry. A lease stays although the entry is being deleted, or left the inventory; only a free
    /// entry must be in the inventory and not be deleted.
    fn standing(&self, holder: Holder<'_>, references: Option<&References>) -> Standing {
        let Some(entry) = self.entry else {
            return Standing::Missing;
        };
        if entry.is_held_by(holder) {
            return Standing::Ours;
        }
        if entry.names(holder) {
            return if self.is_named {
                Standing::OursUnmarked
            } else {
                Standing::Unnamed
            };
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
        if !self.is_named {
            return Standing::Unnamed;
        }
        let mut others = deployments(references, self.name).filter(|deployment| !deployment.is(holder));
        match others.next() {
            Some(by) => Standing::Referenced { by: by.clone() },
            None => self.unfit.clone().map_or(Standing::Free, Standing::Unfit),
        }
    }

    fn is_being_reserved(&self, holder: Holder<'_>, now: Timestamp) -> bool {
        self.record
            .is_some_and(|record| record.is_being_reserved_by_another(holder, now))
    }

    fn candidate(&self) -> Option<Candidate<'l>> {
        Some(Candidate {
            entry: self.entry?,
            record: self.record,
        })
    }
}

impl<'l> Inventory<'l> {
    /// What the holder gets. What it already has comes first, so that leasing twice leases one entry.
    pub fn choose(&self, holder: Holder<'_>, now: Timestamp) -> Choice<'l> {
        let standings: Vec<_> = self
            .slots
            .iter()
            .map(|slot| (slot, slot.standing(holder, self.references)))
            .collect();
        let is_bound =
            |slot: &Slot<'_>| deployments(self.references, slot.name).any(|deployment| deployment.is(holder));
        if let Some((slot, standing)) = standings.iter().find(|(slot, _)| is_bound(slot)) {
            return match (standing, slot.candidate()) {
                (Standing::Ours, Some(entry)) => Choice::Held(entry),
                (Standing::Free, Some(_)) if slot.is_being_reserved(holder, now) => Choice::BeingReserved,
                (Standing::OursUnmarked | Standing::Free, Some(entry)) => Choice::Free(vec![entry]),
                _ => bound(slot, standing),
            };
        }
        let with = |wanted: Standing| {
            standings
                .iter()
                .filter(move |(_, standing)| *standing == wanted)
                .map(|(slot, _)| *slot)
        };
        if let Some(held) = with(Standing::Ours).find_map(Slot::candidate) {
            return Choice::Held(held);
        }
        if let Some(unmarked) = with(Standing::OursUnmarked).find_map(Slot::candidate) {
            return Choice::Free(vec![unmarked]);
        }
        let is_ours = |slot: &Slot<'_>| slot.entry.is_some_and(|entry| entry.names(holder));
        if let Some((slot, standing)) = standings.iter().find(|(slot, _)| is_ours(slot)) {
            return bound(slot, standing);
        }
        let (sought, unsought): (Vec<_>, Vec<_>) =
            with(Standing::Free).partition(|slot| slot.is_being_reserved(holder, now));
        let mut free: Vec<_> = unsought.into_iter().filter_map(Slot::candidate).collect();
        free.sort_by(|a, b| order(a.entry, b.entry, holder, now));
        match (free.is_empty(), sought.is_empty()) {
            (false, _) => Choice::Free(free),
            (true, false) => Choice::BeingReserved,
            (true, true) => {
                let named = standings.into_iter().filter(|(slot, _)| slot.is_named);
                Choice::Exhausted(named.map(|(slot, standing)| (slot.name, standing)).collect())
            }
        }
    }
}

fn bound<'l>(slot: &Slot<'l>, standing: &Standing) -> Choice<'l> {
    Choice::Bound {
        name: slot.name,
        standing: standing.clone(),
    }
}

/// The ClusterDeployments that use a customization.
fn deployments<'r>(
    references: Option<&'r References>,
    customization: &str,
) -> impl Iterator<Item = &'r Deployment> {
    references
        .and_then(|references| references.get(customization))
        .into_iter()
        .flatten()
}

/// Entries whose last use succeeded, or that were never used, before those whose last use failed; then the one that
/// was unused for longest; then an order of its own for each holder, so that many holders do not all try the same
/// entry. A total order, unlike Hive's, which has cycles with three failed entries.
fn order(a: &Entry, b: &Entry, holder: Holder<'_>, now: Timestamp) -> Ordering {
    let key = |entry: &Entry| (entry.last_result(now), scatter(holder, entry.name()));
    key(a).cmp(&key(b)).then_with(|| a.name().cmp(b.name()))
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
