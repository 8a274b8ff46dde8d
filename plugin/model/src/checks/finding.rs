//! What a check comes to, before it is put under its id.

use crate::{
    inspection::{Finding, Outcome},
    snapshot::{Failure, Reading},
};

/// What was found, empty when all is as it should be; or why nothing can be said.
pub type Judgement = Result<Vec<Finding>, Unjudged>;

/// Why a check says nothing. Does not decide about the verdict: the source that failed has a check of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unjudged {
    /// It does not apply, or a flag left out what it needs.
    Skipped(String),
    /// What it needs could not be read.
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

/// What was read, or why nothing can be said without it.
pub fn need<'r, T>(reading: &'r Reading<T>, what: &str) -> Result<&'r T, Unjudged> {
    match reading {
        Reading::Read(part) => Ok(part),
        Reading::Excluded { flag } => Err(Unjudged::Skipped(format!("{what}: left out ({flag})"))),
        Reading::NotYet => Err(Unjudged::Skipped(format!(
            "{what}: the control plane has not come up yet"
        ))),
        Reading::OutOfReach(failure) => Err(Unjudged::Unknown(format!(
            "{what}: out of reach: {}",
            one_line(&failure.message)
        ))),
        Reading::Failed(_) => Err(Unjudged::Unknown(format!("{what}: could not be read"))),
    }
}

/// What another source says where the first one does not: its findings count, that it has none does not make up for a
/// source that failed.
pub fn or_else(unjudged: Unjudged, findings: Vec<Finding>) -> Judgement {
    match unjudged {
        Unjudged::Unknown(_) if findings.is_empty() => Err(unjudged),
        Unjudged::Unknown(_) | Unjudged::Skipped(_) => Ok(findings),
    }
}

/// A text of several lines on one.
pub fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

impl Finding {
    pub fn of(outcome: Outcome, object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self {
            outcome,
            objects: vec![object.into()],
            message: one_line(message.as_ref()),
            hint: None,
        }
    }

    pub fn fail(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::of(Outcome::Fail, object, message)
    }

    pub fn warn(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::of(Outcome::Warn, object, message)
    }

    pub fn info(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::of(Outcome::Info, object, message)
    }

    pub fn unknown(object: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::of(Outcome::Unknown, object, message)
    }

    /// What could not be read, and what that means.
    pub fn unread(failure: &Failure) -> Self {
        let finding = Self::unknown(&failure.object, &failure.message);
        match &failure.hint {
            Some(hint) => finding.hint(hint),
            None => finding,
        }
    }

    /// Another object that it is about.
    pub fn and(mut self, object: impl Into<String>) -> Self {
        let object = object.into();
        if !self.objects.contains(&object) {
            self.objects.push(object);
        }
        self
    }

    /// What to do about it.
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
        inspection::Finding,
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
                Err(Unjudged::skipped("etcd: left out (--no-etcd)")),
            ),
            (
                Reading::NotYet,
                Err(Unjudged::skipped("etcd: the control plane has not come up yet")),
            ),
            (
                Reading::OutOfReach(failure.clone()),
                Err(Unjudged::unknown("etcd: out of reach: a; b")),
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
