//! The decision of `machine prefer-delete`, which marks a Machine to be deleted before others, or removes the
//! mark.

use jiff::Timestamp;
use kcp_api::{Object as _, names::annotation};
use serde_json::json;

use crate::{
    change::{
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        quorum_guard::{FatalLoss, fatal_loss, leader_warning},
    },
    ownership::apply_warnings,
    plan::{
        Desired, Plan,
        messages::join_names,
        plan,
        selection::next_to_delete,
        state::PlanState,
        step::{Action, Purpose},
    },
    snapshot::{Snapshot, change::MachineSnapshot},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    Preferred,
    Cleared,
}

pub fn decide(
    machine: &MachineSnapshot,
    preference: Preference,
    field_manager: &str,
    now: Timestamp,
) -> Decision {
    if machine.object.is_deleting() {
        return Decision::Unchanged("already being deleted".to_owned());
    }
    let is_marked = machine.object.has_annotation(annotation::DELETE_MACHINE);
    match (preference, is_marked) {
        (Preference::Preferred, true) => {
            let mut why = vec!["already preferred for deletion".to_owned()];
            why.extend(PreferenceEffect::new(machine.observed(), machine.object.name(), now).lines);
            Decision::Unchanged(why.join("; "))
        }
        (Preference::Cleared, false) => Decision::Unchanged("not preferred for deletion".to_owned()),
        (Preference::Preferred, false) => set_preference(machine, field_manager, now),
        (Preference::Cleared, true) => clear_preference(machine, field_manager),
    }
}

fn clear_preference(machine: &MachineSnapshot, field_manager: &str) -> Decision {
    let patch = json!({"metadata": {"annotations": {annotation::DELETE_MACHINE: null}}});
    Decision::Write(Proposal {
        warnings: apply_warnings(&machine.object.json, &patch, field_manager),
        write: ObjectWrite::patch(patch),
        outcome: "is no longer preferred for deletion".to_owned(),
        consequences: Vec::new(),
        event: ChangeEvent {
            reason: "MachineNotPreferredForDeletion",
            action: "PreferMachineDeletion",
            note_verb: "annotation delete-machine removed",
            detail: format!("from Machine {}", machine.object.name()),
        },
    })
}

fn set_preference(machine: &MachineSnapshot, field_manager: &str, now: Timestamp) -> Decision {
    let name = &machine.object.name();
    let patch = json!({"metadata": {"annotations": {annotation::DELETE_MACHINE: ""}}});
    let effect = PreferenceEffect::new(machine.observed(), name, now);
    let loss = fatal_loss(machine.observed(), name);
    let needs_action = loss.as_ref().is_some_and(FatalLoss::needs_action);
    let mut why = loss.map_or_else(Vec::new, |loss| loss.why);
    if effect.is_immediate && needs_action {
        why.extend(effect.lines);
        return Decision::Refused(Refusal::new(RefusedBy::Command, why));
    }
    let mut warnings = apply_warnings(&machine.object.json, &patch, field_manager);
    warnings.extend(machine.control_plane_snapshot.warnings());
    let why = why.into_iter();
    warnings.extend(why.map(|why| format!("it is not safe to delete the Machine now: {why}")));
    warnings.extend(leader_warning(machine.observed(), name));
    Decision::Write(Proposal {
        write: ObjectWrite::patch(patch),
        outcome: "is preferred for deletion".to_owned(),
        warnings,
        consequences: effect.lines,
        event: ChangeEvent {
            reason: "MachinePreferredForDeletion",
            action: "PreferMachineDeletion",
            note_verb: "annotation delete-machine set",
            detail: format!("on Machine {name}"),
        },
    })
}

struct PreferenceEffect {
    is_immediate: bool,
    /// When the annotation takes effect, and which Machines the controller deletes before this one: one line
    /// for each.
    lines: Vec<String>,
}

impl PreferenceEffect {
    fn new(observed: &Snapshot, name: &str, now: Timestamp) -> Self {
        let observed = with_mark(observed, name);
        let plan = plan(&observed, &Desired::current(&observed), now);
        let in_progress = deletion_in_progress(&plan, name);
        let when = match in_progress {
            Some(Purpose::Rollout) => "takes effect now: a rollout is in progress",
            Some(_) => "takes effect now: the control plane is scaling down",
            None => "takes effect at the next scale down or rollout",
        };
        let mut lines = vec![when.to_owned()];
        lines.extend(deletion_order(&observed, &plan, name));
        Self {
            is_immediate: in_progress.is_some(),
            lines,
        }
    }
}

fn with_mark(observed: &Snapshot, name: &str) -> Snapshot {
    let mut observed = observed.clone();
    for machine in &mut observed.machines {
        if machine.name() == name {
            let annotations = machine.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::DELETE_MACHINE.to_owned(), String::new());
        }
    }
    observed
}

/// Why a change in progress deletes this Machine. `None` if no change in progress deletes it.
fn deletion_in_progress(plan: &Plan, name: &str) -> Option<Purpose> {
    [Purpose::Rollout, Purpose::ScaleDown]
        .into_iter()
        .find(|purpose| {
            let mut steps = plan.steps().iter();
            steps.any(|step| {
                let is_about_it = step.names.iter().any(|other| other == name);
                step.action == Action::Delete && step.purpose == *purpose && is_about_it
            })
        })
}

fn deletion_order(observed: &Snapshot, plan: &Plan, name: &str) -> Option<String> {
    let state = PlanState::new(observed, &plan.verdicts);
    let next = next_to_delete(&observed.failure_domains(), &state.replicas)?;
    let is_among = next.machines.iter().any(|other| other == name);
    Some(match next.machines.as_slice() {
        [_] if is_among => "the controller deletes the Machine first".to_owned(),
        machines if is_among => format!(
            "the controller deletes either {} first",
            join_names(machines, "or")
        ),
        machines => format!(
            "the controller deletes {} before this Machine",
            join_names(machines, "or")
        ),
    })
}

#[cfg(test)]
mod tests {
    use kcp_api::{metadata::Time, names::annotation};
    use serde_json::json;

    use super::{Decision, ObjectWrite, Preference, decide};
    use crate::{
        change::decision::{Refusal, RefusedBy},
        snapshot::{EtcdMembers, change::MachineSnapshot},
        testing::{
            machine::{dead, snapshot},
            objects::{annotate, minutes_ago, now},
        },
    };

    fn decision(machine: &MachineSnapshot, preference: Preference) -> Decision {
        decide(machine, preference, "kubectl-kcp", now())
    }

    fn mark(machine: &mut MachineSnapshot) {
        let annotation = annotation::DELETE_MACHINE.to_owned();
        annotate(&mut machine.object.machine.metadata, &annotation, "");
    }

    /// Marks another Machine, by its number.
    fn mark_other(machine: &mut MachineSnapshot, number: usize) {
        annotate(
            &mut machine.control_plane_snapshot.observed.machines[number - 1].metadata,
            annotation::DELETE_MACHINE,
            "",
        );
    }

    fn outdate(machine: &mut MachineSnapshot, number: usize) {
        machine.control_plane_snapshot.observed.machines[number - 1]
            .spec
            .version = Some("v1.2.3".to_owned());
    }

    fn spread_over_domains(machine: &mut MachineSnapshot) {
        let observed = &mut machine.control_plane_snapshot.observed;
        observed.set_failure_domains("a b c");
        for (machine, domain) in observed.machines.iter_mut().zip(["a", "b", "c"]) {
            machine.spec.failure_domain = Some(domain.to_owned());
        }
    }

    #[test]
    fn says_when_it_is_deleted_and_what_is_deleted_before_it() {
        type Case = (&'static str, fn(&mut MachineSnapshot), &'static [&'static str]);
        const NEXT: &str = "takes effect at the next scale down or rollout";
        const FIRST: &str = "the controller deletes the Machine first";
        let cases: &[Case] = &[
            ("alone", |_| {}, &[NEXT, FIRST]),
            // The older of two Machines without a failure domain.
            (
                "an older one is marked",
                |machine| mark_other(machine, 1),
                &[NEXT, "the controller deletes m1 before this Machine"],
            ),
            (
                "a younger one is marked",
                |machine| mark_other(machine, 3),
                &[NEXT, FIRST],
            ),
            (
                "one elsewhere is marked",
                |machine| {
                    spread_over_domains(machine);
                    mark_other(machine, 1);
                },
                &[NEXT, "the controller deletes either m1 or m2 first"],
            ),
            (
                "an outdated one is marked",
                |machine| {
                    mark_other(machine, 3);
                    outdate(machine, 3);
                    outdate(machine, 1);
                },
                &[
                    "takes effect now: a rollout is in progress",
                    "the controller deletes m3 before this Machine",
                ],
            ),
            (
                "one too many",
                |machine| {
                    machine
                        .control_plane_snapshot
                        .observed
                        .control_plane
                        .spec
                        .replicas = Some(2);
                },
                &["takes effect now: the control plane is scaling down", FIRST],
            ),
            (
                "it is outdated",
                |machine| outdate(machine, 2),
                &["takes effect now: a rollout is in progress", FIRST],
            ),
        ];
        for (name, change, expected) in cases {
            let mut machine = snapshot("m2");
            change(&mut machine);
            let Decision::Write(proposal) = decision(&machine, Preference::Preferred) else {
                panic!("{name} is not written");
            };
            assert_eq!(proposal.consequences, *expected, "{name}");
            assert_eq!(proposal.warnings, Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn sets_or_removes_one_annotation() {
        let Decision::Write(proposal) = decision(&snapshot("m2"), Preference::Preferred) else {
            panic!("not written");
        };
        let patch = |value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": value}}});
        assert_eq!(proposal.write, ObjectWrite::patch(patch(json!(""))));
        assert_eq!(
            proposal.event.note("alice"),
            "annotation delete-machine set by alice on Machine m2"
        );
        let mut machine = snapshot("m2");
        mark(&mut machine);
        let Decision::Write(proposal) = decision(&machine, Preference::Cleared) else {
            panic!("not written");
        };
        assert_eq!(proposal.write, ObjectWrite::patch(patch(json!(null))));
        assert_eq!(proposal.consequences, Vec::<String>::new());
        assert_eq!(
            proposal.event.note("alice"),
            "annotation delete-machine removed by alice from Machine m2"
        );
    }

    #[test]
    fn no_change_is_left() {
        let mut marked = snapshot("m2");
        mark(&mut marked);
        let mut deleting = snapshot("m2");
        deleting.object.machine.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        for (machine, preference, why) in [
            (
                &marked,
                Preference::Preferred,
                "already preferred for deletion; takes effect at the next scale down or rollout; the \
                 controller deletes the Machine first",
            ),
            (&snapshot("m2"), Preference::Cleared, "not preferred for deletion"),
            (&deleting, Preference::Preferred, "already being deleted"),
            (&deleting, Preference::Cleared, "already being deleted"),
        ] {
            assert_eq!(decision(machine, preference), Decision::Unchanged(why.to_owned()));
        }
    }

    #[test]
    fn a_machine_that_must_not_be_deleted_is_marked_with_a_warning() {
        let mut machine = snapshot("m2");
        dead(&mut machine, &["m3"]);
        let Decision::Write(proposal) = decision(&machine, Preference::Preferred) else {
            panic!("not written");
        };
        assert_eq!(
            proposal.warnings,
            [
                "it is not safe to delete the Machine now: without the Machine, etcd loses quorum: 1 of 2 voting members healthy, 2 needed for quorum",
                "it is not safe to delete the Machine now: etcd member node-m3 of Machine m3 does not respond: no answer within 2s"
            ]
        );
    }

    #[test]
    fn a_machine_that_must_not_be_deleted_and_would_be_now_is_refused() {
        let mut machine = snapshot("m2");
        dead(&mut machine, &["m3"]);
        machine
            .control_plane_snapshot
            .observed
            .control_plane
            .spec
            .replicas = Some(2);
        let why = [
            "without the Machine, etcd loses quorum: 1 of 2 voting members healthy, 2 needed for quorum",
            "etcd member node-m3 of Machine m3 does not respond: no answer within 2s",
            "takes effect now: the control plane is scaling down",
            "the controller deletes the Machine first",
        ];
        let refusal = Refusal::new(RefusedBy::Command, why.map(str::to_owned).to_vec());
        assert_eq!(
            decision(&machine, Preference::Preferred),
            Decision::Refused(refusal)
        );
        // The annotation may always be removed.
        mark(&mut machine);
        let cleared = decision(&machine, Preference::Cleared);
        assert!(matches!(cleared, Decision::Write(_)), "{cleared:?}");
    }

    #[test]
    fn members_that_start_in_a_rollout_are_a_warning() {
        let mut machine = snapshot("m2");
        outdate(&mut machine, 2);
        dead(&mut machine, &[]);
        if let EtcdMembers::Read(members) = &mut machine.control_plane_snapshot.observed.etcd_members {
            members[2].is_learner = true;
        }
        let Decision::Write(proposal) = decision(&machine, Preference::Preferred) else {
            panic!("not written");
        };
        assert_eq!(
            proposal.warnings,
            ["it is not safe to delete the Machine now: some etcd members do not vote yet: node-m3"]
        );
        assert_eq!(
            proposal.consequences,
            [
                "takes effect now: a rollout is in progress",
                "the controller deletes the Machine first"
            ]
        );
    }

    #[test]
    fn a_leader_is_marked_with_a_warning() {
        let mut machine = snapshot("m2");
        dead(&mut machine, &[]);
        if let EtcdMembers::Read(members) = &mut machine.control_plane_snapshot.observed.etcd_members {
            members[1].is_leader = true;
        }
        let Decision::Write(proposal) = decision(&machine, Preference::Preferred) else {
            panic!("not written");
        };
        assert_eq!(
            proposal.warnings,
            [
                "etcd member node-m2 of Machine m2 is the leader: Cluster API moves the leadership to \
                 another member before it removes this one, and etcd pauses writes during the move"
            ]
        );
    }
}
