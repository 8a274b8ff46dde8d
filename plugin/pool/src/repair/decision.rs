//! What is wrong with the leases of a namespace, and what repairs it. Pure.

use std::collections::BTreeSet;

use crate::{
    objects::{
        cluster_deployment::{ClusterDeployment, Life},
        entry::Entry,
        record::Record,
    },
    repair::{
        finding::{Cause, Finding, Mark, Remedy, Use, about_entry},
        holder::{HolderState, holder_state, recorded},
        leftovers::{copy_left, finalizer_left, record_left},
        missing_cluster::{missing_cluster, within_capacity},
        options::{Clock, Options},
    },
    snapshot::Snapshot,
};

/// Everything that is wrong: entries first, then what is removed after them.
pub fn findings(snapshot: &Snapshot, options: &Options<'_>) -> Vec<Finding> {
    let entries = snapshot.entries.iter();
    let entries: Vec<_> = entries
        .filter_map(|entry| of_entry(snapshot, entry, options).or_else(|| in_use(snapshot, entry, options)))
        .collect();
    let entries = within_capacity(snapshot, entries);
    let clusters = snapshot.deployments.of_namespace();
    let clusters = clusters.filter_map(|cluster| finalizer_left(cluster, options));
    let records = snapshot.records.iter();
    let records = records.filter_map(|record| record_left(snapshot, record, options));
    let copies = snapshot.copies.iter();
    let copies = copies.filter_map(|copy| copy_left(snapshot, &entries, copy, options));
    let after: Vec<_> = clusters.chain(records).chain(copies).collect();
    entries.into_iter().chain(after).collect()
}

/// What is wrong with an entry.
fn of_entry(snapshot: &Snapshot, entry: &Entry, options: &Options<'_>) -> Option<Finding> {
    let mut users: Vec<&ClusterDeployment> = snapshot
        .deployments
        .of_namespace()
        .filter(|cluster| cluster.customization() == Some(entry.name()) && cluster.life() != Life::Over)
        .collect();
    if !is_wanted(snapshot, entry, &users, options) {
        return None;
    }
    let state = holder_state(snapshot, entry, options.clock);
    if matches!(
        state,
        Some(HolderState::Alive(_) | HolderState::Leasing | HolderState::Recent)
    ) {
        users.retain(|user| !is_handed_over(entry, user, options.clock));
    }
    match (users.as_slice(), state) {
        ([], None) => holder_unknown(entry, options),
        ([], Some(state)) => without_user(snapshot, entry, state, options),
        ([user], _) if is_named(entry, user) => {
            let is_wrong = !entry.is_reserved() && is_settled(entry, user, options.clock);
            is_wrong.then(|| reserved_again(entry, user, Cause::MarkedAvailable))
        }
        ([user], None) => {
            let cause = if entry.is_reserved() {
                Cause::ReferencesMissing
            } else {
                Cause::MarkedAvailable
            };
            is_settled(entry, user, options.clock).then(|| reserved_again(entry, user, cause))
        }
        ([user], Some(HolderState::Gone(_))) => {
            let gone = entry.cluster_deployment()?.to_owned();
            Some(reserved_again(entry, user, Cause::UsedByAnother { gone }))
        }
        (users, _) => Some(contested(entry, users)),
    }
}

fn is_wanted(
    snapshot: &Snapshot,
    entry: &Entry,
    users: &[&ClusterDeployment],
    options: &Options<'_>,
) -> bool {
    match (options.pool, entry.pool()) {
        (None, _) => true,
        (options, Some(pool)) => options == Some(pool),
        (options, None) => {
            let names_it = || {
                snapshot
                    .pools_naming(entry.name())
                    .any(|pool| options == Some(pool.name()))
            };
            users.iter().any(|user| options == user.pool()) || names_it()
        }
    }
}

fn mark(entry: &Entry) -> Mark {
    if entry.is_reserved() {
        Mark::Reserved
    } else {
        Mark::Available
    }
}

fn is_named(entry: &Entry, cluster: &ClusterDeployment) -> bool {
    let is_of_its_pool = entry.pool().is_none_or(|pool| Some(pool) == cluster.pool());
    entry.cluster_deployment() == Some(cluster.name()) && is_of_its_pool
}

/// Hive frees an entry shortly before its cluster is gone; this is not a fault.
fn is_settled(entry: &Entry, user: &ClusterDeployment, clock: Clock) -> bool {
    user.life() == Life::Alive || clock.is_past_grace(entry.since())
}

/// Hive frees an entry and reserves it for the next cluster shortly before the last one is gone.
fn is_handed_over(entry: &Entry, user: &ClusterDeployment, clock: Clock) -> bool {
    user.life() == Life::Deprovisioning && !is_named(entry, user) && !clock.is_past_grace(entry.since())
}

/// An entry that names a holder and that no cluster uses.
fn without_user(
    snapshot: &Snapshot,
    entry: &Entry,
    state: HolderState<'_>,
    options: &Options<'_>,
) -> Option<Finding> {
    if let Some(missing) = missing_cluster(snapshot, entry, &state, options) {
        return Some(missing);
    }
    let mark = mark(entry);
    let is_in_inventory = entry.pool().is_none_or(|pool| {
        snapshot
            .pools_naming(entry.name())
            .any(|naming| naming.name() == pool)
    });
    match state {
        HolderState::Leasing | HolderState::Recent => None,
        HolderState::Alive(cluster) => {
            let pool = entry.pool().or_else(|| cluster.pool())?;
            (mark == Mark::Available).then(|| Finding {
                remedy: Remedy::Reserve {
                    pool: pool.to_owned(),
                    cluster_deployment: cluster.name().to_owned(),
                },
                ..about_entry(entry, Cause::MarkedAvailable, Remedy::Unknown)
            })
        }
        HolderState::Gone(proof) => {
            let cause = Cause::HolderGone {
                proof,
                mark,
                is_in_inventory,
            };
            Some(about_entry(entry, cause, Remedy::Free))
        }
        HolderState::Unverifiable => {
            let cause = Cause::Unverifiable {
                mark,
                is_in_inventory,
            };
            Some(about_entry(entry, cause, freeing(entry, options)))
        }
    }
}

/// An entry that names no holder. Hive reserves an entry in two writes, the condition first.
fn holder_unknown(entry: &Entry, options: &Options<'_>) -> Option<Finding> {
    let is_taken = entry.is_reserved() || entry.pool().is_some();
    let is_wrong = is_taken && options.clock.is_past_grace(entry.since());
    let cause = Cause::HolderUnknown { mark: mark(entry) };
    is_wrong.then(|| about_entry(entry, cause, freeing(entry, options)))
}

fn reserved_again(entry: &Entry, user: &ClusterDeployment, cause: Cause) -> Finding {
    let pool = user.pool().unwrap_or_default().to_owned();
    let cluster_deployment = user.name().to_owned();
    Finding {
        pool: Some(pool.clone()),
        cluster_deployment: Some(cluster_deployment.clone()),
        ..about_entry(
            entry,
            cause,
            Remedy::Reserve {
                pool,
                cluster_deployment,
            },
        )
    }
}

fn contested(entry: &Entry, users: &[&ClusterDeployment]) -> Finding {
    let users = users.iter().map(|cluster| cluster.name());
    let by: BTreeSet<&str> = entry.cluster_deployment().into_iter().chain(users).collect();
    let by = by.into_iter().map(str::to_owned).collect();
    about_entry(entry, Cause::Contested { by }, Remedy::Unknown)
}

/// The remedy of an entry whose holder cannot be verified.
fn freeing(entry: &Entry, options: &Options<'_>) -> Remedy {
    if options.names(entry) {
        Remedy::Free
    } else {
        Remedy::FreeByName
    }
}

/// Why an entry that was named with --force and has no fault is not freed. A free entry needs no repair.
pub fn in_use(snapshot: &Snapshot, entry: &Entry, options: &Options<'_>) -> Option<Finding> {
    let is_taken = entry.is_reserved() || entry.cluster_deployment().is_some();
    if !options.names(entry) || !is_taken {
        return None;
    }
    let used = match holder_state(snapshot, entry, options.clock) {
        Some(HolderState::Alive(cluster)) => Use::Cluster {
            namespace: cluster.metadata.namespace.clone(),
        },
        Some(HolderState::Leasing) => Use::Lease {
            until: recorded(snapshot, entry).and_then(Record::expires),
        },
        _ if !options.is_about(entry.pool()) => Use::OtherPool,
        _ => Use::Recent,
    };
    Some(about_entry(entry, Cause::InUse(used), Remedy::Keep))
}

#[cfg(test)]
mod tests;
