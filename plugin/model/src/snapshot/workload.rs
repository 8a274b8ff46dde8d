//! What the workload cluster's API server says.

use jiff::Timestamp;

use crate::snapshot::Reading;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// `https://host:port`, where it was reached.
    pub server: String,
    pub nodes: Reading<Vec<Node>>,
    pub static_pods: Reading<Vec<StaticPod>>,
    /// The `DaemonSet` `kube-proxy`; none when there is none.
    pub kube_proxy: Reading<Option<Addon>>,
    /// The Deployment `coredns`; none when there is none.
    pub core_dns: Reading<Option<Addon>>,
    /// The `kubernetesVersion` of `ConfigMap` `kubeadm-config`; none where it does not say.
    pub kubeadm_version: Reading<Option<String>>,
    /// The Leases `kube-controller-manager` and `kube-scheduler`.
    pub leases: Reading<Vec<ControllerLease>>,
}

/// The serving certificate of the workload cluster's endpoint. It is read by itself, because an expired one is the reason why
/// nothing else can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointCertificate {
    /// `https://host:port`, where it was reached.
    pub server: String,
    pub expires: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub created: Option<Timestamp>,
    /// Version of its kubelet, with a leading `v`.
    pub kubelet_version: String,
    /// Condition `Ready`; none while it is unknown or absent.
    pub ready: Option<bool>,
    /// Whether it has the label `node-role.kubernetes.io/control-plane`.
    pub has_control_plane_label: bool,
    /// Whether it has the taint `node-role.kubernetes.io/control-plane:NoSchedule`.
    pub has_control_plane_taint: bool,
    /// Whether the taint `node.kubernetes.io/unreachable:NoExecute` is on it.
    pub is_unreachable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticPod {
    pub component: Component,
    pub node: String,
    /// `Running`, `Pending`, `Failed`, …
    pub phase: String,
    pub ready: bool,
    /// Set while it is being deleted.
    pub deleting: bool,
    /// Why its container waits or has ended, on one line.
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

    /// As kubeadm names its pod, before the node's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Etcd => "etcd",
        }
    }
}

/// Something that kubeadm installs beside the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addon {
    pub desired: i64,
    pub ready: i64,
    /// Of the first container.
    pub image: Option<String>,
}

/// A controller's Lease in `kube-system`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerLease {
    /// `kube-controller-manager` or `kube-scheduler`.
    pub name: String,
    pub holder: Option<String>,
    pub renewed: Option<Timestamp>,
    /// How long it holds, in seconds.
    pub duration_seconds: Option<i64>,
}
