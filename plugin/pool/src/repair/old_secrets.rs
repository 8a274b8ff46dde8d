//! Finds unclaimed clusters that Hive created from Secrets that have changed since. No I/O.

use kcp_api::{
    ClusterDeployment, ClusterPool,
    metadata::Object as _,
    names::{annotation, finalizer},
};

use crate::{
    inventory::staleness::{PoolVersion, is_replaceable},
    repair::{
        finding::{Cause, LeaseProblem, ProblemSubject, Remedy},
        options::RepairOptions,
    },
    snapshot::Snapshot,
};

/// The clusters that are older than the Secrets of their pool, oldest first. Hive replaces clusters of another version of the pool
/// itself.
pub(super) fn check_secrets(snapshot: &Snapshot, options: &RepairOptions<'_>) -> Vec<LeaseProblem> {
    let is_meant = |pool: &&ClusterPool| {
        options.includes(Some(pool.name())) && snapshot.hive.manages(pool) && !pool.is_deleting()
    };
    let pools = snapshot.pools.iter().filter(is_meant);
    pools.flat_map(|pool| check_pool(snapshot, pool)).collect()
}

/// Whether a lessee has created the cluster, and perhaps with an install-config of its own.
fn is_of_lessee(cluster: &ClusterDeployment) -> bool {
    cluster.has_finalizer(finalizer::POOL_LEASE) || cluster.annotation(annotation::LEASE_ID).is_some()
}

fn check_pool(snapshot: &Snapshot, pool: &ClusterPool) -> Vec<LeaseProblem> {
    let Some(facts) = snapshot.secrets.get(pool.name()) else {
        return Vec::new();
    };
    let version = PoolVersion::new(pool, true);
    let deployments = snapshot.cluster_deployments().into_iter();
    let clusters = deployments.flat_map(|all| all.in_pool(pool.name()));
    let mut clusters: Vec<_> = clusters
        .filter(|cluster| {
            is_replaceable(cluster) && !is_of_lessee(cluster) && version.staleness(cluster).is_none()
        })
        .collect();
    clusters.sort_by_key(|cluster| (cluster.creation_timestamp(), cluster.name()));
    let findings = clusters.into_iter().filter_map(|cluster| {
        let what = facts.old_secret(cluster)?;
        Some(LeaseProblem {
            subject: ProblemSubject::Cluster {
                namespace: cluster.namespace().to_owned(),
                name: cluster.name().to_owned(),
            },
            pool: Some(pool.name().to_owned()),
            cluster_deployment: Some(cluster.name().to_owned()),
            cause: Cause::OldSecret { what },
            remedy: Remedy::None,
        })
    });
    findings.collect()
}
