//! A customization's patch document, put to both webhooks.

use kcp_rules::api::hive::PatchEntity;
use serde_json::{Value, json};

use super::review::{self, SERVER, answered};

/// The webhook accepts those documents that RFC 6902 does.
pub(crate) fn holds(document: &[u8]) {
    let Ok(patches) = serde_json::from_slice::<Value>(document) else {
        return;
    };
    let review = creation(&patches);
    review::holds(review.to_string().as_bytes());
    let Some(strict) = is_rfc_6902(&patches) else {
        return;
    };
    let [_, validated] = answered(&SERVER, review.to_string().as_bytes()).unwrap();
    assert_eq!(validated["allowed"], strict, "{patches}: {validated}");
}

fn creation(patches: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "resource": {
                "group": "hive.openshift.io", "version": "v1", "resource": "clusterdeploymentcustomizations"
            },
            "name": "example",
            "namespace": "default",
            "operation": "CREATE",
            "object": {
                "apiVersion": "hive.openshift.io/v1",
                "kind": "ClusterDeploymentCustomization",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {"installConfigPatches": patches},
            },
        }
    })
}

/// Whether another reader of JSON patches takes the document as Hive renders it. None where that reader is narrower
/// than JSON: a number that no double holds, a hundred levels.
fn is_rfc_6902(patches: &Value) -> Option<bool> {
    if patches.is_null() {
        return Some(true);
    }
    let Ok(patches) = serde_json::from_value::<Vec<PatchEntity>>(patches.clone()) else {
        return Some(false);
    };
    for patch in patches {
        let text = patch.value_json.filter(|text| !text.is_empty());
        let value = match text.as_deref().map(serde_json::from_str::<Value>) {
            None => json!(patch.value.unwrap_or_default()),
            Some(Ok(value)) => value,
            Some(Err(error)) if error.to_string().starts_with("number out of range") => return None,
            Some(Err(error)) if error.to_string().starts_with("recursion limit") => return None,
            Some(Err(_)) => return Some(false),
        };
        let mut operation = json!({"op": patch.op, "path": patch.path, "value": value});
        if let Some(from) = &patch.from {
            operation["from"] = json!(from);
        }
        if serde_json::from_value::<json_patch::PatchOperation>(operation).is_err() {
            return Some(false);
        }
        let is_ancestor = |from: &String| patch.path.starts_with(&format!("{from}/"));
        if patch.op == "move" && patch.from.as_ref().is_some_and(is_ancestor) {
            return Some(false);
        }
    }
    Some(true)
}
