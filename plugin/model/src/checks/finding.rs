//! The findings of a check, and functions that create them.

use jiff::Timestamp;
use kcp_api::{Condition, KubeadmControlPlane, Object as _};
use serde::{Deserialize, Serialize};

use crate::{
    problem::Problem,
    snapshot::{Failure, Reading},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "Outcome"))]
#[serde(rename_all = "camelCase")]
pub enum CheckOutcome {
    Pass,
    /// The check does not apply, or a flag excludes a source that the check needs.
    Skipped,
    /// The finding describes a normal state: one that a person chose and that stops no controller, or a step of a change.
    Info,
    /// A problem that does not make the control plane unhealthy.
    Warn,
    /// A source that the check needs could not be read.
    Unknown,
    /// A problem that makes the control plane unhealthy.
    Fail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub outcome: CheckOutcome,
    /// The objects that the finding is about, as `Kind/name`. There is at least one.
    pub objects: Vec<String>,
    /// The message of the finding, on a single line.
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// When the finding became true. Absent if no object contains this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl CheckOutcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skipped => "skipped",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Unknown => "unknown",
            Self::Fail => "fail",
        }
    }
}

/// How messages name the workload cluster if it is the source that could not be read.
pub const WORKLOAD: &str = "the workload cluster";

/// What a check returns: its findings (none if the check passes), or why it has no result.
pub type CheckResult = Result<Vec<Finding>, NoResult>;

/// Why a check has no result. This does not affect the verdict, because another check reports the source that could not
/// be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoResult {
    /// The check does not apply, or a flag excludes a source that the check needs.
    Skipped(String),
    Unknown(String),
}

impl NoResult {
    pub fn reason(&self) -> &str {
        match self {
            Self::Skipped(reason) | Self::Unknown(reason) => reason,
        }
    }

    pub fn skipped(reason: impl Into<String>) -> Self {
        Self::Skipped(reason.into())
    }

    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown(reason.into())
    }
}

/// Returns what was read from a source, or why the check has no result.
pub fn require<'r, T>(reading: &'r Reading<T>, what: &str) -> Result<&'r T, NoResult> {
    match reading {
        Reading::Read(part) => Ok(part),
        Reading::Excluded { flag } => Err(NoResult::Skipped(format!("{what}: excluded by {flag}"))),
        Reading::NotYet => Err(NoResult::Skipped(format!(
            "{what}: no control plane Machine is running yet"
        ))),
        Reading::OutOfReach(failure) => Err(NoResult::Unknown(format!(
            "{what}: unreachable from this machine: {}",
            one_line(&failure.message)
        ))),
        Reading::Failed(_) => Err(NoResult::Unknown(format!("could not read {what}"))),
    }
}

/// Returns the findings from a second source if the first source has no result. If the first source failed and the
/// second has no findings, the check stays unknown.
pub fn fall_back_to(no_result: NoResult, findings: Vec<Finding>) -> CheckResult {
    match no_result {
        NoResult::Unknown(_) if findings.is_empty() => Err(no_result),
        NoResult::Unknown(_) | NoResult::Skipped(_) => Ok(findings),
    }
}

pub fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

impl Finding {
    pub fn new(outcome: CheckOutcome, object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self {
            outcome,
            objects: vec![object.into()],
            message: one_line(message.as_ref()),
            hint: None,
            since: None,
        }
    }

    /// A finding that a problem of the catalogue explains.
    pub fn about(problem: &Problem, outcome: CheckOutcome, control_plane: &KubeadmControlPlane) -> Self {
        Self::new(outcome, problem.object(control_plane), problem.message())
            .with_optional_hint(problem.hint(control_plane.namespace(), control_plane.name()))
    }

    pub fn fail(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::new(CheckOutcome::Fail, object, message)
    }

    pub fn warn(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::new(CheckOutcome::Warn, object, message)
    }

    pub fn info(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::new(CheckOutcome::Info, object, message)
    }

    pub fn unknown(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::new(CheckOutcome::Unknown, object, message)
    }

    pub fn from_failure(failure: &Failure) -> Self {
        Self::unknown(&failure.object, &failure.message).with_optional_hint(failure.hint.as_ref())
    }

    /// The finding without its hint, on one line.
    pub fn line(&self) -> String {
        format!(
            "{}: {}: {}",
            self.outcome.as_str(),
            self.objects.join(", "),
            self.message
        )
    }

    pub fn with_object(mut self, object: impl Into<String>) -> Self {
        let object = object.into();
        if !self.objects.contains(&object) {
            self.objects.push(object);
        }
        self
    }

    pub fn with_optional_hint(self, hint: Option<impl AsRef<str>>) -> Self {
        match hint {
            Some(hint) => self.with_hint(hint),
            None => self,
        }
    }

    pub fn with_since(self, since: Option<Timestamp>) -> Self {
        Self { since, ..self }
    }

    /// Sets `since` to the time at which the status of the condition last changed.
    pub fn with_transition_time(self, condition: &Condition) -> Self {
        self.with_since(condition.last_transition_time)
    }

    pub fn with_hint(mut self, hint: impl AsRef<str>) -> Self {
        self.hint = Some(one_line(hint.as_ref()));
        self
    }

    /// Adds to each command in the hint that needs the controller that the user must first resume `paused`, such as `the Cluster`.
    /// While the control plane is paused, the plugin refuses these commands.
    pub fn resume_first(&mut self, paused: &str) {
        const OF_CONTROLLER: [&str; 4] = [
            " machine replace ",
            " machine remediate ",
            " rollout start ",
            " kcp reconcile ",
        ];
        let Some(hint) = &mut self.hint else { return };
        let clauses = hint.split("; ").map(|clause| {
            let start = ["or ", "then "]
                .into_iter()
                .find(|start| clause.starts_with(start));
            let start = start.unwrap_or_default();
            let way = clause.strip_prefix(start).unwrap_or(clause);
            if OF_CONTROLLER.iter().any(|command| way.contains(command)) {
                format!("{start}resume {paused}, and {way}")
            } else {
                clause.to_owned()
            }
        });
        *hint = clauses.collect::<Vec<_>>().join("; ");
    }
}

pub fn machine_object(name: &str) -> String {
    format!("Machine/{name}")
}

pub fn node_object(name: &str) -> String {
    format!("Node/{name}")
}

#[cfg(test)]
mod tests {
    use super::{NoResult, fall_back_to, one_line, require};
    use crate::{
        checks::finding::Finding,
        snapshot::{Failure, Reading},
    };

    #[test]
    fn what_is_missing_is_told_apart() {
        let failure = Failure {
            object: "Node".to_owned(),
            message: "a\nb".to_owned(),
            hint: None,
            ..Failure::default()
        };
        let cases: [(Reading<u8>, Result<&u8, NoResult>); 5] = [
            (Reading::Read(1), Ok(&1)),
            (
                Reading::Excluded { flag: "--no-etcd" },
                Err(NoResult::skipped("etcd: excluded by --no-etcd")),
            ),
            (
                Reading::NotYet,
                Err(NoResult::skipped("etcd: no control plane Machine is running yet")),
            ),
            (
                Reading::OutOfReach(failure.clone()),
                Err(NoResult::unknown("etcd: unreachable from this machine: a; b")),
            ),
            (
                Reading::Failed(failure),
                Err(NoResult::unknown("could not read etcd")),
            ),
        ];
        for (reading, expected) in &cases {
            assert_eq!(require(reading, "etcd"), *expected);
        }
    }

    #[test]
    fn another_source_makes_up_for_a_flag_alone() {
        let found = vec![Finding::fail("Machine/m1", "dead")];
        let (skipped, unknown) = (NoResult::skipped("flag"), NoResult::unknown("failed"));
        assert_eq!(fall_back_to(skipped.clone(), vec![]), Ok(vec![]));
        assert_eq!(fall_back_to(skipped, found.clone()), Ok(found.clone()));
        assert_eq!(fall_back_to(unknown.clone(), vec![]), Err(unknown.clone()));
        assert_eq!(fall_back_to(unknown, found.clone()), Ok(found));
    }

    #[test]
    fn lines_are_joined() {
        assert_eq!(one_line("a\r\n\n  b\n"), "a; b");
    }
}
