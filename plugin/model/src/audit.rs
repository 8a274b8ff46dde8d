//! The checks of `kubectl kcp audit`: whether a cluster comes back by itself after all its machines lost power, and
//! whether it survives the loss of one control plane Node. Each check is a pure function of [`Facts`]. Each topic is one file with
//! a table of checks, their functions, and passing and failing cases.
//!
//! The audit finds what is known to prevent a restart. It does not prove that the cluster restarts.
//!
//! - [`facts`]: what the checks read
//! - [`evidence`]: what a check returns
//! - [`static_pods`], [`images`], [`drift`]: the Pods that the kubelet starts without an API server
//! - [`etcd`]: members, alarms, and the members that API servers use
//! - [`endpoint`]: how clients and kubelets find an API server
//! - [`certificates`]: certificates that expire while the machines are off
//! - [`nodes`]: Nodes without Machines, and Leases that are not renewed
//! - [`webhooks`], [`extensions`]: servers that run in the cluster, and that the API server calls

pub mod certificates;
pub mod drift;
pub mod endpoint;
pub mod etcd;
pub mod evidence;
pub mod extensions;
pub mod facts;
pub mod images;
pub mod nodes;
pub mod static_pods;
pub mod webhooks;

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

pub use evidence::{AuditOutcome, Evidence};
pub use facts::Facts;

/// What a check assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assumptions {
    pub now: Timestamp,
    /// How long the machines stay off.
    pub power_off: Duration,
}

/// A check of the audit.
#[derive(Clone, Copy, Debug)]
pub struct AuditCheck {
    /// The id in kebab-case. It names the problem.
    pub id: &'static str,
    /// What must be true, as a sentence without a period.
    pub requirement: &'static str,
    /// What to do if it is not true, as a sentence without a period.
    pub remedy: &'static str,
    function: fn(&Facts, Assumptions) -> Evidence,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Audited {
    pub id: &'static str,
    pub outcome: AuditOutcome,
    /// What must be true.
    pub requirement: &'static str,
    /// What the check read, one line for each fact. If the check does not pass, only the reasons.
    pub evidence: Vec<String>,
    /// What to do. Absent if the check passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
}

/// All checks, by topic.
pub const TOPICS: &[&[AuditCheck]] = &[
    static_pods::CHECKS,
    images::CHECKS,
    drift::CHECKS,
    etcd::CHECKS,
    endpoint::CHECKS,
    certificates::CHECKS,
    nodes::CHECKS,
    webhooks::CHECKS,
    extensions::CHECKS,
];

pub fn all() -> impl Iterator<Item = &'static AuditCheck> {
    TOPICS.iter().copied().flatten()
}

/// Runs all checks, in the order of [`TOPICS`].
pub fn audit(facts: &Facts, assumptions: Assumptions) -> Vec<Audited> {
    all().map(|check| check.run(facts, assumptions)).collect()
}

impl AuditCheck {
    pub fn run(&self, facts: &Facts, assumptions: Assumptions) -> Audited {
        let (outcome, evidence) = (self.function)(facts, assumptions).decide();
        Audited {
            id: self.id,
            outcome,
            requirement: self.requirement,
            evidence,
            remedy: (outcome != AuditOutcome::Pass).then_some(self.remedy),
        }
    }
}

#[cfg(test)]
mod tests;
