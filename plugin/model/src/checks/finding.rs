//! What a check finds.

use serde::Serialize;

use crate::snapshot::{Failure, Reading};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "Outcome"))]
#[serde(rename_all = "camelCase")]
pub enum CheckOutcome {
    Pass,
    /// It does not apply, or a flag excludes what it needs.
    Skipped,
    /// A change in progress, such as a rollout.
    Info,
    /// Does not make the control plane unhealthy.
    Warn,
    Unknown,
    Fail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub outcome: CheckOutcome,
    /// As `Kind/name`, at least one.
    pub objects: Vec<String>,
    /// One line.
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
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

/// The findings, none if the check passes; or why it could not be judged.
pub type Judgement = Result<Vec<Finding>, Unjudged>;

/// Why a check has no result. It does not change the verdict: the source that failed has a check of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unjudged {
    /// It does not apply, or a flag excludes what it needs.
    Skipped(String),
    Unknown(String),
}

impl Unjudged {
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self::Skipped(reason.into())
    }

    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown(reason.into())
    }
}

pub fn need<'r, T>(reading: &'r Reading<T>, what: &str) -> Result<&'r T, Unjudged> {
    match reading {
        Reading::Read(part) => Ok(part),
        Reading::Excluded { flag } => Err(Unjudged::Skipped(format!("{what}: not read ({flag})"))),
        Reading::NotYet => Err(Unjudged::Skipped(format!(
            "{what}: no control plane Machine is up yet"
        ))),
        Reading::OutOfReach(failure) => Err(Unjudged::Unknown(format!(
            "{what}: unreachable from here: {}",
            one_line(&failure.message)
        ))),
        Reading::Failed(_) => Err(Unjudged::Unknown(format!("{what}: could not be read"))),
    }
}

/// The findings of another source where the first has no result. Without findings it does not replace a source that
/// failed.
pub fn or_else(unjudged: Unjudged, findings: Vec<Finding>) -> Judgement {
    match unjudged {
        Unjudged::Unknown(_) if findings.is_empty() => Err(unjudged),
        Unjudged::Unknown(_) | Unjudged::Skipped(_) => Ok(findings),
    }
}

pub fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

impl Finding {
    pub fn of(outcome: CheckOutcome, object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self {
            outcome,
            objects: vec![object.into()],
            message: one_line(message.as_ref()),
            hint: None,
        }
    }

    pub fn fail(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::of(CheckOutcome::Fail, object, message)
    }

    pub fn warn(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::of(CheckOutcome::Warn, object, message)
    }

    pub fn info(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::of(CheckOutcome::Info, object, message)
    }

    pub fn unknown(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::of(CheckOutcome::Unknown, object, message)
    }

    pub fn unread(failure: &Failure) -> Self {
        Self::unknown(&failure.object, &failure.message).hint_if(failure.hint.as_ref())
    }

    pub fn and(mut self, object: impl Into<String>) -> Self {
        let object = object.into();
        if !self.objects.contains(&object) {
            self.objects.push(object);
        }
        self
    }

    pub fn hint_if(self, hint: Option<impl AsRef<str>>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    pub fn hint(mut self, hint: impl AsRef<str>) -> Self {
        self.hint = Some(one_line(hint.as_ref()));
        self
    }
}

pub fn machine(name: &str) -> String {
    format!("Machine/{name}")
}

pub fn node(name: &str) -> String {
    format!("Node/{name}")
}

#[cfg(test)]
mod tests {
    use super::{Unjudged, need, one_line, or_else};
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
            forbidden: None,
        };
        let cases: [(Reading<u8>, Result<&u8, Unjudged>); 5] = [
            (Reading::Read(1), Ok(&1)),
            (
                Reading::Excluded { flag: "--no-etcd" },
                Err(Unjudged::skipped("etcd: not read (--no-etcd)")),
            ),
            (
                Reading::NotYet,
                Err(Unjudged::skipped("etcd: no control plane Machine is up yet")),
            ),
            (
                Reading::OutOfReach(failure.clone()),
                Err(Unjudged::unknown("etcd: unreachable from here: a; b")),
            ),
            (
                Reading::Failed(failure),
                Err(Unjudged::unknown("etcd: could not be read")),
            ),
        ];
        for (reading, expected) in &cases {
            assert_eq!(need(reading, "etcd"), *expected);
        }
    }

    #[test]
    fn another_source_makes_up_for_a_flag_alone() {
        let found = vec![Finding::fail("Machine/m1", "dead")];
        let (skipped, unknown) = (Unjudged::skipped("flag"), Unjudged::unknown("failed"));
        assert_eq!(or_else(skipped.clone(), vec![]), Ok(vec![]));
        assert_eq!(or_else(skipped, found.clone()), Ok(found.clone()));
        assert_eq!(or_else(unknown.clone(), vec![]), Err(unknown.clone()));
        assert_eq!(or_else(unknown, found.clone()), Ok(found));
    }

    #[test]
    fn lines_are_joined() {
        assert_eq!(one_line("a\r\n\n  b\n"), "a; b");
    }
}
