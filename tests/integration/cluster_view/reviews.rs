//! A review for each class of rules, and the objects in it.

use kcp_rules::testing::case::{Base, V1BETA2};
use serde_json::{Value, json};

pub(super) const NAMESPACE: &str = "default";

/// A valid control plane of three.
pub(super) fn control_plane(name: &str) -> Value {
    let mut object = Base::ControlPlane(V1BETA2).object();
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!(NAMESPACE);
    object["spec"]["replicas"] = json!(3);
    object
}

pub(super) fn pool(name: &str, customization: &str) -> Value {
    let mut object = Base::ClusterPool.object();
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!(NAMESPACE);
    object["spec"]["inventory"] = json!([{"name": customization}]);
    object
}

pub(super) fn customization(name: &str) -> Value {
    let mut object = Base::Customization.object();
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!(NAMESPACE);
    object
}

/// For rules about the object: a new control plane of two.
pub(super) fn of_object() -> Value {
    let mut even = control_plane("even");
    even["spec"]["replicas"] = json!(2);
    review("CREATE", &even, &Value::Null)
}

/// For rules about the change: a control plane that loses its replicas.
pub(super) fn of_transition() -> Value {
    let old = control_plane("dropped");
    let mut new = old.clone();
    if let Some(spec) = new["spec"].as_object_mut() {
        spec.remove("replicas");
    }
    review("UPDATE", &new, &old)
}

/// For rules about other objects: a pool with a customization that another pool lists.
pub(super) fn of_other_objects() -> Value {
    review("CREATE", &pool("second", "foo"), &Value::Null)
}

/// A scale to four of the control plane with this resourceVersion.
pub(super) fn of_scale(name: &str, resource_version: &str) -> Value {
    let scale = |replicas: u32| {
        json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": name, "namespace": NAMESPACE, "resourceVersion": resource_version},
            "spec": {"replicas": replicas}
        })
    };
    let mut review = review("UPDATE", &scale(4), &scale(3));
    let request = &mut review["request"];
    request["resource"] = resource(&control_plane(name));
    request["subResource"] = json!("scale");
    review
}

fn review(operation: &str, object: &Value, old_object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": operation, "resource": resource(object),
            "name": object["metadata"]["name"], "namespace": NAMESPACE,
            "object": object, "oldObject": old_object
        }
    })
}

fn resource(object: &Value) -> Value {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or_default();
    json!({"group": group, "version": version, "resource": format!("{}s", text("kind").to_lowercase())})
}
