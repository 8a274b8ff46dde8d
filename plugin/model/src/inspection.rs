//! The verdict on a control plane, from the results of all checks, and the changes that the controller would make now.

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
        is_about_etcd,
        rollout::compare_machines,
        sources::are_all_read,
    },
    plan::rollout_reason,
    quorum::Votes,
    snapshot::Snapshot,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum Health {
    /// No check fails. A change may be in progress.
    Healthy,
    /// A check fails, but no failed check stops the pending change.
    Degraded,
    /// A check fails, and its problem stops the pending change.
    Blocked,
    /// No check fails, but a source could not be read.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    pub health: Health,
    pub basis: Basis,
    pub checks: Vec<Checked>,
    /// etcd's votes. `None` if etcd is external or its members are unknown.
    pub votes: Option<Votes>,
    pub verdicts: Vec<rollout_reason::MachineDifference>,
    pub preflight: Preflight,
}

/// The sources on which a verdict is based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// The verdict is based on the management cluster, the workload cluster and etcd.
    AllSources,
    /// The verdict is based only on conditions in the management cluster, because the workload cluster or etcd was not read.
    Conditions,
}

/// Whether the controller would start each kind of change now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// Whether the controller would create one Machine.
    pub scale_up: Permission,
    /// Whether the controller would delete one Machine.
    pub scale_down: Permission,
    /// Whether the controller would replace every Machine.
    pub rollout: Permission,
    /// For each Machine, whether the controller would replace it if it were unhealthy. Ordered by the names of the Machines.
    pub remediation: Vec<Remediation>,
    /// For each Machine that is not being deleted yet, whether `kubectl kcp machine replace` would delete it.
    /// Ordered by the names of the Machines.
    pub replacement: Vec<Remediation>,
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
    /// Whether the controller would start the change. Null if this is unknown.
    pub allowed: Option<bool>,
    /// What blocks the change, or why `allowed` is unknown.
    pub blocked_by: Vec<BlockedBy>,
    /// Why the change would never end, although the controller would start it. Absent if it would end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub never_ends: Option<NeverEnds>,
}

/// Why a change would never end, and the check that reports the change once it has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NeverEnds {
    pub check: &'static str,
    /// The reason, on one line.
    pub message: String,
}

/// What blocks a change, and the check that reports the same problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "Problem"))]
#[serde(rename_all = "camelCase")]
pub struct BlockedBy {
    pub check: &'static str,
    /// The objects that block the change, as `Kind/name`.
    pub objects: Vec<String>,
    /// Why the change is blocked, on one line.
    pub message: String,
}

pub fn inspect(observed: &Snapshot, now: Timestamp) -> Inspection {
    let checks: Vec<Checked> = all().map(|check| check.run(observed, now)).collect();
    Inspection {
        health: Health::from_checks(&checks),
        basis: if are_all_read(observed) {
            Basis::AllSources
        } else {
            Basis::Conditions
        },
        votes: votes(observed),
        verdicts: compare_machines(observed, now),
        preflight: preflight::preflight(observed, &checks, now),
        checks,
    }
}

impl Health {
    /// Decides the health from the results of the checks. A failed check takes precedence over a source that could not be
    /// read. A check without a result does not count, because another check reports the source that could not be read.
    fn from_checks(checks: &[Checked]) -> Self {
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
    /// The findings of all checks, most severe first. Among findings of equal severity, those of blocking checks come
    /// first and those of summary checks last.
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
                check.is_some_and(|check| check.is_summary),
            )
        });
        all
    }

    /// The part of the inspection that is about etcd: its checks, and the health that follows from them.
    pub fn of_etcd(&self) -> Self {
        let mut part = self.clone();
        part.checks.retain(|checked| is_about_etcd(checked.id));
        part.health = Health::from_checks(&part.checks);
        part
    }

    /// Whether the Machine matches the spec of the control plane. `None` if this is unknown.
    pub fn is_up_to_date(&self, machine: &Machine) -> Option<bool> {
        let mut verdicts = self.verdicts.iter();
        let verdict = verdicts.find(|verdict| verdict.machine == machine.name());
        verdict.map_or_else(
            || machine.up_to_date(),
            |verdict| Some(verdict.reasons.is_empty()),
        )
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
