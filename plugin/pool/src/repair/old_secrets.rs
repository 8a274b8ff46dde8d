//! Finds unclaimed clusters that Hive created from Secrets that have changed since. No I/O.

use kcp_api::{ClusterPool, metadata::Object as _};

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

fn check_pool(snapshot: &Snapshot, pool: &ClusterPool) -> Vec<LeaseProblem> {
    let Some(facts) = snapshot.secrets.get(pool.name()) else {
        return Vec::new();
    };
    let version = PoolVersion::new(pool, true);
    let deployments = snapshot.cluster_deployments().into_iter();
    let clusters = deployments.flat_map(|all| all.in_pool(pool.name()));
    let mut clusters: Vec<_> = clusters
        .filter(|cluster| is_replaceable(cluster) && version.staleness(cluster).is_none())
        .collect();
    clusters.sort_by_key(|cluster| (cluster.creation_timestamp(), cluster.name()));
    let findings = clusters.into_iter().filter_map(|cluster| {
        let old = facts.old_secret(cluster)?;
        Some(LeaseProblem {
            subject: ProblemSubject::Cluster {
                namespace: cluster.namespace().to_owned(),
                name: cluster.name().to_owned(),
            },
            pool: Some(pool.name().to_owned()),
            cluster_deployment: Some(cluster.name().to_owned()),
            cause: Cause::OldSecret { what: old.what },
            remedy: if old.is_certain {
                Remedy::Replace
            } else {
                Remedy::None
            },
        })
    });
    findings.collect()
}
