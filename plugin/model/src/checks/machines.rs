//! Checks whether Machines and their nodes have joined, are ready, and are deleted in time.

use jiff::Timestamp;
use kcp_api::{Condition, Machine, Object as _};

use crate::{
    checks::{
        Check,
        components::{WORKLOAD, describe_hint, node_finding},
        finding::{CheckOutcome, CheckResult, Finding, machine_object, require},
        machine_grace::{Phase, machine_of_node, require_machines},
    },
    snapshot::Snapshot,
    staleness::format_age,
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "machines-without-node",
        "every Machine has a node",
        check_machines_without_node,
    )
    .preflight(),
    Check::new(
        "machines-not-ready",
        "every Machine is ready",
        check_machines_not_ready,
    ),
    Check::new(
        "machine-deletions-slow",
        "Machines are deleted in time",
        check_machine_deletions_slow,
    )
    .preflight(),
    Check::new(
        "nodes-not-ready",
        "every control plane node exists and is ready",
        check_nodes_not_ready,
    ),
];

/// The conditions that `Ready` summarizes and that other checks report.
const REPORTED_ELSEWHERE: [&str; 6] = [
    "HealthCheckSucceeded",
    "APIServerPodHealthy",
    "ControllerManagerPodHealthy",
    "SchedulerPodHealthy",
    "EtcdPodHealthy",
    "EtcdMemberHealthy",
];

pub fn check_machines_without_node(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let findings = observed
        .machines
        .iter()
        .filter_map(|of| match Phase::from_machine(of, now) {
            Phase::Deleting => None,
            Phase::Starting => Some(starting_finding(of, now)),
            Phase::Settled if of.has_node() || of.deletion_timestamp().is_some() => None,
            Phase::Settled => {
                let lasts = of.creation_timestamp().map_or_else(String::new, |created| {
                    format!(" for {}", format_age(created, now))
                });
                let message = format!("no node has joined{lasts}");
                Some(Finding::fail(machine_object(of.name()), message).hint(describe_hint(of)))
            }
        });
    Ok(findings.collect())
}

fn starting_finding(of: &Machine, now: Timestamp) -> Finding {
    let lasts = of.creation_timestamp().map_or_else(String::new, |created| {
        format!(" for {}", format_age(created, now))
    });
    let phase = of
        .status
        .phase
        .as_ref()
        .map_or_else(String::new, |phase| format!(", {}", phase.to_lowercase()));
    Finding::info(machine_object(of.name()), format!("starting{lasts}{phase}"))
}

pub fn check_machine_deletions_slow(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let findings = observed.machines.iter().filter_map(|of| {
        let started = of.deletion_timestamp()?;
        let outcome = if Phase::from_machine(of, now) == Phase::Settled {
            CheckOutcome::Fail
        } else {
            CheckOutcome::Info
        };
        let waits_for = observed
            .deletions
            .iter()
            .find(|deletion| deletion.machine == of.name())
            .map(|deletion| deletion.waits_for.join("; "));
        let says = || {
            let condition = of.condition("Deleting");
            condition
                .filter(|c| Condition::is_true(c))
                .map(Condition::one_line)
        };
        let waits_for = waits_for
            .filter(|text| !text.is_empty())
            .or_else(says)
            .map_or_else(String::new, |text| format!(", waiting for: {text}"));
        let message = format!("being deleted for {}{waits_for}", format_age(started, now));
        let finding = Finding::new(outcome, machine_object(of.name()), message);
        Some(match outcome {
            CheckOutcome::Fail => finding.hint(describe_hint(of)),
            _ => finding,
        })
    });
    Ok(findings.collect())
}

/// Checks the condition `Ready`. Reports it only if no condition in [`REPORTED_ELSEWHERE`] explains why it is False.
pub fn check_machines_not_ready(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let settled = observed
        .machines
        .iter()
        .filter(|of| of.has_node() && Phase::from_machine(of, now) == Phase::Settled);
    let findings = settled.filter_map(|of| {
        let condition = of.condition("Ready").filter(|ready| Condition::is_false(ready))?;
        let is_explained = REPORTED_ELSEWHERE.iter().any(|kind| {
            let other = of.condition(kind);
            other.is_some_and(|other| !other.is_true())
        });
        (!is_explained)
            .then(|| Finding::fail(machine_object(of.name()), condition.one_line()).hint(describe_hint(of)))
    });
    Ok(findings.collect())
}

/// Says how to replace a Machine: through its `MachineHealthCheck`, because a remediation protects the quorum, or by
/// deletion if it has none.
pub fn replacement_hint(observed: &Snapshot, of: &Machine) -> String {
    let (name, namespace) = (of.name(), of.namespace());
    let covers = observed.health_checks.read().is_some_and(|checks| {
        checks
            .iter()
            .any(|check| !check.paused && check.targets.contains(name))
    });
    if covers {
        format!(
            "replace the Machine: kubectl annotate machine {name} -n {namespace} cluster.x-k8s.io/remediate-machine="
        )
    } else {
        format!("replace the Machine: kubectl delete machine {name} -n {namespace}")
    }
}

pub fn check_nodes_not_ready(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let workload = require(&observed.workload, WORKLOAD)?;
    let nodes = require(&workload.nodes, "nodes")?;
    let present = nodes.iter().filter_map(|of| {
        machine_of_node(observed, &of.name)?;
        let message = match (of.ready, of.is_unreachable) {
            (_, true) => "the node is unreachable",
            (Some(true), false) => return None,
            (Some(false), false) => "the node is not ready",
            (None, false) => "the node does not report whether it is ready",
        };
        node_finding(observed, &of.name, message, now).map(|finding| {
            finding.hint(format!(
                "in the workload cluster: kubectl describe node {}",
                of.name
            ))
        })
    });
    let gone = observed
        .machines
        .iter()
        .filter_map(|machine| machine.node())
        .filter(|on| !nodes.iter().any(|of| of.name == *on))
        .filter_map(|on| {
            node_finding(
                observed,
                on,
                "the node does not exist in the workload cluster",
                now,
            )
        });
    Ok(present.chain(gone).collect())
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::{
        ConditionStatus::{False, True},
        metadata::Time,
    };

    use crate::{
        checks::tests::{Case, starts},
        snapshot::Deletion,
        testing::objects::{condition, minutes_ago, set},
    };

    pub(crate) const CASES: &[Case] = &[
        ("machines-without-node", "starts", starts),
        ("machines-without-node", "does_not_join", |o| {
            starts(o);
            o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(10)));
        }),
        ("machines-not-ready", "for_another_reason", |o| {
            let conditions = &mut o.machine(2).status.conditions;
            set(
                conditions,
                condition("Ready", False, "* NodeHealthy: kubelet is down"),
            );
        }),
        ("machines-not-ready", "as_another_condition_says", |o| {
            let conditions = &mut o.machine(2).status.conditions;
            set(
                conditions,
                condition("Ready", False, "* SchedulerPodHealthy: crashed"),
            );
            set(conditions, condition("SchedulerPodHealthy", False, "crashed"));
        }),
        ("machine-deletions-slow", "leaves", |o| {
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(5)));
            o.deletions = vec![Deletion {
                machine: "m2".to_owned(),
                since: minutes_ago(5),
                waits_for: vec![
                    "deletion hook pre-terminate/kcp-cleanup".to_owned(),
                    "drain of node-m2".to_owned(),
                ],
            }];
        }),
        ("machine-deletions-slow", "does_not_go", |o| {
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(31)));
            let deleting = condition("Deleting", True, "Drain not completed yet:\n* Pod a/b");
            set(&mut o.machine(2).status.conditions, deleting);
        }),
        ("nodes-not-ready", "not_ready", |o| {
            o.nodes()[1].ready = Some(false);
        }),
        ("nodes-not-ready", "does_not_say", |o| o.nodes()[1].ready = None),
        ("nodes-not-ready", "unreachable", |o| {
            o.nodes()[1].ready = None;
            o.nodes()[1].is_unreachable = true;
        }),
        ("nodes-not-ready", "gone", |o| {
            o.nodes().remove(1);
        }),
        ("nodes-not-ready", "of_a_worker", |o| {
            o.nodes()[3].ready = Some(false);
        }),
    ];
}
