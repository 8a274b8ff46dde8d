//! ClusterDeployments, and which customizations they use.

use std::collections::{BTreeMap, BTreeSet};

use kcp_rules::api::hive::ClusterPoolReference;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::objects::{
    entry::Holder,
    metadata::{Conditions, Metadata},
};

/// Our finalizer on each ClusterDeployment that was created with a lease: it stays until the lease is released.
pub const LEASE_FINALIZER: &str = "kubectl-kcp.dev/pool-lease";

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireDeployment")]
pub struct ClusterDeployment {
    pub metadata: Metadata,
    /// The pool that it was created for.
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

/// How far the deletion of a cluster is. A deleted cluster uses its hosts until it is deprovisioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Alive,
    /// Deleted, and a finalizer of another controller remains.
    Deprovisioning,
    /// Deleted, and at most our finalizer remains.
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

    /// A merge patch that removes our finalizer. The server refuses it if the cluster has changed.
    pub fn without_lease_finalizer(&self) -> Value {
        json!({"metadata": {
            "resourceVersion": self.metadata.resource_version,
            "finalizers": self.finalizers_of_others(),
        }})
    }

    /// The name of the pool that it was created for.
    pub fn pool(&self) -> Option<&str> {
        Some(&self.pool_reference.as_ref()?.pool_name)
    }

    /// The claim that it was given to.
    pub fn claim(&self) -> Option<&str> {
        self.pool_reference.as_ref()?.claim()
    }

    /// The customization that it uses.
    pub fn customization(&self) -> Option<&str> {
        self.pool_reference.as_ref()?.customization()
    }

    pub fn is_of(&self, namespace: &str, pool: &str) -> bool {
        self.pool_reference
            .as_ref()
            .is_some_and(|reference| reference.namespace == namespace && reference.pool_name == pool)
    }
}

/// The ClusterDeployments of all namespaces, as seen from a pool's namespace.
#[derive(Clone, Debug, Default)]
pub struct Deployments {
    /// The pool's namespace.
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

    /// All of them, whatever their pool.
    pub fn iter(&self) -> impl Iterator<Item = &ClusterDeployment> {
        self.all.iter()
    }

    /// Those of pools in the namespace.
    pub fn of_namespace(&self) -> impl Iterator<Item = &ClusterDeployment> {
        self.all.iter().filter(|cluster| {
            let reference = cluster.pool_reference.as_ref();
            reference.is_some_and(|reference| reference.namespace == self.namespace)
        })
    }

    /// Those of one pool of the namespace.
    pub fn of_pool<'d>(&'d self, pool: &str) -> impl Iterator<Item = &'d ClusterDeployment> {
        self.all
            .iter()
            .filter(move |cluster| cluster.is_of(&self.namespace, pool))
    }

    /// Those with the holder's name and pool.
    pub fn of_holder<'d>(&'d self, holder: Holder<'_>) -> impl Iterator<Item = &'d ClusterDeployment> {
        self.of_pool(holder.pool)
            .filter(move |cluster| cluster.name() == holder.cluster_deployment)
    }

    /// A ClusterDeployment that proves that a holder exists: it has the holder's name and is in the namespace of that
    /// name, where Hive and this crate create it, or it has the holder's name and pool, in any namespace.
    pub fn proof_of_existence(&self, holder: Holder<'_>) -> Option<&ClusterDeployment> {
        let name = holder.cluster_deployment;
        self.all.iter().find(|cluster| {
            cluster.name() == name
                && (cluster.metadata.namespace == name || cluster.is_of(&self.namespace, holder.pool))
        })
    }

    /// Whether the pool has a ClusterDeployment of this name.
    pub fn contains(&self, name: &str, pool: &str) -> bool {
        self.of_pool(pool).any(|cluster| cluster.name() == name)
    }

    pub fn by_customization(&self) -> References {
        let mut references = References::new();
        for cluster in &self.all {
            let of_holder = cluster.pool_reference.as_ref();
            let (Some(of_holder), Some(customization)) = (of_holder, cluster.customization()) else {
                continue;
            };
            if of_holder.namespace == self.namespace {
                references
                    .entry(customization.to_owned())
                    .or_default()
                    .insert(Deployment {
                        name: cluster.name().to_owned(),
                        pool: of_holder.pool_name.clone(),
                    });
            }
        }
        references
    }
}

/// ClusterDeployments by the customization that they use.
pub type References = BTreeMap<String, BTreeSet<Deployment>>;

/// The name and the pool of a ClusterDeployment that uses a customization.
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

/// Hive's labels on the objects of a pool's clusters.
const POOL_NAMESPACE: &str = "hive.openshift.io/clusterpool-namespace";
const POOL: &str = "hive.openshift.io/clusterpool-name";

/// The copy of a customization in its cluster's namespace, with our label. Hive's own copies have no such label and
/// are deleted with their namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Copy {
    pub metadata: Metadata,
}

impl Copy {
    /// The namespace of the original's pool.
    pub fn pool_namespace(&self) -> Option<&str> {
        self.label(POOL_NAMESPACE)
    }

    pub fn pool(&self) -> Option<&str> {
        self.label(POOL)
    }

    /// The ClusterDeployment has the name of its namespace.
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
            assert_eq!(
                deployments.proof_of_existence(holder).is_some(),
                expected,
                "{case}"
            );
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
