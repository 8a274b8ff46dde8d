use kcp_rules::{
    api::{KubeadmControlPlane, decode},
    case::Base,
    topics::TOPICS,
};
use serde_json::{Value, json};

use super::*;

/// What an API server sends beside what a client wrote.
fn stored(mut object: Value) -> Value {
    let metadata = &mut object["metadata"];
    metadata["resourceVersion"] = json!("7");
    metadata["uid"] = json!("0f1e2d3c");
    metadata["managedFields"] = json!([{"manager": "x".repeat(9000)}]);
    metadata["annotations"][LAST_APPLIED] = json!("y".repeat(9000));
    let mut condition = json!({"message": "z".repeat(9000), "lastTransitionTime": "2026-05-01T00:00:00Z"});
    condition["type"] = json!("Available");
    match &mut object["status"]["conditions"] {
        Value::Array(conditions) => conditions.push(condition),
        none => *none = json!([condition]),
    }
    object
}

#[test]
fn a_kept_control_plane_has_all_that_rules_read() {
    let rows = TOPICS
        .iter()
        .flat_map(|topic| topic.cases)
        .flat_map(kcp_rules::case::Case::rows);
    let mut compared = 0;
    for row in rows.filter(|row| matches!(row.base, Base::ControlPlane(_))) {
        let old = row.old().unwrap();
        for object in [Some(row.new_object().unwrap()), old].into_iter().flatten() {
            let text = stored(object).to_string();
            let Ok(mut whole) = decode::<KubeadmControlPlane<'_>>(&text) else {
                continue;
            };
            let annotations = whole.metadata.annotations.as_mut().unwrap();
            annotations.retain(|name, _| &**name != LAST_APPLIED);
            if annotations.is_empty() {
                whole.metadata.annotations = None;
            }
            let kept = KeptControlPlane::read(&text).unwrap();
            assert_eq!(
                decode::<KubeadmControlPlane<'_>>(&kept.text).unwrap(),
                whole,
                "{text}"
            );
            assert_eq!(&*kept.resource_version, "7");
            assert!(kept.bytes() + 27_000 < text.len(), "{}", kept.text);
            compared += 1;
        }
    }
    assert!(compared > 300, "{compared}");
}

#[test]
fn a_control_plane_that_cannot_be_pruned_is_not_kept() {
    for text in [
        "7",
        r#"{"metadata": 7}"#,
        r#"{"metadata": {"annotations": null}}"#,
    ] {
        assert!(KeptControlPlane::read(text).is_err(), "{text}");
    }
}
