//! Builds the parts of a view from Kubernetes objects, decoded from an API server or a manifest.

use kcp_api::{
    ClusterDeploymentCustomization, Object as _,
    hive::{DeletionState, Inventory},
    kind::KUBEADM_CONTROL_PLANE,
    metadata::{self, ObjectMeta},
    names::label,
};
use serde::Deserialize;

use super::{Cluster, ClusterDeployment, Customization, Machine, Pool};

/// Whether a Machine belongs to the control plane `name` of the Cluster `cluster` in the same namespace. The controller
/// reference decides. If the Machine has not been adopted yet, its labels decide.
///
/// Owners are compared by name, because a control plane in a manifest has no uid yet.
pub fn belongs_to(machine: &kcp_api::Machine, name: Option<&str>, cluster: Option<&str>) -> bool {
    if let Some(owner) = machine.controller() {
        return owner.kind == KUBEADM_CONTROL_PLANE.kind && Some(owner.name.as_str()) == name;
    }
    let labelled = machine.label(label::CLUSTER_NAME);
    machine.label(label::CONTROL_PLANE).is_some() && labelled.is_some() && labelled == cluster
}

impl From<&kcp_api::Machine> for Machine {
    fn from(machine: &kcp_api::Machine) -> Self {
        Self {
            name: machine.name().to_owned(),
            version: machine.spec.version.clone(),
            created: machine.creation_timestamp(),
            has_node: machine.has_node(),
            has_controller: machine.controller().is_some(),
            awaits_bootstrap_data: machine.spec.awaits_bootstrap_data,
            is_deleting: machine.is_deleting(),
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

/// The fields of a `ClusterPool` that a view needs. Decoding needs no other fields, because `lint` also reads fragments of pools.
#[derive(Debug, Deserialize)]
pub struct PoolFragment {
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    metadata: ObjectMeta,
    spec: Option<SpecFragment>,
}

#[derive(Debug, Deserialize)]
struct SpecFragment {
    inventory: Option<Inventory>,
}

impl From<PoolFragment> for Pool {
    fn from(pool: PoolFragment) -> Self {
        let inventory = pool.spec.and_then(|spec| spec.inventory);
        Self {
            name: pool.metadata.name().to_owned(),
            inventory: inventory
                .iter()
                .flat_map(Inventory::names)
                .map(str::to_owned)
                .collect(),
            is_deleting: pool.metadata.is_deleting(),
        }
    }
}

impl From<&kcp_api::ClusterDeployment> for ClusterDeployment {
    fn from(cluster: &kcp_api::ClusterDeployment) -> Self {
        let is_gone = cluster.deletion_state() == DeletionState::Deprovisioned;
        let pool = cluster.spec.cluster_pool_ref.as_ref();
        Self {
            namespace: cluster.namespace().to_owned(),
            name: cluster.name().to_owned(),
            pool_namespace: pool.map(|pool| pool.namespace.clone()),
            pool: pool.map_or_else(String::new, |pool| pool.pool_name.clone()),
            claim: cluster.claim().map(str::to_owned),
            customization: cluster.customization().filter(|_| !is_gone).map(str::to_owned),
            is_deleting: cluster.is_deleting(),
        }
    }
}

impl From<ClusterDeploymentCustomization> for Customization {
    fn from(customization: ClusterDeploymentCustomization) -> Self {
        Self {
            finalizers: customization.finalizers().to_vec(),
            status: customization.status,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::{PoolFragment, belongs_to};
    use crate::view::{Cluster, ClusterDeployment, Machine, Pool};

    fn machine(metadata: &Value) -> kcp_api::Machine {
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
                belongs_to(&machine(&metadata), Some("cp"), Some("edge")),
                belongs,
                "{case}"
            );
        }
        let unlabelled = machine(&json!({"labels": {"cluster.x-k8s.io/control-plane": ""}}));
        assert!(!belongs_to(&unlabelled, None, None));
    }

    #[test]
    fn decodes_a_machine_without_spec_and_status() {
        let read = Machine::from(&machine(
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
            let object = json!({"metadata": {}, "spec": {"bootstrap": &bootstrap}});
            let object: kcp_api::Machine = from_value(object).unwrap();
            assert_eq!(
                Machine::from(&object).awaits_bootstrap_data,
                awaits,
                "{bootstrap}"
            );
        }
    }

    #[test]
    fn a_null_node_ref_means_not_joined() {
        for (node, joined) in [(Value::Null, false), (json!({"name": "n"}), true)] {
            let object = json!({"metadata": {}, "status": {"nodeRef": node}});
            let object: kcp_api::Machine = from_value(object).unwrap();
            assert_eq!(Machine::from(&object).has_node, joined);
        }
    }

    #[test]
    fn a_deployment_concerns_its_pool_and_its_customization() {
        let deployment = |reference: Value| {
            let object = json!({"metadata": {"name": "c"}, "spec": {"clusterPoolRef": reference}});
            ClusterDeployment::from(&from_value::<kcp_api::ClusterDeployment>(object).unwrap())
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
        let read = deployment(json!({
            "namespace": "x", "poolName": "pool", "claimName": "", "clusterDeploymentCustomization": {"name": ""}
        }));
        assert_eq!((read.claim, read.customization), (None, None));
    }

    #[test]
    fn a_deleted_deployment_uses_its_customization_until_only_our_finalizer_remains() {
        let deployment = |deleted: Option<&str>, finalizers: Value| {
            let object = json!({
                "metadata": {"name": "c", "deletionTimestamp": deleted, "finalizers": finalizers},
                "spec": {"clusterPoolRef": {
                    "namespace": "x", "poolName": "pool", "clusterDeploymentCustomization": {"name": "foo"}
                }}
            });
            ClusterDeployment::from(&from_value::<kcp_api::ClusterDeployment>(object).unwrap())
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
            assert_eq!(object.customization.is_some(), uses, "{case}");
        }
    }

    /// In the design document, the inventory is an object that contains the list.
    #[test]
    fn decodes_an_inventory_as_list_and_as_object() {
        for inventory in [
            json!([{"name": "foo"}, {"name": ""}]),
            json!({"ClusterDeploymentCustomizations": [{"name": "foo"}]}),
        ] {
            let object: PoolFragment =
                from_value(json!({"metadata": {}, "spec": {"inventory": inventory}})).unwrap();
            assert_eq!(Pool::from(object).inventory, ["foo"]);
        }
    }
}
