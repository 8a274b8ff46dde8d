//! Checks of pending changes: outdated Machines, the number of Machines, and the controller's progress.

use jiff::Timestamp;
use kcp_api::{KubeadmControlPlane, Machine, Object as _};
use kcp_rules::syntax::parse_version;

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        controller::{controller_suffix, stopped_holder},
        finding::{CheckOutcome, CheckResult, Finding, machine_object},
        machine_grace::require_machines,
    },
    plan::{
        blockers::processing_blockers,
        messages,
        rollout_reason::{MachineDifference, Reason, differs_from_spec, verdicts},
        state::component_conditions,
    },
    problem::{CONTROL_PLANE_CONTROLLER, CONTROLLER_HINT, Problem},
    snapshot::Snapshot,
    staleness::{StuckProblem, find_stuck, format_age, stopped_controller_blocker},
};

/// The checks that report why a step of a change takes a long time.
const STEP_DELAYS: &[&str] = &[
    "machines-paused",
    "core-controllers-stopped",
    "bootstrap-controller-stopped",
    "cluster-not-ready",
    "machine-drains-blocked",
    "machine-deletions-slow",
    "etcd-learners-stuck",
    "machines-without-node",
    "remediation-blocked",
    "remediation-scheduled",
];

/// The checks that report why the control plane controller does not act on the spec.
pub(super) const CONTROLLER_OBSTACLES: &[&str] = &[
    "secrets-missing",
    "workload-disconnected",
    "infrastructure-template-missing",
    "machines-not-owned",
    "write-refused",
    "paused",
    "cluster-not-ready",
    "kubeadm-config-unusable",
    "remediation-blocked",
];

pub const CHECKS: &[Check] = &[
    Check::new(
        "machines-outdated",
        "A Machine differs from what the spec of the control plane requires, so a rollout replaces the \
         Machine.",
        check_machines_outdated,
        Responsible::Step(Actor::ControlPlaneController),
    )
    .effect_of(&[STEP_DELAYS]),
    Check::new(
        "rollout-endless",
        "The controller replaces each new Machine immediately to renew its certificates, so the rollout \
         never ends.",
        check_rollout_endless,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "replicas-differ",
        "The number of Machines differs from the number of replicas in the spec.",
        check_replicas_differ,
        Responsible::Step(Actor::ControlPlaneController),
    )
    .effect_of(&[STEP_DELAYS]),
    Check::new(
        "controller-stopped",
        "The controller of the control plane has stopped, or does not process a change.",
        check_controller_stopped,
        Responsible::Fault(Actor::ControlPlaneController),
    )
    .effect_of(&[CONTROLLER_OBSTACLES])
    .preflight()
    .blocking(),
    Check::new(
        "change-stuck",
        "A change has made no progress for longer than usual.",
        check_change_stuck,
        Responsible::Fault(Actor::ControlPlaneController),
    )
    .effect_of(&[
        CONTROLLER_OBSTACLES,
        &[
            "controller-stopped",
            "core-controllers-stopped",
            "bootstrap-controller-stopped",
            "machines-paused",
            "machine-deletions-deadlocked",
            "machine-drains-blocked",
            "machine-deletions-slow",
            "machines-without-node",
            "etcd-no-quorum",
            "etcd-members-unresponsive",
            "etcd-no-leader",
            "etcd-clusters-differ",
            "etcd-members-mismatch",
            "etcd-alarms",
            "etcd-learners-stuck",
            "etcd-pods-not-ready",
            "api-servers-not-ready",
            "controller-managers-not-ready",
            "schedulers-not-ready",
            "nodes-not-ready",
        ],
    ])
    .blocking(),
];

/// Compares every Machine with the current spec. The verdicts are ordered by the names of the Machines.
pub fn compare_machines(observed: &Snapshot, now: Timestamp) -> Vec<MachineDifference> {
    verdicts(observed, &observed.control_plane.spec, now)
}

pub fn is_rolling_out(observed: &Snapshot, now: Timestamp) -> bool {
    compare_machines(observed, now)
        .iter()
        .any(MachineDifference::is_outdated)
}

pub fn has_pending_change(observed: &Snapshot, now: Timestamp) -> bool {
    reports_pending_change(&observed.control_plane) || is_rolling_out(observed, now)
}

/// Whether a control plane's own status shows a pending change. It does not show which Machines are outdated.
pub fn reports_pending_change(control_plane: &KubeadmControlPlane) -> bool {
    let status = &control_plane.status;
    !control_plane.has_compared_machines()
        || status.replicas != control_plane.desired_replicas()
        || status.up_to_date_replicas < status.replicas
}

/// Why there is no earlier spec to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEarlierSpec {
    SameSpec,
    OnlyNewer,
    NoneWorks,
}

/// The newest Machine that works and has an earlier spec than the newest Machines. Fails if no Machine has an earlier spec, or
/// none of these Machines works.
pub fn newest_earlier<'o>(
    observed: &'o Snapshot,
    differences: &[MachineDifference],
) -> Result<&'o Machine, NoEarlierSpec> {
    let differs = |machine: &Machine| differs_from_spec(differences, machine);
    let machines = || observed.machines.iter().filter(|machine| !machine.is_deleting());
    if !machines().any(differs) {
        return Err(NoEarlierSpec::SameSpec);
    }
    let current = machines().filter(|machine| !differs(machine));
    let newest = current.filter_map(Machine::creation_timestamp).max();
    let is_earlier = |machine: &&Machine| {
        let created = machine.creation_timestamp();
        differs(machine) && newest.is_none_or(|newest| created.is_some_and(|created| created < newest))
    };
    if !machines().any(|machine| is_earlier(&machine)) {
        return Err(NoEarlierSpec::OnlyNewer);
    }
    let stacked = !observed.has_external_etcd();
    let works = |machine: &&Machine| {
        machine.has_node() && !component_conditions(stacked).any(|kind| machine.is_condition_false(kind))
    };
    machines()
        .filter(is_earlier)
        .filter(works)
        .max_by_key(|machine| machine.creation_timestamp())
        .ok_or(NoEarlierSpec::NoneWorks)
}

/// Says how to write back the spec of an earlier Machine if this Machine does not start with the current spec. `None` if no
/// Machine has an earlier spec, or if the admission rules deny a return to it.
pub fn undo_hint(observed: &Snapshot, machine: &str, verdicts: &[MachineDifference]) -> Option<String> {
    let machines = || observed.machines.iter().filter(|machine| !machine.is_deleting());
    let machine = machines().find(|other| other.name() == machine)?;
    let joined = || machines().filter(|machine| machine.has_node());
    let earlier = newest_earlier(observed, verdicts).ok()?;
    let minor = |machine: &Machine| {
        let version = parse_version(machine.spec.version.as_deref()?).ok()?;
        Some((version.major, version.minor))
    };
    // The rule `version-lowered` denies an older minor version than that of a Machine that has joined.
    let has_joined_above = joined().any(|machine| minor(machine) > minor(earlier));
    // The rule `joining-machine-outdated` denies a change that makes the second Machine outdated while it joins.
    let is_second = !machine.has_node() && !machine.spec.awaits_bootstrap_data && joined().count() < 2;
    if differs_from_spec(verdicts, machine)
        || has_joined_above
        || is_second
        || observed.has_managed_topology()
    {
        return None;
    }
    let (name, namespace) = (observed.control_plane.name(), observed.control_plane.namespace());
    Some(format!(
        "write the earlier spec back: kubectl kcp rollout undo {name} -n {namespace}"
    ))
}

pub fn check_machines_outdated(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let control_plane = &observed.control_plane;
    let verdicts = compare_machines(observed, now);
    let outdated = || verdicts.iter().filter(|verdict| verdict.is_outdated());
    let is_rolling_out = outdated().next().is_some() || control_plane.is_condition_true("RollingOut");
    if !is_rolling_out {
        return Ok(Vec::new());
    }
    let current = verdicts.len().saturating_sub(outdated().count());
    let why = control_plane
        .condition("RollingOut")
        .filter(|condition| condition.is_true() && outdated().next().is_none())
        .map_or_else(String::new, |condition| {
            format!(": {}", condition.message_or_reason())
        });
    let current = i64::try_from(current).unwrap_or(i64::MAX);
    let counts = messages::up_to_date_count(current, control_plane.desired_replicas());
    let message = format!("rollout in progress, {counts}{why}");
    let summary =
        Finding::info(observed.object_name(), message).with_since(true_since(observed, "RollingOut"));
    let each = outdated().map(|verdict| {
        let reasons: Vec<String> = verdict.reasons.iter().map(Reason::message).collect();
        Finding::info(
            machine_object(&verdict.machine),
            format!("outdated: {}", reasons.join("; ")),
        )
    });
    Ok([summary].into_iter().chain(each).collect())
}

pub fn check_replicas_differ(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let control_plane = &observed.control_plane;
    let (desired, there) = (control_plane.desired_replicas(), control_plane.status.replicas);
    // The status of an older spec says nothing about the current spec.
    if there == desired || control_plane.is_rolling_out() || !control_plane.has_compared_machines() {
        return Ok(Vec::new());
    }
    let direction = if there < desired { "up" } else { "down" };
    let message = format!("scaling {direction} from {there} to {desired} Machines");
    let kind = if there < desired {
        "ScalingUp"
    } else {
        "ScalingDown"
    };
    Ok(vec![
        Finding::info(observed.object_name(), message).with_since(true_since(observed, kind)),
    ])
}

/// When a condition of the control plane became True. `None` if it is not True.
fn true_since(observed: &Snapshot, kind: &str) -> Option<Timestamp> {
    let condition = observed.control_plane.condition(kind);
    condition
        .filter(|condition| condition.is_true())?
        .last_transition_time
}

pub fn check_rollout_endless(observed: &Snapshot, _: Timestamp) -> CheckResult {
    if !observed.control_plane.spec.rolls_out_forever() {
        return Ok(Vec::new());
    }
    let message = format!(
        "the controller replaces Machines {} days before their certificates expire, but new certificates are \
         valid for only {} days: the rollout never ends",
        observed
            .control_plane
            .spec
            .certificates_expiry_days
            .unwrap_or_default(),
        observed.control_plane.spec.certificate_validity_days()
    );
    let object = observed.object_name();
    Ok(vec![Finding::fail(object, message).with_hint(
        "set certificatesExpiryDays below the validity of new certificates",
    )])
}

fn all_stuck(observed: &Snapshot, now: Timestamp) -> Vec<StuckProblem> {
    find_stuck(observed, now)
}

fn check_controller_stopped(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let control_plane = &observed.control_plane;
    if let Some(stuck) = stopped_controller_blocker(observed, now) {
        let finding = if let Some(cause) = processing_blockers(observed).first() {
            let finding = Finding::about(cause, CheckOutcome::Fail, control_plane);
            let message = format!("{}; {}", stuck.message(now), finding.message);
            Finding {
                message,
                objects: vec![observed.object_name()],
                since: Some(stuck.since),
                ..finding
            }
        } else {
            let message = stuck.message(now) + &controller_suffix(observed, now);
            finding(observed, &stuck, &message)
        };
        return Ok(vec![finding]);
    }
    // An expired Lease alone proves nothing, because no controller may use this Lease any more.
    if control_plane.is_observed() {
        return Ok(Vec::new());
    }
    // The time of a write through the scale subresource is unknown, so only the Lease says that the controller has
    // stopped.
    let finding = stopped_holder(&observed.controller_lease, now).map(|(holder, renewed)| {
        let message = format!(
            "{CONTROL_PLANE_CONTROLLER} has stopped: {holder} last renewed its Lease {} ago",
            format_age(renewed, now)
        );
        Finding::fail(observed.object_name(), message)
            .with_since(Some(renewed))
            .with_hint(CONTROLLER_HINT)
    });
    Ok(finding.into_iter().collect())
}

/// Checks that a pending change makes progress, by the same rules as `rollout status` and `--wait`.
fn check_change_stuck(observed: &Snapshot, now: Timestamp) -> CheckResult {
    if !has_pending_change(observed, now) {
        return Ok(Vec::new());
    }
    // Other checks report these blockers.
    let is_own = |stuck: &StuckProblem| {
        !matches!(
            stuck.blocker,
            Problem::ControllerStopped { .. } | Problem::WriteRefused { .. } | Problem::TopologyFailed { .. }
        )
    };
    let blocked = all_stuck(observed, now).into_iter().filter(is_own);
    Ok(blocked
        .map(|stuck| finding(observed, &stuck, &format!("no progress {}", stuck.message(now))))
        .collect())
}

fn finding(observed: &Snapshot, stuck: &StuckProblem, message: &str) -> Finding {
    let control_plane = &observed.control_plane;
    let finding = Finding::fail(observed.object_name(), message)
        .with_since(Some(stuck.since))
        .with_hint(stuck.hint(control_plane.namespace(), control_plane.name()));
    match stuck.blocker.machine() {
        Some(name) => finding.with_object(machine_object(name)),
        None => finding,
    }
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::{
        ConditionStatus::{False, True},
        metadata::Time,
    };

    use crate::{
        checks::tests::{Case, says, starts},
        snapshot::{ControllerLease, Reading, Snapshot},
        testing::objects::{change_spec, condition, minutes_ago, set},
    };

    /// Nothing has happened for two hours.
    fn quiet(observed: &mut Snapshot) {
        for machine in &mut observed.machines {
            machine.metadata.creation_timestamp = Some(Time(minutes_ago(600)));
            for condition in &mut machine.status.conditions {
                condition.last_transition_time = Some(minutes_ago(120));
            }
        }
    }

    fn scale_up(observed: &mut Snapshot, minutes: i64, message: &str) {
        quiet(observed);
        says(observed, "ScalingUp", True, message, minutes);
        observed.control_plane().spec.replicas = Some(5);
        observed.control_plane.spec.replicas = Some(5);
    }

    fn roll_out(observed: &mut Snapshot, minutes: i64) {
        quiet(observed);
        says(
            observed,
            "RollingOut",
            True,
            "Rolling out 3 not up-to-date replicas",
            minutes,
        );
        observed.control_plane().status.up_to_date_replicas = 0;
        for number in 1..=3 {
            observed.machine(number).spec.version = Some("v1.33.0".to_owned());
        }
    }

    const BLOCKED: &str = "Scaling up from 3 to 5 replicas is blocked because:\n* waiting for etcd";

    pub(crate) const CASES: &[Case] = &[
        ("machines-outdated", "version", |o| {
            o.machine(1).spec.version = Some("v1.33.0".to_owned());
        }),
        ("machines-outdated", "the_controller_alone_says_so", |o| {
            let rolling_out = condition("RollingOut", True, "Rolling out 1 not up-to-date replicas");
            set(&mut o.control_plane().status.conditions, rolling_out);
        }),
        ("rollout-endless", "never", |o| {
            o.control_plane.spec.certificates_expiry_days = Some(365);
        }),
        ("replicas-differ", "up", |o| {
            o.control_plane().spec.replicas = Some(5);
        }),
        ("replicas-differ", "down", |o| {
            o.control_plane().spec.replicas = Some(1);
        }),
        ("replicas-differ", "during_a_rollout", |o| {
            o.control_plane().status.replicas = 4;
            o.control_plane().status.up_to_date_replicas = 1;
        }),
        ("controller-stopped", "a_change_of_a_moment_ago", |o| {
            o.control_plane().metadata.generation = Some(8);
            change_spec(&mut o.control_plane().metadata, minutes_ago(3));
        }),
        ("controller-stopped", "a_change_of_long_ago", |o| {
            o.control_plane().metadata.generation = Some(8);
            change_spec(&mut o.control_plane().metadata, minutes_ago(11));
        }),
        ("controller-stopped", "by_its_lease_at_an_unknown_time", |o| {
            o.control_plane().metadata.generation = Some(8);
            o.controller_lease = Reading::Read(Some(ControllerLease {
                name: "kcp".to_owned(),
                holder: Some("manager-1".to_owned()),
                renewed: Some(minutes_ago(4)),
                acquired: None,
                duration_seconds: Some(60),
            }));
        }),
        (
            "controller-stopped",
            "by_a_lease_that_expired_a_moment_ago",
            |o| {
                o.control_plane().metadata.generation = Some(8);
                o.controller_lease = Reading::Read(Some(ControllerLease {
                    name: "kcp".to_owned(),
                    holder: Some("manager-1".to_owned()),
                    renewed: Some(minutes_ago(3)),
                    acquired: None,
                    duration_seconds: Some(60),
                }));
            },
        ),
        ("change-stuck", "blocked_for_a_moment", |o| {
            scale_up(o, 30, BLOCKED);
        }),
        ("change-stuck", "blocked_for_long", |o| {
            scale_up(o, 31, BLOCKED);
        }),
        ("change-stuck", "a_replica_is_missing_for_a_moment", |o| {
            scale_up(o, 10, "");
        }),
        ("change-stuck", "a_replica_is_missing_for_long", |o| {
            scale_up(o, 11, "");
        }),
        ("change-stuck", "a_rollout_of_half_an_hour", |o| {
            roll_out(o, 30);
        }),
        ("change-stuck", "a_rollout_stands_still", |o| roll_out(o, 31)),
        ("change-stuck", "a_rollout_waits_for_a_machine_that_starts", |o| {
            roll_out(o, 120);
            starts(o);
        }),
        ("change-stuck", "a_component_does_not_become_healthy", |o| {
            roll_out(o, 120);
            let mut failed = crate::testing::objects::condition("SchedulerPodHealthy", False, "crashed");
            failed.last_transition_time = Some(minutes_ago(11));
            crate::testing::objects::set(&mut o.machine(2).status.conditions, failed);
        }),
        ("change-stuck", "nothing_is_pending", |o| {
            quiet(o);
            says(o, "ScalingUp", True, BLOCKED, 60);
        }),
    ];
}
