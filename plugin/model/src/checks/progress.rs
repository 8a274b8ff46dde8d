//! Whether the controller makes progress: a change that is stuck, and a controller that has stopped.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};

use crate::{
    blocker::Blocker,
    checks::{
        Check,
        finding::{Finding, Judgement, machine},
        machine_grace::machines,
        rollout::has_pending_change,
    },
    snapshot::Snapshot,
    staleness::{Stuck, stuck},
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "controller-responds",
        "the controller processes changes of the spec",
        controller,
    )
    .blocking(),
    Check::new("change-progress", "a pending change makes progress", change).blocking(),
];

fn all(observed: &Snapshot, now: Timestamp) -> Vec<Stuck> {
    let machines: Vec<Machine> = machines(observed).to_vec();
    stuck(&observed.control_plane, &machines, now)
}

fn controller(observed: &Snapshot, now: Timestamp) -> Judgement {
    let stopped = all(observed, now)
        .into_iter()
        .filter(|stuck| matches!(stuck.blocker, Blocker::ControllerStopped { .. }));
    Ok(stopped
        .map(|stuck| finding(observed, &stuck, &stuck.message(now)))
        .collect())
}

/// As `rollout status` and every wait decide that a change is stuck.
fn change(observed: &Snapshot, now: Timestamp) -> Judgement {
    if !has_pending_change(observed, now) {
        return Ok(Vec::new());
    }
    let blocked = all(observed, now)
        .into_iter()
        .filter(|stuck| !matches!(stuck.blocker, Blocker::ControllerStopped { .. }));
    Ok(blocked
        .map(|stuck| finding(observed, &stuck, &format!("no progress {}", stuck.message(now))))
        .collect())
}

fn finding(observed: &Snapshot, stuck: &Stuck, message: &str) -> Finding {
    let control_plane = &observed.control_plane;
    let finding = Finding::fail(format!("KubeadmControlPlane/{}", control_plane.name()), message)
        .hint(stuck.hint(control_plane.namespace(), control_plane.name()));
    match stuck.blocker.machine() {
        Some(name) => finding.and(machine(name)),
        None => finding,
    }
}

#[cfg(test)]
pub(super) mod cases {
    use kcp_api::{
        ConditionStatus::{False, True},
        metadata::Time,
    };

    use crate::{
        checks::tests::{Case, says, starts},
        snapshot::Snapshot,
        testing::objects::{change_spec, minutes_ago},
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
        ("controller-responds", "a_change_of_a_moment_ago", |o| {
            o.control_plane().metadata.generation = Some(8);
            change_spec(&mut o.control_plane().metadata, minutes_ago(10));
        }),
        ("controller-responds", "a_change_of_long_ago", |o| {
            o.control_plane().metadata.generation = Some(8);
            change_spec(&mut o.control_plane().metadata, minutes_ago(11));
        }),
        ("change-progress", "blocked_for_a_moment", |o| {
            scale_up(o, 30, BLOCKED);
        }),
        ("change-progress", "blocked_for_long", |o| {
            scale_up(o, 31, BLOCKED);
        }),
        ("change-progress", "a_replica_is_missing_for_a_moment", |o| {
            scale_up(o, 10, "");
        }),
        ("change-progress", "a_replica_is_missing_for_long", |o| {
            scale_up(o, 11, "");
        }),
        ("change-progress", "a_rollout_of_half_an_hour", |o| {
            roll_out(o, 30);
        }),
        ("change-progress", "a_rollout_stands_still", |o| roll_out(o, 31)),
        (
            "change-progress",
            "a_rollout_waits_for_a_machine_that_starts",
            |o| {
                roll_out(o, 120);
                starts(o);
            },
        ),
        ("change-progress", "a_component_does_not_become_healthy", |o| {
            roll_out(o, 120);
            let mut failed = crate::testing::objects::condition("SchedulerPodHealthy", False, "crashed");
            failed.last_transition_time = Some(minutes_ago(11));
            crate::testing::objects::set(&mut o.machine(2).status.conditions, failed);
        }),
        ("change-progress", "nothing_is_pending", |o| {
            quiet(o);
            says(o, "ScalingUp", True, BLOCKED, 60);
        }),
    ];
}
