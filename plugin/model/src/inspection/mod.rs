//! What is decided about a control plane: each check, the verdict, and what may be done now.

pub mod health;
pub mod inspect;
pub mod preflight;

use std::cmp::Reverse;

use serde::Serialize;

use crate::{
    checks::find,
    control_plane::Machine,
    inspection::health::Health,
    plan::{quorum::Votes, rollout_reason},
};

/// What an inspection came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// The verdict.
    pub health: Health,
    /// What it rests on.
    pub basis: Basis,
    /// Every check, in the table's order.
    pub checks: Vec<Checked>,
    /// etcd's votes; none where etcd is external or its members are not known.
    pub votes: Option<Votes>,
    /// Of each Machine, by name: whether it is to be replaced, and why.
    pub up_to_date: Vec<rollout_reason::Verdict>,
    /// What may be done now.
    pub preflight: Preflight,
}

/// What a verdict rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// The management cluster, the workload cluster and etcd.
    AllSources,
    /// What the controllers have written into conditions, because the workload cluster or etcd was not asked or did not
    /// answer.
    Conditions,
}

/// A check and what it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Stable, kebab-case.
    pub id: &'static str,
    /// What it found, all in all: the worst of its findings.
    pub outcome: Outcome,
    /// Why it is unknown or was skipped, on one line; none otherwise.
    pub reason: Option<String>,
    /// What is wrong, or under way. Empty when it passed.
    pub findings: Vec<Finding>,
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// As it should be.
    Pass,
    /// It does not apply, or a flag left out what it needs.
    Skipped,
    /// Under way as asked for: a rollout in progress.
    Info,
    /// Wants a look; does not make the control plane unhealthy.
    Warn,
    /// Could not be judged.
    Unknown,
    /// Wrong.
    Fail,
}

/// One thing that a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How much it weighs.
    pub outcome: Outcome,
    /// `Kind/name` of what it is about, at least one.
    pub objects: Vec<String>,
    /// What is so, on one line.
    pub message: String,
    /// What to do about it, where we know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What may be done now, as the controller's preflight has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// One Machine more.
    pub scale_up: Permission,
    /// One Machine less.
    pub scale_down: Permission,
    /// Replacing every Machine.
    pub rollout: Permission,
    /// Replacing this one Machine because it is unhealthy, by name.
    pub remediation: Vec<Remediation>,
}

/// Whether the remediation of one Machine may go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Remediation {
    /// Which.
    pub machine: String,
    /// Whether it may.
    #[serde(flatten)]
    pub permission: Permission,
}

/// Whether something may be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// None where it cannot be told.
    pub allowed: Option<bool>,
    /// What keeps it, or keeps us from telling.
    pub blocked_by: Vec<Blocker>,
}

/// What keeps something from being done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    /// The check that found it.
    pub check: &'static str,
    /// `Kind/name` of what it is about.
    pub objects: Vec<String>,
    /// What is so, on one line.
    pub message: String,
}

impl Inspection {
    /// Every finding with its check, the heaviest first; of equal weight those that stop what is asked for, then in the
    /// checks' order, and last those that sum up others.
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

    /// Whether a Machine is as the spec asks; none where nobody can say.
    pub fn is_up_to_date(&self, machine: &Machine) -> Option<bool> {
        let mut verdicts = self.up_to_date.iter();
        let judged = verdicts.find(|verdict| verdict.machine == machine.name);
        judged.map_or_else(
            || machine.up_to_date(),
            |verdict| Some(verdict.reasons.is_empty()),
        )
    }
}

impl Outcome {
    /// As on the screen and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skipped => "skipped",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Unknown => "unknown",
            Self::Fail => "fail",
        }
    }
}
