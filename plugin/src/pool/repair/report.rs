//! What a repair has found, and what came of it.

use std::fmt;

use super::{
    finding::{Finding, Remedy},
    mend::Outcome,
};
use crate::{cluster::Error, pool::creation::making::Obstacle, verdict::Verdict};

/// What a repair has found.
#[derive(Debug)]
pub(in crate::pool) struct Report {
    /// None for all.
    pub(in crate::pool) namespace: Option<String>,
    /// None for all of the namespace.
    pub(in crate::pool) pool: Option<String>,
    /// Whether it was to be mended.
    pub(in crate::pool) is_applied: bool,
    pub(in crate::pool) found: Vec<Found>,
    /// Namespaces that could not be repaired, or not to the end.
    pub(in crate::pool) failures: Vec<Failure>,
    /// Why nothing was done at all.
    pub(in crate::pool) refusal: Option<Refusal>,
}

/// What has kept a namespace from being repaired to the end.
#[derive(Debug)]
pub(in crate::pool) struct Failure {
    pub(in crate::pool) namespace: String,
    pub(in crate::pool) error: Error,
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pool) enum Refusal {
    /// There is no customization of a name that was to be freed.
    NoSuchEntry { name: String },
}

impl Refusal {
    /// In JSON, and before the sentence on stderr.
    pub(in crate::pool) const fn reason(&self) -> &'static str {
        match self {
            Self::NoSuchEntry { .. } => "no-such-entry",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchEntry { name } => write!(f, "there is no customization {name} to free"),
        }
    }
}

/// One finding.
#[derive(Debug)]
pub(in crate::pool) struct Found {
    /// The pool's.
    pub(in crate::pool) namespace: String,
    pub(in crate::pool) finding: Finding,
    /// None where nothing was tried.
    pub(in crate::pool) result: Option<Result<Outcome, Error>>,
}

/// How many findings are of one sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::pool) struct Count {
    /// Mended, or no longer so.
    pub(in crate::pool) mended: usize,
    /// To be mended, or tried in vain.
    pub(in crate::pool) open: usize,
    /// To be mended once something is out of the way.
    pub(in crate::pool) blocked: usize,
    pub(in crate::pool) by_name: usize,
    pub(in crate::pool) by_hand: usize,
    /// Named, and kept: somebody may still use it.
    pub(in crate::pool) kept: usize,
}

impl Found {
    pub(in crate::pool) const fn is_mended(&self) -> bool {
        matches!(self.result, Some(Ok(Outcome::Mended | Outcome::Settled)))
    }

    /// What came of it, in JSON and in a table.
    pub(in crate::pool) fn result(&self) -> Option<&'static str> {
        Some(match self.result.as_ref()? {
            Ok(Outcome::Mended) => "done",
            Ok(Outcome::Settled) => "settled",
            Ok(Outcome::Waits) => "waits",
            Ok(Outcome::Blocked(_)) => "blocked",
            Ok(Outcome::Contended) => "contended",
            Err(_) => "failed",
        })
    }

    /// What was in the way when it was tried.
    pub(in crate::pool) fn obstacle(&self) -> Option<&Obstacle> {
        match self.result.as_ref()? {
            Ok(Outcome::Blocked(why)) => Some(why),
            _ => None,
        }
    }

    pub(in crate::pool) fn error(&self) -> Option<&Error> {
        self.result.as_ref()?.as_ref().err()
    }
}

impl Report {
    pub(in crate::pool) fn count(&self) -> Count {
        let mut count = Count::default();
        for found in &self.found {
            let of_sort = match found.finding.remedy {
                _ if found.is_mended() => &mut count.mended,
                _ if found.obstacle().is_some() => &mut count.blocked,
                Remedy::Blocked(_) => &mut count.blocked,
                Remedy::FreeByName => &mut count.by_name,
                Remedy::Unknown => &mut count.by_hand,
                Remedy::Keep => &mut count.kept,
                Remedy::Free
                | Remedy::Reserve { .. }
                | Remedy::Recreate
                | Remedy::RemoveFinalizer
                | Remedy::Delete => &mut count.open,
            };
            *of_sort += 1;
        }
        count
    }

    /// Nothing wrong, or nothing any more.
    pub(in crate::pool) fn verdict(&self) -> Verdict {
        let verdict = |found: &Found| match found {
            found if found.error().is_some() => Verdict::Undecided,
            found if found.is_mended() => Verdict::Met,
            _ => Verdict::Negative,
        };
        let of_failures = self.failures.iter().map(|_| Verdict::Undecided);
        let of_refusal = self.refusal.iter().map(|_| Verdict::Negative);
        Verdict::worst(
            self.found
                .iter()
                .map(verdict)
                .chain(of_failures)
                .chain(of_refusal),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::{pool::repair::example::reports, verdict::Verdict};

    #[test]
    fn what_a_report_comes_to() {
        for (name, report) in reports() {
            let expected = match name {
                "nothing" => Verdict::Met,
                // One of its writes is forbidden, or all of a namespace.
                "what came of it" | "one namespace failed" => Verdict::Undecided,
                _ => Verdict::Negative,
            };
            assert_eq!(report.verdict(), expected, "{name}");
        }
    }
}
