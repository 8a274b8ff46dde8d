//! What is wrong with the Machines of a control plane.

use std::time::Duration;

use jiff::Timestamp;

use super::finding::{Finding, Severity};
use crate::{
    arguments::duration::format_duration,
    control_plane::{Condition, Machine, Snapshot},
};

/// How long a Machine may take from its making to its readiness. Cluster API's quick start has nodes up in under five
/// minutes; cloud providers document ten at most.
pub(super) const STARTING_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How long a Machine may take to go. Draining waits for pod disruption budgets and can be slow without being stuck.
const DELETING_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Conditions of a Machine that must hold, what each is about, and the id of the finding when it does not.
const MUST_HOLD: &[(&str, &str, &str)] = &[
    (
        "HealthCheckSucceeded",
        "health check",
        "machine-health-check-failed",
    ),
    ("APIServerPodHealthy", "API server", "api-server-unhealthy"),
    (
        "ControllerManagerPodHealthy",
        "controller manager",
        "controller-manager-unhealthy",
    ),
    ("SchedulerPodHealthy", "scheduler", "scheduler-unhealthy"),
    ("EtcdPodHealthy", "etcd pod", "etcd-pod-unhealthy"),
    ("EtcdMemberHealthy", "etcd member", "etcd-member-unhealthy"),
    (
        "NodeKubeadmLabelsAndTaintsSet",
        "node labels and taints",
        "node-marks-missing",
    ),
];

/// Where a Machine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Made a short while ago and not ready yet: what its conditions lack says nothing.
    Starting,
    /// On its way out.
    Deleting,
    /// To be judged.
    Settled,
}

impl Phase {
    pub(super) fn of(machine: &Machine, now: Timestamp) -> Self {
        let is_young = machine
            .created
            .is_some_and(|created| age(created, now) < STARTING_LIMIT);
        if machine.deleting_since.is_some() {
            Self::Deleting
        } else if is_young && machine.ready() != Some(true) {
            Self::Starting
        } else {
            Self::Settled
        }
    }
}

/// How long ago a time was; nothing for a time to come, as clocks differ.
pub(super) fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// What is wrong with any of them.
pub(super) fn findings(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let machines = snapshot.machines.iter();
    machines
        .flat_map(|machine| match Phase::of(machine, now) {
            Phase::Deleting => vec![deleting(machine, now)],
            Phase::Starting => vec![starting(machine, now)],
            Phase::Settled => settled(machine, snapshot.control_plane.external_etcd, now),
        })
        .collect()
}

fn deleting(machine: &Machine, now: Timestamp) -> Finding {
    let lasts = machine
        .deleting_since
        .map(|since| age(since, now))
        .unwrap_or_default();
    let severity = if lasts > DELETING_LIMIT {
        Severity::Fail
    } else {
        Severity::Info
    };
    let waiting = machine
        .condition("Deleting")
        .filter(|condition| condition.is_true())
        .map(|condition| format!(": {}", condition.one_line()))
        .unwrap_or_default();
    Finding::of_machine(
        "machine-deleting",
        severity,
        &machine.name,
        format!("being deleted for {}{waiting}", format_duration(lasts)),
    )
}

fn starting(machine: &Machine, now: Timestamp) -> Finding {
    let lasts = machine
        .created
        .map(|created| age(created, now))
        .unwrap_or_default();
    let message = match &machine.phase {
        Some(phase) => format!(
            "starting for {}, {}",
            format_duration(lasts),
            phase.to_lowercase()
        ),
        None => format!("starting for {}", format_duration(lasts)),
    };
    Finding::of_machine("machine-starting", Severity::Info, &machine.name, message)
}

fn settled(machine: &Machine, external_etcd: bool, now: Timestamp) -> Vec<Finding> {
    let fail = |id, message: String| Finding::of_machine(id, Severity::Fail, &machine.name, message);
    if machine.node.is_none() {
        let lasts = machine
            .created
            .map(|created| age(created, now))
            .unwrap_or_default();
        return vec![
            fail(
                "machine-without-node",
                format!("no node has joined for {}", format_duration(lasts)),
            )
            .hint(format!(
                "see: kubectl describe machine {} -n {}",
                machine.name, machine.namespace
            )),
        ];
    }
    let mut findings: Vec<Finding> = MUST_HOLD
        .iter()
        .filter(|(kind, ..)| !(external_etcd && kind.starts_with("Etcd")))
        .filter_map(|(kind, about, id)| {
            let condition = machine.condition(kind).filter(|condition| !condition.is_true())?;
            let doubt = if condition.is_false() { "" } else { "unknown: " };
            Some(fail(id, format!("{about}: {doubt}{}", condition.one_line())))
        })
        .collect();
    // Readiness sums up the conditions above; it counts by itself when none of them explains it.
    let not_ready = machine.condition("Ready").filter(|c| Condition::is_false(c));
    if let (true, Some(condition)) = (findings.is_empty(), not_ready) {
        findings.push(fail("machine-not-ready", condition.one_line()));
    }
    findings
}
