//! The verdict on a control plane, from its conditions and counts.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::{
    condition_health,
    finding::{Finding, Severity},
    machine_health::{self, Phase, age},
};
use crate::{
    arguments::duration::format_duration,
    control_plane::{Condition, Snapshot},
    verdict::Verdict,
};

/// How long a change may say that it is blocked before that counts as a fault. Cluster API says so for seconds to
/// minutes in every rollout, while it waits for the next Machine.
const BLOCKED_AFTER: Duration = Duration::from_secs(30 * 60);

/// The verdict on one control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Health {
    /// Nothing is wrong; a change may be under way.
    Healthy,
    /// Something is wrong.
    Degraded,
    /// What is asked for does not go on.
    Blocked,
    /// No controller has said.
    Unknown,
}

impl Health {
    /// As on the screen and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Degraded => "Degraded",
            Self::Blocked => "Blocked",
            Self::Unknown => "Unknown",
        }
    }

    /// What it means for the exit code.
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Healthy => Verdict::Met,
            Self::Degraded | Self::Blocked => Verdict::Negative,
            Self::Unknown => Verdict::Undecided,
        }
    }
}

/// The verdict and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// The verdict.
    pub health: Health,
    /// The heaviest first.
    pub findings: Vec<Finding>,
}

/// Judges a control plane as it is at `now`.
pub fn assess(snapshot: &Snapshot, now: Timestamp) -> Assessment {
    let mut findings = Vec::new();
    findings.extend(unseen(snapshot));
    findings.extend(lifecycle(snapshot, now));
    let blocked = paused(snapshot)
        .into_iter()
        .chain(stuck(snapshot, now))
        .collect::<Vec<_>>();
    let is_blocked = blocked.iter().any(|finding| finding.severity == Severity::Fail);
    findings.extend(blocked);
    let is_changing = is_changing(snapshot, now);
    findings.extend(condition_health::findings(
        &snapshot.control_plane,
        is_changing,
        now,
    ));
    findings.extend(under_way(snapshot));
    findings.extend(machine_health::findings(snapshot, now));
    findings.sort_by_key(|finding| finding.severity);

    let health = match findings.first().map(|finding| finding.severity) {
        Some(Severity::Fail) if is_blocked => Health::Blocked,
        Some(Severity::Fail) => Health::Degraded,
        Some(Severity::Unknown) => Health::Unknown,
        Some(Severity::Warn | Severity::Info) | None => Health::Healthy,
    };
    Assessment { health, findings }
}

/// What no controller has looked at cannot be judged.
fn unseen(Snapshot { control_plane, .. }: &Snapshot) -> Option<Finding> {
    let unknown =
        |id, message: String| Finding::of_control_plane(id, Severity::Unknown, &control_plane.name, message);
    if control_plane.conditions.is_empty() {
        return Some(
            unknown("status-absent", "no controller has reported on it yet".to_owned())
                .hint("is Cluster API's kubeadm control plane controller running?"),
        );
    }
    if !control_plane.is_observed() {
        let observed = control_plane.observed_generation.unwrap_or(0);
        return Some(unknown(
            "status-outdated",
            format!(
                "the controller has seen generation {observed} of the spec, not yet {}",
                control_plane.generation
            ),
        ));
    }
    None
}

fn lifecycle(Snapshot { control_plane, .. }: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let fail =
        |id, message: String| Finding::of_control_plane(id, Severity::Fail, &control_plane.name, message);
    let mut findings = Vec::new();
    if let Some(failure) = &control_plane.failure {
        findings.push(fail("failure-reported", failure.clone()));
    }
    if let Some(since) = control_plane.deleting_since {
        let waiting = control_plane
            .condition("Deleting")
            .map(|condition| format!(": {}", condition.one_line()))
            .unwrap_or_default();
        findings.push(fail(
            "being-deleted",
            format!("being deleted for {}{waiting}", format_duration(age(since, now))),
        ));
    }
    findings
}

/// Whether something is asked for that is not so yet.
fn has_pending_change(Snapshot { control_plane, .. }: &Snapshot) -> bool {
    !control_plane.is_observed()
        || control_plane.replicas != control_plane.desired()
        || control_plane.up_to_date_replicas < control_plane.replicas
}

fn paused(snapshot: &Snapshot) -> Option<Finding> {
    let control_plane = &snapshot.control_plane;
    if !control_plane.paused && !control_plane.is("Paused") {
        return None;
    }
    let (severity, message) = if has_pending_change(snapshot) {
        (
            Severity::Fail,
            "paused, with changes pending: no controller works on it",
        )
    } else {
        (Severity::Warn, "paused: no controller works on it")
    };
    let remedy = if control_plane.paused {
        format!(
            "resume with: kubectl annotate kcp {} -n {} cluster.x-k8s.io/paused-",
            control_plane.name, control_plane.namespace
        )
    } else {
        "its Cluster is paused: set spec.paused of the Cluster to false".to_owned()
    };
    Some(Finding::of_control_plane("paused", severity, &control_plane.name, message).hint(remedy))
}

/// A change that has said for long that it is blocked.
fn stuck(Snapshot { control_plane, .. }: &Snapshot, now: Timestamp) -> Vec<Finding> {
    ["ScalingUp", "ScalingDown"]
        .into_iter()
        .filter_map(|kind| control_plane.condition(kind))
        .filter(|condition| condition.is_true() && condition.message.contains("blocked because"))
        .filter_map(|condition| {
            let since = condition.last_transition_time?;
            let lasts = age(since, now);
            (lasts > BLOCKED_AFTER).then(|| {
                Finding::of_control_plane(
                    "change-blocked",
                    Severity::Fail,
                    &control_plane.name,
                    format!("for {}: {}", format_duration(lasts), condition.one_line()),
                )
            })
        })
        .collect()
}

/// Whether Machines come or go.
fn is_changing(snapshot: &Snapshot, now: Timestamp) -> bool {
    let machines = snapshot.machines.iter();
    has_pending_change(snapshot)
        || snapshot.control_plane.is("RollingOut")
        || machines
            .map(|machine| Phase::of(machine, now))
            .any(|phase| phase != Phase::Settled)
}

/// What goes on as asked.
fn under_way(Snapshot { control_plane, .. }: &Snapshot) -> Vec<Finding> {
    let info =
        |id, message: String| Finding::of_control_plane(id, Severity::Info, &control_plane.name, message);
    let mut findings = Vec::new();
    let (desired, replicas) = (control_plane.desired(), control_plane.replicas);
    if control_plane.is("RollingOut") || control_plane.up_to_date_replicas < replicas {
        let why = control_plane
            .condition("RollingOut")
            .filter(|condition| condition.is_true())
            .map(|condition| format!(": {}", condition.one_line()))
            .unwrap_or_default();
        findings.push(info(
            "rollout-in-progress",
            format!(
                "rollout in progress, {} of {desired} Machines up to date{why}",
                control_plane.up_to_date_replicas
            ),
        ));
    } else if control_plane.is_observed() && replicas != desired {
        let direction = if replicas < desired { "up" } else { "down" };
        findings.push(info(
            "scaling-in-progress",
            format!("scaling {direction}, {replicas} Machines of {desired}"),
        ));
    }
    if let Some(remediating) = control_plane
        .condition("Remediating")
        .filter(|c| Condition::is_true(c))
    {
        findings.push(info("remediation-in-progress", remediating.one_line()));
    }
    findings
}

#[cfg(test)]
mod tests;
