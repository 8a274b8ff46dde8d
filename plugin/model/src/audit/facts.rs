//! What the audit reads of a cluster. Each part may be unread, with a reason.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MutatingWebhook, RuleWithOperations, ValidatingWebhook, WebhookClientConfig,
        },
        core::v1::{self, Container, Volume},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kcp_api::names::{annotation, label};

use crate::{
    certificates::{Certificate, Validity},
    snapshot::{ControllerLease, EndpointCertificate, EtcdMembers, EtcdSurvey, HealthCheck, Reading},
};

pub type Labels = BTreeMap<String, String>;

/// The annotation that the kubelet sets on the mirror Pod of a static Pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation that says where the kubelet read the Pod, such as `file` for a static Pod.
const SOURCE: &str = "kubernetes.io/config.source";

/// A cluster, as its API server, etcd and the management cluster describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// How the API server is reached, as `https://host:port`.
    pub server: String,
    pub nodes: Reading<Vec<Node>>,
    /// The Leases of kubelets in `kube-node-lease`.
    pub node_leases: Reading<Vec<ControllerLease>>,
    /// The Pods of `kube-system`.
    pub system_pods: Reading<Vec<Pod>>,
    pub kubeadm: Reading<Option<KubeadmSettings>>,
    /// The Machines of the Cluster. `None` if the cluster has no Machines, so the audit reads no management cluster.
    pub machines: Reading<Option<Vec<MachineNode>>>,
    /// The `MachineHealthChecks` of the control plane. `None` without a management cluster.
    pub health_checks: Reading<Option<HealthCheckFacts>>,
    pub etcd: EtcdFacts,
    pub certificates: CertificateFacts,
    /// The labels of each namespace.
    pub namespaces: Reading<BTreeMap<String, Labels>>,
    pub webhooks: Reading<Vec<Webhook>>,
    pub api_services: Reading<Vec<ApiService>>,
    pub conversions: Reading<Vec<Conversion>>,
    /// The Services that webhooks, `APIServices` and custom resources name.
    pub services: BTreeMap<ServiceName, Reading<Option<Service>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckFacts {
    /// The desired number of control plane Machines.
    pub replicas: u64,
    /// The `MachineHealthChecks` that select at least one Machine of the control plane.
    pub checks: Vec<HealthCheck>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct EtcdFacts {
    /// The responses of the members. `NotYet` in a cluster whose etcd CA is not in a Secret.
    pub survey: Reading<EtcdSurvey>,
    pub members: EtcdMembers,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CertificateFacts {
    pub endpoint: Reading<EndpointCertificate>,
    /// The certificates in Secrets and of Machines. Empty without a management cluster.
    pub managed: Vec<Certificate>,
    /// The CAs in the `ConfigMap` `extension-apiserver-authentication`: a name and the expiry.
    pub authorities: Reading<Vec<(String, Timestamp)>>,
    /// The serving certificate of kcp-webhook. `None` if the cluster has no webhook configuration of kcp-webhook.
    pub webhook: Reading<Option<Validity>>,
    /// Whether a management cluster has the certificates of the control plane.
    pub is_managed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub is_control_plane: bool,
    pub ready: Option<bool>,
    pub created: Option<Timestamp>,
    pub addresses: Vec<String>,
    pub provider_id: Option<String>,
    /// The Machine that Cluster API recorded on the Node.
    pub machine: Option<String>,
    /// The kind that owns the Node's Machine, such as `MachinePool`.
    pub owner_kind: Option<String>,
    pub labels: Labels,
}

/// A Machine, and the Node that it references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineNode {
    pub name: String,
    pub node: Option<String>,
    pub provider_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub node: String,
    pub labels: Labels,
    /// Whether this is the mirror Pod of a static Pod that the kubelet read from a file.
    pub is_static: bool,
    pub host_network: bool,
    pub ready: bool,
    pub containers: Vec<PodContainer>,
    /// The objects without which the kubelet cannot start the Pod, such as `Secret/token`.
    pub references: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodContainer {
    pub name: String,
    pub image: String,
    pub pull_policy: Option<String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    pub ports: BTreeSet<i32>,
}

/// The fields of kubeadm's `ClusterConfiguration` that the checks need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeadmSettings {
    pub kubernetes_version: Option<String>,
    /// `host:port`, or a host.
    pub control_plane_endpoint: Option<String>,
    pub feature_gates: BTreeMap<String, bool>,
    pub has_external_etcd: bool,
    /// The folder of the data of etcd members that kubeadm creates.
    pub etcd_folder: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName {
    pub namespace: String,
    pub name: String,
}

/// A Service, and what runs behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    pub cluster_ips: Vec<String>,
    /// The Pods that the selector selects. `None` if the Service has no selector.
    pub pods: Option<Vec<BackendPod>>,
    /// The number of `PodDisruptionBudgets` that select one of the Pods.
    pub budgets: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendPod {
    pub labels: Labels,
    pub node: String,
    pub ready: bool,
}

/// Where a webhook's server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    Service(ServiceName),
    Url(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    /// The configuration, such as `ValidatingWebhookConfiguration/x`.
    pub configuration: String,
    pub name: String,
    /// Whether the API server rejects a request if the webhook does not respond.
    pub fails: bool,
    pub backend: Backend,
    pub rules: Vec<RuleWithOperations>,
    pub namespace_selector: LabelSelector,
    pub object_selector: LabelSelector,
    pub match_conditions: usize,
    pub timeout_seconds: i32,
}

/// An aggregated API, served by a server other than kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiService {
    pub name: String,
    pub service: ServiceName,
    /// Whether the condition `Available` is True.
    pub available: Option<bool>,
    /// The message of the condition `Available`.
    pub message: String,
}

/// A custom resource whose versions a webhook converts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    pub crd: String,
    pub backend: Backend,
    /// Whether more than one version is served, or the served version is not the stored one.
    pub is_needed: bool,
}

impl Facts {
    /// The control plane Nodes.
    pub fn control_plane_nodes(&self) -> Option<Vec<&Node>> {
        let nodes = self.nodes.value()?.iter();
        Some(nodes.filter(|node| node.is_control_plane).collect())
    }

    /// The static Pods of a control plane Node.
    pub fn static_pods_on<'f>(&'f self, node: &'f str) -> impl Iterator<Item = &'f Pod> {
        let pods = self.system_pods.value().into_iter().flatten();
        pods.filter(move |pod| pod.is_static && pod.node == node)
    }

    pub fn has_external_etcd(&self) -> bool {
        let kubeadm = self.kubeadm.value().and_then(Option::as_ref);
        self.etcd.members == EtcdMembers::External
            || kubeadm.is_some_and(|settings| settings.has_external_etcd)
    }

    pub fn kubernetes_version(&self) -> Option<&str> {
        self.kubeadm.value()?.as_ref()?.kubernetes_version.as_deref()
    }
}

impl Node {
    pub fn from_object(node: v1::Node) -> Self {
        let status = node.status.unwrap_or_default();
        let ready = status.conditions.iter().flatten().find_map(|condition| {
            (condition.type_ == "Ready").then_some(match condition.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            })
        });
        let labels = node.metadata.labels.unwrap_or_default();
        let mut annotations = node.metadata.annotations.unwrap_or_default();
        Self {
            name: node.metadata.name.unwrap_or_default(),
            is_control_plane: labels.contains_key(label::NODE_CONTROL_PLANE),
            ready: ready.flatten(),
            created: node.metadata.creation_timestamp.map(|time| time.0),
            addresses: status
                .addresses
                .into_iter()
                .flatten()
                .map(|address| address.address)
                .collect(),
            provider_id: node.spec.and_then(|spec| spec.provider_id),
            machine: annotations.remove(annotation::NODE_MACHINE),
            owner_kind: annotations.remove(annotation::NODE_OWNER_KIND),
            labels,
        }
    }
}

impl Pod {
    pub fn from_object(pod: v1::Pod) -> Self {
        let spec = pod.spec.unwrap_or_default();
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let conditions = pod
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        let volumes = spec.volumes.iter().flatten();
        let mut references: BTreeSet<String> = all
            .clone()
            .flat_map(references_of)
            .chain(volumes.flat_map(sources_of))
            .collect();
        if let Some(account) = spec.service_account_name.as_ref().filter(|name| !name.is_empty()) {
            references.insert(format!("ServiceAccount/{account}"));
        }
        Self {
            is_static: annotations.contains_key(MIRROR)
                && annotations.get(SOURCE).is_none_or(|source| source == "file"),
            containers: all.map(PodContainer::from_object).collect(),
            references,
            namespace: pod.metadata.namespace.unwrap_or_default(),
            name: pod.metadata.name.unwrap_or_default(),
            node: spec.node_name.unwrap_or_default(),
            labels: pod.metadata.labels.unwrap_or_default(),
            host_network: spec.host_network.unwrap_or_default(),
            ready: conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        }
    }

    /// The container that runs a program: kubeadm gives it the name of the program.
    pub fn container(&self, program: &str) -> Option<&PodContainer> {
        let mut containers = self.containers.iter();
        containers.find(|container| container.name == program)
    }
}

impl PodContainer {
    fn from_object(container: &Container) -> Self {
        let command = container.command.iter().flatten();
        Self {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            pull_policy: container.image_pull_policy.clone(),
            command: command.chain(container.args.iter().flatten()).cloned().collect(),
            ports: container
                .ports
                .iter()
                .flatten()
                .map(|port| port.container_port)
                .collect(),
        }
    }

    /// The value of a flag such as `--etcd-servers`. `None` if the command does not contain it.
    pub fn flag(&self, name: &str) -> Option<&str> {
        let mut words = self.command.iter();
        while let Some(word) = words.next() {
            match word.strip_prefix(name) {
                Some("") => return words.next().map(String::as_str),
                Some(rest) if rest.starts_with('=') => return rest.get(1..),
                _ => {}
            }
        }
        None
    }

    /// Whether the Pod shows the flags of its program.
    pub fn shows_flags(&self) -> bool {
        self.command.iter().any(|word| word.starts_with("--"))
    }
}

fn references_of(container: &Container) -> Vec<String> {
    let from = container.env_from.iter().flatten().flat_map(|env| {
        let secret = env.secret_ref.as_ref().map(|key| format!("Secret/{}", key.name));
        let config = env
            .config_map_ref
            .as_ref()
            .map(|key| format!("ConfigMap/{}", key.name));
        secret.into_iter().chain(config)
    });
    let values = container.env.iter().flatten().filter_map(|variable| {
        let source = variable.value_from.as_ref()?;
        let secret = source
            .secret_key_ref
            .as_ref()
            .map(|key| format!("Secret/{}", key.name));
        let config = source.config_map_key_ref.as_ref();
        secret.or_else(|| config.map(|key| format!("ConfigMap/{}", key.name)))
    });
    from.chain(values).collect()
}

fn sources_of(volume: &Volume) -> Vec<String> {
    let name = |kind: &str, name: Option<&String>| Some(format!("{kind}/{}", name?));
    let plain = [
        volume
            .secret
            .as_ref()
            .and_then(|secret| name("Secret", secret.secret_name.as_ref())),
        volume
            .config_map
            .as_ref()
            .map(|config_map| format!("ConfigMap/{}", config_map.name)),
        volume
            .persistent_volume_claim
            .as_ref()
            .map(|claim| format!("PersistentVolumeClaim/{}", claim.claim_name)),
    ];
    let projected = volume
        .projected
        .iter()
        .flat_map(|projected| projected.sources.iter().flatten());
    let projected = projected.flat_map(|source| {
        [
            source.secret.as_ref().map(|item| format!("Secret/{}", item.name)),
            source
                .config_map
                .as_ref()
                .map(|item| format!("ConfigMap/{}", item.name)),
            source
                .service_account_token
                .as_ref()
                .map(|_| format!("the token in volume {}", volume.name)),
        ]
    });
    plain.into_iter().chain(projected).flatten().collect()
}

impl Backend {
    pub fn from_client_config(config: WebhookClientConfig) -> Option<Self> {
        match (config.service, config.url) {
            (Some(service), _) => Some(Self::Service(ServiceName {
                namespace: service.namespace,
                name: service.name,
            })),
            (None, Some(url)) => Some(Self::Url(url)),
            (None, None) => None,
        }
    }

    pub const fn service(&self) -> Option<&ServiceName> {
        match self {
            Self::Service(name) => Some(name),
            Self::Url(_) => None,
        }
    }
}

/// The API server's default for `timeoutSeconds` of a webhook.
const DEFAULT_TIMEOUT_SECONDS: i32 = 10;

/// Both kinds of webhook have the fields that the audit reads, but k8s-openapi has a type for each.
macro_rules! from_webhook {
    ($($function:ident: $webhook:ty, $configuration:literal);+) => {
        impl Webhook {$(
            pub fn $function(configuration: &str, webhook: $webhook) -> Option<Self> {
                Some(Self {
                    configuration: format!(concat!($configuration, "/{}"), configuration),
                    name: webhook.name,
                    fails: webhook.failure_policy.is_none_or(|policy| policy == "Fail"),
                    backend: Backend::from_client_config(webhook.client_config)?,
                    rules: webhook.rules.unwrap_or_default(),
                    namespace_selector: webhook.namespace_selector.unwrap_or_default(),
                    object_selector: webhook.object_selector.unwrap_or_default(),
                    match_conditions: webhook.match_conditions.map_or(0, |conditions| conditions.len()),
                    timeout_seconds: webhook.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS),
                })
            }
        )+}
    };
}

from_webhook!(
    from_validating: ValidatingWebhook, "ValidatingWebhookConfiguration";
    from_mutating: MutatingWebhook, "MutatingWebhookConfiguration"
);

impl std::fmt::Display for ServiceName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Service {}/{}", self.namespace, self.name)
    }
}
