//! The invariants of leases, checked against what etcd stored and what lessees were told. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::version::{Entry, Revision, Version, Versions};

/// The finalizer of a `ClusterDeployment` that was created for a lease.
const FINALIZER: &str = "kubectl-kcp.dev/pool-lease";

/// A message between a command and a lessee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// etcd's revision at that moment.
    pub revision: Revision,
    pub lessee: String,
    pub what: Saying,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saying {
    /// The lessee was told that it has this entry, which was true at this revision.
    Leased(String),
    /// The lessee is about to release its entry, which it still has at this revision.
    Releases,
}

/// A violation of the invariants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// A version of an entry does not name the lessee that was told that it has the entry.
    NotNamed {
        entry: String,
        lessee: String,
        /// The revision of that version; 0 if there is none.
        revision: Revision,
        /// The lessee that the version names.
        names: Option<String>,
    },
    /// Two lessees were told that they have the same entry at the same time.
    Overlap { entry: String, lessees: [String; 2] },
    /// A lessee was told to have another entry than before.
    ToldTwo {
        lessee: String,
        /// The entries, in order.
        entries: [String; 2],
    },
}

/// What repair must not leave behind.
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

/// The time from a lessee's first success until it requested the release.
struct Tenure<'s> {
    lessee: &'s str,
    entry: &'s str,
    from: Revision,
    /// [`Revision::MAX`] if it has not requested the release.
    until: Revision,
}

/// All violations in a history. `said` is in chronological order.
pub fn violations(versions: &Versions, said: &[Said]) -> Vec<Violation> {
    let (tenures, mut violations) = tenures(said);
    for (index, tenure) in tenures.iter().enumerate() {
        violations.extend(not_named(tenure, &versions.entries));
        let others = tenures.get(index + 1..).unwrap_or_default();
        violations.extend(others.iter().filter_map(|other| overlap(tenure, other)));
    }
    violations
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
        if deployment.is_deleting && deployment.finalizers == [FINALIZER] {
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

fn tenures(said: &[Said]) -> (Vec<Tenure<'_>>, Vec<Violation>) {
    let mut tenures: Vec<Tenure<'_>> = Vec::new();
    let mut violations = Vec::new();
    for Said {
        revision,
        lessee,
        what,
    } in said
    {
        let current = tenures
            .iter_mut()
            .filter(|tenure| tenure.lessee == lessee && tenure.until == Revision::MAX);
        match what {
            Saying::Releases => current.for_each(|tenure| tenure.until = *revision),
            Saying::Leased(entry) => {
                let had: Vec<_> = current.map(|tenure| tenure.entry).collect();
                if had.contains(&entry.as_str()) {
                    continue;
                }
                violations.extend(had.first().map(|first| Violation::ToldTwo {
                    lessee: lessee.clone(),
                    entries: [(*first).to_owned(), entry.clone()],
                }));
                tenures.push(Tenure {
                    lessee,
                    entry,
                    from: *revision,
                    until: Revision::MAX,
                });
            }
        }
    }
    (tenures, violations)
}

/// The version of an object at the start of a tenure, and its later versions during the tenure.
fn in_force<'v, T>(tenure: &Tenure<'_>, versions: &'v [Version<T>]) -> Vec<&'v Version<T>> {
    let of_entry = |version: &&Version<T>| version.name == tenure.entry && version.revision <= tenure.until;
    let (before, during): (Vec<_>, Vec<_>) = versions
        .iter()
        .filter(of_entry)
        .partition(|version| version.revision <= tenure.from);
    before.last().copied().into_iter().chain(during).collect()
}

fn not_named(tenure: &Tenure<'_>, entries: &[Version<Entry>]) -> Vec<Violation> {
    let not_named = |revision, names| Violation::NotNamed {
        entry: tenure.entry.to_owned(),
        lessee: tenure.lessee.to_owned(),
        revision,
        names,
    };
    let in_force = in_force(tenure, entries);
    if in_force.is_empty() {
        return vec![not_named(0, None)];
    }
    in_force
        .into_iter()
        .filter_map(|version| {
            let entry = version.object.as_ref().filter(|entry| entry.is_reserved);
            let names = entry.and_then(|entry| entry.cluster_deployment.clone());
            (names.as_deref() != Some(tenure.lessee)).then(|| not_named(version.revision, names))
        })
        .collect()
}

fn overlap(one: &Tenure<'_>, other: &Tenure<'_>) -> Option<Violation> {
    let overlaps = one.entry == other.entry
        && one.lessee != other.lessee
        && one.from <= other.until
        && other.from <= one.until;
    overlaps.then(|| Violation::Overlap {
        entry: one.entry.to_owned(),
        lessees: [one.lessee.to_owned(), other.lessee.to_owned()],
    })
}

#[cfg(test)]
mod tests;
