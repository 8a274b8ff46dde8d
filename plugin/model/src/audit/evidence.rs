//! What a check of the audit returns.

use serde::Serialize;

use crate::snapshot::Reading;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "AuditOutcome"))]
#[serde(rename_all = "UPPERCASE")]
pub enum AuditOutcome {
    Pass,
    /// Something that the check needs could not be read, or no object contains it.
    Unknown,
    Fail,
}

impl AuditOutcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Unknown => "UNKNOWN",
            Self::Fail => "FAIL",
        }
    }
}

/// The facts that a check has found, each as one line of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    failed: Vec<String>,
    unknown: Vec<String>,
    passed: Vec<String>,
}

impl Evidence {
    /// Evidence with one fact that makes the check pass.
    pub fn passing(fact: impl Into<String>) -> Self {
        let mut evidence = Self::default();
        evidence.pass(fact);
        evidence
    }

    /// Evidence with one reason why the result is unknown.
    pub fn unknown_because(reason: impl Into<String>) -> Self {
        let mut evidence = Self::default();
        evidence.unknown(reason);
        evidence
    }

    pub fn pass(&mut self, fact: impl Into<String>) {
        self.passed.push(fact.into());
    }

    pub fn unknown(&mut self, reason: impl Into<String>) {
        self.unknown.push(reason.into());
    }

    pub fn fail(&mut self, reason: impl Into<String>) {
        self.failed.push(reason.into());
    }

    /// Returns the result and its reasons. One reason to fail is enough; a check with an unknown fact never passes.
    pub fn decide(self) -> (AuditOutcome, Vec<String>) {
        let mut reasons = self.failed;
        let outcome = match (reasons.is_empty(), self.unknown.is_empty()) {
            (false, _) => AuditOutcome::Fail,
            (true, false) => AuditOutcome::Unknown,
            (true, true) => return (AuditOutcome::Pass, self.passed),
        };
        reasons.extend(self.unknown);
        (outcome, reasons)
    }
}

/// Returns what was read from a source, or evidence that the result of the check is unknown.
pub fn require<'r, T>(reading: &'r Reading<T>, what: &str) -> Result<&'r T, Evidence> {
    let reason = match reading {
        Reading::Read(part) => return Ok(part),
        Reading::Excluded { flag } => format!("{what}: excluded by {flag}"),
        Reading::NotYet => format!("{what}: not read, because the control plane is not initialized yet"),
        Reading::OutOfReach(failure) | Reading::Failed(failure) => {
            format!("could not read {what}: {}", failure.text())
        }
    };
    Err(Evidence::unknown_because(reason))
}

/// Returns the evidence of a check that stops at the first source that could not be read.
pub fn either(evidence: Result<Evidence, Evidence>) -> Evidence {
    match evidence {
        Ok(evidence) | Err(evidence) => evidence,
    }
}

/// The first `most` names, and the number of the others.
pub fn some_of<'n>(names: impl IntoIterator<Item = &'n str>, most: usize) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let shown = names.iter().take(most).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
