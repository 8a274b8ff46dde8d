//! Break-glass: an annotation that turns a denial into a warning, for a while.

use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use crate::{rule::Rule, topics};

/// `<rule id>=<RFC 3339 until>`, comma separated.
pub const ANNOTATION: &str = "kubectl-kcp.dev/override-rules";

/// An override reaches at most this far ahead, so that none is forgotten.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// One entry of the annotation.
#[derive(Clone, Copy, Debug)]
pub struct Override {
    /// The rule that it is for.
    pub rule: &'static Rule,
    /// When it ends.
    pub until: Timestamp,
}

/// An entry that overrides nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OverrideError<'a> {
    /// Not `<rule id>=<RFC 3339>`.
    #[error("{0:?} is not <rule id>=<RFC 3339 time>")]
    Malformed(&'a str),
    /// No rule has this id.
    #[error("there is no rule {id:?}{}", nearest.map(|id| format!("; did you mean {id}?")).unwrap_or_default())]
    Unknown {
        /// The id found.
        id: &'a str,
        /// The id that it is nearest to.
        nearest: Option<&'static str>,
    },
    /// The rule is none that can be overridden.
    #[error("{rule} cannot be overridden")]
    NotOverridable {
        /// The rule.
        rule: &'static str,
    },
    /// In the past.
    #[error("{rule} ended {until}")]
    Expired {
        /// The rule.
        rule: &'static str,
        /// When it ended.
        until: Timestamp,
    },
    /// More than [`LONGEST`] ahead.
    #[error("{rule} ends {until}, more than 24 h ahead")]
    TooLong {
        /// The rule.
        rule: &'static str,
        /// When it would end.
        until: Timestamp,
    },
}

impl OverrideError<'_> {
    /// The rule that it would have been for, where nothing is wrong with it but its time. Once its time is over an
    /// override may well be left where it is.
    pub const fn rule_outside_its_time(&self) -> Option<&'static str> {
        match self {
            Self::Malformed(_) | Self::Unknown { .. } | Self::NotOverridable { .. } => None,
            Self::Expired { rule, .. } | Self::TooLong { rule, .. } => Some(rule),
        }
    }
}

/// Reads the annotation's value, entry by entry.
pub fn parse(value: &str, now: Timestamp) -> impl Iterator<Item = Result<Override, OverrideError<'_>>> {
    value
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .map(move |entry| read(entry, now))
}

fn read(entry: &str, now: Timestamp) -> Result<Override, OverrideError<'_>> {
    let malformed = || OverrideError::Malformed(entry);
    let (id, until) = entry.split_once('=').ok_or_else(malformed)?;
    let id = id.trim();
    let until: Timestamp = until.trim().parse().map_err(|_| malformed())?;
    let Some(rule) = topics::rules().find(|rule| rule.id == id) else {
        return Err(OverrideError::Unknown {
            id,
            nearest: topics::similar(id).first().copied(),
        });
    };
    let found = rule.id;
    if !rule.overridable {
        Err(OverrideError::NotOverridable { rule: found })
    } else if until <= now {
        Err(OverrideError::Expired { rule: found, until })
    } else if until.duration_since(now) > LONGEST {
        Err(OverrideError::TooLong { rule: found, until })
    } else {
        Ok(Override { rule, until })
    }
}
