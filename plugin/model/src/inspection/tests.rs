use kcp_api::{ConditionStatus::False, metadata::Time};

use crate::{
    checks::finding::CheckOutcome,
    inspection::{
        Basis::{self, AllSources, Conditions},
        Health::{self, Blocked, Degraded, Healthy, Unknown},
        inspect,
    },
    plan::rollout_reason::Reason,
    quorum::Votes,
    snapshot::{Reading, Snapshot},
    testing::{
        objects::{condition, now, pause, set, use_external_etcd},
        snapshot::{failure, observed},
    },
};

fn leave_out(observed: &mut Snapshot) {
    observed.workload = Reading::Excluded { flag: "no NAME" };
    observed.etcd = Reading::Excluded { flag: "no NAME" };
    observed.secrets = Reading::Excluded { flag: "no NAME" };
}

type Case = (&'static str, fn(&mut Snapshot), Health, Basis);

#[test]
fn the_verdict_and_what_it_rests_on() {
    let cases: &[Case] = &[
        ("nothing_wrong", |_| {}, Healthy, AllSources),
        ("left_out", leave_out, Healthy, Conditions),
        (
            "etcd_left_out",
            |o| o.etcd = Reading::Excluded { flag: "--no-etcd" },
            Healthy,
            Conditions,
        ),
        (
            "etcd_out_of_reach",
            |o| {
                use_external_etcd(&mut o.control_plane().spec);
                o.secrets().insert("c1-apiserver-etcd-client".to_owned());
                o.etcd = Reading::OutOfReach(failure("etcd", "no way"));
            },
            Healthy,
            Conditions,
        ),
        (
            "etcd_failed",
            |o| o.etcd = Reading::Failed(failure("Secret/c1-etcd", "is not there")),
            Unknown,
            Conditions,
        ),
        (
            "no_member_answers",
            |o| {
                for queried in &mut o.survey().queried {
                    queried.response = Err(failure("etcd", "no answer within 2 s"));
                }
            },
            Unknown,
            Conditions,
        ),
        (
            "workload_failed",
            |o| o.workload = Reading::Failed(failure("Secret/c1-kubeconfig", "is not there")),
            Unknown,
            Conditions,
        ),
        (
            "etcd_failed_and_something_is_wrong_anyway",
            |o| {
                o.etcd = Reading::Failed(failure("Secret/c1-etcd", "is not there"));
                o.control_plane().status.failure_message = Some("broken".to_owned());
            },
            Degraded,
            Conditions,
        ),
        (
            "etcd_failed_and_what_is_asked_for_does_not_go_on",
            |o| {
                o.etcd = Reading::Failed(failure("Secret/c1-etcd", "is not there"));
                pause(&mut o.control_plane().metadata);
                o.control_plane().spec.replicas = Some(5);
            },
            Blocked,
            Conditions,
        ),
        (
            "warnings_alone",
            |o| {
                pause(&mut o.control_plane().metadata);
                o.health_checks()[0].paused = true;
            },
            Healthy,
            AllSources,
        ),
        (
            "a_rollout",
            |o| o.machine(1).spec.version = Some("v1.33.0".to_owned()),
            Healthy,
            AllSources,
        ),
        ("a_member_killed", |o| o.kill(2), Degraded, AllSources),
        (
            "by_conditions_alone",
            |o| {
                leave_out(o);
                let failed = condition("SchedulerPodHealthy", False, "crashed");
                set(&mut o.machine(2).status.conditions, failed);
            },
            Degraded,
            Conditions,
        ),
    ];
    for (name, change, health, basis) in cases {
        let mut observed = observed();
        change(&mut observed);
        let inspection = inspect(&observed, now());
        assert_eq!((inspection.health, inspection.basis), (*health, *basis), "{name}");
    }
}

#[test]
fn every_check_is_told_in_the_order_of_the_table() {
    let reported: Vec<_> = inspect(&observed(), now())
        .checks
        .iter()
        .map(|checked| checked.id)
        .collect();
    let table: Vec<_> = crate::checks::all().map(|check| check.id).collect();
    assert_eq!(reported, table);
}

#[test]
fn votes_are_those_of_the_members() {
    let votes = |change: fn(&mut Snapshot)| {
        let mut observed = observed();
        change(&mut observed);
        inspect(&observed, now()).votes
    };
    let of = |voters, unhealthy, starting| {
        Some(Votes {
            voters,
            unhealthy,
            starting,
        })
    };
    assert_eq!(votes(|_| {}), of(3, 0, 0));
    assert_eq!(votes(|o| o.kill(2)), of(3, 1, 0));
    assert_eq!(
        votes(|o| o.each_list(|list| list.members[2].is_learner = true)),
        of(2, 0, 1)
    );
    assert_eq!(votes(leave_out), None);
    assert_eq!(votes(|o| o.survey().stacked = false), None);
}

#[test]
fn a_machine_out_of_date_is_told_with_the_reason() {
    let mut observed = observed();
    observed.machine(1).spec.version = Some("v1.33.0".to_owned());
    let up_to_date = inspect(&observed, now()).up_to_date;
    let reasons: Vec<_> = up_to_date
        .iter()
        .map(|verdict| (verdict.machine.as_str(), verdict.reasons.as_slice()))
        .collect();
    let version = Reason::Version {
        machine: "v1.33.0".to_owned(),
        desired: "v1.34.1".to_owned(),
    };
    assert_eq!(reasons, [("m1", [version].as_slice()), ("m2", &[]), ("m3", &[])]);
}

/// What real controllers go through in a rollout or while a control plane comes up is no alarm.
#[test]
fn nothing_is_wrong_while_a_machine_comes_up() {
    use crate::testing::{objects::minutes_ago, snapshot::member};

    type Step = (&'static str, fn(&mut Snapshot));
    /// Steps of a Machine that joins, one after another.
    const STEPS: &[Step] = &[
        ("made", crate::checks::tests::starts),
        ("its_member_is_added", |o| {
            crate::checks::tests::starts(o);
            o.each_list_of(&[1], |list| list.members.push(member(3, "")));
        }),
        ("its_member_has_started", |o| {
            crate::checks::tests::starts(o);
            o.each_list_of(&[1, 2], |list| {
                list.members.push(member(3, "node-m3"));
                list.members[2].is_learner = true;
            });
        }),
        ("its_member_is_promoted_and_its_node_not_told", |o| {
            crate::checks::tests::starts(o);
            o.each_list_of(&[1, 2], |list| list.members.push(member(3, "node-m3")));
        }),
        ("its_node_is_told_and_its_pods_are_not_ready", |o| {
            o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(2)));
            o.machine(3).status.conditions.clear();
            o.nodes()[2].ready = Some(false);
            o.nodes()[2].has_control_plane_label = false;
            o.nodes()[2].has_control_plane_taint = false;
            for pod in o.pods().iter_mut().filter(|pod| pod.node == "node-m3") {
                pod.ready = false;
            }
            o.each_list(|list| list.members[2].is_learner = true);
            o.status(3).is_learner = true;
            o.answer(3).members = Err(failure("etcd", "rpc not supported for learner"));
        }),
        ("it_leaves", |o| {
            o.machine(3).metadata.deletion_timestamp = Some(Time(minutes_ago(5)));
            o.each_list_of(&[1, 2], |list| list.members.truncate(2));
            o.survey().queried[2].response = Err(failure("etcd", "connection refused"));
            for pod in o.pods().iter_mut().filter(|pod| pod.node == "node-m3") {
                pod.ready = false;
            }
            o.nodes()[2].ready = None;
        }),
    ];
    for (name, change) in STEPS {
        let mut observed = observed();
        change(&mut observed);
        let inspection = inspect(&observed, now());
        let alarms: Vec<_> = inspection
            .checks
            .iter()
            .flat_map(|checked| &checked.findings)
            .filter(|finding| finding.outcome > CheckOutcome::Info)
            .collect();
        assert!(alarms.is_empty(), "{name}: {alarms:?}");
        assert_eq!(inspection.health, Healthy, "{name}");
    }
}
