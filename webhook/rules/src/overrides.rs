//! Overrides, for emergencies: an annotation turns the denial of a rule into a warning until a given time.

use jiff::{SignedDuration, Timestamp};
use kcp_api::names::annotation;
use thiserror::Error;

use crate::{
    api::Metadata,
    cel::{Cel, NoCel},
    fault::quote,
    rule::{Check, Rule, Scope},
    topics,
};

/// The denial of a write that relaxes rules for its object, if the user needs a permission for this. No configuration turns it
/// off, because it has no effect without `authorizeOverrides`.
pub static NOT_ALLOWED: Rule = Rule {
    id: "override-not-allowed",
    summary: "only users with the verb override may relax rules for an object",
    why: "An override, a pause or a move lets the user make changes that a rule denies. So does the removal of an object from \
          its Cluster.",
    scope: Scope::Transition,
    source: "the field authorizeOverrides of the configuration",
    check: Check::ControlPlane(|_, _| {}),
    cel: Cel::None(NoCel::OtherObjects),
    ..Rule::USUAL
};

/// The fields with which an update or a creation relaxes rules for its object. A pause and a move count only in an update.
pub(crate) fn relaxed_fields(new: &Metadata<'_>, old: Option<&Metadata<'_>>) -> Vec<String> {
    let annotations = [
        (annotation::OVERRIDE_RULES, true),
        (annotation::PAUSED, old.is_some()),
        (annotation::DELETE_FOR_MOVE, old.is_some()),
    ];
    let is_set = |key: &str| {
        let value = new.annotation(key);
        value.is_some() && value != old.and_then(|old| old.annotation(key))
    };
    let set = annotations
        .into_iter()
        .filter(|&(key, counts)| counts && is_set(key));
    let mut fields: Vec<_> = set
        .map(|(key, _)| format!("metadata.annotations[{key}]"))
        .collect();
    let cluster = old.and_then(Metadata::cluster_name);
    if cluster.is_some() && cluster != new.cluster_name() {
        fields.push("metadata.ownerReferences".to_owned());
    }
    fields
}

/// The maximum time until an override expires. It is limited so that a forgotten override ends.
pub const MAX_DURATION: SignedDuration = SignedDuration::from_hours(24);

/// The maximum number of entries of the override annotation that take effect.
pub const MAX_ENTRIES: usize = 32;

/// The maximum length in bytes of a rule id in the override annotation.
pub const MAX_ID_BYTES: usize = 64;

/// A valid entry of the override annotation.
#[derive(Clone, Copy, Debug)]
pub struct Override {
    pub rule: &'static Rule,
    /// When the override ends.
    pub until: Timestamp,
}

/// Why an entry of the override annotation has no effect.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OverrideError<'a> {
    #[error("the override {} does not have the form <rule id>=<RFC 3339 time>", quote(.0))]
    Malformed(&'a str),
    #[error("the override {} has no valid rule id: a rule id has at most {MAX_ID_BYTES} bytes", quote(.0))]
    LongId(&'a str),
    #[error("the override annotation has more than {MAX_ENTRIES} entries; further entries have no effect")]
    TooMany,
    #[error("there is no rule {id:?} to override{}", nearest.map(|id| format!("; did you mean {id}?")).unwrap_or_default())]
    Unknown {
        id: &'a str,
        /// The most similar rule id; `None` if no rule id is similar.
        nearest: Option<&'static str>,
    },
    #[error("the rule {rule} cannot be overridden")]
    NotOverridable { rule: &'static str },
    #[error("the override of {rule} expired at {until}")]
    Expired { rule: &'static str, until: Timestamp },
    #[error(
        "the override of {rule} has no effect, because it expires at {until}: the time can be at most 24 h ahead"
    )]
    TooLong { rule: &'static str, until: Timestamp },
}

impl OverrideError<'_> {
    /// The rule id of an entry whose only problem is the expiry time; `None` for another problem. An entry
    /// with such a problem causes a warning only while the rule denies the write, because expired entries may
    /// stay in the annotation.
    pub const fn rule_with_invalid_time(&self) -> Option<&'static str> {
        match self {
            Self::Malformed(_)
            | Self::LongId(_)
            | Self::TooMany
            | Self::Unknown { .. }
            | Self::NotOverridable { .. } => None,
            Self::Expired { rule, .. } | Self::TooLong { rule, .. } => Some(rule),
        }
    }
}

/// Parses the value of the override annotation, up to [`MAX_ENTRIES`] entries, because an annotation can be 256 KiB
/// long.
pub fn parse(value: &str, now: Timestamp) -> impl Iterator<Item = Result<Override, OverrideError<'_>>> {
    value
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .take(MAX_ENTRIES + 1)
        .enumerate()
        .map(move |(index, entry)| {
            if index < MAX_ENTRIES {
                parse_entry(entry, now)
            } else {
                Err(OverrideError::TooMany)
            }
        })
}

fn parse_entry(entry: &str, now: Timestamp) -> Result<Override, OverrideError<'_>> {
    let malformed = || OverrideError::Malformed(entry);
    let (id, until) = entry.split_once('=').ok_or_else(malformed)?;
    let id = id.trim();
    if id.len() > MAX_ID_BYTES {
        return Err(OverrideError::LongId(id));
    }
    let until: Timestamp = until.trim().parse().map_err(|_| malformed())?;
    let Some(rule) = topics::rules().find(|rule| rule.id == id) else {
        return Err(OverrideError::Unknown {
            id,
            nearest: topics::similar_rule_ids(id).first().copied(),
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

#[cfg(test)]
mod tests {
    use super::{MAX_ENTRIES, MAX_ID_BYTES, OverrideError, parse};
    use crate::testing::case::NOW;

    #[test]
    fn a_long_id_is_not_compared() {
        let now = NOW.parse().unwrap();
        let longest = "r".repeat(MAX_ID_BYTES);
        let entry = |id: &str| format!("{id}=2026-06-01T13:00:00Z");
        let at_limit = entry(&longest);
        assert!(matches!(
            parse(&at_limit, now).next(),
            Some(Err(OverrideError::Unknown { .. }))
        ));
        let too_long = entry(&format!("{longest}r"));
        let error = parse(&too_long, now).next().unwrap().unwrap_err();
        assert_eq!(error, OverrideError::LongId(&format!("{longest}r")));
        assert_eq!(
            error.to_string(),
            format!(
                "the override \"{longest}\"... (65 bytes) has no valid rule id: a rule id has at most 64 bytes"
            )
        );
    }

    #[test]
    fn the_number_of_entries_is_limited() {
        let entry = "control-plane-in-use=2026-06-01T13:00:00Z,";
        let now = NOW.parse().unwrap();
        assert_eq!(parse(&entry.repeat(MAX_ENTRIES), now).count(), MAX_ENTRIES);
        let many = entry.repeat(10 * MAX_ENTRIES);
        let errors: Vec<_> = parse(&many, now).filter_map(Result::err).collect();
        assert_eq!(parse(&many, now).count(), MAX_ENTRIES + 1);
        assert_eq!(errors.last(), Some(&OverrideError::TooMany));
    }

    #[test]
    fn the_longest_annotation_has_few_and_short_messages() {
        const LONGEST: usize = 256 * 1024 - kcp_api::names::annotation::OVERRIDE_RULES.len();
        let now = NOW.parse().unwrap();
        let time = "=2026-06-01T13:00:00Z,";
        let one_id = format!("{}{time}", "r".repeat(LONGEST - time.len()));
        let many_ids = format!("{}{time}", "replicas-eve-".repeat(4)).repeat(LONGEST / 74);
        let commas = ",".repeat(LONGEST);
        for annotation in [one_id, many_ids, commas] {
            let errors: Vec<_> = parse(&annotation, now).filter_map(Result::err).collect();
            let messages: usize = errors.iter().map(|error| error.to_string().len()).sum();
            assert!(messages < 10_000, "{messages} bytes");
        }
    }
}
