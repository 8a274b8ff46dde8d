//! Objects of the workload cluster, as its API server reports them.

use jiff::Timestamp;

use crate::snapshot::Reading;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The URL of the API server: `https://host:port`.
    pub server: String,
    pub nodes: Reading<Vec<Node>>,
    pub static_pods: Reading<Vec<StaticPod>>,
    /// The `DaemonSet` `kube-proxy`; none if it does not exist.
    pub kube_proxy: Reading<Option<Addon>>,
    /// The Deployment `coredns`; none if it does not exist.
    pub core_dns: Reading<Option<Addon>>,
    pub kubeadm_config: Reading<KubeadmConfigMap>,
    /// The Leases `kube-controller-manager` and `kube-scheduler`.
    pub leases: Reading<Vec<ControllerLease>>,
    /// The settings in the kubeconfig that lower the security of the connection, one line each.
    pub connection_risks: Vec<String>,
}

/// The `ConfigMap` `kubeadm-config`. The controller updates it before each step of a rollout, and joining Machines read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeadmConfigMap {
    /// The key `ClusterConfiguration` can be decoded.
    Usable {
        /// `kubernetesVersion`; none if it is not set.
        version: Option<String>,
    },
    Absent,
    /// The key `ClusterConfiguration` is absent.
    WithoutKey,
    /// The key `ClusterConfiguration` cannot be decoded.
    Undecodable,
}

impl KubeadmConfigMap {
    /// Why the controller cannot update the `ConfigMap`; none if it can.
    pub const fn problem(&self) -> Option<&'static str> {
        match self {
            Self::Usable { .. } => None,
            Self::Absent => Some("does not exist"),
            Self::WithoutKey => Some("has no key ClusterConfiguration"),
            Self::Undecodable => Some("has a key ClusterConfiguration that cannot be decoded"),
        }
    }
}

/// The serving certificate of the workload cluster's endpoint. It is read separately, because no other read succeeds once
/// the certificate has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointCertificate {
    /// The URL of the API server: `https://host:port`.
    pub server: String,
    pub expires: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// `spec.providerID`: the same as that of the node's Machine.
    pub provider_id: Option<String>,
    pub created: Option<Timestamp>,
    /// The kubelet's version, with a leading `v`.
    pub kubelet_version: String,
    /// The condition `Ready`; none if its status is Unknown or it is absent.
    pub ready: Option<bool>,
    /// Whether the node has the label `node-role.kubernetes.io/control-plane`.
    pub has_control_plane_label: bool,
    /// Whether the node has the taint `node-role.kubernetes.io/control-plane:NoSchedule`.
    pub has_control_plane_taint: bool,
    /// Whether the node has the taint `node.kubernetes.io/unreachable:NoExecute`.
    pub is_unreachable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticPod {
    pub component: Component,
    pub node: String,
    /// `Running`, `Pending`, `Failed`, …
    pub phase: String,
    pub ready: bool,
    pub deleting: bool,
    /// Why the container is waiting or has terminated, on one line.
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    ApiServer,
    ControllerManager,
    Scheduler,
    Etcd,
}

impl Component {
    pub const ALL: [Self; 4] = [
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Etcd,
    ];

    /// The name of the component's pod without the node's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Etcd => "etcd",
        }
    }
}

/// An add-on that kubeadm installs: kube-proxy or `CoreDNS`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addon {
    pub desired: i64,
    pub ready: i64,
    /// The image of the first container.
    pub image: Option<String>,
}

/// The leader election Lease of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerLease {
    /// `kube-controller-manager`, `kube-scheduler`, or [`names::lease::CONTROL_PLANE`](kcp_api::names::lease::CONTROL_PLANE).
    pub name: String,
    pub holder: Option<String>,
    pub renewed: Option<Timestamp>,
    pub duration_seconds: Option<i64>,
}
