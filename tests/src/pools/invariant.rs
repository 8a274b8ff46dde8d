//! What must be so of leases, whatever happened: judged by what etcd stored and by who was told what. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::version::{Entry, Revision, Version, Versions};

/// The finalizer that a lease puts on the `ClusterDeployment` that is made for it.
const FINALIZER: &str = "kubectl-kcp.dev/pool-lease";

/// What passed between a command and a lessee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Etcd's, at that moment.
    pub revision: Revision,
    /// Who.
    pub lessee: String,
    /// What.
    pub what: Saying,
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saying {
    /// The lessee was told that it has this entry. It was so at this revision.
    Leased(String),
    /// The lessee is about to give back what it has. It has it at this revision still.
    Releases,
}

/// What must never be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// A version of an entry does not name the lessee that was told that it has it.
    NotNamed {
        /// Which entry.
        entry: String,
        /// Who has it.
        lessee: String,
        /// Of the version; 0 where there is none.
        revision: Revision,
        /// Whom it names.
        names: Option<String>,
    },
    /// A Lease names another than the lessee that was told that it has its entry.
    LeaseNamesAnother {
        /// Which entry.
        entry: String,
        /// Who has it.
        lessee: String,
        /// Of the Lease's version.
        revision: Revision,
        /// Whom it names.
        names: String,
    },
    /// Two lessees had an entry at one time, as they were told.
    Overlap {
        /// Which entry.
        entry: String,
        /// Who.
        lessees: [String; 2],
    },
    /// A lessee was told of another entry than of the one that it had.
    ToldTwo {
        /// Who.
        lessee: String,
        /// The entries, in that order.
        entries: [String; 2],
    },
}

/// What repair must not leave behind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leftover {
    /// An entry of the inventory is gone.
    Gone(String),
    /// An entry is neither free nor held: its condition and its references contradict each other.
    Unclear(String),
    /// An entry is held by somebody who is not among the living.
    HeldByDead {
        /// Which entry.
        entry: String,
        /// Whose it was.
        lessee: String,
    },
    /// A Lease names somebody who is not among the living.
    LeaseOfDead {
        /// Which entry.
        entry: String,
        /// Whose it was.
        lessee: String,
    },
    /// One lessee holds several entries.
    HeldBeside {
        /// Who.
        lessee: String,
        /// All that it holds.
        entries: Vec<String>,
    },
    /// A `ClusterDeployment` has been deleted, and waits for our finalizer alone.
    FinalizerStuck(String),
    /// A copy of a customization, `NAMESPACE/NAME`, is in the namespace of somebody who is not among the living.
    CopyOfDead(String),
}

/// From the first success that a lessee was told until it asked for the entry's release.
struct Tenure<'s> {
    lessee: &'s str,
    entry: &'s str,
    from: Revision,
    /// [`Revision::MAX`]: it has not asked.
    until: Revision,
}

/// Everything that is wrong with a history. What each lessee was told is in the order in which it was.
pub fn violations(versions: &Versions, said: &[Said]) -> Vec<Violation> {
    let (tenures, mut violations) = tenures(said);
    for (index, tenure) in tenures.iter().enumerate() {
        violations.extend(not_named(tenure, &versions.entries));
        violations.extend(lease_names_another(tenure, versions));
        let others = tenures.get(index + 1..).unwrap_or_default();
        violations.extend(others.iter().filter_map(|other| overlap(tenure, other)));
    }
    violations
}

/// What is left over of leases at the end of a history, in which only these lessees still live.
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
    for (entry, lease) in last(&versions.leases) {
        if let Some(lessee) = lease.holder.clone().filter(|holder| !living.contains(holder)) {
            let entry = entry.to_owned();
            leftovers.push(Leftover::LeaseOfDead { entry, lessee });
        }
    }
    for (name, deployment) in last(&versions.cluster_deployments) {
        if deployment.is_deleting && deployment.finalizers == [FINALIZER] {
            leftovers.push(Leftover::FinalizerStuck(name.to_owned()));
        }
    }
    for name in last(&versions.copies).into_keys() {
        // A cluster has the name of its namespace.
        let lessee = name.split_once('/').map(|(namespace, _)| namespace);
        if lessee.is_none_or(|lessee| !living.contains(lessee)) {
            leftovers.push(Leftover::CopyOfDead(name.to_owned()));
        }
    }
    leftovers
}

/// The last version of each object that is not deleted.
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

/// The version of an object that was in force when a tenure began, and those that came while it lasted.
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

fn lease_names_another(tenure: &Tenure<'_>, versions: &Versions) -> Vec<Violation> {
    let in_force = in_force(tenure, &versions.leases).into_iter();
    in_force
        .filter_map(|version| {
            let names = version.object.as_ref()?.holder.clone()?;
            (names != tenure.lessee).then(|| Violation::LeaseNamesAnother {
                entry: tenure.entry.to_owned(),
                lessee: tenure.lessee.to_owned(),
                revision: version.revision,
                names,
            })
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
