//! What is wrong with the leases of a namespace, and what mends it. Pure.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use crate::{
    objects::{
        cluster_pool::Pool,
        copies::Copy,
        deployments::{ClusterDeployment, LEASE_FINALIZER, Life},
        entry::Entry,
        record::Record,
    },
    repair::{
        finding::{Cause, Finding, Mark, Remedy, Subject, about_entry},
        kept::kept,
        missing_cluster::{missing_cluster, within_capacity},
        proof::{Clock, HolderState, holder_state, recorded},
        wanted::Wanted,
    },
    survey::Survey,
};

/// A record that was written less than this ago may be that of a lessee whose status write is under way: it has the
/// time of a request, and clocks may differ by as much.
const STATUS_WRITE: SignedDuration = SignedDuration::from_secs(60);

/// A living cluster whose UID its record does not have: once there, it proves that the cluster was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub customization: String,
    pub pool: String,
    pub cluster_deployment: String,
    pub uid: String,
}

/// Everything that is wrong: entries first, then what is let go after them.
pub fn findings(survey: &Survey, wanted: &Wanted<'_>) -> Vec<Finding> {
    let entries = survey.entries.iter();
    let entries: Vec<_> = entries
        .filter_map(|entry| of_entry(survey, entry, wanted).or_else(|| kept(survey, entry, wanted)))
        .collect();
    let entries = within_capacity(survey, entries);
    let clusters = survey.deployments.of_namespace();
    let clusters = clusters.filter_map(|cluster| finalizer_left(cluster, wanted));
    let records = survey.records.iter();
    let records = records.filter_map(|record| record_left(survey, record, wanted));
    let copies = survey.copies.iter();
    let copies = copies.filter_map(|copy| copy_left(survey, &entries, copy, wanted));
    let after: Vec<_> = clusters.chain(records).chain(copies).collect();
    entries.into_iter().chain(after).collect()
}

/// The living clusters that the records do not know yet. Hive's own need none: it frees what they leave.
pub fn sightings(survey: &Survey, wanted: &Wanted<'_>) -> Vec<Sighting> {
    let sighting = |entry: &Entry| {
        let (pool, name) = (entry.pool()?, entry.cluster_deployment()?);
        let is_run_by_hive = survey.pool(pool).is_some_and(Pool::is_run_by_hive);
        if !wanted.is_about(Some(pool)) || is_run_by_hive {
            return None;
        }
        let Some(HolderState::Alive(cluster)) = holder_state(survey, entry, wanted.clock) else {
            return None;
        };
        let record = survey.record(entry.name());
        let of_holder = recorded(survey, entry);
        let is_known =
            of_holder.and_then(Record::cluster_deployment_uid) == Some(cluster.metadata.uid.as_str());
        let is_anothers = record.is_some() && of_holder.is_none();
        (!is_known && !is_anothers).then(|| Sighting {
            customization: entry.name().to_owned(),
            pool: pool.to_owned(),
            cluster_deployment: name.to_owned(),
            uid: cluster.metadata.uid.clone(),
        })
    };
    survey.entries.iter().filter_map(sighting).collect()
}

/// What is wrong with an entry.
fn of_entry(survey: &Survey, entry: &Entry, wanted: &Wanted<'_>) -> Option<Finding> {
    let mut users: Vec<&ClusterDeployment> = survey
        .deployments
        .of_namespace()
        .filter(|cluster| cluster.customization() == Some(entry.name()) && cluster.life() != Life::Over)
        .collect();
    if !is_wanted(survey, entry, &users, wanted) {
        return None;
    }
    let state = holder_state(survey, entry, wanted.clock);
    if matches!(
        state,
        Some(HolderState::Alive(_) | HolderState::Leasing | HolderState::Recent)
    ) {
        users.retain(|user| !is_handed_over(entry, user, wanted.clock));
    }
    match (users.as_slice(), state) {
        ([], None) => holder_unknown(entry, wanted),
        ([], Some(state)) => without_user(survey, entry, state, wanted),
        ([user], _) if is_named(entry, user) => {
            let is_wrong = !entry.is_reserved() && is_settled(entry, user, wanted.clock);
            is_wrong.then(|| reserved_again(entry, user, Cause::MarkedAvailable))
        }
        ([user], None) => {
            let cause = if entry.is_reserved() {
                Cause::ReferencesMissing
            } else {
                Cause::MarkedAvailable
            };
            is_settled(entry, user, wanted.clock).then(|| reserved_again(entry, user, cause))
        }
        ([user], Some(HolderState::Gone(_))) => {
            let gone = entry.cluster_deployment()?.to_owned();
            Some(reserved_again(entry, user, Cause::UsedByAnother { gone }))
        }
        (users, _) => Some(contested(entry, users)),
    }
}

fn is_wanted(survey: &Survey, entry: &Entry, users: &[&ClusterDeployment], wanted: &Wanted<'_>) -> bool {
    match (wanted.pool, entry.pool()) {
        (None, _) => true,
        (wanted, Some(pool)) => wanted == Some(pool),
        (wanted, None) => {
            let names_it = || {
                survey
                    .pools_naming(entry.name())
                    .any(|pool| wanted == Some(pool.name()))
            };
            users.iter().any(|user| wanted == pool_of(user)) || names_it()
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

fn pool_of(cluster: &ClusterDeployment) -> Option<&str> {
    let reference = cluster.pool_reference.as_ref()?;
    Some(&reference.pool_name)
}

fn is_named(entry: &Entry, cluster: &ClusterDeployment) -> bool {
    let is_of_its_pool = entry.pool().is_none_or(|pool| Some(pool) == pool_of(cluster));
    entry.cluster_deployment() == Some(cluster.name()) && is_of_its_pool
}

/// Hive frees an entry shortly before its cluster goes, and that is no fault.
fn is_settled(entry: &Entry, user: &ClusterDeployment, clock: Clock) -> bool {
    user.life() == Life::Alive || clock.is_past_grace(entry.since())
}

/// Hive frees an entry, and reserves it for the next cluster, shortly before the last one goes.
fn is_handed_over(entry: &Entry, user: &ClusterDeployment, clock: Clock) -> bool {
    user.life() == Life::Deprovisioning && !is_named(entry, user) && !clock.is_past_grace(entry.since())
}

/// An entry that names a holder, and no living cluster was made with it.
fn without_user(
    survey: &Survey,
    entry: &Entry,
    state: HolderState<'_>,
    wanted: &Wanted<'_>,
) -> Option<Finding> {
    if let Some(missing) = missing_cluster(survey, entry, &state, wanted) {
        return Some(missing);
    }
    let mark = mark(entry);
    let is_in_inventory = entry.pool().is_none_or(|pool| {
        survey
            .pools_naming(entry.name())
            .any(|naming| naming.name() == pool)
    });
    match state {
        HolderState::Leasing | HolderState::Recent => None,
        HolderState::Alive(cluster) => {
            let pool = entry.pool().or_else(|| pool_of(cluster))?;
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
            Some(about_entry(entry, cause, wanted.freeing(entry)))
        }
    }
}

/// An entry that names nobody. Hive reserves one in two writes, the mark first.
fn holder_unknown(entry: &Entry, wanted: &Wanted<'_>) -> Option<Finding> {
    let is_taken = entry.is_reserved() || entry.pool().is_some();
    let is_wrong = is_taken && wanted.clock.is_past_grace(entry.since());
    let cause = Cause::HolderUnknown { mark: mark(entry) };
    is_wrong.then(|| about_entry(entry, cause, wanted.freeing(entry)))
}

fn reserved_again(entry: &Entry, user: &ClusterDeployment, cause: Cause) -> Finding {
    let pool = pool_of(user).unwrap_or_default().to_owned();
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

/// A cluster that could go.
fn finalizer_left(cluster: &ClusterDeployment, wanted: &Wanted<'_>) -> Option<Finding> {
    let pool = pool_of(cluster)?;
    let is_left = cluster.metadata.waits_only_for(LEASE_FINALIZER);
    (is_left && wanted.is_about(Some(pool))).then(|| Finding {
        subject: Subject::Cluster {
            namespace: cluster.metadata.namespace.clone(),
            name: cluster.name().to_owned(),
        },
        pool: Some(pool.to_owned()),
        cluster_deployment: Some(cluster.name().to_owned()),
        cause: Cause::FinalizerLeft,
        remedy: Remedy::RemoveFinalizer,
    })
}

/// A record whose customization is gone, or names another or nobody.
fn record_left(survey: &Survey, record: &Record, wanted: &Wanted<'_>) -> Option<Finding> {
    let customization = record.customization()?;
    let is_of_entry = survey
        .entry(customization)
        .is_some_and(|entry| recorded(survey, entry).is_some());
    let clock = Clock {
        grace: wanted.clock.grace.max(STATUS_WRITE),
        ..wanted.clock
    };
    let is_left = !is_of_entry && clock.is_past_grace(record.renewed());
    (is_left && wanted.is_about(record.pool())).then(|| Finding {
        subject: Subject::Record {
            customization: customization.to_owned(),
        },
        pool: record.pool().map(str::to_owned),
        cluster_deployment: record.cluster_deployment().map(str::to_owned),
        cause: Cause::RecordLeft,
        remedy: Remedy::Delete,
    })
}

/// A copy without the cluster that it was made for, and that is not about to be made. Of a customization that is freed
/// first nobody is about to make one.
fn copy_left(survey: &Survey, of_entries: &[Finding], copy: &Copy, wanted: &Wanted<'_>) -> Option<Finding> {
    if copy.pool_namespace() != Some(survey.namespace.as_str()) || copy.metadata.is_deleting() {
        return None;
    }
    let name = copy.cluster_deployment();
    let is_used = survey
        .deployments
        .iter()
        .any(|cluster| cluster.metadata.namespace == copy.metadata.namespace && cluster.life() != Life::Over);
    let is_freed = |entry: &Entry| {
        of_entries
            .iter()
            .any(|finding| finding.remedy == Remedy::Free && finding.is_about(entry.name()))
    };
    let is_held = survey.entries.iter().any(|entry| {
        entry.cluster_deployment() == Some(name)
            && (entry.pool() == copy.pool() || entry.name() == copy.metadata.name)
            && !is_freed(entry)
    });
    let is_left = !is_used && !is_held && wanted.clock.is_past_grace(copy.metadata.creation_timestamp);
    (is_left && wanted.is_about(copy.pool())).then(|| Finding {
        subject: Subject::Copy {
            namespace: copy.metadata.namespace.clone(),
            name: copy.metadata.name.clone(),
        },
        pool: copy.pool().map(str::to_owned),
        cluster_deployment: Some(name.to_owned()),
        cause: Cause::CopyLeft,
        remedy: Remedy::Delete,
    })
}

#[cfg(test)]
mod tests;
