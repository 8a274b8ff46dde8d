//! A problem that a rule found, and what happens to the write.

use std::{borrow::Cow, fmt};

use crate::{
    action::{Action, DowngradeReason},
    fault::Fault,
    rule::Rule,
};

/// A problem, the rule that found it, and what happens to the write.
#[derive(Clone, Debug)]
pub struct Finding {
    pub rule: &'static Rule,
    /// What happens to the write: the webhook denies it, warns, or only records the finding.
    pub action: Action,
    /// Why the finding is only a warning although the action of its rule is to deny; `None` otherwise.
    pub downgrade_reason: Option<DowngradeReason>,
    pub fault: Fault,
    /// The path of the field with names that may be secret; `None` if the path in `fault` has all names. Only `lint` shows it.
    pub exact_field: Option<Cow<'static, str>>,
}

impl Finding {
    /// Returns why a user's override keeps the finding from denying; otherwise `None`. The annotation is always an override. A
    /// pause, a move or a copy is one only if `is_authorized`.
    pub fn overridden_by(&self, is_authorized: bool) -> Option<DowngradeReason> {
        self.downgrade_reason.filter(|reason| match reason {
            DowngradeReason::Overridden { .. } => true,
            reason => is_authorized && reason.needs_permission(),
        })
    }

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
