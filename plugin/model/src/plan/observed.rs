//! The facts that a plan is made from.

use kcp_api::{Cluster, KubeadmControlPlane, KubeadmControlPlaneSpec, Machine};

/// A control plane and what surrounds it, at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub control_plane: KubeadmControlPlane,
    /// None before Cluster API has linked the two, and where the Cluster could not be read.
    pub cluster: Option<Cluster>,
    /// Whether the Secret with the workload cluster's kubeconfig exists; none where that was not read.
    pub has_kubeconfig: Option<bool>,
    /// The Machines of the control plane, with what they refer to.
    pub machines: Vec<Machine>,
    pub etcd: Etcd,
}

impl From<KubeadmControlPlane> for Observed {
    /// Before anything else was read.
    fn from(control_plane: KubeadmControlPlane) -> Self {
        Self {
            etcd: if control_plane.spec.kubeadm_config_spec.has_external_etcd() {
                Etcd::External
            } else {
                Etcd::Unread
            },
            control_plane,
            cluster: None,
            has_kubeconfig: None,
            machines: Vec::new(),
        }
    }
}

impl Observed {
    pub const fn spec(&self) -> &KubeadmControlPlaneSpec {
        &self.control_plane.spec
    }

    /// Whether `spec.paused` of its Cluster is set.
    pub fn cluster_is_paused(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.spec.paused)
    }

    /// Whether the infrastructure of its Cluster is ready. A Cluster that could not be read counts as ready.
    pub fn infrastructure_is_ready(&self) -> bool {
        self.cluster.as_ref().map_or(self.is_linked(), |cluster| {
            cluster.status.infrastructure_provisioned
        })
    }

    /// Whether its Cluster has a control plane endpoint. A Cluster that could not be read counts as one that has.
    pub fn has_endpoint(&self) -> bool {
        self.cluster
            .as_ref()
            .map_or(self.is_linked(), Cluster::has_endpoint)
    }

    fn is_linked(&self) -> bool {
        self.control_plane.cluster().is_some()
    }

    /// The failure domains of its Cluster that take control plane Machines, by name.
    pub fn failure_domains(&self) -> Vec<String> {
        let domains = self
            .cluster
            .iter()
            .flat_map(Cluster::control_plane_failure_domains);
        domains.map(str::to_owned).collect()
    }
}

/// What is known of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Etcd {
    /// It runs elsewhere: no concern of the controller's.
    External,
    /// Its members were not read: every Machine that has a node is taken for a member.
    Unread,
    /// Its members.
    Members(Vec<EtcdMember>),
}

/// A member of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdMember {
    /// The name of its node; empty while it has not started.
    pub name: String,
    /// Whether it does not vote yet.
    pub is_learner: bool,
    /// Whether it raises an alarm: no space, or corrupt.
    pub has_alarm: bool,
    /// Whether it leads.
    pub is_leader: bool,
    /// Why it is not taken to take part: it does not answer, is cut off, or nobody could ask it and that counts; none where
    /// it is.
    pub silence: Option<String>,
}

impl Etcd {
    /// Why the member on a node is not taken to take part; none where it is.
    pub fn silence(&self, node: &str) -> Option<&str> {
        match self {
            Self::External | Self::Unread => None,
            Self::Members(members) => {
                let member = members.iter().find(|member| member.name == node)?;
                member.silence.as_deref()
            }
        }
    }

    /// Whether the member on a node raises an alarm.
    pub fn has_alarm(&self, node: &str) -> bool {
        match self {
            Self::External | Self::Unread => false,
            Self::Members(members) => {
                let mut members = members.iter();
                members.any(|member| member.name == node && member.has_alarm)
            }
        }
    }
}
