//! What controllers say of an object.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A condition. Of v1beta1's own kind too: what that has beyond these fields is not needed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `Available`, `EtcdClusterHealthy`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it is so.
    pub status: ConditionStatus,
    /// One word.
    #[serde(default)]
    pub reason: String,
    /// For people; may have several lines.
    #[serde(default)]
    pub message: String,
    /// Since when it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// The controller cannot tell.
    #[serde(other)]
    Unknown,
}

impl ConditionStatus {
    /// As in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl Condition {
    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }

    /// Whether it does not hold.
    pub fn is_false(&self) -> bool {
        self.status == ConditionStatus::False
    }

    /// The message on one line, list marks taken out; the reason where there is no message.
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
        // A line that ends in a colon introduces the next.
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

/// The condition of a type.
pub fn find<'c>(conditions: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

#[cfg(test)]
mod tests {
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
                kind: "EtcdClusterHealthy".to_owned(),
                status: ConditionStatus::False,
                reason: "NotHealthy".to_owned(),
                message: message.to_owned(),
                last_transition_time: None,
            };
            assert_eq!(condition.one_line(), line);
        }
    }
}
