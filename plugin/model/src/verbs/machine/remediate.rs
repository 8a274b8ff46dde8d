//! The decision of `machine remediate`, which marks a Machine as unhealthy.
//!
//! The annotation requires a `MachineHealthCheck` that selects the Machine. The `MachineHealthCheck` then
//! counts the Machine as unhealthy, and the control plane replaces it.

use jiff::Timestamp;
use kcp_api::{MachineHealthCheck, Object as _, Reference, names::annotation};
use serde_json::json;

use crate::{
    change::{
        confirmation::Question,
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, RefusedBy, WriteObstacles},
        quorum_guard::{fatal_loss, leader_warning},
    },
    ownership::apply_warnings,
    plan::{
        remediation::{NextRemediation, RemediationContext, next_remediation},
        state::{HealthCheck, PlanState},
    },
    problem::{Problem, machine_pauses},
    snapshot::{Snapshot, change::MachineSnapshot, management::would_remediate},
    verbs::machine::replace,
};

pub const FORCE_HINT: &str = "use --force to mark the Machine now; the controller replaces the Machine once Cluster \
    API's preflight checks pass";

pub fn decide(machine: &MachineSnapshot, force: bool, field_manager: &str, now: Timestamp) -> Decision {
    let name = &machine.object.name();
    if machine.object.is_deleting() {
        return Decision::Unchanged("already being deleted".to_owned());
    }
    if machine.object.has_annotation(annotation::REMEDIATE_MACHINE) {
        return Decision::Unchanged("already marked for remediation".to_owned());
    }
    let mut obstacles = obstacles(machine);
    let mut consequences = Vec::new();
    match remediator(machine) {
        Err(why) => obstacles.lasting.extend(why),
        Ok(Remediator::Other { check, kind }) => consequences.push(format!(
            "MachineHealthCheck {check} remediates the Machine with a {kind}, not through the control plane"
        )),
        Ok(Remediator::ControlPlane { check }) => {
            consequences.push(format!(
                "MachineHealthCheck {check} reports the Machine as unhealthy, and the control plane \
                 controller replaces it"
            ));
            if let Some(next) = next_if_unhealthy(machine.observed(), name, now) {
                add_obstacles(&mut obstacles, &next, name);
            }
        }
    }
    let loss = fatal_loss(machine.observed(), name);
    obstacles
        .lasting
        .extend(loss.into_iter().flat_map(|loss| loss.why));
    let mut warnings = apply_warnings(&machine.object.json, &patch(), field_manager);
    warnings.extend(machine.control_plane_snapshot.warnings());
    match obstacles.warnings(force) {
        Ok(more) => warnings.extend(more),
        Err(mut refusal) => {
            if refusal.refused_by == RefusedBy::Command && replace::is_allowed_with_force(machine, now) {
                let namespace = &machine.object.namespace();
                refusal.remedies.push(format!(
                    "replace the Machine without a MachineHealthCheck: kubectl kcp machine replace {name} -n {namespace}"
                ));
            }
            return Decision::Refused(refusal);
        }
    }
    warnings.extend(leader_warning(machine.observed(), name));
    Decision::Write(Proposal {
        write: ObjectWrite::patch(patch()),
        outcome: "marked for remediation".to_owned(),
        warnings,
        consequences,
        event: ChangeEvent {
            reason: "MachineRemediationRequested",
            action: "RemediateMachine",
            note_verb: "remediation requested",
            detail: format!("for Machine {name}"),
        },
    })
}

/// What the user confirms before the Machine is marked.
pub fn question(machine: &MachineSnapshot, proposal: &Proposal) -> Question {
    Question {
        goal: format!(
            "let a MachineHealthCheck replace Machine {} of control plane {}",
            machine.object.name(),
            machine.control_plane_snapshot.control_plane().name()
        ),
        details: [proposal.warnings.as_slice(), &proposal.consequences].concat(),
    }
}

/// Returns the obstacles that do not depend on the remediator.
fn obstacles(machine: &MachineSnapshot) -> WriteObstacles {
    let mut lasting: Vec<String> = machine_pauses(machine).iter().map(Problem::message).collect();
    if machine.object.has_annotation(annotation::SKIP_REMEDIATION) {
        lasting.push(format!(
            "annotation {} excludes the Machine from remediation",
            annotation::SKIP_REMEDIATION
        ));
    }
    if machine
        .control_plane_snapshot
        .control_plane()
        .deletion_timestamp()
        .is_some()
    {
        lasting.push("the control plane is being deleted".to_owned());
    }
    WriteObstacles {
        lasting,
        temporary: Vec::new(),
    }
}

fn patch() -> serde_json::Value {
    json!({"metadata": {"annotations": {annotation::REMEDIATE_MACHINE: ""}}})
}

enum Remediator {
    /// The control plane replaces the Machine, because this `MachineHealthCheck` asks it to.
    ControlPlane { check: String },
    /// An external remediation object, which the `MachineHealthCheck` creates from its template, remediates the Machine.
    Other { check: String, kind: String },
}

/// Returns the remediator that reacts to the annotation, or why there is none: one line for each reason.
fn remediator(machine: &MachineSnapshot) -> Result<Remediator, Vec<String>> {
    if machine.health_checks.is_empty() {
        return Err(vec![
            "no MachineHealthCheck selects the Machine: the annotation would have no effect".to_owned(),
        ]);
    }
    // The annotation increases the number of unhealthy Machines by one, unless this Machine is already unhealthy.
    let is_healthy = machine
        .machine()
        .is_some_and(|machine| machine.is_condition_true("HealthCheckSucceeded"));
    let mut why = Vec::new();
    let mut acting = Vec::new();
    for check in &machine.health_checks {
        match why_inactive(check, u64::from(is_healthy)) {
            Some(reason) => why.push(reason),
            None => acting.push(check),
        }
    }
    // The control plane remediates even if another MachineHealthCheck uses an external remediator.
    let Some(acting) = acting
        .into_iter()
        .min_by_key(|check| check.spec.template_ref.is_some())
    else {
        return Err(why);
    };
    let check = acting.name().to_owned();
    Ok(match &acting.spec.template_ref {
        None => Remediator::ControlPlane { check },
        Some(Reference { kind, .. }) => Remediator::Other {
            check,
            kind: kind.strip_suffix("Template").unwrap_or(kind).to_owned(),
        },
    })
}

/// Returns why a `MachineHealthCheck` would not remediate if `more` Machines became unhealthy. `None` if it would.
fn why_inactive(check: &MachineHealthCheck, more: u64) -> Option<String> {
    let name = check.name();
    if check.is_paused() {
        return Some(format!("MachineHealthCheck {name} is paused"));
    }
    (would_remediate(check, more) == Some(false)).then(|| {
        format!("MachineHealthCheck {name} would not remediate: too many of its Machines are unhealthy")
    })
}

/// Returns the remediation that the controller would start next if the Machine were unhealthy now.
fn next_if_unhealthy(observed: &Snapshot, machine: &str, now: Timestamp) -> Option<NextRemediation> {
    let mut state = PlanState::new(observed, &[]);
    for replica in &mut state.replicas {
        if replica.name == machine {
            replica.health = HealthCheck::AwaitsRemediationFirst;
        }
    }
    next_remediation(
        &state,
        RemediationContext::new(observed, &observed.control_plane.spec, now),
    )
}

/// Adds the reasons why the control plane would not remediate the Machine now.
fn add_obstacles(obstacles: &mut WriteObstacles, next: &NextRemediation, machine: &str) {
    if next.machine != machine {
        let first = format!("the controller remediates Machine {} first", next.machine);
        obstacles.temporary.push(first);
    }
    let Some(blocker) = &next.blocked_by else {
        return;
    };
    match blocker {
        // `fatal_loss` reports more details.
        Problem::LastMachine
        | Problem::NoOtherWorks
        | Problem::LeaderUnreachable { .. }
        | Problem::Quorum { .. } => {}
        Problem::TriedTooOften { .. }
        | Problem::MalformedRemediation { .. }
        | Problem::MembersUnknown
        | Problem::ExternalEtcd { .. } => {
            obstacles.lasting.push(blocker.message());
        }
        _ => obstacles.temporary.push(blocker.message()),
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{ConditionStatus::True, Object as _, Remediation, metadata::Time, names::annotation};
    use serde_json::{Value, json};

    use super::{Decision, ObjectWrite, decide};
    use crate::{
        change::decision::{Refusal, RefusedBy},
        snapshot::{EtcdMembers, change::MachineSnapshot},
        testing::{
            machine::{dead, snapshot},
            objects::{annotate, condition, minutes_ago, now, pause, record},
        },
    };

    /// One of three Machines, with a `MachineHealthCheck` that selects all of them and reports `healthy` of three.
    fn checked_by(machine: &str, healthy: u64, spec: &Value) -> MachineSnapshot {
        let mut machine = snapshot(machine);
        check(&mut machine, "h", healthy, spec);
        machine
    }

    fn check(machine: &mut MachineSnapshot, name: &str, healthy: u64, spec: &Value) {
        let check = json!({"metadata": {"name": name}, "spec": spec,
            "status": {"expectedMachines": 3, "currentHealthy": healthy}});
        let check = serde_json::from_value(check).expect("a MachineHealthCheck");
        machine.health_checks.push(check);
    }

    fn healthy(machine: &str) -> MachineSnapshot {
        checked_by(machine, 3, &json!({}))
    }

    fn at_most_one() -> Value {
        json!({"remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": 1}}})
    }

    fn mark(machine: &mut MachineSnapshot, annotation: &str) {
        annotate(&mut machine.object.machine.metadata, annotation, "");
    }

    fn decision(machine: &MachineSnapshot, force: bool) -> Decision {
        decide(machine, force, "kubectl-kcp", now())
    }

    /// A refusal. If `--force` does not override it and `machine replace` would be allowed, the refusal names
    /// that command.
    fn refused(machine: &MachineSnapshot, by: RefusedBy, why: &[&str]) -> Decision {
        let why = why.iter().map(ToString::to_string).collect();
        let mut refusal = Refusal::new(by, why);
        if by == RefusedBy::Command && super::replace::is_allowed_with_force(machine, now()) {
            let name = &machine.object.name();
            refusal.remedies = vec![format!(
                "replace the Machine without a MachineHealthCheck: kubectl kcp machine replace {name} -n d"
            )];
        }
        Decision::Refused(refusal)
    }

    #[test]
    fn sets_one_annotation_and_names_the_remediator() {
        let Decision::Write(proposal) = decision(&healthy("m2"), false) else {
            panic!("not written");
        };
        let patch = json!({"metadata": {"annotations": {"cluster.x-k8s.io/remediate-machine": ""}}});
        assert_eq!(proposal.write, ObjectWrite::patch(patch));
        assert_eq!(
            proposal.consequences,
            [
                "MachineHealthCheck h reports the Machine as unhealthy, and the control plane controller \
                replaces it"
            ]
        );
        assert_eq!(
            proposal.event.note("alice"),
            "remediation requested by alice for Machine m2"
        );
        // Another remediator acts, unless a health check asks the control plane as well.
        let external = json!({"remediation": {"templateRef": {"kind": "RebootTemplate", "name": "r"}}});
        let mut machine = checked_by("m2", 3, &external);
        for expected in [
            "MachineHealthCheck h remediates the Machine with a Reboot, not through the control plane",
            "MachineHealthCheck second reports the Machine as unhealthy, and the control plane controller \
             replaces it",
        ] {
            let Decision::Write(proposal) = decision(&machine, false) else {
                panic!("not written");
            };
            assert_eq!(proposal.consequences, [expected]);
            check(&mut machine, "second", 3, &json!({}));
        }
    }

    #[test]
    fn refuses_without_an_acting_health_check() {
        type Case = (&'static str, fn(&mut MachineSnapshot), &'static str);
        let cases: &[Case] = &[
            (
                "no health check",
                |machine| machine.health_checks.clear(),
                "no MachineHealthCheck selects the Machine: the annotation would have no effect",
            ),
            (
                "health check paused",
                |machine| pause(&mut machine.health_checks[0].metadata),
                "MachineHealthCheck h is paused",
            ),
            (
                "too many are unhealthy",
                |machine| {
                    machine.health_checks.clear();
                    check(machine, "h", 2, &at_most_one());
                    let healthy = condition("HealthCheckSucceeded", True, "");
                    machine.control_plane_snapshot.observed.machines[1]
                        .status
                        .conditions
                        .push(healthy);
                },
                "MachineHealthCheck h would not remediate: too many of its Machines are unhealthy",
            ),
            (
                "skipped",
                |machine| mark(machine, annotation::SKIP_REMEDIATION),
                "annotation cluster.x-k8s.io/skip-remediation excludes the Machine from remediation",
            ),
            (
                "paused",
                |machine| mark(machine, "cluster.x-k8s.io/paused"),
                "Machine m2 is paused: no controller provisions, updates or deletes it",
            ),
            (
                "Cluster paused",
                |machine| machine.control_plane_snapshot.observed.cluster_mut().spec.paused = true,
                "the Cluster is paused: no controller reconciles the control plane",
            ),
            (
                "deleted",
                |machine| {
                    machine
                        .control_plane_snapshot
                        .observed
                        .control_plane
                        .metadata
                        .deletion_timestamp = Some(Time(minutes_ago(1)));
                },
                "the control plane is being deleted",
            ),
        ];
        for (name, change, why) in cases {
            let mut machine = healthy("m2");
            change(&mut machine);
            for force in [false, true] {
                assert_eq!(
                    decision(&machine, force),
                    refused(&machine, RefusedBy::Command, &[why]),
                    "{name} {force}"
                );
            }
        }
        // The Machine is counted as unhealthy already.
        let machine = checked_by("m2", 2, &at_most_one());
        assert!(matches!(decision(&machine, false), Decision::Write(_)));
    }

    #[test]
    fn force_overrides_what_the_controller_waits_for() {
        type Case = (
            &'static str,
            fn(&mut MachineSnapshot),
            RefusedBy,
            &'static [&'static str],
        );
        let cases: &[Case] = &[
            (
                "quorum",
                |machine| dead(machine, &["m3"]),
                RefusedBy::Command,
                &[
                    "without the Machine, etcd loses quorum: 1 of 2 voting members healthy, 2 needed for quorum",
                    "etcd member node-m3 of Machine m3 does not respond: no answer within 2s",
                ],
            ),
            (
                "etcd elsewhere",
                |machine| machine.control_plane_snapshot.observed.etcd_members = EtcdMembers::External,
                RefusedBy::Command,
                &[
                    "with an external etcd, Cluster API 1.13 and later remediate no Machine, because their list of etcd members is \
                     empty",
                ],
            ),
            (
                "another is being deleted",
                |machine| {
                    machine.control_plane_snapshot.observed.machines[2]
                        .metadata
                        .deletion_timestamp = Some(Time(minutes_ago(1)));
                },
                RefusedBy::Preflight,
                &["Machine m3 is being deleted"],
            ),
            (
                "another comes up",
                |machine| {
                    machine.control_plane_snapshot.observed.machines[2]
                        .status
                        .node_name = None;
                },
                RefusedBy::Preflight,
                &["Machine m3 is starting"],
            ),
            (
                "tried just now",
                |machine| {
                    machine
                        .control_plane_snapshot
                        .observed
                        .control_plane
                        .spec
                        .remediation
                        .retry_period = jiff::SignedDuration::from_mins(10);
                    let remediation = Remediation {
                        machine: "m0".to_owned(),
                        timestamp: Some(minutes_ago(5)),
                        retry_count: 1,
                        is_malformed: false,
                    };
                    let metadata = &mut machine.control_plane_snapshot.observed.machines[1].metadata;
                    record(metadata, annotation::REMEDIATION_FOR, &remediation);
                },
                RefusedBy::Preflight,
                &["the controller waits until 2026-08-21T12:05:00Z before it remediates again"],
            ),
        ];
        for (name, change, refused_by, why) in cases {
            let mut machine = healthy("m2");
            change(&mut machine);
            assert_eq!(
                decision(&machine, false),
                refused(&machine, *refused_by, why),
                "{name}"
            );
            match (refused_by, decision(&machine, true)) {
                (RefusedBy::Preflight, Decision::Write(proposal)) => {
                    assert_eq!(proposal.warnings, *why, "{name}, forced");
                }
                (RefusedBy::Command, forced) => {
                    assert_eq!(forced, refused(&machine, *refused_by, why), "{name}, forced");
                }
                (_, forced) => panic!("{name}, forced: {forced:?}"),
            }
        }
        let mut machine = healthy("m3");
        dead(&mut machine, &["m3"]);
        assert!(
            matches!(decision(&machine, false), Decision::Write(_)),
            "the dead one"
        );
    }

    #[test]
    fn no_change_is_left() {
        for (change, why) in [
            (
                (|machine| machine.object.machine.metadata.deletion_timestamp = Some(Time(minutes_ago(1))))
                    as fn(&mut MachineSnapshot),
                "already being deleted",
            ),
            (
                |machine| mark(machine, annotation::REMEDIATE_MACHINE),
                "already marked for remediation",
            ),
        ] {
            let mut machine = snapshot("m2");
            change(&mut machine);
            assert_eq!(decision(&machine, false), Decision::Unchanged(why.to_owned()));
        }
    }
}
