//! Limits the clusters that several clients create for a pool at the same time. Each client first adds an intent (the name
//! of its cluster) to an annotation of the pool. The write requires the pool's resourceVersion, so the client has seen the
//! intents of all earlier clients, and the pool never exceeds its limits. An intent counts until its cluster exists, and for
//! at most ten minutes.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kcp_api::{ClusterPool, metadata::Object as _, names::annotation::CLUSTERS_IN_CREATION};
use kcp_client::{Error, Written};
use serde_json::{Value, json};

use crate::{
    creation::make::CreationObstacle,
    inventory::capacity::Capacity,
    objects::{Holder, cluster_deployment::ClusterDeployments},
    store::{LeaseStore as _, Store},
};

/// The maximum number of intents in a pool's annotation.
const MAX_INTENTS: usize = 64;

/// How long an intent counts against the pool's limits if its cluster does not appear.
const INTENT_LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// The maximum number of attempts to add an intent to a pool that other clients change at the same time.
const MAX_ATTEMPTS: u32 = 20;

/// The base of the pause before the pool is read again. Each pause is this much longer than the previous
/// pause.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The clusters that are being created for a pool, each with the time until which it counts. An annotation that cannot be
/// parsed counts as empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Intents(BTreeMap<String, Timestamp>);

impl Intents {
    /// Reads the pool's intents. Leaves out intents that have expired and intents whose clusters exist.
    fn new(pool: &ClusterPool, deployments: &ClusterDeployments, now: Timestamp) -> Self {
        let text = pool.annotation(CLUSTERS_IN_CREATION).unwrap_or_default();
        let mut intents: BTreeMap<String, Timestamp> = serde_json::from_str(text).unwrap_or_default();
        intents.retain(|name, until| {
            *until > now
                && !deployments
                    .in_pool(pool.name())
                    .any(|cluster| cluster.name() == name)
        });
        Self(intents)
    }

    /// Adds a cluster to the intents. If the pool has reached a limit, adds nothing and returns the limit.
    fn with(
        mut self,
        pool: &ClusterPool,
        deployments: &ClusterDeployments,
        name: &str,
        now: Timestamp,
    ) -> Result<Value, CreationObstacle> {
        self.0.remove(name);
        let mut capacity = Capacity::count(pool, deployments.in_pool(pool.name()));
        for _ in &self.0 {
            capacity = capacity.with_one_more();
        }
        let full = |full| CreationObstacle::PoolFull {
            pool: pool.name().to_owned(),
            full,
        };
        capacity.remaining().map_err(full)?;
        if self.0.len() >= MAX_INTENTS {
            return Err(CreationObstacle::TooManyAtOnce {
                pool: pool.name().to_owned(),
            });
        }
        let until = now.checked_add(INTENT_LIFETIME).unwrap_or(Timestamp::MAX);
        self.0.insert(name.to_owned(), until);
        Ok(self.patch(pool))
    }

    fn patch(&self, pool: &ClusterPool) -> Value {
        let text = (!self.0.is_empty()).then(|| json!(self.0).to_string());
        json!({"metadata": {
            "resourceVersion": pool.resource_version(),
            "annotations": {CLUSTERS_IN_CREATION: text},
        }})
    }
}

/// Adds the holder's intent to the pool's annotation, or returns the limit that the pool has reached. A pool without limits
/// gets no annotation.
pub async fn add_intent(
    store: &Store<'_>,
    holder: Holder<'_>,
) -> Result<Result<(), CreationObstacle>, Error> {
    for attempt in 1..=MAX_ATTEMPTS {
        let pool = store.read_pool(holder.pool).await?;
        if pool.spec.max_size.is_none() && pool.spec.max_concurrent.is_none() {
            return Ok(Ok(()));
        }
        let deployments = store.list_cluster_deployments().await?;
        if deployments.for_holder(holder).next().is_some() {
            return Ok(Ok(()));
        }
        let now = store.now().latest;
        let intents = Intents::new(&pool, &deployments, now);
        let patch = match intents.with(&pool, &deployments, holder.cluster_deployment, now) {
            Ok(patch) => patch,
            Err(full) => return Ok(Err(full)),
        };
        match store.write_pool(holder.pool, &patch).await? {
            Written::Stored => return Ok(Ok(())),
            // If the write was stored but its response was lost, the next read shows this client's own intent, and it is
            // harmless to write the intent again.
            Written::Changed | Written::Unknown(_) => store.pause(RETRY_PAUSE * attempt).await,
        }
    }
    Err(Error::Contended {
        goal: format!("reserve a place for a new cluster in pool {}", holder.pool),
        attempts: usize::try_from(MAX_ATTEMPTS).unwrap_or(usize::MAX),
    })
}

/// Removes the holder's intent from the pool's annotation. One attempt is enough, because the intent expires after ten
/// minutes.
pub async fn remove_intent(store: &Store<'_>, holder: Holder<'_>) {
    let Ok(pool) = store.read_pool(holder.pool).await else {
        return;
    };
    let text = pool.annotation(CLUSTERS_IN_CREATION).unwrap_or_default();
    let intents: BTreeMap<String, Timestamp> = serde_json::from_str(text).unwrap_or_default();
    let mut intents = Intents(intents);
    if intents.0.remove(holder.cluster_deployment).is_some() {
        drop(store.write_pool(holder.pool, &intents.patch(&pool)).await);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Intents;
    use crate::{
        objects::cluster_deployment::ClusterDeployments,
        testing::objects::{NOW, cluster, pool_object, read},
    };

    /// The intents after an intent for `us` was added, or why it was not added.
    fn after(intents: &str, clusters: &[Value], spec: &Value) -> String {
        let mut object = pool_object("pool", spec);
        object["metadata"]["annotations"] = json!({"kubectl-kcp.dev/creating": intents});
        let (pool, now) = (read(&object), NOW.parse().unwrap());
        let deployments = ClusterDeployments::new("d", clusters.iter().map(read).collect());
        let intent = Intents::new(&pool, &deployments, now).with(&pool, &deployments, "us", now);
        match intent {
            Ok(patch) => {
                assert_eq!(patch["metadata"]["resourceVersion"], "1");
                patch["metadata"]["annotations"]["kubectl-kcp.dev/creating"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            }
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn a_pool_gets_no_more_clusters_than_it_may_have() {
        const US: &str = r#"{"us":"2026-11-21T05:10:00Z"}"#;
        const BOTH: &str = r#"{"them":"2026-11-21T05:09:00Z","us":"2026-11-21T05:10:00Z"}"#;
        const THEM: &str = r#"{"them":"2026-11-21T05:09:00Z"}"#;
        let them = [cluster("them", "pool", None)];
        let one = json!({"maxSize": 1});
        let two = json!({"maxSize": 2});
        let full = "pool pool cannot have another cluster now: maxSize is 1, and the pool has 1 cluster";
        for (case, intents, clusters, spec, expected) in [
            ("none", "", &[][..], &one, US),
            ("not an annotation of ours", "[1]", &[], &one, US),
            ("another's", THEM, &[], &one, full),
            ("another's, with room", THEM, &[], &two, BOTH),
            ("another's cluster is in the list", THEM, &them, &two, US),
            (
                "another's, too old",
                r#"{"them":"2026-11-21T05:00:00Z"}"#,
                &[],
                &one,
                US,
            ),
            ("our own", r#"{"us":"2026-11-21T05:01:00Z"}"#, &[], &one, US),
            ("full", "", &them, &one, full),
        ] {
            assert_eq!(after(intents, clusters, spec), expected, "{case}");
        }
    }

    #[test]
    fn intents_are_bounded() {
        let many: serde_json::Map<_, _> = (0..64)
            .map(|number| (format!("c-{number}"), "2026-11-21T05:09:00Z".into()))
            .collect();
        let why = "64 clusters of pool pool are already being created, which is the maximum; try again later";
        assert_eq!(
            after(&Value::Object(many).to_string(), &[], &json!({"maxSize": 99})),
            why
        );
    }
}
