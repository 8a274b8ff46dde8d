//! What a rule says.

use std::fmt;

use jiff::Timestamp;

use crate::{action::Action, fault::Fault, rule::Rule};

/// Why a finding is a warning where its rule denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Softening {
    /// The old object had the same fault.
    Unchanged,
    /// The object is a copy of one that was there before.
    Copied,
    /// An annotation overrides the rule.
    Overridden {
        /// Until then.
        until: Timestamp,
    },
}

/// A fault, and the rule that found it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: &'static Rule,
    /// What follows from it.
    pub action: Action,
    /// Why it is a warning where the rule denies.
    pub softened: Option<Softening>,
    /// What was found.
    pub fault: Fault,
}

impl Finding {
    /// The message of a cause: kind, value, what is wrong, what to do, and the rule's id.
    pub fn message(&self) -> Message<'_> {
        Message(self)
    }
}

/// Writes a finding without its field path: kubectl puts that before it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'f>(&'f Finding);

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault {
            reason,
            value,
            detail,
            remedy,
            ..
        } = &self.0.fault;
        if let Some(Softening::Overridden { until }) = self.0.softened {
            write!(f, "overridden until {until}: ")?;
        }
        f.write_str(reason.prefix())?;
        if let Some(value) = value {
            write!(f, ": {value}")?;
        }
        write!(f, ": {detail}; {remedy} ({})", self.0.rule.id)
    }
}
