//! The Kubernetes objects from which a view is built, decoded from an API server or a manifest.
//!
//! These types own their data, because objects come in long lists and outlive the JSON text. Fields that rules do not read are
//! skipped.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::{Value, value::RawValue};

use super::{Cluster, ClusterDeployment, Customization, Machine, Pool};
use crate::api::hive::{
    ClusterDeploymentCustomizationStatus, ClusterPoolReference, Inventory, PoolMembership,
};
use kcp_api::Object as _;

/// A Kubernetes object. By default, only the metadata is decoded.
#[derive(Clone, Debug, Deserialize)]
pub struct Object<S = IgnoredAny, T = IgnoredAny> {
    #[serde(default)]
    pub metadata: ObjectMetadata,
    spec: Option<S>,
    status: Option<T>,
}

/// The metadata of an [`Object`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMetadata {
    /// The name of the object; empty in a manifest with `generateName`.
    pub name: String,
    uid: Option<String>,
    /// The namespace of the object; `None` in a manifest without a namespace.
    pub namespace: Option<String>,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    labels: Option<Labels>,
    annotations: Option<Annotations>,
    owner_references: Option<Vec<Owner>>,
    finalizers: Option<Vec<String>>,
}

impl ObjectMetadata {
    /// Whether `kubectl kcp pool cordon` excludes the object from new leases.
    pub fn is_cordoned(&self) -> bool {
        self.annotations
            .as_ref()
            .is_some_and(|annotations| annotations.cordoned.is_some())
    }
}

/// The annotations that `kubectl kcp` writes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "kubectl-kcp.dev/cordoned")]
    cordoned: Option<IgnoredAny>,
}

/// The labels that assign a Machine to a control plane.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "cluster.x-k8s.io/cluster-name")]
    cluster: Option<String>,
    /// The label of control plane Machines. Cluster API checks only its presence.
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
    /// Whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

/// A `Machine`, group `cluster.x-k8s.io`.
pub type MachineObject = Object<MachineSpec, MachineStatus>;

/// The `spec` of a Machine, reduced to the fields of the view.
#[derive(Clone, Debug, Deserialize)]
pub struct MachineSpec {
    version: Option<String>,
    bootstrap: Option<Bootstrap>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bootstrap {
    data_secret_name: Option<IgnoredAny>,
}

/// The `status` of a Machine, reduced to the fields of the view.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    node_ref: Option<IgnoredAny>,
}

impl MachineObject {
    fn controller(&self) -> Option<&Owner> {
        let mut owners = self.metadata.owner_references.iter().flatten();
        owners.find(|owner| owner.controller == Some(true))
    }

    /// Whether the Machine belongs to the control plane `name` of the Cluster `cluster` in the same
    /// namespace. The controller reference decides. If the Machine has not been adopted yet, its labels
    /// decide.
    ///
    /// Owners are compared by name, because a control plane in a manifest has no uid yet.
    pub fn belongs_to(&self, name: Option<&str>, cluster: Option<&str>) -> bool {
        if let Some(owner) = self.controller() {
            return owner.kind == "KubeadmControlPlane" && Some(owner.name.as_str()) == name;
        }
        self.metadata.labels.as_ref().is_some_and(|labels| {
            labels.control_plane.is_some() && labels.cluster.is_some() && labels.cluster.as_deref() == cluster
        })
    }
}

impl From<MachineObject> for Machine {
    fn from(machine: MachineObject) -> Self {
        let spec = machine.spec.as_ref();
        Self {
            is_deleting: machine.is_deleting(),
            has_controller: machine.controller().is_some(),
            awaits_bootstrap_data: spec
                .and_then(|spec| spec.bootstrap.as_ref())
                .is_some_and(|bootstrap| bootstrap.data_secret_name.is_none()),
            version: spec.and_then(|spec| spec.version.clone()),
            created: machine.metadata.creation_timestamp,
            has_node: machine.status.is_some_and(|status| status.node_ref.is_some()),
            name: machine.metadata.name,
        }
    }
}

/// A `KubeadmConfig`, group `bootstrap.cluster.x-k8s.io`.
pub type KubeadmConfigObject = Object<KubeadmConfigSpec>;

/// The JSON text of the `spec` of a `KubeadmConfig`, which has the bootstrap data of a Machine.
#[derive(Clone, Deserialize)]
pub struct KubeadmConfigSpec(Box<RawValue>);

/// Omits the text, because it may be secret.
impl fmt::Debug for KubeadmConfigSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KubeadmConfigSpec")
    }
}

impl KubeadmConfigObject {
    /// The JSON text of the `spec`; `None` if the object has none.
    pub fn spec_text(&self) -> Option<&RawValue> {
        Some(&self.spec.as_ref()?.0)
    }
}

/// A `Cluster`, group `cluster.x-k8s.io`.
pub type ClusterObject = Object<ClusterSpec>;

/// The `spec` of a Cluster, reduced to the fields of the view.
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
            uid: cluster.metadata.uid,
            paused: paused == Some(true),
            is_deleting: deleting,
            control_plane: reference
                .filter(|reference| reference.kind.as_deref() == Some("KubeadmControlPlane"))
                .and_then(|reference| reference.name),
        }
    }
}

impl From<&kcp_api::Cluster> for Cluster {
    fn from(cluster: &kcp_api::Cluster) -> Self {
        Self {
            name: cluster.name().to_owned(),
            uid: cluster.metadata.uid.clone(),
            paused: cluster.spec.paused,
            is_deleting: cluster.is_deleting(),
            control_plane: cluster.control_plane().map(str::to_owned),
        }
    }
}

/// A `ClusterPool`, group `hive.openshift.io`.
pub type PoolObject = Object<PoolSpec>;

/// The `spec` of a pool, reduced to the fields of the view.
#[derive(Clone, Debug, Deserialize)]
pub struct PoolSpec {
    inventory: Option<Inventory>,
}

impl From<PoolObject> for Pool {
    fn from(pool: PoolObject) -> Self {
        let inventory = pool.spec.as_ref().and_then(|spec| spec.inventory.as_ref());
        Self {
            is_deleting: pool.is_deleting(),
            inventory: inventory
                .into_iter()
                .flat_map(Inventory::names)
                .map(str::to_owned)
                .collect(),
            name: pool.metadata.name,
        }
    }
}

/// The finalizer of `kubectl kcp pool` on a `ClusterDeployment`.
const LEASE_FINALIZER: &str = "kubectl-kcp.dev/pool-lease";

/// A `ClusterDeployment`, group `hive.openshift.io`.
pub type ClusterDeploymentObject = Object<PoolMembership>;

impl ClusterDeploymentObject {
    fn pool(&self) -> Option<&ClusterPoolReference> {
        self.spec.as_ref()?.cluster_pool_ref.as_ref()
    }

    /// The name of the customization that the cluster uses; `None` if it uses none. A deleted cluster on which only the
    /// finalizer of `kubectl kcp pool` remains uses none.
    fn customization(&self) -> Option<&str> {
        let mut finalizers = self.metadata.finalizers.iter().flatten();
        let is_gone = self.is_deleting() && finalizers.all(|finalizer| finalizer == LEASE_FINALIZER);
        self.pool()?.customization().filter(|_| !is_gone)
    }

    /// The namespace of the cluster's pool and customization; `None` if the cluster has no pool.
    pub fn pool_namespace(&self) -> Option<&str> {
        self.pool().map(|pool| pool.namespace.as_str())
    }

    /// Whether the cluster belongs to the pool, or uses the customization, with this namespace and name.
    pub fn refers_to(&self, namespace: &str, name: &str) -> bool {
        self.pool().is_some_and(|pool| {
            pool.namespace == namespace && (pool.pool_name == name || self.customization() == Some(name))
        })
    }
}

impl From<ClusterDeploymentObject> for ClusterDeployment {
    fn from(deployment: ClusterDeploymentObject) -> Self {
        let deleting = deployment.is_deleting();
        let customization = deployment.customization().map(str::to_owned);
        let pool = deployment.spec.and_then(|spec| spec.cluster_pool_ref);
        let mut pool = pool.unwrap_or_default();
        Self {
            namespace: deployment.metadata.namespace.unwrap_or_default(),
            name: deployment.metadata.name,
            claim: pool.claim_name.take().filter(|claim| !claim.is_empty()),
            customization,
            pool: pool.pool_name,
            is_deleting: deleting,
        }
    }
}

/// A `ClusterDeploymentCustomization`, group `hive.openshift.io`.
pub type CustomizationObject = Object<IgnoredAny, CustomizationStatus>;

/// The `status` of a customization; `None` if it cannot be decoded, as in the sample of the design document.
#[derive(Clone, Debug)]
pub struct CustomizationStatus(Option<ClusterDeploymentCustomizationStatus>);

impl<'de> Deserialize<'de> for CustomizationStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let status = Value::deserialize(deserializer)?;
        Ok(Self(serde_json::from_value(status).ok()))
    }
}

impl From<CustomizationObject> for Customization {
    fn from(mut customization: CustomizationObject) -> Self {
        Self {
            finalizers: customization.metadata.finalizers.take().unwrap_or_default(),
            status: customization.into_status(),
        }
    }
}

impl CustomizationObject {
    /// The status of the customization, which contains the lease; `None` if it is absent or cannot be decoded.
    pub fn into_status(self) -> Option<ClusterDeploymentCustomizationStatus> {
        self.status?.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::{ClusterDeploymentObject, CustomizationObject, MachineObject, PoolObject};
    use crate::view::{Cluster, ClusterDeployment, Machine, Pool};

    fn machine(metadata: &Value) -> MachineObject {
        from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn a_machine_belongs_to_its_controller_or_else_by_its_labels() {
        let labels = json!({"cluster.x-k8s.io/cluster-name": "edge", "cluster.x-k8s.io/control-plane": ""});
        let worker = json!({"cluster.x-k8s.io/cluster-name": "edge"});
        let owned = |kind: &str, name: &str, controller: Value| json!([{"kind": kind, "name": name, "controller": controller}]);
        for (case, metadata, belongs) in [
            ("only labels", json!({"labels": labels}), true),
            ("a worker's labels", json!({"labels": worker}), false),
            ("no labels", json!({}), false),
            (
                "its controller",
                json!({"ownerReferences": owned("KubeadmControlPlane", "cp", json!(true))}),
                true,
            ),
            (
                "another controller and matching labels",
                json!({"labels": labels, "ownerReferences": owned("KubeadmControlPlane", "old", json!(true))}),
                false,
            ),
            (
                "a controller of another kind and the same name",
                json!({"labels": labels, "ownerReferences": owned("MachineSet", "cp", json!(true))}),
                false,
            ),
            (
                "an owner that is not the controller",
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
    fn decodes_a_machine_without_spec_and_status() {
        let read = Machine::from(machine(
            &json!({"name": "m", "deletionTimestamp": "2026-05-01T00:00:00Z"}),
        ));
        let expected = Machine {
            name: "m".to_owned(),
            is_deleting: true,
            ..Machine::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn rules_see_whose_a_cluster_is_and_whether_it_is_paused_or_deleted() {
        let read: kcp_api::Cluster = from_value(json!({
            "metadata": {"name": "c1", "uid": "u1", "deletionTimestamp": "2026-08-21T10:00:00Z"},
            "spec": {"paused": true, "controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "c1-cp"}},
        }))
        .unwrap();
        let seen = Cluster {
            name: "c1".to_owned(),
            uid: Some("u1".to_owned()),
            paused: true,
            is_deleting: true,
            control_plane: Some("c1-cp".to_owned()),
        };
        assert_eq!(Cluster::from(&read), seen);
    }

    #[test]
    fn without_the_name_of_its_secret_a_machine_awaits_bootstrap_data() {
        for (bootstrap, awaits) in [
            (json!({"dataSecretName": "s"}), false),
            (json!({"configRef": {"name": "c"}}), true),
            (Value::Null, false),
        ] {
            let object = json!({"spec": {"bootstrap": &bootstrap}});
            let object: MachineObject = from_value(object).unwrap();
            assert_eq!(Machine::from(object).awaits_bootstrap_data, awaits, "{bootstrap}");
        }
    }

    #[test]
    fn a_null_node_ref_means_not_joined() {
        for (node, joined) in [(Value::Null, false), (json!({"name": "n"}), true)] {
            let object: MachineObject = from_value(json!({"status": {"nodeRef": node}})).unwrap();
            assert_eq!(Machine::from(object).has_node, joined);
        }
    }

    #[test]
    fn a_deployment_concerns_its_pool_and_its_customization() {
        let deployment = |reference: Value| -> ClusterDeploymentObject {
            from_value(json!({"metadata": {"name": "c"}, "spec": {"clusterPoolRef": reference}})).unwrap()
        };
        let member = deployment(json!({
            "namespace": "x", "poolName": "pool", "clusterDeploymentCustomization": {"name": "foo"}
        }));
        for (namespace, name, refers_to) in [
            ("x", "pool", true),
            ("x", "foo", true),
            ("x", "c", false),
            ("y", "pool", false),
        ] {
            assert_eq!(member.refers_to(namespace, name), refers_to, "{namespace}/{name}");
        }
        assert!(!deployment(Value::Null).refers_to("", ""));
        let read = ClusterDeployment::from(deployment(json!({
            "namespace": "x", "poolName": "pool", "claimName": "", "clusterDeploymentCustomization": {"name": ""}
        })));
        assert_eq!((read.claim, read.customization), (None, None));
    }

    #[test]
    fn a_deleted_deployment_uses_its_customization_until_only_our_finalizer_remains() {
        let deployment = |deleted: Option<&str>, finalizers: Value| -> ClusterDeploymentObject {
            from_value(json!({
                "metadata": {"name": "c", "deletionTimestamp": deleted, "finalizers": finalizers},
                "spec": {"clusterPoolRef": {
                    "namespace": "x", "poolName": "pool", "clusterDeploymentCustomization": {"name": "foo"}
                }}
            }))
            .unwrap()
        };
        let ours = "kubectl-kcp.dev/pool-lease";
        let deleted = Some("2026-05-01T00:00:00Z");
        for (case, object, uses) in [
            ("not deleted", deployment(None, json!([ours])), true),
            ("our finalizer remains", deployment(deleted, json!([ours])), false),
            (
                "Hive's finalizer remains",
                deployment(deleted, json!([ours, "hive.openshift.io/deprovision"])),
                true,
            ),
        ] {
            assert_eq!(object.refers_to("x", "foo"), uses, "{case}");
            assert_eq!(
                ClusterDeployment::from(object).customization.is_some(),
                uses,
                "{case}"
            );
        }
    }

    #[test]
    fn a_customization_with_another_status_has_none() {
        let status = |status: Value| {
            let object: CustomizationObject =
                from_value(json!({"metadata": {"name": "a"}, "status": status})).unwrap();
            object.into_status().map(|status| status.is_leased())
        };
        assert_eq!(
            status(json!({"clusterDeploymentRef": {"name": "us"}})),
            Some(true)
        );
        assert_eq!(
            status(json!({"conditions": [{"type": "Available", "status": false}]})),
            None
        );
        assert_eq!(status(Value::Null), None);
    }

    /// In the design document, the inventory is an object that contains the list.
    #[test]
    fn decodes_an_inventory_as_list_and_as_object() {
        for inventory in [
            json!([{"name": "foo"}, {"name": ""}]),
            json!({"ClusterDeploymentCustomizations": [{"name": "foo"}]}),
        ] {
            let object: PoolObject = from_value(json!({"spec": {"inventory": inventory}})).unwrap();
            assert_eq!(Pool::from(object).inventory, ["foo"]);
        }
    }
}
