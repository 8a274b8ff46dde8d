//! Break-glass: an annotation that turns a denial into a warning, for a while.

use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

/// `<rule id>=<RFC 3339 until>`, comma separated.
pub const ANNOTATION: &str = "kubectl-kcp.dev/override-rules";

/// An override reaches at most this far ahead, so that none is forgotten.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// One entry of the annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override<'a> {
    /// The rule that it is for.
    pub rule: &'a str,
    /// When it ends.
    pub until: Timestamp,
}

/// An entry that overrides nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OverrideError<'a> {
    /// Not `<rule id>=<RFC 3339>`.
    #[error("{0:?} is not <rule id>=<RFC 3339 time>")]
    Malformed(&'a str),
    /// In the past.
    #[error("{rule} ended {until}")]
    Expired {
        /// The rule.
        rule: &'a str,
        /// When it ended.
        until: Timestamp,
    },
    /// More than [`LONGEST`] ahead.
    #[error("{rule} ends {until}, more than 24 h ahead")]
    TooLong {
        /// The rule.
        rule: &'a str,
        /// When it would end.
        until: Timestamp,
    },
}

impl<'a> OverrideError<'a> {
    /// The rule that it was meant for, where that can be read.
    pub const fn rule(&self) -> Option<&'a str> {
        match self {
            Self::Malformed(_) => None,
            Self::Expired { rule, .. } | Self::TooLong { rule, .. } => Some(rule),
        }
    }
}

/// Reads the annotation's value, entry by entry.
pub fn parse(value: &str, now: Timestamp) -> impl Iterator<Item = Result<Override<'_>, OverrideError<'_>>> {
    value
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .map(move |entry| {
            let malformed = OverrideError::Malformed(entry);
            let (rule, until) = entry.split_once('=').ok_or(malformed.clone())?;
            let (rule, until): (_, Timestamp) = (rule.trim(), until.trim().parse().map_err(|_| malformed)?);
            if until <= now {
                Err(OverrideError::Expired { rule, until })
            } else if until.duration_since(now) > LONGEST {
                Err(OverrideError::TooLong { rule, until })
            } else {
                Ok(Override { rule, until })
            }
        })
}
