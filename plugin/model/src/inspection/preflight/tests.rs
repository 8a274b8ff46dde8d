use kcp_api::{
    ConditionStatus::{False, Unknown},
    KubeadmControlPlaneSpec, Remediation,
    metadata::Time,
    names::annotation,
};

use kcp_etcd::{Alarm, AlarmKind};

use crate::{
    change::{quorum_guard::QuorumGuard, replacement::Replacement},
    checks::find,
    inspection::{Permission, Preflight, inspect},
    plan::{Desired, plan},
    snapshot::{EtcdMembers, Reading, Snapshot, etcd::Alarms, workload::Component},
    testing::{
        objects::{annotate, condition, minutes_ago, now, pause, record, set, use_external_etcd},
        snapshot::{failure, forbidden, observed},
    },
};

fn preflight(change: impl Fn(&mut Snapshot)) -> Preflight {
    let mut observed = observed();
    change(&mut observed);
    inspect(&observed, now()).preflight
}

/// `yes`; or `no` or `unknown` with what blocks the change, as `check: object object`.
fn reported(permission: &Permission) -> Vec<String> {
    let allowed = match permission.allowed {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    let blockers = permission.blocked_by.iter().map(|blocker| {
        assert!(
            find(blocker.check).is_some(),
            "there is no check {}",
            blocker.check
        );
        assert!(!blocker.message.is_empty());
        format!("{}: {}", blocker.check, blocker.objects.join(" "))
    });
    [allowed.to_owned()].into_iter().chain(blockers).collect()
}

/// The permissions for scale up, scale down, rollout, and the remediation of each Machine.
fn all(preflight: &Preflight) -> Vec<Vec<String>> {
    let Preflight {
        scale_up,
        scale_down,
        rollout,
        remediation,
        replacement: _,
    } = preflight;
    [scale_up, scale_down, rollout]
        .into_iter()
        .chain(remediation.iter().map(|entry| &entry.permission))
        .map(reported)
        .collect()
}

fn fails(observed: &mut Snapshot, number: usize, kind: &str) {
    set(
        &mut observed.machine(number).status.conditions,
        condition(kind, False, "failed"),
    );
}

#[test]
fn everything_may_be_done_where_nothing_is_wrong() {
    assert_eq!(all(&preflight(|_| {})), vec![vec!["yes"]; 6]);
}

#[test]
fn with_one_of_three_members_killed_only_its_machine_is_replaced() {
    let preflight = preflight(|o| {
        o.kill(2);
        fails(o, 2, "EtcdPodHealthy");
    });
    let blocked = [
        "no",
        "etcd-voters-unhealthy: KubeadmControlPlane/c1-cp EtcdMember/node-m2",
        "etcd-members-unresponsive: EtcdMember/node-m2 Machine/m2",
        "etcd-pods-not-ready: Machine/m2 Node/node-m2",
    ];
    // The controller deletes the Machine whose member was killed.
    assert_eq!(
        all(&preflight)[..3],
        [&blocked[..], &["yes"], &blocked].map(<[&str]>::to_vec)
    );
    // The controller does not know that the member is dead, but etcd does.
    let refused =
        "etcd refuses to remove a running member while member node-m2 of Machine m2 does not respond";
    for (remediation, expected) in preflight
        .remediation
        .iter()
        .zip([Some(refused), None, Some(refused)])
    {
        assert_eq!(reported(&remediation.permission), ["yes"]);
        let never_ends = remediation.permission.never_ends.as_ref();
        assert_eq!(
            never_ends.map(|never_ends| never_ends.message.as_str()),
            expected,
            "{}",
            remediation.machine
        );
    }
}

#[test]
fn with_two_of_three_members_killed_nothing_may_be_done() {
    let preflight = preflight(|o| {
        for number in [2, 3] {
            o.kill(number);
            fails(o, number, "EtcdPodHealthy");
        }
        o.status(1).leader = None;
        o.survey().alarms = Alarms::FromStatus;
    });
    let lost =
        "etcd-no-quorum: KubeadmControlPlane/c1-cp EtcdMember/node-m1 EtcdMember/node-m2 EtcdMember/node-m3";
    for permission in [&preflight.scale_up, &preflight.scale_down, &preflight.rollout] {
        let reported = reported(permission);
        assert_eq!(reported[..2], ["no", lost]);
    }
    // If there are two reasons, the controller reports the first.
    let first = ["components-unhealthy", "etcd-no-quorum", "etcd-no-quorum"];
    for (remediation, check) in preflight.remediation.iter().zip(first) {
        assert_eq!(
            reported(&remediation.permission),
            ["no", &format!("{check}: KubeadmControlPlane/c1-cp")],
            "{}",
            remediation.machine
        );
    }
}

/// Without quorum, the API server forwards connections to no member.
#[test]
fn with_two_of_three_members_killed_and_none_reached_nothing_may_be_done() {
    let preflight = preflight(|o| {
        o.kill(2);
        o.kill(3);
        o.survey().queried[0].response = Err(failure(
            "etcd member node-m1",
            "connecting: no answer within 2.2 s",
        ));
        o.survey().alarms = Alarms::FromStatus;
        o.etcd_members = EtcdMembers::Unread;
    });
    let lost = "etcd-no-quorum: KubeadmControlPlane/c1-cp Machine/m2 Machine/m3";
    for permission in [&preflight.scale_up, &preflight.scale_down, &preflight.rollout] {
        assert_eq!(reported(permission)[..2], ["no", lost]);
    }
    for remediation in &preflight.remediation {
        assert_eq!(
            reported(&remediation.permission),
            ["no", "etcd-no-quorum: KubeadmControlPlane/c1-cp"],
            "{}",
            remediation.machine
        );
    }
}

#[test]
fn nothing_may_be_done_where_the_api_server_lacks_etcd() {
    let preflight = preflight(|o| {
        for queried in &mut o.survey().queried {
            queried.response = Err(failure("etcd member", "connecting: no answer within 2.2 s"));
        }
        o.survey().alarms = Alarms::FromStatus;
        o.survey().api_server_lacks_etcd = true;
        o.etcd_members = EtcdMembers::Unread;
    });
    let lost = ["no", "etcd-no-quorum: KubeadmControlPlane/c1-cp"];
    assert_eq!(all(&preflight), vec![lost; 6]);
}

#[test]
fn without_etcd_the_conditions_decide() {
    let left_out = |o: &mut Snapshot| {
        o.workload = Reading::Excluded {
            flag: "--no-workload",
        };
        o.etcd = Reading::Excluded {
            flag: "--no-workload",
        };
    };
    assert_eq!(all(&preflight(left_out)), vec![vec!["yes"]; 6]);
    let preflight = preflight(|o| {
        left_out(o);
        fails(o, 2, "EtcdPodHealthy");
        fails(o, 3, "EtcdPodHealthy");
    });
    let components = vec!["no", "components-unhealthy: KubeadmControlPlane/c1-cp"];
    let quorum = vec!["no", "etcd-no-quorum: KubeadmControlPlane/c1-cp"];
    assert_eq!(all(&preflight)[3..], [components, quorum.clone(), quorum]);
}

type Case = (
    &'static str,
    fn(&mut Snapshot),
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

/// The name of the case, the change to the snapshot, and the permissions for scale up, scale down, and
/// remediation of `m2`.
const CASES: &[Case] = &[
    (
        "paused",
        |o| pause(&mut o.control_plane().metadata),
        &["no", "paused: KubeadmControlPlane/c1-cp"],
        &["no", "paused: KubeadmControlPlane/c1-cp"],
        &["no", "paused: KubeadmControlPlane/c1-cp"],
    ),
    (
        "cluster_paused",
        |o| o.cluster_mut().spec.paused = true,
        &["no", "paused: Cluster/c1"],
        &["no", "paused: Cluster/c1"],
        &["no", "paused: Cluster/c1"],
    ),
    (
        "certificates",
        |o| {
            set(
                &mut o.control_plane().status.conditions,
                condition("CertificatesAvailable", Unknown, ""),
            );
        },
        &["no", "certificates-unavailable: KubeadmControlPlane/c1-cp"],
        &["yes"],
        &["yes"],
    ),
    (
        "topology",
        |o| o.set_topology("v1.35.0"),
        &["no", "topology-upgrade-pending: Cluster/c1"],
        &["no", "topology-upgrade-pending: Cluster/c1"],
        &["no", "topology-upgrade-pending: Cluster/c1"],
    ),
    (
        "another_leaves",
        |o| o.machine(3).metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
        &["no", "machine-deletions-slow: Machine/m3"],
        &["no", "machine-deletions-slow: Machine/m3"],
        &["no", "machine-deletions-slow: Machine/m3"],
    ),
    (
        "another_starts",
        crate::checks::tests::starts,
        &["no", "machines-without-node: Machine/m3"],
        // The controller deletes the Machine that starts.
        &["yes"],
        &["no", "machines-without-node: Machine/m3"],
    ),
    (
        "a_condition_that_the_pods_do_not_bear_out",
        |o| fails(o, 3, "SchedulerPodHealthy"),
        &["no", "schedulers-not-ready: Machine/m3"],
        // The controller deletes the Machine that is unhealthy.
        &["yes"],
        &["yes"],
    ),
    (
        "a_pod_that_the_conditions_have_not_heard_of",
        |o| o.pod(Component::Scheduler, 3).ready = false,
        &["no", "schedulers-not-ready: Machine/m3 Node/node-m3"],
        &["no", "schedulers-not-ready: Machine/m3 Node/node-m3"],
        &["yes"],
    ),
    (
        "the_machine_that_is_marked_to_go",
        |o| {
            annotate(&mut o.machine(3).metadata, annotation::DELETE_MACHINE, "");
            fails(o, 3, "SchedulerPodHealthy");
            o.pod(Component::Scheduler, 3).ready = false;
        },
        &["no", "schedulers-not-ready: Machine/m3 Node/node-m3"],
        &["yes"],
        &["yes"],
    ),
    (
        "learner",
        |o| {
            o.each_list(|list| list.members[2].is_learner = true);
            fails(o, 3, "EtcdMemberHealthy");
        },
        &[
            "no",
            "etcd-members-unresponsive: Machine/m3",
            "etcd-learners-stuck: EtcdMember/node-m3 Machine/m3",
        ],
        // The controller deletes the Machine of the learner.
        &["yes"],
        &["no", "etcd-no-quorum: KubeadmControlPlane/c1-cp"],
    ),
    (
        "members_disagree",
        |o| o.list(3).members.truncate(2),
        &["no", "etcd-member-lists-differ: EtcdMember/node-m3 Machine/m3"],
        &["no", "etcd-member-lists-differ: EtcdMember/node-m3 Machine/m3"],
        &["yes"],
    ),
    (
        "a_replacement_has_yet_to_be_made",
        |o| {
            let remediation = Remediation {
                machine: "m0".to_owned(),
                timestamp: Some(now()),
                retry_count: 0,
                is_malformed: false,
            };
            let metadata = &mut o.control_plane().metadata;
            record(metadata, annotation::REMEDIATION_IN_PROGRESS, &remediation);
            fails(o, 3, "SchedulerPodHealthy");
        },
        &["yes"],
        &["yes"],
        &["no", "remediation-blocked: KubeadmControlPlane/c1-cp"],
    ),
    (
        "only_one_machine",
        |o| {
            o.machines.truncate(1);
            o.survey().queried.truncate(1);
            o.list(1).members.truncate(1);
            o.pods().retain(|pod| pod.node == "node-m1");
        },
        &["yes"],
        &["no", "etcd-no-quorum: KubeadmControlPlane/c1-cp"],
        &[],
    ),
    (
        "etcd_cannot_be_read",
        |o| o.etcd = Reading::Failed(failure("Secret/c1-etcd", "tls.crt is not a certificate")),
        &["unknown", "etcd-unreachable: Secret/c1-etcd"],
        &["unknown", "etcd-unreachable: Secret/c1-etcd"],
        &["unknown", "etcd-unreachable: Secret/c1-etcd"],
    ),
    (
        "pods_may_not_be_read",
        |o| {
            o.workload().static_pods = Reading::Failed(forbidden("Pod", "list", "pods", true));
        },
        &["unknown", "permissions-missing: Pod"],
        &["unknown", "permissions-missing: Pod"],
        &["unknown", "permissions-missing: Pod"],
    ),
    (
        "machines_cannot_be_read",
        |o| {
            o.machines.clear();
            o.failed_reads = vec![failure("Machine", "no answer within 2s")];
        },
        &["unknown", "management-unreadable: Machine"],
        &["unknown", "management-unreadable: Machine"],
        &[],
    ),
    (
        "etcd_elsewhere_is_out_of_reach",
        |o| {
            use_external_etcd(&mut o.control_plane().spec);
            o.etcd_members = crate::snapshot::EtcdMembers::External;
            o.secrets().insert("c1-apiserver-etcd-client".to_owned());
            o.etcd = Reading::OutOfReach(failure("etcd", "no way to 10.1.0.1:2379"));
        },
        &["yes"],
        &["yes"],
        // Since v1.13, Cluster API lists no members in this case, and never remediates.
        &["no", "remediation-blocked: Machine/m2"],
    ),
];

#[test]
fn what_keeps_what() {
    for (name, change, up, down, remediation) in CASES {
        let preflight = preflight(change);
        assert_eq!(reported(&preflight.scale_up), *up, "{name}: scale up");
        assert_eq!(reported(&preflight.scale_down), *down, "{name}: scale down");
        let of_m2 = preflight.remediation.iter().find(|entry| entry.machine == "m2");
        assert_eq!(
            of_m2.map_or(vec![], |entry| reported(&entry.permission)),
            *remediation,
            "{name}: remediation"
        );
    }
}

#[test]
fn a_rollout_begins_with_a_machine_more_or_one_less() {
    let certificates = |o: &mut Snapshot| {
        let unknown = condition("CertificatesAvailable", Unknown, "");
        set(&mut o.control_plane().status.conditions, unknown);
    };
    assert_eq!(preflight(certificates).rollout.allowed, Some(false));
    let preflight_without_surge = preflight(|o| {
        certificates(o);
        o.control_plane.spec.max_surge = 0;
    });
    assert_eq!(preflight_without_surge.rollout.allowed, Some(true));
    let endless = preflight(|o| o.control_plane.spec.certificates_expiry_days = Some(365));
    assert_eq!(
        (reported(&endless.scale_up), reported(&endless.rollout)),
        (
            vec!["yes".to_owned()],
            vec![
                "no".to_owned(),
                "rollout-endless: KubeadmControlPlane/c1-cp".to_owned()
            ]
        )
    );
}

#[test]
fn nothing_is_removed_while_members_contradict_each_other() {
    let disputed = |o: &mut Snapshot| {
        o.kill(2);
        o.list(3).members.truncate(2);
    };
    let blocker = "etcd-member-lists-differ: EtcdMember/node-m1 Machine/m1 EtcdMember/node-m3 Machine/m3";
    for remediation in preflight(disputed).remediation {
        assert_eq!(
            reported(&remediation.permission),
            ["no", blocker],
            "{}",
            remediation.machine
        );
    }
    let turning = preflight(|o| {
        disputed(o);
        o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
    });
    for remediation in turning.remediation {
        let reported = reported(&remediation.permission);
        assert!(reported.contains(&blocker.to_owned()), "{reported:?}");
    }
}

/// Whether `scale` to this number of Machines would be written.
fn is_permitted_by_the_verbs(observed: &Snapshot, replicas: i64) -> bool {
    let desired = Desired {
        spec: KubeadmControlPlaneSpec {
            replicas: Some(replicas),
            ..observed.control_plane.spec.clone()
        },
        ..Desired::current(observed)
    };
    QuorumGuard::new(&plan(observed, &desired, now())) == QuorumGuard::Clear
}

#[test]
fn a_scale_down_is_allowed_exactly_if_the_verb_allows_it() {
    type Case = (&'static str, fn(&mut Snapshot), bool);
    /// Makes the Machine the oldest in the failure domain with the most Machines, so that it is deleted
    /// first.
    fn goes_first(o: &mut Snapshot, number: usize) {
        for machine in &mut o.machines {
            machine.spec.failure_domain = None;
        }
        o.set_failure_domains("");
        o.machine(number).metadata.creation_timestamp = Some(Time(minutes_ago(100_000)));
    }
    let cases: &[Case] = &[
        ("healthy", |_| {}, true),
        (
            "the sick Machine goes",
            |o| {
                goes_first(o, 2);
                o.kill(2);
                fails(o, 2, "EtcdPodHealthy");
                fails(o, 2, "EtcdMemberHealthy");
            },
            true,
        ),
        (
            "the sick Machine stays",
            |o| {
                goes_first(o, 1);
                o.kill(2);
                fails(o, 2, "EtcdPodHealthy");
                fails(o, 2, "EtcdMemberHealthy");
            },
            false,
        ),
        (
            "the Machine with the alarm goes",
            |o| {
                goes_first(o, 2);
                o.survey().alarms = Alarms::Listed(vec![Alarm {
                    member_id: 2,
                    kind: AlarmKind::Corrupt,
                }]);
            },
            true,
        ),
        (
            "without quorum",
            |o| {
                goes_first(o, 2);
                for number in [2, 3] {
                    o.kill(number);
                    fails(o, number, "EtcdPodHealthy");
                }
            },
            false,
        ),
    ];
    for (name, change, expected) in cases {
        let mut observed = observed();
        change(&mut observed);
        let allowed = inspect(&observed, now()).preflight.scale_down.allowed;
        assert_eq!(allowed, Some(*expected), "{name}");
        assert_eq!(is_permitted_by_the_verbs(&observed, 2), *expected, "{name}");
    }
}

#[test]
fn the_report_of_a_host_permits_and_forbids_nothing() {
    let starts = preflight(crate::checks::tests::starts);
    let reports = preflight(|o| {
        crate::checks::tests::starts(o);
        o.workload().join_reports = vec![crate::checks::machines::test_cases::join_report_of("m3", true)];
    });
    assert_eq!(all(&reports), all(&starts));
}

#[test]
fn a_replacement_is_reported_as_the_verb_decides() {
    let starts = preflight(crate::checks::tests::starts);
    let blockers = |entries: &[crate::inspection::Remediation]| -> Vec<Vec<String>> {
        entries.iter().map(|entry| reported(&entry.permission)).collect()
    };
    let coming = "machines-without-node: Machine/m3".to_owned();
    assert_eq!(
        blockers(&starts.replacement)[..2],
        vec![vec!["no".to_owned(), coming]; 2]
    );
    let rollout = preflight(|o| {
        o.control_plane.spec.version = Some("v1.35.0".to_owned());
        fails(o, 3, "SchedulerPodHealthy");
    });
    let scheduler = ["no", "schedulers-not-ready: Machine/m3"];
    assert_eq!(reported(&rollout.remediation[0].permission), ["yes"]);
    assert_eq!(reported(&rollout.replacement[0].permission), scheduler);
    let announced = preflight(|o| {
        let mut other = o.machine(2).clone();
        other.metadata.uid = Some("u2".to_owned());
        *o.machine(2) = other.clone();
        let value = Replacement::new(&other, now()).announcement();
        let value = value["metadata"]["annotations"][annotation::MACHINE_REPLACEMENT].clone();
        let metadata = &mut o.control_plane().metadata;
        annotate(
            metadata,
            annotation::MACHINE_REPLACEMENT,
            value.as_str().unwrap_or_default(),
        );
    });
    assert_eq!(
        reported(&announced.replacement[0].permission),
        ["no", "machine-deletions-slow: Machine/m2"]
    );
    assert_eq!(reported(&announced.replacement[1].permission), ["yes"]);
}
