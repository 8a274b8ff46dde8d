//! The result of each check of a Node.

use jiff::Timestamp;
use kcp_rules::probe::ProbeReport;
use serde::Serialize;

use crate::{
    audit::{AuditOutcome, nodes::LEASE_LIMIT},
    duration::format_duration,
    snapshot::{Reading, workload::ControllerLease},
    staleness::{age, format_age},
};

/// A Node and the Lease of its kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    pub name: String,
    /// `None` if the condition is unknown.
    pub ready: Option<bool>,
    /// `None` if there is no Lease.
    pub lease: Reading<Option<ControllerLease>>,
}

/// What came of the Pod on a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// No Pod was created, for this reason.
    NotCreated(String),
    /// The Pod did not end in time, or could not run, for this reason.
    NotEnded(String),
    /// The log could not be read, for this reason.
    WithoutLog(String),
    /// The log of the Pod.
    Log(String),
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct NodeCheck {
    pub id: &'static str,
    pub outcome: AuditOutcome,
    /// What was found, in one line.
    pub message: String,
}

/// All checks of a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct NodeResult {
    pub name: String,
    pub checks: Vec<NodeCheck>,
}

impl NodeCheck {
    fn new(id: &'static str, outcome: AuditOutcome, message: impl Into<String>) -> Self {
        Self {
            id,
            outcome,
            message: message.into(),
        }
    }
}

impl NodeResult {
    /// Judges a Node. `nonce` is the text that its Pod must print.
    pub fn new(node: &NodeFacts, probe: &Probe, nonce: &str, now: Timestamp) -> Self {
        let mut checks = vec![check_ready(node), check_lease(node, now)];
        checks.extend(check_probe(probe, nonce));
        Self {
            name: node.name.clone(),
            checks,
        }
    }

    /// FAIL if a check fails, otherwise UNKNOWN if one is unknown.
    pub fn outcome(&self) -> AuditOutcome {
        let outcomes = self.checks.iter().map(|check| check.outcome);
        outcomes.max().unwrap_or(AuditOutcome::Unknown)
    }
}

fn check_ready(node: &NodeFacts) -> NodeCheck {
    let (outcome, message) = match node.ready {
        Some(true) => (AuditOutcome::Pass, "the Node is ready"),
        Some(false) => (AuditOutcome::Fail, "the Node is not ready"),
        None => (
            AuditOutcome::Fail,
            "it is unknown whether the Node is ready, because its kubelet does not report",
        ),
    };
    NodeCheck::new("node-ready", outcome, message)
}

fn check_lease(node: &NodeFacts, now: Timestamp) -> NodeCheck {
    let (outcome, message) = match &node.lease {
        Reading::Read(lease) => match lease.as_ref().and_then(|lease| lease.renewed) {
            Some(renewed) => {
                let is_stale = age(renewed, now) > LEASE_LIMIT;
                let limit = format_duration(LEASE_LIMIT);
                let renewed = format_age(renewed, now);
                if is_stale {
                    let message =
                        format!("the kubelet last renewed its Lease {renewed} ago; the limit is {limit}");
                    (AuditOutcome::Fail, message)
                } else {
                    (
                        AuditOutcome::Pass,
                        format!("the kubelet last renewed its Lease {renewed} ago"),
                    )
                }
            }
            None => (
                AuditOutcome::Fail,
                "the kubelet has no Lease in kube-node-lease, or has never renewed it".to_owned(),
            ),
        },
        Reading::Failed(failure) | Reading::OutOfReach(failure) => (
            AuditOutcome::Unknown,
            format!("the Lease could not be read: {}", failure.text()),
        ),
        Reading::Excluded { .. } | Reading::NotYet => {
            (AuditOutcome::Unknown, "the Lease was not read".to_owned())
        }
    };
    NodeCheck::new("lease-renewed", outcome, message)
}

/// The checks that a Pod makes. If the Pod did not run, those that need it are unknown.
fn check_probe(probe: &Probe, nonce: &str) -> Vec<NodeCheck> {
    let (ran, log) = match probe {
        Probe::NotCreated(why) => (NodeCheck::new("pod-completes", AuditOutcome::Unknown, why), None),
        Probe::NotEnded(why) => (NodeCheck::new("pod-completes", AuditOutcome::Fail, why), None),
        Probe::WithoutLog(why) => (completed(), Some(Err(why))),
        Probe::Log(log) => (completed(), Some(Ok(log))),
    };
    let mut checks = vec![ran];
    let report = match log {
        None => None,
        Some(Err(why)) => {
            checks.push(NodeCheck::new("log-matches", AuditOutcome::Fail, why));
            None
        }
        Some(Ok(log)) => {
            let report = report(log, nonce);
            checks.push(match &report {
                Ok(_) => NodeCheck::new("log-matches", AuditOutcome::Pass, "the log repeats the nonce"),
                Err(why) => NodeCheck::new("log-matches", AuditOutcome::Fail, *why),
            });
            report.ok()
        }
    };
    if let Some(report) = &report {
        checks.extend([check_names(report), check_api_server(report)]);
    } else {
        let unknown = |id| NodeCheck::new(id, AuditOutcome::Unknown, "there is no report of a Pod");
        if checks.len() == 1 {
            checks.push(unknown("log-matches"));
        }
        checks.extend(["names-resolve", "api-server-responds"].map(unknown));
    }
    checks
}

fn completed() -> NodeCheck {
    NodeCheck::new(
        "pod-completes",
        AuditOutcome::Pass,
        "the Pod was scheduled, and ran to completion",
    )
}

/// The report in a log.
fn report(log: &str, nonce: &str) -> Result<ProbeReport, &'static str> {
    let line = log.lines().rev().find(|line| !line.trim().is_empty());
    let line = line.ok_or("the log is empty")?;
    let report: ProbeReport = serde_json::from_str(line)
        .map_err(|_| "the last line of the log is not a report of kcp-webhook probe")?;
    if report.nonce == nonce {
        Ok(report)
    } else {
        Err("the log belongs to another Pod: it contains another nonce")
    }
}

fn check_names(report: &ProbeReport) -> NodeCheck {
    let failed: Vec<String> = report
        .names
        .iter()
        .filter(|name| name.addresses.is_empty())
        .map(|name| {
            format!(
                "{}: {}",
                name.name,
                name.error.as_deref().unwrap_or("no addresses")
            )
        })
        .collect();
    if !failed.is_empty() {
        return NodeCheck::new("names-resolve", AuditOutcome::Fail, failed.join("; "));
    }
    let resolved = report
        .names
        .iter()
        .map(|name| format!("{}: {}", name.name, name.addresses.join(", ")));
    let resolved: Vec<String> = resolved.collect();
    NodeCheck::new("names-resolve", AuditOutcome::Pass, resolved.join("; "))
}

fn check_api_server(report: &ProbeReport) -> NodeCheck {
    let answer = &report.api_server;
    let (outcome, message) = match (&answer.version, &answer.error) {
        (Some(version), _) => (AuditOutcome::Pass, format!("version {version}")),
        (None, Some(error)) => (AuditOutcome::Fail, error.clone()),
        (None, None) => (AuditOutcome::Fail, "no response".to_owned()),
    };
    NodeCheck::new("api-server-responds", outcome, message)
}

#[cfg(test)]
mod tests;
