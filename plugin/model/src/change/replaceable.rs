//! Decides whether a Machine may be deleted so that its control plane creates a new one. `machine replace` and `status`
//! use the same decision.

use jiff::Timestamp;
use kcp_api::{Object as _, metadata::Time};

use crate::{
    change::{
        quorum_guard::{FatalLoss, QuorumGuard, fatal_loss, promotion_risk},
        replacement::{ReplacementState, replacement_state},
    },
    plan::{Desired, Plan, messages, plan, step::NoPlan},
    problem::{Problem, pauses},
    snapshot::Snapshot,
};

/// The reasons not to delete a Machine.
#[derive(Clone, Debug)]
pub struct Replaceability {
    /// Why the control plane does not survive the loss of the Machine. `None` if it does.
    pub loss: Option<FatalLoss>,
    /// The controller's plan as it will be while the Machine is being deleted.
    pub plan: Plan,
    /// Whether the controller would create the replacement.
    pub guard: QuorumGuard,
}

impl Replaceability {
    pub fn new(observed: &Snapshot, name: &str, now: Timestamp) -> Self {
        let plan = plan_without(observed, name, now);
        Self {
            loss: fatal_loss(observed, name),
            guard: QuorumGuard::new(&plan),
            plan,
        }
    }

    /// The blockers of the first step of the plan, without those that end with the deletion of the Machine itself.
    pub fn blockers_without_own_deletion(&self, observed: &Snapshot, name: &str) -> Vec<Problem> {
        let (QuorumGuard::Blocked(blockers) | QuorumGuard::AtRisk { blockers, .. }) = &self.guard else {
            return Vec::new();
        };
        let mut machines = observed.machines.iter();
        let has_no_node = machines.any(|machine| machine.name() == name && !machine.has_node());
        let is_own = |blocker: &&Problem| match blocker {
            Problem::BeingDeleted { machine, .. } | Problem::RefusedByEtcd { machine, .. } => machine == name,
            // While a Machine has no node, Cluster API removes no member, because the member may belong to this Machine.
            Problem::MemberWithoutMachine { .. } => has_no_node,
            _ => false,
        };
        let others = blockers.iter().filter(|blocker| !is_own(blocker));
        others.cloned().collect()
    }
}

/// What blocks the replacement of a Machine. Empty if `machine replace` would delete the Machine without `--force`.
pub fn replacement_blockers(observed: &Snapshot, name: &str, now: Timestamp) -> Vec<Problem> {
    let replaceability = Replaceability::new(observed, name, now);
    let mut blockers = pauses(observed);
    if let ReplacementState::InProgress { machine, waits_for } = replacement_state(observed, Some(name), now)
    {
        blockers.push(Problem::ReplacementInProgress { machine, waits_for });
    }
    blockers.extend(replaceability.loss.iter().map(|loss| loss.blocker.clone()));
    blockers.extend(promotion_risk(observed, name).map(|why| Problem::NoWay {
        why,
        check: "etcd-learners-stuck",
    }));
    match &replaceability.guard {
        QuorumGuard::NoWay(no_plan) if blockers.is_empty() && prevents_creation(no_plan) => {
            blockers.push(Problem::NoWay {
                why: messages::no_plan(no_plan),
                check: check_of(no_plan),
            });
        }
        _ => blockers.extend(replaceability.blockers_without_own_deletion(observed, name)),
    }
    blockers
}

fn plan_without(observed: &Snapshot, name: &str, now: Timestamp) -> Plan {
    let mut observed = observed.clone();
    for machine in &mut observed.machines {
        if machine.name() == name {
            machine.metadata.deletion_timestamp = Some(Time(now));
        }
    }
    plan(&observed, &Desired::current(&observed), now)
}

/// The id of the check in `status` that reports why there is no plan.
const fn check_of(no_plan: &NoPlan) -> &'static str {
    match no_plan {
        NoPlan::BeingDeleted => "deleting",
        NoPlan::AllHeld { .. } | NoPlan::HoldEachOther { .. } => "machine-deletions-deadlocked",
        NoPlan::QuorumLost { .. } | NoPlan::LastMachine { .. } | NoPlan::OnlyLeader { .. } => {
            "etcd-no-quorum"
        }
        _ => "etcd-voters-unhealthy",
    }
}

/// Whether the controller cannot, or must not, create a replacement. Other reasons for a missing plan do not affect the
/// replacement.
pub const fn prevents_creation(no_plan: &NoPlan) -> bool {
    match no_plan {
        NoPlan::QuorumLost { .. }
        | NoPlan::Stuck { .. }
        | NoPlan::AllHeld { .. }
        | NoPlan::HoldEachOther { .. }
        | NoPlan::LastMachine { .. }
        | NoPlan::OnlyLeader { .. }
        | NoPlan::BeingDeleted => true,
        NoPlan::Endless { .. }
        | NoPlan::NoReplicas
        | NoPlan::TooManyReplicas { .. }
        | NoPlan::Refused { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{ConditionStatus::False, Object as _, metadata::Time};

    use super::replacement_blockers;
    use crate::{
        change::decision::Decision,
        snapshot::{Reading, change::MachineSnapshot},
        testing::{
            machine::{dead, fail, snapshot},
            objects::{condition, minutes_ago, now, pause, set},
        },
        verbs::machine::replace::{ReplaceOptions, decide},
    };

    #[test]
    fn nothing_blocks_a_replacement_exactly_if_the_verb_deletes_the_machine() {
        type Case = (&'static str, fn(&mut MachineSnapshot), bool);
        let cases: &[Case] = &[
            ("healthy", |_| {}, true),
            ("its own member is dead", |machine| dead(machine, &["m1"]), true),
            ("another member is dead", |machine| dead(machine, &["m2"]), false),
            (
                "its own member never started",
                |machine| {
                    *machine = snapshot("m3");
                    machine.control_plane_snapshot.observed.never_starts(2);
                },
                true,
            ),
            (
                "its own member never started, and could take the quorum",
                |machine| {
                    *machine = snapshot("m2");
                    machine.control_plane_snapshot.observed.never_starts(1);
                },
                false,
            ),
            (
                "another member never started",
                |machine| machine.control_plane_snapshot.observed.never_starts(2),
                false,
            ),
            (
                "two members are dead",
                |machine| dead(machine, &["m2", "m3"]),
                false,
            ),
            (
                "another Machine is sick",
                |machine| fail(machine, 2, "SchedulerPodHealthy", "crashed"),
                false,
            ),
            (
                "another Machine is being deleted",
                |machine| {
                    let other = &mut machine.control_plane_snapshot.observed.machines[1];
                    other.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
                },
                false,
            ),
            (
                "paused",
                |machine| pause(&mut machine.control_plane_snapshot.observed.control_plane.metadata),
                false,
            ),
            (
                "without its template",
                |machine| {
                    let observed = &mut machine.control_plane_snapshot.observed;
                    let reference = observed.control_plane.spec.infrastructure_ref.clone();
                    observed.templates = [(reference, Reading::Read(false))].into();
                },
                false,
            ),
            (
                "without certificates",
                |machine| {
                    let conditions = &mut machine
                        .control_plane_snapshot
                        .observed
                        .control_plane
                        .status
                        .conditions;
                    set(conditions, condition("CertificatesAvailable", False, "no"));
                },
                false,
            ),
            (
                "the control plane is being deleted",
                |machine| {
                    let metadata = &mut machine.control_plane_snapshot.observed.control_plane.metadata;
                    metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
                },
                false,
            ),
        ];
        for (name, change, expected) in cases {
            let mut machine = snapshot("m1");
            change(&mut machine);
            let observed = &machine.control_plane_snapshot.observed;
            let blockers = replacement_blockers(observed, machine.object.name(), now());
            let decision = decide(&machine, ReplaceOptions::default(), now());
            assert_eq!(blockers.is_empty(), *expected, "{name}: {blockers:?}");
            assert_eq!(
                matches!(decision, Decision::Write(_)),
                *expected,
                "{name}: {decision:?}"
            );
        }
    }
}
