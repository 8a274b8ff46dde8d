//! The two types of conditions that Hive uses.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A condition of a `ClusterDeploymentCustomization`: Kubernetes' `metav1.Condition`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// When the status of the condition last changed.
    #[cfg_attr(feature = "schema", schemars(with = "String", extend("format" = "date-time")))]
    pub last_transition_time: Timestamp,
    /// What the condition means, for people.
    #[cfg_attr(feature = "schema", schemars(length(max = 32768)))]
    pub message: String,
    /// The `metadata.generation` on which the condition is based.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("nullable" = false)))]
    pub observed_generation: Option<i64>,
    /// Why the condition has its status, for programs, in `CamelCase`.
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(min = 1, max = 1024),
            regex(pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
        )
    )]
    pub reason: String,
    /// The status of the condition: `True`, `False` or `Unknown`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["True", "False", "Unknown"])))]
    pub status: String,
    /// The type of the condition, in `CamelCase`.
    #[serde(rename = "type")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(max = 316),
            regex(
                pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
            )
        )
    )]
    pub kind: String,
}

/// A condition of a `ClusterPool`, `ClusterDeployment` or `ClusterClaim`: Hive's own type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HiveCondition {
    /// When Hive last checked the condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", extend("format" = "date-time")))]
    pub last_probe_time: Option<Timestamp>,
    /// When the status of the condition last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", extend("format" = "date-time")))]
    pub last_transition_time: Option<Timestamp>,
    /// What the condition means, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why the condition has its status, for programs, in `CamelCase`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The status of the condition: `True`, `False` or `Unknown`.
    pub status: String,
    /// The type of the condition, in `CamelCase`.
    #[serde(rename = "type")]
    pub kind: String,
}
