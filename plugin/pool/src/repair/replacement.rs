//! Replaces a cluster whose install-config differs from the template: deletes it, so that Hive creates another one. Like Hive with
//! stale clusters, replaces one cluster at a time.

use std::time::Duration;

use kcp_api::{ClusterPool, metadata::Object as _};
use kcp_client::{Error, Written};

use crate::{
    inventory::{capacity::Capacity, staleness::is_replaceable},
    lease::access::LeaseStore as _,
    objects::cluster_deployment::{ClusterDeployment, ClusterDeployments, Deletion as _},
    repair::{
        apply::RepairOutcome,
        finding::{LeaseProblem, ProblemSubject},
    },
    snapshot::Snapshot,
    store::Store,
};

/// How many times to try to delete a cluster that other clients change at the same time.
const MAX_ATTEMPTS: usize = 5;

/// The pause before the next attempt, after a response is lost.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Deletes the cluster of the finding, so that Hive creates another one. Waits while the pool does not have all of its other
/// clusters, because claims need them.
pub(super) async fn replace_cluster(
    store: &Store<'_>,
    snapshot: &Snapshot,
    finding: &LeaseProblem,
) -> Result<RepairOutcome, Error> {
    let (ProblemSubject::Cluster { namespace, name }, Some(pool)) = (&finding.subject, &finding.pool) else {
        return Ok(RepairOutcome::Settled);
    };
    let mut seen = snapshot
        .cluster_deployments()
        .into_iter()
        .flat_map(ClusterDeployments::iter);
    let Some(seen) = seen.find(|cluster| cluster.name() == name && cluster.namespace() == namespace) else {
        return Ok(RepairOutcome::Settled);
    };
    for _ in 0..MAX_ATTEMPTS {
        let Some(cluster) = store.read_cluster(namespace, name).await? else {
            return Ok(RepairOutcome::Settled);
        };
        let pool = store.read_pool(pool).await?;
        let clusters = store.list_cluster_deployments().await?;
        if let Some(outcome) = obstacle(&pool, &clusters, seen, &cluster) {
            return Ok(outcome);
        }
        match store.delete_cluster(&cluster).await? {
            Written::Stored => return Ok(RepairOutcome::Repaired),
            Written::Changed => {}
            Written::Unknown(_) => store.pause(RETRY_PAUSE).await,
        }
    }
    Ok(RepairOutcome::Contended)
}

/// Why the cluster is not deleted now; `None` if nothing prevents it. `seen` is the cluster with the problem, and `cluster` its
/// current state.
fn obstacle(
    pool: &ClusterPool,
    clusters: &ClusterDeployments,
    seen: &ClusterDeployment,
    cluster: &ClusterDeployment,
) -> Option<RepairOutcome> {
    let is_same = cluster.uid() == seen.uid() && cluster.pool() == Some(pool.name());
    if !is_same || !is_replaceable(cluster) || pool.is_deleting() {
        return Some(RepairOutcome::Settled);
    }
    // Like Hive, replace a cluster only if the pool has its size, and nothing is being installed or deleted (openshift/hive,
    // pkg/controller/clusterpool/clusterpool_controller.go, Reconcile).
    let capacity = Capacity::count(pool, clusters.in_pool(pool.name()));
    let is_complete = capacity.unclaimed >= capacity.size && capacity.installing + capacity.deleting == 0;
    let may_delete = capacity.max_concurrent != Some(0);
    (!is_complete || !may_delete).then_some(RepairOutcome::WaitsForClusters)
}

#[cfg(test)]
mod tests;
