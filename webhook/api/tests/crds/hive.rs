//! Compares our CRDs with the fields of Hive's CRDs.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};

use crate::{definitions::custom_resource_definitions, fields::Fields};

/// The differences from Hive's CRD of the same kind.
fn differences(definition: &CustomResourceDefinition) -> Vec<String> {
    let file = format!(
        "{}/../../tests/fixtures/fields/{}-v1.txt",
        env!("CARGO_MANIFEST_DIR"),
        definition.spec.names.singular.as_ref().unwrap()
    );
    let theirs = Fields::parse(&std::fs::read_to_string(&file).unwrap());
    let ours = Fields::of(definition);

    let mut differences = Vec::new();
    if ours.header != theirs.header {
        differences.push(format!("header: {:?}, Hive has {:?}", ours.header, theirs.header));
    }
    for column in ours
        .columns
        .iter()
        .filter(|column| !theirs.columns.contains(column))
    {
        differences.push(format!("column {column}: Hive has no such column"));
    }
    for (path, line) in &ours.by_path {
        match theirs.by_path.get(path) {
            Some(real) if real == line => {}
            Some(real) => differences.push(format!("{path}: {line:?}, Hive has {real:?}")),
            None => differences.push(format!("{path}: Hive has no such field")),
        }
    }
    for path in theirs.by_path.keys() {
        if !ours.by_path.contains_key(path) && !ours.preserves(path) {
            differences.push(format!("{path}: dropped, Hive has it"));
        }
    }
    differences
}

#[test]
fn no_field_differs_from_hives() {
    for definition in custom_resource_definitions() {
        let name = &definition.metadata.name;
        assert_eq!(differences(&definition), <[String; 0]>::default(), "{name:?}");
    }
}

fn properties(schema: &mut JSONSchemaProps) -> &mut BTreeMap<String, JSONSchemaProps> {
    schema.properties.as_mut().unwrap()
}

/// Walks to a field of the customization's schema.
fn field<'s>(schema: &'s mut JSONSchemaProps, path: &[&str]) -> &'s mut JSONSchemaProps {
    path.iter().fold(schema, |schema, step| match *step {
        "[]" => match schema.items.as_mut().unwrap() {
            JSONSchemaPropsOrArray::Schema(item) => item,
            JSONSchemaPropsOrArray::Schemas(_) => panic!("a list with one schema"),
        },
        name => properties(schema).get_mut(name).unwrap(),
    })
}

/// Changes one property at a time.
#[test]
fn every_kind_of_difference_is_detected() {
    type Edit = fn(&mut CustomResourceDefinition);
    fn schema(definition: &mut CustomResourceDefinition) -> &mut JSONSchemaProps {
        definition.spec.versions[0]
            .schema
            .as_mut()
            .unwrap()
            .open_api_v3_schema
            .as_mut()
            .unwrap()
    }
    fn condition<'d>(definition: &'d mut CustomResourceDefinition, name: &str) -> &'d mut JSONSchemaProps {
        field(schema(definition), &["status", "conditions", "[]", name])
    }
    let cases: &[(&str, Edit, &str)] = &[
        ("short name", |crd| crd.spec.names.short_names = None, "header: "),
        ("scope", |crd| crd.spec.scope = "Cluster".to_owned(), "header: "),
        (
            "subresource",
            |crd| crd.spec.versions[0].subresources = None,
            "header: ",
        ),
        (
            "type",
            |crd| condition(crd, "reason").type_ = Some("integer".to_owned()),
            "status.conditions[].reason: ",
        ),
        (
            "enum",
            |crd| condition(crd, "status").enum_ = None,
            "status.conditions[].status: ",
        ),
        (
            "minimum",
            |crd| condition(crd, "observedGeneration").minimum = Some(1.0),
            "status.conditions[].observedGeneration: ",
        ),
        (
            "format",
            |crd| condition(crd, "lastTransitionTime").format = None,
            "status.conditions[].lastTransitionTime: ",
        ),
        (
            "pattern",
            |crd| condition(crd, "type").pattern = None,
            "status.conditions[].type: ",
        ),
        (
            "length",
            |crd| condition(crd, "message").max_length = None,
            "status.conditions[].message: ",
        ),
        (
            "nullable",
            |crd| condition(crd, "message").nullable = Some(true),
            "status.conditions[].message: ",
        ),
        (
            "default",
            |crd| field(schema(crd), &["status", "clusterPoolRef", "name"]).default = None,
            "status.clusterPoolRef.name: ",
        ),
        ("required", |crd| schema(crd).required = None, "spec: "),
        (
            "dropped",
            |crd| {
                properties(field(schema(crd), &["status"])).remove("conditions");
            },
            "status.conditions: dropped",
        ),
        (
            "invented",
            |crd| {
                properties(schema(crd)).insert("extra".to_owned(), JSONSchemaProps::default());
            },
            "extra: ",
        ),
    ];
    let [_, correct, ..] = custom_resource_definitions();
    for (name, edit, expected) in cases {
        let mut edited = correct.clone();
        edit(&mut edited);
        let found = differences(&edited);
        assert!(
            found.first().is_some_and(|first| first.starts_with(expected)),
            "{name}: {found:?}"
        );
    }
}
