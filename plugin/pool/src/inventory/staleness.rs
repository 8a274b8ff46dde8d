//! Finds unclaimed clusters that are stale: they were created before the pool's spec changed, and Hive replaces them one at
//! a time. No I/O.

use kcp_api::names::annotation;
use kcp_rules::pool_version::pool_version;

use kcp_api::{ClusterDeployment, ClusterPool, metadata::Object as _};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// The cluster was created from another version of the pool's spec.
    Version {
        /// The version from which the cluster was created; `None` if the cluster does not name a version, which Hive
        /// treats as a different version.
        made_from: Option<String>,
    },
    /// The pool's inventory no longer lists the cluster's customization.
    DroppedFromInventory { customization: String },
}

/// A pool's current version and inventory, with which its clusters are compared.
#[derive(Clone, Debug)]
pub struct PoolVersion<'p> {
    /// The pool's version; `None` if this program cannot compute it, because the platform has a field that only a newer
    /// Hive knows.
    version: Option<String>,
    inventory: Vec<&'p str>,
    is_run_by_hive: bool,
}

impl<'p> PoolVersion<'p> {
    pub fn new(pool: &'p ClusterPool, is_run_by_hive: bool) -> Self {
        Self {
            version: pool_version(&pool.spec),
            inventory: pool.inventory(),
            is_run_by_hive,
        }
    }

    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Why a cluster of the pool is stale; `None` if it is up to date, claimed, or being deleted.
    pub fn staleness(&self, cluster: &ClusterDeployment) -> Option<Staleness> {
        if !is_replaceable(cluster) {
            return None;
        }
        let made_from = cluster.annotation(annotation::CLUSTER_POOL_SPEC_HASH);
        let is_of_another = match (&self.version, made_from) {
            (Some(now), made_from) => made_from != Some(now.as_str()),
            // Hive annotates each cluster with a version, so a cluster without one is stale. Without Hive, only this
            // program annotates clusters, but it cannot compute this version.
            (None, None) => self.is_run_by_hive,
            (None, Some(_)) => false,
        };
        if is_of_another {
            return Some(Staleness::Version {
                made_from: made_from.map(str::to_owned),
            });
        }
        let customization = cluster.customization()?;
        let is_named = self.inventory.contains(&customization);
        (!is_named).then(|| Staleness::DroppedFromInventory {
            customization: customization.to_owned(),
        })
    }

    /// Whether it is unknown if the cluster was created from the pool's current version.
    pub fn is_cluster_version_unknown(&self, cluster: &ClusterDeployment) -> bool {
        self.version.is_none() && is_replaceable(cluster) && self.staleness(cluster).is_none()
    }
}

/// Whether Hive would replace the cluster if it were stale: it is neither claimed nor being deleted.
pub fn is_replaceable(cluster: &ClusterDeployment) -> bool {
    cluster.claim().is_none() && !cluster.is_deleting()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{PoolVersion, Staleness};
    use crate::testing::objects::{cluster, pool};

    /// The version of the pool below. Hive's own tests contain the same value.
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
            Some(Staleness::Version {
                made_from: made_from.map(str::to_owned),
            })
        };
        let pool = pool(&spec());
        let freshness = PoolVersion::new(&pool, false);
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
                Some(Staleness::DroppedFromInventory {
                    customization: "two".to_owned(),
                }),
            ),
            ("claimed", claimed, None),
            ("being deleted", deleting, None),
        ] {
            let cluster = serde_json::from_value(cluster).unwrap();
            assert_eq!(freshness.staleness(&cluster), expected, "{case}");
        }
    }

    /// Hive annotates every cluster with a version. Other clients cannot write a version that they do not
    /// know.
    #[test]
    fn if_the_version_is_unknown_only_hive_makes_unmarked_clusters_stale() {
        let by_hand = pool(&json!({"platform": {"vsphere": {"new": 1}}, "inventory": [{"name": "one"}]}));
        let unmarked = cluster("a", "pool", Some("one"));
        let mut marked = unmarked.clone();
        marked["metadata"]["annotations"] = json!({"hive.openshift.io/cluster-pool-spec-hash": "0"});
        let mut claimed = unmarked.clone();
        claimed["spec"]["clusterPoolRef"]["claimName"] = "c".into();
        let dropped = cluster("a", "pool", Some("two"));
        let no_version = || Some(Staleness::Version { made_from: None });
        let is_dropped = || {
            Some(Staleness::DroppedFromInventory {
                customization: "two".to_owned(),
            })
        };
        for (case, is_run_by_hive, cluster, stale, is_unknown) in [
            ("marked, by hand", false, &marked, None, true),
            ("unmarked, by hand", false, &unmarked, None, true),
            ("claimed, by hand", false, &claimed, None, false),
            ("dropped, by hand", false, &dropped, is_dropped(), false),
            ("marked, by Hive", true, &marked, None, true),
            ("unmarked, by Hive", true, &unmarked, no_version(), false),
        ] {
            let freshness = PoolVersion::new(&by_hand, is_run_by_hive);
            let cluster = serde_json::from_value(cluster.clone()).unwrap();
            assert_eq!(freshness.version(), None);
            assert_eq!(freshness.staleness(&cluster), stale, "{case}");
            assert_eq!(
                freshness.is_cluster_version_unknown(&cluster),
                is_unknown,
                "{case}"
            );
        }
    }
}
