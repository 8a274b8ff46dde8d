//! Tests each check: a healthy cluster passes, and each case has exactly the recorded result.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use super::{
    Assumptions, AuditOutcome, Facts, all, certificates, drift, endpoint, etcd, extensions,
    facts::{
        BackendPod, CertificateFacts, EtcdFacts, HealthCheckFacts, KubeadmSettings, Labels, MachineNode,
        Node, Pod, PodContainer, Service,
    },
    images, nodes, static_pods, webhooks,
};
use crate::{
    snapshot::{
        ControllerLease, EndpointCertificate, EtcdMember, EtcdMembers, EtcdSurvey, HealthCheck, Reading,
        workload::Component,
    },
    testing::{
        objects::{minutes_ago, now, use_external_etcd},
        snapshot::{failure, in_days, observed},
    },
};

/// The id of the check, the name of the case, and a change to the healthy facts.
pub(crate) type Case = (&'static str, &'static str, fn(&mut Facts));

const CASES: &[&[Case]] = &[
    static_pods::test_cases::CASES,
    images::test_cases::CASES,
    drift::test_cases::CASES,
    etcd::test_cases::CASES,
    endpoint::test_cases::CASES,
    certificates::test_cases::CASES,
    nodes::test_cases::CASES,
    webhooks::test_cases::CASES,
    extensions::test_cases::CASES,
];

const ASSUMPTIONS_DAYS: u64 = 30;

pub(crate) fn assumptions() -> Assumptions {
    Assumptions {
        now: now(),
        power_off: Duration::from_secs(ASSUMPTIONS_DAYS * 24 * 3600),
    }
}

pub(crate) fn failed<T>(object: &str) -> Reading<T> {
    Reading::Failed(failure(object, "no answer within 2s"))
}

/// A Service with two ready Pods on two Nodes, and a budget.
pub(crate) fn service() -> Service {
    Service {
        cluster_ips: vec!["10.96.0.77".to_owned()],
        pods: Some(["w1", "w2"].map(backend_pod).to_vec()),
        budgets: 1,
    }
}

pub(crate) fn backend_pod(node: &str) -> BackendPod {
    BackendPod {
        labels: [("app".to_owned(), "hook".to_owned())].into(),
        node: node.to_owned(),
        ready: true,
    }
}

/// Three control plane Nodes `n1` to `n3` and a worker. kube-vip serves the endpoint.
pub(crate) fn healthy() -> Facts {
    let numbers = [1, 2, 3];
    let control_plane = numbers.map(|number| Node {
        name: format!("n{number}"),
        is_control_plane: true,
        ready: Some(true),
        created: Some(minutes_ago(60)),
        addresses: vec![format!("10.0.0.{number}"), format!("n{number}")],
        labels: [("node-role.kubernetes.io/control-plane".to_owned(), String::new())].into(),
        ..Node::default()
    });
    let worker = Node {
        name: "w1".to_owned(),
        ready: Some(true),
        created: Some(minutes_ago(60)),
        addresses: vec!["10.0.0.11".to_owned()],
        ..Node::default()
    };
    let lease = |name: &str| ControllerLease {
        name: name.to_owned(),
        holder: Some(name.to_owned()),
        renewed: Some(now()),
        acquired: None,
        duration_seconds: Some(40),
    };
    let pods = control_plane.iter().flat_map(|node| {
        let components =
            Component::ALL.map(|component| static_pod(node, component.as_str(), flags(component, node)));
        components
            .into_iter()
            .chain([static_pod(node, "kube-vip", Vec::new())])
    });
    let snapshot = observed();
    let members = snapshot.members();
    let nodes: Vec<Node> = control_plane.iter().cloned().chain([worker]).collect();
    Facts {
        server: "https://10.0.0.9:6443".to_owned(),
        node_leases: Reading::Read(nodes.iter().map(|node| lease(&node.name)).collect()),
        system_pods: Reading::Read(pods.collect()),
        kubeadm: Reading::Read(Some(KubeadmSettings {
            kubernetes_version: Some("v1.36.3".to_owned()),
            control_plane_endpoint: Some("10.0.0.9:6443".to_owned()),
            ..KubeadmSettings::default()
        })),
        machines: Reading::Read(Some(
            nodes
                .iter()
                .map(|node| MachineNode {
                    name: format!("c1-{}", node.name),
                    node: Some(node.name.clone()),
                    provider_id: None,
                })
                .collect(),
        )),
        nodes: Reading::Read(nodes),
        health_checks: Reading::Read(Some(HealthCheckFacts {
            replicas: 3,
            checks: snapshot.health_checks.value().cloned().expect("read"),
        })),
        etcd: EtcdFacts {
            survey: snapshot.etcd,
            members,
        },
        certificates: CertificateFacts {
            endpoint: Reading::Read(EndpointCertificate {
                server: "https://10.0.0.9:6443".to_owned(),
                expires_at: in_days(300),
            }),
            managed: Vec::new(),
            authorities: Reading::Read(vec![("the CA of clients".to_owned(), in_days(3000))]),
            webhook: Reading::Read(None),
            is_managed: true,
        },
        namespaces: Reading::Read(
            ["default", "kube-system", "kube-node-lease", "hooks"]
                .map(|name| {
                    let label = ("kubernetes.io/metadata.name".to_owned(), name.to_owned());
                    (name.to_owned(), Labels::from([label]))
                })
                .into(),
        ),
        webhooks: Reading::Read(Vec::new()),
        api_services: Reading::Read(Vec::new()),
        conversions: Reading::Read(Vec::new()),
        services: std::collections::BTreeMap::new(),
    }
}

fn flags(component: Component, node: &Node) -> Vec<String> {
    let address = &node.addresses[0];
    match component {
        Component::ApiServer => vec![
            format!("--advertise-address={address}"),
            "--etcd-servers=https://127.0.0.1:2379".to_owned(),
        ],
        Component::ControllerManager | Component::Scheduler => vec!["--leader-elect=true".to_owned()],
        Component::Etcd => vec![
            format!("--name={}", node.name),
            format!("--initial-cluster={}=https://{address}:2380", node.name),
            format!("--listen-client-urls=https://127.0.0.1:2379,https://{address}:2379"),
        ],
    }
}

fn static_pod(node: &Node, program: &str, flags: Vec<String>) -> Pod {
    Pod {
        namespace: "kube-system".to_owned(),
        name: format!("{program}-{}", node.name),
        node: node.name.clone(),
        labels: [("component".to_owned(), program.to_owned())].into(),
        is_static: true,
        host_network: true,
        ready: true,
        containers: vec![PodContainer {
            name: program.to_owned(),
            image: format!("registry.k8s.io/{program}:v1.36.3"),
            pull_policy: Some("IfNotPresent".to_owned()),
            command: std::iter::once(program.to_owned()).chain(flags).collect(),
            ports: BTreeSet::new(),
        }],
        references: BTreeSet::new(),
    }
}

fn read<T>(reading: &mut Reading<T>) -> &mut T {
    match reading {
        Reading::Read(part) => part,
        _ => panic!("not read"),
    }
}

impl Facts {
    pub(crate) fn nodes(&mut self) -> &mut Vec<Node> {
        read(&mut self.nodes)
    }

    pub(crate) fn health_check(&mut self) -> &mut HealthCheck {
        let found = read(&mut self.health_checks)
            .as_mut()
            .expect("a management cluster");
        &mut found.checks[0]
    }

    pub(crate) fn leases(&mut self) -> &mut Vec<ControllerLease> {
        read(&mut self.node_leases)
    }

    pub(crate) fn pods(&mut self) -> &mut Vec<Pod> {
        read(&mut self.system_pods)
    }

    pub(crate) fn pod(&mut self, name: &str) -> &mut Pod {
        self.pods().iter_mut().find(|pod| pod.name == name).expect(name)
    }

    pub(crate) fn run_static_pod(&mut self, program: &str, node: &str) {
        let nodes = self.nodes().iter();
        let node = nodes.into_iter().find(|found| found.name == node).cloned();
        let pod = static_pod(&node.unwrap(), program, Vec::new());
        self.pods().push(pod);
    }

    pub(crate) fn survey(&mut self) -> &mut EtcdSurvey {
        read(&mut self.etcd.survey)
    }

    pub(crate) fn members(&self) -> Vec<EtcdMember> {
        match &self.etcd.members {
            EtcdMembers::Read(members) => members.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn kubeadm(&mut self) -> &mut KubeadmSettings {
        read(&mut self.kubeadm).as_mut().expect("kubeadm-config")
    }

    pub(crate) fn machine(&mut self, node: &str) -> &mut MachineNode {
        let machines = read(&mut self.machines).as_mut().expect("Machines");
        let found = machines
            .iter_mut()
            .find(|machine| machine.node.as_deref() == Some(node));
        found.expect(node)
    }

    pub(crate) fn gate(&mut self, name: &str, is_on: bool) {
        self.kubeadm().feature_gates.insert(name.to_owned(), is_on);
    }

    pub(crate) fn set_flag(&mut self, pod: &str, flag: &str, value: &str) {
        let command = &mut self.pod(pod).containers[0].command;
        command.retain(|word| !word.starts_with(&format!("{flag}=")));
        command.push(format!("{flag}={value}"));
    }

    /// A plain kubeadm cluster, without a management cluster.
    pub(crate) fn without_management(&mut self) {
        self.machines = Reading::Read(None);
        self.health_checks = Reading::Read(None);
        self.etcd.survey = Reading::NotYet;
        self.etcd.members = EtcdMembers::Unread;
        self.certificates.is_managed = false;
        self.certificates.managed.clear();
    }

    /// An etcd of three members outside of the cluster.
    pub(crate) fn use_external_etcd(&mut self) {
        let mut snapshot = observed();
        use_external_etcd(&mut snapshot.control_plane().spec);
        self.kubeadm().has_external_etcd = true;
        self.etcd.members = EtcdMembers::External;
        self.survey().stacked = false;
        self.pods().retain(|pod| !pod.name.starts_with("etcd-"));
    }
}

fn cases() -> impl Iterator<Item = Case> {
    CASES.iter().copied().flatten().copied()
}

fn changed(change: fn(&mut Facts)) -> Facts {
    let mut facts = healthy();
    change(&mut facts);
    facts
}

#[test]
fn ids_are_unique_kebab_case_and_no_ids_of_status() {
    let ids: BTreeSet<&str> = all().map(|check| check.id).collect();
    assert_eq!(ids.len(), all().count());
    for id in ids {
        assert!(id.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{id}");
        assert!(crate::checks::find(id).is_none(), "{id} is a check of status");
    }
}

#[test]
fn a_cluster_with_nothing_wrong_passes_every_check() {
    let facts = healthy();
    for check in all() {
        let audited = check.run(&facts, assumptions());
        assert_eq!(audited.outcome, AuditOutcome::Pass, "{audited:?}");
        assert!(
            !audited.evidence.is_empty() && audited.remedy.is_none(),
            "{audited:?}"
        );
    }
}

#[test]
fn every_check_has_a_case_that_passes_and_one_that_does_not() {
    for check in all() {
        let outcomes: BTreeSet<bool> = cases()
            .filter(|case| case.0 == check.id)
            .map(|case| check.run(&changed(case.2), assumptions()).outcome == AuditOutcome::Pass)
            .collect();
        assert_eq!(outcomes.len(), 2, "{}", check.id);
    }
}

#[test]
fn requirements_and_remedies_are_sentences_without_a_period() {
    for check in all() {
        for text in [check.requirement, check.remedy] {
            assert!(
                text.len() > 20 && !text.ends_with('.') && !text.contains("  "),
                "{text}"
            );
        }
    }
}

#[test]
fn each_case_has_the_recorded_result() {
    for topic in CASES {
        let mut text = String::new();
        for (id, name, change) in *topic {
            let check = all().find(|check| check.id == *id).expect(id);
            let audited = check.run(&changed(*change), assumptions());
            writeln!(text, "{id}: {name}: {}", audited.outcome.as_str()).expect("text");
            for line in audited.evidence {
                writeln!(text, "  {line}").expect("text");
            }
        }
        let name = topic.first().expect("a case").0;
        insta::assert_snapshot!(name, text);
    }
}

/// What one part of a cluster says never changes the result of a check that does not need it: unread parts are unknown, and no
/// check panics.
#[test]
fn nothing_read_is_unknown_everywhere() {
    let facts = Facts {
        server: String::new(),
        nodes: failed("Node"),
        node_leases: failed("Lease"),
        system_pods: failed("Pod"),
        kubeadm: failed("ConfigMap/kubeadm-config"),
        health_checks: failed("Machine"),
        machines: failed("Machine"),
        etcd: EtcdFacts {
            survey: failed("etcd"),
            members: EtcdMembers::Unread,
        },
        certificates: CertificateFacts {
            endpoint: failed("https://s"),
            managed: Vec::new(),
            authorities: failed("ConfigMap/extension-apiserver-authentication"),
            webhook: failed("Secret/kcp-webhook-tls"),
            is_managed: true,
        },
        namespaces: failed("Namespace"),
        webhooks: failed("ValidatingWebhookConfiguration"),
        api_services: failed("APIService"),
        conversions: failed("CustomResourceDefinition"),
        services: std::collections::BTreeMap::new(),
    };
    for audited in super::audit(&facts, assumptions()) {
        assert_eq!(audited.outcome, AuditOutcome::Unknown, "{audited:?}");
        assert!(audited.remedy.is_some());
    }
}
