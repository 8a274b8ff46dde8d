//! A control plane, its Machines, its workload cluster and etcd at one time. A part that was not read contains the
//! reason.
//!
//! - [`reading`]: a part that was read, excluded by a flag, or failed
//! - [`management`]: deletions and `MachineHealthChecks` in the management cluster
//! - [`workload`]: nodes, static pods and add-ons of the workload cluster
//! - [`workers`]: what creates the Machines of workers, and their Nodes
//! - [`etcd`]: the status of each etcd member, and which report counts if members contradict each other
//! - [`drain`]: the pods of the nodes, and the objects that decide how the nodes are drained
//! - [`ca_rotation`]: how far the rotation of a CA is
//! - [`certificates`]: when each certificate of the control plane expires, and who renews it
//! - [`change`]: a snapshot for a change, with the JSON of the object to change

pub mod ca_rotation;
pub mod certificates;
pub mod change;
pub mod drain;
pub mod etcd;
pub mod management;
pub mod reading;
pub mod workers;
pub mod workload;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kcp_api::{
    Cluster, KubeadmControlPlane, KubeadmControlPlaneSpec, Machine, Object as _, Reference, Remediation,
    cluster::{Topology, TopologyControlPlane},
    names::label,
};
use kcp_rules::syntax::parse_version;

use certificates::Certificate;
pub use drain::DrainObjects;
pub use etcd::{EtcdMember, EtcdMembers, EtcdSurvey};
pub use management::{Deletion, FailedWrite, HealthCheck};
pub use reading::{Failure, Forbidden, Reading};
pub use workers::Workers;
pub use workload::{ControllerLease, EndpointCertificate, MachineLeases, Workload};

use crate::{
    controller_release::Release,
    quorum::Votes,
    snapshot::workload::{Component, StaticPod},
};

#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub control_plane: KubeadmControlPlane,
    /// When the command first saw the current generation of the spec, if the controller had not processed it then. `None` for a
    /// command that reads once.
    pub unprocessed_seen: Option<Timestamp>,
    /// The Cluster of the control plane. `NotYet` until Cluster API labels the control plane with the
    /// Cluster's name.
    pub cluster: Reading<Cluster>,
    /// For each infrastructure template to which the spec or a planned spec refers, whether the template
    /// exists. The map has no entry for a template that was not read.
    pub templates: BTreeMap<Reference, Reading<bool>>,
    /// Whether the Secret with the workload cluster's kubeconfig exists. `None` if the Secret was not read.
    pub has_kubeconfig: Option<bool>,
    /// Whether the Secret with the CA of etcd exists. `None` if the Secret was not read.
    pub has_etcd_ca: Option<bool>,
    /// The workers of a Cluster with a managed topology. `None` if they were not read.
    pub workers: Option<Box<Workers>>,
    /// The Machines of the control plane, with their bootstrap configuration and infrastructure template.
    pub machines: Vec<Machine>,
    /// The etcd members that are used if `etcd` was not read. Call [`Self::members`], which prefers `etcd`.
    pub etcd_members: EtcdMembers,
    /// Control plane Machines of the Cluster that another owner controls.
    pub machines_of_other_owners: Vec<Machine>,
    /// The deletions of Machines that wait for a deletion hook or a finalizer.
    pub deletions: Vec<Deletion>,
    /// The handlers of runtime extensions that may update Machines of this namespace in place. Only a plan reads them.
    pub in_place_handlers: Reading<Vec<String>>,
    /// The `MachineHealthChecks` of the Cluster.
    pub health_checks: Reading<Vec<HealthCheck>>,
    /// The names of the Cluster's Secrets that exist. A single Secret that could not be read is in `failed_reads`.
    pub secrets: Reading<BTreeSet<String>>,
    /// The names of the Cluster's Secrets that exist without an owner.
    pub unowned_secrets: BTreeSet<String>,
    /// The certificates in the Cluster's Secrets that exist.
    pub certificates: Reading<Vec<Certificate>>,
    /// The failed reads in the management cluster that no other field contains: of Machines, infrastructure, bootstrap
    /// configurations, single Secrets, or of the control plane itself if the command only listed control planes.
    pub failed_reads: Vec<Failure>,
    /// The version of the control plane controller, such as `v1.14.2`. `None` if its Deployment was not found or has no version.
    pub controller_version: Reading<Option<String>>,
    /// The leader election Lease of the control plane controller. `None` if the Lease does not exist. It is read only if
    /// the controller has not processed the spec.
    pub controller_lease: Reading<Option<ControllerLease>>,
    /// The Leases of Cluster API's other controllers, on which the Machines depend.
    pub machine_leases: Box<MachineLeases>,
    /// The Events of the control plane controller about Machines that it could not create or delete. They are read only while
    /// a change is pending.
    pub failed_writes: Reading<Vec<FailedWrite>>,
    pub workload: Reading<Workload>,
    pub endpoint_certificate: Reading<EndpointCertificate>,
    pub etcd: Reading<EtcdSurvey>,
    /// The objects that decide how Cluster API drains the nodes. They are read only for a change or a plan.
    pub drain: Box<Reading<DrainObjects>>,
}

impl From<KubeadmControlPlane> for Snapshot {
    /// Returns a snapshot in which only the control plane has been read.
    fn from(control_plane: KubeadmControlPlane) -> Self {
        Self {
            etcd_members: if control_plane.spec.kubeadm_config_spec.has_external_etcd() {
                EtcdMembers::External
            } else {
                EtcdMembers::Unread
            },
            control_plane,
            unprocessed_seen: None,
            cluster: Reading::NotYet,
            templates: BTreeMap::new(),
            has_kubeconfig: None,
            has_etcd_ca: None,
            workers: None,
            machines: Vec::new(),
            machines_of_other_owners: Vec::new(),
            deletions: Vec::new(),
            in_place_handlers: Reading::NotYet,
            health_checks: Reading::NotYet,
            secrets: Reading::NotYet,
            unowned_secrets: BTreeSet::new(),
            certificates: Reading::NotYet,
            failed_reads: Vec::new(),
            controller_version: Reading::NotYet,
            controller_lease: Reading::NotYet,
            machine_leases: Box::default(),
            failed_writes: Reading::NotYet,
            workload: Reading::NotYet,
            endpoint_certificate: Reading::NotYet,
            etcd: Reading::NotYet,
            drain: Box::new(Reading::NotYet),
        }
    }
}

impl Snapshot {
    /// Whether the control plane or its Cluster is paused, or the controller reports that one of them is
    /// paused.
    pub fn is_paused(&self) -> bool {
        let control_plane = &self.control_plane;
        control_plane.is_paused() || control_plane.is_condition_true("Paused") || self.is_cluster_paused()
    }

    /// The remediation that has deleted a Machine, and has not created its replacement yet. The annotation is outdated if a Machine was
    /// created after its timestamp.
    pub fn remediation_in_progress(&self) -> Option<Remediation> {
        let remediation = self.control_plane.remediation_in_progress()?;
        let created = self.machines.iter().filter_map(Machine::creation_timestamp);
        let newest = created.max();
        (newest.is_none() || newest <= remediation.timestamp).then_some(remediation)
    }

    /// The release that predictions follow: the controller's release, or the latest known release if the former is unknown.
    pub fn release(&self) -> Release {
        self.controller_release().unwrap_or(Release::LATEST)
    }

    fn controller_release(&self) -> Option<Release> {
        self.controller_version
            .value()
            .and_then(|version| Release::parse(version.as_ref()?))
    }

    /// Says which release predictions follow, if it is not certain that the controller decides in the same way. `None` if the
    /// release is certain, or if the command did not read the version.
    pub fn version_note(&self) -> Option<String> {
        let (version, unknown) = match &self.controller_version {
            Reading::Read(version) => (version.as_deref(), "is unknown"),
            Reading::Failed(_) => (None, "could not be read"),
            Reading::Excluded { .. } | Reading::NotYet | Reading::OutOfReach(_) => return None,
        };
        let assumed = |release: Release| format!("so the predictions assume {release}");
        match (version, self.controller_release()) {
            (_, Some(release)) if release.is_known() => None,
            (Some(version), Some(release)) => Some(format!(
                "Cluster API's version is {version}, {}",
                assumed(release.clamp(Release::OLDEST, Release::LATEST))
            )),
            (Some(version), None) => Some(format!(
                "Cluster API's version is unknown, because {version:?} is not a version of Cluster API 1, {}",
                assumed(Release::LATEST)
            )),
            (None, _) => Some(format!(
                "Cluster API's version {unknown}, {}",
                assumed(Release::LATEST)
            )),
        }
    }

    /// When the spec changed that the controller has not processed yet. If the time of the write is unknown: when the command first
    /// saw the spec. `None` if the controller has processed the spec, or if neither time is known.
    pub fn unprocessed_since(&self) -> Option<Timestamp> {
        let seen = self
            .unprocessed_seen
            .filter(|_| !self.control_plane.is_observed());
        self.control_plane.unprocessed_since().or(seen)
    }

    /// Whether no `MachineHealthCheck` selects a Machine of the control plane. False if the `MachineHealthChecks` were not read.
    pub fn is_without_health_check(&self) -> bool {
        let mut checks = self.health_checks.value().into_iter().flatten();
        self.health_checks.value().is_some() && checks.all(|check| check.targets.is_empty())
    }

    pub fn is_cluster_paused(&self) -> bool {
        self.cluster.value().is_some_and(|cluster| cluster.spec.paused)
    }

    /// The field manager that paused the Cluster. `None` if the Cluster is not paused or the manager is not known.
    pub fn cluster_paused_by(&self) -> Option<&str> {
        let (manager, _) = self.cluster.value()?.paused_by()?;
        Some(manager)
    }

    /// The Machines without a controlling owner. The control plane controller has not adopted them yet.
    pub fn unowned_machines(&self) -> impl Iterator<Item = &Machine> {
        self.machines
            .iter()
            .filter(|machine| machine.controller().is_none())
    }

    /// The name of the Machine's node. While the Machine does not reference its node, this is the node of the workload
    /// cluster with the same provider id, as in Cluster API (`tryGetEtcdMemberName`).
    pub fn node_of<'s>(&'s self, machine: &'s Machine) -> Option<&'s str> {
        machine.node().or_else(|| {
            let id = machine.spec.provider_id.as_ref()?;
            let nodes = self.workload.value()?.nodes.value()?;
            let mut matching = nodes.iter().filter(|node| node.provider_id.as_ref() == Some(id));
            let first = matching.next()?;
            matching.next().is_none().then_some(first.name.as_str())
        })
    }

    /// The name of the Secret with the CA if the controller cannot create the missing kubeconfig without it
    /// (`reconcileKubeconfig`). `None` if the kubeconfig or the CA exists, or was not read.
    pub fn missing_ca(&self) -> Option<String> {
        let ca = format!("{}-ca", self.control_plane.cluster()?);
        let exists = self.secrets.value()?.contains(&ca);
        let object = format!("Secret/{ca}");
        let is_unread = self.failed_reads.iter().any(|failure| failure.object == object);
        (self.has_kubeconfig == Some(false) && !exists && !is_unread).then_some(ca)
    }

    /// Whether the Cluster's infrastructure is ready. A Cluster that was not read counts as ready, unless the control plane has no
    /// Cluster yet.
    pub fn is_infrastructure_ready(&self) -> bool {
        self.cluster.value().map_or(self.is_linked(), |cluster| {
            cluster.status.infrastructure_provisioned
        })
    }

    /// Whether Cluster API's topology controller sets the spec of the control plane.
    pub fn has_managed_topology(&self) -> bool {
        let cluster = self.cluster.value();
        // The label decides if the Cluster could not be read.
        cluster.map_or_else(
            || self.control_plane.metadata.label(label::TOPOLOGY_OWNED).is_some(),
            |cluster| cluster.spec.topology.is_some(),
        )
    }

    /// The managed topology of the Cluster. `None` if the Cluster has none, or was not read.
    pub fn topology(&self) -> Option<&Topology> {
        self.cluster.value()?.spec.topology.as_ref()
    }

    /// The number of Machines in the Cluster's topology, or else the number in the control plane's spec.
    pub fn asked_replicas(&self) -> Option<i64> {
        let of_topology = self
            .topology()
            .and_then(|topology| topology.control_plane.replicas);
        of_topology.or(self.control_plane.spec.replicas)
    }

    /// Changes the version of the Cluster's managed topology.
    pub fn set_topology_version(&mut self, version: &str) {
        if let Reading::Read(cluster) = &mut self.cluster
            && let Some(topology) = &mut cluster.spec.topology
        {
            topology.version = Some(version.to_owned());
        }
    }

    /// Whether the spec refers to an infrastructure template that does not exist.
    pub fn lacks_template(&self, spec: &KubeadmControlPlaneSpec) -> bool {
        matches!(
            self.templates.get(&spec.infrastructure_ref),
            Some(Reading::Read(false))
        )
    }

    /// Whether the Cluster has a control plane endpoint. A Cluster that was not read counts as having one, unless the control plane
    /// has no Cluster yet.
    pub fn has_endpoint(&self) -> bool {
        self.cluster
            .value()
            .map_or(self.is_linked(), Cluster::has_endpoint)
    }

    fn is_linked(&self) -> bool {
        self.control_plane.cluster().is_some()
    }

    /// The names of the failure domains in which Cluster API may create control plane Machines.
    pub fn failure_domains(&self) -> Vec<String> {
        let domains = self.cluster.value().into_iter();
        let domains = domains.flat_map(Cluster::control_plane_failure_domains);
        domains.map(str::to_owned).collect()
    }

    /// The version that the Cluster's topology requires before the controller applies `desired`. `None` if no version is
    /// pending.
    pub fn topology_version(&self, desired: &KubeadmControlPlaneSpec) -> Option<&str> {
        let cluster = self.cluster.value()?;
        let step = cluster.topology_upgrade_step().filter(|step| !step.is_empty());
        let version = self.topology()?.version.as_deref()?;
        let is_reached = version == desired.version() || step == Some(desired.version());
        (!is_reached).then(|| step.unwrap_or(version))
    }

    /// The values of the Cluster's topology, besides the version, that the topology controller has not carried over to the control
    /// plane yet: one line each.
    pub fn pending_topology_values(&self) -> Vec<String> {
        let Some(topology) = self.topology() else {
            return Vec::new();
        };
        let spec = &self.control_plane.spec;
        let TopologyControlPlane { replicas, rollout } = &topology.control_plane;
        let replicas = replicas.filter(|replicas| spec.replicas != Some(*replicas));
        let after = rollout.after.filter(|after| spec.rollout_after != Some(*after));
        let line = |field: &str, value: String| {
            format!(
                "Cluster API's topology controller has not set the control plane's {field} to {value} yet"
            )
        };
        let replicas = replicas.map(|replicas| line("replicas", replicas.to_string()));
        let after = after.map(|after| line("rollout time", after.to_string()));
        replicas.into_iter().chain(after).collect()
    }

    /// The name of the control plane in messages, such as `KubeadmControlPlane/c1-cp`.
    pub fn object_name(&self) -> String {
        format!("KubeadmControlPlane/{}", self.control_plane.name())
    }

    /// Whether the workload cluster's API server answers a request for the static pods.
    pub fn are_static_pods_read(&self) -> bool {
        let workload = self.workload.value();
        workload.is_some_and(|workload| workload.static_pods.value().is_some())
    }

    /// The command that runs kubectl with these arguments against the workload cluster.
    pub fn kubectl_in_workload(&self, arguments: &str) -> String {
        let (name, namespace) = (self.control_plane.name(), self.control_plane.namespace());
        format!("kubectl kcp kubectl {name} -n {namespace} -- {arguments}")
    }

    /// The command that ends the wait of the control plane controller after an error.
    pub fn reconcile_command(&self) -> String {
        let (name, namespace) = (self.control_plane.name(), self.control_plane.namespace());
        format!("kubectl kcp reconcile {name} -n {namespace}")
    }

    /// The command that brings back an etcd that has lost its quorum for good.
    pub fn recover_command(&self) -> String {
        let (name, namespace) = (self.control_plane.name(), self.control_plane.namespace());
        format!("kubectl kcp etcd recover {name} -n {namespace}")
    }

    pub fn restore_command(&self) -> String {
        let (name, namespace) = (self.control_plane.name(), self.control_plane.namespace());
        format!("kubectl kcp etcd restore {name} -n {namespace} --from FILE --output-file SCRIPT")
    }

    /// The etcd members. Every decision about etcd members uses this function.
    pub fn members(&self) -> EtcdMembers {
        let Some(survey) = self.etcd.value() else {
            return self.etcd_members.clone();
        };
        match survey.members(&self.machines) {
            EtcdMembers::Unread if survey.api_server_lacks_etcd => self.members_without_quorum(),
            EtcdMembers::Read(mut members) if self.kubeadm_needs_every_member() => {
                for member in &mut members {
                    member.admits_by_quorum = false;
                }
                EtcdMembers::Read(members)
            }
            members => members,
        }
    }

    /// Whether kubeadm on a new Machine joins only if every etcd member responds (its phase `check-etcd`). kubeadm 1.36.1 and later
    /// need a majority (kubernetes/kubernetes#138403). So do the last patch versions of earlier minor versions; this function counts
    /// them as old.
    fn kubeadm_needs_every_member(&self) -> bool {
        let version = self.control_plane.spec.version.as_deref();
        let version = version.and_then(|version| parse_version(version).ok());
        version.is_none_or(|version| (version.major, version.minor, version.patch) < (1, 36, 1))
    }

    /// Whether a condition of the Machine, or the pod on its node, says that the Machine's etcd member is
    /// unhealthy.
    pub fn is_etcd_reported_down(&self, machine: &Machine) -> bool {
        let pods = self
            .workload
            .value()
            .and_then(|workload| workload.static_pods.value());
        let mut pods = pods.into_iter().flatten();
        let is_down = |pod: &StaticPod| {
            pod.component == Component::Etcd
                && !pod.ready
                && !pod.is_deleting
                && machine.node() == Some(pod.node.as_str())
        };
        machine.is_condition_false("EtcdPodHealthy")
            || machine.is_condition_false("EtcdMemberHealthy")
            || pods.any(is_down)
    }

    /// The etcd members if none of them responds and the API server reports that etcd does not respond
    /// either. The members that the conditions and pods report as unhealthy count as unhealthy, as in
    /// `status`. If they do not explain the loss of quorum, all members count as unhealthy.
    fn members_without_quorum(&self) -> EtcdMembers {
        let joined = || self.machines.iter().filter(|machine| machine.has_node());
        let down = joined()
            .filter(|machine| self.is_etcd_reported_down(machine))
            .count();
        let votes = Votes {
            voters: joined().count(),
            unhealthy: down,
            starting: 0,
        };
        let is_explained = !votes.has_quorum();
        let unhealthy = joined().map(|machine| {
            let is_unhealthy = !is_explained || self.is_etcd_reported_down(machine);
            (machine.node().unwrap_or_default(), is_unhealthy)
        });
        let members = unhealthy.map(|(node, is_unhealthy)| EtcdMember {
            name: node.to_owned(),
            fault: is_unhealthy.then(|| {
                "does not respond, and the API server reports that etcd does not respond".to_owned()
            }),
            ..EtcdMember::default()
        });
        EtcdMembers::Read(members.collect())
    }

    pub fn has_external_etcd(&self) -> bool {
        self.control_plane.spec.kubeadm_config_spec.has_external_etcd()
    }
}

#[cfg(test)]
mod tests {
    use super::{EtcdMembers, Reading, Snapshot};
    use crate::{
        checks::etcd_quorum::check_etcd_no_quorum,
        controller_release::Release,
        plan::{Desired, messages, plan, step::NoPlan},
        testing::{
            objects::now,
            snapshot::{failure, observed},
        },
    };

    /// No member responds, neither here nor to the API server.
    fn without_quorum() -> Snapshot {
        let mut observed = observed();
        for queried in &mut observed.survey().queried {
            queried.response = Err(failure("etcd member", "connecting: no answer within 2.2 s"));
        }
        observed.survey().api_server_lacks_etcd = true;
        observed
    }

    #[test]
    fn an_unknown_release_is_told() {
        let read = |version: &str| Reading::Read(Some(version.to_owned()));
        for (version, followed, note) in [
            (Reading::NotYet, Release::LATEST, None),
            (read("v1.11.5"), Release::new(11, 5), None),
            (read("v1.14.9"), Release::new(14, 9), None),
            (
                read("v1.15.0"),
                Release::new(15, 0),
                Some("Cluster API's version is v1.15.0, so the predictions assume v1.14.2"),
            ),
            (
                read("v1.10.4"),
                Release::new(10, 4),
                Some("Cluster API's version is v1.10.4, so the predictions assume v1.11.0"),
            ),
            (
                read("latest"),
                Release::LATEST,
                Some(
                    "Cluster API's version is unknown, because \"latest\" is not a version of Cluster API 1, so the \
                     predictions assume v1.14.2",
                ),
            ),
            (
                Reading::Read(None),
                Release::LATEST,
                Some("Cluster API's version is unknown, so the predictions assume v1.14.2"),
            ),
            (
                Reading::Failed(failure("Deployment/c", "no answer within 2s")),
                Release::LATEST,
                Some("Cluster API's version could not be read, so the predictions assume v1.14.2"),
            ),
        ] {
            let mut observed = observed();
            observed.controller_version = version;
            assert_eq!(observed.release(), followed);
            assert_eq!(observed.version_note().as_deref(), note);
        }
    }

    #[test]
    fn without_quorum_the_verbs_and_status_count_the_same_members() {
        let mut observed = without_quorum();
        for (number, counted) in [
            (2, "0 of 3 voting members healthy, 2 needed for quorum"),
            (3, "1 of 3 voting members healthy, 2 needed for quorum"),
        ] {
            // One pod alone does not explain the loss of quorum, so no member counts as healthy.
            observed.kill(number);
            let planned = plan(&observed, &Desired::current(&observed), now());
            let Err(no_plan @ NoPlan::QuorumLost { .. }) = planned.steps else {
                panic!("{:?}", planned.steps);
            };
            assert_eq!(
                messages::no_plan(&no_plan),
                format!("etcd has lost quorum: {counted}")
            );
        }
        let findings = check_etcd_no_quorum(&observed, now()).expect("a result");
        assert_eq!(
            findings[0].message,
            "quorum is lost: 1 of 3 voting members healthy, 2 needed for quorum (from pods and Machine conditions)"
        );
        assert!(matches!(observed.members(), EtcdMembers::Read(members) if members.len() == 3));
    }
}
