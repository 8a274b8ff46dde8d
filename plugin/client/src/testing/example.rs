//! Responses of a fake server with one control plane.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "clippy knows tests by their attribute, and these builders have none"
)]

use serde_json::{Value, json};

use super::failure;

pub fn groups() -> Value {
    let groups = [
        "cluster",
        "controlplane.cluster",
        "bootstrap.cluster",
        "infrastructure.cluster",
    ]
    .map(|name| {
        let name = format!("{name}.x-k8s.io");
        let version = json!({"groupVersion": format!("{name}/v1beta2"), "version": "v1beta2"});
        json!({"name": name, "versions": [version], "preferredVersion": version})
    });
    json!({"groups": groups})
}

fn machine(name: &str, change: Value) -> Value {
    let mut machine = json!({
        "metadata": {"name": name, "namespace": "d",
            "labels": {"cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/control-plane": ""},
            "ownerReferences": [{"kind": "KubeadmControlPlane", "name": "c1-cp", "controller": true}]},
        "spec": {"clusterName": "c1",
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerMachine", "name": name}},
    });
    if let Value::Object(change) = change {
        machine["metadata"]
            .as_object_mut()
            .expect("an object")
            .extend(change);
    }
    machine
}

/// Returns the object at a path of the fake server, if any.
fn object(path: &str) -> Option<Value> {
    let kind = path.rsplit_once("/namespaces/d/").map_or("", |(_, kind)| kind);
    Some(match kind {
        "kubeadmcontrolplanes/c1-cp" => json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "metadata": {"name": "c1-cp", "namespace": "d", "labels": {"cluster.x-k8s.io/cluster-name": "c1"}},
            "spec": {"replicas": 3, "version": "v1.34.1"},
            "status": {"initialization": {"controlPlaneInitialized": true}},
        }),
        "kubeadmcontrolplanes/alone" => json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "metadata": {"name": "alone", "namespace": "d"}, "spec": {},
        }),
        "clusters/c1" => json!({"metadata": {"name": "c1"}, "spec": {
            "controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "c1-cp"},
            "controlPlaneEndpoint": {"host": "edge.example.com", "port": 6443}}}),
        "clusters/other" => json!({"metadata": {"name": "other"}, "spec": {
            "controlPlaneRef": {"kind": "RKE2ControlPlane", "name": "other-cp"}}}),
        "clusters/bare" => json!({"metadata": {"name": "bare"}}),
        "machines" => json!({"items": [
            machine("m3", json!({"ownerReferences": []})),
            machine("m2", json!({"deletionTimestamp": "2026-08-21T10:00:00Z",
                "finalizers": ["machine.cluster.x-k8s.io"]})),
            machine("m1", json!({})),
            machine("m0", json!({"ownerReferences": [
                {"kind": "KubeadmControlPlane", "name": "other", "controller": true}]})),
        ]}),
        "machinehealthchecks" => {
            let check = |name: &str, cluster: &str| {
                let labels = json!({"cluster.x-k8s.io/control-plane": ""});
                json!({"metadata": {"name": name},
                    "spec": {"clusterName": cluster, "selector": {"matchLabels": labels}}})
            };
            json!({"items": [check("h1", "c1"), check("h2", "c2")]})
        }
        "kubeadmconfigs" | "dockermachines" => json!({"items": []}),
        "secrets/c1-kubeconfig" => {
            let owners =
                json!([{"apiVersion": "v1", "kind": "KubeadmControlPlane", "name": "c1-cp", "uid": "u"}]);
            json!({"kind": "PartialObjectMetadata", "metadata": {"name": "any", "ownerReferences": owners}})
        }
        "secrets/c1-etcd" => json!({"kind": "PartialObjectMetadata", "metadata": {"name": "any"}}),
        _ => return None,
    })
}

/// Returns the fake server's response to a request for this path.
pub fn answer(path: &str) -> (u16, Value) {
    object(path).map_or_else(not_found, |object| (200, object))
}

fn not_found() -> (u16, Value) {
    let (code, mut status) = failure(404, "NotFound", "not found");
    status["details"] = json!({"name": "any"});
    (code, status)
}
