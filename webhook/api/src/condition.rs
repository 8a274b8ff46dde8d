//! Conditions of Cluster API's objects.

use std::fmt;

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, Visitor},
};

use crate::decode::timestamp;

/// A condition of a Cluster API object, with the fields of v1beta2. Decoding drops the severity of a v1beta1 condition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type of the condition, such as `Available` or `EtcdClusterHealthy`.
    #[serde(rename = "type")]
    pub type_: String,
    pub status: ConditionStatus,
    /// The reason for the status: one word in camel case. May be empty.
    #[serde(default)]
    pub reason: String,
    /// An explanation of the status for people. May have several lines, or be empty.
    #[serde(default)]
    pub message: String,
    /// When the status of the condition last changed. `None` if the controller did not write the time.
    #[serde(
        default,
        deserialize_with = "timestamp",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_transition_time: Option<Timestamp>,
    /// The `metadata.generation` from which the controller computed the condition. `None` in a v1beta1 condition.
    #[serde(default, skip_serializing)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub observed_generation: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ConditionStatus {
    True,
    False,
    /// The controller cannot tell whether the condition holds.
    Unknown,
}

/// This implementation is not derived: for a derived enum, `serde_json` reports a value that is not a string as a
/// syntax error, and does not name the field.
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

    /// Joins the lines of the condition's message into one line, without list bullets. If the message is empty, returns
    /// the reason.
    pub fn message_or_reason(&self) -> String {
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

/// Returns the v1beta2 conditions of a status if it has any, otherwise its v1beta1 conditions.
pub(crate) fn conditions_of(
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
                observed_generation: None,
            };
            assert_eq!(condition.message_or_reason(), line);
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
