//! Defaults: exact patches, and what they leave when put to the object.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::format_push_string,
    clippy::format_collect,
    clippy::needless_pass_by_value,
    reason = "tests: they may panic, and speed does not matter"
)]

use kcp_rules::{
    Change,
    api::{KubeadmControlPlane, decode},
    defaulting::default_control_plane,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn control_plane(version: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("controlplane.cluster.x-k8s.io/{version}"), "kind": "KubeadmControlPlane",
        "metadata": {"name": "example"}, "spec": spec})
}

fn patch(old: Option<&Value>, new: &Value) -> Value {
    let (new, old) = (new.to_string(), old.map(Value::to_string));
    let new: KubeadmControlPlane = decode(&new).unwrap();
    let old: Option<KubeadmControlPlane> = old.as_deref().map(|old| decode(old).unwrap());
    let change = old
        .as_ref()
        .map_or(Change::create(&new), |old| Change::update(old, &new));
    serde_json::to_value(default_control_plane(&change)).unwrap()
}

#[track_caller]
fn assert_patch(version: &str, old: Option<Value>, new: Value, expected: Value) {
    let old = old.map(|spec| control_plane(version, &spec));
    let mut new = control_plane(version, &new);
    assert_eq!(patch(old.as_ref(), &new), expected);
    json_patch::patch(
        &mut new,
        &serde_json::from_value::<json_patch::Patch>(expected).unwrap(),
    )
    .unwrap();
    assert_eq!(
        patch(old.as_ref(), &new),
        json!([]),
        "the second time changes something: {new}"
    );
}

fn strategy() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}})
}

#[test]
fn bare_object_of_v1beta2() {
    assert_patch(
        "v1beta2",
        None,
        json!({"version": "1.34.2"}),
        json!([
            {"op": "add", "path": "/spec/replicas", "value": 1},
            {"op": "replace", "path": "/spec/version", "value": "v1.34.2"},
            {"op": "add", "path": "/spec/rollout", "value": {"strategy": strategy()}},
        ]),
    );
}

#[test]
fn bare_object_of_v1beta1() {
    assert_patch(
        "v1beta1",
        None,
        json!({"version": "v1.34.2"}),
        json!([
            {"op": "add", "path": "/spec/replicas", "value": 1},
            {"op": "add", "path": "/spec/rolloutStrategy", "value": strategy()},
        ]),
    );
}

#[test]
fn rollout_with_other_fields_keeps_them() {
    assert_patch(
        "v1beta2",
        None,
        json!({"replicas": 3, "version": "v1.34.2", "rollout": {"after": "2026-01-01T00:00:00Z"}}),
        json!([{"op": "add", "path": "/spec/rollout/strategy", "value": strategy()}]),
    );
}

#[test]
fn strategy_without_max_surge() {
    assert_patch(
        "v1beta2",
        None,
        json!({"replicas": 3, "rollout": {"strategy": {"type": "RollingUpdate"}}}),
        json!([{"op": "add", "path": "/spec/rollout/strategy/rollingUpdate", "value": {"maxSurge": 1}}]),
    );
    assert_patch(
        "v1beta1",
        None,
        json!({"replicas": 3, "rolloutStrategy": {"rollingUpdate": {}}}),
        json!([
            {"op": "add", "path": "/spec/rolloutStrategy/type", "value": "RollingUpdate"},
            {"op": "add", "path": "/spec/rolloutStrategy/rollingUpdate/maxSurge", "value": 1},
        ]),
    );
}

#[test]
fn given_values_stay() {
    let spec = json!({"replicas": 3, "version": "v1.34.2",
        "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}}});
    assert_patch("v1beta2", None, spec, json!([]));
}

#[test]
fn faults_are_left_for_the_rules() {
    let spec = json!({"replicas": 2, "version": "latest", "rollout": {"strategy": {"type": "OnDelete"}}});
    assert_patch("v1beta2", None, spec, json!([]));
}

#[test]
fn replicas_left_out_of_an_update_stay_what_they_were() {
    let old = json!({"replicas": 3, "version": "v1.34.2", "rollout": {"strategy": strategy()}});
    let new = json!({"version": "v1.34.2", "rollout": {"strategy": strategy()}});
    assert_patch(
        "v1beta2",
        Some(old),
        new,
        json!([{"op": "add", "path": "/spec/replicas", "value": 3}]),
    );
}

#[test]
fn objects_being_deleted_are_left_alone() {
    let mut new = control_plane("v1beta2", &json!({}));
    new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(patch(None, &new), json!([]));
}

fn any_spec() -> impl Strategy<Value = Value> {
    let max_surge = prop_oneof![
        Just(Value::Null),
        Just(json!(0)),
        Just(json!(1)),
        Just(json!("50%"))
    ];
    let rolling_update = prop_oneof![
        Just(Value::Null),
        max_surge.prop_map(|max_surge| json!({ "maxSurge": max_surge }))
    ];
    let kind = prop_oneof![
        Just(Value::Null),
        Just(json!("RollingUpdate")),
        Just(json!("OnDelete"))
    ];
    let strategy = prop_oneof![
        Just(Value::Null),
        (kind, rolling_update).prop_map(|(kind, rolling)| json!({"type": kind, "rollingUpdate": rolling})),
    ];
    let replicas = prop_oneof![Just(Value::Null), (-1_i64..6).prop_map(Value::from)];
    let version = prop_oneof![
        Just(Value::Null),
        Just(json!("1.34.2")),
        Just(json!("v1.34.2")),
        Just(json!("x"))
    ];
    (replicas, version, strategy, any::<bool>()).prop_map(|(replicas, version, strategy, wrapped)| {
        let rollout = if wrapped {
            json!({ "strategy": strategy })
        } else {
            Value::Null
        };
        json!({"replicas": replicas, "version": version, "rollout": rollout, "rolloutStrategy": strategy})
    })
}

proptest! {
    #[test]
    fn defaulting_is_idempotent(
        version in prop_oneof![Just("v1beta1"), Just("v1beta2")], old in any_spec(), new in any_spec(),
    ) {
        let old = control_plane(version, &old);
        let mut new = control_plane(version, &new);
        let operations = patch(Some(&old), &new);
        json_patch::patch(&mut new, &serde_json::from_value::<json_patch::Patch>(operations).unwrap()).unwrap();
        prop_assert_eq!(patch(Some(&old), &new), json!([]));
    }
}
