//! The fields that each type reads, of all fields that the definition of its kind has.
//!
//! An object with every field is decoded; then each field is taken away, and where the result differs the field is read.
//! A field that a type reads under a wrong name is missing from the snapshot.

#![allow(clippy::expect_used, clippy::panic, reason = "tests: they may panic")]

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use kcp_api::{
    Cluster, ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, KubeadmConfig,
    KubeadmControlPlane, Machine, MachineDeployment, MachineHealthCheck, decode,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// A field as `tests/fixtures/fields` lists it: `status.conditions[].type`, `string`, constraints.
struct Field {
    path: String,
    kind: String,
    constraints: String,
}

fn fields(file: &str) -> Vec<Field> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/fields");
    let text = std::fs::read_to_string(folder.join(file)).expect("a list of fields");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let all: Vec<Field> = lines
        .map(|line| {
            let mut columns = line.split('\t');
            let mut next = || columns.next().unwrap_or_default().to_owned();
            Field {
                path: next(),
                kind: next(),
                constraints: next(),
            }
        })
        .collect();
    let parents: BTreeSet<String> = all.iter().filter_map(|field| parent(&field.path)).collect();
    all.into_iter()
        .filter(|field| !parents.contains(&field.path))
        .collect()
}

/// The parent of a path: `a.b[]` for `a.b[].c`, and `a.b` for `a.b[]`.
fn parent(path: &str) -> Option<String> {
    let trimmed = path.strip_suffix("[]").or_else(|| path.strip_suffix("{}"));
    trimmed
        .or_else(|| Some(path.rsplit_once('.')?.0))
        .map(str::to_owned)
}

/// An example value. All numbers differ, so that the result shows which field was read.
fn example(number: usize, field: &Field) -> Value {
    let name = field.path.rsplit('.').next().unwrap_or_default();
    match field.kind.as_str() {
        "string" if field.constraints.contains("date-time") => json!("2026-08-21T10:00:00Z"),
        "string" if name.ends_with("Timeout") || name.ends_with("Period") || name == "timeout" => {
            json!("90s")
        }
        "string" if field.constraints.contains("[0-9]+-[0-9]+") => json!("[1-3]"),
        "string" if name == "apiVersion" => json!("group/v1"),
        "string" => json!("text"),
        "integer" | "int-or-string" | "number" => json!(number),
        "boolean" => json!(true),
        "array" => json!([]),
        _ => json!({}),
    }
}

/// The JSON pointer for a path. Lists have one element, and maps have the key `k`.
fn pointer(path: &str) -> String {
    let mut pointer = String::new();
    for segment in path.split('.') {
        let segment = segment.replace("[]", "/0").replace("{}", "/k");
        write!(pointer, "/{segment}").expect("text");
    }
    pointer
}

fn insert(object: &mut Value, pointer: &str, value: Value) {
    let mut target = object;
    let segments: Vec<&str> = pointer.split('/').skip(1).collect();
    for segment in segments {
        if segment == "0" {
            if !target.is_array() {
                *target = json!([{}]);
            }
            target = target.get_mut(0).expect("an element");
        } else {
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            target = target
                .as_object_mut()
                .expect("an object")
                .entry(segment)
                .or_insert(Value::Null);
        }
    }
    *target = value;
}

fn remove(object: &mut Value, pointer: &str) {
    let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
    match object.pointer_mut(parent) {
        Some(Value::Object(parent)) => drop(parent.remove(last)),
        Some(Value::Array(parent)) => parent.clear(),
        other => panic!("{pointer} in {other:?}"),
    }
}

fn read_by<T: DeserializeOwned + PartialEq>(file: &str, api_version: &str) -> Vec<String> {
    let fields = fields(file);
    let mut object = json!({"apiVersion": api_version, "metadata": {"name": "a"}});
    for (number, field) in fields.iter().enumerate() {
        insert(&mut object, &pointer(&field.path), example(number, field));
    }
    let decoded = |object: &Value| decode::<T>(&object.to_string());
    let whole = decoded(&object).unwrap_or_else(|error| panic!("{file}: {error}"));
    let is_read = |field: &&Field| {
        let mut object = object.clone();
        remove(&mut object, &pointer(&field.path));
        decoded(&object).ok().as_ref() != Some(&whole)
    };
    let read = fields.iter().filter(is_read).map(|field| {
        let config = field.path.find(".kubeadmConfigSpec.");
        config.map_or(field.path.clone(), |start| {
            format!("{}.kubeadmConfigSpec (whole)", &field.path[..start])
        })
    });
    let mut read: Vec<String> = read.collect();
    read.dedup();
    read
}

#[test]
fn each_kind_reads_these_fields() {
    let mut text = String::new();
    let mut add = |file: &str, fields: Vec<String>| {
        writeln!(text, "{file}").expect("text");
        for field in fields {
            writeln!(text, "  {field}").expect("text");
        }
    };
    for version in ["v1beta2", "v1beta1"] {
        let file = |kind: &str| format!("{kind}-{version}.txt");
        let api_version = format!("g/{version}");
        let kubeadm = file("kubeadmcontrolplane");
        add(&kubeadm, read_by::<KubeadmControlPlane>(&kubeadm, &api_version));
        add(
            &file("machine"),
            read_by::<Machine>(&file("machine"), &api_version),
        );
        add(
            &file("cluster"),
            read_by::<Cluster>(&file("cluster"), &api_version),
        );
        let check = file("machinehealthcheck");
        add(&check, read_by::<MachineHealthCheck>(&check, &api_version));
        let pool = file("machinepool");
        add(&pool, read_by::<MachineDeployment>(&pool, &api_version));
        // A KubeadmConfig is kept whole.
        assert!(read_by::<KubeadmConfig>(&file("kubeadmconfig"), &api_version).len() > 50);
    }
    add(
        "clusterpool-v1.txt",
        statuses(read_by::<ClusterPool>("clusterpool-v1.txt", "g/v1")),
    );
    add(
        "clusterclaim-v1.txt",
        read_by::<ClusterClaim>("clusterclaim-v1.txt", "g/v1"),
    );
    let deployment = "clusterdeployment-v1.txt";
    add(deployment, read_by::<ClusterDeployment>(deployment, "g/v1"));
    let customization = "clusterdeploymentcustomization-v1.txt";
    let read = read_by::<ClusterDeploymentCustomization>(customization, "g/v1");
    add(customization, statuses(read));
    insta::assert_snapshot!(text);
}

/// Without the spec, which is kept whole.
fn statuses(fields: Vec<String>) -> Vec<String> {
    let status = fields.into_iter().filter(|field| field.starts_with("status"));
    std::iter::once("spec (whole)".to_owned()).chain(status).collect()
}
