//! The `ClusterDeployment`s of a management cluster, and what those that were made for pools of one namespace hold.

use std::collections::{BTreeMap, BTreeSet};

use kcp_rules::api::hive::ClusterPoolReference;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::objects::{
    entry::Holder,
    metadata::{Conditions, Metadata},
};

/// Ours, on each cluster that was made with a lease: it keeps the object until the lease is given back.
pub const LEASE_FINALIZER: &str = "kubectl-kcp.dev/pool-lease";

/// A `ClusterDeployment`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireDeployment")]
pub struct ClusterDeployment {
    pub metadata: Metadata,
    /// The pool that it was made for.
    pub pool_reference: Option<ClusterPoolReference>,
    pub is_installed: bool,
    pub conditions: Conditions,
}

#[derive(Deserialize)]
struct WireDeployment {
    metadata: Metadata,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireSpec {
    cluster_pool_ref: Option<ClusterPoolReference>,
    installed: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    conditions: Conditions,
}

impl From<WireDeployment> for ClusterDeployment {
    fn from(wire: WireDeployment) -> Self {
        Self {
            metadata: wire.metadata,
            pool_reference: wire.spec.cluster_pool_ref,
            is_installed: wire.spec.installed,
            conditions: wire.status.conditions,
        }
    }
}

/// How far a cluster is. Deleted, it has its hosts until it has been taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Alive,
    /// Deleted, and somebody else's finalizer is still there.
    Deprovisioning,
    /// Deleted, and nothing but our finalizer keeps it.
    Over,
}

impl ClusterDeployment {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    pub fn life(&self) -> Life {
        if !self.metadata.is_deleting() {
            Life::Alive
        } else if self
            .metadata
            .finalizers
            .iter()
            .any(|name| name != LEASE_FINALIZER)
        {
            Life::Deprovisioning
        } else {
            Life::Over
        }
    }

    pub fn finalizers_of_others(&self) -> Vec<String> {
        let mut finalizers = self.metadata.finalizers.clone();
        finalizers.retain(|name| name != LEASE_FINALIZER);
        finalizers
    }

    /// Lets it go: a merge patch that the server refuses once the cluster has changed.
    pub fn without_lease_finalizer(&self) -> Value {
        json!({"metadata": {
            "resourceVersion": self.metadata.resource_version,
            "finalizers": self.finalizers_of_others(),
        }})
    }

    /// The name of the pool that it was made for.
    pub fn pool(&self) -> Option<&str> {
        Some(&self.pool_reference.as_ref()?.pool_name)
    }

    /// The claim that has it.
    pub fn claim(&self) -> Option<&str> {
        self.pool_reference.as_ref()?.claim()
    }

    /// The customization that it was made with.
    pub fn customization(&self) -> Option<&str> {
        self.pool_reference.as_ref()?.customization()
    }

    /// Whether it was made for this pool.
    pub fn is_of(&self, namespace: &str, pool: &str) -> bool {
        self.pool_reference
            .as_ref()
            .is_some_and(|reference| reference.namespace == namespace && reference.pool_name == pool)
    }
}

/// The clusters of all namespaces, seen from the namespace of a pool.
#[derive(Clone, Debug, Default)]
pub struct Deployments {
    /// The pool's.
    namespace: String,
    all: Vec<ClusterDeployment>,
}

impl Deployments {
    pub fn of(namespace: &str, all: Vec<ClusterDeployment>) -> Self {
        Self {
            namespace: namespace.to_owned(),
            all,
        }
    }

    /// All of them, whatever pool they were made for.
    pub fn iter(&self) -> impl Iterator<Item = &ClusterDeployment> {
        self.all.iter()
    }

    /// Those that were made for pools of the namespace.
    pub fn of_namespace(&self) -> impl Iterator<Item = &ClusterDeployment> {
        self.all.iter().filter(|cluster| {
            let reference = cluster.pool_reference.as_ref();
            reference.is_some_and(|reference| reference.namespace == self.namespace)
        })
    }

    /// Those that were made for the pool.
    pub fn of_pool<'d>(&'d self, pool: &str) -> impl Iterator<Item = &'d ClusterDeployment> {
        self.all
            .iter()
            .filter(move |cluster| cluster.is_of(&self.namespace, pool))
    }

    /// The holder's: of its name, and made for its pool.
    pub fn made_for<'d>(&'d self, holder: Holder<'_>) -> impl Iterator<Item = &'d ClusterDeployment> {
        self.of_pool(holder.pool)
            .filter(move |cluster| cluster.name() == holder.cluster_deployment)
    }

    /// What proves that a holder is not gone: a cluster of its name in the namespace of that name, where Hive and we
    /// put one, or of its name and its pool anywhere.
    pub fn proof_of_life(&self, holder: Holder<'_>) -> Option<&ClusterDeployment> {
        let name = holder.cluster_deployment;
        self.all.iter().find(|cluster| {
            cluster.name() == name
                && (cluster.metadata.namespace == name || cluster.is_of(&self.namespace, holder.pool))
        })
    }

    /// Whether there is a cluster of this name that was made for the pool.
    pub fn contains(&self, name: &str, pool: &str) -> bool {
        self.of_pool(pool).any(|cluster| cluster.name() == name)
    }

    /// By customization.
    pub fn by_customization(&self) -> References {
        let mut references = References::new();
        for cluster in &self.all {
            let made_for = cluster.pool_reference.as_ref();
            let (Some(made_for), Some(customization)) = (made_for, cluster.customization()) else {
                continue;
            };
            if made_for.namespace == self.namespace {
                references
                    .entry(customization.to_owned())
                    .or_default()
                    .insert(Deployment {
                        name: cluster.name().to_owned(),
                        pool: made_for.pool_name.clone(),
                    });
            }
        }
        references
    }
}

/// `ClusterDeployment`s by the customization that they reference.
pub type References = BTreeMap<String, BTreeSet<Deployment>>;

/// A `ClusterDeployment` that references a customization.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deployment {
    pub name: String,
    pub pool: String,
}

impl Deployment {
    pub fn is(&self, holder: Holder<'_>) -> bool {
        self.name == holder.cluster_deployment && self.pool == holder.pool
    }
}

/// Hive's labels of what was made for a pool.
const POOL_NAMESPACE: &str = "hive.openshift.io/clusterpool-namespace";
const POOL: &str = "hive.openshift.io/clusterpool-name";

/// A copy that bears our label. Hive's own bear none, and go with their namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Copy {
    pub metadata: Metadata,
}

impl Copy {
    /// The namespace of the pool whose customization it is.
    pub fn pool_namespace(&self) -> Option<&str> {
        self.label(POOL_NAMESPACE)
    }

    pub fn pool(&self) -> Option<&str> {
        self.label(POOL)
    }

    /// The cluster that it was made for has the name of its namespace.
    pub fn cluster_deployment(&self) -> &str {
        &self.metadata.namespace
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.metadata.labels.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ClusterDeployment, Deployments, Life};
    use crate::{objects::entry::Holder, testing::objects::cluster};

    #[test]
    fn how_far_a_cluster_is() {
        const DELETED: &str = "2026-11-21T05:00:00Z";
        for (deleted, finalizers, expected) in [
            (None, json!([]), Life::Alive),
            (None, json!(["kubectl-kcp.dev/pool-lease"]), Life::Alive),
            (Some(DELETED), json!(["kubectl-kcp.dev/pool-lease"]), Life::Over),
            (Some(DELETED), json!([]), Life::Over),
            (
                Some(DELETED),
                json!(["hive.openshift.io/deprovision", "kubectl-kcp.dev/pool-lease"]),
                Life::Deprovisioning,
            ),
            (Some(DELETED), json!(["other"]), Life::Deprovisioning),
        ] {
            let mut object = cluster("a", "p", None);
            object["metadata"]["finalizers"] = finalizers;
            if let Some(time) = deleted {
                object["metadata"]["deletionTimestamp"] = time.into();
            }
            let read: ClusterDeployment = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(read.life(), expected, "{object}");
        }
    }

    #[test]
    fn what_proves_that_a_holder_lives() {
        let at = |namespace: &str, object: Value| {
            let mut object = object;
            object["metadata"]["namespace"] = namespace.into();
            object
        };
        let mut of_no_pool = cluster("us", "p", None);
        of_no_pool["spec"] = json!({});
        for (case, object, expected) in [
            ("in the namespace of its name", of_no_pool.clone(), true),
            ("elsewhere, of no pool", at("x", of_no_pool), false),
            ("elsewhere, of its pool", at("x", cluster("us", "p", None)), true),
            (
                "elsewhere, of another pool",
                at("x", cluster("us", "q", None)),
                false,
            ),
            ("of another name", cluster("them", "p", None), false),
        ] {
            let deployments = Deployments::of("d", vec![serde_json::from_value(object).unwrap()]);
            let holder = Holder {
                pool: "p",
                cluster_deployment: "us",
            };
            assert_eq!(deployments.proof_of_life(holder).is_some(), expected, "{case}");
        }
    }

    #[test]
    fn clusters_of_pools_of_other_namespaces_do_not_count() {
        let deployment = |name: &str, reference: Value| {
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"clusterPoolRef": reference}}))
                .unwrap()
        };
        let of = |namespace: &str, pool: &str, customization: Value| json!({"namespace": namespace, "poolName": pool, "clusterDeploymentCustomization": customization});
        let deployments = Deployments::of(
            "d",
            vec![
                deployment("a", of("d", "p", json!({"name": "one"}))),
                deployment("b", of("other", "p", json!({"name": "one"}))),
                deployment("c", of("d", "p", Value::Null)),
                deployment("e", of("d", "p", json!({"name": ""}))),
                deployment("f", Value::Null),
            ],
        );
        let made: Vec<_> = ["a", "b", "c", "e", "f"]
            .into_iter()
            .filter(|name| deployments.contains(name, "p"))
            .collect();
        assert_eq!(made, ["a", "c", "e"]);
        assert!(!deployments.contains("a", "q"));
        let references = deployments.by_customization();
        assert_eq!(references.keys().collect::<Vec<_>>(), ["one"]);
        assert_eq!(
            references["one"]
                .iter()
                .map(|deployment| deployment.name.as_str())
                .collect::<Vec<_>>(),
            ["a"]
        );
    }
}
