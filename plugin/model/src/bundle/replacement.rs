//! Replaces text that may be secret.

use serde_json::Value;

/// What a bundle contains instead of text that may be secret.
pub const REDACTED: &str = "<redacted>";

/// Replaces all text in a value. An empty text stays, because it says that a field is not set.
pub(super) fn replace_text(value: Value) -> Value {
    match value {
        Value::String(text) if text.is_empty() => Value::String(text),
        Value::String(_) => Value::from(REDACTED),
        Value::Array(items) => Value::Array(items.into_iter().map(replace_text).collect()),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, replace_text(value)));
            Value::Object(fields.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}
