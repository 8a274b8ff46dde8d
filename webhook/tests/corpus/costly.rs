//! Reviews that are made to take much time for their size.

use kcp_rules::testing::case::Base;
use serde_json::{Value, json};

const BYTES: usize = 250_000;

fn review(object: &Value) -> String {
    let resource = json!({
        "group": "controlplane.cluster.x-k8s.io", "version": "v1beta2", "resource": "kubeadmcontrolplanes"
    });
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "7", "resource": resource, "operation": "CREATE", "object": object}
    })
    .to_string()
}

/// Bodies of about [`BYTES`], by what they repeat.
pub(crate) fn bodies() -> Vec<(&'static str, String)> {
    let control_plane = || Base::ControlPlane("v1beta2").object();
    let overriding = |value: String| {
        let mut object = control_plane();
        object["metadata"]["annotations"] = json!({"kubectl-kcp.dev/override-rules": value});
        review(&object)
    };
    let with_files = |file: Value| {
        let mut object = control_plane();
        let count = BYTES / file.to_string().len();
        object["spec"]["kubeadmConfigSpec"]["files"] = json!(vec![file; count]);
        review(&object)
    };
    let until = "=2126-01-01T00:00:00Z";
    let entry = format!("replicas-evn{until},");
    vec![
        ("one long override", overriding("a".repeat(BYTES) + until)),
        ("many overrides", overriding(entry.repeat(BYTES / entry.len()))),
        ("many commas", overriding(",".repeat(BYTES))),
        ("many empty files", with_files(json!({}))),
        (
            "many equal files",
            with_files(json!({"path": "/a", "content": "b"})),
        ),
    ]
}
