//! What a verb decides about an object as it was read: leave it, refuse, or write.

use serde_json::Value;

use crate::change::event::ChangeEvent;

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The object is as requested already, and how: `replicas is 3 already`.
    Unchanged(String),
    Refused(Refusal),
    Write(Proposal),
}

/// A write, and what the user has to know about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    pub write: ObjectWrite,
    /// The result in words, after the object's name: `scaled from 3 to 5`.
    pub done: String,
    /// Found by the rules or the preflight, and no reason to refuse.
    pub warnings: Vec<String>,
    /// What follows from the change, a line each.
    pub consequences: Vec<String>,
    pub event: ChangeEvent,
}

/// A write to one object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectWrite {
    /// A merge patch (RFC 7386).
    Patch {
        patch: Value,
        /// None for the object itself.
        subresource: Option<&'static str>,
    },
    Delete,
}

impl ObjectWrite {
    /// A merge patch of the object itself.
    pub const fn patch(patch: Value) -> Self {
        Self::Patch {
            patch,
            subresource: None,
        }
    }

    /// The fields to write; null for a deletion.
    pub const fn fields(&self) -> &Value {
        match self {
            Self::Patch { patch, .. } => patch,
            Self::Delete => &Value::Null,
        }
    }
}

/// Why a change is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A line each.
    pub why: Vec<String>,
    /// The first of those that refuse it.
    pub by: RefusedBy,
    /// What to do about it, a line each; empty if nothing is known, or waiting is enough.
    pub remedies: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// The admission rules. The server's configuration can turn a rule off.
    Rules,
    /// `--force` overrides it.
    Preflight,
    /// Nothing overrides it.
    Command,
}

impl Refusal {
    pub const fn new(by: RefusedBy, why: Vec<String>) -> Self {
        Self {
            why,
            by,
            remedies: Vec::new(),
        }
    }

    /// The user did not answer yes.
    pub fn unconfirmed() -> Self {
        Self::new(RefusedBy::Command, vec!["it was not confirmed".to_owned()])
    }

    /// `is_configured` is whether the server's configuration of the rules is known.
    pub const fn by(&self, is_configured: bool) -> &'static str {
        match (self.by, is_configured) {
            (RefusedBy::Rules, false) => "the admission rules in their default configuration",
            (RefusedBy::Rules, true) => "the admission rules",
            (RefusedBy::Preflight, _) => "the preflight",
            (RefusedBy::Command, _) => "kubectl kcp",
        }
    }

    /// What to do, and what else to try, a line each. `forced` says what `--force` does.
    pub fn hints<'r>(&'r self, is_configured: bool, forced: Option<&'r str>) -> Vec<&'r str> {
        let other = match (self.by, is_configured) {
            (RefusedBy::Rules, false) => {
                Some("if the server has another configuration, name its file with --configuration")
            }
            (RefusedBy::Preflight, _) => forced,
            (RefusedBy::Rules, true) | (RefusedBy::Command, _) => None,
        };
        self.remedies.iter().map(String::as_str).chain(other).collect()
    }
}

/// Reasons not to write, by whether `--force` overrides them; a line each.
#[derive(Debug, Default)]
pub struct Objections {
    /// Someone has to act first. Never overridden.
    pub lasting: Vec<String>,
    /// They end without help. Overridden, the controller waits for them.
    pub temporary: Vec<String>,
}

impl Objections {
    /// The warnings of a write in spite of them.
    ///
    /// # Errors
    /// Why nothing is written.
    pub fn warnings(self, force: bool) -> Result<Vec<String>, Refusal> {
        let Self { lasting, temporary } = self;
        if lasting.is_empty() && (force || temporary.is_empty()) {
            return Ok(temporary);
        }
        let by = if lasting.is_empty() {
            RefusedBy::Preflight
        } else {
            RefusedBy::Command
        };
        Err(Refusal::new(by, [lasting, temporary].concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Objections, Refusal, RefusedBy};

    #[test]
    fn a_refusal_names_its_source_and_what_helps() {
        let file = Some("if the server has another configuration, name its file with --configuration");
        let force = Some("use --force");
        for (by, is_configured, expected) in [
            (
                RefusedBy::Rules,
                false,
                ("the admission rules in their default configuration", file),
            ),
            (RefusedBy::Rules, true, ("the admission rules", None)),
            (RefusedBy::Preflight, false, ("the preflight", force)),
            (RefusedBy::Preflight, true, ("the preflight", force)),
            (RefusedBy::Command, false, ("kubectl kcp", None)),
            (RefusedBy::Command, true, ("kubectl kcp", None)),
        ] {
            let refusal = Refusal::new(by, Vec::new());
            let hints = refusal.hints(is_configured, force);
            assert_eq!((refusal.by(is_configured), hints.first().copied()), expected);
        }
    }

    #[test]
    fn what_to_do_precedes_what_to_try() {
        let refusal = Refusal {
            remedies: vec!["resume it".to_owned()],
            ..Refusal::new(RefusedBy::Rules, Vec::new())
        };
        assert_eq!(refusal.hints(true, None), ["resume it"]);
        assert_eq!(
            refusal.hints(false, None),
            [
                "resume it",
                "if the server has another configuration, name its file with --configuration"
            ]
        );
    }

    #[test]
    fn force_overrides_temporary_objections_only() {
        let lines = |words: &str| words.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let refused = |by, why| Err(Refusal::new(by, lines(why)));
        for (lasting, temporary, force, expected) in [
            ("", "", false, Ok(Vec::new())),
            ("", "", true, Ok(Vec::new())),
            ("", "busy", false, refused(RefusedBy::Preflight, "busy")),
            ("", "busy", true, Ok(lines("busy"))),
            ("gone", "", true, refused(RefusedBy::Command, "gone")),
            ("gone", "busy", false, refused(RefusedBy::Command, "gone busy")),
            ("gone", "busy", true, refused(RefusedBy::Command, "gone busy")),
        ] {
            let objections = Objections {
                lasting: lines(lasting),
                temporary: lines(temporary),
            };
            assert_eq!(
                objections.warnings(force),
                expected,
                "{lasting} {temporary} {force}"
            );
        }
    }
}
