//! What ended leases have left: finalizers, records, and copies of customizations. Pure.

use jiff::SignedDuration;

use crate::{
    objects::{
        cluster_deployment::{ClusterDeployment, Copy, LEASE_FINALIZER, Life},
        entry::Entry,
        record::Record,
    },
    repair::{
        finding::{Cause, Finding, Remedy, Subject},
        holder::recorded,
        options::{Clock, Options},
    },
    snapshot::Snapshot,
};

/// A record that was written less than this ago may belong to a client whose status write is in flight: longer than a
/// request takes, and as much as clocks may differ.
const STATUS_WRITE: SignedDuration = SignedDuration::from_secs(60);

/// A deleted ClusterDeployment that only our finalizer keeps.
pub(super) fn finalizer_left(cluster: &ClusterDeployment, options: &Options<'_>) -> Option<Finding> {
    let pool = cluster.pool()?;
    let is_left = cluster.metadata.waits_only_for(LEASE_FINALIZER);
    (is_left && options.is_about(Some(pool))).then(|| Finding {
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

/// A record whose customization is gone, or does not name the record's holder.
pub(super) fn record_left(snapshot: &Snapshot, record: &Record, options: &Options<'_>) -> Option<Finding> {
    let customization = record.customization()?;
    let is_of_entry = snapshot
        .entry(customization)
        .is_some_and(|entry| recorded(snapshot, entry).is_some());
    let clock = Clock {
        grace: options.clock.grace.max(STATUS_WRITE),
        ..options.clock
    };
    let is_left = !is_of_entry && clock.is_past_grace(record.renewed());
    (is_left && options.is_about(record.pool())).then(|| Finding {
        subject: Subject::Record {
            customization: customization.to_owned(),
        },
        pool: record.pool().map(str::to_owned),
        cluster_deployment: record.cluster_deployment().map(str::to_owned),
        cause: Cause::RecordLeft,
        remedy: Remedy::Delete,
    })
}

/// A copy without the cluster that it was created for, and for which none is about to be created. A customization
/// that this repair frees gets no cluster.
pub(super) fn copy_left(
    snapshot: &Snapshot,
    of_entries: &[Finding],
    copy: &Copy,
    options: &Options<'_>,
) -> Option<Finding> {
    if copy.pool_namespace() != Some(snapshot.namespace.as_str()) || copy.metadata.is_deleting() {
        return None;
    }
    let name = copy.cluster_deployment();
    let is_used = snapshot
        .deployments
        .iter()
        .any(|cluster| cluster.metadata.namespace == copy.metadata.namespace && cluster.life() != Life::Over);
    let is_freed = |entry: &Entry| {
        of_entries
            .iter()
            .any(|finding| finding.remedy == Remedy::Free && finding.is_about(entry.name()))
    };
    let is_held = snapshot.entries.iter().any(|entry| {
        entry.cluster_deployment() == Some(name)
            && (entry.pool() == copy.pool() || entry.name() == copy.metadata.name)
            && !is_freed(entry)
    });
    let is_left = !is_used && !is_held && options.clock.is_past_grace(copy.metadata.creation_timestamp);
    (is_left && options.is_about(copy.pool())).then(|| Finding {
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
