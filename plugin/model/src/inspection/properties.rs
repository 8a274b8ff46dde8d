//! Properties that hold for every inspection.

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::{
    Condition, ConditionStatus, Machine, Remediation,
    machine::MachineStatus,
    metadata::{ObjectMeta, Time},
    names::annotation,
};
use kcp_etcd::{Alarm, AlarmKind, Member, Members, Status};
use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::{
    checks::finding::CheckOutcome,
    inspection::{Health, inspect},
    snapshot::{
        EndpointCertificate, EtcdMember, EtcdMembers, EtcdSurvey, Failure, HealthCheck, Reading, Snapshot,
        Workload,
        etcd::{Alarms, MemberResponse, QueriedMember, metrics::EtcdMetrics},
        workload::{Addon, Component, ControllerLease, Node, StaticPod},
    },
    testing::{
        objects::{self, annotate, now, pause, record, use_external_etcd},
        snapshot::{failure, forbidden, observed},
    },
};

/// Names are often equal. Some are empty, and some contain control characters.
fn names() -> impl Strategy<Value = String> {
    select(vec!["m1", "m2", "node-m1", "node-m2", "", "a\nb\u{1b}[31m"]).prop_map(str::to_owned)
}

fn times() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        (-90_000..90_000_i64).prop_map(|seconds| now() + jiff::SignedDuration::from_secs(seconds)),
        select(vec![Timestamp::MIN, Timestamp::MAX, now()]),
    ]
}

fn failures() -> impl Strategy<Value = Failure> {
    select(vec![
        failure("Machine", "no answer"),
        failure("", "two\nlines"),
        failure("Secret/c1-etcd", ""),
        forbidden("Node", "list", "nodes", true),
    ])
}

fn reading<T: std::fmt::Debug + Clone + 'static>(
    part: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Reading<T>> {
    prop_oneof![
        6 => part.prop_map(Reading::Read),
        1 => Just(Reading::Excluded { flag: "--no-etcd" }),
        1 => Just(Reading::NotYet),
        1 => failures().prop_map(Reading::OutOfReach),
        1 => failures().prop_map(Reading::Failed),
    ]
}

fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    let kinds = select(vec![
        "Available",
        "Ready",
        "EtcdMemberHealthy",
        "EtcdPodHealthy",
        "APIServerPodHealthy",
        "NodeKubeadmLabelsAndTaintsSet",
        "HealthCheckSucceeded",
        "OwnerRemediated",
        "ScalingUp",
        "Deleting",
        "EtcdClusterHealthy",
        "CertificatesAvailable",
        "Remediating",
        "RollingOut",
        "UpToDate",
    ]);
    let statuses = select(vec![
        ConditionStatus::True,
        ConditionStatus::False,
        ConditionStatus::Unknown,
    ]);
    let messages = select(vec!["", "x is blocked because:\n* y", "\n"]);
    let condition = (kinds, statuses, messages, option::of(times())).prop_map(
        |(kind, status, message, last_transition_time)| Condition {
            type_: kind.to_owned(),
            status,
            reason: String::new(),
            message: message.to_owned(),
            last_transition_time,
            observed_generation: None,
        },
    );
    vec(condition, 0..10)
}

fn machines() -> impl Strategy<Value = Vec<Machine>> {
    let lives = (option::of(times()), option::of(times()), option::of(times()));
    let remediation =
        (names(), option::of(times()), any::<i64>()).prop_map(|(machine, timestamp, retry_count)| {
            Remediation {
                machine,
                timestamp,
                retry_count,
                is_malformed: false,
            }
        });
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let versions = option::of(select(vec!["v1.34.1", "v1.33.0", "", "v1", "latest"]));
    let machine = (
        names(),
        option::of(names()),
        lives,
        conditions(),
        option::of(remediation),
        flags,
        versions,
    );
    let machine = machine.prop_map(
        |(name, node, (created, deleting_since, expire), conditions, remediation_for, flags, version)| {
            let metadata = ObjectMeta {
                name: Some(name),
                namespace: Some("d".to_owned()),
                creation_timestamp: created.map(Time),
                deletion_timestamp: deleting_since.map(Time),
                owner_references: objects::machine("any").metadata.owner_references,
                ..ObjectMeta::default()
            };
            let mut machine = Machine {
                metadata,
                ..Machine::default()
            };
            machine.spec.version = version.map(str::to_owned);
            machine.status = MachineStatus {
                node_name: node,
                conditions,
                certificates_expiry_date: expire,
                ..MachineStatus::default()
            };
            for (is_set, name) in [
                (flags.0, annotation::DELETE_MACHINE),
                (flags.1, annotation::REMEDIATE_MACHINE),
                (flags.2, annotation::UPDATE_IN_PROGRESS),
            ] {
                if is_set {
                    annotate(&mut machine.metadata, name, "");
                }
            }
            if let Some(remediation) = remediation_for {
                record(&mut machine.metadata, annotation::REMEDIATION_FOR, &remediation);
            }
            machine
        },
    );
    vec(machine, 0..5)
}

fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, select(vec![u64::MAX, u64::MAX - 1, 10_000])]
}

fn lists() -> impl Strategy<Value = Members> {
    let member = (numbers(), names(), any::<bool>()).prop_map(|(id, name, is_learner)| Member {
        id,
        client_urls: vec![name.clone(), format!("https://{name}")],
        name,
        peer_urls: vec![],
        is_learner,
    });
    (0..3_u64, vec(member, 0..5)).prop_map(|(cluster_id, members)| Members { cluster_id, members })
}

fn statuses() -> impl Strategy<Value = Status> {
    let sizes = (numbers(), numbers(), option::of(numbers()));
    let raft = (option::of(numbers()), numbers(), numbers(), numbers());
    let texts = (
        select(vec!["3.6.8", "3.5.0", "4.0.0", "", "x.y"]),
        select(vec![
            "",
            "memberID:1 alarm:NOSPACE",
            "alarm:",
            "etcdserver: no leader",
        ]),
    );
    (0..3_u64, numbers(), sizes, raft, texts, any::<bool>()).prop_map(
        |(cluster_id, member_id, sizes, raft, texts, is_learner)| Status {
            cluster_id,
            member_id,
            version: texts.0.to_owned(),
            db_size: sizes.0,
            db_size_in_use: sizes.1,
            db_size_quota: sizes.2,
            leader: raft.0,
            raft_index: raft.1,
            raft_term: raft.2,
            raft_applied_index: raft.3,
            revision: 100_000,
            errors: vec![texts.1.to_owned()],
            is_learner,
        },
    )
}

fn or_failure<T: std::fmt::Debug + 'static>(
    part: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Result<T, Failure>> {
    prop_oneof![3 => part.prop_map(Ok), 1 => failures().prop_map(Err)]
}

fn surveys() -> impl Strategy<Value = EtcdSurvey> {
    let response = (
        or_failure(statuses()),
        or_failure(lists()),
        any::<bool>(),
        option::of(times()),
    );
    let response =
        response.prop_map(
            |(status, members, has_matching_name, certificate_expires)| MemberResponse {
                status,
                members,
                metrics: Ok(EtcdMetrics::default()),
                has_matching_name,
                certificate_expires_at: certificate_expires,
                latency: Duration::ZERO,
            },
        );
    let queried =
        (names(), option::of(names()), or_failure(response)).prop_map(|(name, machine, response)| {
            QueriedMember {
                name,
                machine,
                response,
                certificate_expired_at: None,
            }
        });
    let kinds = select(vec![AlarmKind::NoSpace, AlarmKind::Corrupt, AlarmKind::Other(-1)]);
    let alarm = (numbers(), kinds).prop_map(|(member_id, kind)| Alarm { member_id, kind });
    let alarms = prop_oneof![
        vec(alarm, 0..3).prop_map(Alarms::Listed),
        Just(Alarms::FromStatus),
        failures().prop_map(Alarms::Failed),
    ];
    let flags = (any::<bool>(), any::<bool>());
    (flags, vec(queried, 0..5), alarms).prop_map(|((stacked, api_server_lacks_etcd), queried, alarms)| {
        EtcdSurvey {
            stacked,
            queried,
            alarms,
            used_ca_key: false,
            api_server_lacks_etcd,
        }
    })
}

fn workloads() -> impl Strategy<Value = Workload> {
    let node = (
        names(),
        option::of(times()),
        option::of(any::<bool>()),
        any::<bool>(),
        any::<bool>(),
    );
    let node = node.prop_map(|(name, created, ready, marked, is_unreachable)| Node {
        provider_id: None,
        machine: None,
        created,
        kubelet_version: name.clone(),
        name,
        ready,
        ready_since: created,
        has_control_plane_label: marked,
        has_control_plane_taint: is_unreachable,
        is_unreachable,
        problems: Vec::new(),
        taints: Vec::new(),
        etcd_images: Vec::new(),
    });
    let pod = (
        select(Component::ALL.to_vec()),
        names(),
        any::<bool>(),
        any::<bool>(),
    );
    let pod = pod.prop_map(|(component, node, ready, deleting)| StaticPod {
        component,
        phase: node.clone(),
        message: ready.then(|| node.clone()),
        node,
        ready,
        ready_since: None,
        is_deleting: deleting,
        restarts: 0,
        last_exit: None,
        crash_loop: None,
        forces_new_cluster: false,
    });
    let add_on = (any::<i64>(), any::<i64>()).prop_map(|(desired, ready)| Addon {
        desired_pods: desired,
        ready_pods: ready,
        ..Addon::default()
    });
    let lease = (names(), option::of(times()), option::of(any::<i64>()));
    let lease = lease.prop_map(|(name, renewed, duration_seconds)| ControllerLease {
        holder: Some(name.clone()),
        name,
        renewed,
        acquired: None,
        duration_seconds,
    });
    let parts = (
        reading(vec(node, 0..4)),
        reading(vec(pod, 0..8)),
        reading(option::of(add_on.clone())),
        reading(option::of(add_on)),
        reading(vec(lease, 0..3)),
    );
    parts.prop_map(|(nodes, static_pods, kube_proxy, core_dns, leases)| Workload {
        server: String::new(),
        nodes,
        static_pods,
        kube_proxy,
        core_dns,
        kubeadm_config: Reading::NotYet,
        leases,
        join_reports: Vec::new(),
        connection_risks: Vec::new(),
    })
}

fn anything() -> impl Strategy<Value = Snapshot> {
    let health_check = (
        names(),
        vec(names(), 0..3),
        any::<bool>(),
        [option::of(any::<bool>()), option::of(any::<bool>())],
    );
    let health_check = health_check.prop_map(|(name, targets, paused, allowed)| HealthCheck {
        name,
        paused,
        targets: targets.into_iter().collect(),
        remediation_allowed: allowed[0],
        allows_one_more: allowed[1],
        ..HealthCheck::default()
    });
    let object = (
        conditions(),
        any::<[bool; 5]>(),
        option::of(any::<i64>()),
        option::of(any::<i64>()),
        option::of(times()),
    );
    let management = (
        object,
        machines(),
        reading(vec(health_check, 0..3)),
        vec(failures(), 0..2),
    );
    let certificate = times().prop_map(|expires| EndpointCertificate {
        server: String::new(),
        expires_at: expires,
    });
    let workload_reads = (reading(workloads()), reading(certificate), reading(surveys()));
    (management, workload_reads).prop_map(
        |((object, machines, health_checks, unread), (workload, endpoint_certificate, etcd))| {
            let (conditions, flags, replicas, days, created) = object;
            let mut observed = observed();
            observed.health_checks = health_checks;
            observed.failed_reads = unread;
            let [external, paused, initialized, ready, reads_members] = flags;
            observed.machines = machines;
            observed.control_plane.spec.certificates_expiry_days = days;
            observed.cluster_mut().status.infrastructure_provisioned = ready;
            if external {
                observed.etcd_members = EtcdMembers::External;
            } else if reads_members {
                observed.etcd_members = EtcdMembers::Read(vec![EtcdMember::default()]);
            }
            let control_plane = &mut observed.control_plane;
            control_plane.status.conditions = conditions;
            if external {
                use_external_etcd(&mut control_plane.spec);
            }
            if paused {
                pause(&mut control_plane.metadata);
            }
            control_plane.status.initialized = initialized;
            control_plane.spec.replicas = replicas;
            control_plane.metadata.creation_timestamp = created.map(Time);
            Snapshot {
                workload,
                endpoint_certificate,
                etcd,
                ..observed
            }
        },
    )
}

proptest! {
    #[test]
    fn never_panics_and_the_verdict_follows_the_findings(observed in anything()) {
        let inspection = inspect(&observed, now());
        let found = |outcome| {
            let mut findings = inspection.checks.iter().flat_map(|checked| &checked.findings);
            findings.any(|finding| finding.outcome == outcome)
        };
        let health = inspection.health;
        prop_assert_eq!(
            found(CheckOutcome::Fail),
            matches!(health, Health::Degraded | Health::Blocked)
        );
        prop_assert_eq!(!found(CheckOutcome::Fail) && found(CheckOutcome::Unknown), health == Health::Unknown);
        for checked in &inspection.checks {
            let worst = checked.findings.iter().map(|finding| finding.outcome).max();
            if let Some(worst) = worst {
                prop_assert_eq!((worst, &checked.reason), (checked.outcome, &None));
            } else {
                prop_assert_eq!(checked.reason.is_some(), checked.outcome != CheckOutcome::Pass);
            }
            for finding in &checked.findings {
                prop_assert!(!finding.objects.is_empty());
                prop_assert!(!finding.message.contains('\n'));
            }
        }
        let preflight = &inspection.preflight;
        let permissions = [&preflight.scale_up, &preflight.scale_down, &preflight.rollout];
        let machines = preflight.remediation.iter().chain(&preflight.replacement);
        let remediation = machines.map(|remediation| &remediation.permission);
        for permission in permissions.into_iter().chain(remediation) {
            // Each operation that is not allowed has a reason.
            prop_assert_eq!(permission.allowed == Some(true), permission.blocked_by.is_empty());
        }
    }
}
