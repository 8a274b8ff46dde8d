use super::{
    Health::{self, Blocked, Degraded, Healthy, Unknown},
    assess,
};
use crate::control_plane::{
    ConditionStatus::{False, True, Unknown as NotKnown},
    Snapshot,
    example::{condition, healthy, machine, minutes_ago, new_machine, now, set},
};

type Case = (&'static str, fn(&mut Snapshot), Health, &'static [&'static str]);

const CASES: &[Case] = &[
    ("nothing_wrong", |_| {}, Healthy, &[]),
    (
        "status_absent",
        |s| {
            s.control_plane.observed_generation = None;
            s.control_plane.conditions.clear();
        },
        Unknown,
        &["status-absent"],
    ),
    (
        "availability_not_reported",
        |s| {
            s.control_plane
                .conditions
                .retain(|condition| condition.kind != "Available");
        },
        Unknown,
        &["not-available"],
    ),
    (
        "spec_newer_than_status",
        |s| s.control_plane.generation += 1,
        Unknown,
        &["status-outdated"],
    ),
    (
        "not_available",
        |s| {
            set(
                &mut s.control_plane.conditions,
                condition("Available", False, "no quorum"),
            );
        },
        Degraded,
        &["not-available"],
    ),
    (
        "availability_unknown",
        |s| {
            set(
                &mut s.control_plane.conditions,
                condition("Available", NotKnown, ""),
            );
        },
        Unknown,
        &["not-available"],
    ),
    (
        "etcd_unhealthy_without_a_machine_to_blame",
        |s| {
            set(
                &mut s.control_plane.conditions,
                condition("EtcdClusterHealthy", False, ""),
            );
        },
        Degraded,
        &["etcd-unhealthy"],
    ),
    (
        "etcd_unhealthy_while_a_machine_starts",
        |s| {
            set(
                &mut s.control_plane.conditions,
                condition("EtcdClusterHealthy", False, ""),
            );
            s.machines.push(new_machine("new"));
        },
        Healthy,
        &["machine-starting"],
    ),
    (
        "etcd_unhealthy_for_long_while_a_machine_starts",
        |s| {
            let mut unhealthy = condition("EtcdClusterHealthy", False, "");
            unhealthy.last_transition_time = Some(minutes_ago(11));
            set(&mut s.control_plane.conditions, unhealthy);
            s.machines.push(new_machine("new"));
        },
        Degraded,
        &["etcd-unhealthy", "machine-starting"],
    ),
    (
        "etcd_unhealthy_a_moment_ago",
        |s| {
            let mut unhealthy = condition("EtcdClusterHealthy", False, "member without Machine");
            unhealthy.last_transition_time = Some(now());
            set(&mut s.control_plane.conditions, unhealthy);
        },
        Healthy,
        &[],
    ),
    (
        "external_etcd_is_looked_at_by_others",
        |s| {
            s.control_plane.external_etcd = true;
            set(
                &mut s.control_plane.conditions,
                condition("EtcdClusterHealthy", NotKnown, ""),
            );
            set(
                &mut s.machines[0].conditions,
                condition("EtcdMemberHealthy", NotKnown, ""),
            );
        },
        Healthy,
        &[],
    ),
    (
        "machine_component_unhealthy",
        |s| {
            set(
                &mut s.machines[1].conditions,
                condition("SchedulerPodHealthy", False, "not ready"),
            );
        },
        Degraded,
        &["scheduler-unhealthy"],
    ),
    (
        "machine_component_unknown",
        |s| {
            set(
                &mut s.machines[1].conditions,
                condition("EtcdPodHealthy", NotKnown, "no connection"),
            );
        },
        Degraded,
        &["etcd-pod-unhealthy"],
    ),
    (
        "machine_not_ready_for_another_reason",
        |s| {
            set(
                &mut s.machines[1].conditions,
                condition("Ready", False, "NodeHealthy: kubelet is down"),
            );
        },
        Degraded,
        &["machine-not-ready"],
    ),
    (
        "machine_without_node",
        |s| {
            s.machines[2] = new_machine("late");
            s.machines[2].created = Some(minutes_ago(11));
        },
        Degraded,
        &["machine-without-node"],
    ),
    (
        "machine_deleting",
        |s| s.machines[0].deleting_since = Some(minutes_ago(5)),
        Healthy,
        &["machine-deleting"],
    ),
    (
        "machine_deleting_for_long",
        |s| s.machines[0].deleting_since = Some(minutes_ago(31)),
        Degraded,
        &["machine-deleting"],
    ),
    (
        "rollout",
        |s| {
            s.control_plane.replicas = 4;
            s.control_plane.up_to_date_replicas = 1;
            s.machines.push(machine("new"));
            set(
                &mut s.control_plane.conditions,
                condition("RollingOut", True, "Rolling out 3"),
            );
        },
        Healthy,
        &["rollout-in-progress"],
    ),
    (
        "scaling_up",
        |s| s.control_plane.desired_replicas = Some(5),
        Healthy,
        &["scaling-in-progress"],
    ),
    (
        "scaling_blocked_for_a_moment",
        |s| {
            s.control_plane.desired_replicas = Some(5);
            let message = "Scaling up from 3 to 5 replicas is blocked because:\n* waiting";
            set(
                &mut s.control_plane.conditions,
                condition("ScalingUp", True, message),
            );
        },
        Healthy,
        &["scaling-in-progress"],
    ),
    (
        "scaling_blocked_for_long",
        |s| {
            s.control_plane.desired_replicas = Some(5);
            let message = "Scaling up from 3 to 5 replicas is blocked because:\n* waiting";
            let mut blocked = condition("ScalingUp", True, message);
            blocked.last_transition_time = Some(minutes_ago(31));
            set(&mut s.control_plane.conditions, blocked);
        },
        Blocked,
        &["change-blocked", "scaling-in-progress"],
    ),
    (
        "paused_at_rest",
        |s| s.control_plane.paused = true,
        Healthy,
        &["paused"],
    ),
    (
        "paused_by_its_cluster",
        |s| set(&mut s.control_plane.conditions, condition("Paused", True, "")),
        Healthy,
        &["paused"],
    ),
    (
        "paused_with_changes_pending",
        |s| {
            s.control_plane.paused = true;
            s.control_plane.desired_replicas = Some(5);
        },
        Blocked,
        &["paused", "scaling-in-progress"],
    ),
    (
        "being_deleted",
        |s| s.control_plane.deleting_since = Some(minutes_ago(5)),
        Degraded,
        &["being-deleted"],
    ),
    (
        "failure_reported",
        |s| s.control_plane.failure = Some("CreateError: no quota".to_owned()),
        Degraded,
        &["failure-reported"],
    ),
    (
        "remediation",
        |s| {
            set(
                &mut s.control_plane.conditions,
                condition("Remediating", True, "Machine m1"),
            );
        },
        Healthy,
        &["remediation-in-progress"],
    ),
];

#[test]
fn the_verdict_follows_conditions_and_counts() {
    for (name, change, health, ids) in CASES {
        let mut snapshot = healthy(3);
        change(&mut snapshot);
        let assessment = assess(&snapshot, now());
        let found: Vec<_> = assessment.findings.iter().map(|finding| finding.id).collect();
        assert_eq!((assessment.health, found.as_slice()), (*health, *ids), "{name}");
    }
}

#[test]
fn the_heaviest_finding_comes_first() {
    let mut snapshot = healthy(3);
    snapshot.machines[0].deleting_since = Some(minutes_ago(1));
    snapshot.control_plane.failure = Some("broken".to_owned());
    let assessment = assess(&snapshot, now());
    let severities: Vec<_> = assessment
        .findings
        .iter()
        .map(|finding| finding.severity)
        .collect();
    assert!(severities.is_sorted(), "{severities:?}");
}
