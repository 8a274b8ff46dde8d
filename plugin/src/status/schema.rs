//! The JSON schemas of the documents, and documents held against them.
//!
//! Weighed (2026-11): the crate jsonschema validates all of JSON Schema and brings some forty crates, big numbers and
//! URI parsing among them, without default features. Our schemas need a dozen keywords: [`faults`] knows those, and
//! takes any other for a fault.

use serde_json::{Map, Value};

/// What about a document is not as a schema says, each with its path.
pub(super) fn faults(schema: &Value, document: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    Validator { root: schema }.value("", schema, document, &mut faults);
    faults
}

struct Validator<'s> {
    root: &'s Value,
}

impl Validator<'_> {
    fn value(&self, path: &str, schema: &Value, value: &Value, faults: &mut Vec<String>) {
        let Value::Object(keywords) = schema else {
            if *schema != Value::Bool(true) {
                faults.push(format!("{path}: nothing is allowed here"));
            }
            return;
        };
        for (keyword, expected) in keywords {
            self.keyword(path, keyword, expected, value, faults);
        }
        if let (Some(properties), Value::Object(fields)) = (declared(self.root, schema), value) {
            let stray = fields.keys().filter(|name| !properties.contains(name));
            faults.extend(stray.map(|name| format!("{path}/{name}: the schema does not know it")));
        }
    }

    fn keyword(&self, path: &str, keyword: &str, expected: &Value, value: &Value, faults: &mut Vec<String>) {
        match (keyword, expected) {
            ("$schema" | "$defs" | "title" | "description" | "format" | "default", _) => {}
            ("$ref", Value::String(reference)) => {
                self.value(path, resolve(self.root, reference), value, faults);
            }
            ("type", _) if is_of_type(expected, value) => {}
            ("const", _) if expected == value => {}
            ("enum", Value::Array(allowed)) if allowed.contains(value) => {}
            ("minimum", _) if value.as_f64().is_none_or(|number| Some(number) >= expected.as_f64()) => {}
            ("required", Value::Array(names)) => {
                let missing = names
                    .iter()
                    .filter_map(Value::as_str)
                    .filter(|name| value.get(name).is_none());
                faults.extend(missing.map(|name| format!("{path}/{name}: missing")));
            }
            ("properties", Value::Object(properties)) => {
                for (name, schema) in properties {
                    if let Some(value) = value.get(name) {
                        self.value(&format!("{path}/{name}"), schema, value, faults);
                    }
                }
            }
            ("items", schema) => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    self.value(&format!("{path}/{index}"), schema, item, faults);
                }
            }
            ("anyOf" | "oneOf", Value::Array(schemas)) => {
                let matching = schemas.iter().filter(|schema| {
                    let mut faults = Vec::new();
                    self.value(path, schema, value, &mut faults);
                    faults.is_empty()
                });
                let matching = matching.count();
                if matching == 0 || (keyword == "oneOf" && matching > 1) {
                    faults.push(format!("{path}: {matching} of {keyword} hold for {value}"));
                }
            }
            ("type" | "const" | "enum" | "minimum", _) => {
                faults.push(format!("{path}: {value}, {keyword} {expected}"));
            }
            _ => faults.push(format!("{path}: keyword {keyword} is not known")),
        }
    }
}

fn resolve<'s>(root: &'s Value, reference: &str) -> &'s Value {
    let pointer = reference
        .strip_prefix('#')
        .expect("a reference within the document");
    root.pointer(pointer).expect("a definition")
}

fn is_of_type(expected: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().expect("the name of a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("type {other} is not known"),
    };
    match expected {
        Value::Array(names) => names.iter().any(is),
        name => is(name),
    }
}

/// Names of all properties that a schema of objects declares, in itself and in what it is put together from; none for
/// a schema that only refers to another. What is flattened into an object stands in `anyOf` or `oneOf` beside its own
/// properties, or in what it refers to.
fn declared<'s>(root: &'s Value, schema: &'s Value) -> Option<Vec<&'s String>> {
    fn gather<'s>(root: &'s Value, schema: &'s Value, names: &mut Vec<&'s String>) {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            gather(root, resolve(root, reference), names);
        }
        names.extend(
            schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flat_map(Map::keys),
        );
        for keyword in ["anyOf", "oneOf"] {
            for part in schema
                .get(keyword)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                gather(root, part, names);
            }
        }
    }
    // Inside of a `oneOf` that is flattened, the other properties are those of the object around it.
    schema.get("properties").filter(|_| !is_variant(schema))?;
    let mut names = Vec::new();
    gather(root, schema, &mut names);
    Some(names)
}

fn is_variant(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut tags = properties.into_iter().flat_map(Map::values);
    tags.any(|property| property.get("const").is_some())
        && schema
            .get("properties")
            .and_then(|properties| properties.get("apiVersion"))
            .is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::faults;

    #[test]
    fn rejects_what_a_schema_does_not_say() {
        let schema = json!({
            "type": "object",
            "properties": {
                "kind": {"type": "string", "const": "K"},
                "count": {"type": ["integer", "null"], "minimum": 0},
                "level": {"$ref": "#/$defs/Level"},
                "names": {"type": "array", "items": {"type": "string"}},
                "state": {"oneOf": [
                    {"type": "object", "properties": {"is": {"type": "string", "const": "read"}}, "required": ["is"]},
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
