//! What a verb decides about an object as it was read: nothing to do, refused, or a write.

use serde_json::Value;

use crate::change::event::Occurrence;

/// What to do with a control plane as it was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing: it is as wanted.
    Unchanged,
    /// Nothing: it is not allowed.
    Refused(Refusal),
    /// Write.
    Write(Proposal),
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// A merge patch of the control plane.
    pub patch: Value,
    /// None for the object itself.
    pub subresource: Option<&'static str>,
    /// What is said without refusing it, by the rules or by what it was judged on.
    pub warnings: Vec<String>,
    /// What comes of it that one has to know, a line each.
    pub consequences: Vec<String>,
    /// What tells of it.
    pub occurrence: Occurrence,
}

/// Why a change is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A line each.
    pub why: Vec<String>,
    /// Who refuses first.
    pub by: RefusedBy,
    /// What to do about it, a line each; empty where nothing is known, or waiting is all.
    pub remedies: Vec<String>,
}

/// Who refuses a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// The admission rules: a configuration can have them do something else.
    Rules,
    /// The preflight: it may be overridden.
    Preflight,
    /// The command, for good.
    Command,
}

impl Refusal {
    /// One without a remedy.
    pub const fn new(by: RefusedBy, why: Vec<String>) -> Self {
        Self {
            why,
            by,
            remedies: Vec::new(),
        }
    }

    /// Who was asked did not say yes.
    pub fn unconfirmed() -> Self {
        Self::new(RefusedBy::Command, vec!["it was not confirmed".to_owned()])
    }

    /// Who refuses, given whether the server's configuration is known.
    pub const fn by(&self, is_configured: bool) -> &'static str {
        match (self.by, is_configured) {
            (RefusedBy::Rules, false) => "the rules, judged by the default configuration",
            (RefusedBy::Rules, true) => "the rules",
            (RefusedBy::Preflight, _) => "the preflight",
            (RefusedBy::Command, _) => "kubectl kcp",
        }
    }

    /// What to do, and what to try next, a line each, given whether the server's configuration is known.
    pub fn hints(&self, is_configured: bool) -> Vec<&str> {
        let remedies = self.remedies.iter().map(String::as_str);
        remedies.chain(self.hint(is_configured)).collect()
    }

    /// What to try next, given whether the server's configuration is known.
    pub const fn hint(&self, is_configured: bool) -> Option<&'static str> {
        match (self.by, is_configured) {
            (RefusedBy::Rules, false) => {
                Some("if the server is configured otherwise, name its file with --configuration")
            }
            (RefusedBy::Preflight, _) => {
                Some("with --force it is asked for all the same, and the controller waits until it may begin")
            }
            (RefusedBy::Rules, true) | (RefusedBy::Command, _) => None,
        }
    }
}
