//! The result of a rule.

use std::fmt;

use jiff::Timestamp;

use crate::{action::Action, fault::Fault, rule::Rule};

/// Why a finding is only a warning although the action of its rule is to deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Softening {
    /// The old object already had the same problem.
    Unchanged,
    /// The object is a copy of an existing one.
    Copied,
    /// An annotation overrides the rule.
    Overridden {
        /// When the override expires.
        until: Timestamp,
    },
    /// The configuration only warns in this namespace.
    WarnOnly,
}

/// A fault and the rule that found it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule that found the fault.
    pub rule: &'static Rule,
    /// The consequence of the finding: the write is denied, there is a warning, or the finding is only recorded.
    pub action: Action,
    /// Why the finding is only a warning, if the action of its rule is to deny.
    pub softened: Option<Softening>,
    /// The fault itself.
    pub fault: Fault,
}

impl Finding {
    /// The message of a cause: error type, value, what is wrong, what to do, and the rule id.
    pub fn message(&self) -> Message<'_> {
        Message(self)
    }
}

/// Displays a finding without its field path, because kubectl prints the path before the message.
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
