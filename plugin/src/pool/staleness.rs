//! Which unclaimed clusters a pool's spec has left behind: Hive replaces them one at a time. Pure.

use kcp_rules::pool_version::{ANNOTATION, pool_version};

use super::{cluster_pool::Pool, deployments::ClusterDeployment};

/// Why an unclaimed cluster is stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    /// It was made from another version of the pool.
    Version {
        /// None where its mark is missing, which Hive takes for another version.
        made_from: Option<String>,
    },
    /// The pool no longer names its customization.
    DroppedFromInventory { customization: String },
}

/// What makes the pool's clusters stale.
#[derive(Clone, Debug)]
pub(super) struct Freshness<'p> {
    /// None where it cannot be told: of some platforms we do not know how Hive hashes them.
    version: Option<String>,
    inventory: Vec<&'p str>,
}

impl<'p> Freshness<'p> {
    pub(super) fn of(pool: &'p Pool) -> Self {
        Self {
            version: pool_version(&pool.spec),
            inventory: pool.inventory(),
        }
    }

    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Why the cluster, one that was made for the pool, is stale; none for one that is claimed or being deleted, which
    /// Hive leaves as it is.
    pub(super) fn stale(&self, cluster: &ClusterDeployment) -> Option<Stale> {
        if cluster.claim().is_some() || cluster.metadata.is_deleting() {
            return None;
        }
        let made_from = cluster.metadata.annotations.get(ANNOTATION);
        if made_from.is_none() || self.version.as_ref().is_some_and(|now| made_from != Some(now)) {
            return Some(Stale::Version {
                made_from: made_from.cloned(),
            });
        }
        let customization = cluster.customization()?;
        let is_named = self.inventory.contains(&customization);
        (!is_named).then(|| Stale::DroppedFromInventory {
            customization: customization.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Freshness, Stale};
    use crate::pool::{cluster_pool::tests::pool, deployments::tests::cluster};

    /// Of the pool below: Hive's own tests hold this very value.
    const VERSION: &str = "a6dcbd6776a3c92b";

    fn spec() -> Value {
        json!({
            "platform": {"aws": {"credentialsSecretRef": {"name": "aws-creds"}, "region": "region"}},
            "baseDomain": "test-domain", "imageSetRef": {"name": "test-image-set"},
            "inventory": [{"name": "one"}],
        })
    }

    #[test]
    fn which_clusters_are_stale() {
        let made_from = |version: Option<&str>| {
            let mut cluster = cluster("a", "pool", Some("one"));
            if let Some(version) = version {
                cluster["metadata"]["annotations"] =
                    json!({"hive.openshift.io/cluster-pool-spec-hash": version});
            }
            cluster
        };
        let fresh = made_from(Some(VERSION));
        let mut dropped = fresh.clone();
        dropped["spec"]["clusterPoolRef"]["clusterDeploymentCustomization"]["name"] = "two".into();
        let mut claimed = made_from(None);
        claimed["spec"]["clusterPoolRef"]["claimName"] = "c".into();
        let mut deleting = made_from(None);
        deleting["metadata"]["deletionTimestamp"] = "2026-11-21T05:00:00Z".into();
        let other_version = |made_from: Option<&str>| {
            Some(Stale::Version {
                made_from: made_from.map(str::to_owned),
            })
        };
        let pool = pool(&spec());
        let freshness = Freshness::of(&pool);
        assert_eq!(freshness.version(), Some(VERSION));
        for (case, cluster, expected) in [
            ("fresh", fresh, None),
            ("unmarked", made_from(None), other_version(None)),
            (
                "of another version",
                made_from(Some("0")),
                other_version(Some("0")),
            ),
            (
                "its customization is dropped",
                dropped,
                Some(Stale::DroppedFromInventory {
                    customization: "two".to_owned(),
                }),
            ),
            ("claimed", claimed, None),
            ("being deleted", deleting, None),
        ] {
            let cluster = serde_json::from_value(cluster).unwrap();
            assert_eq!(freshness.stale(&cluster), expected, "{case}");
        }
    }

    #[test]
    fn a_version_that_cannot_be_told_makes_no_marked_cluster_stale() {
        let pool = pool(&json!({"platform": {"none": {}}}));
        let unmarked = cluster("a", "pool", None);
        let mut marked = unmarked.clone();
        marked["metadata"]["annotations"] = json!({"hive.openshift.io/cluster-pool-spec-hash": "0"});
        assert_eq!(Freshness::of(&pool).version(), None);
        for (cluster, expected) in [
            (marked, None),
            (unmarked, Some(Stale::Version { made_from: None })),
        ] {
            let cluster = serde_json::from_value(cluster).unwrap();
            assert_eq!(Freshness::of(&pool).stale(&cluster), expected);
        }
    }
}
