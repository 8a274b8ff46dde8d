//! A problem that a rule found, and what happens to the write.

use std::fmt;

use jiff::Timestamp;

use crate::{action::Action, fault::Fault, rule::Rule};

/// Why a finding is only a warning although the action of its rule is to deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DowngradeReason {
    /// The old object already had the same problem.
    Unchanged,
    /// The object is a copy of an existing one.
    Copied,
    /// An annotation on the object overrides the rule.
    Overridden { until: Timestamp },
    /// The configuration selects the namespace in `warnOnly`.
    WarnOnly,
}

impl DowngradeReason {
    /// Why the finding is only a warning, as a clause without a period.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Unchanged => "the old object has the same problem",
            Self::Copied => {
                "the object is a copy: clusterctl move creates it with a paused Cluster as its owner, or Hive's user creates \
                 it; the webhook denies other new objects"
            }
            Self::Overridden { .. } => "an annotation on the object overrides the rule",
            Self::WarnOnly => "the configuration selects the namespace in warnOnly",
        }
    }
}

/// A problem, the rule that found it, and what happens to the write.
#[derive(Clone, Debug)]
pub struct Finding {
    pub rule: &'static Rule,
    /// What happens to the write: the webhook denies it, warns, or only records the finding.
    pub action: Action,
    /// Why the finding is only a warning although the action of its rule is to deny; `None` otherwise.
    pub downgrade_reason: Option<DowngradeReason>,
    pub fault: Fault,
}

impl Finding {
    /// The message for users: error type, value, what is wrong, what to do, and the rule id.
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
        if let Some(DowngradeReason::Overridden { until }) = self.0.downgrade_reason {
            write!(f, "overridden until {until}: ")?;
        }
        f.write_str(reason.prefix())?;
        if let Some(value) = value {
            write!(f, ": {value}")?;
        }
        write!(f, ": {detail}; {remedy} ({})", self.0.rule.id)
    }
}
