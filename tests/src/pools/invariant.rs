//! The invariants of leases, checked against the versions in etcd and the messages to lessees. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::claim::{Claim, EventKind, LesseeEvent, claims};
use super::version::{ClusterDeployment, Entry, Revision, Version, Versions};

/// The finalizer of a `ClusterDeployment` that was created for a lease.
const FINALIZER: &str = "kubectl-kcp.dev/pool-lease";

/// A violation of the invariants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// A version of an entry does not name the lessee to which a command reported that it has the entry.
    NotNamed {
        entry: String,
        lessee: String,
        /// The revision of that version; 0 if there is none.
        revision: Revision,
        /// The lessee that the version names.
        names: Option<String>,
    },
    /// Commands reported to two lessees that they have the same entry at the same time.
    Overlap { entry: String, lessees: [String; 2] },
    /// A command reported another entry to a lessee that still has one.
    TwoEntries {
        lessee: String,
        /// The entries, in order.
        entries: [String; 2],
    },
    /// An entry was leased after another lease of it had been reported, and not cleaned in between.
    NotCleaned {
        entry: String,
        /// The revision of the second lease.
        revision: Revision,
        /// The holders of both leases.
        lessees: [String; 2],
    },
    /// Two clusters use one entry at the same time.
    TwoClusters { entry: String, clusters: [String; 2] },
    /// A cluster was created for an entry that names another lessee.
    ClusterOfAnother {
        entry: String,
        cluster: String,
        /// The lessee that the entry names.
        names: String,
    },
}

/// A problem that repair must not leave.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leftover {
    /// An entry of the inventory that no longer exists.
    Gone(String),
    /// An entry whose condition contradicts its references.
    Unclear(String),
    /// An entry held by a lessee that does not live.
    HeldByDead {
        entry: String,
        /// The former lessee.
        lessee: String,
    },
    /// A lessee that holds several entries.
    HeldBeside { lessee: String, entries: Vec<String> },
    /// A deleted `ClusterDeployment` whose only finalizer is ours.
    FinalizerStuck(String),
    /// A copy of a customization, `NAMESPACE/NAME`, in the namespace of a lessee that does not live.
    CopyOfDead(String),
}

/// All violations in a history, sorted. `events` is in chronological order.
pub fn violations(versions: &Versions, events: &[LesseeEvent]) -> Vec<Violation> {
    let (claims, mut violations) = claims(events);
    for (index, claim) in claims.iter().enumerate() {
        violations.extend(not_named(claim, &versions.entries));
        let others = claims.get(index + 1..).unwrap_or_default();
        violations.extend(others.iter().filter_map(|other| overlap(claim, other)));
    }
    violations.extend(clusters_of_others(versions));
    violations.sort();
    violations.dedup();
    violations
}

/// The leases of entries that were not cleaned since a lease of them was reported. `cleaned` has the ids of the janitors whose
/// commands succeeded. An entry that was deleted has lost its records. A holder whose lease has ended gets its entry again, without
/// cleaning, while a check may still find the cluster of the lease.
pub fn not_cleaned(
    entries: &[Version<Entry>],
    events: &[LesseeEvent],
    cleaned: &BTreeSet<String>,
) -> Vec<Violation> {
    let used = used_leases(entries, events);
    let mut violations = Vec::new();
    // By name: the version with the last lease that was reported, whether a janitor has cleaned the entry since, and whether the lease
    // has ended since.
    let mut dirty: BTreeMap<&str, (&Entry, bool, bool)> = BTreeMap::new();
    for version in entries {
        let name = version.name.as_str();
        let Some(entry) = &version.object else {
            dirty.remove(name);
            continue;
        };
        if let Some((last, is_clean, has_ended)) = dirty.get_mut(name) {
            *has_ended |= entry.lease_id.is_none();
            match (&entry.janitor_id, &entry.lease_id) {
                (Some(janitor), _) => *is_clean = cleaned.contains(janitor),
                (None, Some(lease)) if last.lease_id.as_ref() != Some(lease) => {
                    let is_kept =
                        last.cluster.is_some() && last.cluster_deployment == entry.cluster_deployment;
                    if !*is_clean && !is_kept {
                        violations.push(Violation::NotCleaned {
                            entry: name.to_owned(),
                            revision: version.revision,
                            lessees: [*last, entry]
                                .map(|entry| entry.cluster_deployment.clone().unwrap_or_default()),
                        });
                    }
                    dirty.remove(name);
                }
                // The command of a janitor was interrupted, or failed.
                (None, None) if entry.is_reserved => *is_clean = false,
                (None, _) => {}
            }
        }
        if entry
            .lease_id
            .as_deref()
            .is_some_and(|lease| used.contains(lease))
        {
            dirty.insert(name, (entry, false, false));
        }
    }
    violations
}

/// The ids of the leases that commands reported.
fn used_leases<'v>(entries: &'v [Version<Entry>], events: &[LesseeEvent]) -> BTreeSet<&'v str> {
    let mut used = BTreeSet::new();
    for event in events {
        let reported: Vec<&str> = match &event.what {
            EventKind::Leased { entry, .. } => vec![entry],
            EventKind::LeasedSet { entries } => entries.iter().map(|(entry, _)| entry.as_str()).collect(),
            _ => continue,
        };
        for name in reported {
            let at_report =
                |version: &&Version<Entry>| version.name == name && version.revision <= event.revision;
            let entry = entries
                .iter()
                .rfind(at_report)
                .and_then(|version| version.object.as_ref());
            let of_lessee = entry.filter(|entry| entry.cluster_deployment.as_ref() == Some(&event.lessee));
            used.extend(of_lessee.and_then(|entry| entry.lease_id.as_deref()));
        }
    }
    used
}

/// How often an entry passed from one lessee to another in one write: the first one's lease had ended.
pub fn reclaimed(versions: &Versions) -> u64 {
    let mut holders: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    let mut reclaimed = 0;
    for version in &versions.entries {
        let holder = version
            .object
            .as_ref()
            .and_then(|entry| entry.cluster_deployment.as_deref());
        let before = holders.insert(&version.name, holder).flatten();
        if before.is_some() && holder.is_some() && before != holder {
            reclaimed += 1;
        }
    }
    reclaimed
}

/// What remains of leases at the end of a history, if only these lessees still live.
pub fn leftovers(versions: &Versions, inventory: &[String], living: &BTreeSet<String>) -> Vec<Leftover> {
    let mut leftovers = Vec::new();
    let mut held: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let entries = last(&versions.entries);
    for name in inventory {
        let Some(entry) = entries.get(name.as_str()) else {
            leftovers.push(Leftover::Gone(name.clone()));
            continue;
        };
        match (entry.is_reserved, &entry.cluster_deployment, &entry.pool) {
            (false, None, None) => {}
            (true, Some(lessee), Some(_)) => held.entry(lessee).or_default().push(name.clone()),
            _ => leftovers.push(Leftover::Unclear(name.clone())),
        }
    }
    for (lessee, entries) in held {
        let lessee = lessee.to_owned();
        if living.contains(&lessee) {
            if entries.len() > 1 {
                leftovers.push(Leftover::HeldBeside { lessee, entries });
            }
            continue;
        }
        leftovers.extend(entries.into_iter().map(|entry| Leftover::HeldByDead {
            entry,
            lessee: lessee.clone(),
        }));
    }
    for (name, deployment) in last(&versions.cluster_deployments) {
        if is_over(deployment) {
            leftovers.push(Leftover::FinalizerStuck(name.to_owned()));
        }
    }
    for name in last(&versions.copies).into_keys() {
        // Each cluster has the name of its namespace.
        let lessee = name.split_once('/').map(|(namespace, _)| namespace);
        if lessee.is_none_or(|lessee| !living.contains(lessee)) {
            leftovers.push(Leftover::CopyOfDead(name.to_owned()));
        }
    }
    leftovers
}

/// The last version of each object that was not deleted.
fn last<T>(versions: &[Version<T>]) -> BTreeMap<&str, &T> {
    let last: BTreeMap<_, _> = versions
        .iter()
        .map(|version| (version.name.as_str(), &version.object))
        .collect();
    last.into_iter()
        .filter_map(|(name, object)| Some((name, object.as_ref()?)))
        .collect()
}

/// The versions of an entry that a claim is about: the one at its start if a command reported it, and the later
/// ones.
fn in_force<'v, T>(claim: &Claim<'_>, versions: &'v [Version<T>]) -> Vec<&'v Version<T>> {
    let of_entry = |version: &&Version<T>| version.name == claim.entry && version.revision <= claim.until;
    let (before, during): (Vec<_>, Vec<_>) = versions
        .iter()
        .filter(of_entry)
        .partition(|version| version.revision <= claim.from);
    let first = before
        .last()
        .copied()
        .filter(|_| claim.is_reported && claim.since < claim.before);
    let during = during.into_iter().filter(|version| version.seen < claim.before);
    first.into_iter().chain(during).collect()
}

fn not_named(claim: &Claim<'_>, entries: &[Version<Entry>]) -> Vec<Violation> {
    if !claim.is_recorded {
        return Vec::new();
    }
    let not_named = |revision, names| Violation::NotNamed {
        entry: claim.entry.to_owned(),
        lessee: claim.lessee.to_owned(),
        revision,
        names,
    };
    let in_force = in_force(claim, entries);
    if in_force.is_empty() && claim.is_reported && claim.since < claim.before {
        return vec![not_named(0, None)];
    }
    in_force
        .into_iter()
        .filter_map(|version| {
            let entry = version.object.as_ref().filter(|entry| entry.is_reserved);
            let names = entry.and_then(|entry| entry.cluster_deployment.clone());
            (names.as_deref() != Some(claim.lessee)).then(|| not_named(version.revision, names))
        })
        .collect()
}

fn overlap(one: &Claim<'_>, other: &Claim<'_>) -> Option<Violation> {
    let overlaps = one.entry == other.entry
        && one.lessee != other.lessee
        && one.from <= other.until
        && other.from <= one.until
        && one.since.max(other.since) < one.before.min(other.before);
    overlaps.then(|| Violation::Overlap {
        entry: one.entry.to_owned(),
        lessees: [one.lessee.to_owned(), other.lessee.to_owned()],
    })
}

/// Whether only the finalizer of leases remains on a cluster, which then uses no entry.
fn is_over(deployment: &ClusterDeployment) -> bool {
    deployment.is_deleting && deployment.finalizers == [FINALIZER]
}

/// Clusters that were created for an entry that another lessee holds or another cluster uses, by the versions in etcd alone.
fn clusters_of_others(versions: &Versions) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut entry_of: BTreeMap<&str, &str> = BTreeMap::new();
    for Version {
        revision,
        name,
        object,
        ..
    } in &versions.cluster_deployments
    {
        let living = object.as_ref().filter(|deployment| !is_over(deployment));
        let Some(entry) = living.and_then(|deployment| deployment.customization.as_deref()) else {
            entry_of.remove(name.as_str());
            continue;
        };
        if entry_of.contains_key(name.as_str()) {
            continue;
        }
        let others = entry_of.iter().filter(|(_, other)| **other == entry);
        violations.extend(others.map(|(other, _)| Violation::TwoClusters {
            entry: entry.to_owned(),
            clusters: [(*other).to_owned(), name.clone()],
        }));
        let is_of_entry = |version: &&Version<Entry>| version.name == entry && version.revision < *revision;
        let version = versions.entries.iter().rfind(is_of_entry);
        let holder = version
            .and_then(|version| version.object.as_ref())
            .and_then(|object| object.cluster_deployment.as_ref())
            .filter(|holder| *holder != name);
        violations.extend(holder.map(|names| Violation::ClusterOfAnother {
            entry: entry.to_owned(),
            cluster: name.clone(),
            names: names.clone(),
        }));
        entry_of.insert(name, entry);
    }
    violations
}

#[cfg(test)]
mod tests;
