//! What a repair has found, and the results.

use std::fmt;

use kcp_client::Error;

use crate::{
    creation::make::Obstacle,
    repair::{
        apply::RepairOutcome,
        finding::{Finding, Remedy},
    },
};

#[derive(Debug)]
pub struct RepairReport {
    /// None for all namespaces.
    pub namespace: Option<String>,
    /// None for all pools of the namespace.
    pub pool: Option<String>,
    /// Whether it was asked to write.
    pub is_applied: bool,
    pub found: Vec<Found>,
    /// Namespaces that were not repaired completely.
    pub failures: Vec<Failure>,
    /// Why nothing was done.
    pub refusal: Option<RepairRefusal>,
    /// Why it is unknown which clusters use entries: nothing is freed then.
    pub clusters_unread: Option<Error>,
}

/// Why a namespace was not repaired completely.
#[derive(Debug)]
pub struct Failure {
    pub namespace: String,
    pub error: Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairRefusal {
    /// A customization named with --force does not exist.
    NoSuchEntry { name: String },
}

impl RepairRefusal {
    /// In JSON, and before the message on stderr.
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
pub struct Found {
    /// The pool's namespace.
    pub namespace: String,
    pub finding: Finding,
    /// None if nothing was tried.
    pub result: Option<Result<RepairOutcome, Error>>,
}

/// The number of findings of each sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Repaired, or no longer a fault.
    pub repaired: usize,
    /// To be repaired, or tried without success.
    pub open: usize,
    /// To be repaired once nothing blocks it.
    pub blocked: usize,
    pub by_name: usize,
    pub by_hand: usize,
}

impl Found {
    pub const fn is_repaired(&self) -> bool {
        matches!(
            self.result,
            Some(Ok(RepairOutcome::Repaired | RepairOutcome::Settled))
        )
    }

    /// The result, in JSON and in a table.
    pub fn result(&self) -> Option<&'static str> {
        Some(match self.result.as_ref()? {
            Ok(RepairOutcome::Repaired) => "done",
            Ok(RepairOutcome::Settled) => "settled",
            Ok(RepairOutcome::Waits) => "waits",
            Ok(RepairOutcome::Blocked(_)) => "blocked",
            Ok(RepairOutcome::Contended) => "contended",
            Err(_) => "failed",
        })
    }

    /// What blocked it when it was tried.
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
                _ if found.is_repaired() => &mut count.repaired,
                _ if found.obstacle().is_some() => &mut count.blocked,
                Remedy::Force => &mut count.by_name,
                Remedy::None => &mut count.by_hand,
                Remedy::Free
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
