//! The checks of `kubectl kcp status`. Each check is a pure function of a snapshot. Each topic is one file with a table
//! of checks, their functions, and passing and failing cases.
//!
//! - [`sources`]: whether each source of the snapshot could be read
//! - [`conditions`], [`lifecycle`]: the control plane's conditions, pauses, owners and deletion
//! - [`rollout`]: pending changes and their progress
//! - [`machines`], [`remediation`]: Machines, their nodes and their health checks
//! - [`deadlock`]: deletions of Machines that block each other
//! - [`left_behind`]: Nodes without a Machine
//! - [`failure_domains`]: Machines in too few failure domains
//! - [`joining`]: Machines whose etcd member votes before they have a node
//! - [`etcd_refusals`], [`etcd_quorum`], [`etcd_agreement`], [`etcd_members`], [`etcd_storage`]: etcd; [`membership`] combines the responses of
//!   its members
//! - [`components`], [`kubeadm`], [`workload`]: the workload cluster
//! - [`certificates`]: Secrets, and the expiry of certificates
//! - [`refusals`], [`drains`]: writes and evictions that a controller repeats because they are refused
//! - [`actor`]: who acts next on a finding
//! - [`example`]: what each check finds, for example

#![allow(
    clippy::unnecessary_wraps,
    reason = "all check functions have the same type, including those that always return a result"
)]

use std::time::Duration;

use jiff::Timestamp;

use crate::{join_times::JoinLimit, snapshot::Snapshot};
use actor::Responsible;
use finding::{CheckOutcome, CheckResult, Finding, NoResult};

pub mod actor;
pub mod certificates;
pub mod components;
pub mod conditions;
pub mod controller;
pub mod deadlock;
pub mod drains;
pub mod etcd_agreement;
pub mod etcd_members;
pub mod etcd_quorum;
pub mod etcd_refusals;
pub mod etcd_storage;
pub mod example;
pub mod failure_domains;
pub mod finding;
pub mod joining;
pub mod kubeadm;
pub mod left_behind;
pub mod lifecycle;
pub mod machine_grace;
pub mod machines;
pub mod membership;
pub mod refusals;
pub mod remediation;
pub mod rollout;
pub mod sources;
pub mod workload;

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of a check")]
pub struct Check {
    /// The id of the check in kebab-case, which JSON output contains.
    pub id: &'static str,
    /// What a finding of the check means: one sentence with a period.
    pub meaning: &'static str,
    /// Whether `status` allows neither scaling nor rollouts while the check fails.
    pub is_preflight: bool,
    /// Whether the pending change makes no progress while the check fails.
    pub is_blocking: bool,
    /// Whether the check only repeats problems that other checks report in detail.
    pub is_summary: bool,
    /// Who acts next on a finding of the check.
    pub responsible: Responsible,
    /// The ids of the checks that report causes. Several checks share each inner list. A finding is an effect
    /// if one of these checks has a finding about the same object.
    effect_of: &'static [&'static [&'static str]],
    /// Whether a finding with the outcome `Info` says who replaces the Machine. The replacement also solves
    /// the Machine's other problems.
    pub takes_over: bool,
    /// Whether an unknown outcome means that the answer of `why` is unknown.
    pub makes_why_unknown: bool,
    /// How long the actor usually takes. `None` if there is no usual time.
    pub usual_time: Option<UsualTime>,
    function: fn(&Snapshot, Timestamp) -> CheckResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsualTime {
    Fixed(Duration),
    /// The [`JoinLimit`] of the control plane.
    JoinLimit,
}

impl UsualTime {
    pub fn at_most(self, observed: &Snapshot) -> Duration {
        match self {
            Self::Fixed(limit) => limit,
            Self::JoinLimit => JoinLimit::of(observed).limit,
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub id: &'static str,
    /// The most severe outcome among the findings.
    pub outcome: CheckOutcome,
    /// Why the check is unknown or skipped, on one line. `None` if the check ran.
    pub reason: Option<String>,
    pub findings: Vec<Finding>,
}

impl Check {
    const fn new(
        id: &'static str,
        meaning: &'static str,
        function: fn(&Snapshot, Timestamp) -> CheckResult,
        responsible: Responsible,
    ) -> Self {
        Self {
            id,
            meaning,
            is_preflight: false,
            is_blocking: false,
            is_summary: false,
            responsible,
            effect_of: &[],
            takes_over: false,
            makes_why_unknown: false,
            usual_time: None,
            function,
        }
    }

    const fn preflight(self) -> Self {
        Self {
            is_preflight: true,
            ..self
        }
    }

    const fn blocking(self) -> Self {
        Self {
            is_blocking: true,
            ..self
        }
    }

    const fn as_summary(self) -> Self {
        Self {
            is_summary: true,
            ..self
        }
    }

    const fn effect_of(self, effect_of: &'static [&'static [&'static str]]) -> Self {
        assert!(
            self.effect_of.is_empty(),
            "a second call would replace the first lists"
        );
        Self { effect_of, ..self }
    }

    const fn as_unread(self) -> Self {
        Self {
            makes_why_unknown: true,
            ..self
        }
    }

    const fn taking_over(self) -> Self {
        Self {
            takes_over: true,
            ..self
        }
    }

    const fn usually_within(self, usual_time: Duration) -> Self {
        Self {
            usual_time: Some(UsualTime::Fixed(usual_time)),
            ..self
        }
    }

    const fn usually_within_join_limit(self) -> Self {
        Self {
            usual_time: Some(UsualTime::JoinLimit),
            ..self
        }
    }

    /// The ids of the checks that report causes of this check's findings.
    pub fn causes(&self) -> impl Iterator<Item = &'static str> {
        self.effect_of.iter().copied().flatten().copied()
    }

    pub fn run(&self, observed: &Snapshot, now: Timestamp) -> Checked {
        let (outcome, reason, findings) = match (self.function)(observed, now) {
            Ok(mut findings) => {
                if observed.is_paused() {
                    let paused = if observed.is_cluster_paused() {
                        "the Cluster"
                    } else {
                        "the control plane"
                    };
                    for finding in &mut findings {
                        finding.resume_first(paused);
                    }
                }
                let worst = findings.iter().map(|finding| finding.outcome).max();
                (worst.unwrap_or(CheckOutcome::Pass), None, findings)
            }
            Err(NoResult::Skipped(reason)) => (CheckOutcome::Skipped, Some(reason), Vec::new()),
            Err(NoResult::Unknown(reason)) => (CheckOutcome::Unknown, Some(reason), Vec::new()),
        };
        Checked {
            id: self.id,
            outcome,
            reason,
            findings,
        }
    }
}

/// All checks, by topic. Findings of equal severity are printed in this order, in which causes come before their effects.
pub const TOPICS: &[&[Check]] = &[
    sources::CHECKS,
    conditions::CHECKS,
    lifecycle::CHECKS,
    refusals::CHECKS,
    rollout::CHECKS,
    deadlock::CHECKS,
    drains::CHECKS,
    joining::CHECKS,
    machines::CHECKS,
    left_behind::CHECKS,
    failure_domains::CHECKS,
    etcd_refusals::CHECKS,
    etcd_quorum::CHECKS,
    etcd_agreement::CHECKS,
    etcd_members::CHECKS,
    etcd_storage::CHECKS,
    components::CHECKS,
    kubeadm::CHECKS,
    workload::CHECKS,
    remediation::CHECKS,
    certificates::CHECKS,
];

/// Whether the check with this id is about etcd: its id begins with `etcd-`, or its topic is about etcd.
pub fn is_about_etcd(id: &str) -> bool {
    const TOPICS: &[&[Check]] = &[
        joining::CHECKS,
        etcd_refusals::CHECKS,
        etcd_quorum::CHECKS,
        etcd_agreement::CHECKS,
        etcd_members::CHECKS,
        etcd_storage::CHECKS,
    ];
    id.starts_with("etcd-") || TOPICS.iter().copied().flatten().any(|check| check.id == id)
}

pub fn all() -> impl Iterator<Item = &'static Check> {
    TOPICS.iter().copied().flatten()
}

pub fn find(id: &str) -> Option<&'static Check> {
    all().find(|check| check.id == id)
}

#[cfg(test)]
pub mod tests;
