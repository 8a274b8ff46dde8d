//! The debug bundle of a control plane: the files that a person sends to ask for help. It contains no secrets.
//!
//! - [`redaction`]: replaces all text of an object, except in fields that are known to contain no secret
//! - [`fields`]: these fields, for each kind
//! - [`flags`]: the flags of control plane components whose values are no secrets
//! - [`secret_text`]: finds tokens and keys in messages
//! - [`selection`]: the webhook configurations and Events that concern a control plane
//! - [`part`]: the files of a bundle, and their maximum sizes

mod fields;
mod flags;
pub mod part;
pub mod redaction;
mod secret_text;
pub mod selection;

pub use fields::is_secret;
pub use part::{Part, Unread};
pub use redaction::Redacted;
use serde_json::Value;

/// What a bundle contains instead of text that may be secret.
pub const REDACTED: &str = "<redacted>";

/// Replaces all text in a value. An empty text stays, because it says that a field is not set.
fn replace_text(value: Value) -> Value {
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

#[cfg(test)]
mod tests;
