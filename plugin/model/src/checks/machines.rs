//! The Machines: whether each has come up, and whether each that goes is gone in time.

use jiff::Timestamp;

use crate::checks::{
    components::describe,
    judgement::{Judgement, machine},
    turnover::{Phase, machines, machines_read, since},
};
use crate::{
    control_plane::Condition,
    inspection::{Finding, Outcome},
    plan::observed::Machine,
    snapshot::Observed,
};

/// Conditions of a Machine that its readiness sums up, and that other checks look at.
const EXPLAIN: [&str; 6] = [
    "HealthCheckSucceeded",
    "APIServerPodHealthy",
    "ControllerManagerPodHealthy",
    "SchedulerPodHealthy",
    "EtcdPodHealthy",
    "EtcdMemberHealthy",
];

/// Each Machine has its node, or is young.
pub fn nodes(observed: &Observed, now: Timestamp) -> Judgement {
    machines_read(observed)?;
    let findings = machines(observed)
        .iter()
        .filter_map(|of| match Phase::of(of, now) {
            Phase::Leaving => None,
            Phase::Starting => Some(starting(of, now)),
            Phase::Settled if of.has_node() || of.machine.deleting_since.is_some() => None,
            Phase::Settled => {
                let lasts = of
                    .machine
                    .created
                    .map_or_else(String::new, |created| format!(" for {}", since(created, now)));
                let message = format!("no node has joined{lasts}");
                Some(Finding::fail(machine(&of.machine.name), message).hint(describe(of)))
            }
        });
    Ok(findings.collect())
}

fn starting(of: &Machine, now: Timestamp) -> Finding {
    let lasts = of
        .machine
        .created
        .map_or_else(String::new, |created| format!(" for {}", since(created, now)));
    let phase = of
        .machine
        .phase
        .as_ref()
        .map_or_else(String::new, |phase| format!(", {}", phase.to_lowercase()));
    Finding::info(machine(&of.machine.name), format!("starting{lasts}{phase}"))
}

pub fn deletions(observed: &Observed, now: Timestamp) -> Judgement {
    machines_read(observed)?;
    let findings = machines(observed).iter().filter_map(|of| {
        let started = of.machine.deleting_since?;
        let outcome = if Phase::of(of, now) == Phase::Settled {
            Outcome::Fail
        } else {
            Outcome::Info
        };
        let waits_for = observed
            .management
            .deletions
            .iter()
            .find(|deletion| deletion.machine == of.machine.name)
            .map(|deletion| deletion.waits_for.join("; "));
        let says = || {
            let condition = of.machine.condition("Deleting");
            condition
                .filter(|c| Condition::is_true(c))
                .map(Condition::one_line)
        };
        let waits_for = waits_for
            .filter(|text| !text.is_empty())
            .or_else(says)
            .map_or_else(String::new, |text| format!(", waits for: {text}"));
        let message = format!("being deleted for {}{waits_for}", since(started, now));
        let finding = Finding::of(outcome, machine(&of.machine.name), message);
        Some(match outcome {
            Outcome::Fail => finding.hint(describe(of)),
            _ => finding,
        })
    });
    Ok(findings.collect())
}

/// Readiness sums up what other checks look at: it counts by itself when none of those conditions explains it.
pub fn ready(observed: &Observed, now: Timestamp) -> Judgement {
    machines_read(observed)?;
    let settled = machines(observed)
        .iter()
        .filter(|of| of.has_node() && Phase::of(of, now) == Phase::Settled);
    let findings = settled.filter_map(|of| {
        let condition = of
            .machine
            .condition("Ready")
            .filter(|ready| Condition::is_false(ready))?;
        let is_explained = EXPLAIN.iter().any(|kind| {
            let other = of.machine.condition(kind);
            other.is_some_and(|other| !other.is_true())
        });
        (!is_explained)
            .then(|| Finding::fail(machine(&of.machine.name), condition.one_line()).hint(describe(of)))
    });
    Ok(findings.collect())
}

/// How to have a Machine replaced: by a `MachineHealthCheck` where one looks after it, which thinks of the quorum.
pub fn replacement_hint(observed: &Observed, of: &Machine) -> String {
    let (name, namespace) = (&of.machine.name, &of.machine.namespace);
    let covers = observed.management.health_checks.read().is_some_and(|checks| {
        checks
            .iter()
            .any(|check| !check.paused && check.targets.contains(name))
    });
    if covers {
        format!(
            "replace it: kubectl annotate machine {name} -n {namespace} cluster.x-k8s.io/remediate-machine="
        )
    } else {
        format!("replace it: kubectl delete machine {name} -n {namespace}")
    }
}
