//! The JSON schema of the configuration file. `UPDATE_SCHEMA=1` writes it.
#![cfg(feature = "schema")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

use std::{env, fs, path::Path};

use kcp_rules::{Configuration, topics};
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

const FILE: &str = "../../manifests/samples/admission-configuration.schema.json";

fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let schema = settings.into_generator().into_root_schema_for::<Configuration>();
    let mut schema = serde_json::to_value(schema).unwrap();
    // An editor completes them. Other ids are allowed: the server ignores what it does not know.
    let ids: Vec<&str> = topics::rules().map(|rule| rule.id).collect();
    schema["properties"]["rules"]["propertyNames"] = json!({"examples": ids});
    schema["properties"]["apiVersion"]["const"] = json!(kcp_rules::configuration::API_VERSION);
    schema["properties"]["kind"]["const"] = json!(kcp_rules::configuration::KIND);
    schema
}

#[test]
fn the_schema_of_the_configuration_file_is_checked_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == text,
        "the schema has drifted: run this test with UPDATE_SCHEMA=1"
    );
}
