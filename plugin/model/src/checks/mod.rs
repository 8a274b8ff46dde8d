//! The checks: each is a pure function of a snapshot. A topic is one file with the table of its checks, their functions
//! and cases that pass and fail.
//!
//! - [`sources`]: whether each source could be read
//! - [`conditions`], [`lifecycle`]: what the controller reports, and the control plane as an object
//! - [`rollout`]: what changes, and whether it makes progress
//! - [`machines`], [`remediation`]: Machines and their nodes
//! - [`etcd_quorum`], [`etcd_agreement`], [`etcd_members`], [`etcd_storage`]: etcd, as [`membership`] sums up its members
//! - [`components`], [`kubeadm`], [`workload`]: the workload cluster
//! - [`certificates`]: whether they exist, and when they expire

#![allow(
    clippy::unnecessary_wraps,
    reason = "the functions of the table are of one type, whether or not one can fail to judge"
)]

use jiff::Timestamp;

use crate::snapshot::Snapshot;
use finding::{CheckOutcome, Finding, Judgement, Unjudged};

pub mod certificates;
pub mod components;
pub mod conditions;
pub mod etcd_agreement;
pub mod etcd_members;
pub mod etcd_quorum;
pub mod etcd_storage;
pub mod finding;
pub mod kubeadm;
pub mod lifecycle;
pub mod machine_grace;
pub mod machines;
pub mod membership;
pub mod remediation;
pub mod rollout;
pub mod sources;
pub mod workload;

#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Kebab-case. Scripts rely on it.
    pub id: &'static str,
    /// What is true if the check passes.
    pub summary: &'static str,
    /// No Machine is created or deleted while it fails.
    pub is_preflight: bool,
    /// The desired change makes no progress while it fails.
    pub is_blocking: bool,
    pub sums_up: bool,
    judge: fn(&Snapshot, Timestamp) -> Judgement,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub id: &'static str,
    /// The worst of its findings.
    pub outcome: CheckOutcome,
    /// Why it is unknown or was skipped, on one line; none otherwise.
    pub reason: Option<String>,
    pub findings: Vec<Finding>,
}

impl Check {
    const fn new(
        id: &'static str,
        summary: &'static str,
        judge: fn(&Snapshot, Timestamp) -> Judgement,
    ) -> Self {
        Self {
            id,
            summary,
            is_preflight: false,
            is_blocking: false,
            sums_up: false,
            judge,
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

    const fn summing_up(self) -> Self {
        Self {
            sums_up: true,
            ..self
        }
    }

    pub fn run(&self, observed: &Snapshot, now: Timestamp) -> Checked {
        let (outcome, reason, findings) = match (self.judge)(observed, now) {
            Ok(findings) => {
                let worst = findings.iter().map(|finding| finding.outcome).max();
                (worst.unwrap_or(CheckOutcome::Pass), None, findings)
            }
            Err(Unjudged::Skipped(reason)) => (CheckOutcome::Skipped, Some(reason), Vec::new()),
            Err(Unjudged::Unknown(reason)) => (CheckOutcome::Unknown, Some(reason), Vec::new()),
        };
        Checked {
            id: self.id,
            outcome,
            reason,
            findings,
        }
    }
}

/// The topics. Their order, and that of the checks in each, is the order of findings of equal weight: a cause comes before
/// its effects.
pub const TOPICS: &[&[Check]] = &[
    sources::CHECKS,
    conditions::CHECKS,
    lifecycle::CHECKS,
    rollout::CHECKS,
    machines::CHECKS,
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

pub fn all() -> impl Iterator<Item = &'static Check> {
    TOPICS.iter().copied().flatten()
}

pub fn find(id: &str) -> Option<&'static Check> {
    all().find(|check| check.id == id)
}

#[cfg(test)]
pub mod tests;
