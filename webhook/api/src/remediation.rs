//! The annotations in which the control plane controller records remediations.

use jiff::Timestamp;
use serde::Deserialize;

use crate::decode::timestamp;

/// The value of the annotations `remediation-in-progress` and `remediation-for`, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remediation {
    /// The name of the Machine that the remediation deleted. Empty if the annotation cannot be decoded.
    #[serde(default)]
    pub machine: String,
    #[serde(default, deserialize_with = "timestamp")]
    pub timestamp: Option<Timestamp>,
    /// The number of retries since the first failure, including this remediation: 0 for the first
    /// remediation.
    #[serde(default)]
    pub retry_count: i64,
    /// Whether the annotation cannot be decoded. If it cannot, the controller stops with an error before it
    /// remediates a Machine.
    #[serde(skip)]
    pub is_malformed: bool,
}

impl Remediation {
    /// Decodes the value of the annotation. If that fails, the result is malformed and has no details. Like Cluster
    /// API, accepts `null`.
    pub(crate) fn from_annotation(value: &str) -> Self {
        serde_json::from_str(value).map_or_else(
            |_| Self {
                is_malformed: true,
                ..Self::default()
            },
            Option::unwrap_or_default,
        )
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::Remediation;

    #[test]
    fn an_annotation_counts_whatever_it_contains() {
        let remediation = |machine: &str, time: Option<&str>, retry_count| Remediation {
            machine: machine.to_owned(),
            timestamp: time.and_then(|time| time.parse().ok()),
            retry_count,
            is_malformed: false,
        };
        let malformed = || Remediation {
            is_malformed: true,
            ..Remediation::default()
        };
        for (value, expected) in [
            (
                r#"{"machine":"m1","timestamp":"2026-08-21T09:00:00Z","retryCount":2}"#,
                remediation("m1", Some("2026-08-21T09:00:00Z"), 2),
            ),
            (r#"{"machine":"m1"}"#, remediation("m1", None, 0)),
            (r#"{"machine":"m1","timestamp":null}"#, remediation("m1", None, 0)),
            (
                r#"{"machine":"m1","timestamp":"9999-12-31T23:59:59Z"}"#,
                Remediation {
                    timestamp: Some(Timestamp::MAX),
                    ..remediation("m1", None, 0)
                },
            ),
            ("{}", remediation("", None, 0)),
            ("null", remediation("", None, 0)),
            ("garbage", malformed()),
            ("", malformed()),
            (r#"{"timestamp":""}"#, malformed()),
            (r#"{"retryCount":"2"}"#, malformed()),
        ] {
            assert_eq!(Remediation::from_annotation(value), expected, "{value}");
        }
    }
}
