//! The conditions of Hive's objects. They keep unknown fields, because a merge patch replaces the whole list of conditions.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::decode::parse_time;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Conditions(Vec<Value>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DesiredCondition<'c> {
    pub type_: &'c str,
    /// The desired status of the condition: `True`, `False` or `Unknown`.
    pub status: &'c str,
    pub reason: &'c str,
    pub message: &'c str,
}

impl<'de> Deserialize<'de> for Conditions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let conditions: Option<Vec<Value>> = Deserialize::deserialize(deserializer)?;
        Ok(Self(conditions.unwrap_or_default()))
    }
}

impl Conditions {
    /// The condition's status: `True`, `False` or `Unknown`. `None` if the condition is absent.
    pub fn status(&self, type_: &str) -> Option<&str> {
        self.field(type_, "status")
    }

    pub fn reason(&self, type_: &str) -> Option<&str> {
        self.field(type_, "reason")
    }

    pub fn message(&self, type_: &str) -> Option<&str> {
        self.field(type_, "message")
    }

    /// When the condition's status last changed. `None` if the condition has no valid time.
    pub fn last_transition_time(&self, type_: &str) -> Option<Timestamp> {
        parse_time(self.field(type_, "lastTransitionTime")?).ok()
    }

    pub fn has(&self, type_: &str) -> bool {
        self.find(type_).is_some()
    }

    /// Whether the condition already has the desired status, reason and message.
    pub fn matches(&self, desired: DesiredCondition<'_>) -> bool {
        self.status(desired.type_) == Some(desired.status)
            && self.reason(desired.type_) == Some(desired.reason)
            && self.message(desired.type_).unwrap_or_default() == desired.message
    }

    /// Returns a copy of the conditions in which the desired condition is set. `lastTransitionTime` changes
    /// only if the status of the condition changes.
    pub fn with_condition(&self, desired: DesiredCondition<'_>, now: Timestamp) -> Self {
        let mut conditions = self.0.clone();
        if !self.has(desired.type_) {
            conditions.push(json!({ "type": desired.type_ }));
        }
        let of_type = |condition: &&mut Value| is_of_type(condition, desired.type_);
        for current in conditions.iter_mut().filter(of_type) {
            let changes = text(current, "status") != Some(desired.status);
            let Value::Object(fields) = current else {
                continue;
            };
            if changes || !fields.contains_key("lastTransitionTime") {
                fields.insert("lastTransitionTime".to_owned(), whole_seconds(now).into());
            }
            for (field, text) in [
                ("status", desired.status),
                ("reason", desired.reason),
                ("message", desired.message),
            ] {
                fields.insert(field.to_owned(), text.into());
            }
        }
        Self(conditions)
    }

    /// Returns a copy of the conditions without those of this type.
    pub fn without_condition(&self, type_: &str) -> Self {
        let mut conditions = self.0.clone();
        conditions.retain(|condition| !is_of_type(condition, type_));
        Self(conditions)
    }

    pub fn into_value(self) -> Value {
        Value::Array(self.0)
    }

    fn find(&self, type_: &str) -> Option<&Value> {
        self.0.iter().find(|condition| is_of_type(condition, type_))
    }

    fn field(&self, type_: &str, name: &str) -> Option<&str> {
        text(self.find(type_)?, name)
    }
}

/// Kubernetes writes condition times without fractions of a second.
fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

fn is_of_type(condition: &Value, type_: &str) -> bool {
    text(condition, "type") == Some(type_)
}

fn text<'c>(condition: &'c Value, field: &str) -> Option<&'c str> {
    condition.get(field).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{Conditions, DesiredCondition};

    fn conditions(conditions: Value) -> Conditions {
        serde_json::from_value(conditions).expect("decodes")
    }

    #[test]
    fn a_change_keeps_other_conditions_and_unknown_fields() {
        let now = "2026-11-21T05:00:00.75Z".parse().expect("a time");
        let reserved = DesiredCondition {
            type_: "Available",
            status: "False",
            reason: "Reserved",
            message: "reserved",
        };
        let other = json!({"type": "Other", "status": "True", "note": 1});
        for (before, time) in [
            (
                json!({"type": "Available", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}),
                "2026-11-21T05:00:00Z",
            ),
            (
                json!({"type": "Available", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}),
                "2026-01-01T00:00:00Z",
            ),
            (
                json!({"type": "Available", "status": "False"}),
                "2026-11-21T05:00:00Z",
            ),
        ] {
            let mut before = before;
            before["observedGeneration"] = json!(3);
            let read = conditions(json!([other, before]));
            let after = read.with_condition(reserved, now);
            assert!(after.matches(reserved) && !read.matches(reserved));
            assert_eq!(
                after.into_value(),
                json!([other, {"type": "Available", "status": "False", "reason": "Reserved", "message": "reserved",
                    "lastTransitionTime": time, "observedGeneration": 3}])
            );
        }
        let never =
            json!([{"type": "Available", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"}]);
        assert_eq!(
            conditions(never).last_transition_time("Available"),
            Some(Timestamp::MAX)
        );
        let first = conditions(Value::Null).with_condition(reserved, now);
        assert_eq!(
            first.last_transition_time("Available"),
            "2026-11-21T05:00:00Z".parse().ok()
        );
    }
}
