//! Objects as an API server or a manifest has them, as far as a view is made of them.
//!
//! Owned, for they come in lists of hundreds and outlive the text; all that is not read is skipped.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, de::IgnoredAny};

use super::{Cluster, ClusterDeployment, Lease, Machine, Pool};
use crate::api::hive::{ClusterPoolReference, Inventory, PoolMembership};

/// An object; by default one of which only the metadata matters.
#[derive(Clone, Debug, Deserialize)]
pub struct Object<S = IgnoredAny, T = IgnoredAny> {
    /// What it is called, and whose it is.
    #[serde(default)]
    pub metadata: ObjectMetadata,
    spec: Option<S>,
    status: Option<T>,
}

/// `metadata`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMetadata {
    /// Empty in a manifest that leaves it to the server.
    pub name: String,
    /// Absent in a manifest that leaves it to the client.
    pub namespace: Option<String>,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    labels: Option<Labels>,
    owner_references: Option<Vec<Owner>>,
}

/// The labels that tell whose a Machine is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "cluster.x-k8s.io/cluster-name")]
    cluster: Option<String>,
    /// Its presence counts, not its value.
    #[serde(rename = "cluster.x-k8s.io/control-plane")]
    control_plane: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Deserialize)]
struct Owner {
    kind: String,
    name: String,
    #[serde(default)]
    controller: Option<bool>,
}

impl<S, T> Object<S, T> {
    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

/// A `Machine`, group `cluster.x-k8s.io`.
pub type MachineObject = Object<MachineSpec, MachineStatus>;

/// What is read of a Machine's spec.
#[derive(Clone, Debug, Deserialize)]
pub struct MachineSpec {
    version: Option<String>,
}

/// What is read of a Machine's status.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    node_ref: Option<IgnoredAny>,
}

impl MachineObject {
    /// Whether it is a Machine of the control plane `name` in the same namespace, which is of the Cluster `cluster`:
    /// its controller's, and where it has none, for it is yet to be adopted, the one that its labels tell.
    ///
    /// An owner counts by its name, as the control plane that a manifest describes has no uid yet.
    pub fn belongs_to(&self, name: Option<&str>, cluster: Option<&str>) -> bool {
        let mut owners = self.metadata.owner_references.iter().flatten();
        if let Some(owner) = owners.find(|owner| owner.controller == Some(true)) {
            return owner.kind == "KubeadmControlPlane" && Some(owner.name.as_str()) == name;
        }
        self.metadata.labels.as_ref().is_some_and(|labels| {
            labels.control_plane.is_some() && labels.cluster.is_some() && labels.cluster.as_deref() == cluster
        })
    }
}

impl From<MachineObject> for Machine {
    fn from(machine: MachineObject) -> Self {
        Self {
            deleting: machine.is_deleting(),
            version: machine.spec.and_then(|spec| spec.version),
            created: machine.metadata.creation_timestamp,
            has_node: machine.status.is_some_and(|status| status.node_ref.is_some()),
            name: machine.metadata.name,
        }
    }
}

/// A `Cluster`, group `cluster.x-k8s.io`.
pub type ClusterObject = Object<ClusterSpec>;

/// What is read of a Cluster's spec.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    paused: Option<bool>,
    control_plane_ref: Option<KindReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct KindReference {
    kind: Option<String>,
    name: Option<String>,
}

impl From<ClusterObject> for Cluster {
    fn from(cluster: ClusterObject) -> Self {
        let deleting = cluster.is_deleting();
        let (paused, reference) = cluster
            .spec
            .map_or((None, None), |spec| (spec.paused, spec.control_plane_ref));
        Self {
            name: cluster.metadata.name,
            paused: paused == Some(true),
            deleting,
            control_plane: reference
                .filter(|reference| reference.kind.as_deref() == Some("KubeadmControlPlane"))
                .and_then(|reference| reference.name),
        }
    }
}

/// A `ClusterPool`, group `hive.openshift.io`.
pub type PoolObject = Object<PoolSpec>;

/// What is read of a pool's spec.
#[derive(Clone, Debug, Deserialize)]
pub struct PoolSpec {
    inventory: Option<Inventory>,
}

impl From<PoolObject> for Pool {
    fn from(pool: PoolObject) -> Self {
        let inventory = pool.spec.as_ref().and_then(|spec| spec.inventory.as_ref());
        Self {
            deleting: pool.is_deleting(),
            inventory: inventory
                .into_iter()
                .flat_map(Inventory::names)
                .map(str::to_owned)
                .collect(),
            name: pool.metadata.name,
        }
    }
}

/// A `ClusterDeployment`, group `hive.openshift.io`.
pub type DeploymentObject = Object<PoolMembership>;

impl DeploymentObject {
    fn pool(&self) -> Option<&ClusterPoolReference> {
        self.spec.as_ref()?.cluster_pool_ref.as_ref()
    }

    /// Whether it was made for the pool, or with the customization, of this name and namespace.
    pub fn concerns(&self, namespace: &str, name: &str) -> bool {
        self.pool().is_some_and(|pool| {
            pool.namespace == namespace && (pool.pool_name == name || pool.customization() == Some(name))
        })
    }
}

impl From<DeploymentObject> for ClusterDeployment {
    fn from(deployment: DeploymentObject) -> Self {
        let deleting = deployment.is_deleting();
        let pool = deployment.spec.and_then(|spec| spec.cluster_pool_ref);
        let mut pool = pool.unwrap_or_default();
        Self {
            namespace: deployment.metadata.namespace.unwrap_or_default(),
            name: deployment.metadata.name,
            claim: pool.claim_name.take().filter(|claim| !claim.is_empty()),
            customization: pool
                .cluster_deployment_customization
                .take_if(|customization| customization.is_set())
                .map(|customization| customization.name),
            pool: pool.pool_name,
            deleting,
        }
    }
}

/// A `Lease`, group `coordination.k8s.io`.
pub type LeaseObject = Object<LeaseSpec>;

/// What is read of a Lease's spec.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseSpec {
    holder_identity: Option<String>,
    renew_time: Option<Timestamp>,
    lease_duration_seconds: Option<i64>,
}

impl LeaseObject {
    /// The lease, where anybody holds it.
    pub fn held(self) -> Option<Lease> {
        let spec = self.spec?;
        let duration = spec.lease_duration_seconds.map(SignedDuration::from_secs);
        Some(Lease {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty())?,
            expires: spec
                .renew_time
                .zip(duration)
                .and_then(|(at, lasts)| at.checked_add(lasts).ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::{DeploymentObject, MachineObject, PoolObject};
    use crate::view::{ClusterDeployment, Machine, Pool};

    fn machine(metadata: &Value) -> MachineObject {
        from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn a_machine_is_its_controllers_and_else_its_labels() {
        let labels = json!({"cluster.x-k8s.io/cluster-name": "edge", "cluster.x-k8s.io/control-plane": ""});
        let worker = json!({"cluster.x-k8s.io/cluster-name": "edge"});
        let owned = |kind: &str, name: &str, controller: Value| json!([{"kind": kind, "name": name, "controller": controller}]);
        for (case, metadata, belongs) in [
            ("labels alone", json!({"labels": labels}), true),
            ("a worker's labels", json!({"labels": worker}), false),
            ("no labels", json!({}), false),
            (
                "its controller",
                json!({"ownerReferences": owned("KubeadmControlPlane", "cp", json!(true))}),
                true,
            ),
            (
                "another controller, in spite of its labels",
                json!({"labels": labels, "ownerReferences": owned("KubeadmControlPlane", "old", json!(true))}),
                false,
            ),
            (
                "a controller of another kind and the same name",
                json!({"labels": labels, "ownerReferences": owned("MachineSet", "cp", json!(true))}),
                false,
            ),
            (
                "an owner that is no controller",
                json!({"labels": labels, "ownerReferences": owned("Cluster", "edge", Value::Null)}),
                true,
            ),
        ] {
            assert_eq!(
                machine(&metadata).belongs_to(Some("cp"), Some("edge")),
                belongs,
                "{case}"
            );
        }
        assert!(!machine(&json!({"labels": {"cluster.x-k8s.io/control-plane": ""}})).belongs_to(None, None));
    }

    #[test]
    fn a_machine_without_spec_or_status_is_read() {
        let read = Machine::from(machine(
            &json!({"name": "m", "deletionTimestamp": "2026-05-01T00:00:00Z"}),
        ));
        let expected = Machine {
            name: "m".to_owned(),
            deleting: true,
            ..Machine::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn a_node_that_is_null_is_none() {
        for (node, joined) in [(Value::Null, false), (json!({"name": "n"}), true)] {
            let object: MachineObject = from_value(json!({"status": {"nodeRef": node}})).unwrap();
            assert_eq!(Machine::from(object).has_node, joined);
        }
    }

    #[test]
    fn a_deployment_concerns_its_pool_and_its_customization() {
        let deployment = |reference: Value| -> DeploymentObject {
            from_value(json!({"metadata": {"name": "c"}, "spec": {"clusterPoolRef": reference}})).unwrap()
        };
        let made = deployment(json!({
            "namespace": "x", "poolName": "pool", "clusterDeploymentCustomization": {"name": "foo"}
        }));
        for (namespace, name, concerns) in [
            ("x", "pool", true),
            ("x", "foo", true),
            ("x", "c", false),
            ("y", "pool", false),
        ] {
            assert_eq!(made.concerns(namespace, name), concerns, "{namespace}/{name}");
        }
        assert!(!deployment(Value::Null).concerns("", ""));
        let read = ClusterDeployment::from(deployment(json!({
            "namespace": "x", "poolName": "pool", "claimName": "", "clusterDeploymentCustomization": {"name": ""}
        })));
        assert_eq!((read.claim, read.customization), (None, None));
    }

    /// The design document puts the list into an object.
    #[test]
    fn an_inventory_is_read_in_either_shape() {
        for inventory in [
            json!([{"name": "foo"}, {"name": ""}]),
            json!({"ClusterDeploymentCustomizations": [{"name": "foo"}]}),
        ] {
            let object: PoolObject = from_value(json!({"spec": {"inventory": inventory}})).unwrap();
            assert_eq!(Pool::from(object).inventory, ["foo"]);
        }
    }
}
