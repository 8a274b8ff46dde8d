//! Types that exist only for the schemas of Hive's CRDs: for fields that this project reads as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::LocalReference;

/// A condition of a `ClusterDeploymentCustomization`: Kubernetes' `metav1.Condition`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// When the status of the condition last changed.
    pub last_transition_time: Timestamp,
    /// What the condition means, for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// The `metadata.generation` on which the condition is based.
    #[schemars(range(min = 0), extend("nullable" = false))]
    pub observed_generation: Option<i64>,
    /// Why the condition has its status, for programs, in `CamelCase`.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: String,
    /// The status of the condition: `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// The type of the condition, in `CamelCase`.
    #[serde(rename = "type")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub kind: String,
}

/// A condition of a `ClusterPool`, `ClusterDeployment` or `ClusterClaim`: Hive's own type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HiveCondition {
    /// When Hive last checked the condition.
    pub last_probe_time: Option<Timestamp>,
    /// When the status of the condition last changed.
    pub last_transition_time: Option<Timestamp>,
    /// What the condition means, for people.
    pub message: Option<String>,
    /// Why the condition has its status, for programs, in `CamelCase`.
    pub reason: Option<String>,
    /// The status of the condition: `True`, `False` or `Unknown`.
    pub status: String,
    /// The type of the condition, in `CamelCase`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// The lease on a customization, and the result of its last use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomizationStatus {
    /// The `ClusterDeployment` that holds the lease.
    pub cluster_deployment_ref: Option<LocalReference>,
    /// The pool for which the customization is leased.
    pub cluster_pool_ref: Option<LocalReference>,
    /// The conditions, such as `Available` and `ApplySucceeded`.
    pub conditions: Option<Vec<Condition>>,
    /// The install-config that was last generated with the patches.
    pub last_applied_configuration: Option<String>,
}
