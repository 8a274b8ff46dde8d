//! Compares documents with their JSON schemas.

mod validator;

use std::{env, fs, path::Path};

use schemars::{JsonSchema, Schema, generate::SchemaSettings};

use crate::document::{Document, Versioned};

pub(crate) use validator::faults;

/// The schema of serialized documents, in which a field that may be null is required.
pub(crate) fn of<D: Document + JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<Versioned<D>>()
}

/// Checks that a document conforms to the schema of its type.
pub(crate) fn conforms<D: Document + JsonSchema>(document: &D) {
    let schema = serde_json::to_value(of::<D>()).unwrap();
    let document = serde_json::to_value(Versioned(document)).unwrap();
    assert_eq!(faults(&schema, &document), Vec::<String>::new(), "{document}");
}

/// Checks that a schema equals its file in `plugin/schema`.
pub(crate) fn checked_in<D: Document + JsonSchema>(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(name);
    let text = serde_json::to_string_pretty(&of::<D>()).unwrap() + "\n";
    if env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == text,
        "{name} has drifted: run this test with UPDATE_SCHEMA=1"
    );
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use serde_json::{Value, json};

    use super::faults;

    #[test]
    fn the_reference_lists_every_kind() {
        let page = include_str!("../../../docs/src/reference/output.md");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
        let mut missing = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let schema: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            let kind = &schema["properties"]["kind"]["const"];
            let kind = kind
                .as_str()
                .unwrap_or_else(|| panic!("{} has no kind", path.display()));
            if !page
                .split(|c: char| !c.is_alphanumeric())
                .any(|word| word == kind)
            {
                missing.push(kind.to_owned());
            }
        }
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn rejects_values_that_the_schema_does_not_allow() {
        let read = json!({"type": "object", "properties": {"is": {"type": "string", "const": "read"}}, "required": ["is"]});
        let schema = json!({
            "type": "object",
            "properties": {
                "flat": {"type": "object", "properties": {"own": {"type": "string"}}, "oneOf": [read]},
                "kind": {"type": "string", "const": "K"},
                "count": {"type": ["integer", "null"], "minimum": 0},
                "level": {"$ref": "#/$defs/Level"},
                "names": {"type": "array", "items": {"type": "string"}},
                "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
                "closed": {"type": "object", "properties": {"a": true}, "additionalProperties": false},
                "few": {"type": "array", "minItems": 1, "uniqueItems": true},
                "state": {"oneOf": [
                    read,
                    {"type": "object", "properties": {"is": {"type": "string", "const": "failed"},
                        "why": {"type": "string"}}, "required": ["is", "why"]},
                ]},
            },
            "required": ["kind"],
            "$defs": {"Level": {"enum": ["low", "high"]}},
        });
        let none: &[&str] = &[];
        for (document, expected) in [
            (
                json!({"kind": "K", "count": 1, "level": "low", "names": ["a"], "state": {"is": "read"}}),
                none,
            ),
            (json!({"kind": "K", "count": null}), none),
            (json!({"kind": "K", "counts": {"a": 1}}), none),
            (
                json!({"kind": "K", "counts": {"a": "b"}}),
                &["/counts/a: \"b\", type \"integer\""],
            ),
            (json!({"kind": "K", "closed": {"a": 1}, "few": [1, 2]}), none),
            (
                json!({"kind": "K", "closed": {"b": 1}}),
                &[
                    "/closed/b: nothing is allowed here",
                    "/closed/b: the schema does not know it",
                ],
            ),
            (json!({"kind": "K", "few": []}), &["/few: [], minItems 1"]),
            (
                json!({"kind": "K", "few": [1, 2, 1]}),
                &["/few/2: repeated in the array"],
            ),
            (json!({}), &["/kind: missing"]),
            (json!({"kind": "L"}), &["/kind: \"L\", const \"K\""]),
            (json!({"kind": "K", "count": -1}), &["/count: -1, minimum 0"]),
            (
                json!({"kind": "K", "count": 1.5}),
                &["/count: 1.5, type [\"integer\",\"null\"]"],
            ),
            (
                json!({"kind": "K", "level": "mid"}),
                &["/level: \"mid\", enum [\"low\",\"high\"]"],
            ),
            (
                json!({"kind": "K", "names": ["a", 1]}),
                &["/names/1: 1, type \"string\""],
            ),
            (
                json!({"kind": "K", "stray": 1}),
                &["/stray: the schema does not know it"],
            ),
            (
                json!({"kind": "K", "state": {"is": "failed"}}),
                &["/state: 0 of oneOf hold for {\"is\":\"failed\"}"],
            ),
        ] {
            assert_eq!(faults(&schema, &document), expected, "{document}");
        }
        assert_eq!(
            faults(&json!({"not": {}}), &Value::Null),
            [": keyword not is not known"]
        );
    }
}
