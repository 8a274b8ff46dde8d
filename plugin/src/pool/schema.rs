//! The schemas of the documents, as files.

use std::{env, fs, path::Path};

use schemars::JsonSchema;

use crate::status::schema;

/// Holds a schema against its file in `plugin/schema`.
pub(super) fn checked_in<T: JsonSchema>(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(name);
    let text = serde_json::to_string_pretty(&schema::of::<T>()).unwrap() + "\n";
    if env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == text,
        "{name} has drifted: run this test with UPDATE_SCHEMA=1"
    );
}
