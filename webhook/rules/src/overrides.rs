//! Break-glass: an annotation that turns the denial of a rule into a warning until a given time.

use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use crate::{rule::Rule, topics};

/// The annotation. Its value is a comma-separated list of `<rule id>=<RFC 3339 expiry time>`.
pub const ANNOTATION: &str = "kubectl-kcp.dev/override-rules";

/// An override expires at most this far in the future, so that none is forgotten.
pub const MAX_DURATION: SignedDuration = SignedDuration::from_hours(24);

/// One entry of the annotation.
#[derive(Clone, Copy, Debug)]
pub struct Override {
    /// The rule to override.
    pub rule: &'static Rule,
    /// When the override expires.
    pub until: Timestamp,
}

/// Why an entry has no effect.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OverrideError<'a> {
    /// The entry is not `<rule id>=<RFC 3339>`.
    #[error("override {0:?} is not <rule id>=<RFC 3339 time>")]
    Malformed(&'a str),
    /// No rule has this id.
    #[error("there is no rule {id:?} to override{}", nearest.map(|id| format!("; did you mean {id}?")).unwrap_or_default())]
    Unknown {
        /// The id in the annotation.
        id: &'a str,
        /// The most similar id of a rule.
        nearest: Option<&'static str>,
    },
    /// The rule does not allow overrides.
    #[error("{rule} cannot be overridden")]
    NotOverridable {
        /// The id of the rule.
        rule: &'static str,
    },
    /// The expiry time is in the past.
    #[error("the override of {rule} expired at {until}")]
    Expired {
        /// The id of the rule.
        rule: &'static str,
        /// When the override expired.
        until: Timestamp,
    },
    /// The expiry time is more than [`MAX_DURATION`] in the future.
    #[error("the override of {rule} expires at {until}, more than 24 h from now")]
    TooLong {
        /// The id of the rule.
        rule: &'static str,
        /// When the override would expire.
        until: Timestamp,
    },
}

impl OverrideError<'_> {
    /// The rule, if only the expiry time is wrong. Such an entry is worth a warning only while the rule denies, because
    /// expired entries may stay in the annotation.
    pub const fn rule_with_invalid_time(&self) -> Option<&'static str> {
        match self {
            Self::Malformed(_) | Self::Unknown { .. } | Self::NotOverridable { .. } => None,
            Self::Expired { rule, .. } | Self::TooLong { rule, .. } => Some(rule),
        }
    }
}

/// Parses the value of the annotation.
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
    } else if until.duration_since(now) > MAX_DURATION {
        Err(OverrideError::TooLong { rule: found, until })
    } else {
        Ok(Override { rule, until })
    }
}
