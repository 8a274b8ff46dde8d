use jiff::Timestamp;
use kcp_api::{
    ConditionStatus::{False, True},
    metadata::Time,
};

use super::{WhyState, explain};
use crate::{
    checks::{
        actor::Actor,
        all, find,
        tests::{cases, changed, starts},
    },
    inspection::inspect,
    snapshot::{FailedWrite, Reading, Snapshot},
    testing::{
        objects::{annotate, change_spec, condition, minutes_ago, now, scale_without_a_time, set},
        snapshot::observed,
    },
};

/// Describes an explanation: the state, who acts, why, since when, and what else was found.
fn described(observed: &Snapshot) -> String {
    let explanation = explain(observed, &inspect(observed, now()), now());
    let state = format!("{:?}", explanation.state);
    let actor = explanation
        .actor
        .map_or_else(String::new, |actor| format!(", {}", actor.name()));
    let cause = explanation.cause.map_or_else(String::new, |cause| {
        let since = cause
            .since
            .map_or_else(String::new, |since| format!(", since {}", time(since)));
        format!(": {} of {}{since}", cause.check, cause.objects.join(" "))
    });
    let next = explanation
        .next_action
        .map_or_else(String::new, |next| format!("; next: {next}"));
    let planned = explanation
        .planned_rollout_time
        .map_or_else(String::new, |time| format!("; rollout at {time}"));
    let also: Vec<&str> = explanation.other_causes.iter().map(|other| other.check).collect();
    let also = if also.is_empty() {
        String::new()
    } else {
        format!("; also {}", also.join(" "))
    };
    format!("{state}{actor}{cause}{next}{planned}{also}")
}

fn time(at: Timestamp) -> String {
    at.strftime("%H:%M").to_string()
}

/// Each fault that a check finds has an answer. The snapshot has one line for each case of each check.
#[test]
fn the_answer_to_each_fault() {
    let answers: Vec<String> = cases()
        .map(|(id, name, change)| format!("{id}: {name}\n    {}", described(&changed(change))))
        .collect();
    insta::assert_snapshot!(answers.join("\n"));
}

#[test]
fn causes_are_known_and_no_check_causes_itself() {
    for check in all() {
        for cause in check.causes() {
            assert!(
                find(cause).is_some() && cause != check.id,
                "{}: {cause}",
                check.id
            );
        }
    }
}

/// The Machine `m3` has no node, and this condition is False.
fn waits_for(observed: &mut Snapshot, unmet: &[&str]) {
    starts(observed);
    let conditions = &mut observed.machine(3).status.conditions;
    for kind in ["BootstrapConfigReady", "InfrastructureReady"] {
        let status = if unmet.contains(&kind) { False } else { True };
        set(conditions, condition(kind, status, ""));
    }
}

/// The Machine `m2` is being deleted, and its deletion has come to this step.
fn is_deleted(observed: &mut Snapshot, reason: &str) {
    let machine = observed.machine(2);
    machine.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
    let mut deleting = condition("Deleting", True, "waiting");
    deleting.reason = reason.to_owned();
    set(&mut machine.status.conditions, deleting);
}

fn scale_to_five(observed: &mut Snapshot) {
    observed.control_plane().spec.replicas = Some(5);
}

type Case = (&'static str, fn(&mut Snapshot), &'static str);

fn assert_answers(cases: &[Case]) {
    for (name, change, expected) in cases {
        let mut observed = observed();
        change(&mut observed);
        let answer = described(&observed);
        let answer = answer.split("; also").next().unwrap_or_default();
        assert_eq!(answer, *expected, "{name}");
    }
}

#[test]
fn each_step_of_a_change_has_its_actor() {
    assert_answers(&[
        ("nothing", |_| {}, "NothingToDo"),
        (
            "planned",
            |o| {
                let later = now() + jiff::SignedDuration::from_hours(1);
                o.control_plane().spec.rollout_after = Some(later);
            },
            "NothingToDo; rollout at 2026-08-21T13:00:00Z",
        ),
        (
            "scale_up",
            scale_to_five,
            "Working, Cluster API's kubeadm control plane controller: replicas-differ of KubeadmControlPlane/c1-cp; next: create a \
             Machine: scale up",
        ),
        (
            "bootstrap",
            |o| waits_for(o, &["BootstrapConfigReady", "InfrastructureReady"]),
            "Working, The bootstrap provider: machines-without-node of Machine/m3, since 11:59",
        ),
        (
            "infrastructure",
            |o| waits_for(o, &["InfrastructureReady"]),
            "Working, The infrastructure provider: machines-without-node of Machine/m3, since 11:59",
        ),
        (
            "join",
            |o| waits_for(o, &[]),
            "Working, kubeadm on the new Machine: machines-without-node of Machine/m3, since 11:59",
        ),
        (
            "join_for_too_long",
            |o| {
                waits_for(o, &["InfrastructureReady"]);
                o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(11)));
            },
            "PersonNeeded, The infrastructure provider: machines-without-node of Machine/m3, since 11:49",
        ),
        (
            "drain",
            |o| is_deleted(o, "DrainingNode"),
            "Working, Cluster API's Machine controller: machine-deletions-slow of Machine/m2, since 11:59",
        ),
        (
            "member",
            |o| is_deleted(o, "WaitingForPreTerminateHook"),
            "Working, Cluster API's kubeadm control plane controller: machine-deletions-slow of Machine/m2, since 11:59",
        ),
        (
            "hook",
            |o| {
                is_deleted(o, "WaitingForPreDrainHook");
                let metadata = &mut o.machine(2).metadata;
                annotate(
                    metadata,
                    "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup",
                    "",
                );
            },
            "Working, The owner of the hook: machine-deletions-slow of Machine/m2, since 11:59",
        ),
        (
            "host",
            |o| is_deleted(o, "WaitingForInfrastructureDeletion"),
            "Working, The infrastructure provider: machine-deletions-slow of Machine/m2, since 11:59",
        ),
    ]);
}

fn write_is_unprocessed(observed: &mut Snapshot, minutes: i64) {
    let control_plane = observed.control_plane();
    control_plane.metadata.generation = Some(7);
    control_plane.status.observed_generation = Some(6);
    change_spec(&mut control_plane.metadata, minutes_ago(minutes));
}

#[test]
fn a_controller_that_is_late_needs_a_person() {
    assert_answers(&[
        (
            "it may still process the spec",
            |o| write_is_unprocessed(o, 3),
            "Working, Cluster API's kubeadm control plane controller: status-outdated of KubeadmControlPlane/c1-cp, since 11:57",
        ),
        (
            "it has stopped",
            |o| write_is_unprocessed(o, 4),
            "PersonNeeded, Cluster API's kubeadm control plane controller: controller-stopped of KubeadmControlPlane/c1-cp, \
             since 11:56",
        ),
        (
            "nobody knows whether it is late",
            |o| {
                write_is_unprocessed(o, 4);
                scale_without_a_time(o.control_plane());
            },
            "Unknown: status-outdated of KubeadmControlPlane/c1-cp",
        ),
    ]);
}

#[test]
fn nothing_is_wrong_only_once_every_machine_is_counted() {
    assert_answers(&[
        ("all are counted", |_| (), "NothingToDo"),
        (
            "one is not counted as ready",
            |o| o.control_plane.status.ready_replicas = 2,
            "Working, Cluster API's kubeadm control plane controller",
        ),
    ]);
}

#[test]
fn a_cause_stands_before_its_effects() {
    assert_answers(&[
        (
            "a refused write, not the missing Machines",
            |o| {
                scale_to_five(o);
                o.failed_writes = Reading::Read(vec![FailedWrite {
                    is_deletion: false,
                    message: "admission webhook \"m.example.com\" denied the request: no".to_owned(),
                    first_reported: minutes_ago(3),
                    last_reported: minutes_ago(1),
                }]);
            },
            "PersonNeeded, Admission: write-refused of KubeadmControlPlane/c1-cp, since 11:57",
        ),
        (
            "a missing Secret, not the connection that needs it",
            |o| {
                o.secrets().remove("c1-kubeconfig");
                crate::checks::tests::unread(o);
            },
            "PersonNeeded, A person: secrets-missing of Secret/c1-kubeconfig",
        ),
    ]);
}

/// If a controller replaces a Machine, no person has to act.
#[test]
fn a_remediation_answers_for_what_it_repairs() {
    let mut observed = observed();
    observed.kill(2);
    let conditions = &mut observed.machine(2).status.conditions;
    set(conditions, condition("HealthCheckSucceeded", False, "member"));
    set(conditions, condition("OwnerRemediated", False, "waiting"));
    let explanation = explain(&observed, &inspect(&observed, now()), now());
    assert_eq!(
        (explanation.state, explanation.actor),
        (WhyState::Working, Some(Actor::ControlPlaneController))
    );
    assert_eq!(
        explanation.next_action.as_deref(),
        Some("the controller remediates this Machine next")
    );
    let cause = explanation.cause.expect("a cause");
    assert_eq!(cause.check, "etcd-members-unresponsive");
}
