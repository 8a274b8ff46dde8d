//! One thing that is wrong, or under way.

use serde::Serialize;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Not as it should be: the control plane is not healthy.
    Fail,
    /// Could not be told.
    Unknown,
    /// Worth a look.
    Warn,
    /// Under way, as asked.
    Info,
}

impl Severity {
    /// As on the screen and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Info => "info",
        }
    }
}

/// One thing that is wrong, or under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Stable, kebab-case.
    pub id: &'static str,
    /// How much it weighs.
    pub severity: Severity,
    /// `Kind/name`.
    pub object: String,
    /// What is so, on one line.
    pub message: String,
    /// What to do about it, where we know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Finding {
    /// A finding about a control plane.
    pub fn of_control_plane(
        id: &'static str,
        severity: Severity,
        name: &str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            id,
            severity,
            object: format!("KubeadmControlPlane/{name}"),
            message: message.into(),
            hint: None,
        }
    }

    /// A finding about a Machine.
    pub fn of_machine(id: &'static str, severity: Severity, name: &str, message: impl Into<String>) -> Self {
        Self {
            id,
            severity,
            object: format!("Machine/{name}"),
            message: message.into(),
            hint: None,
        }
    }

    /// The same finding, with what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
