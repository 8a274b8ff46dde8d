//! The metadata and the conditions of an object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub finalizers: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Metadata {
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }

    /// Whether a deleted object waits for this finalizer alone.
    pub fn waits_only_for(&self, finalizer: &str) -> bool {
        self.is_deleting() && matches!(self.finalizers.as_slice(), [only] if only == finalizer)
    }
}

/// The conditions of an object as they are: a patch replaces the whole list and must keep unknown fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(Vec<Value>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'c> {
    pub kind: &'c str,
    /// `True`, `False` or `Unknown`.
    pub status: &'c str,
    pub reason: &'c str,
    pub message: &'c str,
}

impl<'de> Deserialize<'de> for Conditions {
    /// Null means no conditions.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let conditions: Option<Vec<Value>> = Deserialize::deserialize(deserializer)?;
        Ok(Self(conditions.unwrap_or_default()))
    }
}

impl Conditions {
    /// `True`, `False` or `Unknown`; none without such a condition.
    pub fn status(&self, kind: &str) -> Option<&str> {
        self.field(kind, "status")
    }

    pub fn reason(&self, kind: &str) -> Option<&str> {
        self.field(kind, "reason")
    }

    pub fn message(&self, kind: &str) -> Option<&str> {
        self.field(kind, "message")
    }

    /// Since when it has its status.
    pub fn since(&self, kind: &str) -> Option<Timestamp> {
        self.field(kind, "lastTransitionTime")?.parse().ok()
    }

    pub fn has(&self, kind: &str) -> bool {
        self.find(kind).is_some()
    }

    /// Whether the condition already has this status, reason and message.
    pub fn says(&self, condition: Condition<'_>) -> bool {
        self.status(condition.kind) == Some(condition.status)
            && self.reason(condition.kind) == Some(condition.reason)
            && self.message(condition.kind).unwrap_or_default() == condition.message
    }

    /// All conditions, with this one added or changed. Unknown fields stay.
    pub fn with(&self, condition: Condition<'_>, now: Timestamp) -> Self {
        let mut conditions = self.0.clone();
        if !self.has(condition.kind) {
            conditions.push(json!({ "type": condition.kind }));
        }
        let of_that_kind = |other: &&mut Value| is_kind(other, condition.kind);
        for current in conditions.iter_mut().filter(of_that_kind) {
            let changes = text(current, "status") != Some(condition.status);
            let Value::Object(fields) = current else {
                continue;
            };
            if changes || !fields.contains_key("lastTransitionTime") {
                fields.insert("lastTransitionTime".to_owned(), seconds(now).into());
            }
            for (field, text) in [
                ("status", condition.status),
                ("reason", condition.reason),
                ("message", condition.message),
            ] {
                fields.insert(field.to_owned(), text.into());
            }
        }
        Self(conditions)
    }

    /// All conditions, this one without a time, so that the next change sets it.
    pub fn undated(&self, kind: &str) -> Self {
        let mut conditions = self.0.clone();
        for condition in conditions.iter_mut().filter(|condition| is_kind(condition, kind)) {
            if let Value::Object(fields) = condition {
                fields.remove("lastTransitionTime");
            }
        }
        Self(conditions)
    }

    pub fn into_value(self) -> Value {
        Value::Array(self.0)
    }

    fn find(&self, kind: &str) -> Option<&Value> {
        self.0.iter().find(|condition| is_kind(condition, kind))
    }

    fn field(&self, kind: &str, name: &str) -> Option<&str> {
        text(self.find(kind)?, name)
    }
}

/// Kubernetes' times have no fractions of a second.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

fn is_kind(condition: &Value, kind: &str) -> bool {
    text(condition, "type") == Some(kind)
}

fn text<'c>(condition: &'c Value, field: &str) -> Option<&'c str> {
    condition.get(field).and_then(Value::as_str)
}
