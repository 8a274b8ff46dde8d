//! Checks for unhealthy Machines, for blockers of their remediation, and for Machines without a
//! `MachineHealthCheck`.

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::{
    Condition, ConditionStatus, Machine, Object as _, machine_health_check::UnhealthyCondition,
    names::annotation,
};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        components::{diagnose_hint, machines_without_etcd},
        finding::{CheckOutcome, CheckResult, Finding, NoResult, machine_object, require},
        machine_grace::{Phase, are_machines_changing, require_machines},
        machines::machine_of,
        rollout::compare_machines,
    },
    duration::format_duration,
    join_times::JoinTimes,
    plan::{
        blockers::malformed_record,
        remediation::{self, RemediationContext},
        state::{PlanState, Replica},
    },
    problem::{Problem, resume_machine_hint},
    snapshot::{EtcdMembers, HealthCheck, Snapshot, management::is_skipped},
    staleness::{CONTROLLER_LIMIT, OBSERVATION_LIMIT},
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "machines-unhealthy",
        "A MachineHealthCheck reports a Machine as unhealthy.",
        check_machines_unhealthy,
        Responsible::StepBy(who_remediates),
    )
    .effect_of(&[&[
        "nodes-not-ready",
        "etcd-members-unresponsive",
        "remediation-blocked",
    ]]),
    Check::new(
        "remediation-blocked",
        "The controller is replacing an unhealthy Machine, or cannot replace it.",
        check_remediation_blocked,
        Responsible::StepBy(who_unblocks),
    )
    .taking_over()
    .usually_within(CONTROLLER_LIMIT),
    Check::new(
        "remediation-scheduled",
        "A MachineHealthCheck is going to mark a Machine as unhealthy.",
        check_remediation_scheduled,
        Responsible::Step(Actor::MachineHealthCheck),
    )
    .taking_over()
    .usually_within(OBSERVATION_LIMIT),
    Check::new(
        "machines-without-health-check",
        "A Machine is selected by no MachineHealthCheck, or the MachineHealthCheck that selects it cannot \
         act.",
        check_machines_without_health_check,
        Responsible::Fault(Actor::Person),
    ),
];

/// Returns the current state of the Machines and members, for decisions about remediation. If the etcd members could
/// not be read, a member whose pod is not ready also counts as unhealthy.
pub fn state(observed: &Snapshot, now: Timestamp) -> PlanState {
    let mut state = PlanState::new(observed, &compare_machines(observed, now));
    if observed.members() != EtcdMembers::Unread {
        return state;
    }
    let without_etcd = machines_without_etcd(observed);
    let broken: Vec<String> = state
        .replicas
        .iter()
        .filter(|replica| {
            has_failed(replica, "EtcdPodHealthy") || without_etcd.contains(replica.name.as_str())
        })
        .map(|replica| replica.name.clone())
        .collect();
    for member in state.members.iter_mut().flatten() {
        let is_broken = member.machine.as_ref().is_some_and(|name| broken.contains(name));
        member.is_healthy &= !is_broken;
        member.is_dead |= is_broken;
    }
    state
}

fn has_failed(replica: &Replica, condition: &str) -> bool {
    let mut faults = replica.faults.iter();
    faults.any(|fault| fault.condition == condition && fault.is_false)
}

pub fn remediation_context(observed: &Snapshot, now: Timestamp) -> RemediationContext<'_> {
    RemediationContext::new(observed, &observed.control_plane.spec, now)
}

/// Returns the unhealthy Machine that the controller remediates next, if any.
pub fn next_remediation(observed: &Snapshot, now: Timestamp) -> Option<remediation::NextRemediation> {
    remediation::next_remediation(&state(observed, now), remediation_context(observed, now))
}

pub fn check_machines_unhealthy(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let findings = observed.machines.iter().filter_map(|machine| {
        let condition = machine.condition("HealthCheckSucceeded")?;
        if condition.is_true() || Phase::of(observed, machine, now) == Phase::Deleting {
            return None;
        }
        let doubt = if condition.is_false() { "" } else { "unknown: " };
        let message = format!("health check: {doubt}{}", condition.message_or_reason());
        Some(
            Finding::fail(machine_object(machine.name()), message)
                .with_transition_time(condition)
                .with_hint(diagnose_hint(machine)),
        )
    });
    Ok(findings.collect())
}

/// Returns the `MachineHealthCheck` until it has asked the control plane to replace the Machine, and then the controller.
fn who_remediates(observed: &Snapshot, finding: &Finding, _: Timestamp) -> Actor {
    if machine_of(observed, finding).is_some_and(Machine::awaits_remediation) {
        Actor::ControlPlaneController
    } else {
        Actor::MachineHealthCheck
    }
}

/// Returns the controller, or a person if something blocks the remediation that does not clear on its own.
fn who_unblocks(_: &Snapshot, finding: &Finding, _: Timestamp) -> Actor {
    if finding.outcome == CheckOutcome::Fail {
        Actor::Person
    } else {
        Actor::ControlPlaneController
    }
}

/// Finds the Machines that a `MachineHealthCheck` will mark as unhealthy once its timeout has passed. Of a
/// node's conditions, the snapshot contains only `Ready`.
pub fn check_remediation_scheduled(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let checks = require(&observed.health_checks, "MachineHealthChecks")?;
    require_machines(observed)?;
    let findings = observed.machines.iter().filter_map(|machine| {
        if machine.is_deleting() || machine.failed_health_check() {
            return None;
        }
        if let Some(due) = startup_deadline(observed, machine) {
            return Some(startup_finding(observed, machine, &due, now));
        }
        let of_machine = checks
            .iter()
            .filter(|check| may_mark(check))
            .filter(|check| check.targets.contains(machine.name()));
        let due = of_machine.flat_map(|check| {
            let timeouts = check.timeouts.iter();
            timeouts.filter_map(move |timeout| {
                let since = unhealthy_since(observed, machine, timeout)?;
                let due_at = since.checked_add(timeout.timeout).ok()?;
                Some((due_at, check, timeout))
            })
        });
        let (due_at, check, timeout) = due.min_by_key(|(due_at, ..)| *due_at)?;
        let subject = if timeout.is_node_condition {
            "its node"
        } else {
            "the Machine"
        };
        let message = format!(
            "MachineHealthCheck {} {}, because condition {} of {subject} is {}",
            check.name,
            marks(due_at, now),
            timeout.type_,
            timeout.status.as_str()
        );
        Some(
            Finding::info(machine_object(machine.name()), message)
                .with_since((due_at <= now).then_some(due_at)),
        )
    });
    Ok(findings.collect())
}

/// When a `MachineHealthCheck` marks a Machine as unhealthy because it has no node.
pub struct StartupDeadline<'o> {
    pub at: Timestamp,
    pub check: &'o HealthCheck,
    pub timeout: Duration,
}

/// The earliest deadline for the node of a Machine. `None` if the Machine has a node, or no `MachineHealthCheck` acts.
pub fn startup_deadline<'o>(observed: &'o Snapshot, machine: &Machine) -> Option<StartupDeadline<'o>> {
    let cluster = observed.cluster.value()?;
    let checks = observed
        .health_checks
        .value()?
        .iter()
        .filter(|check| may_mark(check));
    let deadlines = checks.filter_map(|check| {
        Some(StartupDeadline {
            at: check.node_startup_deadline(machine, cluster)?,
            check,
            timeout: check.node_startup_timeout?,
        })
    });
    deadlines.min_by_key(|deadline| deadline.at)
}

fn may_mark(check: &HealthCheck) -> bool {
    !check.paused && check.remediation_allowed != Some(false)
}

/// Reports when the Machine must have a node. The finding is a warning if earlier Machines took longer to join.
fn startup_finding(
    observed: &Snapshot,
    machine: &Machine,
    due: &StartupDeadline<'_>,
    now: Timestamp,
) -> Finding {
    let message = format!(
        "MachineHealthCheck {} {}, because the Machine has no node within {} (nodeStartupTimeout)",
        due.check.name,
        marks(due.at, now),
        format_duration(due.timeout)
    );
    let object = machine_object(machine.name());
    let joins = JoinTimes::measure(&observed.machines);
    match joins.and_then(|joins| joins.exceeds(due.check)) {
        Some(warning) => Finding::warn(object, format!("{message}; {warning}"))
            .with_hint(raise_startup_timeout_hint(&due.check.name, machine.namespace())),
        None => Finding::info(object, message).with_since((due.at <= now).then_some(due.at)),
    }
}

fn raise_startup_timeout_hint(check: &str, namespace: &str) -> String {
    format!("raise the timeout for new nodes: kubectl edit machinehealthcheck {check} -n {namespace}")
}

fn marks(at: Timestamp, now: Timestamp) -> String {
    if at <= now {
        "is due to mark the Machine as unhealthy".to_owned()
    } else {
        format!("marks the Machine as unhealthy at {at}")
    }
}

/// When a condition entered the status that makes a Machine unhealthy. `None` if the condition has a
/// different status.
fn unhealthy_since(
    observed: &Snapshot,
    machine: &Machine,
    unhealthy: &UnhealthyCondition,
) -> Option<Timestamp> {
    if !unhealthy.is_node_condition {
        let condition = machine.condition(&unhealthy.type_)?;
        return (condition.status == unhealthy.status)
            .then_some(condition.last_transition_time)
            .flatten();
    }
    let nodes = observed.workload.value()?.nodes.value()?;
    let node = nodes
        .iter()
        .find(|node| Some(node.name.as_str()) == machine.node())?;
    let status = match node.ready {
        Some(true) => ConditionStatus::True,
        Some(false) => ConditionStatus::False,
        None => ConditionStatus::Unknown,
    };
    (unhealthy.type_ == "Ready" && status == unhealthy.status)
        .then_some(node.ready_since)
        .flatten()
}

pub fn check_remediation_blocked(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let control_plane = &observed.control_plane;
    let object = || observed.object_name();
    let mut findings = Vec::new();
    if let Some(condition) = control_plane
        .condition("Remediating")
        .filter(|condition| Condition::is_true(condition))
    {
        findings.push(Finding::info(object(), condition.message_or_reason()).with_transition_time(condition));
    } else if let Some(remediation) = observed.control_plane.remediation_in_progress()
        && state(observed, now).has_remediation_in_progress
        && !remediation.is_malformed
    {
        let message = format!(
            "Machine {} has been deleted for remediation; its replacement does not exist yet",
            remediation.machine
        );
        findings.push(Finding::info(object(), message));
    }
    let next = next_remediation(observed, now);
    if next.is_none()
        && let Some(blocker) = malformed_record(observed, &control_plane.spec)
    {
        findings.push(Finding::about(&blocker, CheckOutcome::Fail, control_plane));
    }
    if let Some(next) = next {
        let retries = observed
            .machines
            .iter()
            .find(|machine| machine.name() == next.machine)
            .and_then(Machine::remediation_for)
            .filter(|last| last.retry_count > 0)
            .map_or_else(String::new, |last| {
                format!(", after {} retries", last.retry_count)
            });
        let object = machine_object(&next.machine);
        let state = state(observed, now);
        let refusal = state
            .replica(&next.machine)
            .and_then(|replica| state.refused_removal(replica));
        findings.push(match (&next.blocked_by, refusal) {
            (None, Some(refusal)) => Finding::fail(
                object,
                format!("the controller deletes this Machine next{retries}, but the deletion would never end: {refusal}"),
            )
            .with_hint(refusal.hint(None, control_plane.namespace(), control_plane.name())),
            (None, None) => Finding::info(
                object,
                format!("the controller remediates this Machine next{retries}"),
            ),
            (Some(blocker), _) => {
                let finding = Finding::about(blocker, outcome_of_problem(blocker), control_plane);
                let message = format!("remediation is blocked: {}", finding.message);
                let objects = vec![object];
                Finding {
                    objects,
                    message,
                    ..finding
                }
            }
        });
    }
    Ok(findings)
}

/// The outcome of a finding about a blocker. A blocker that clears on its own is only an info; every other blocker
/// requires action.
const fn outcome_of_problem(blocker: &Problem) -> CheckOutcome {
    match blocker {
        Problem::TriedTooOften { .. }
        | Problem::MalformedRemediation { .. }
        | Problem::LastMachine
        | Problem::MembersUnknown
        | Problem::ExternalEtcd { .. }
        | Problem::MembersUnreadByController { .. }
        | Problem::LeaderUnreachable { .. }
        | Problem::NoOtherWorks
        | Problem::Quorum { .. } => CheckOutcome::Fail,
        _ => CheckOutcome::Info,
    }
}

fn uncovered_message(machine: &Machine) -> String {
    if machine.is_paused() {
        "no MachineHealthCheck acts on this Machine, because the Machine is paused".to_owned()
    } else if is_skipped(machine) {
        format!(
            "no MachineHealthCheck acts on this Machine, because the Machine has annotation {}",
            annotation::SKIP_REMEDIATION
        )
    } else {
        "no MachineHealthCheck selects this Machine, although MachineHealthChecks select the other Machines"
            .to_owned()
    }
}

pub fn check_machines_without_health_check(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let checks = require(&observed.health_checks, "MachineHealthChecks")?;
    require_machines(observed)?;
    let of_machines: Vec<_> = checks.iter().filter(|check| !check.targets.is_empty()).collect();
    if observed.is_without_health_check() {
        return Err(NoResult::skipped(
            "no MachineHealthCheck selects the control plane's Machines: unhealthy Machines are not replaced automatically",
        ));
    }
    let object = |name: &str| format!("MachineHealthCheck/{name}");
    let replicas = u64::try_from(observed.control_plane.spec.replicas.unwrap_or(1)).unwrap_or_default();
    let mut findings = Vec::new();
    for check in &of_machines {
        if check.paused {
            findings.push(Finding::warn(
                object(&check.name),
                "the MachineHealthCheck is paused, so unhealthy Machines are not remediated",
            ));
        } else if let Some((why, remedy)) = check.ignores_first_failure(replicas) {
            let edit = format!(
                "{remedy}: kubectl edit machinehealthcheck {} -n {}",
                check.name,
                observed.control_plane.namespace()
            );
            findings.push(Finding::warn(object(&check.name), why).with_hint(edit));
        } else if check.remediation_allowed == Some(false) {
            // A MachineHealthCheck counts Machines that have not joined as unhealthy.
            let outcome = if are_machines_changing(observed, now) {
                CheckOutcome::Info
            } else {
                CheckOutcome::Warn
            };
            findings.push(Finding::new(
                outcome,
                object(&check.name),
                "does not remediate now, because too many of its Machines are unhealthy",
            ));
        }
    }
    let covered = |name: &str| of_machines.iter().any(|check| check.targets.contains(name));
    let uncovered = observed
        .machines
        .iter()
        .filter(|machine| machine.deletion_timestamp().is_none() && !covered(machine.name()))
        .map(|machine| {
            let finding = Finding::warn(machine_object(machine.name()), uncovered_message(machine));
            if machine.is_paused() {
                finding.with_hint(resume_machine_hint(machine.name(), machine.namespace()))
            } else if is_skipped(machine) {
                let key = annotation::SKIP_REMEDIATION;
                finding.with_hint(format!(
                    "to let a MachineHealthCheck act: kubectl annotate machine {} -n {} {key}-",
                    machine.name(),
                    machine.namespace()
                ))
            } else {
                finding
            }
        });
    findings.extend(uncovered);
    Ok(findings)
}

#[cfg(test)]
pub(super) mod test_cases {
    use std::time::Duration;

    use kcp_api::{
        ConditionStatus::{self, False, True, Unknown},
        Remediation,
        machine_health_check::UnhealthyCondition,
        names::annotation,
    };

    use crate::{
        checks::tests::{Case, starts},
        snapshot::{EtcdMembers, Reading, Snapshot, management::RemediationTrigger},
        testing::objects::{annotate, condition, minutes_ago, now, pause, record, set, use_external_etcd},
    };

    fn unhealthy(observed: &mut Snapshot, number: usize) {
        let conditions = &mut observed.machine(number).status.conditions;
        set(
            conditions,
            condition("HealthCheckSucceeded", False, "node is not ready"),
        );
        set(conditions, condition("OwnerRemediated", False, "waiting"));
    }

    /// The `MachineHealthCheck` marks a Machine after ten minutes with this status of a condition.
    fn times_out(observed: &mut Snapshot, is_of_node: bool, type_: &str, status: ConditionStatus) {
        let Reading::Read(checks) = &mut observed.health_checks else {
            panic!("they were read");
        };
        checks[0].timeouts.push(UnhealthyCondition {
            is_node_condition: is_of_node,
            type_: type_.to_owned(),
            status,
            timeout: Duration::from_secs(600),
        });
    }

    /// The `MachineHealthCheck` skips this Machine.
    fn skips(observed: &mut Snapshot, machine: &str) {
        let Reading::Read(checks) = &mut observed.health_checks else {
            panic!("they were read");
        };
        assert!(checks[0].targets.remove(machine));
    }

    fn node_is_silent(observed: &mut Snapshot, minutes: i64) {
        observed.nodes()[1].ready = None;
        observed.nodes()[1].ready_since = Some(minutes_ago(minutes));
    }

    pub(crate) const CASES: &[Case] = &[
        ("machines-without-health-check", "one_is_skipped", |o| {
            annotate(&mut o.machine(2).metadata, annotation::SKIP_REMEDIATION, "");
            skips(o, "m2");
        }),
        ("machines-without-health-check", "one_is_paused", |o| {
            pause(&mut o.machine(2).metadata);
            skips(o, "m2");
        }),
        ("remediation-blocked", "with_external_etcd", |o| {
            use_external_etcd(&mut o.control_plane().spec);
            o.etcd_members = EtcdMembers::External;
            o.survey().stacked = false;
            unhealthy(o, 2);
        }),
        ("remediation-blocked", "the_controller_cannot_read_etcd", |o| {
            unhealthy(o, 2);
            for number in 1..=3 {
                let unread = condition("EtcdMemberHealthy", Unknown, "Failed to connect to the etcd Pod");
                set(&mut o.machine(number).status.conditions, unread);
            }
        }),
        ("remediation-scheduled", "by_a_node", |o| {
            times_out(o, true, "Ready", Unknown);
            times_out(o, true, "Ready", False);
            node_is_silent(o, 4);
        }),
        ("remediation-scheduled", "by_a_machine_now", |o| {
            times_out(o, false, "EtcdMemberHealthy", False);
            let mut failed = condition("EtcdMemberHealthy", False, "no connection");
            failed.last_transition_time = Some(minutes_ago(10));
            set(&mut o.machine(2).status.conditions, failed);
        }),
        (
            "remediation-scheduled",
            "by_the_time_until_its_node_appears",
            |o| {
                starts(o);
                o.machine(3).status.node_name = None;
                o.health_checks()[0].node_startup_timeout = Some(Duration::from_secs(600));
            },
        ),
        ("remediation-scheduled", "not_of_a_machine_that_is_skipped", |o| {
            starts(o);
            o.machine(3).status.node_name = None;
            annotate(&mut o.machine(3).metadata, annotation::SKIP_REMEDIATION, "");
            o.health_checks()[0].node_startup_timeout = Some(Duration::from_secs(600));
        }),
        ("remediation-scheduled", "not_by_a_paused_health_check", |o| {
            times_out(o, true, "Ready", Unknown);
            node_is_silent(o, 4);
            let Reading::Read(checks) = &mut o.health_checks else {
                panic!("they were read");
            };
            checks[0].paused = true;
        }),
        ("machines-unhealthy", "unhealthy", |o| unhealthy(o, 2)),
        ("remediation-blocked", "next", |o| unhealthy(o, 2)),
        ("remediation-blocked", "in_progress", |o| {
            let remediating = condition("Remediating", True, "* Machine m2 is being replaced");
            set(&mut o.control_plane().status.conditions, remediating);
        }),
        ("remediation-blocked", "noted", |o| {
            let remediation = Remediation {
                machine: "m0".to_owned(),
                timestamp: Some(now()),
                retry_count: 0,
                is_malformed: false,
            };
            let metadata = &mut o.control_plane().metadata;
            record(metadata, annotation::REMEDIATION_IN_PROGRESS, &remediation);
        }),
        ("remediation-blocked", "tried_too_often", |o| {
            o.control_plane.spec.remediation.max_retry = Some(2);
            unhealthy(o, 2);
            let remediation = Remediation {
                machine: "m0".to_owned(),
                timestamp: Some(minutes_ago(11)),
                retry_count: 2,
                is_malformed: false,
            };
            let metadata = &mut o.machine(2).metadata;
            record(metadata, annotation::REMEDIATION_FOR, &remediation);
        }),
        ("remediation-blocked", "record_that_cannot_be_decoded", |o| {
            let metadata = &mut o.control_plane().metadata;
            annotate(metadata, annotation::REMEDIATION_IN_PROGRESS, "not JSON");
        }),
        (
            "remediation-blocked",
            "record_of_a_machine_that_cannot_be_decoded",
            |o| {
                unhealthy(o, 2);
                annotate(
                    &mut o.machine(2).metadata,
                    annotation::REMEDIATION_FOR,
                    "not JSON",
                );
            },
        ),
        ("remediation-blocked", "kept_by_quorum", |o| {
            unhealthy(o, 2);
            o.kill(3);
        }),
        ("machines-without-health-check", "none", |o| {
            o.health_checks().clear();
        }),
        (
            "machines-without-health-check",
            "limit_is_rounded_down_to_none",
            |o| {
                o.health_checks()[0].trigger = Some(RemediationTrigger::AtMostPercent(33));
                o.health_checks()[0].other_targets = Some(0);
            },
        ),
        ("machines-without-health-check", "limit_counts_workers_too", |o| {
            o.health_checks()[0].trigger = Some(RemediationTrigger::AtMostPercent(33));
            o.health_checks()[0].other_targets = Some(1);
        }),
        ("machines-without-health-check", "first_failure_is_left", |o| {
            o.health_checks()[0].trigger = Some(RemediationTrigger::Between(2, 5));
            o.health_checks()[0].remediation_allowed = Some(false);
        }),
        ("machines-without-health-check", "one_machine_less", |o| {
            o.health_checks()[0].targets.remove("m2");
        }),
        ("machines-without-health-check", "paused", |o| {
            o.health_checks()[0].paused = true;
        }),
        ("machines-without-health-check", "may_not_now", |o| {
            o.health_checks()[0].remediation_allowed = Some(false);
        }),
        (
            "machines-without-health-check",
            "may_not_while_a_machine_starts",
            |o| {
                o.health_checks()[0].remediation_allowed = Some(false);
                starts(o);
            },
        ),
        ("machines-without-health-check", "not_read", |o| {
            o.health_checks = Reading::NotYet;
        }),
    ];
}
