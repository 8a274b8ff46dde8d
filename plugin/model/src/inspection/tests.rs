use kcp_api::{
    ConditionStatus::{self, False},
    metadata::Time,
};

use crate::{
    checks::{finding::CheckOutcome, tests::unread},
    inspection::{
        Basis::{self, AllSources, Conditions},
        Health::{self, Blocked, Degraded, Healthy, Unknown},
        inspect,
    },
    plan::{Desired, plan, rollout_reason::Reason, step::NoPlan},
    problem::Problem,
    quorum::Votes,
    snapshot::{Reading, Snapshot},
    testing::{
        objects::{condition, minutes_ago, now, pause, set, use_external_etcd},
        snapshot::{failure, member, observed},
    },
};

fn leave_out(observed: &mut Snapshot) {
    observed.workload = Reading::Excluded { flag: "no NAME" };
    observed.etcd = Reading::Excluded { flag: "no NAME" };
    observed.secrets = Reading::Excluded { flag: "no NAME" };
}

type Case = (&'static str, fn(&mut Snapshot), Health, Basis);

const VERDICTS: &[Case] = &[
    ("nothing_wrong", |_| {}, Healthy, AllSources),
    ("left_out", leave_out, Healthy, Conditions),
    (
        "paused_and_left_out",
        |o| {
            leave_out(o);
            pause(&mut o.control_plane().metadata);
        },
        Unknown,
        Conditions,
    ),
    (
        "cluster_paused_and_left_out",
        |o| {
            leave_out(o);
            o.cluster_mut().spec.paused = true;
        },
        Unknown,
        Conditions,
    ),
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

#[test]
fn the_verdict_and_what_it_rests_on() {
    for (name, change, health, basis) in VERDICTS {
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
    let some_votes = |voters, unhealthy, starting| {
        Some(Votes {
            voters,
            unhealthy,
            starting,
        })
    };
    assert_eq!(votes(|_| {}), some_votes(3, 0, 0));
    assert_eq!(votes(|o| o.kill(2)), some_votes(3, 1, 0));
    assert_eq!(
        votes(|o| o.each_list(|list| list.members[2].is_learner = true)),
        some_votes(2, 0, 1)
    );
    assert_eq!(votes(leave_out), None);
    assert_eq!(votes(|o| o.survey().stacked = false), None);
}

#[test]
fn a_machine_out_of_date_is_told_with_the_reason() {
    let mut observed = observed();
    observed.machine(1).spec.version = Some("v1.33.0".to_owned());
    let up_to_date = inspect(&observed, now()).verdicts;
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

/// No state that occurs in a normal rollout, or while a control plane starts, makes the verdict negative.
#[test]
fn nothing_is_wrong_while_a_machine_comes_up() {
    type JoinStep = (&'static str, fn(&mut Snapshot));
    /// Steps of a Machine that joins, one after another.
    const STEPS: &[JoinStep] = &[
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

/// Name, fault, votes (voters, unhealthy, starting), whether quorum is lost, verdict.
type Fault = (&'static str, fn(&mut Snapshot), [usize; 3], bool, Health);

fn delete(o: &mut Snapshot, number: usize) {
    o.machine(number).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
}
fn join(o: &mut Snapshot, name: &str) {
    let mut machine = crate::testing::objects::new_machine(name);
    machine.metadata.creation_timestamp = Some(Time(minutes_ago(2)));
    o.machines.push(machine);
}
fn list(o: &mut Snapshot, name: &str) {
    o.each_list(|list| list.members.push(member(9, name)));
}
fn cut_off(o: &mut Snapshot, number: usize) {
    o.status(number).leader = None;
}

const FAULTS: &[Fault] = &[
    ("nothing", |_| {}, [3, 0, 0], false, Healthy),
    ("kill", |o| o.kill(2), [3, 1, 0], false, Degraded),
    (
        "kill_two",
        |o| {
            o.kill(2);
            o.kill(3);
        },
        [3, 2, 0],
        true,
        Blocked,
    ),
    ("cut_off", |o| cut_off(o, 3), [3, 1, 0], false, Degraded),
    (
        "no_leader",
        |o| (1..=3).for_each(|number| cut_off(o, number)),
        [3, 3, 0],
        true,
        Blocked,
    ),
    (
        "split",
        |o| {
            o.status(3).cluster_id = 0xc2;
            o.list(3).cluster_id = 0xc2;
        },
        [3, 1, 0],
        false,
        Degraded,
    ),
    (
        "no_space",
        |o| {
            o.survey().alarms = crate::snapshot::etcd::Alarms::Listed(vec![kcp_etcd::Alarm {
                member_id: 2,
                kind: kcp_etcd::AlarmKind::NoSpace,
            }]);
        },
        [3, 1, 0],
        false,
        Degraded,
    ),
    ("stray", |o| list(o, "stray"), [4, 1, 0], false, Degraded),
    (
        "stray_learner",
        |o| {
            o.each_list(|list| {
                list.members.push(kcp_etcd::Member {
                    is_learner: true,
                    ..member(9, "stray")
                });
            });
        },
        [3, 0, 1],
        false,
        Degraded,
    ),
    (
        "stray_during_a_deletion",
        |o| {
            list(o, "stray");
            o.kill(2);
            delete(o, 2);
        },
        [4, 2, 0],
        true,
        Blocked,
    ),
    (
        "deleted_member_stopped",
        |o| {
            o.kill(2);
            delete(o, 2);
        },
        [3, 1, 0],
        false,
        Healthy,
    ),
    (
        "joining_voter_without_node",
        |o| {
            list(o, "node-m4");
            join(o, "m4");
        },
        [4, 1, 0],
        false,
        Healthy,
    ),
    (
        "stray_and_joining",
        |o| {
            list(o, "node-m4");
            o.each_list(|list| list.members.push(member(10, "stray")));
            join(o, "m4");
        },
        [5, 2, 0],
        false,
        Degraded,
    ),
    (
        "joining_voter_and_two_dead",
        |o| {
            list(o, "node-m4");
            join(o, "m4");
            o.kill(2);
            o.kill(3);
        },
        [4, 3, 0],
        true,
        Blocked,
    ),
];

/// Whatever is wrong, `status`, `list` and `plan` count the same votes and agree on whether etcd has lost
/// quorum.
#[test]
fn status_and_plan_agree_on_quorum() {
    for (name, fault, [voters, unhealthy, starting], is_lost, health) in FAULTS {
        let mut observed = observed();
        fault(&mut observed);
        let inspection = inspect(&observed, now());
        let votes = Votes {
            voters: *voters,
            unhealthy: *unhealthy,
            starting: *starting,
        };
        assert_eq!(inspection.votes, Some(votes), "{name}");
        assert_eq!(inspection.health, *health, "{name}");
        let plan = plan(&observed, &Desired::current(&observed), now());
        let lost = matches!(&plan.steps, Err(NoPlan::QuorumLost { votes: lost }) if *lost == votes);
        assert_eq!(lost, *is_lost, "{name}: {:?}", plan.steps);
        let mut checks = inspection.checks.iter();
        let quorum = checks
            .find(|checked| checked.id == "etcd-no-quorum")
            .map(|checked| checked.outcome);
        assert_eq!(quorum == Some(CheckOutcome::Fail), *is_lost, "{name}");
    }
}

/// If etcd could not be queried, only conditions that are False can show that it has lost quorum.
#[test]
fn quorum_is_lost_only_if_a_member_or_a_condition_says_so() {
    let cases = [
        (ConditionStatus::Unknown, ConditionStatus::Unknown, false),
        (False, ConditionStatus::Unknown, true),
        (ConditionStatus::Unknown, False, true),
    ];
    for (pod, member, is_lost) in cases {
        let mut observed = observed();
        unread(&mut observed);
        for number in 1..=3 {
            for (kind, status) in [("EtcdPodHealthy", pod), ("EtcdMemberHealthy", member)] {
                let reported = condition(kind, status, "connection down");
                set(&mut observed.machine(number).status.conditions, reported);
            }
        }
        let mut down = condition(
            "ControlPlaneComponentsHealthy",
            ConditionStatus::Unknown,
            "no answer",
        );
        down.reason = "ConnectionDown".to_owned();
        set(&mut observed.control_plane().status.conditions, down);
        observed.control_plane().spec.replicas = Some(5);

        let plan = plan(&observed, &Desired::current(&observed), now());
        let is_lost_by_plan = matches!(plan.steps, Err(NoPlan::QuorumLost { .. }));
        assert_eq!(is_lost_by_plan, is_lost, "{:?}", plan.steps);
        let is_disconnected = plan
            .blockers
            .iter()
            .any(|blocker| matches!(blocker, Problem::WorkloadUnreachable { .. }));
        assert_eq!(is_disconnected, !is_lost, "{:?}", plan.blockers);

        let inspection = inspect(&observed, now());
        let mut checks = inspection.checks.iter();
        let quorum = checks
            .find(|checked| checked.id == "etcd-no-quorum")
            .map(|checked| checked.outcome);
        assert_eq!(quorum == Some(CheckOutcome::Fail), is_lost);
        let remediation = &inspection.preflight.remediation;
        assert!(
            remediation.iter().all(|entry| {
                let blocks = &entry.permission.blocked_by;
                blocks.iter().any(|cause| cause.check == "workload-disconnected")
            }),
            "{remediation:?}"
        );
    }
}

/// The controller does not remove the member of a joining Machine.
#[test]
fn a_joining_machine_keeps_its_member() {
    use crate::{plan::step::Purpose, testing::objects::new_machine};

    let mut observed = observed();
    observed.machines.push(new_machine("m4"));
    observed.control_plane().spec.replicas = Some(4);
    observed.each_list(|list| list.members.push(member(9, "ip-10-0-0-4")));
    let plan = plan(&observed, &Desired::current(&observed), now());
    let steps: Vec<_> = plan
        .steps()
        .iter()
        .map(|step| (step.purpose, step.names.clone()))
        .collect();
    assert_eq!(steps, [(Purpose::ComeUp, vec!["m4".to_owned()])]);
}

/// Since v1.14, Cluster API learns the leader from any member, and moves the leadership only to delete the leader's own Machine.
#[test]
fn an_unreachable_leader_blocks_the_deletion_of_its_own_machine() {
    use crate::change::quorum_guard::fatal_loss;

    let mut observed = observed();
    observed.survey().queried[0].response = Err(failure("etcd", "no answer within 2 s"));
    let expected = "etcd's leader node-m1 does not respond, so Cluster API cannot move the leadership, and does not finish the \
        deletion of Machine m1";
    let way_out = "repair the member on node node-m1, or stop it so that the other members elect a new leader; stop it only if \
        the others have quorum: crictl stop $(crictl ps -q --name etcd)";
    let preflight = inspect(&observed, now()).preflight;
    assert_eq!(preflight.scale_up.allowed, Some(true), "{:?}", preflight.scale_up);
    for permissions in [&preflight.remediation, &preflight.replacement] {
        let blocked = permissions.iter().map(|entry| {
            let mut blocked_by = entry.permission.blocked_by.iter();
            (
                entry.permission.allowed,
                blocked_by.any(|cause| cause.message == expected),
            )
        });
        assert_eq!(
            blocked.collect::<Vec<_>>(),
            [(Some(false), true), (Some(true), false), (Some(true), false)]
        );
    }
    for (machine, why) in [("m1", Some(vec![expected, way_out])), ("m2", None), ("m3", None)] {
        let loss = fatal_loss(&observed, machine);
        let found = loss
            .as_ref()
            .map(|loss| loss.why.iter().map(String::as_str).collect());
        assert_eq!(found, why, "{machine}");
    }
    // The deletion has begun: the plan, `status` and `why` name the way out.
    observed.machine(1).metadata.deletion_timestamp = Some(kcp_api::metadata::Time(minutes_ago(1)));
    let planned = plan(&observed, &Desired::current(&observed), now());
    let obstacles = planned.obstacles();
    assert!(
        obstacles.contains(&(expected.to_owned(), Some(way_out.to_owned()))),
        "{obstacles:?}"
    );
    let inspection = inspect(&observed, now());
    let explanation = crate::why::explain(&observed, &inspection, now());
    let cause = explanation.cause.expect("a cause");
    assert_eq!(explanation.state, crate::why::WhyState::PersonNeeded);
    assert_eq!(cause.check, "etcd-members-unresponsive");
    assert_eq!(cause.hint.as_deref(), Some(way_out));
}

/// Earlier releases connect to the leader before they delete any Machine.
#[test]
fn before_v1_14_an_unreachable_leader_blocks_every_deletion() {
    use crate::change::quorum_guard::fatal_loss;

    let mut observed = observed();
    observed.controller_version = crate::snapshot::Reading::Read(Some("v1.13.6".to_owned()));
    observed.survey().queried[0].response = Err(failure("etcd", "no answer within 2 s"));
    let expected = "etcd's leader node-m1 does not respond, so Cluster API can neither move the leadership nor remove a member";
    let preflight = inspect(&observed, now()).preflight;
    assert_eq!(preflight.scale_up.allowed, Some(true));
    let remediations = preflight.remediation.iter().map(|entry| &entry.permission);
    for permission in remediations.chain([&preflight.scale_down]) {
        let mut messages = permission.blocked_by.iter().map(|cause| cause.message.as_str());
        assert!(messages.any(|message| message == expected), "{permission:?}");
    }
    for machine in ["m1", "m2", "m3"] {
        assert_eq!(
            fatal_loss(&observed, machine).expect("a loss").why[0],
            expected,
            "{machine}"
        );
    }
    // A Machine that awaits remediation is not replaced.
    for kind in ["HealthCheckSucceeded", "OwnerRemediated"] {
        let unhealthy = condition(kind, False, "unhealthy");
        set(&mut observed.machine(2).status.conditions, unhealthy);
    }
    let next = plan(&observed, &Desired::current(&observed), now()).remediation;
    let blocked_by = next.expect("a remediation").blocked_by;
    assert_eq!(blocked_by.map(|cause| cause.message()), Some(expected.to_owned()));
}
