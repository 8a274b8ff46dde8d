//! Validates a document against a JSON schema. The integration tests validate real documents with this file.
//!
//! Alternative considered (2026-11): the crate jsonschema validates all of JSON Schema, but even without
//! default features it brings about forty crates, such as big numbers and URI parsing. Our schemas and that of SARIF need
//! twenty keywords. [`faults`] supports these, and reports any other keyword as a fault.

use serde_json::{Map, Value};

/// The differences between a document and its schema, each with its path.
pub(crate) fn faults(schema: &Value, document: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    Validator { root: schema }.value("", schema, document, true, &mut faults);
    faults
}

struct Validator<'s> {
    root: &'s Value,
}

impl Validator<'_> {
    /// `is_whole` says whether the schema describes the whole value, and not only a part that is flattened
    /// into another schema.
    fn value(&self, path: &str, schema: &Value, value: &Value, is_whole: bool, faults: &mut Vec<String>) {
        let Value::Object(keywords) = schema else {
            if *schema != Value::Bool(true) {
                faults.push(format!("{path}: nothing is allowed here"));
            }
            return;
        };
        let has_properties = keywords.contains_key("properties");
        for (keyword, expected) in keywords {
            match (keyword.as_str(), expected) {
                ("$ref", Value::String(reference)) => {
                    let schema = resolve(self.root, reference);
                    self.value(path, schema, value, is_whole && !has_properties, faults);
                }
                ("anyOf" | "oneOf", Value::Array(schemas)) => {
                    let matching = schemas.iter().filter(|schema| {
                        let mut faults = Vec::new();
                        self.value(path, schema, value, is_whole && !has_properties, &mut faults);
                        faults.is_empty()
                    });
                    let matching = matching.count();
                    if matching == 0 || (keyword == "oneOf" && matching > 1) {
                        faults.push(format!("{path}: {matching} of {keyword} hold for {value}"));
                    }
                }
                ("additionalProperties", schema) => {
                    let declared = keywords.get("properties");
                    let fields = value.as_object().into_iter().flatten();
                    let others = fields
                        .filter(|(name, _)| declared.is_none_or(|declared| declared.get(name).is_none()));
                    for (name, value) in others {
                        self.value(&format!("{path}/{name}"), schema, value, true, faults);
                    }
                }
                _ => self.keyword(path, keyword, expected, value, faults),
            }
        }
        if let (true, true, Value::Object(fields)) = (is_whole, has_properties, value) {
            let mut known = Vec::new();
            declared(self.root, schema, &mut known);
            let stray = fields.keys().filter(|name| !known.contains(name));
            faults.extend(stray.map(|name| format!("{path}/{name}: the schema does not know it")));
        }
    }

    fn keyword(&self, path: &str, keyword: &str, expected: &Value, value: &Value, faults: &mut Vec<String>) {
        match (keyword, expected) {
            (
                "$schema" | "$id" | "$defs" | "definitions" | "title" | "description" | "format" | "default",
                _,
            ) => {}
            ("type", _) if is_of_type(expected, value) => {}
            ("const", _) if expected == value => {}
            ("enum", Value::Array(allowed)) if allowed.contains(value) => {}
            ("minimum", _)
                if value
                    .as_f64()
                    .is_none_or(|number| Some(number) >= expected.as_f64()) => {}
            ("minItems", _)
                if value
                    .as_array()
                    .is_none_or(|items| Some(items.len() as u64) >= expected.as_u64()) => {}
            ("uniqueItems", Value::Bool(is_unique)) => {
                let items = value.as_array().into_iter().flatten();
                let is_repeated =
                    |index: usize, item: &Value| items.clone().take(index).any(|other| other == item);
                let repeated = items
                    .clone()
                    .enumerate()
                    .find(|(index, item)| is_repeated(*index, item));
                if let (true, Some((index, _))) = (*is_unique, repeated) {
                    faults.push(format!("{path}/{index}: repeated in the array"));
                }
            }
            ("required", Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str);
                let missing = names.filter(|name| value.get(name).is_none());
                faults.extend(missing.map(|name| format!("{path}/{name}: missing")));
            }
            ("properties", Value::Object(properties)) => {
                for (name, schema) in properties {
                    if let Some(value) = value.get(name) {
                        self.value(&format!("{path}/{name}"), schema, value, true, faults);
                    }
                }
            }
            ("items", schema) => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    self.value(&format!("{path}/{index}"), schema, item, true, faults);
                }
            }
            ("type" | "const" | "enum" | "minimum" | "minItems", _) => {
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

/// The names of all properties that a schema declares, including those of schemas that are flattened into it.
fn declared<'s>(root: &'s Value, schema: &'s Value, names: &mut Vec<&'s String>) {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        declared(root, resolve(root, reference), names);
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    names.extend(properties.into_iter().flat_map(Map::keys));
    for keyword in ["anyOf", "oneOf"] {
        let parts = schema.get(keyword).and_then(Value::as_array);
        for part in parts.into_iter().flatten() {
            declared(root, part, names);
        }
    }
}
