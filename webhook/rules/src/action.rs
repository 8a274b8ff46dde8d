//! The consequence of a finding.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::ControlPlaneSpec;

/// What happens when a rule finds a problem, from the mildest action to the severest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The rule is not applied.
    Off,
    /// The write is admitted; the finding is recorded in the audit log.
    Audit,
    /// The write is admitted with a warning.
    Warn,
    /// The write is denied.
    Deny,
}

impl Action {
    /// Returns the severest action for a problem that depends on the version: `Warn` if the spec has no valid version, as in a
    /// template, otherwise `Deny`.
    pub(crate) fn of_version(spec: &ControlPlaneSpec<'_>) -> Self {
        spec.minor().map_or(Self::Warn, |_| Self::Deny)
    }
}

/// Why a finding is only a warning although the action of its rule is to deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DowngradeReason {
    /// The old object already had the same problem.
    Unchanged,
    /// The object is a copy of an existing one.
    Copied,
    /// The control plane or its Cluster is paused.
    Paused,
    /// `clusterctl move` is about to delete the object.
    Moved,
    /// An annotation on the object overrides the rule.
    Overridden { until: Timestamp },
    /// The configuration selects the namespace in `warnOnly`.
    WarnOnly,
    /// The feature gates of Cluster API are unknown.
    GatesUnknown,
}

impl DowngradeReason {
    /// Whether the configuration can demand the permission to override from the user who makes the write. For an annotation, it
    /// demands the permission from the user who sets the annotation instead.
    pub const fn needs_permission(self) -> bool {
        matches!(self, Self::Paused | Self::Moved | Self::Copied)
    }

    /// Why the finding is only a warning, as a clause without a period.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Unchanged => "the old object has the same problem",
            Self::Copied => {
                "the object is a copy that clusterctl move or Hive makes; the webhook denies the object if its Cluster does \
                 not exist or is not paused"
            }
            Self::Paused => "the control plane or its Cluster is paused",
            Self::Moved => "clusterctl move has copied the object, and is about to delete it",
            Self::Overridden { .. } => "an annotation on the object overrides the rule",
            Self::GatesUnknown => {
                "lint knows the feature gates of Cluster API only from --configuration, and they are off by default"
            }
            Self::WarnOnly => "the configuration selects the namespace in warnOnly",
        }
    }
}
