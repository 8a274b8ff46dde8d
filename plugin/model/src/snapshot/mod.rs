//! A control plane and what surrounds it, at one time: plain data, each part of which may be missing with a reason.
//!
//! - [`reading`]: a part that was read, left out, or could not be read
//! - [`management`]: deletions and `MachineHealthChecks`, of the management cluster
//! - [`workload`]: the workload cluster's API server
//! - [`etcd`]: etcd, each member by itself, and which members to believe where they contradict each other
//! - [`change`]: the same for an object that is about to be changed, with its JSON

pub mod change;
pub mod etcd;
pub mod management;
pub mod reading;
pub mod workload;

use std::collections::BTreeSet;

use kcp_api::{Cluster, KubeadmControlPlane, KubeadmControlPlaneSpec, Machine, Object as _};

pub use etcd::{EtcdMember, EtcdMembers, EtcdSurvey, Unqueried};
pub use management::{Deletion, HealthCheck};
pub use reading::{Failure, Forbidden, Reading};
pub use workload::{EndpointCertificate, Workload};

#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub control_plane: KubeadmControlPlane,
    /// Not yet: before Cluster API has linked the two.
    pub cluster: Reading<Cluster>,
    /// Whether the Secret with the workload cluster's kubeconfig exists; none where that was not read.
    pub has_kubeconfig: Option<bool>,
    /// The Machines of the control plane, with their configuration and infrastructure.
    pub machines: Vec<Machine>,
    /// As a plan counts them: those of the survey in `etcd`, if there is one.
    pub etcd_members: EtcdMembers,
    /// Machines of the Cluster's control plane that nothing owns: to be adopted, or left behind.
    pub unowned: Vec<String>,
    /// The Machines that wait for a deletion hook or a finalizer, and what for.
    pub deletions: Vec<Deletion>,
    /// Those of the Cluster.
    pub health_checks: Reading<Vec<HealthCheck>>,
    /// Names of the Cluster's Secrets that exist, of those that were looked up. Where one could not be read and others
    /// could, it is in `unread`.
    pub secrets: Reading<BTreeSet<String>>,
    /// What else could not be read of the management cluster: Machines, infrastructure, bootstrap configurations, single
    /// Secrets, or, when it was listed before, the control plane itself.
    pub unread: Vec<Failure>,
    pub workload: Reading<Workload>,
    pub endpoint_certificate: Reading<EndpointCertificate>,
    pub etcd: Reading<EtcdSurvey>,
}

impl From<KubeadmControlPlane> for Snapshot {
    /// Before anything else was read.
    fn from(control_plane: KubeadmControlPlane) -> Self {
        Self {
            etcd_members: if control_plane.spec.kubeadm_config_spec.has_external_etcd() {
                EtcdMembers::External
            } else {
                EtcdMembers::Unread
            },
            control_plane,
            cluster: Reading::NotYet,
            has_kubeconfig: None,
            machines: Vec::new(),
            unowned: Vec::new(),
            deletions: Vec::new(),
            health_checks: Reading::NotYet,
            secrets: Reading::NotYet,
            unread: Vec::new(),
            workload: Reading::NotYet,
            endpoint_certificate: Reading::NotYet,
            etcd: Reading::NotYet,
        }
    }
}

impl Snapshot {
    pub fn cluster_is_paused(&self) -> bool {
        self.cluster.read().is_some_and(|cluster| cluster.spec.paused)
    }

    /// Whether the infrastructure of its Cluster is ready. A Cluster that could not be read counts as ready.
    pub fn infrastructure_is_ready(&self) -> bool {
        self.cluster.read().map_or(self.is_linked(), |cluster| {
            cluster.status.infrastructure_provisioned
        })
    }

    /// Whether its Cluster has a control plane endpoint. A Cluster that could not be read counts as one that has.
    pub fn has_endpoint(&self) -> bool {
        self.cluster
            .read()
            .map_or(self.is_linked(), Cluster::has_endpoint)
    }

    fn is_linked(&self) -> bool {
        self.control_plane.cluster().is_some()
    }

    /// The failure domains of its Cluster that take control plane Machines, by name.
    pub fn failure_domains(&self) -> Vec<String> {
        let domains = self.cluster.read().into_iter();
        let domains = domains.flat_map(Cluster::control_plane_failure_domains);
        domains.map(str::to_owned).collect()
    }

    /// The version that a managed topology upgrades to before the control plane may change to `desired`.
    pub fn topology_version(&self, desired: &KubeadmControlPlaneSpec) -> Option<&str> {
        let cluster = self.cluster.read()?;
        let step = cluster.topology_upgrade_step().filter(|step| !step.is_empty());
        let version = cluster.spec.topology.as_ref()?.version.as_deref()?;
        let is_reached = version == desired.version() || step == Some(desired.version());
        (!is_reached).then(|| step.unwrap_or(version))
    }

    /// `KubeadmControlPlane/c1-cp`
    pub fn object(&self) -> String {
        format!("KubeadmControlPlane/{}", self.control_plane.name())
    }

    pub fn has_external_etcd(&self) -> bool {
        self.control_plane.spec.kubeadm_config_spec.has_external_etcd()
    }
}
