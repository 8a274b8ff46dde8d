//! The next steps of Cluster API's controller, the blockers of the first step, and the outdated Machines.
//!
//! The decisions follow the kubeadm control plane controller of Cluster API v1.14 (`controlplane/kubeadm`);
//! [`crate::controller_release`] lists where earlier releases differ.
//!
//! - [`options`], [`effect`]: the desired change, and the effect of each changed field
//! - [`rollout_reason`], [`kubeadm_config`]: which Machines are outdated
//! - [`state`], [`step`], [`simulate`]: a simulation of the controller; [`selection`] and [`remediation`] choose Machines
//! - [`blockers`], [`owners`], [`messages`]: the blockers of the first step, and the plan as text; [`fragile`]: when etcd
//!   tolerates no member failure

pub mod blockers;
pub mod effect;
pub mod fragile;
pub mod kubeadm_config;
pub mod messages;
pub mod options;
pub mod owners;
pub mod remediation;
pub mod rollout_reason;
pub mod selection;
pub mod simulate;
pub mod state;
pub mod step;

#[cfg(test)]
mod properties;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kcp_api::{KubeadmControlPlaneSpec, Object as _};

use crate::{
    join_times::JoinTimes,
    plan::{
        effect::Change,
        remediation::RemediationContext,
        rollout_reason::{MachineDifference, verdicts},
        simulate::{Choice, PlanStep, QuorumRisk, first_step_risk, simulate},
        state::PlanState,
        step::{Action, Context, NoPlan},
    },
    problem::Problem,
    quorum::EtcdRefusal,
    snapshot::{EtcdMembers, Snapshot},
    topology::UpgradeStep,
};

#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    pub spec: KubeadmControlPlaneSpec,
    /// The fields that the change affects. Empty if the spec does not change.
    pub changes: Vec<Change>,
    /// Why the admission rules deny the change: one line for each rule.
    pub denials: Vec<String>,
}

impl Desired {
    /// Returns the current spec, without a change.
    pub fn current(observed: &Snapshot) -> Self {
        Self {
            spec: observed.control_plane.spec.clone(),
            changes: Vec::new(),
            denials: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub namespace: String,
    pub name: String,
    pub replicas: usize,
    pub current: KubeadmControlPlaneSpec,
    pub desired: Desired,
    /// For each Machine, whether it is outdated. Ordered by the names of the Machines.
    pub verdicts: Vec<MachineDifference>,
    /// The time of a rollout that is planned for later. `None` if none is planned.
    pub planned_rollout_time: Option<Timestamp>,
    pub remediation: Option<remediation::NextRemediation>,
    pub blockers: Vec<Problem>,
    /// What is wrong with the control plane. Empty if the plan has steps.
    pub problems: Vec<Problem>,
    /// The risk to etcd if the controller created or deleted the first Machine of the plan. `None` if this step is safe for
    /// etcd, or if the controller itself would wait.
    pub quorum_risk: Option<QuorumRisk>,
    /// The handlers of the extensions that may update Machines in place.
    pub in_place_handlers: Vec<String>,
    /// Whether the etcd members could not be read, so that each Machine is assumed to have one.
    pub are_members_unread: bool,
    /// Says which release of Cluster API the plan follows. `None` if this is known to be the controller's release.
    pub version_note: Option<String>,
    /// The steps of an upgrade that Cluster API's topology controller makes over several versions. `steps` covers only the first of
    /// these upgrade steps that upgrades the control plane.
    pub upgrade_steps: Vec<UpgradeStep>,
    /// How long earlier Machines took to join. `None` if no Machine's time is known.
    pub join_times: Option<JoinTimes>,
    /// One warning for each `MachineHealthCheck` with which Cluster API would delete a new Machine that takes as long to join as an
    /// earlier Machine.
    pub startup_warnings: Vec<String>,
    pub steps: Result<Vec<PlanStep>, NoPlan>,
}

/// A range of consecutive steps of a plan, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRange {
    pub first: usize,
    pub last: usize,
    /// Whether the range has no end: what is true during its steps is still true after the last step of the
    /// plan.
    pub is_open: bool,
}

/// Plans the steps of the controller, by a simulation that starts one second after `now`.
pub fn plan(observed: &Snapshot, desired: &Desired, now: Timestamp) -> Plan {
    // A rollout begins after its time, not at its time, and a rollout that is started now has the time `now`.
    let decided_at = now.checked_add(SignedDuration::from_secs(1)).unwrap_or(now);
    let verdicts = verdicts(observed, &desired.spec, decided_at);
    let state = PlanState::new(observed, &verdicts);
    let terms = RemediationContext::new(observed, &desired.spec, now);
    let remediation = remediation::next_remediation(&state, terms);
    let steps = if observed.control_plane.deletion_timestamp().is_some() {
        Err(NoPlan::BeingDeleted)
    } else if !desired.denials.is_empty() {
        Err(NoPlan::Refused {
            why: desired.denials.clone(),
        })
    } else {
        simulate(
            state.clone(),
            Context {
                spec: &desired.spec,
                declared: &observed.failure_domains(),
                remediation: terms,
            },
        )
    };
    let blockers = match &steps {
        Ok(steps) => blockers::blockers(observed, &desired.spec, steps),
        Err(_) => Vec::new(),
    };
    let problems = match &steps {
        Ok(steps) if steps.is_empty() => blockers::problems(observed, &desired.spec, &state),
        _ => Vec::new(),
    };
    let quorum_risk = steps
        .as_ref()
        .ok()
        .and_then(|steps| first_step_risk(&state, steps));
    Plan {
        namespace: observed.control_plane.namespace().to_owned(),
        name: observed.control_plane.name().to_owned(),
        replicas: observed.machines.len(),
        current: observed.control_plane.spec.clone(),
        desired: desired.clone(),
        planned_rollout_time: desired.spec.rollout_after.filter(|after| *after >= decided_at),
        verdicts,
        remediation,
        blockers,
        problems,
        quorum_risk,
        in_place_handlers: observed.in_place_handlers.value().cloned().unwrap_or_default(),
        are_members_unread: observed.members() == EtcdMembers::Unread,
        version_note: observed.version_note(),
        upgrade_steps: Vec::new(),
        join_times: JoinTimes::measure(&observed.machines),
        startup_warnings: startup_warnings(observed),
        steps,
    }
}

fn startup_warnings(observed: &Snapshot) -> Vec<String> {
    let Some(joins) = JoinTimes::measure(&observed.machines) else {
        return Vec::new();
    };
    let checks = observed.health_checks.value().into_iter().flatten();
    // New Machines get the labels of the existing Machines, so the same `MachineHealthChecks` select them.
    let acting = checks.filter(|check| !check.paused && !check.targets.is_empty());
    acting.filter_map(|check| joins.exceeds(check)).collect()
}

/// The names of Machines that a plan deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletedMachines {
    pub certain: BTreeSet<String>,
    /// The Machines that the controller deletes only if it chooses them, or if it does not update them in place.
    pub possible: BTreeSet<String>,
}

impl DeletedMachines {
    pub fn one(name: &str) -> Self {
        Self {
            certain: [name.to_owned()].into(),
            possible: BTreeSet::new(),
        }
    }
}

impl Plan {
    pub fn steps(&self) -> &[PlanStep] {
        self.steps.as_deref().unwrap_or_default()
    }

    /// The names of the Machines that the steps delete or may delete.
    pub fn deleted_machines(&self) -> DeletedMachines {
        let deletes = || self.steps().iter().filter(|step| step.action == Action::Delete);
        let names = |certain: bool| {
            deletes()
                .filter(move |step| !certain || (step.choice == Choice::None && !step.may_update_in_place))
                .flat_map(|step| step.names.iter().cloned())
                .collect::<BTreeSet<String>>()
        };
        let (all, certain) = (names(false), names(true));
        // If there are as many deletions as names, the controller deletes every one of these Machines,
        // whatever it chooses first.
        if deletes().count() >= all.len() && !deletes().any(|step| step.may_update_in_place) {
            return DeletedMachines {
                certain: all,
                possible: BTreeSet::new(),
            };
        }
        DeletedMachines {
            possible: &all - &certain,
            certain,
        }
    }

    /// How long each new Machine takes to join. `None` if the plan creates none, or if no earlier Machine's time is known.
    pub fn join_estimate(&self) -> Option<JoinTimes> {
        let creates = self.steps().iter().any(|step| step.action == Action::Create);
        self.join_times.filter(|_| creates)
    }

    /// The warnings that a `MachineHealthCheck` deletes a new Machine too early. Empty if the plan creates none.
    pub fn startup_warnings(&self) -> &[String] {
        let creates = self.join_estimate().is_some();
        if creates { &self.startup_warnings } else { &[] }
    }

    /// Why the controller does not take the first step now: a message and a hint for each reason. `plan` and
    /// the verbs print the same text.
    pub fn obstacles(&self) -> Vec<(String, Option<String>)> {
        let mut obstacles = messages::describe(&self.blockers, &self.namespace, &self.name);
        let risk = self.quorum_risk.as_ref();
        obstacles.extend(risk.map(|risk| (messages::quorum_risk(risk), None)));
        obstacles
    }

    /// The number of the step that never ends, and why etcd refuses it. `None` if every step ends.
    pub fn endless_step(&self) -> Option<(usize, &EtcdRefusal)> {
        let steps = self.steps();
        Some((steps.len(), steps.last()?.refusal.as_ref()?))
    }

    /// Which step never ends, and what to do. `None` if every step ends, or if [`Self::obstacles`] has the same text.
    pub fn endless_note(&self) -> Option<(String, String)> {
        let (number, refusal) = self.endless_step()?;
        let is_waiting = self.steps().iter().all(|step| step.action == Action::Wait);
        (!is_waiting).then(|| {
            let note = format!("step {number} never ends: {refusal}");
            (note, refusal.hint(None, &self.namespace, &self.name))
        })
    }

    /// What is wrong with a control plane for which nothing is planned: a message and a hint for each problem.
    pub fn problems(&self) -> Vec<(String, Option<String>)> {
        messages::describe(&self.problems, &self.namespace, &self.name)
    }

    /// Whether anything blocks the first step.
    pub const fn is_blocked(&self) -> bool {
        !self.blockers.is_empty() || self.quorum_risk.is_some()
    }

    pub fn rolls_out(&self) -> bool {
        self.verdicts.iter().any(MachineDifference::is_outdated)
    }

    /// The ranges of steps during which etcd tolerates no member failure.
    pub fn fragile_steps(&self) -> Vec<StepRange> {
        let mut ranges: Vec<StepRange> = Vec::new();
        for (number, step) in (1..).zip(self.steps()) {
            if step.votes.is_none_or(|votes| votes.tolerance_during_step() > 0) {
                continue;
            }
            match ranges.last_mut() {
                Some(range) if range.last + 1 == number => range.last = number,
                _ => ranges.push(StepRange {
                    first: number,
                    last: number,
                    is_open: false,
                }),
            }
        }
        let last = self.steps().last().and_then(|step| step.votes);
        if last.is_some_and(|votes| votes.after.failure_tolerance() == 0)
            && let Some(range) = ranges.last_mut()
        {
            range.is_open = range.last == self.steps().len();
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{machine::Infrastructure, metadata::Time, names::annotation};

    use super::{Desired, KubeadmControlPlaneSpec, NoPlan, Plan, StepRange, plan};
    use crate::{
        plan::{messages::unread_extensions, step::Action},
        snapshot::{Failure, Forbidden, Reading, Snapshot},
        testing::{
            objects::{annotate, minutes_ago, now},
            plan::{machine, observed, restarted, spec, with_replicas, with_version},
        },
    };

    pub(crate) fn of(observed: &Snapshot, spec: KubeadmControlPlaneSpec) -> Plan {
        plan(
            observed,
            &Desired {
                spec,
                changes: vec![],
                denials: vec![],
            },
            now(),
        )
    }

    fn names(plan: &Plan, action: Action) -> Vec<String> {
        let steps = plan.steps().iter().filter(|step| step.action == action);
        steps.map(|step| step.names.join("|")).collect()
    }

    #[test]
    fn each_change_comes_to_its_own_steps() {
        let any = || vec!["m1|m2|m3".to_owned(); 3];
        for (name, desired, deleted) in [
            ("nothing", spec(), vec![]),
            ("version", with_version(spec(), "v1.34.2"), any()),
            ("restart", restarted(spec(), now()), any()),
            (
                "scale_down",
                with_replicas(spec(), 1),
                vec!["m1|m2|m3".to_owned(); 2],
            ),
            (
                "rollout_to_come",
                KubeadmControlPlaneSpec {
                    rollout_after: Some(minutes_ago(-60)),
                    ..spec()
                },
                vec![],
            ),
        ] {
            let plan = of(&observed(), desired);
            assert_eq!(names(&plan, Action::Delete), deleted, "{name}");
        }
        let to_come = of(
            &observed(),
            KubeadmControlPlaneSpec {
                rollout_after: Some(minutes_ago(-60)),
                ..spec()
            },
        );
        assert_eq!(to_come.planned_rollout_time, Some(minutes_ago(-60)));
        assert_eq!(
            of(&observed(), restarted(spec(), now())).planned_rollout_time,
            None
        );
    }

    #[test]
    fn steps_that_an_extension_may_update_in_place_are_marked() {
        type Case = (
            &'static str,
            fn(&mut Snapshot),
            KubeadmControlPlaneSpec,
            [bool; 3],
        );
        let version = || with_version(spec(), "v1.34.2");
        let one_at_a_time = |spec| KubeadmControlPlaneSpec { max_surge: 0, ..spec };
        let register =
            |o: &mut Snapshot| o.in_place_handlers = Reading::Read(vec!["can-update.e".to_owned()]);
        let cases: Vec<Case> = vec![
            ("registered", |_| {}, one_at_a_time(version()), [true; 3]),
            // With a surge, enough Machines are up to date before the last step.
            ("surge", |_| {}, version(), [true, true, false]),
            (
                "not_registered",
                |o| o.in_place_handlers = Reading::Read(vec![]),
                one_at_a_time(version()),
                [false; 3],
            ),
            (
                "not_known",
                |o| o.in_place_handlers = Reading::NotYet,
                one_at_a_time(version()),
                [false; 3],
            ),
            (
                "restart",
                |_| {},
                one_at_a_time(restarted(spec(), now())),
                [false; 3],
            ),
            (
                "marked",
                |o| annotate(&mut o.machines[0].metadata, annotation::DELETE_MACHINE, ""),
                one_at_a_time(version()),
                [false, true, true],
            ),
            (
                "without_its_infrastructure",
                |o| {
                    for machine in &mut o.machines {
                        machine.infrastructure = Infrastructure::Missing;
                    }
                },
                one_at_a_time(version()),
                [false; 3],
            ),
        ];
        for (name, change, desired, expected) in cases {
            let mut observed = observed();
            register(&mut observed);
            change(&mut observed);
            let plan = of(&observed, desired);
            let deletions = plan.steps().iter().filter(|step| step.action == Action::Delete);
            let marked: Vec<bool> = deletions.map(|step| step.may_update_in_place).collect();
            assert_eq!(marked, expected, "{name}");
        }
    }

    #[test]
    fn unread_extensions_are_said() {
        let mut observed = observed();
        assert_eq!(unread_extensions(&observed), None);
        let failure = Failure {
            message: "you are not allowed to list".to_owned(),
            forbidden: Some(Forbidden {
                verb: "list".to_owned(),
                resource: "extensionconfigs.runtime.cluster.x-k8s.io".to_owned(),
                namespace: None,
                is_from_workload_cluster: false,
            }),
            ..Failure::default()
        };
        observed.in_place_handlers = Reading::Failed(failure);
        let expected = "could not list ExtensionConfigs: you are not allowed to list; the plan assumes that no extension updates \
                        Machines in place";
        assert_eq!(unread_extensions(&observed).as_deref(), Some(expected));
    }

    #[test]
    fn what_is_pending_is_planned_without_a_change() {
        let mut observed = observed();
        observed.machines.pop();
        let mut outdated = machine("m3", "c", 1);
        outdated.spec.version = Some("v1.33.0".to_owned());
        observed.machines.push(outdated);
        let plan = of(&observed, spec());
        assert!(plan.rolls_out());
        assert_eq!(names(&plan, Action::Delete), ["m3"]);
    }

    fn range(first: usize, last: usize) -> StepRange {
        StepRange {
            first,
            last,
            is_open: false,
        }
    }

    #[test]
    fn from_one_member_none_may_fail_until_the_third_is_there() {
        let mut observed = observed();
        observed.machines.truncate(1);
        let ranges = of(&observed, spec()).fragile_steps();
        assert_eq!(ranges, [range(1, 2)]);

        let mut observed = crate::testing::plan::observed();
        observed.machines[0].spec.version = Some("v1.33.0".to_owned());
        observed.machines[1].spec.version = Some("v1.33.0".to_owned());
        let ranges = of(&observed, spec()).fragile_steps();
        assert_eq!(ranges, [range(1, 1), range(3, 3)]);
    }

    #[test]
    fn a_control_plane_that_is_being_deleted_has_no_plan() {
        let mut observed = observed();
        observed.control_plane.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        assert_eq!(of(&observed, spec()).steps, Err(NoPlan::BeingDeleted));
    }

    #[test]
    fn what_the_rules_refuse_has_no_plan() {
        let why = vec!["spec.replicas: 4 is even (replicas-even)".to_owned()];
        let desired = Desired {
            spec: with_replicas(spec(), 4),
            changes: vec![],
            denials: why.clone(),
        };
        let plan = plan(&observed(), &desired, now());
        assert_eq!(plan.steps, Err(NoPlan::Refused { why }));
    }
}
