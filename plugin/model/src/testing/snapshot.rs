//! Snapshots for tests of checks.

use std::{collections::BTreeSet, time::Duration};

use kcp_api::{Machine, Reference, SecretOwnership};
use kcp_etcd::{Member, Members, Status};

use crate::{
    snapshot::{
        EndpointCertificate, EtcdSurvey, Failure, Forbidden, HealthCheck, Reading, Snapshot, Workload,
        certificates::{Certificate, Purpose, Validity},
        etcd::{
            Alarms, MemberResponse, QueriedMember,
            metrics::{EtcdMetrics, Latency},
        },
        management::RemediationTrigger,
        workload::{Addon, Component, ControllerLease, KubeadmConfigMap, Node, StaticPod},
    },
    testing::{
        self,
        objects::{minutes_ago, now},
    },
};

const CLUSTER_ID: u64 = 0xc1;
const MEBIBYTE: u64 = 1024 * 1024;
const NAMES: [&str; 3] = ["m1", "m2", "m3"];

/// Three healthy Machines `m1`, `m2` and `m3` on `node-m1` to `node-m3`. Every source was read, and there is no change
/// to make.
pub fn observed() -> Snapshot {
    Snapshot {
        health_checks: Reading::Read(vec![HealthCheck {
            name: "c1-mhc".to_owned(),
            paused: false,
            targets: NAMES.map(str::to_owned).into(),
            remediation_allowed: Some(true),
            trigger: Some(RemediationTrigger::AtMostPercent(100)),
            other_targets: Some(0),
            allows_one_more: Some(true),
            ..HealthCheck::default()
        }]),
        secrets: Reading::Read(secrets(&["ca", "etcd", "proxy", "sa", "kubeconfig"])),
        certificates: Reading::Read(certificates()),
        failed_writes: Reading::Read(Vec::new()),
        workload: Reading::Read(workload()),
        endpoint_certificate: Reading::Read(EndpointCertificate {
            server: "https://10.0.0.1:6443".to_owned(),
            expires_at: in_days(300),
        }),
        etcd: Reading::Read(survey()),
        ..testing::plan::observed()
    }
}

/// The CAs and the kubeconfig, with nearly their whole validity left.
fn certificates() -> Vec<Certificate> {
    let certificate = |purpose: Purpose, days| {
        let secret = format!("c1-{}", purpose.secret_suffix().expect("a Secret"));
        let validity = Validity::Certificate {
            issued: Some(minutes_ago(60)),
            expires: in_days(days),
        };
        Certificate::of_secret(purpose, &secret, validity, Some(SecretOwnership::ControlPlane))
    };
    vec![
        certificate(Purpose::ClusterCa, 3600),
        certificate(Purpose::EtcdCa, 3600),
        certificate(Purpose::FrontProxyCa, 3600),
        certificate(Purpose::AdminKubeconfig, 364),
    ]
}

/// Like [`observed`], but nothing can be read from the workload cluster, as without a quorum.
pub fn lost() -> Snapshot {
    let unreachable = failure("workload cluster", "no answer within 5s");
    Snapshot {
        workload: Reading::Failed(unreachable.clone()),
        etcd: Reading::Failed(unreachable),
        ..observed()
    }
}

pub fn secrets(purposes: &[&str]) -> BTreeSet<String> {
    purposes.iter().map(|purpose| format!("c1-{purpose}")).collect()
}

fn workload() -> Workload {
    let nodes = NAMES.map(|name| Node {
        name: format!("node-{name}"),
        provider_id: None,
        machine: None,
        created: Some(minutes_ago(60)),
        kubelet_version: "v1.34.1".to_owned(),
        ready: Some(true),
        ready_since: Some(minutes_ago(60)),
        has_control_plane_label: true,
        has_control_plane_taint: true,
        is_unreachable: false,
        problems: Vec::new(),
        taints: vec!["node-role.kubernetes.io/control-plane:NoSchedule".to_owned()],
        etcd_images: Vec::new(),
    });
    let worker = Node {
        name: "worker-1".to_owned(),
        created: Some(minutes_ago(60)),
        kubelet_version: "v1.34.1".to_owned(),
        ready: Some(true),
        ..Node::default()
    };
    let pods = NAMES.iter().flat_map(|name| {
        Component::ALL.map(|component| StaticPod {
            component,
            node: format!("node-{name}"),
            phase: "Running".to_owned(),
            ready: true,
            ready_since: Some(minutes_ago(60)),
            is_deleting: false,
            message: None,
            restarts: 0,
            last_exit: None,
            crash_loop: None,
            forces_new_cluster: false,
        })
    });
    let add_on = |pods| {
        Reading::Read(Some(Addon {
            desired_pods: pods,
            ready_pods: pods,
            ..Addon::default()
        }))
    };
    let lease = |name: &str| ControllerLease {
        name: name.to_owned(),
        holder: Some("node-m1_1".to_owned()),
        renewed: Some(now()),
        acquired: None,
        duration_seconds: Some(15),
    };
    Workload {
        server: "https://10.0.0.1:6443".to_owned(),
        nodes: Reading::Read(nodes.into_iter().chain([worker]).collect()),
        static_pods: Reading::Read(pods.collect()),
        kube_proxy: add_on(4),
        core_dns: add_on(2),
        kubeadm_config: Reading::Read(KubeadmConfigMap::Usable {
            version: Some("v1.34.1".to_owned()),
        }),
        leases: Reading::Read(["kube-controller-manager", "kube-scheduler"].map(lease).to_vec()),
        join_reports: Vec::new(),
        connection_risks: Vec::new(),
    }
}

pub fn in_days(days: i64) -> jiff::Timestamp {
    now() + jiff::SignedDuration::from_hours(24 * days)
}

fn survey() -> EtcdSurvey {
    EtcdSurvey {
        stacked: true,
        queried: (1..).zip(NAMES).map(|(id, name)| queried(id, name)).collect(),
        alarms: Alarms::Listed(Vec::new()),
        used_ca_key: true,
        api_server_lacks_etcd: false,
    }
}

pub fn member(id: u64, name: &str) -> Member {
    let host = if name.is_empty() { "new" } else { name };
    Member {
        id,
        name: name.to_owned(),
        peer_urls: vec![format!("https://{host}:2380")],
        client_urls: vec![format!("https://{host}:2379")],
        is_learner: false,
    }
}

fn queried(id: u64, machine: &str) -> QueriedMember {
    let list = (1..).zip(NAMES);
    QueriedMember {
        name: format!("node-{machine}"),
        machine: Some(machine.to_owned()),
        certificate_expired_at: None,
        response: Ok(MemberResponse {
            status: Ok(Status {
                cluster_id: CLUSTER_ID,
                member_id: id,
                version: "3.6.8".to_owned(),
                db_size: 60 * MEBIBYTE,
                db_size_in_use: 50 * MEBIBYTE,
                db_size_quota: Some(2048 * MEBIBYTE),
                leader: Some(1),
                raft_index: 1_000_000,
                raft_term: 4,
                raft_applied_index: 1_000_000,
                revision: 100_000,
                errors: Vec::new(),
                is_learner: false,
            }),
            members: Ok(Members {
                cluster_id: CLUSTER_ID,
                members: list
                    .map(|(id, name)| member(id, &format!("node-{name}")))
                    .collect(),
            }),
            metrics: Ok(EtcdMetrics {
                wal_fsync: Some(latency(9.9)),
                backend_commit: Some(latency(24.9)),
                ..EtcdMetrics::default()
            }),
            has_matching_name: true,
            certificate_expires_at: Some(in_days(300)),
            latency: Duration::from_millis(7),
        }),
    }
}

/// A latency with this 99th percentile, in milliseconds.
pub fn latency(p99: f64) -> Latency {
    Latency {
        operations: 100,
        p50: Duration::from_millis(1),
        p99: Duration::from_secs_f64(p99 / 1_000.0),
    }
}

pub fn failure(object: &str, message: &str) -> Failure {
    Failure {
        object: object.to_owned(),
        message: message.to_owned(),
        hint: None,
        ..Failure::default()
    }
}

pub fn forbidden(object: &str, verb: &str, resource: &str, in_workload_cluster: bool) -> Failure {
    let namespace = if in_workload_cluster { "kube-system" } else { "d" };
    Failure {
        forbidden: Some(Forbidden {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: Some(namespace.to_owned()),
            is_from_workload_cluster: in_workload_cluster,
        }),
        ..failure(object, "forbidden")
    }
}

fn part<T>(reading: &mut Reading<T>) -> &mut T {
    match reading {
        Reading::Read(part) => part,
        _ => panic!("not read"),
    }
}

/// Access to the parts that tests change.
impl Snapshot {
    pub fn survey(&mut self) -> &mut EtcdSurvey {
        part(&mut self.etcd)
    }

    pub fn workload(&mut self) -> &mut Workload {
        part(&mut self.workload)
    }

    pub fn endpoint_certificate(&mut self) -> &mut EndpointCertificate {
        part(&mut self.endpoint_certificate)
    }

    pub fn nodes(&mut self) -> &mut Vec<Node> {
        part(&mut self.workload().nodes)
    }

    pub fn pods(&mut self) -> &mut Vec<StaticPod> {
        part(&mut self.workload().static_pods)
    }

    pub fn pod(&mut self, component: Component, machine: usize) -> &mut StaticPod {
        let node = format!("node-m{machine}");
        let mut pods = self.pods().iter_mut();
        pods.find(|pod| pod.component == component && pod.node == node)
            .expect("a pod")
    }

    pub fn health_checks(&mut self) -> &mut Vec<HealthCheck> {
        part(&mut self.health_checks)
    }

    pub fn certificate(&mut self, purpose: Purpose) -> &mut Certificate {
        let mut certificates = part(&mut self.certificates).iter_mut();
        certificates
            .find(|certificate| certificate.purpose == purpose)
            .expect("a certificate")
    }

    pub fn secrets(&mut self) -> &mut BTreeSet<String> {
        part(&mut self.secrets)
    }

    /// `spec.controlPlaneRef` of the Cluster.
    pub fn reference(&mut self) -> &mut Reference {
        let reference = self.cluster_mut().spec.control_plane_ref.as_mut();
        reference.expect("a reference")
    }

    pub fn control_plane(&mut self) -> &mut kcp_api::KubeadmControlPlane {
        &mut self.control_plane
    }

    /// The Machine `m1`, `m2` or `m3`.
    pub fn machine(&mut self, number: usize) -> &mut Machine {
        &mut self.machines[number - 1]
    }

    pub fn answer(&mut self, number: usize) -> &mut MemberResponse {
        self.survey().queried[number - 1]
            .response
            .as_mut()
            .expect("an answer")
    }

    pub fn status(&mut self, number: usize) -> &mut Status {
        self.answer(number).status.as_mut().expect("a status")
    }

    pub fn list(&mut self, number: usize) -> &mut Members {
        self.answer(number).members.as_mut().expect("a list")
    }

    /// Changes the member list that every member reports.
    pub fn each_list(&mut self, change: impl Fn(&mut Members)) {
        self.each_list_of(&[1, 2, 3], change);
    }

    /// Changes the member list that these members report.
    pub fn each_list_of(&mut self, numbers: &[usize], change: impl Fn(&mut Members)) {
        for number in numbers {
            change(self.list(*number));
        }
    }

    /// The first Machines, and one more without a node. On its host, kubeadm has added a learner that never started.
    pub fn never_starts(&mut self, ready: usize) {
        let number = ready + 1;
        self.etcd = Reading::Read(survey());
        self.machines.truncate(number);
        self.survey().queried.truncate(ready);
        let all: Vec<usize> = (1..=ready).collect();
        self.each_list_of(&all, |list| {
            list.members.truncate(number);
            list.members[ready].name = String::new();
            list.members[ready].is_learner = true;
            list.members[ready].peer_urls = vec![format!("https://10.0.0.{number}:2380")];
        });
        let machine = self.machine(number);
        machine.status.node_name = None;
        machine.status.conditions.clear();
        machine.status.addresses = vec![format!("10.0.0.{number}")];
    }

    /// Kills the etcd member of a Machine: it does not respond, and its pod is not ready.
    pub fn kill(&mut self, number: usize) {
        self.survey().queried[number - 1].response =
            Err(failure("etcd", "cannot connect: connection refused"));
        let pod = self.pod(Component::Etcd, number);
        pod.ready = false;
        pod.message = Some("CrashLoopBackOff".to_owned());
    }
}
