//! etcd.

use kcp_etcd::{Alarm, AlarmKind};

use crate::checks::tests::{
    Case,
    object::{joins_unnamed, starts},
};
use crate::{
    checks::example::{failure, member},
    control_plane::{
        ConditionStatus::{False, Unknown},
        example::{condition, minutes_ago, set},
    },
    snapshot::{Observed, Reading, etcd::Alarms, workload::Component},
};

fn kill_two(observed: &mut Observed) {
    observed.kill(2);
    observed.kill(3);
    observed.status(1).leader = None;
    observed.status(1).errors = vec!["etcdserver: no leader".to_owned()];
    observed.survey().alarms = Alarms::FromStatus;
}

/// Without quorum the API server finds no pod to forward to, not even that of the member that runs.
fn kill_two_and_reach_none(observed: &mut Observed) {
    kill_two(observed);
    none_reached(observed);
}

fn none_reached(observed: &mut Observed) {
    observed.survey().alarms = Alarms::FromStatus;
    for (asked, machine) in observed.survey().asked.iter_mut().zip(["m1", "m2", "m3"]) {
        asked.answer = Err(failure(
            &format!("etcd member node-{machine}"),
            "connecting: no answer within 2.2 s",
        ));
    }
}

fn unread(observed: &mut Observed) {
    let failure = failure("Secret/c1-kubeconfig", "cannot connect");
    observed.workload = Reading::Failed(failure.clone());
    observed.endpoint_certificate = Reading::Failed(failure.clone());
    observed.etcd = Reading::Failed(failure);
}

fn pod_failed(observed: &mut Observed, number: usize) {
    let failed = condition("EtcdPodHealthy", False, "pod etcd-node: CrashLoopBackOff");
    set(&mut observed.machine(number).machine.conditions, failed);
}

/// `m3` has just joined, and kubeadm has not marked its node yet.
fn joins(observed: &mut Observed) {
    let machine = &mut observed.machine(3).machine;
    machine.created = Some(minutes_ago(2));
    machine
        .conditions
        .retain(|other| other.kind != "NodeKubeadmLabelsAndTaintsSet" && other.kind != "Ready");
}

fn another_cluster(observed: &mut Observed) {
    observed.status(3).cluster_id = 0xc2;
    observed.status(3).member_id = 0x33;
    observed.status(3).leader = Some(0x33);
    observed.status(3).raft_term = 2;
    observed.status(3).raft_index = 10;
    observed.status(3).raft_applied_index = 10;
    observed.list(3).cluster_id = 0xc2;
    observed.list(3).members = vec![member(0x33, "node-m3")];
}

/// `m3` is settled, and does not name its node: the member there may be its own.
fn names_no_node(observed: &mut Observed) {
    observed.machine(3).machine.node = None;
    observed.survey().asked[2].machine = None;
}

fn elsewhere(observed: &mut Observed) {
    observed.control_plane().external_etcd = true;
    observed.secrets().insert("c1-apiserver-etcd-client".to_owned());
    observed.facts().etcd = crate::plan::observed::Etcd::External;
    observed.survey().stacked = false;
    for (number, asked) in (1..).zip(&mut observed.survey().asked) {
        asked.name = format!("node-m{number}:2379");
        asked.machine = None;
    }
}

pub(super) const CASES: &[Case] = &[
    ("etcd-quorum", "two_killed", kill_two),
    (
        "etcd-quorum",
        "two_killed_and_none_reached",
        kill_two_and_reach_none,
    ),
    ("etcd-quorum", "the_api_server_lacks_etcd", |o| {
        none_reached(o);
        o.workload = Reading::Failed(failure("Secret/c1-kubeconfig", "no answer within 1.9s"));
        o.survey().server_lacks_etcd = true;
    }),
    (
        "etcd-quorum",
        "a_member_answers_though_the_api_server_lacks_etcd",
        |o| {
            o.kill(2);
            o.survey().server_lacks_etcd = true;
        },
    ),
    ("etcd-quorum", "two_killed_and_nothing_read", |o| {
        unread(o);
        pod_failed(o, 2);
        pod_failed(o, 3);
    }),
    ("etcd-quorum", "one_killed", |o| o.kill(2)),
    ("etcd-quorum", "one_killed_and_nothing_read", |o| {
        unread(o);
        pod_failed(o, 2);
    }),
    ("etcd-tolerance", "leaves_and_is_still_listed", |o| {
        o.machine(2).machine.deleting_since = Some(minutes_ago(1));
        o.kill(2);
    }),
    ("etcd-tolerance", "one_killed", |o| o.kill(2)),
    ("etcd-tolerance", "one_killed_and_etcd_left_out", |o| {
        o.etcd = Reading::Excluded { flag: "--no-etcd" };
        pod_failed(o, 2);
    }),
    ("etcd-tolerance", "none_answers", |o| {
        for asked in &mut o.survey().asked {
            asked.answer = Err(failure("etcd", "no TLS connection: unknown CA"));
        }
        o.survey().alarms = Alarms::FromStatus;
    }),
    (
        "etcd-tolerance",
        "of_a_machine_that_has_yet_to_name_its_node",
        |o| {
            joins_unnamed(o);
            o.kill(3);
        },
    ),
    ("etcd-members-answer", "killed", |o| o.kill(2)),
    ("etcd-members-answer", "stopped", |o| {
        o.answer(2).status = Err(failure("etcd member node-m2", "Status: no answer within 2s"));
        o.answer(2).members = Err(failure("etcd member node-m2", "MemberList: no answer within 2s"));
    }),
    ("etcd-members-answer", "tells_no_list", |o| {
        o.answer(2).members = Err(failure("etcd member node-m2", "MemberList: no answer within 2s"));
    }),
    ("etcd-members-answer", "a_learner_tells_no_list", |o| {
        joins(o);
        o.answer(3).members = Err(failure("etcd", "rpc not supported for learner"));
        o.status(3).is_learner = true;
        o.each_list_of(&[1, 2], |list| list.members[2].is_learner = true);
    }),
    ("etcd-members-answer", "killed_soon_after_it_was_made", |o| {
        o.machine(2).machine.created = Some(minutes_ago(2));
        o.kill(2);
    }),
    ("etcd-members-answer", "leaves_and_is_still_listed", |o| {
        o.machine(2).machine.deleting_since = Some(minutes_ago(1));
        o.kill(2);
    }),
    ("etcd-members-answer", "comes_up", |o| {
        joins(o);
        o.kill(3);
        o.each_list_of(&[1, 2], |list| {
            list.members.truncate(2);
        });
    }),
    ("etcd-members-answer", "none_answers", |o| {
        for asked in &mut o.survey().asked {
            asked.answer = Err(failure("etcd", "no TLS connection: unknown CA"));
        }
        o.survey().alarms = Alarms::FromStatus;
    }),
    ("etcd-members-answer", "by_the_condition", |o| {
        o.etcd = Reading::Excluded { flag: "--no-etcd" };
        let unknown = condition("EtcdMemberHealthy", Unknown, "no connection");
        set(&mut o.machine(2).machine.conditions, unknown);
    }),
    ("etcd-members-answer", "elsewhere", |o| {
        elsewhere(o);
        o.survey().asked[1].answer = Err(failure("etcd", "connection refused"));
    }),
    ("etcd-members-answer", "elsewhere_while_a_machine_starts", |o| {
        elsewhere(o);
        joins_unnamed(o);
        o.survey().asked[1].answer = Err(failure("etcd", "connection refused"));
    }),
    (
        "etcd-members-answer",
        "of_a_machine_that_has_yet_to_name_its_node",
        |o| {
            joins_unnamed(o);
            o.kill(3);
        },
    ),
    (
        "etcd-members-match",
        "founded_its_own_cluster_and_was_removed",
        |o| {
            o.health_checks().clear();
            another_cluster(o);
            o.each_list_of(&[1, 2], |list| list.members.truncate(2));
        },
    ),
    (
        "etcd-members-match",
        "member_that_may_be_of_a_machine_without_node",
        |o| {
            names_no_node(o);
        },
    ),
    ("etcd-members-match", "machine_without_member", |o| {
        o.each_list_of(&[1, 2], |list| list.members.truncate(2));
        o.kill(3);
    }),
    (
        "etcd-members-match",
        "machine_without_member_and_nobody_covers_it",
        |o| {
            o.health_checks().clear();
            o.each_list_of(&[1, 2], |list| list.members.truncate(2));
            o.kill(3);
        },
    ),
    ("etcd-members-match", "member_without_machine", |o| {
        o.each_list(|list| list.members.push(member(0xab, "stray")));
    }),
    ("etcd-members-match", "member_of_a_machine_that_starts", |o| {
        starts(o);
        o.each_list_of(&[1, 2], |list| list.members.push(member(3, "node-m3")));
    }),
    ("etcd-members-match", "machine_that_leaves", |o| {
        o.machine(3).machine.deleting_since = Some(minutes_ago(1));
        o.each_list_of(&[1, 2], |list| list.members.truncate(2));
        o.kill(3);
    }),
    ("etcd-member-lists", "lacks_one", |o| {
        o.list(3).members.truncate(2);
    }),
    ("etcd-member-lists", "has_one_besides", |o| {
        o.list(3).members.push(member(0xab, ""));
    }),
    ("etcd-member-lists", "has_another", |o| {
        o.list(3).members[1] = member(0xab, "node-m9");
    }),
    ("etcd-member-lists", "while_a_machine_starts", |o| {
        starts(o);
        o.list(1).members.push(member(3, ""));
    }),
    ("etcd-one-cluster", "one_of_another", another_cluster),
    ("etcd-member-lists", "as_many_tell_one_as_another", |o| {
        o.kill(2);
        o.list(3).members.truncate(2);
    }),
    ("etcd-member-lists", "the_one_who_is_led_is_right", |o| {
        for number in [2, 3] {
            o.status(number).leader = None;
            o.list(number).members.push(member(0xab, "node-m9"));
        }
    }),
    ("etcd-one-cluster", "as_many_of_one_as_of_another", |o| {
        another_cluster(o);
        o.kill(2);
    }),
    ("etcd-one-cluster", "only_the_one_of_another_is_led", |o| {
        another_cluster(o);
        for number in [1, 2] {
            o.status(number).leader = None;
        }
    }),
    ("etcd-alarms", "no_space", |o| {
        for number in 1..=3 {
            o.status(number).errors = vec!["memberID:2 alarm:NOSPACE ".to_owned()];
        }
        o.survey().alarms = Alarms::Listed(vec![Alarm {
            member_id: 2,
            kind: AlarmKind::NoSpace,
        }]);
    }),
    ("etcd-alarms", "corrupt_by_its_own_word", |o| {
        o.survey().alarms = Alarms::FromStatus;
        o.status(2).errors = vec!["memberID:2 alarm:CORRUPT".to_owned()];
    }),
    ("etcd-alarms", "corrupt_and_nobody_is_blamed", |o| {
        o.survey().alarms = Alarms::Listed(vec![Alarm {
            member_id: 0,
            kind: AlarmKind::Corrupt,
        }]);
    }),
    ("etcd-alarms", "one_without_space_by_the_word_of_all", |o| {
        o.survey().alarms = Alarms::FromStatus;
        for number in 1..=3 {
            o.status(number).errors = vec!["memberID:2 alarm:NOSPACE ".to_owned()];
        }
    }),
    ("etcd-alarms", "not_told", |o| {
        o.survey().alarms = Alarms::Failed(failure("etcd member node-m1", "AlarmList: no answer within 2s"));
    }),
    ("etcd-learners", "left_behind", |o| {
        o.each_list(|list| list.members[2].is_learner = true);
        o.status(3).is_learner = true;
    }),
    ("etcd-learners", "joins", |o| {
        joins(o);
        o.each_list(|list| list.members[2].is_learner = true);
        o.status(3).is_learner = true;
    }),
    ("etcd-learners", "never_started", |o| {
        o.each_list(|list| list.members.push(member(0xab, "")));
    }),
    ("etcd-learners", "may_be_of_a_machine_without_node", |o| {
        names_no_node(o);
        o.each_list(|list| list.members[2].is_learner = true);
        o.status(3).is_learner = true;
    }),
    ("etcd-leader", "cut_off", |o| {
        o.status(3).leader = None;
        o.status(3).errors = vec!["etcdserver: no leader".to_owned()];
    }),
    ("etcd-leader", "nobody_leads", |o| {
        for number in 1..=3 {
            o.status(number).leader = None;
        }
        o.survey().alarms = Alarms::FromStatus;
    }),
    ("etcd-leader", "another", |o| {
        o.status(3).leader = Some(2);
        o.status(3).raft_term = 3;
    }),
    ("etcd-leader", "a_learner_knows_none", |o| {
        joins(o);
        o.each_list(|list| list.members[2].is_learner = true);
        o.status(3).is_learner = true;
        o.status(3).leader = None;
    }),
    ("etcd-raft-term", "behind", |o| o.status(3).raft_term = 3),
    ("etcd-raft-lag", "behind_others", |o| {
        o.status(3).raft_index -= 5_001;
    }),
    ("etcd-raft-lag", "elsewhere_while_a_machine_starts", |o| {
        elsewhere(o);
        joins_unnamed(o);
        o.status(3).raft_index -= 5_001;
    }),
    ("etcd-raft-lag", "within_the_limit", |o| {
        o.status(3).raft_index -= 5_000;
    }),
    ("etcd-raft-lag", "behind_itself", |o| {
        o.status(3).raft_applied_index -= 5_001;
    }),
    ("etcd-space", "eighty_and_ninety_five_percent", |o| {
        for (number, percent) in [(1, 79), (2, 80), (3, 95)] {
            let quota = o.status(number).db_size_quota.expect("a quota");
            o.status(number).db_size = quota.div_ceil(100) * percent;
            o.status(number).db_size_in_use = o.status(number).db_size;
        }
    }),
    ("etcd-space", "quotas_differ", |o| {
        // By its own quota each: 80 % of a smaller one.
        o.status(2).db_size_quota = Some(75 * 1024 * 1024);
    }),
    ("etcd-space", "quotas_differ_during_a_rollout", |o| {
        o.status(2).db_size_quota = Some(1024 * 1024 * 1024);
        o.machine(2).machine.version = Some("v1.33.0".to_owned());
    }),
    ("etcd-space", "no_quota_told", |o| {
        for number in 1..=3 {
            o.status(number).db_size_quota = None;
        }
    }),
    ("etcd-fragmentation", "less_than_half", |o| {
        let mebibyte = 1024 * 1024;
        o.status(2).db_size = 300 * mebibyte;
        o.status(2).db_size_in_use = 101 * mebibyte;
        o.status(3).db_size = 300 * mebibyte;
        o.status(3).db_size_in_use = 100 * mebibyte;
    }),
    ("etcd-versions", "differ", |o| {
        o.status(2).version = "3.5.21".to_owned();
    }),
    ("etcd-versions", "far_apart", |o| {
        o.status(2).version = "3.4.1".to_owned();
    }),
    ("etcd-versions", "during_a_rollout", |o| {
        o.status(2).version = "3.5.21".to_owned();
        o.machine(2).machine.version = Some("v1.33.0".to_owned());
    }),
    ("etcd-pods-ready", "not_ready_while_the_member_answers", |o| {
        let pod = o.pod(Component::Etcd, 2);
        pod.ready = false;
        pod.message = Some("readiness probe failed".to_owned());
    }),
];
