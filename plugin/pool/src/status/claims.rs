//! Describes the ClusterClaims of a pool, and finds those to which Hive assigns no cluster. No I/O.

use jiff::{SignedDuration, Timestamp};
use kcp_api::{ClusterDeployment, ClusterPool, metadata::Object as _, names::annotation};

use crate::{
    objects::claim::{ClaimLifetime as _, ClusterClaim},
    snapshot::Snapshot,
    status::PoolProblem,
};

/// How long Hive may need to process a claim, or to assign a running cluster to it.
const HIVE_DELAY: SignedDuration = SignedDuration::from_mins(2);

/// A ClusterClaim of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUse {
    pub name: String,
    /// The id that kubectl-kcp gave the claim; `None` if another program created it.
    pub id: Option<String>,
    /// The user who created the claim with kubectl-kcp.
    pub user: Option<String>,
    /// The ClusterDeployment that Hive assigned; `None` while the claim waits.
    pub cluster: Option<String>,
    pub created: Option<Timestamp>,
    /// When Hive deletes the claim and its cluster; `None` while the claim waits, and if it has no lifetime.
    pub ends: Option<Timestamp>,
    pub is_deleting: bool,
    /// Why the claim waits longer than Hive needs.
    pub obstacle: Option<String>,
}

impl ClaimUse {
    /// Whether the claim waits for a cluster.
    pub const fn is_waiting(&self) -> bool {
        self.cluster.is_none()
    }

    pub(super) fn problem(&self) -> Option<PoolProblem> {
        Some(PoolProblem {
            kind: "stuck",
            object: format!("clusterclaim/{}", self.name),
            message: self.obstacle.clone()?,
        })
    }
}

/// The claims of the pool, oldest first, which is the order in which Hive assigns clusters; `None` if they could not be read.
pub(super) fn claim_uses(snapshot: &Snapshot, pool: &ClusterPool) -> Option<Vec<ClaimUse>> {
    let is_of_pool = |claim: &&ClusterClaim| claim.spec.cluster_pool_name == pool.name();
    let mut claims: Vec<_> = snapshot.claims.as_ref()?.iter().filter(is_of_pool).collect();
    claims.sort_by_key(|claim| (claim.creation_timestamp(), claim.name()));
    let clusters = snapshot.cluster_deployments();
    let clusters = clusters.into_iter().flat_map(|all| all.in_pool(pool.name()));
    let mut ready: Vec<_> = clusters.filter_map(ready_since).collect();
    ready.sort();
    let mut ready = ready.into_iter();
    let uses = claims.into_iter().map(|claim| {
        let is_waiting = claim.cluster_deployment().is_none() && !claim.is_deleting();
        let obstacle = is_waiting
            .then(|| obstacle(claim, ready.next(), snapshot.now.earliest))
            .flatten();
        ClaimUse {
            name: claim.name().to_owned(),
            id: claim.id().map(str::to_owned),
            user: claim.annotation(annotation::LEASE_USER).map(str::to_owned),
            cluster: claim.cluster_deployment().map(str::to_owned),
            created: claim.creation_timestamp(),
            ends: claim.end(Some(pool)),
            is_deleting: claim.is_deleting(),
            obstacle,
        }
    });
    Some(uses.collect())
}

/// Since when Hive can assign the cluster to a claim; `None` if it cannot. Hive assigns only running clusters.
fn ready_since(cluster: &ClusterDeployment) -> Option<Timestamp> {
    let is_running = cluster.status.power_state.as_deref() == Some("Running");
    let is_free = cluster.claim().is_none() && !cluster.is_deleting();
    (is_running && is_free && cluster.spec.installed)
        .then(|| {
            let ready = cluster.status.conditions.last_transition_time("Ready");
            ready.max(cluster.creation_timestamp())
        })
        .flatten()
}

/// Why the claim waits longer than Hive needs. `ready` is the time since which a cluster has been available for the claim.
fn obstacle(claim: &ClusterClaim, ready: Option<Timestamp>, now: Timestamp) -> Option<String> {
    let created = claim.creation_timestamp()?;
    let is_late = |since: Timestamp| now.duration_since(since) >= HIVE_DELAY;
    let since = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    if !claim.status.conditions.has("Pending") && is_late(created) {
        return Some(format!(
            "Hive has not processed the claim, which was created at {}; check that Hive runs",
            since(created)
        ));
    }
    let ready = ready?.max(created);
    is_late(ready).then(|| {
        format!(
            "a running, unclaimed cluster has been available since {}, but Hive has not assigned it to the claim; check that \
             Hive runs",
            since(ready)
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::claim_uses;
    use crate::testing::objects::{JUST_NOW, LONG_AGO, Objects, cluster, pool_object};

    fn claim(name: &str, created: &str, processed: bool) -> Value {
        let conditions = if processed {
            json!([{"type": "Pending", "status": "True", "reason": "NoClusters"}])
        } else {
            json!([])
        };
        json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"clusterPoolName": "pool"}, "status": {"conditions": conditions},
        })
    }

    /// An installed cluster without a claim, in this power state since this time.
    fn unclaimed(power: &str, since: &str) -> Value {
        let mut cluster = cluster("bern", "pool", None);
        cluster["metadata"]["creationTimestamp"] = LONG_AGO.into();
        cluster["spec"]["installed"] = true.into();
        cluster["status"] = json!({"powerState": power, "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": since},
        ]});
        cluster
    }

    #[test]
    fn a_claim_that_hive_does_not_serve_is_stuck() {
        let unprocessed = "clusterclaim/old: Hive has not processed the claim, which was created at \
                           2026-11-21T04:00:00Z; check that Hive runs";
        let unassigned = "clusterclaim/old: a running, unclaimed cluster has been available since 2026-11-21T04:00:00Z, but Hive has not \
                          assigned it to the claim; check that Hive runs";
        let old = claim("old", LONG_AGO, true);
        for (case, claims, clusters, expected) in [
            (
                "Hive has not seen it",
                vec![claim("old", LONG_AGO, false)],
                vec![],
                vec![unprocessed],
            ),
            ("it is new", vec![claim("new", JUST_NOW, false)], vec![], vec![]),
            ("no cluster is free", vec![old.clone()], vec![], vec![]),
            (
                "a cluster runs",
                vec![old.clone()],
                vec![unclaimed("Running", LONG_AGO)],
                vec![unassigned],
            ),
            (
                "a cluster hibernates",
                vec![old.clone()],
                vec![unclaimed("Hibernating", LONG_AGO)],
                vec![],
            ),
            (
                "a cluster has just resumed",
                vec![old.clone()],
                vec![unclaimed("Running", JUST_NOW)],
                vec![],
            ),
            (
                "the cluster is for the older claim",
                vec![claim("young", "2026-11-21T04:30:00Z", true), old],
                vec![unclaimed("Running", LONG_AGO)],
                vec![unassigned],
            ),
        ] {
            let objects = Objects {
                pools: vec![pool_object("pool", &json!({}))],
                clusters,
                claims,
                ..Objects::default()
            };
            let snapshot = objects.snapshot();
            let uses = claim_uses(&snapshot, snapshot.pools.first().unwrap());
            let found = uses.iter().flatten().filter_map(super::ClaimUse::problem);
            let found: Vec<_> = found
                .map(|found| format!("{}: {}", found.object, found.message))
                .collect();
            assert_eq!(found, expected, "{case}");
        }
    }
}
