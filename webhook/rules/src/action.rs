//! The consequence of a finding.

use serde::{Deserialize, Serialize};

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
