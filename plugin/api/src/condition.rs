//! Conditions of Cluster API's objects.

use std::fmt;

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, Visitor},
};

use crate::decode::timestamp;

/// A condition as v1beta2 has it; the severity of a v1beta1 condition is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `Available`, `EtcdClusterHealthy`, …
    #[serde(rename = "type")]
    pub type_: String,
    pub status: ConditionStatus,
    /// One word in camel case.
    #[serde(default)]
    pub reason: String,
    /// Human-readable; may have several lines.
    #[serde(default)]
    pub message: String,
    /// When the status last changed.
    #[serde(
        default,
        deserialize_with = "timestamp",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_transition_time: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ConditionStatus {
    True,
    False,
    /// The controller cannot tell whether the condition holds.
    Unknown,
}

/// Written by hand because `serde_json` reports a non-string value for a derived enum as a syntax error without the
/// field.
impl<'de> Deserialize<'de> for ConditionStatus {
    fn deserialize<D: Deserializer<'de>>(status: D) -> Result<Self, D::Error> {
        struct StatusVisitor;

        impl Visitor<'_> for StatusVisitor {
            type Value = ConditionStatus;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, status: &str) -> Result<ConditionStatus, E> {
                Ok(match status {
                    "True" => ConditionStatus::True,
                    "False" => ConditionStatus::False,
                    _ => ConditionStatus::Unknown,
                })
            }
        }

        status.deserialize_str(StatusVisitor)
    }
}

impl ConditionStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl Condition {
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }

    pub fn is_false(&self) -> bool {
        self.status == ConditionStatus::False
    }

    /// The message on one line, without list bullets; the reason if the message is empty.
    pub fn one_line(&self) -> String {
        let lines: Vec<&str> = self
            .message
            .lines()
            .map(|line| line.trim().trim_start_matches("* ").trim())
            .filter(|line| !line.is_empty())
            .collect();
        if lines.is_empty() {
            return self.reason.clone();
        }
        // A line that ends in a colon is a heading for the next line.
        let mut text = String::new();
        for line in lines {
            if !text.is_empty() {
                text.push_str(if text.ends_with(':') { " " } else { "; " });
            }
            text.push_str(line);
        }
        text
    }
}

pub fn find<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// `status.v1beta2`: the v1beta2 fields of an object that is served as v1beta1.
#[derive(Default, Deserialize)]
pub(crate) struct V1Beta2Status {
    conditions: Option<Vec<Condition>>,
}

/// The v1beta2 conditions if the object has any, otherwise the v1beta1 conditions.
pub(crate) fn from_status(
    conditions: Option<Vec<Condition>>,
    v1beta2: Option<V1Beta2Status>,
) -> Vec<Condition> {
    let v1beta2 = v1beta2.and_then(|status| status.conditions);
    v1beta2.or(conditions).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Condition, ConditionStatus};

    #[test]
    fn a_message_of_several_lines_fits_on_one() {
        for (message, line) in [
            ("", "NotHealthy"),
            ("waiting", "waiting"),
            (
                "* Machine n1:\n  * EtcdMemberHealthy: Waiting for learner\n* Machine n2: gone",
                "Machine n1: EtcdMemberHealthy: Waiting for learner; Machine n2: gone",
            ),
        ] {
            let condition = Condition {
                type_: "EtcdClusterHealthy".to_owned(),
                status: ConditionStatus::False,
                reason: "NotHealthy".to_owned(),
                message: message.to_owned(),
                last_transition_time: None,
            };
            assert_eq!(condition.one_line(), line);
        }
    }

    #[test]
    fn a_status_that_we_do_not_know_is_unknown() {
        for (status, expected) in [
            ("True", ConditionStatus::True),
            ("False", ConditionStatus::False),
            ("Unknown", ConditionStatus::Unknown),
            ("Maybe", ConditionStatus::Unknown),
        ] {
            let condition: Condition =
                serde_json::from_value(json!({"type": "Ready", "status": status})).expect("decodes");
            assert_eq!(condition.status, expected);
        }
    }
}
