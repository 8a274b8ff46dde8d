//! The JSON schema of the configuration file, which that of the Helm chart's values contains. `UPDATE_SCHEMA=1` writes both.
#![cfg(feature = "schema")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

use std::{collections::BTreeSet, env, fs, path::Path};

use kcp_rules::{Configuration, topics};
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

const FILE: &str = "../../manifests/samples/admission-configuration.schema.json";

/// The schema of the chart's values. Helm cannot read a second file, so this one embeds the other.
const CHART: &str = "../../manifests/helm/values.schema.json";

fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let schema = settings.into_generator().into_root_schema_for::<Configuration>();
    let mut schema = serde_json::to_value(schema).unwrap();
    // An editor completes them. Other ids are allowed: the server ignores what it does not know.
    let ids: Vec<&str> = topics::rules().map(|rule| rule.id).collect();
    for by_rule in ["rules", "onUnread"] {
        schema["properties"][by_rule]["propertyNames"] = json!({"examples": ids});
    }
    schema["properties"]["apiVersion"]["const"] = json!(kcp_rules::configuration::API_VERSION);
    schema["properties"]["kind"]["const"] = json!(kcp_rules::configuration::KIND);
    schema
}

#[test]
fn the_schema_of_the_configuration_file_is_checked_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    checked_in(&path, &schema());
}

#[test]
fn the_schema_of_the_values_of_the_chart_contains_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CHART);
    let mut values: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let mut embedded = schema();
    embedded["$id"] = json!("admission-configuration.schema.json");
    values["$defs"]["configuration"] = embedded;
    checked_in(&path, &values);
}

#[test]
fn the_reference_names_every_property() {
    let page = include_str!("../../../docs/src/reference/configuration.md");
    let words: BTreeSet<&str> = page.split(|c: char| !c.is_alphanumeric()).collect();
    let schema = schema();
    let definitions = schema["$defs"].as_object().unwrap().values();
    let properties = definitions
        .chain([&schema])
        .filter_map(|definition| definition["properties"].as_object())
        .flat_map(|properties| properties.keys().map(String::as_str));
    let missing: Vec<&str> = properties.filter(|name| !words.contains(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

fn checked_in(path: &Path, schema: &Value) {
    let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(path, &text).unwrap();
    }
    assert!(
        fs::read_to_string(path).unwrap() == text,
        "the schema has drifted: run this test with UPDATE_SCHEMA=1"
    );
}
