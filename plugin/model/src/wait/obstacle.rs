//! What is in the way of a change, and whether it has been so for too long.
//!
//! A change is stuck when an [`Obstacle`] is older than it may be, and nothing else has come about for as long: no
//! Machine was made, deleted or became ready, and the controller began nothing new. Both are times that objects tell, so
//! that it does not matter since when anybody looks.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    control_plane::{Condition, ControlPlane, Machine, Snapshot},
    duration::format_duration,
    plan::state::COMPONENT_CONDITIONS,
};

/// How long a Machine may be without a node. Cluster API's quick start has nodes up in under five minutes; cloud
/// providers document ten at most.
const JOIN_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How long a component of a Machine that has joined may be other than healthy. Static pods start within two minutes of
/// the node, and kubeadm itself waits four for them.
const HEALTH_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How long a Machine may take to go. Draining waits for pod disruption budgets and can be slow without being stuck.
const DELETION_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How long the controller may say that it is blocked. It does so for seconds to minutes in every rollout.
const BLOCKED_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Conditions of the control plane that change when the controller begins or ends something.
const UNDERTAKINGS: [&str; 4] = ["RollingOut", "ScalingUp", "ScalingDown", "Remediating"];

/// Something that a change waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Obstacle {
    /// What it is.
    #[serde(flatten)]
    pub kind: ObstacleKind,
    /// Since when.
    pub since: Timestamp,
    /// What the controllers say of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What is in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum ObstacleKind {
    /// A Machine is being deleted.
    BeingDeleted {
        /// Which.
        machine: String,
    },
    /// A Machine has no node.
    NoNode {
        /// Which.
        machine: String,
    },
    /// A component of a Machine is not known to be healthy: the preflight of Cluster API waits for it.
    Condition {
        /// Which Machine.
        machine: String,
        /// Which condition.
        condition: &'static str,
        /// `False`, `Unknown` or `absent`.
        status: &'static str,
    },
    /// The controller says that it is blocked.
    Blocked {
        /// The condition that says so.
        condition: &'static str,
    },
}

/// What is in the way of a change that has been so for too long, the oldest first; nothing as long as the change may
/// still go on by itself.
pub fn overdue(snapshot: &Snapshot, now: Timestamp) -> Vec<Obstacle> {
    let quiet_since = last_progress(snapshot, now);
    let mut overdue = obstacles(snapshot);
    overdue.retain(|obstacle| {
        let limit = obstacle.kind.limit();
        let is_over = |since: Timestamp| age(since, now) > limit;
        is_over(obstacle.since) && quiet_since.is_none_or(is_over)
    });
    overdue.sort_by_key(|obstacle| obstacle.since);
    overdue
}

/// When something last came about.
fn last_progress(
    Snapshot {
        control_plane,
        machines,
    }: &Snapshot,
    now: Timestamp,
) -> Option<Timestamp> {
    let of_machines = machines.iter().flat_map(|machine| {
        let ready = machine.condition("Ready").filter(|ready| ready.is_true());
        let ready = ready.and_then(|ready| ready.last_transition_time);
        [machine.created, machine.deleting_since, ready]
    });
    let of_controller = UNDERTAKINGS
        .into_iter()
        .map(|kind| control_plane.condition(kind)?.last_transition_time);
    let asked = control_plane.rollout_after.filter(|after| *after <= now);
    of_machines.chain(of_controller).chain([asked]).flatten().max()
}

fn obstacles(
    Snapshot {
        control_plane,
        machines,
    }: &Snapshot,
) -> Vec<Obstacle> {
    let of_machines = machines
        .iter()
        .flat_map(|machine| of_machine(control_plane, machine));
    let blocked = ["ScalingUp", "ScalingDown"].into_iter().filter_map(|kind| {
        let says_so =
            |condition: &&Condition| condition.is_true() && condition.message.contains("blocked because");
        let condition = control_plane.condition(kind).filter(says_so)?;
        Some(Obstacle {
            kind: ObstacleKind::Blocked { condition: kind },
            since: condition.last_transition_time?,
            message: said(condition),
        })
    });
    of_machines.chain(blocked).collect()
}

fn of_machine(control_plane: &ControlPlane, machine: &Machine) -> Vec<Obstacle> {
    let name = || machine.name.clone();
    if let Some(since) = machine.deleting_since {
        return vec![Obstacle {
            kind: ObstacleKind::BeingDeleted { machine: name() },
            since,
            message: machine.condition("Deleting").and_then(said),
        }];
    }
    let Some(created) = machine.created else {
        return Vec::new();
    };
    if machine.node.is_none() {
        let unmet = ["InfrastructureReady", "BootstrapConfigReady", "Ready"]
            .into_iter()
            .filter_map(|kind| machine.condition(kind));
        return vec![Obstacle {
            kind: ObstacleKind::NoNode { machine: name() },
            since: created,
            message: unmet
                .into_iter()
                .find(|condition| !condition.is_true())
                .and_then(said),
        }];
    }
    let components = COMPONENT_CONDITIONS
        .iter()
        .filter(|(_, of_etcd)| !(*of_etcd && control_plane.external_etcd));
    let unmet = components.filter_map(|(kind, _)| {
        let condition = machine.condition(kind);
        if condition.is_some_and(Condition::is_true) {
            return None;
        }
        Some(Obstacle {
            kind: ObstacleKind::Condition {
                machine: name(),
                condition: kind,
                status: condition.map_or("absent", |condition| condition.status.as_str()),
            },
            since: condition
                .and_then(|condition| condition.last_transition_time)
                .unwrap_or(created),
            message: condition.and_then(said),
        })
    });
    unmet.collect()
}

/// What a condition says, with its reason where that is not all it says.
fn said(condition: &Condition) -> Option<String> {
    let message = condition.one_line();
    if message.is_empty() {
        return None;
    }
    if condition.reason.is_empty() || message == condition.reason {
        return Some(message);
    }
    Some(format!("{}: {message}", condition.reason))
}

/// How long ago a time was; nothing for a time to come, as clocks differ.
fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

impl ObstacleKind {
    /// How long it may be there.
    const fn limit(&self) -> Duration {
        match self {
            Self::BeingDeleted { .. } => DELETION_LIMIT,
            Self::NoNode { .. } => JOIN_LIMIT,
            Self::Condition { .. } => HEALTH_LIMIT,
            Self::Blocked { .. } => BLOCKED_LIMIT,
        }
    }
}

impl Obstacle {
    /// For people.
    pub fn text(&self, now: Timestamp) -> String {
        let long = format_duration(age(self.since, now));
        let what = match &self.kind {
            ObstacleKind::BeingDeleted { machine } => {
                format!("Machine {machine} is still being deleted after {long}")
            }
            ObstacleKind::NoNode { machine } => format!("Machine {machine} has no node after {long}"),
            ObstacleKind::Condition {
                machine,
                condition,
                status,
            } => format!("{condition} of Machine {machine} has been {status} for {long}"),
            ObstacleKind::Blocked { condition } => format!("{condition} has been blocked for {long}"),
        };
        match &self.message {
            Some(message) => format!("{what}: {message}"),
            None => what,
        }
    }

    /// What to look at.
    pub fn hint(&self, namespace: &str, name: &str) -> String {
        match &self.kind {
            ObstacleKind::BeingDeleted { machine }
            | ObstacleKind::NoNode { machine }
            | ObstacleKind::Condition { machine, .. } => {
                format!("kubectl describe machine {machine} -n {namespace}")
            }
            ObstacleKind::Blocked { .. } => format!("kubectl kcp status {name} -n {namespace}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Obstacle, overdue};
    use crate::control_plane::{
        Condition,
        ConditionStatus::{self, False, True, Unknown},
        Snapshot,
        example::{condition, healthy, minutes_ago, new_machine, now, set},
    };

    fn since(minutes: i64, kind: &str, status: ConditionStatus, message: &str) -> Condition {
        Condition {
            last_transition_time: Some(minutes_ago(minutes)),
            ..condition(kind, status, message)
        }
    }

    /// A rollout that began two hours ago, since when nothing has come about.
    fn quiet() -> Snapshot {
        let mut snapshot = healthy(3);
        controller_says(
            &mut snapshot,
            since(120, "RollingOut", True, "Rolling out 3 not up-to-date replicas"),
        );
        for machine in &mut snapshot.machines {
            machine.created = Some(minutes_ago(600));
            set(&mut machine.conditions, since(590, "Ready", True, ""));
        }
        snapshot
    }

    fn controller_says(snapshot: &mut Snapshot, condition: Condition) {
        set(&mut snapshot.control_plane.conditions, condition);
    }

    /// Of the second Machine.
    fn machine_says(snapshot: &mut Snapshot, condition: Condition) {
        set(&mut snapshot.machines[1].conditions, condition);
    }

    fn blocked(snapshot: &mut Snapshot, minutes: i64) {
        let message = "blocked because:\n* waiting for certificates";
        controller_says(snapshot, since(minutes, "ScalingUp", True, message));
    }

    /// A Machine that was made so many minutes ago.
    fn comes(snapshot: &mut Snapshot, minutes: i64) {
        let mut machine = new_machine("c1-cp-m4");
        machine.created = Some(minutes_ago(minutes));
        set(
            &mut machine.conditions,
            since(minutes, "InfrastructureReady", False, "no capacity"),
        );
        snapshot.machines.push(machine);
    }

    /// The first Machine, so many minutes ago.
    fn goes(snapshot: &mut Snapshot, minutes: i64) {
        snapshot.machines[0].deleting_since = Some(minutes_ago(minutes));
        let mut deleting = since(
            minutes,
            "Deleting",
            True,
            "* Pod d/web: cannot evict\n* Pod d/db: cannot evict",
        );
        deleting.reason = "DrainingNode".to_owned();
        set(&mut snapshot.machines[0].conditions, deleting);
    }

    fn told(snapshot: &Snapshot) -> Vec<String> {
        let text = |obstacle: &Obstacle| obstacle.text(now());
        overdue(snapshot, now()).iter().map(text).collect()
    }

    type Case = (&'static str, fn(&mut Snapshot), &'static [&'static str]);

    fn judged(cases: &[Case]) {
        for (name, change, expected) in cases {
            let mut snapshot = quiet();
            change(&mut snapshot);
            assert_eq!(told(&snapshot), *expected, "{name}");
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
                &["Machine c1-cp-m4 has no node after 11m: Reason: no capacity"],
            ),
            ("goes", |s| goes(s, 30), &[]),
            (
                "goes_for_too_long",
                |s| goes(s, 41),
                &[
                    "Machine c1-cp-m1 is still being deleted after 41m: DrainingNode: Pod d/web: cannot evict; Pod d/db: cannot \
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
                |s| machine_says(s, since(10, "EtcdMemberHealthy", False, "")),
                &[],
            ),
            (
                "unhealthy_for_too_long",
                |s| {
                    machine_says(s, since(15, "EtcdMemberHealthy", False, "no answer"));
                    machine_says(s, since(20, "EtcdPodHealthy", Unknown, ""));
                },
                &[
                    "EtcdPodHealthy of Machine c1-cp-m2 has been Unknown for 20m: Reason",
                    "EtcdMemberHealthy of Machine c1-cp-m2 has been False for 15m: Reason: no answer",
                ],
            ),
            (
                "never_said",
                |s| {
                    let conditions = &mut s.machines[1].conditions;
                    conditions.retain(|condition| condition.kind != "SchedulerPodHealthy");
                },
                &["SchedulerPodHealthy of Machine c1-cp-m2 has been absent for 10h"],
            ),
            (
                "etcd_is_elsewhere",
                |s| {
                    s.control_plane.external_etcd = true;
                    machine_says(s, since(15, "EtcdMemberHealthy", False, ""));
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
                &["ScalingUp has been blocked for 31m: Reason: blocked because: waiting for certificates"],
            ),
            (
                "not_blocked",
                |s| controller_says(s, since(31, "ScalingUp", True, "Scaling up from 3 to 4 replicas")),
                &[],
            ),
            (
                "no_longer_blocked",
                |s| controller_says(s, since(31, "ScalingUp", False, "blocked because")),
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
                |s| set(&mut s.machines[0].conditions, since(9, "Ready", True, "")),
                0,
            ),
            (
                "the_rollout_began",
                |s| controller_says(s, since(9, "RollingOut", True, "")),
                0,
            ),
            (
                "the_rollout_was_asked_for",
                |s| {
                    s.control_plane.rollout_after = Some(minutes_ago(9));
                },
                0,
            ),
            (
                "a_rollout_is_to_come",
                |s| {
                    s.control_plane.rollout_after = Some(minutes_ago(-9));
                },
                1,
            ),
        ];
        for (name, change, overdue) in cases {
            let mut snapshot = quiet();
            machine_says(&mut snapshot, since(300, "EtcdMemberHealthy", False, ""));
            change(&mut snapshot);
            assert_eq!(told(&snapshot).len(), *overdue, "{name}");
        }
    }
}
