use kcp_rules::{
    api::{KubeadmControlPlane, decode},
    testing::{
        case::{Base, Case},
        cases::cases,
    },
};
use serde_json::{Value, json};

use super::*;

/// Adds what an API server and controllers add to a client's object.
fn stored(mut object: Value) -> Value {
    let metadata = &mut object["metadata"];
    metadata["resourceVersion"] = json!("7");
    metadata["uid"] = json!("0f1e2d3c");
    metadata["managedFields"] = json!([
        {"manager": "x".repeat(9000), "time": "2026-06-01T11:30:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "annotator", "time": "2026-06-01T11:40:00Z", "fieldsV1": {"f:metadata": {}}},
    ]);
    metadata["annotations"][annotation::LAST_APPLIED] = json!("y".repeat(9000));
    let mut condition = json!({"message": "z".repeat(9000), "lastTransitionTime": "2026-05-01T00:00:00Z"});
    condition["type"] = json!("Available");
    match &mut object["status"]["conditions"] {
        Value::Array(conditions) => conditions.push(condition),
        none => *none = json!([condition]),
    }
    object
}

#[test]
fn a_cached_control_plane_has_every_field_that_rules_read() {
    let rows = cases().flat_map(Case::rows);
    let mut compared = 0;
    for row in rows.filter(|row| matches!(row.base, Base::ControlPlane(_))) {
        let old = row.old().unwrap();
        for object in [Some(row.new_object().unwrap()), old].into_iter().flatten() {
            let text = stored(object).to_string();
            let Ok(mut whole) = decode::<KubeadmControlPlane<'_>>(&text) else {
                continue;
            };
            let annotations = whole.metadata.annotations.as_mut().unwrap();
            annotations.retain(|name, _| &**name != annotation::LAST_APPLIED);
            let cached = CachedControlPlane::decode(&text).unwrap();
            let mut read = decode::<KubeadmControlPlane<'_>>(&cached.text).unwrap();
            let written = whole.metadata.last_write_of_spec();
            assert_eq!(written, "2026-06-01T11:30:00Z".parse().ok());
            assert_eq!(read.metadata.last_write_of_spec(), written);
            whole.metadata.managed_fields = None;
            read.metadata.managed_fields = None;
            assert_eq!(read, whole, "{text}");
            assert_eq!(&*cached.resource_version, "7");
            assert!(cached.bytes() + 27_000 < text.len(), "{}", cached.text);
            compared += 1;
        }
    }
    assert!(compared > 300, "{compared}");
}

#[test]
fn rejects_what_is_no_object() {
    assert!(CachedControlPlane::decode("7").is_err());
}
