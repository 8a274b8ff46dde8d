//! The objects of the workload cluster, as its API server reports them.

use jiff::Timestamp;
use kcp_api::{Condition, Machine, Object as _};

use crate::snapshot::Reading;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The URL of the workload cluster's API server, as `https://host:port`.
    pub server: String,
    pub nodes: Reading<Vec<Node>>,
    pub static_pods: Reading<Vec<StaticPod>>,
    /// The `DaemonSet` `kube-proxy`. `None` if it does not exist.
    pub kube_proxy: Reading<Option<Addon>>,
    /// The Deployment `coredns`. `None` if it does not exist.
    pub core_dns: Reading<Option<Addon>>,
    pub kubeadm_config: Reading<KubeadmConfigMap>,
    /// The Leases `kube-controller-manager` and `kube-scheduler`.
    pub leases: Reading<Vec<ControllerLease>>,
    /// What hosts report about their joins. Empty if it could not be read, because it only adds to what other sources say.
    pub join_reports: Vec<JoinReport>,
    /// The settings in the kubeconfig that lower the security of the connection: one line for each.
    pub connection_risks: Vec<String>,
}

impl Workload {
    /// The newest report of the host of a Machine.
    pub fn join_report(&self, machine: &Machine) -> Option<&JoinReport> {
        let created = machine.creation_timestamp()?;
        // An earlier Machine may have had the same address.
        let reports = self
            .join_reports
            .iter()
            .filter(|report| report.reported >= created);
        let own = reports.filter(|report| report.is_of(machine));
        own.max_by_key(|report| report.reported)
    }
}

/// An Event by which a host reports why its join fails: see `kubectl kcp generate join-report`. Anyone with a bootstrap token can
/// create such an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReport {
    /// The name that the host has given itself.
    pub host: String,
    pub addresses: Vec<String>,
    /// Whether kubeadm has failed. If not, it still runs, for longer than usual.
    pub has_failed: bool,
    /// One line of bounded length.
    pub text: String,
    /// When the API server stored the report. The clock of the host may be wrong.
    pub reported: Timestamp,
}

impl JoinReport {
    /// The namespace of the Events. A bootstrap token permits Events in no other namespace.
    pub const NAMESPACE: &str = "kcp-join-reports";
    /// The `reportingController` of the Events.
    pub const CONTROLLER: &str = "kubectl-kcp.dev/join-report";
    /// The reason of an Event about a kubeadm that has failed.
    pub const FAILED: &str = "KubeadmFailed";
    /// The annotation with the IP addresses of the host, separated by spaces.
    pub const ADDRESSES: &str = "kubectl-kcp.dev/host-addresses";

    fn is_of(&self, machine: &Machine) -> bool {
        let known = &machine.status.addresses;
        self.host == machine.name()
            || known.contains(&self.host)
            || self.addresses.iter().any(|address| known.contains(address))
    }

    /// The report, with its host as the source.
    pub fn sentence(&self) -> String {
        format!("its host {} reports: {}", self.host, self.text)
    }
}

/// The `ConfigMap` `kubeadm-config`. The controller updates it before each step of a rollout, and joining Machines read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeadmConfigMap {
    /// The key `ClusterConfiguration` of the `ConfigMap` can be decoded.
    Usable {
        /// The field `kubernetesVersion`. `None` if it is not set.
        version: Option<String>,
    },
    Absent,
    /// The `ConfigMap` has no key `ClusterConfiguration`.
    WithoutKey,
    /// The key `ClusterConfiguration` of the `ConfigMap` cannot be decoded.
    Undecodable,
}

impl KubeadmConfigMap {
    /// Why the controller cannot update the `ConfigMap`. `None` if it can.
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
    /// The URL of the workload cluster's API server, as `https://host:port`.
    pub server: String,
    pub expires_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// `spec.providerID`, which equals `spec.providerID` of the node's Machine. `None` if unset.
    pub provider_id: Option<String>,
    /// The name of the Machine that Cluster API has recorded on the node. `None` if it has recorded none.
    pub machine: Option<String>,
    pub created: Option<Timestamp>,
    /// The version of the node's kubelet, with a leading `v`.
    pub kubelet_version: String,
    /// Whether the condition `Ready` is True. `None` if its status is Unknown or the condition is absent.
    pub ready: Option<bool>,
    /// When the status of the condition `Ready` last changed.
    pub ready_since: Option<Timestamp>,
    /// Whether the node has the label `node-role.kubernetes.io/control-plane`.
    pub has_control_plane_label: bool,
    /// Whether the node has the taint `node-role.kubernetes.io/control-plane:NoSchedule`.
    pub has_control_plane_taint: bool,
    /// Whether the node has the taint `node.kubernetes.io/unreachable:NoExecute`.
    pub is_unreachable: bool,
    /// The conditions that report a problem: `Ready` if it is not True, and each other condition that is not False.
    pub problems: Vec<Condition>,
    /// The taints, as `KEY:EFFECT` or `KEY=VALUE:EFFECT`.
    pub taints: Vec<String>,
    /// The names, with tags, of the images of etcd that the kubelet lists.
    pub etcd_images: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticPod {
    pub component: Component,
    pub node: String,
    /// The phase of the pod, such as `Running`, `Pending` or `Failed`.
    pub phase: String,
    pub ready: bool,
    /// When the status of the condition `Ready` last changed.
    pub ready_since: Option<Timestamp>,
    pub is_deleting: bool,
    /// Why a container of the pod is waiting or has terminated, on one line. `None` if all run.
    pub message: Option<String>,
    /// How many times its containers have been restarted.
    pub restarts: u32,
    /// How a container last ended before it was restarted, such as `exit code 1: unknown flag: --a`. `None` if no container
    /// was restarted.
    pub last_exit: Option<String>,
    /// `None` unless kubelet waits before it starts a container again (`CrashLoopBackOff`).
    pub crash_loop: Option<CrashLoop>,
    /// Whether its command has `--force-new-cluster`, with which each start of etcd removes all other members.
    pub forces_new_cluster: bool,
}

/// A container that ends again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashLoop {
    /// When the container last ended. `None` if kubelet does not say it.
    pub ended: Option<Timestamp>,
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

    /// The name of the component's static pod, without the name of the node.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Etcd => "etcd",
        }
    }

    /// The command that shows the component's log on the host, which needs no API server.
    pub fn log_command_on_host(self) -> String {
        let name = self.as_str();
        format!("crictl logs $(crictl ps -a --name {name} --latest -q)")
    }
}

/// An add-on that kubeadm installs: kube-proxy or `CoreDNS`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addon {
    pub desired_pods: i64,
    pub ready_pods: i64,
    /// The image of the container with the add-on's name, which Cluster API updates. `None` if there is no such container.
    pub image: Option<String>,
    /// Whether the add-on has no `ConfigMap`. Without its `ConfigMap`, Cluster API does not update `CoreDNS`.
    pub lacks_config: bool,
}

/// The leader election Lease of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerLease {
    /// The name of the Lease: `kube-controller-manager`, `kube-scheduler`, or
    /// [`names::lease::CONTROL_PLANE`](kcp_api::names::lease::CONTROL_PLANE).
    pub name: String,
    pub holder: Option<String>,
    /// When the holder began to lead. A controller that restarts has another identity, so this is after its start.
    pub acquired: Option<Timestamp>,
    pub renewed: Option<Timestamp>,
    pub duration_seconds: Option<i64>,
}

/// The leader election Leases of Cluster API's controllers that bootstrap, drain and delete Machines. `None` if a Lease does not
/// exist.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineLeases {
    pub core: Reading<Option<ControllerLease>>,
    pub bootstrap: Reading<Option<ControllerLease>>,
}

impl Default for MachineLeases {
    fn default() -> Self {
        Self {
            core: Reading::NotYet,
            bootstrap: Reading::NotYet,
        }
    }
}
