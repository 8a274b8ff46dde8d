use jiff::Timestamp;

use crate::{
    control_plane::{
        ConditionStatus::{False, True},
        Snapshot,
        example::{condition, healthy, minutes_ago, new_machine, now, set},
    },
    status::{by_conditions::screen, health::assess},
    terminal::plain,
};

/// A rollout with its first new Machine starting.
pub(in crate::status) fn mid_rollout() -> (Snapshot, Timestamp) {
    let mut snapshot = healthy(3);
    let control_plane = &mut snapshot.control_plane;
    control_plane.version = Some("v1.33.4".to_owned());
    control_plane.replicas = 4;
    control_plane.up_to_date_replicas = 1;
    let rolling_out = "Rolling out 3 not up-to-date replicas\n* Version v1.33.4, v1.34.1 required";
    set(
        &mut control_plane.conditions,
        condition("RollingOut", True, rolling_out),
    );
    let learner =
        "* Machine c1-cp-m4:\n  * EtcdMemberHealthy: Waiting for learner etcd member to be promoted";
    set(
        &mut control_plane.conditions,
        condition("EtcdClusterHealthy", False, learner),
    );
    for (machine, domain) in snapshot.machines.iter_mut().zip(["a", "b", "c"]) {
        machine.version = Some("v1.33.4".to_owned());
        machine.failure_domain = Some(domain.to_owned());
        set(
            &mut machine.conditions,
            condition("UpToDate", False, "Version v1.33.4, v1.34.1 required"),
        );
    }
    let mut new = new_machine("c1-cp-m4");
    new.failure_domain = Some("a".to_owned());
    set(&mut new.conditions, condition("UpToDate", True, ""));
    snapshot.machines.push(new);
    (snapshot, now())
}

/// A dead etcd member, a Machine that never came up and a deletion.
fn broken() -> Snapshot {
    let mut snapshot = healthy(3);
    snapshot.control_plane.ready_replicas = 1;
    let etcd = "* Machine c1-cp-m1:\n  * EtcdMemberHealthy: etcd alarm NOSPACE";
    set(
        &mut snapshot.control_plane.conditions,
        condition("EtcdClusterHealthy", False, etcd),
    );
    let [first, second, third] = &mut snapshot.machines[..] else {
        panic!("three Machines");
    };
    set(
        &mut first.conditions,
        condition("EtcdMemberHealthy", False, "etcd alarm NOSPACE"),
    );
    set(&mut first.conditions, condition("Ready", False, ""));
    second.node = None;
    second.phase = Some("Provisioned".to_owned());
    set(&mut second.conditions, condition("Ready", False, ""));
    third.deleting_since = Some(minutes_ago(3));
    snapshot
}

fn one(snapshot: &Snapshot) -> String {
    let text = plain(&screen::one(snapshot, &assess(snapshot, now()), now()));
    assert!(!text.lines().any(|line| line.ends_with(' ')), "{text}");
    text
}

#[test]
fn a_healthy_control_plane() {
    insta::assert_snapshot!(one(&healthy(3)));
}

#[test]
fn a_rollout() {
    insta::assert_snapshot!(one(&mid_rollout().0));
}

#[test]
fn a_broken_control_plane() {
    insta::assert_snapshot!(one(&broken()));
}

#[test]
fn a_control_plane_that_no_controller_has_seen() {
    let mut snapshot = healthy(0);
    snapshot.control_plane.conditions.clear();
    snapshot.control_plane.observed_generation = None;
    snapshot.control_plane.cluster = None;
    snapshot.control_plane.version = None;
    snapshot.control_plane.desired_replicas = Some(3);
    insta::assert_snapshot!(one(&snapshot));
}

#[test]
fn several_control_planes() {
    let mut other = healthy(1);
    other.control_plane.name = "edge\u{1b}[2J".to_owned();
    other.control_plane.namespace = "e".to_owned();
    let assessed: Vec<_> = [mid_rollout().0, broken(), other]
        .into_iter()
        .map(|snapshot| {
            let assessment = assess(&snapshot, now());
            (snapshot, assessment)
        })
        .collect();
    insta::assert_snapshot!("all_namespaces", plain(&screen::list(&assessed, None, now())));
    insta::assert_snapshot!(
        "one_namespace",
        plain(&screen::list(&assessed[..2], Some("d"), now()))
    );
}

#[test]
fn no_control_plane() {
    assert_eq!(
        screen::list(&[], Some("d"), now()),
        "No control planes found in d namespace.\n"
    );
    assert_eq!(screen::list(&[], None, now()), "No control planes found.\n");
}
