//! The verdict on a control plane: every check, and which changes the controller would make now.

mod preflight;

use std::cmp::Reverse;

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};
use serde::Serialize;

use crate::{
    checks::{
        Checked, all,
        etcd_quorum::votes,
        find,
        finding::{CheckOutcome, Finding},
        rollout::up_to_date,
        sources::are_complete,
    },
    plan::rollout_reason,
    quorum::Votes,
    snapshot::Snapshot,
};

/// The verdict on one control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum Health {
    /// No check fails; a change may be in progress.
    Healthy,
    /// A check fails.
    Degraded,
    /// A check fails, and because of it the desired change makes no progress.
    Blocked,
    /// A source could not be read, and no check fails.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    pub health: Health,
    pub basis: Basis,
    pub checks: Vec<Checked>,
    /// None where etcd is external or its members are unknown.
    pub votes: Option<Votes>,
    pub up_to_date: Vec<rollout_reason::Verdict>,
    pub preflight: Preflight,
}

/// The sources of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// The management cluster, the workload cluster and etcd.
    AllSources,
    /// The conditions that the controllers report, because the workload cluster or etcd was not read.
    Conditions,
}

/// Whether the controller would make each change now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// Create one Machine.
    pub scale_up: Permission,
    /// Delete one Machine.
    pub scale_down: Permission,
    /// Replace every Machine.
    pub rollout: Permission,
    /// Replace one unhealthy Machine, by name.
    pub remediation: Vec<Remediation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Remediation {
    pub machine: String,
    #[serde(flatten)]
    pub permission: Permission,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// Null if it is unknown.
    pub allowed: Option<bool>,
    /// What blocks it, or why it is unknown.
    pub blocked_by: Vec<BlockedBy>,
}

/// A blocker with the check that looks at the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "Blocker"))]
#[serde(rename_all = "camelCase")]
pub struct BlockedBy {
    pub check: &'static str,
    /// As `Kind/name`.
    pub objects: Vec<String>,
    /// One line.
    pub message: String,
}

pub fn inspect(observed: &Snapshot, now: Timestamp) -> Inspection {
    let checks: Vec<Checked> = all().map(|check| check.run(observed, now)).collect();
    Inspection {
        health: Health::of(&checks),
        basis: if are_complete(observed) {
            Basis::AllSources
        } else {
            Basis::Conditions
        },
        votes: votes(observed, now),
        up_to_date: up_to_date(observed, now),
        preflight: preflight::preflight(observed, &checks, now),
        checks,
    }
}

impl Health {
    /// Failures decide, then sources that could not be read. A check without a result does not count: the source that
    /// failed has a finding of its own.
    fn of(checks: &[Checked]) -> Self {
        let found = |outcome| {
            checks
                .iter()
                .filter(move |checked| checked.findings.iter().any(|finding| finding.outcome == outcome))
        };
        let is_blocking = |checked: &Checked| find(checked.id).is_some_and(|check| check.is_blocking);
        if found(CheckOutcome::Fail).any(is_blocking) {
            Self::Blocked
        } else if found(CheckOutcome::Fail).next().is_some() {
            Self::Degraded
        } else if found(CheckOutcome::Unknown).next().is_some() {
            Self::Unknown
        } else {
            Self::Healthy
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Degraded => "Degraded",
            Self::Blocked => "Blocked",
            Self::Unknown => "Unknown",
        }
    }
}

impl Inspection {
    /// Every finding with its check, the worst first. Of equal outcome: checks that block a change, the others in their
    /// order, and last those that sum up others.
    pub fn findings(&self) -> Vec<(&Checked, &Finding)> {
        let checks = self.checks.iter();
        let mut all: Vec<(&Checked, &Finding)> = checks
            .flat_map(|checked| checked.findings.iter().map(move |finding| (checked, finding)))
            .collect();
        all.sort_by_key(|(checked, finding)| {
            let check = find(checked.id);
            (
                Reverse(finding.outcome),
                !check.is_some_and(|check| check.is_blocking),
                check.is_some_and(|check| check.sums_up),
            )
        });
        all
    }

    /// None if it is unknown.
    pub fn is_up_to_date(&self, machine: &Machine) -> Option<bool> {
        let mut verdicts = self.up_to_date.iter();
        let judged = verdicts.find(|verdict| verdict.machine == machine.name());
        judged.map_or_else(
            || machine.up_to_date(),
            |verdict| Some(verdict.reasons.is_empty()),
        )
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
