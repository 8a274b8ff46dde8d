//! Reviews as API servers send them: with managed fields, and with many fields that no rule reads.

use kcp_rules::testing::case::{Base, V1BETA2};
use serde_json::{Value, json};

/// A review that the client sends, and how often it sends it.
pub(crate) struct Body {
    /// The operation, the size and the webhook.
    pub(crate) name: String,
    /// The `AdmissionReview`.
    pub(crate) text: String,
    /// The HTTP request, head and body.
    pub(crate) request: Vec<u8>,
    /// The number of reviews in a turn.
    pub(crate) reviews: usize,
}

/// The two webhooks. The baselines serve every path alike.
const HOOKS: [&str; 2] = ["mutate", "validate"];

/// Each review to both webhooks.
pub(crate) fn all() -> Vec<Body> {
    HOOKS
        .into_iter()
        .flat_map(|hook| [create(hook), update_16k(hook), update_300k(hook)])
        .collect()
}

/// A review of 2.5 KB: the creation of a control plane, which omits every field with a default.
pub(crate) fn create(hook: &str) -> Body {
    let mut object = control_plane(0);
    // The API server has set the defaults before it calls the validating webhook.
    if hook == "mutate"
        && let Some(spec) = object["spec"].as_object_mut()
    {
        for field in ["replicas", "rollout"] {
            spec.remove(field);
        }
    }
    body("create-2k", hook, 8_000, review("CREATE", &object, None))
}

/// A review of 16 KB: an update of a control plane.
pub(crate) fn update_16k(hook: &str) -> Body {
    update("update-16k", hook, 5_600, 5_600)
}

/// A review of 300 KB: an update of a control plane.
fn update_300k(hook: &str) -> Body {
    update("update-300k", hook, 800, 147_000)
}

fn update(name: &str, hook: &str, reviews: usize, file_bytes: usize) -> Body {
    let old = control_plane(file_bytes);
    let mut new = old.clone();
    new["spec"]["version"] = json!("v1.34.3");
    body(name, hook, reviews, review("UPDATE", &new, Some(&old)))
}

fn body(name: &str, hook: &str, reviews: usize, text: String) -> Body {
    let head = format!(
        "POST /{hook}?timeout=5s HTTP/1.1\r\nhost: localhost\r\nuser-agent: kube-apiserver-admission\r\n\
         accept: application/json, */*\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    let request = [head.as_bytes(), text.as_bytes()].concat();
    Body {
        name: format!("{name}-{hook}"),
        text,
        request,
        reviews,
    }
}

/// The text of a review. Its fields have the order of Go's `AdmissionRequest` (k8s.io/api, `admission/v1/types.go`).
fn review(operation: &str, object: &Value, old_object: Option<&Value>) -> String {
    let kind = json!({"group": "controlplane.cluster.x-k8s.io", "version": "v1beta2", "kind": "KubeadmControlPlane"});
    let resource = json!({
        "group": "controlplane.cluster.x-k8s.io", "version": "v1beta2", "resource": "kubeadmcontrolplanes",
    });
    let user = json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]});
    let options = json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-client-side-apply"});
    let old_object = old_object.unwrap_or(&Value::Null);
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","kind":{kind},"resource":{resource},"requestKind":{kind},"requestResource":{resource},"name":"example","namespace":"default","operation":"{operation}","userInfo":{user},"object":{object},"oldObject":{old_object},"dryRun":false,"options":{options}}}}}"#
    )
}

/// A control plane with files of `file_bytes` in total.
fn control_plane(file_bytes: usize) -> Value {
    const FILE: usize = 2_000;
    let mut object = Base::ControlPlane(V1BETA2).object();
    object["metadata"] = json!({
        "name": "example", "namespace": "default", "uid": "b8ce9d4c-1ea1-4a0b-9fd7-6a5f5b8f4a51",
        "resourceVersion": "41237", "generation": 4, "creationTimestamp": "2026-05-01T00:00:00Z",
        "labels": {"cluster.x-k8s.io/cluster-name": "example"},
        "finalizers": ["kubeadm.controlplane.cluster.x-k8s.io"],
        "ownerReferences": [{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "example", "controller": true,
            "blockOwnerDeletion": true, "uid": "0f4b7f1c-6d4a-4a78-95cf-3b9a9c1d7e55",
        }],
        "managedFields": [{
            "manager": "kubectl-client-side-apply", "operation": "Update", "time": "2026-05-01T00:00:00Z",
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {".": {}, "f:kubeadmConfigSpec": {".": {}, "f:clusterConfiguration": {}},
                "f:machineTemplate": {".": {}, "f:spec": {}}, "f:replicas": {}, "f:rollout": {}, "f:version": {}}},
        }],
    });
    let line = "net.ipv4.conf.all.forwarding = 1\\n# what a machine needs before kubeadm runs\n";
    let files: Vec<Value> = (0..file_bytes.div_ceil(FILE))
        .map(|number| {
            let content: String = line.chars().cycle().take(FILE.min(file_bytes)).collect();
            json!({"path": format!("/etc/example/{number}.conf"), "owner": "root:root", "permissions": "0644", "content": content})
        })
        .collect();
    if !files.is_empty() {
        object["spec"]["kubeadmConfigSpec"]["files"] = json!(files);
    }
    object["status"] = json!({
        "observedGeneration": 4, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "upToDateReplicas": 3,
        "version": "v1.34.2", "initialization": {"controlPlaneInitialized": true},
        "conditions": [
            {"type": "Available", "status": "True", "reason": "Available", "message": "", "lastTransitionTime": "2026-05-01T00:00:00Z"},
            {"type": "RollingOut", "status": "False", "reason": "NotRollingOut", "message": "", "lastTransitionTime": "2026-05-01T00:00:00Z"},
        ],
    });
    object
}
