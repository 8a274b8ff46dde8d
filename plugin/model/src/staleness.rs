//! Decides when a blocked change counts as stuck.
//!
//! The age of a blocked change is computed from the timestamps of objects, so it is the same for every observer.
//!
//! - [`refused_write`]: a write of a Machine that fails

pub mod refused_write;

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::{Condition, KubeadmControlPlane, Machine, Object as _};
use serde::Serialize;

use crate::{
    duration::format_duration,
    join_times::JoinLimit,
    plan::state::component_conditions,
    problem::{Problem, diagnose_command},
    snapshot::Snapshot,
    topology,
};
use refused_write::RefusedWrite;

/// How long the deletion of a Machine may take. The drain may wait for `PodDisruptionBudgets`.
pub const DELETION_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How long a deletion may take before commands mention it. Cluster API needs less than a minute for a
/// Machine whose node runs only control plane pods.
pub const SLOW_DELETION: Duration = Duration::from_secs(2 * 60);

/// How long the components of a joined Machine may take to become healthy. Static pods start within two minutes of the
/// node; kubeadm waits four minutes for them.
const HEALTH_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How long the static pods of a new node may take to become ready after kubeadm has set the node's labels
/// and taints. kubeadm sets them after the pods have started; the pods' readiness probes take about ten
/// seconds each.
pub const SETTLING_LIMIT: Duration = Duration::from_secs(60);

/// How long a summary condition may lag behind the conditions that it summarizes.
pub const SUMMARY_LAG_LIMIT: Duration = Duration::from_secs(60);

/// How long the controller may report a change as blocked, or as in progress without making progress. Every
/// normal rollout is blocked for seconds to minutes.
const PROGRESS_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How long the controller may take to create a missing Machine. It normally takes seconds.
pub const CONTROLLER_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How long the controller may take to process a change to the spec. It normally takes seconds.
pub const OBSERVATION_LIMIT: Duration = Duration::from_secs(3 * 60);

/// The conditions of the control plane whose transitions count as progress.
const ACTIVITIES: [&str; 4] = ["RollingOut", "ScalingUp", "ScalingDown", "Remediating"];

/// A blocker that has lasted longer than its time limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "Stuck"))]
#[serde(rename_all = "camelCase")]
pub struct StuckProblem {
    #[serde(flatten)]
    pub blocker: Problem,
    pub since: Timestamp,
}

/// The time that has passed since `since`. Zero if `since` is in the future, because clocks differ.
pub fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// The time that has passed since `time`, as text such as `5m`.
pub fn format_age(time: Timestamp, now: Timestamp) -> String {
    format_duration(age(time, now))
}

/// Returns the blockers that have lasted longer than their limits, the oldest first. No blocker counts as stuck soon
/// after progress: a Machine was created, was deleted or became ready, or a condition in [`ACTIVITIES`] changed.
/// A write that admission denies counts as stuck at once, because repeating it does not help. It also explains why the
/// controller neither processes the spec nor makes progress.
pub fn find_stuck(observed: &Snapshot, now: Timestamp) -> Vec<StuckProblem> {
    let Snapshot {
        control_plane,
        machines,
        ..
    } = observed;
    let progress = last_progress(observed, now);
    let refused = RefusedWrite::blocker(observed, now);
    let waits: Vec<StuckProblem> = machines
        .iter()
        .flat_map(|machine| machine_waits(control_plane, machine))
        .chain(blockers_from_conditions(control_plane))
        .collect();
    let is_unexplained = refused.is_none();
    let without_cause = (is_unexplained && waits.is_empty()).then(|| no_progress(control_plane, progress));
    let mut stuck: Vec<StuckProblem> = waits
        .into_iter()
        .chain(without_cause.flatten())
        .filter(|wait| {
            let limit = time_limit(observed, &wait.blocker);
            let is_over = |since: Timestamp| age(since, now) > limit;
            is_over(wait.since) && progress.is_none_or(is_over)
        })
        .chain(stopped_controller_blocker(observed, now).filter(|_| is_unexplained))
        .chain(failed_topology_blocker(observed, now))
        .chain(refused)
        .collect();
    stuck.sort_by_key(|wait| wait.since);
    stuck
}

fn time_limit(observed: &Snapshot, blocker: &Problem) -> Duration {
    match blocker {
        Problem::BeingDeleted { .. } => DELETION_LIMIT,
        Problem::MachinePaused { .. } => OBSERVATION_LIMIT,
        Problem::NoNode { .. } => JoinLimit::of(observed).limit,
        Problem::Condition { .. } => HEALTH_LIMIT,
        Problem::NoProgress { condition, .. } if matches!(condition.as_bytes(), b"ScalingUp") => {
            CONTROLLER_LIMIT
        }
        _ => PROGRESS_LIMIT,
    }
}

/// When a change of the control plane last made progress: a Machine was created, was deleted or became ready, or a condition in
/// [`ACTIVITIES`] changed. `None` if no object has such a time.
pub fn last_progress(observed: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    let Snapshot {
        control_plane,
        machines,
        ..
    } = observed;
    let of_machines = machines.iter().flat_map(|machine| {
        let ready = machine.condition("Ready").filter(|ready| ready.is_true());
        let ready = ready.and_then(|ready| ready.last_transition_time);
        [machine.creation_timestamp(), machine.deletion_timestamp(), ready]
    });
    let of_controller = ACTIVITIES
        .into_iter()
        .map(|kind| control_plane.condition(kind)?.last_transition_time);
    let rollout = control_plane.spec.rollout_after.filter(|after| *after <= now);
    of_machines.chain(of_controller).chain([rollout]).flatten().max()
}

fn blockers_from_conditions(control_plane: &KubeadmControlPlane) -> impl Iterator<Item = StuckProblem> {
    ["ScalingUp", "ScalingDown"].into_iter().filter_map(|kind| {
        let condition = control_plane
            .condition(kind)
            .filter(|condition| condition.is_true() && condition.message.contains("blocked because"))?;
        Some(StuckProblem {
            blocker: Problem::Blocked {
                condition: kind,
                message: reason_and_message(condition),
            },
            since: condition.last_transition_time?,
        })
    })
}

/// Returns the blocker for a change that the controller reports as in progress, although it has not created or deleted
/// a Machine for too long.
fn no_progress(control_plane: &KubeadmControlPlane, progress: Option<Timestamp>) -> Option<StuckProblem> {
    if is_suspended(control_plane) {
        return None;
    }
    let mut in_progress = ["RollingOut", "ScalingUp", "ScalingDown"]
        .into_iter()
        .filter_map(|kind| Some((kind, control_plane.condition(kind)?)));
    let (kind, condition) = in_progress.find(|(_, condition)| condition.is_true())?;
    Some(StuckProblem {
        blocker: Problem::NoProgress {
            condition: kind,
            message: reason_and_message(condition),
        },
        since: progress?,
    })
}

/// Returns the blocker if the controller has not processed the spec for longer than [`OBSERVATION_LIMIT`]. A controller that
/// has compared the Machines with the spec has not stopped.
pub fn stopped_controller_blocker(observed: &Snapshot, now: Timestamp) -> Option<StuckProblem> {
    let control_plane = &observed.control_plane;
    let since = observed.unprocessed_since()?;
    let is_stopped = !is_suspended(control_plane)
        && !control_plane.has_compared_machines()
        && age(since, now) > OBSERVATION_LIMIT;
    is_stopped.then(|| StuckProblem {
        blocker: Problem::controller_stopped(control_plane),
        since,
    })
}

/// Returns the blocker if the topology controller has failed for longer than [`OBSERVATION_LIMIT`]. The
/// topology controller tries again, so an error that lasts for a short time may end on its own.
fn failed_topology_blocker(observed: &Snapshot, now: Timestamp) -> Option<StuckProblem> {
    let since = observed.cluster.value()?.topology_error()?.last_transition_time?;
    let blocker = topology::failed(observed)?;
    (age(since, now) > OBSERVATION_LIMIT).then_some(StuckProblem { blocker, since })
}

fn is_suspended(control_plane: &KubeadmControlPlane) -> bool {
    control_plane.is_paused()
        || control_plane.is_condition_true("Paused")
        || control_plane.deletion_timestamp().is_some()
}

fn machine_waits(control_plane: &KubeadmControlPlane, machine: &Machine) -> Vec<StuckProblem> {
    let name = || machine.name().to_owned();
    let joins = || machine.creation_timestamp().filter(|_| !machine.has_node());
    if machine.is_paused()
        && let Some(since) = machine.deletion_timestamp().or_else(joins)
    {
        let blocker = Problem::MachinePaused { machine: name() };
        return vec![StuckProblem { blocker, since }];
    }
    if let Some(since) = machine.deletion_timestamp() {
        return vec![StuckProblem {
            blocker: Problem::BeingDeleted {
                machine: name(),
                message: machine.condition("Deleting").and_then(reason_and_message),
            },
            since,
        }];
    }
    let Some(created) = machine.creation_timestamp() else {
        return Vec::new();
    };
    if machine.status.node_name.is_none() {
        let mut conditions = ["InfrastructureReady", "BootstrapConfigReady", "Ready"]
            .into_iter()
            .filter_map(|kind| machine.condition(kind));
        return vec![StuckProblem {
            blocker: Problem::NoNode {
                machine: name(),
                message: conditions
                    .find(|condition| !condition.is_true())
                    .and_then(reason_and_message),
            },
            since: created,
        }];
    }
    let stacked = !control_plane.spec.kubeadm_config_spec.has_external_etcd();
    let unmet = component_conditions(stacked).filter(|kind| !machine.is_condition_true(kind));
    let unmet = unmet.map(|kind| {
        let condition = machine.condition(kind);
        let transition = condition.and_then(|condition| condition.last_transition_time);
        StuckProblem {
            blocker: Problem::from_condition(machine, kind, condition.and_then(reason_and_message)),
            since: transition.unwrap_or(created),
        }
    });
    unmet.collect()
}

fn reason_and_message(condition: &Condition) -> Option<String> {
    let message = condition.message_or_reason();
    if message.is_empty() {
        return None;
    }
    if condition.reason.is_empty() || message == condition.reason {
        return Some(message);
    }
    Some(format!("{}: {message}", condition.reason))
}

impl StuckProblem {
    pub fn message(&self, now: Timestamp) -> String {
        format!("for {}: {}", format_age(self.since, now), self.blocker.message())
    }

    pub fn hint(&self, namespace: &str, name: &str) -> String {
        match self.blocker.machine() {
            Some(machine) => diagnose_command(machine, namespace),
            None => self
                .blocker
                .hint(namespace, name)
                .unwrap_or_else(|| format!("kubectl describe kcp {name} -n {namespace}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{
        Condition,
        ConditionStatus::{self, False, True, Unknown},
        metadata::Time,
    };

    use super::find_stuck;
    use crate::{
        snapshot::{FailedWrite, Reading, Snapshot},
        testing::{
            objects::{
                change_spec, change_status, compare_without_record, condition, healthy, minutes_ago,
                new_machine, now, pause, scale_without_a_time, set, use_external_etcd,
            },
            plan::cluster,
        },
    };

    fn condition_since(minutes: i64, kind: &str, status: ConditionStatus, message: &str) -> Condition {
        Condition {
            last_transition_time: Some(minutes_ago(minutes)),
            ..condition(kind, status, message)
        }
    }

    /// Nothing has happened for two hours.
    fn quiet() -> Snapshot {
        let mut snapshot = healthy(3);
        controller_says(&mut snapshot, condition_since(120, "RollingOut", False, ""));
        for machine in &mut snapshot.machines {
            machine.metadata.creation_timestamp = Some(Time(minutes_ago(600)));
            set(
                &mut machine.status.conditions,
                condition_since(590, "Ready", True, ""),
            );
        }
        snapshot
    }

    fn controller_says(snapshot: &mut Snapshot, condition: Condition) {
        set(&mut snapshot.control_plane.status.conditions, condition);
    }

    /// Sets a condition of the second Machine.
    fn machine_says(snapshot: &mut Snapshot, condition: Condition) {
        set(&mut snapshot.machines[1].status.conditions, condition);
    }

    fn blocked(snapshot: &mut Snapshot, minutes: i64) {
        let message = "blocked because:\n* waiting for certificates";
        controller_says(snapshot, condition_since(minutes, "ScalingUp", True, message));
    }

    /// Adds a Machine that was created this number of minutes ago.
    fn comes(snapshot: &mut Snapshot, minutes: i64) {
        let mut machine = new_machine("c1-cp-m4");
        machine.metadata.creation_timestamp = Some(Time(minutes_ago(minutes)));
        set(
            &mut machine.status.conditions,
            condition_since(minutes, "InfrastructureReady", False, "no capacity"),
        );
        snapshot.machines.push(machine);
    }

    /// Marks the first Machine as deleted this number of minutes ago.
    fn goes(snapshot: &mut Snapshot, minutes: i64) {
        snapshot.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(minutes)));
        let mut deleting = condition_since(
            minutes,
            "Deleting",
            True,
            "* Pod d/web: cannot evict\n* Pod d/db: cannot evict",
        );
        deleting.reason = "DrainingNode".to_owned();
        set(&mut snapshot.machines[0].status.conditions, deleting);
    }

    fn reported(snapshot: &Snapshot) -> Vec<String> {
        let stuck = find_stuck(snapshot, now());
        stuck.iter().map(|stuck| stuck.message(now())).collect()
    }

    type Case = (&'static str, fn(&mut Snapshot), &'static [&'static str]);

    fn judged(cases: &[Case]) {
        for (name, change, expected) in cases {
            let mut snapshot = quiet();
            change(&mut snapshot);
            assert_eq!(reported(&snapshot), *expected, "{name}");
        }
    }

    #[test]
    fn a_machine_that_takes_too_long_to_come_or_to_go() {
        judged(&[
            ("nothing", |_| {}, &[]),
            ("comes", |s| comes(s, 10), &[]),
            (
                "comes_for_too_long",
                |s| comes(s, 11),
                &["for 11m: Machine c1-cp-m4 has no node yet: Reason: no capacity"],
            ),
            ("goes", |s| goes(s, 30), &[]),
            (
                "goes_for_too_long",
                |s| goes(s, 41),
                &[
                    "for 41m: Machine c1-cp-m1 is being deleted: DrainingNode: Pod d/web: cannot evict; Pod d/db: cannot \
                   evict",
                ],
            ),
        ]);
    }

    #[test]
    fn a_component_that_is_not_healthy_for_too_long() {
        judged(&[
            (
                "unhealthy",
                |s| machine_says(s, condition_since(10, "EtcdMemberHealthy", False, "")),
                &[],
            ),
            (
                "unhealthy_for_too_long",
                |s| {
                    machine_says(s, condition_since(15, "EtcdMemberHealthy", False, "no answer"));
                    machine_says(s, condition_since(20, "EtcdPodHealthy", Unknown, ""));
                },
                &[
                    "for 20m: EtcdPodHealthy of Machine c1-cp-m2 is Unknown: Reason",
                    "for 15m: EtcdMemberHealthy of Machine c1-cp-m2 is False: Reason: no answer",
                ],
            ),
            (
                "never_said",
                |s| {
                    let conditions = &mut s.machines[1].status.conditions;
                    conditions.retain(|condition| condition.type_ != "SchedulerPodHealthy");
                },
                &["for 10h: SchedulerPodHealthy of Machine c1-cp-m2 is absent"],
            ),
            (
                "etcd_is_elsewhere",
                |s| {
                    use_external_etcd(&mut s.control_plane.spec);
                    machine_says(s, condition_since(15, "EtcdMemberHealthy", False, ""));
                },
                &[],
            ),
        ]);
    }

    #[test]
    fn a_controller_that_is_blocked_for_too_long() {
        judged(&[
            ("blocked", |s| blocked(s, 30), &[]),
            (
                "blocked_for_too_long",
                |s| blocked(s, 31),
                &[
                    "for 31m: the controller reports in condition ScalingUp that it is blocked: Reason: blocked because: waiting for certificates",
                ],
            ),
            (
                "no_longer_blocked",
                |s| controller_says(s, condition_since(31, "ScalingUp", False, "blocked because")),
                &[],
            ),
        ]);
    }

    #[test]
    fn whatever_comes_about_gives_it_time() {
        type Case = (&'static str, fn(&mut Snapshot), usize);
        let cases: &[Case] = &[
            ("nothing", |_| {}, 1),
            ("a_machine_was_made", |s| comes(s, 9), 0),
            ("a_machine_goes", |s| goes(s, 9), 0),
            (
                "a_machine_became_ready",
                |s| {
                    set(
                        &mut s.machines[0].status.conditions,
                        condition_since(9, "Ready", True, ""),
                    );
                },
                0,
            ),
            (
                "the_rollout_began",
                |s| controller_says(s, condition_since(9, "RollingOut", True, "")),
                0,
            ),
            (
                "the_rollout_was_asked_for",
                |s| {
                    s.control_plane.spec.rollout_after = Some(minutes_ago(9));
                },
                0,
            ),
            (
                "a_rollout_is_to_come",
                |s| {
                    s.control_plane.spec.rollout_after = Some(minutes_ago(-9));
                },
                1,
            ),
        ];
        for (name, change, overdue) in cases {
            let mut snapshot = quiet();
            machine_says(
                &mut snapshot,
                condition_since(300, "EtcdMemberHealthy", False, ""),
            );
            change(&mut snapshot);
            assert_eq!(reported(&snapshot).len(), *overdue, "{name}");
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn a_controller_that_does_nothing() {
        judged(&[
            (
                "scaling_up",
                |s| controller_says(s, condition_since(10, "ScalingUp", True, "from 3 to 4")),
                &[],
            ),
            (
                "a_replica_is_missing_for_too_long",
                |s| controller_says(s, condition_since(11, "ScalingUp", True, "from 3 to 4")),
                &[
                    "for 11m: ScalingUp is True, but the controller neither creates nor deletes Machines: Reason: from \
                     3 to 4",
                ],
            ),
            (
                "rolling_out",
                |s| controller_says(s, condition_since(30, "RollingOut", True, "")),
                &[],
            ),
            (
                "a_rollout_stands_still",
                |s| controller_says(s, condition_since(31, "RollingOut", True, "")),
                &[
                    "for 31m: RollingOut is True, but the controller neither creates nor deletes Machines: Reason",
                ],
            ),
            (
                "a_rollout_waits_for_a_new_machine",
                |s| {
                    controller_says(s, condition_since(50, "RollingOut", True, ""));
                    comes(s, 9);
                },
                &[],
            ),
            (
                "paused",
                |s| {
                    controller_says(s, condition_since(50, "RollingOut", True, ""));
                    pause(&mut s.control_plane.metadata);
                },
                &[],
            ),
            (
                "a_change_is_not_processed_yet",
                |s| {
                    s.control_plane.metadata.generation = Some(8);
                    change_spec(&mut s.control_plane.metadata, minutes_ago(3));
                },
                &[],
            ),
            (
                "a_change_is_not_processed_for_too_long",
                |s| {
                    s.control_plane.metadata.generation = Some(8);
                    change_spec(&mut s.control_plane.metadata, minutes_ago(4));
                },
                &[
                    "for 4m: Cluster API's kubeadm control plane controller has not processed generation 8 of the spec; the \
                     last processed generation is 7",
                ],
            ),
            (
                "the_machines_are_compared_with_a_change",
                |s| {
                    compare_without_record(&mut s.control_plane);
                    change_spec(&mut s.control_plane.metadata, minutes_ago(4));
                },
                &[],
            ),
            (
                "the_time_of_the_change_is_unknown",
                |s| s.control_plane.metadata.generation = Some(8),
                &[],
            ),
            (
                "the_status_was_written_after_the_spec",
                |s| {
                    s.control_plane.metadata.generation = Some(8);
                    change_spec(&mut s.control_plane.metadata, minutes_ago(5));
                    change_status(&mut s.control_plane.metadata, minutes_ago(4));
                },
                &[],
            ),
            (
                "the_change_was_written_through_the_scale_subresource",
                |s| {
                    s.control_plane.metadata.generation = Some(8);
                    change_spec(&mut s.control_plane.metadata, minutes_ago(4));
                    scale_without_a_time(&mut s.control_plane);
                },
                &[],
            ),
            (
                "a_change_after_a_scale_that_is_processed",
                |s| {
                    s.control_plane.metadata.generation = Some(8);
                    change_spec(&mut s.control_plane.metadata, minutes_ago(4));
                    scale_without_a_time(&mut s.control_plane);
                    s.control_plane.status.replicas = s.control_plane.desired_replicas();
                },
                &[
                    "for 4m: Cluster API's kubeadm control plane controller has not processed generation 8 of the spec; the \
                     last processed generation is 7",
                ],
            ),
            (
                "the_command_saw_the_change_a_moment_ago",
                |s| {
                    s.control_plane.metadata.generation = Some(8);
                    s.unprocessed_seen = Some(minutes_ago(3));
                },
                &[],
            ),
            (
                "the_command_saw_the_change_long_ago",
                |s| {
                    s.control_plane.metadata.generation = Some(8);
                    s.unprocessed_seen = Some(minutes_ago(4));
                },
                &[
                    "for 4m: Cluster API's kubeadm control plane controller has not processed generation 8 of the spec; the \
                     last processed generation is 7",
                ],
            ),
            (
                "the_command_saw_a_change_that_is_processed_by_now",
                |s| s.unprocessed_seen = Some(minutes_ago(4)),
                &[],
            ),
        ]);
    }

    /// The change has not been processed for this number of minutes, because the controller cannot create a Machine.
    fn refused(snapshot: &mut Snapshot, minutes: i64, error: &str) {
        snapshot.control_plane.metadata.generation = Some(8);
        change_spec(&mut snapshot.control_plane.metadata, minutes_ago(minutes));
        snapshot.failed_writes = Reading::Read(vec![FailedWrite {
            is_deletion: false,
            message: error.to_owned(),
            first_reported: minutes_ago(minutes),
            last_reported: now(),
        }]);
    }

    #[test]
    fn a_write_that_fails_is_the_cause() {
        judged(&[
            (
                "denied_a_moment_ago",
                |s| refused(s, 0, "admission webhook \"m.example.com\" denied the request: no"),
                &["for 0s: webhook m.example.com does not let the controller create a Machine: no"],
            ),
            (
                "denied_for_long",
                |s| refused(s, 9, "admission webhook \"m.example.com\" denied the request: no"),
                &["for 9m: webhook m.example.com does not let the controller create a Machine: no"],
            ),
            (
                "a_webhook_restarts",
                |s| {
                    refused(
                        s,
                        3,
                        "failed calling webhook \"m.example.com\": connection refused",
                    );
                },
                &[],
            ),
            (
                "a_webhook_does_not_respond_for_long",
                |s| {
                    refused(
                        s,
                        4,
                        "failed calling webhook \"m.example.com\": connection refused",
                    );
                },
                &[
                    "for 4m: the controller cannot create a Machine, because webhook m.example.com does not respond: connection \
                     refused",
                ],
            ),
            ("a_quota_a_moment_ago", |s| refused(s, 3, "exceeded quota"), &[]),
            (
                "a_quota_for_long",
                |s| refused(s, 4, "exceeded quota"),
                &["for 4m: the controller cannot create a Machine: exceeded quota"],
            ),
        ]);
    }

    #[test]
    fn a_topology_that_fails_for_too_long() {
        let failing = |snapshot: &mut Snapshot, minutes, reason: &str| {
            let mut failed = condition_since(minutes, "TopologyReconciled", False, "template t1 not found");
            failed.reason = reason.to_owned();
            let mut cluster = cluster("");
            cluster.status.topology_reconciled = Some(failed);
            snapshot.cluster = Reading::Read(cluster);
        };
        for (minutes, reason, expected) in [
            (3, "ReconcileFailed", &[][..]),
            (
                4,
                "ReconcileFailed",
                &[
                    "for 4m: Cluster API's topology controller cannot apply the ClusterClass to the Cluster: template t1 not found",
                ],
            ),
            (4, "ClusterUpgrading", &[]),
        ] {
            let mut snapshot = quiet();
            failing(&mut snapshot, minutes, reason);
            assert_eq!(reported(&snapshot), *expected, "{minutes} {reason}");
        }
    }
}
