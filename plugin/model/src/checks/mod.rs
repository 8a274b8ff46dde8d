//! What is looked at in a control plane: a table of checks, each a pure function of what was observed.
//!
//! - [`table`]: all of them
//! - [`sources`]: whether what was asked for could be read
//! - [`lifecycle`], [`conditions`]: the control plane as an object, and what its controller says of it
//! - [`etcd_members`], [`etcd_quorum`], [`etcd_agreement`], [`etcd_storage`]: etcd, by [`membership`]
//! - [`components`], [`nodes`], [`add_ons`], [`kubelet_skew`], [`kubeadm_config`]: the workload cluster
//! - [`machines`], [`remediation`], [`rollout`]: Machines as they come and go
//! - [`certificates`]: those that are there, and when they expire
//!
//! [`turnover`] holds the times within which a Machine that comes or goes is no fault.

#![allow(
    clippy::unnecessary_wraps,
    reason = "the functions of the table are of one type, whether or not one can fail to judge"
)]

use jiff::Timestamp;

use crate::{
    inspection::{Checked, Outcome},
    snapshot::Observed,
};
use judgement::{Judgement, Unjudged};
pub use table::CHECKS;

pub mod add_ons;
pub mod certificates;
pub mod components;
pub mod conditions;
pub mod etcd_agreement;
pub mod etcd_members;
pub mod etcd_quorum;
pub mod etcd_storage;
pub mod judgement;
pub mod kubeadm_config;
pub mod kubelet_skew;
pub mod lifecycle;
pub mod machines;
pub mod membership;
pub mod nodes;
pub mod remediation;
pub mod rollout;
pub mod sources;
pub mod table;
pub mod turnover;

/// A check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Stable, kebab-case.
    pub id: &'static str,
    /// What is so when it passes.
    pub summary: &'static str,
    /// Where it comes from.
    pub asked_by: AskedBy,
    /// Whether Machines are neither added nor removed while it fails.
    pub is_preflight: bool,
    /// Whether what is asked for does not go on while it fails.
    pub is_blocking: bool,
    /// Whether it sums up what other checks look at, one by one.
    pub sums_up: bool,
    judge: fn(&Observed, Timestamp) -> Judgement,
}

/// Where a check comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedBy {
    /// Cluster API's proposal "Kubeadm Based Control Plane Management": its preflight checks, or health checks as its
    /// first text has them.
    Preflight,
    /// User stories 6 and 10 of the same: whether the control plane is healthy, and whether kube-proxy and new Machines
    /// work.
    Health,
    /// The same, on scaling, rollout, remediation and adoption.
    Lifecycle,
    /// etcd's and Kubernetes' own advice to operators.
    Operation,
    /// Ourselves: what could not be read is not passed over.
    Reading,
}

impl Check {
    const fn new(
        id: &'static str,
        summary: &'static str,
        asked_by: AskedBy,
        judge: fn(&Observed, Timestamp) -> Judgement,
    ) -> Self {
        Self {
            id,
            summary,
            asked_by,
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

    /// What it finds at a time.
    pub fn run(&self, observed: &Observed, now: Timestamp) -> Checked {
        let (outcome, reason, findings) = match (self.judge)(observed, now) {
            Ok(findings) => {
                let worst = findings.iter().map(|finding| finding.outcome).max();
                (worst.unwrap_or(Outcome::Pass), None, findings)
            }
            Err(Unjudged::Skipped(reason)) => (Outcome::Skipped, Some(reason), Vec::new()),
            Err(Unjudged::Unknown(reason)) => (Outcome::Unknown, Some(reason), Vec::new()),
        };
        Checked {
            id: self.id,
            outcome,
            reason,
            findings,
        }
    }
}

/// The check of an id.
pub fn find(id: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.id == id)
}

#[cfg(any(test, feature = "testing"))]
pub mod example;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub use tests::starts;
