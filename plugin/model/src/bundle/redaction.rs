//! Replaces all text of an object, except in fields that are known to contain no secret. Numbers, true and false, and the
//! names of fields stay.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::bundle::{
    REDACTED,
    fields::{self, EVERYTHING, Treatment},
    flags, replace_text,
    secret_text::without_secrets,
};

/// The metadata field that says which client has written which fields. A bundle leaves it out, because it is long, and says
/// nothing about a problem.
const MANAGED_FIELDS: &str = "managedFields";
const ANNOTATIONS: &str = "annotations";

/// JSON without secrets. A bundle takes nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Redacted(Value);

impl Redacted {
    /// Redacts an object. Its `apiVersion` and `kind` decide which text stays.
    pub fn object(object: Value) -> Self {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let paths = fields::paths(text("apiVersion"), text("kind"));
        Self(redact(object, &paths))
    }

    /// Redacts a document of this program. Its fields contain no secrets, but its messages may quote controllers and servers.
    pub fn document(document: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self(redact(serde_json::to_value(document)?, &[EVERYTHING])))
    }

    pub const fn value(&self) -> &Value {
        &self.0
    }
}

/// Redacts a value. `paths` are the paths of text that stays, relative to the value.
fn redact(value: Value, paths: &[&'static str]) -> Value {
    if let Some(treatment) = paths.iter().find_map(|path| Treatment::at_end_of(path)) {
        return treat(treatment, value);
    }
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| {
                let value = redact(value, &below(paths, &key));
                (key, value)
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => {
            let paths = below(paths, "[]");
            Value::Array(items.into_iter().map(|item| redact(item, &paths)).collect())
        }
        Value::String(text) if paths.iter().any(|path| path.is_empty() || *path == EVERYTHING) => {
            Value::String(without_secrets(&text).into_owned())
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => replace_text(value),
    }
}

fn treat(treatment: Treatment, value: Value) -> Value {
    match treatment {
        Treatment::Metadata => redact_metadata(value),
        Treatment::Kubeadm => redact(value, fields::KUBEADM_CONFIG_SPEC),
        Treatment::Machine => redact(value, fields::MACHINE_SPEC),
        Treatment::Flags => flags::redact_flags(value),
        Treatment::Command => flags::redact_command(value),
        Treatment::Arguments => flags::redact_arguments(value),
        Treatment::Opaque => Value::from(REDACTED),
    }
}

/// The rest of each path below this key. A path that has already ended does not apply to a key.
fn below(paths: &[&'static str], key: &str) -> Vec<&'static str> {
    let rest = |path: &&'static str| {
        if *path == EVERYTHING {
            return Some(EVERYTHING);
        }
        let (first, rest) = path.split_once('.').unwrap_or((*path, ""));
        let is_here = !first.is_empty() && (first == key || (first == "*" && key != "[]"));
        is_here.then_some(rest)
    };
    paths.iter().filter_map(rest).collect()
}

fn redact_metadata(metadata: Value) -> Value {
    let Value::Object(fields) = metadata else {
        return replace_text(metadata);
    };
    let fields = fields.into_iter().filter(|(key, _)| key != MANAGED_FIELDS);
    let fields = fields.map(|(key, value)| {
        let value = if key == ANNOTATIONS {
            redact_annotations(value)
        } else {
            redact(value, &below(fields::METADATA, &key))
        };
        (key, value)
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

fn redact_annotations(annotations: Value) -> Value {
    let Value::Object(annotations) = annotations else {
        return replace_text(annotations);
    };
    let annotations = annotations.into_iter().map(|(name, value)| {
        let value = if fields::is_harmless(&name) {
            value
        } else {
            replace_text(value)
        };
        (name, value)
    });
    Value::Object(annotations.collect::<Map<_, _>>())
}
