//! The verdict on a control plane.

use serde::Serialize;

/// The verdict on one control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum Health {
    /// Nothing is wrong; a change may be under way.
    Healthy,
    /// Something is wrong.
    Degraded,
    /// What is asked for does not go on.
    Blocked,
    /// No controller has said.
    Unknown,
}

impl Health {
    /// As on the screen and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Degraded => "Degraded",
            Self::Blocked => "Blocked",
            Self::Unknown => "Unknown",
        }
    }
}
