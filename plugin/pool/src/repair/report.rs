//! Collects the findings of a repair, and the result of each remedy.

use std::fmt;

use kcp_client::Error;

use crate::{
    creation::make::CreationObstacle,
    repair::{
        apply::RepairOutcome,
        finding::{Cause, LeaseProblem, Remedy},
    },
};

#[derive(Debug)]
pub struct RepairReport {
    /// The namespace that was repaired; `None` for all namespaces.
    pub namespace: Option<String>,
    /// The pool that was repaired; `None` for all pools of the namespace.
    pub pool: Option<String>,
    /// Whether `--yes` is set, so that problems are repaired.
    pub is_confirmed: bool,
    pub results: Vec<FindingResult>,
    /// The namespaces that were not repaired completely, with the reason.
    pub failures: Vec<NamespaceFailure>,
    /// Why nothing was repaired, if the request was refused.
    pub refusal: Option<RepairRefusal>,
    /// Why the clusters could not be listed. No entry is then freed.
    pub cluster_list_error: Option<Error>,
}

/// A namespace that was not repaired completely, and why.
#[derive(Debug)]
pub struct NamespaceFailure {
    pub namespace: String,
    pub error: Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairRefusal {
    /// A customization that the user named with `--force` does not exist.
    NoSuchEntry { name: String },
}

impl RepairRefusal {
    /// The name of the refusal in JSON, and before the message on stderr.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoSuchEntry { .. } => "no-such-entry",
        }
    }
}

impl fmt::Display for RepairRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchEntry { name } => write!(f, "customization {name} does not exist"),
        }
    }
}

#[derive(Debug)]
pub struct FindingResult {
    /// The namespace of the pool.
    pub namespace: String,
    pub finding: LeaseProblem,
    /// The result of the repair; `None` if the problem was only reported.
    pub result: Option<Result<RepairOutcome, Error>>,
}

/// The number of findings with each result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FindingCounts {
    /// How many findings were repaired, or are no longer a problem.
    pub repaired: usize,
    /// How many findings are not repaired yet, or could not be repaired.
    pub open: usize,
    /// How many findings cannot be repaired because something prevents it.
    pub blocked: usize,
    /// How many findings are repaired only if the user names the entry with `--force`.
    pub needs_force: usize,
    pub needs_manual_repair: usize,
    /// How many entries that the user named with `--force` are not freed.
    pub not_freed: usize,
}

impl FindingResult {
    pub const fn is_repaired(&self) -> bool {
        matches!(
            self.result,
            Some(Ok(RepairOutcome::Repaired | RepairOutcome::Settled))
        )
    }

    /// The name of the result in JSON and in tables; `None` if the problem was only reported.
    pub fn result(&self) -> Option<&'static str> {
        Some(match self.result.as_ref()? {
            Ok(RepairOutcome::Repaired) => "done",
            Ok(RepairOutcome::Settled) => "settled",
            Ok(RepairOutcome::WaitsForCustomization) => "waits",
            Ok(RepairOutcome::Blocked(_)) => "blocked",
            Ok(RepairOutcome::Contended) => "contended",
            Err(_) => "failed",
        })
    }

    /// The obstacle that prevents the creation of the missing cluster.
    pub fn obstacle(&self) -> Option<&CreationObstacle> {
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
    pub fn count(&self) -> FindingCounts {
        let mut count = FindingCounts::default();
        for found in &self.results {
            let of_sort = match found.finding.remedy {
                _ if found.is_repaired() => &mut count.repaired,
                _ if found.obstacle().is_some() => &mut count.blocked,
                _ if matches!(found.finding.cause, Cause::InUse { .. }) => &mut count.not_freed,
                Remedy::Force => &mut count.needs_force,
                Remedy::None => &mut count.needs_manual_repair,
                Remedy::Free
                | Remedy::Clean(_)
                | Remedy::Record { .. }
                | Remedy::Reserve { .. }
                | Remedy::Recreate
                | Remedy::Remove => &mut count.open,
            };
            *of_sort += 1;
        }
        count
    }
}
