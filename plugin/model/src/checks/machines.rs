//! Checks whether Machines and their nodes have joined, are ready, and are deleted in time.

use jiff::Timestamp;
use kcp_api::{Condition, Machine, Object as _};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        components::{diagnose_hint, node_finding},
        controller::stopped_holder,
        finding::{CheckOutcome, CheckResult, Finding, WORKLOAD, machine_object, require},
        machine_grace::{Phase, machine_of_node, require_machines},
        rollout::{compare_machines, undo_hint},
    },
    controller_release::Behaviour,
    duration::format_duration,
    join_times::JoinLimit,
    problem::{Problem, leader_hint},
    snapshot::{ControllerLease, Reading, Snapshot, workload::JoinReport},
    staleness::{DELETION_LIMIT, SLOW_DELETION, age, format_age},
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "core-controllers-stopped",
        "Cluster API's core controllers have stopped, and a Machine waits for them.",
        check_core_controllers_stopped,
        Responsible::Fault(Actor::MachineController),
    )
    .blocking(),
    Check::new(
        "bootstrap-controller-stopped",
        "The kubeadm bootstrap controller has stopped, and a new Machine waits for it.",
        check_bootstrap_controller_stopped,
        Responsible::Fault(Actor::BootstrapProvider),
    )
    .blocking(),
    Check::new(
        "machines-paused",
        "A Machine is paused, so no controller reconciles it.",
        check_machines_paused,
        Responsible::Fault(Actor::Person),
    )
    .blocking(),
    Check::new(
        "machines-without-node",
        "A Machine has no node yet.",
        check_machines_without_node,
        Responsible::StepBy(who_starts_machine),
    )
    .usually_within_join_limit()
    .effect_of(&[&[
        "machines-paused",
        "core-controllers-stopped",
        "bootstrap-controller-stopped",
        "etcd-learners-stuck",
        "kubeadm-config-unusable",
        "secrets-missing",
        "joining-member-needed",
    ]])
    .preflight(),
    Check::new(
        "machines-not-ready",
        "The condition Ready of a Machine is False, for a reason that no other check reports.",
        check_machines_not_ready,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "machine-deletions-slow",
        "The deletion of a Machine takes more than two minutes.",
        check_machine_deletions_slow,
        Responsible::StepBy(who_deletes_machine),
    )
    .usually_within(DELETION_LIMIT)
    .effect_of(&[&[
        "machines-paused",
        "core-controllers-stopped",
        "machine-deletions-deadlocked",
        "machine-drains-blocked",
        "etcd-members-unresponsive",
    ]])
    .preflight(),
    Check::new(
        "nodes-not-ready",
        "The node of a Machine is not ready, is unreachable or does not exist.",
        check_nodes_not_ready,
        Responsible::Fault(Actor::Kubelet),
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

fn check_core_controllers_stopped(observed: &Snapshot, now: Timestamp) -> CheckResult {
    stopped(
        observed,
        "Cluster API's core controllers have",
        "check that the controllers are running: kubectl get pods -A -l cluster.x-k8s.io/provider=cluster-api",
        &observed.machine_leases.core,
        now,
        |machine| machine.is_deleting() || !machine.has_node(),
    )
}

fn check_bootstrap_controller_stopped(observed: &Snapshot, now: Timestamp) -> CheckResult {
    stopped(
        observed,
        "Cluster API's kubeadm bootstrap controller has",
        "check that the controller is running: kubectl get pods -A -l cluster.x-k8s.io/provider=bootstrap-kubeadm",
        &observed.machine_leases.bootstrap,
        now,
        |machine| {
            !machine.is_deleting()
                && !machine.has_node()
                && !machine.is_condition_true("BootstrapConfigReady")
        },
    )
}

/// Finds out whether a Machine waits for a controller that has stopped. `who` is the beginning of the
/// message, such as `Cluster API's core controllers have`.
fn stopped(
    observed: &Snapshot,
    who: &str,
    hint: &str,
    lease: &Reading<Option<ControllerLease>>,
    now: Timestamp,
    waits: impl Fn(&Machine) -> bool,
) -> CheckResult {
    require_machines(observed)?;
    let mut waiting = observed.machines.iter().filter(|machine| waits(machine));
    let Some(first) = waiting.next() else {
        return Ok(Vec::new());
    };
    if !matches!(lease, Reading::NotYet) {
        require(lease, "the Lease of the controller")?;
    }
    let Some((holder, renewed)) = stopped_holder(lease, now) else {
        return Ok(Vec::new());
    };
    let message = format!(
        "{who} stopped: {holder} last renewed its Lease {} ago",
        format_age(renewed, now)
    );
    let first = Finding::fail(machine_object(first.name()), message)
        .with_since(Some(renewed))
        .with_hint(hint);
    Ok(vec![waiting.fold(first, |finding, machine| {
        finding.with_object(machine_object(machine.name()))
    })])
}

/// Finds paused Machines, which no controller reconciles. A paused Machine is a failure if a change needs the
/// Machine.
pub fn check_machines_paused(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let verdicts = compare_machines(observed, now);
    let is_outdated = |machine: &Machine| {
        let mut outdated = verdicts.iter().filter(|verdict| verdict.is_outdated());
        outdated.any(|verdict| verdict.machine == machine.name())
    };
    let paused = observed.machines.iter().filter(|machine| machine.is_paused());
    let findings = paused.map(|machine| {
        let needed_for = if machine.is_deleting() {
            Some("its deletion waits until the Machine is resumed")
        } else if !machine.has_node() {
            Some("its creation waits until the Machine is resumed")
        } else if is_outdated(machine) {
            Some("the rollout waits until the Machine is resumed")
        } else {
            None
        };
        let outcome = needed_for.map_or(CheckOutcome::Warn, |_| CheckOutcome::Fail);
        let condition = machine.condition("Paused").filter(|paused| paused.is_true());
        let problem = Problem::MachinePaused {
            machine: machine.name().to_owned(),
        };
        let finding = Finding::about(&problem, outcome, &observed.control_plane)
            .with_since(condition.and_then(|paused| paused.last_transition_time));
        let waiting = needed_for.map_or_else(String::new, |waiting| format!("; {waiting}"));
        let message = finding.message + &waiting;
        Finding { message, ..finding }
    });
    Ok(findings.collect())
}

pub fn check_machines_without_node(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let findings = observed
        .machines
        .iter()
        .filter_map(|machine| match Phase::of(observed, machine, now) {
            Phase::Deleting => None,
            Phase::Settled if machine.has_node() || machine.deletion_timestamp().is_some() => None,
            _ if has_failed_to_join(observed, machine) => reported_finding(observed, machine),
            Phase::Starting => Some(starting_finding(observed, machine, now)),
            Phase::Settled => {
                let lasts = machine.creation_timestamp().map_or_else(String::new, |created| {
                    format!(" within {}", format_age(created, now))
                });
                let JoinLimit { limit, source } = JoinLimit::of(observed);
                let limit = format_duration(limit);
                let report = report_clause(observed, machine);
                let message =
                    format!("its node has not joined{lasts}; the limit is {limit} ({source}){report}");
                let see = diagnose_hint(machine);
                let undo = undo_hint(observed, machine.name(), &compare_machines(observed, now));
                let hint = match undo {
                    Some(undo) => format!("{see}; if the change of the spec is the cause, {undo}"),
                    None => see,
                };
                Some(
                    Finding::fail(machine_object(machine.name()), message)
                        .with_since(machine.creation_timestamp())
                        .with_hint(hint),
                )
            }
        });
    Ok(findings.collect())
}

/// The Machine that a finding is about.
pub(crate) fn machine_of<'o>(observed: &'o Snapshot, finding: &Finding) -> Option<&'o Machine> {
    let is_named = |machine: &&Machine| finding.objects.contains(&machine_object(machine.name()));
    observed.machines.iter().find(is_named)
}

/// Who takes the next step while a Machine starts. The infrastructure provider needs the bootstrap data;
/// kubeadm runs once the host is running.
fn who_starts_machine(observed: &Snapshot, finding: &Finding, _: Timestamp) -> Actor {
    let Some(machine) = machine_of(observed, finding) else {
        return Actor::ControlPlaneController;
    };
    if machine.has_node() {
        Actor::Kubelet
    } else if has_failed_to_join(observed, machine) {
        Actor::Person
    } else if !machine.is_condition_true("BootstrapConfigReady") {
        Actor::BootstrapProvider
    } else if machine.is_condition_true("InfrastructureReady") {
        Actor::Kubeadm
    } else {
        Actor::InfrastructureProvider
    }
}

fn who_deletes_machine(observed: &Snapshot, finding: &Finding, _: Timestamp) -> Actor {
    machine_of(observed, finding).map_or(Actor::MachineController, who_deletes)
}

/// Who takes the next step of a deletion, according to the reason of the condition `Deleting`
/// (`api/core/v1beta2/machine_types.go`).
pub(crate) fn who_deletes(machine: &Machine) -> Actor {
    let has_foreign_hook = machine.foreign_deletion_hooks().next().is_some();
    let reason = machine
        .condition("Deleting")
        .map(|condition| condition.reason.as_str());
    match reason {
        Some("WaitingForPreDrainHook" | "WaitingForPreTerminateHook") | None if has_foreign_hook => {
            Actor::HookOwner
        }
        Some("WaitingForPreTerminateHook") => Actor::ControlPlaneController,
        Some("WaitingForInfrastructureDeletion") => Actor::InfrastructureProvider,
        Some("WaitingForBootstrapDeletion") => Actor::BootstrapProvider,
        _ => Actor::MachineController,
    }
}

/// What the host of a Machine without a node reports about its join. `None` if it reports nothing.
fn join_report<'o>(observed: &'o Snapshot, machine: &Machine) -> Option<&'o JoinReport> {
    let workload = observed.workload.value().filter(|_| !machine.has_node())?;
    workload.join_report(machine)
}

fn has_failed_to_join(observed: &Snapshot, machine: &Machine) -> bool {
    join_report(observed, machine).is_some_and(|report| report.has_failed)
}

/// The report as the end of a message. Empty if there is none.
fn report_clause(observed: &Snapshot, machine: &Machine) -> String {
    join_report(observed, machine).map_or_else(String::new, |report| format!("; {}", report.sentence()))
}

/// A failed kubeadm does not run again, so the Machine does not get a node, however long it has existed.
fn reported_finding(observed: &Snapshot, machine: &Machine) -> Option<Finding> {
    let report = join_report(observed, machine)?;
    let (name, namespace) = (machine.name(), machine.namespace());
    let hint = format!(
        "{}; correct the cause, and then replace the Machine, because Cluster API does not run kubeadm again: kubectl kcp machine \
         replace {name} -n {namespace}",
        diagnose_hint(machine)
    );
    let finding = Finding::fail(machine_object(name), report.sentence());
    Some(finding.with_since(Some(report.reported)).with_hint(hint))
}

fn starting_finding(observed: &Snapshot, machine: &Machine, now: Timestamp) -> Finding {
    let lasts = machine.creation_timestamp().map_or_else(String::new, |created| {
        format!(" for {}", format_age(created, now))
    });
    let phase = machine
        .status
        .phase
        .as_ref()
        .map_or_else(String::new, |phase| format!(", {}", phase.to_lowercase()));
    let joined = if machine.has_node() {
        "; its node has joined, but Cluster API has not reported all components as healthy yet"
    } else {
        ""
    };
    Finding::info(
        machine_object(machine.name()),
        format!(
            "starting{lasts}{phase}{joined}{}",
            report_clause(observed, machine)
        ),
    )
    .with_since(machine.creation_timestamp())
}

pub fn check_machine_deletions_slow(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let findings = observed.machines.iter().filter_map(|machine| {
        let started = machine.deletion_timestamp()?;
        if age(started, now) < SLOW_DELETION {
            return None;
        }
        let outcome = if Phase::of(observed, machine, now) == Phase::Settled {
            CheckOutcome::Fail
        } else {
            CheckOutcome::Info
        };
        let waits_for = observed
            .deletions
            .iter()
            .find(|deletion| deletion.machine == machine.name())
            .map(|deletion| deletion.waits_for.join("; "));
        let says = || {
            let condition = machine.condition("Deleting");
            condition
                .filter(|c| Condition::is_true(c))
                .map(Condition::message_or_reason)
        };
        let waits_for = waits_for
            .filter(|text| !text.is_empty())
            .or_else(says)
            .map_or_else(String::new, |text| format!(", waiting for: {text}"));
        let message = format!("deletion began {} ago{waits_for}", format_age(started, now));
        let finding = Finding::new(outcome, machine_object(machine.name()), message).with_since(Some(started));
        let waits_for_hook = who_deletes_machine(observed, &finding, now) == Actor::HookOwner;
        let hook = machine.foreign_deletion_hooks().next().filter(|_| waits_for_hook);
        Some(match (hook, outcome) {
            (Some(hook), _) => finding.with_hint(format!(
                "another program delays the deletion with the annotation {hook}; if that program does not remove the \
                 annotation, run: kubectl annotate machine {} -n {} {hook}-",
                machine.name(),
                machine.namespace()
            )),
            (None, CheckOutcome::Fail) => finding.with_hint(diagnose_hint(machine)),
            (None, _) => finding,
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
        .filter(|machine| machine.has_node() && Phase::of(observed, machine, now) == Phase::Settled);
    let findings = settled.filter_map(|machine| {
        let condition = machine
            .condition("Ready")
            .filter(|ready| Condition::is_false(ready))?;
        let is_explained = REPORTED_ELSEWHERE.iter().any(|kind| {
            let other = machine.condition(kind);
            other.is_some_and(|other| !other.is_true())
        });
        (!is_explained).then(|| {
            Finding::fail(machine_object(machine.name()), condition.message_or_reason())
                .with_transition_time(condition)
                .with_hint(diagnose_hint(machine))
        })
    });
    Ok(findings.collect())
}

/// Says how to replace a Machine: through its `MachineHealthCheck` if that would act. While Cluster API cannot delete the Machine
/// because etcd's leader does not respond, says how another member becomes the leader.
pub fn replacement_hint(observed: &Snapshot, machine: &Machine) -> String {
    let members = observed.members();
    let any_waits = !observed.release().has(Behaviour::LearnsLeaderFromFollowers);
    if let Some(leader) = members.unreachable_leader()
        && (any_waits || machine.node() == Some(&leader.name))
    {
        return leader_hint(&leader.name);
    }
    let (name, namespace) = (machine.name(), machine.namespace());
    let checks = observed.health_checks.value().into_iter().flatten();
    let acts = checks
        .filter(|check| check.targets.contains(name))
        .any(|check| check.acts_on(machine));
    // Cluster API remediates no Machine while another one joins or is being deleted.
    let is_changing = |other: &Machine| !other.has_node() || other.is_deleting();
    let is_never_remediated =
        observed.has_external_etcd() && observed.release().has(Behaviour::RequiresMemberList);
    if acts && !is_never_remediated && !observed.machines.iter().any(is_changing) {
        format!("replace the Machine: kubectl kcp machine remediate {name} -n {namespace}")
    } else {
        format!("replace the Machine: kubectl kcp machine replace {name} -n {namespace}")
    }
}

pub fn check_nodes_not_ready(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let workload = require(&observed.workload, WORKLOAD)?;
    let nodes = require(&workload.nodes, "nodes")?;
    let present = nodes.iter().filter_map(|node| {
        machine_of_node(observed, &node.name)?;
        let message = match (node.ready, node.is_unreachable) {
            (_, true) => "the node is unreachable",
            (Some(true), false) => return None,
            (Some(false), false) => "the node is not ready",
            (None, false) => "the node does not report whether it is ready",
        };
        node_finding(observed, &node.name, message, now).map(|finding| {
            let examine = format!("describe node {}", node.name);
            finding
                .with_since(node.ready_since)
                .with_hint(observed.kubectl_in_workload(&examine))
        })
    });
    let gone = observed
        .machines
        .iter()
        .filter_map(|machine| machine.node())
        .filter(|name| !nodes.iter().any(|node| node.name == *name))
        .filter_map(|name| {
            node_finding(
                observed,
                name,
                "the node does not exist in the workload cluster",
                now,
            )
        });
    Ok(present.chain(gone).collect())
}

#[cfg(test)]
pub(crate) mod test_cases {
    use kcp_api::{
        ConditionStatus::{False, True},
        metadata::Time,
    };

    use crate::{
        checks::tests::{Case, starts},
        snapshot::{ControllerLease, Deletion, Reading, workload::JoinReport},
        testing::{
            objects::{condition, minutes_ago, now, pause, set},
            snapshot::failure,
        },
    };

    /// A report of a host with this name and the address 10.0.0.3.
    pub(crate) fn join_report_of(host: &str, has_failed: bool) -> JoinReport {
        JoinReport {
            host: host.to_owned(),
            addresses: vec!["10.0.0.3".to_owned(), "fd00::3".to_owned()],
            has_failed,
            text: "kubeadm has failed in its phase kubelet-start: a disk of the host is full".to_owned(),
            reported: now(),
        }
    }

    fn lease(minutes: i64) -> Reading<Option<ControllerLease>> {
        Reading::Read(Some(ControllerLease {
            name: "capi".to_owned(),
            holder: Some("manager-1".to_owned()),
            renewed: Some(minutes_ago(minutes)),
            acquired: None,
            duration_seconds: Some(15),
        }))
    }

    pub(crate) const CASES: &[Case] = &[
        ("core-controllers-stopped", "without_a_change", |o| {
            o.machine_leases.core = lease(3);
        }),
        ("core-controllers-stopped", "during_a_deletion", |o| {
            o.machine_leases.core = lease(3);
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        }),
        ("core-controllers-stopped", "renewed", |o| {
            o.machine_leases.core = lease(2);
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        }),
        ("core-controllers-stopped", "its_lease_is_not_readable", |o| {
            o.machine_leases.core = Reading::Failed(failure("Lease/capi", "forbidden"));
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        }),
        ("bootstrap-controller-stopped", "for_a_new_machine", |o| {
            o.machine_leases.bootstrap = lease(3);
            starts(o);
        }),
        ("bootstrap-controller-stopped", "after_its_work", |o| {
            o.machine_leases.bootstrap = lease(3);
            starts(o);
            let conditions = &mut o.machine(3).status.conditions;
            set(conditions, condition("BootstrapConfigReady", True, ""));
        }),
        ("machines-paused", "in_use", |o| pause(&mut o.machine(2).metadata)),
        ("machines-paused", "outdated", |o| {
            pause(&mut o.machine(2).metadata);
            o.machine(2).spec.version = Some("v1.33.0".to_owned());
        }),
        ("machines-paused", "being_deleted", |o| {
            pause(&mut o.machine(2).metadata);
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(6)));
        }),
        ("machines-paused", "starting", |o| {
            starts(o);
            pause(&mut o.machine(3).metadata);
        }),
        ("machines-without-node", "starts", starts),
        ("machines-without-node", "does_not_join", |o| {
            starts(o);
            o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(10)));
        }),
        ("machines-without-node", "does_not_join_after_a_change", |o| {
            starts(o);
            o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(10)));
            o.machine(1).spec.version = Some("v1.33.0".to_owned());
            o.machine(2).spec.version = Some("v1.33.0".to_owned());
        }),
        ("machines-without-node", "its_host_reports_why", |o| {
            starts(o);
            o.workload().join_reports = vec![join_report_of("m3", true)];
        }),
        ("machines-without-node", "its_host_reports_a_slow_join", |o| {
            starts(o);
            o.machine(3).status.addresses = vec!["10.0.0.3".to_owned()];
            o.workload().join_reports = vec![join_report_of("another-name", false)];
        }),
        (
            "machines-without-node",
            "its_host_reports_before_the_limit",
            |o| {
                starts(o);
                o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(10)));
                o.workload().join_reports = vec![join_report_of("m3", false)];
            },
        ),
        ("machines-without-node", "the_reports_are_of_others", |o| {
            starts(o);
            let earlier = JoinReport {
                reported: minutes_ago(2),
                ..join_report_of("m3", true)
            };
            let other = JoinReport {
                addresses: Vec::new(),
                ..join_report_of("m4", true)
            };
            // This Machine has joined since.
            o.workload().join_reports = vec![earlier, other, join_report_of("m2", true)];
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
                started_at: minutes_ago(5),
                waits_for: vec![
                    "deletion hook pre-terminate/kcp-cleanup".to_owned(),
                    "drain of node-m2".to_owned(),
                ],
            }];
        }),
        ("machine-deletions-slow", "began_a_moment_ago", |o| {
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
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

#[cfg(test)]
mod tests {
    use kcp_api::ConditionStatus::True;

    use super::replacement_hint;
    use crate::{
        snapshot::Snapshot,
        testing::{
            objects::{condition, set},
            snapshot::observed,
        },
    };

    /// `machine remediate` refuses in all other cases.
    #[test]
    fn a_machine_is_remediated_only_if_its_health_check_acts() {
        type Case = (&'static str, fn(&mut Snapshot), &'static str);
        let cases: &[Case] = &[
            ("allowed", |_| {}, "remediate"),
            ("paused", |o| o.health_checks()[0].paused = true, "replace"),
            (
                "not selected",
                |o| o.health_checks()[0].targets.clear(),
                "replace",
            ),
            (
                "too many unhealthy",
                |o| o.health_checks()[0].remediation_allowed = Some(false),
                "replace",
            ),
            (
                "already unhealthy",
                |o| o.health_checks()[0].allows_one_more = Some(false),
                "remediate",
            ),
            (
                "one more would be too many",
                |o| {
                    o.health_checks()[0].allows_one_more = Some(false);
                    set(
                        &mut o.machine(1).status.conditions,
                        condition("HealthCheckSucceeded", True, ""),
                    );
                },
                "replace",
            ),
        ];
        for (name, change, verb) in cases {
            let mut observed = observed();
            change(&mut observed);
            let machine = observed.machines[0].clone();
            let expected = format!("replace the Machine: kubectl kcp machine {verb} m1 -n d");
            assert_eq!(replacement_hint(&observed, &machine), expected, "{name}");
        }
    }
}
