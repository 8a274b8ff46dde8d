//! Control planes to test with.

use jiff::Timestamp;

use crate::control_plane::{Condition, ConditionStatus, ControlPlane, Machine, Snapshot};

/// The time of every example.
pub fn now() -> Timestamp {
    "2026-08-21T12:00:00Z".parse().expect("a time")
}

/// A time some minutes before [`now`].
pub fn minutes_ago(minutes: i64) -> Timestamp {
    now() - jiff::SignedDuration::from_mins(minutes)
}

pub fn condition(kind: &str, status: ConditionStatus, message: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status,
        reason: "Reason".to_owned(),
        message: message.to_owned(),
        last_transition_time: Some(minutes_ago(5)),
    }
}

/// Sets a condition of an object.
pub fn set(conditions: &mut Vec<Condition>, condition: Condition) {
    conditions.retain(|other| other.kind != condition.kind);
    conditions.push(condition);
}

/// A Machine with nothing wrong.
pub fn machine(name: &str) -> Machine {
    let kinds = [
        "Ready",
        "UpToDate",
        "APIServerPodHealthy",
        "ControllerManagerPodHealthy",
        "SchedulerPodHealthy",
        "EtcdPodHealthy",
        "EtcdMemberHealthy",
        "NodeKubeadmLabelsAndTaintsSet",
    ];
    Machine {
        name: name.to_owned(),
        namespace: "d".to_owned(),
        cluster: Some("c1".to_owned()),
        owner: Some("c1-cp".to_owned()),
        created: Some(minutes_ago(120)),
        version: Some("v1.34.1".to_owned()),
        node: Some(format!("node-{name}")),
        phase: Some("Running".to_owned()),
        conditions: kinds
            .map(|kind| condition(kind, ConditionStatus::True, ""))
            .to_vec(),
        ..Machine::default()
    }
}

/// A Machine made a minute ago.
pub fn new_machine(name: &str) -> Machine {
    Machine {
        created: Some(minutes_ago(1)),
        node: None,
        phase: Some("Provisioning".to_owned()),
        conditions: vec![condition(
            "Ready",
            ConditionStatus::False,
            "waiting for infrastructure",
        )],
        ..machine(name)
    }
}

/// A control plane with as many Machines as it should have, and nothing wrong.
pub fn healthy(machines: usize) -> Snapshot {
    let kinds = [
        "Available",
        "CertificatesAvailable",
        "EtcdClusterHealthy",
        "ControlPlaneComponentsHealthy",
    ];
    let count = i64::try_from(machines).expect("a small number");
    Snapshot {
        control_plane: ControlPlane {
            name: "c1-cp".to_owned(),
            namespace: "d".to_owned(),
            uid: "u1".to_owned(),
            cluster: Some("c1".to_owned()),
            resource_version: "12".to_owned(),
            generation: 7,
            observed_generation: Some(7),
            created: Some(minutes_ago(60 * 24 * 3)),
            desired_replicas: Some(count),
            desired_version: Some("v1.34.1".to_owned()),
            replicas: count,
            ready_replicas: count,
            available_replicas: count,
            up_to_date_replicas: count,
            version: Some("v1.34.1".to_owned()),
            initialized: true,
            conditions: kinds
                .map(|kind| condition(kind, ConditionStatus::True, ""))
                .to_vec(),
            ..ControlPlane::default()
        },
        machines: (1..=machines).map(|n| machine(&format!("c1-cp-m{n}"))).collect(),
    }
}
