use serde_json::Value;

use crate::commands::status::document::{ControlPlaneStatus, ControlPlaneStatusList};
use crate::commands::status::screen::example;
use crate::document::Versioned;
use crate::testing::schema::{self, faults};

fn document(example: &example::Example) -> Value {
    serde_json::to_value(Versioned(ControlPlaneStatus::new(
        &example.observed,
        &example.inspection,
    )))
    .expect("serializes")
}

fn list(examples: &[&example::Example]) -> ControlPlaneStatusList {
    let inspected = examples
        .iter()
        .map(|example| (None, &example.observed, &example.inspection));
    ControlPlaneStatusList::new(inspected, &[])
}

#[test]
fn documents() {
    for (name, example) in example::all() {
        let text = serde_json::to_string_pretty(&document(&example)).expect("serializes");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn every_document_matches_its_schema() {
    let schema = serde_json::to_value(schema::of::<ControlPlaneStatus>()).expect("serializes");
    for (name, example) in example::all() {
        assert_eq!(
            faults(&schema, &document(&example)),
            Vec::<String>::new(),
            "{name}"
        );
    }
    let schema = serde_json::to_value(schema::of::<ControlPlaneStatusList>()).expect("serializes");
    let examples = example::all();
    let list = list(&examples.iter().map(|(_, example)| example).collect::<Vec<_>>());
    let list = serde_json::to_value(Versioned(list)).expect("serializes");
    assert_eq!(faults(&schema, &list), Vec::<String>::new());
}

#[test]
fn fields_that_scripts_read_stay_the_same() {
    let example = example::member_dead();
    let list = list(&[&example]);
    let list = serde_json::to_value(Versioned(list)).expect("serializes");
    for (pointer, value) in [
        ("/apiVersion", "kubectl-kcp.dev/v1alpha1"),
        ("/kind", "ControlPlaneStatusList"),
        ("/items/0/kind", "ControlPlaneStatus"),
        ("/items/0/metadata/name", "c1-cp"),
        ("/items/0/metadata/namespace", "d"),
        ("/items/0/verdict", "Degraded"),
        ("/items/0/findings/0/severity", "fail"),
        ("/items/0/findings/0/object", "EtcdMember/node-m2, Machine/m2"),
        ("/items/0/findings/0/id", "etcd-members-unresponsive"),
    ] {
        assert_eq!(
            list.pointer(pointer).and_then(Value::as_str),
            Some(value),
            "{pointer}"
        );
    }
}

#[test]
fn no_control_plane_is_an_empty_list() {
    let document = serde_json::to_string(&Versioned(list(&[]))).expect("serializes");
    assert_eq!(
        document,
        r#"{"apiVersion":"kubectl-kcp.dev/v1alpha1","kind":"ControlPlaneStatusList","items":[]}"#
    );
}

#[test]
fn the_schemas_are_checked_in() {
    schema::checked_in::<ControlPlaneStatus>("controlplanestatus.json");
    schema::checked_in::<ControlPlaneStatusList>("controlplanestatuslist.json");
}
