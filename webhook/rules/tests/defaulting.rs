//! Default values: the exact patches, and that applying one leaves nothing to do.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::format_push_string,
    clippy::format_collect,
    clippy::needless_pass_by_value,
    reason = "tests: they may panic, and speed does not matter"
)]

use std::fmt::Debug;

use kcp_rules::{
    api::{ClusterDeploymentCustomization, KubeadmControlPlane, decode},
    defaulting::{Defaulted, SetDefaults},
};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

fn control_plane(version: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("controlplane.cluster.x-k8s.io/{version}"), "kind": "KubeadmControlPlane",
        "metadata": {"name": "example"}, "spec": spec})
}

/// The patch with the defaults of a control plane.
fn patch(old: Option<&Value>, new: &Value) -> Value {
    let (text, old) = (new.to_string(), old.map(Value::to_string));
    let old: Option<KubeadmControlPlane<'_>> = old.as_deref().map(|old| decode(old).unwrap());
    let operations = set_defaults(&text, old.as_ref()).operations;
    serde_json::to_value(operations).unwrap()
}

/// Sets the defaults in an object. Asserts that the patch has the same effect.
fn set_defaults<'t, T: SetDefaults + Deserialize<'t> + Debug>(text: &'t str, old: Option<&T>) -> Defaulted {
    let mut set: T = decode(text).unwrap();
    let defaulted = set.set_defaults(old);
    let mut patched: Value = serde_json::from_str(text).unwrap();
    apply(
        &mut patched,
        &serde_json::to_value(&defaulted.operations).unwrap(),
    );
    // The decoded object has the lifetime of its text, and the text of the patched object is shorter.
    let patched: &'static str = patched.to_string().leak();
    let patched: T = decode(patched).unwrap();
    assert_eq!(format!("{set:?}"), format!("{patched:?}"));
    defaulted
}

fn apply(object: &mut Value, patch: &Value) {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
    json_patch::patch(object, &patch).unwrap();
}

#[track_caller]
fn assert_patch(version: &str, old: Option<Value>, new: Value, expected: Value) {
    let old = old.map(|spec| control_plane(version, &spec));
    let mut new = control_plane(version, &new);
    assert_eq!(patch(old.as_ref(), &new), expected);
    apply(&mut new, &expected);
    assert_eq!(
        patch(old.as_ref(), &new),
        json!([]),
        "a second patch changes something: {new}"
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
            {"op": "add", "path": "/spec/rollout", "value": {}},
            {"op": "add", "path": "/spec/rollout/strategy", "value": {}},
            {"op": "add", "path": "/spec/rollout/strategy/type", "value": "RollingUpdate"},
            {"op": "add", "path": "/spec/rollout/strategy/rollingUpdate", "value": {}},
            {"op": "add", "path": "/spec/rollout/strategy/rollingUpdate/maxSurge", "value": 1},
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
            {"op": "add", "path": "/spec/rolloutStrategy", "value": {}},
            {"op": "add", "path": "/spec/rolloutStrategy/type", "value": "RollingUpdate"},
            {"op": "add", "path": "/spec/rolloutStrategy/rollingUpdate", "value": {}},
            {"op": "add", "path": "/spec/rolloutStrategy/rollingUpdate/maxSurge", "value": 1},
        ]),
    );
}

#[test]
fn rollout_with_other_fields_keeps_them() {
    assert_patch(
        "v1beta2",
        None,
        json!({"replicas": 3, "version": "v1.34.2", "rollout": {"after": "2026-01-01T00:00:00Z"}}),
        json!([
            {"op": "add", "path": "/spec/rollout/strategy", "value": {}},
            {"op": "add", "path": "/spec/rollout/strategy/type", "value": "RollingUpdate"},
            {"op": "add", "path": "/spec/rollout/strategy/rollingUpdate", "value": {}},
            {"op": "add", "path": "/spec/rollout/strategy/rollingUpdate/maxSurge", "value": 1},
        ]),
    );
}

#[test]
fn strategy_without_max_surge() {
    assert_patch(
        "v1beta2",
        None,
        json!({"replicas": 3, "rollout": {"strategy": {"type": "RollingUpdate"}}}),
        json!([
            {"op": "add", "path": "/spec/rollout/strategy/rollingUpdate", "value": {}},
            {"op": "add", "path": "/spec/rollout/strategy/rollingUpdate/maxSurge", "value": 1},
        ]),
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
fn existing_values_do_not_change() {
    let spec = json!({"replicas": 3, "version": "v1.34.2",
        "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}}});
    assert_patch("v1beta2", None, spec, json!([]));
}

#[test]
fn invalid_values_are_left_to_the_rules() {
    let spec = json!({"replicas": 2, "version": "latest", "rollout": {"strategy": {"type": "OnDelete"}}});
    assert_patch("v1beta2", None, spec, json!([]));
}

#[test]
fn replicas_omitted_in_an_update_default_to_the_old_number() {
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
fn objects_being_deleted_get_no_defaults() {
    let live = control_plane("v1beta2", &json!({}));
    let mut deleting = live.clone();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(patch(Some(&deleting), &live), json!([]));
    assert_eq!(patch(Some(&deleting), &deleting), json!([]));

    let completed = patch(None, &live);
    assert_ne!(completed, json!([]));
    assert_eq!(patch(None, &deleting), completed);
    assert_eq!(patch(Some(&live), &deleting), completed);
}

fn customization(patches: &Value, manifests: &Value) -> Value {
    json!({"apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeploymentCustomization",
        "metadata": {"name": "example"},
        "spec": {"installConfigPatches": patches, "installerManifestPatches": manifests}})
}

fn repaired(old: Option<&Value>, new: &Value) -> Defaulted {
    let (new, old) = (new.to_string(), old.map(Value::to_string));
    let old: Option<ClusterDeploymentCustomization<'_>> = old.as_deref().map(|old| decode(old).unwrap());
    set_defaults(&new, old.as_ref())
}

#[track_caller]
fn assert_repair(old: Option<Value>, mut new: Value, expected: Value, warnings: &[&str]) {
    let found = repaired(old.as_ref(), &new);
    assert_eq!(serde_json::to_value(&found.operations).unwrap(), expected);
    let repairs: Vec<_> = found.corrections.iter().map(ToString::to_string).collect();
    assert_eq!(repairs, warnings);
    apply(&mut new, &expected);
    assert_eq!(
        repaired(old.as_ref(), &new),
        Defaulted::default(),
        "a second patch changes something: {new}"
    );
}

#[test]
fn the_path_of_the_design_document_gets_its_slash() {
    assert_repair(
        None,
        customization(
            &json!([{"op": "replace", "path": "metadata/name", "value": "foo"}]),
            &json!([]),
        ),
        json!([{"op": "replace", "path": "/spec/installConfigPatches/0/path", "value": "/metadata/name"}]),
        &[
            "spec.installConfigPatches[0].path: added the leading slash that a JSON pointer must have (patch-path-invalid)",
        ],
    );
}

#[test]
fn from_and_manifest_patches_get_their_slash() {
    let patches = json!([{"op": "remove", "path": "/a"}, {"op": "move", "path": "spec/a", "from": "spec/b"}]);
    assert_repair(
        None,
        customization(
            &json!([]),
            &json!([{"manifestSelector": {"glob": "*"}, "patches": patches}]),
        ),
        json!([
            {"op": "replace", "path": "/spec/installerManifestPatches/0/patches/1/path", "value": "/spec/a"},
            {"op": "replace", "path": "/spec/installerManifestPatches/0/patches/1/from", "value": "/spec/b"},
        ]),
        &[
            "spec.installerManifestPatches[0].patches[1].path: added the leading slash that a JSON pointer must have (patch-path-invalid)",
            "spec.installerManifestPatches[0].patches[1].from: added the leading slash that a JSON pointer must have (patch-from-invalid)",
        ],
    );
}

#[test]
fn pointers_that_need_more_than_a_slash_are_left_to_the_rules() {
    for path in [
        "",
        "/",
        "/a",
        "name",
        "metadata.name",
        "metadata/",
        "a//b",
        "./a",
        "../a",
        "a/~b",
    ] {
        let patches = json!([{"op": "remove", "path": path, "from": "not/read"}]);
        assert_repair(None, customization(&patches, &json!([])), json!([]), &[]);
    }
}

/// Adding a label or Hive's finalizer must not change the effect of an existing customization.
#[test]
fn an_unrelated_update_repairs_nothing() {
    let old = customization(&json!([{"op": "remove", "path": "a/b"}]), &json!([]));
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    assert_repair(Some(old.clone()), new, json!([]), &[]);

    let extended = customization(
        &json!([{"op": "remove", "path": "a/b"}, {"op": "remove", "path": "a/c"}]),
        &json!([]),
    );
    let operations = json!([{"op": "replace", "path": "/spec/installConfigPatches/1/path", "value": "/a/c"}]);
    let warning = "spec.installConfigPatches[1].path: added the leading slash that a JSON pointer must have (patch-path-invalid)";
    assert_repair(Some(old), extended, operations, &[warning]);
}

#[test]
fn customizations_being_deleted_are_not_repaired() {
    let live = customization(&json!([]), &json!([]));
    let mut deleting = live.clone();
    let mut new = customization(&json!([{"op": "remove", "path": "a/b"}]), &json!([]));
    for object in [&mut deleting, &mut new] {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    assert_repair(Some(deleting), new.clone(), json!([]), &[]);

    let operations = json!([{"op": "replace", "path": "/spec/installConfigPatches/0/path", "value": "/a/b"}]);
    let warning = "spec.installConfigPatches[0].path: added the leading slash that a JSON pointer must have (patch-path-invalid)";
    for old in [None, Some(live)] {
        assert_repair(old, new.clone(), operations.clone(), &[warning]);
    }
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
        apply(&mut new, &operations);
        prop_assert_eq!(patch(Some(&old), &new), json!([]));
    }

    #[test]
    fn repair_is_idempotent_and_leaves_valid_pointers(
        path in "[a~/.0]{0,6}", from in "[a~/.0]{0,6}", old in "[a~/.0]{0,3}",
    ) {
        let patches = |path: &str| json!([{"op": "move", "path": path, "from": from}]);
        let old = customization(&patches(&old), &json!([]));
        let mut new = customization(&patches(&path), &json!([]));
        let operations = serde_json::to_value(repaired(Some(&old), &new).operations).unwrap();
        apply(&mut new, &operations);
        prop_assert_eq!(repaired(Some(&old), &new), Defaulted::default());
    }
}
