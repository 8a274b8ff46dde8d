//! What a repair has found, and what came of it.

use std::fmt;

use kcp_client::Error;

use crate::{
    creation::make::Obstacle,
    repair::{
        apply::RepairOutcome,
        finding::{Finding, Remedy},
    },
};

/// What a repair has found.
#[derive(Debug)]
pub struct RepairReport {
    /// None for all.
    pub namespace: Option<String>,
    /// None for all of the namespace.
    pub pool: Option<String>,
    /// Whether it was to be mended.
    pub is_applied: bool,
    pub found: Vec<Found>,
    /// Namespaces that could not be repaired, or not to the end.
    pub failures: Vec<Failure>,
    /// Why nothing was done at all.
    pub refusal: Option<RepairRefusal>,
}

/// What has kept a namespace from being repaired to the end.
#[derive(Debug)]
pub struct Failure {
    pub namespace: String,
    pub error: Error,
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairRefusal {
    /// There is no customization of a name that was to be freed.
    NoSuchEntry { name: String },
}

impl RepairRefusal {
    /// In JSON, and before the sentence on stderr.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoSuchEntry { .. } => "no-such-entry",
        }
    }
}

impl fmt::Display for RepairRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchEntry { name } => write!(f, "there is no customization {name} to free"),
        }
    }
}

/// One finding.
#[derive(Debug)]
pub struct Found {
    /// The pool's.
    pub namespace: String,
    pub finding: Finding,
    /// None where nothing was tried.
    pub result: Option<Result<RepairOutcome, Error>>,
}

/// How many findings are of one sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Mended, or no longer so.
    pub mended: usize,
    /// To be mended, or tried in vain.
    pub open: usize,
    /// To be mended once something is out of the way.
    pub blocked: usize,
    pub by_name: usize,
    pub by_hand: usize,
    /// Named, and kept: somebody may still use it.
    pub kept: usize,
}

impl Found {
    pub const fn is_mended(&self) -> bool {
        matches!(
            self.result,
            Some(Ok(RepairOutcome::Mended | RepairOutcome::Settled))
        )
    }

    /// What came of it, in JSON and in a table.
    pub fn result(&self) -> Option<&'static str> {
        Some(match self.result.as_ref()? {
            Ok(RepairOutcome::Mended) => "done",
            Ok(RepairOutcome::Settled) => "settled",
            Ok(RepairOutcome::Waits) => "waits",
            Ok(RepairOutcome::Blocked(_)) => "blocked",
            Ok(RepairOutcome::Contended) => "contended",
            Err(_) => "failed",
        })
    }

    /// What was in the way when it was tried.
    pub fn obstacle(&self) -> Option<&Obstacle> {
        match self.result.as_ref()? {
            Ok(RepairOutcome::Blocked(why)) => Some(why),
            _ => None,
        }
    }

    pub fn error(&self) -> Option<&Error> {
        self.result.as_ref()?.as_ref().err()
    }
}

impl RepairReport {
    pub fn count(&self) -> Count {
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
}
