//! One table for each of Hive's kinds.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, DeletionState};
use crate::{decode, metadata::Object as _};

fn read<T: DeserializeOwned>(object: &Value) -> T {
    decode(&object.to_string()).expect("decodes")
}

fn pool_object(spec: &Value) -> Value {
    let mut whole = json!({
        "platform": {"none": {}}, "baseDomain": "example.com", "imageSetRef": {"name": "v4"}, "size": 1,
    });
    for (field, value) in spec.as_object().expect("an object") {
        whole[field] = value.clone();
    }
    json!({"kind": "ClusterPool", "metadata": {"name": "pool", "namespace": "d"}, "spec": whole})
}

#[test]
fn an_inventory_names_each_customization_once() {
    for (inventory, names) in [
        (
            json!([{"name": "b"}, {"name": ""}, {"name": "a"}, {"name": "b"}]),
            vec!["b", "a"],
        ),
        (json!([]), vec![]),
        (Value::Null, vec![]),
    ] {
        let pool: ClusterPool = read(&pool_object(&json!({"inventory": inventory})));
        assert_eq!(pool.inventory(), names, "{inventory}");
    }
}

#[test]
fn a_pool_keeps_fields_that_we_do_not_know() {
    let pool: ClusterPool = read(&pool_object(&json!({"hibernateAfter": "8h"})));
    assert_eq!(pool.whole_spec["hibernateAfter"], "8h");
    assert_eq!(
        (pool.spec.size, pool.status.size, pool.status.ready),
        (1, None, None)
    );
}

#[test]
fn a_pool_with_a_wrong_type_names_the_field() {
    let object = pool_object(&json!({"imageSetRef": {"name": 4}}));
    let error = decode::<ClusterPool>(&object.to_string()).expect_err("a wrong type");
    assert_eq!(
        error.to_string(),
        "ClusterPool d/pool: spec: imageSetRef.name: invalid type: integer `4`, expected a string"
    );
}

#[test]
fn a_finalizer_shows_the_pools_that_hive_runs() {
    for (finalizers, expected) in [
        (json!([]), false),
        (json!(["kubectl-kcp.dev/other"]), false),
        (json!(["hive.openshift.io/clusters"]), true),
    ] {
        let mut object = pool_object(&json!({}));
        object["metadata"]["finalizers"] = finalizers;
        object["status"] = json!({"size": 2, "ready": 1, "conditions": null});
        let pool: ClusterPool = read(&object);
        assert_eq!(pool.is_managed_by_hive(), expected);
        assert_eq!((pool.status.size, pool.status.ready), (Some(2), Some(1)));
    }
}

#[test]
fn a_claim_has_a_cluster_or_a_reason() {
    let pending = |reason: &str, message: &str| json!({"conditions": [{"type": "Pending", "status": "True", "reason": reason, "message": message}]});
    for (namespace, status, cluster, why) in [
        (Value::Null, Value::Null, None, None),
        (json!(""), pending("NoClusters", ""), None, Some("NoClusters")),
        (
            json!(""),
            pending("NoClusters", "No clusters in pool"),
            None,
            Some("No clusters in pool"),
        ),
        (json!("hosts-x"), json!({}), Some("hosts-x"), None),
    ] {
        let claim: ClusterClaim = read(&json!({"metadata": {"name": "a"}, "status": status,
            "spec": {"clusterPoolName": "hosts", "namespace": namespace}}));
        assert_eq!(
            (claim.cluster_deployment(), claim.pending_reason()),
            (cluster, why),
            "{namespace} {status}"
        );
        assert_eq!(claim.spec.cluster_pool_name, "hosts");
    }
}

#[test]
fn a_cluster_deployment_is_of_a_pool() {
    let deployment = |reference: Value| -> ClusterDeployment {
        read(&json!({"metadata": {"name": "c"}, "spec": {"installed": true, "clusterPoolRef": reference}}))
    };
    let made = deployment(json!({"namespace": "d", "poolName": "p", "claimName": "x",
        "clusterDeploymentCustomization": {"name": "one"}}));
    assert!(
        made.belongs_to_pool("d", "p")
            && !made.belongs_to_pool("d", "q")
            && !made.belongs_to_pool("e", "p")
            && made.spec.installed
    );
    assert_eq!((made.claim(), made.customization()), (Some("x"), Some("one")));
    let unclaimed = deployment(json!({"namespace": "d", "poolName": "p", "claimName": "",
        "clusterDeploymentCustomization": {"name": ""}}));
    assert_eq!((unclaimed.claim(), unclaimed.customization()), (None, None));
    assert!(!deployment(Value::Null).belongs_to_pool("d", "p"));
    let bare: ClusterDeployment = read(&json!({"metadata": {"name": "c"}}));
    assert_eq!((bare.spec.installed, bare.claim()), (false, None));
}

#[test]
fn a_customization_names_its_holder() {
    for (status, holder) in [
        (
            json!({"clusterDeploymentRef": {"name": "a"}, "clusterPoolRef": {"name": "p"}}),
            (Some("a"), Some("p")),
        ),
        (
            json!({"clusterDeploymentRef": {"name": ""}, "clusterPoolRef": null}),
            (None, None),
        ),
        (Value::Null, (None, None)),
    ] {
        let customization: ClusterDeploymentCustomization = read(&json!({
            "metadata": {"name": "host-1"}, "spec": {"installConfigPatches": [], "later": 1}, "status": status}));
        assert_eq!(
            (customization.status.holder(), customization.status.pool()),
            holder,
            "{status}"
        );
        assert_eq!(
            (customization.name(), &customization.spec["later"]),
            ("host-1", &json!(1))
        );
    }
}

#[test]
fn the_deletion_state_depends_on_finalizers() {
    const DELETED: &str = "2026-11-21T05:00:00Z";
    for (deleted, finalizers, expected) in [
        (None, json!([]), DeletionState::Alive),
        (None, json!(["kubectl-kcp.dev/pool-lease"]), DeletionState::Alive),
        (
            Some(DELETED),
            json!(["kubectl-kcp.dev/pool-lease"]),
            DeletionState::Deprovisioned,
        ),
        (Some(DELETED), json!([]), DeletionState::Deprovisioned),
        (
            Some(DELETED),
            json!(["hive.openshift.io/deprovision", "kubectl-kcp.dev/pool-lease"]),
            DeletionState::Deprovisioning,
        ),
        (Some(DELETED), json!(["other"]), DeletionState::Deprovisioning),
    ] {
        let mut object = json!({"metadata": {"name": "a", "finalizers": finalizers}});
        if let Some(time) = deleted {
            object["metadata"]["deletionTimestamp"] = time.into();
        }
        let read: ClusterDeployment = read(&object);
        assert_eq!(read.deletion_state(), expected, "{object}");
    }
}

#[test]
fn a_lease_ends_five_seconds_after_its_deadline_unless_a_cluster_uses_it() {
    const END: &str = "2026-06-01T12:00:00Z";
    let ended = |state: &str, uid: &str, deadline: &str, now: Option<&str>| {
        let message = format!(
            "v1 state={state} uid={uid} holder=us id=a renewals=0 acquired=2026-05-01T00:00:00Z deadline={deadline} \
             cluster=us/us user=jane"
        );
        let status = json!({"clusterDeploymentRef": {"name": "us"},
            "conditions": [{"type": "kubectl-kcp.dev/Lease", "status": "True", "message": message}]});
        let read: ClusterDeploymentCustomization =
            read(&json!({"metadata": {"name": "a"}, "status": status}));
        read.status
            .reservation()
            .has_ended(now.map(|now| now.parse().unwrap()))
    };
    for state in ["held", "gone"] {
        assert!(!ended(state, "-", END, Some("2026-06-01T12:00:04Z")), "{state}");
        assert!(ended(state, "-", END, Some("2026-06-01T12:00:05Z")), "{state}");
        assert!(ended(state, "-", END, None), "{state}");
        assert!(!ended(state, "-", "-", None), "{state}");
    }
    assert!(!ended("in-use", "u", END, Some("2026-06-02T00:00:00Z")));
    assert!(!ended("damaged", "-", END, None));
}
