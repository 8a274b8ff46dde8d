//! Finds objects that leases left behind when they ended: finalizers, copies of customizations, and records of version 0.1.
//! No I/O.

use jiff::SignedDuration;
use kcp_api::metadata::{Object as _, PartialObjectMetadata};

use crate::{
    objects::{
        cluster_deployment::{
            BelongsToPool as _, ClusterDeployment, CustomizationCopy, Deletion as _, DeletionState,
        },
        entry::Entry,
    },
    repair::{
        finding::{Cause, LeaseProblem, ProblemSubject, Remedy},
        options::RepairOptions,
    },
    snapshot::Snapshot,
};

/// The finding for a ClusterDeployment whose deletion waits only for this program's finalizer.
pub(super) fn check_finalizer(
    cluster: &ClusterDeployment,
    options: &RepairOptions<'_>,
) -> Option<LeaseProblem> {
    let pool = cluster.pool()?;
    (cluster.is_kept_only_by_lease_finalizer() && options.includes(Some(pool))).then(|| LeaseProblem {
        subject: ProblemSubject::Cluster {
            namespace: cluster.namespace().to_owned(),
            name: cluster.name().to_owned(),
        },
        pool: Some(pool.to_owned()),
        cluster_deployment: Some(cluster.name().to_owned()),
        cause: Cause::Leftover(
            "the deletion of the ClusterDeployment waits only for kubectl-kcp's \
            finalizer",
        ),
        remedy: Remedy::Remove,
    })
}

/// The finding for a copy of a customization whose cluster neither exists nor is about to be created. No cluster is created
/// for a customization that this repair frees.
pub(super) fn check_copy(
    snapshot: &Snapshot,
    of_entries: &[LeaseProblem],
    copy: &CustomizationCopy,
    options: &RepairOptions<'_>,
) -> Option<LeaseProblem> {
    if copy.pool_namespace() != Some(snapshot.namespace.as_str()) || copy.is_deleting() {
        return None;
    }
    // A ClusterDeployment has the same name as its namespace.
    let name = copy.namespace();
    let mut clusters = snapshot.cluster_deployments()?.iter();
    let is_used = clusters.any(|cluster| {
        cluster.namespace() == name && cluster.deletion_state() != DeletionState::Deprovisioned
    });
    let is_freed = |entry: &Entry| {
        of_entries.iter().any(|finding| {
            let is_it = matches!(&finding.subject, ProblemSubject::Entry { name } if name == entry.name());
            is_it && finding.remedy.ends_lease()
        })
    };
    let is_held = snapshot.entries.iter().any(|entry| {
        let is_its = entry.status.pool() == copy.pool_name() || entry.name() == copy.name();
        entry.status.holder() == Some(name) && is_its && entry.status.is_reserved() && !is_freed(entry)
    });
    // The current time is that of the list of clusters. A copy that is newer than the list has the age zero.
    let age = copy.creation_timestamp().map(|created| {
        snapshot
            .now
            .earliest
            .duration_since(created)
            .max(SignedDuration::ZERO)
    });
    let is_old = age.is_none_or(|age: SignedDuration| age >= options.grace);
    (!is_used && !is_held && is_old && options.includes(copy.pool_name())).then(|| LeaseProblem {
        subject: ProblemSubject::Copy {
            namespace: copy.namespace().to_owned(),
            name: copy.name().to_owned(),
        },
        pool: copy.pool_name().map(str::to_owned),
        cluster_deployment: Some(name.to_owned()),
        cause: Cause::Leftover("this copy of a customization is in a namespace without a ClusterDeployment"),
        remedy: Remedy::Remove,
    })
}

/// The finding for a Lease (`coordination.k8s.io`) with a record of an earlier version, which this version does not read.
pub(super) fn check_old_record(
    lease: &PartialObjectMetadata,
    options: &RepairOptions<'_>,
) -> Option<LeaseProblem> {
    options.pool.is_none().then(|| LeaseProblem {
        subject: ProblemSubject::OldRecord {
            name: lease.name().to_owned(),
        },
        pool: None,
        cluster_deployment: None,
        cause: Cause::Leftover(
            "an earlier version of kubectl-kcp wrote this Lease, and this version cannot read it; delete the Lease",
        ),
        remedy: Remedy::None,
    })
}
