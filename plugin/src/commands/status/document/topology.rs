//! The managed topology of a Cluster in the document of its control plane.

use jiff::Timestamp;
use kcp_api::{Cluster, Condition};
use kcp_control_plane::{
    snapshot::{Snapshot, Workers, workers::Worker},
    topology::annotation_holding,
};
use serde::Serialize;

/// The managed topology of the Cluster, from which Cluster API's topology controller sets the spec of the control plane.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct TopologyStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The number of Machines that the topology sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i64>,
    /// The time of a rollout that the topology sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_after: Option<Timestamp>,
    /// The Cluster's condition `TopologyReconciled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reconciled: Option<Condition>,
    /// Whether the topology controller has seen the latest change of the Cluster.
    current: bool,
    /// The version of the current step of an upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    upgrade_step: Option<String>,
    /// The versions over which the control plane is still upgraded. Cluster API reports them since 1.14.
    control_plane_upgrades: Vec<String>,
    /// The versions over which the workers are still upgraded.
    worker_upgrades: Vec<String>,
    /// The lifecycle hooks that Cluster API has not completed yet.
    pending_hooks: Vec<String>,
    /// The annotations of the Cluster that keep an upgrade from beginning.
    before_upgrade_hooks: Vec<String>,
    /// Absent if the workers were not read, as in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<Vec<WorkersStatus>>,
    /// Why some workers could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread_workers: Vec<String>,
}

/// A `MachineDeployment` or `MachinePool` of the Cluster.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct WorkersStatus {
    /// The kind and the name, such as `MachineDeployment/md-0`.
    object: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    desired_replicas: Option<i64>,
    ready_replicas: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    up_to_date_replicas: Option<i64>,
    /// The annotation in the topology that keeps the workers from an upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<&'static str>,
}

impl TopologyStatus {
    /// `None` if the Cluster has no managed topology, or was not read.
    pub(super) fn new(observed: &Snapshot) -> Option<Self> {
        let cluster = observed.cluster.value()?;
        let topology = observed.topology()?;
        let texts = |texts: &mut dyn Iterator<Item = &str>| texts.map(str::to_owned).collect();
        let workers = observed.workers.as_deref();
        let status = |worker: &Worker| {
            let machines = worker.machines.clone().unwrap_or_default();
            WorkersStatus {
                object: worker.object.clone(),
                version: worker.version.clone(),
                desired_replicas: machines.desired,
                ready_replicas: machines.ready,
                up_to_date_replicas: machines.up_to_date,
                held_by: annotation_holding(topology, worker).map(|(annotation, _)| annotation),
            }
        };
        let Cluster { status: reported, .. } = cluster;
        Some(Self {
            class: topology.class().map(|class| class.name),
            version: topology.version.clone(),
            replicas: topology.control_plane.replicas,
            rollout_after: topology.control_plane.rollout.after,
            reconciled: reported.topology_reconciled.clone(),
            current: cluster.is_topology_seen(),
            upgrade_step: cluster.topology_upgrade_step().map(str::to_owned),
            control_plane_upgrades: reported.control_plane_upgrades.clone(),
            worker_upgrades: reported.worker_upgrades.clone(),
            pending_hooks: texts(&mut cluster.pending_hooks()),
            before_upgrade_hooks: texts(&mut cluster.before_upgrade_hooks()),
            workers: workers.map(|Workers { workers, .. }| workers.iter().map(status).collect()),
            unread_workers: workers.map_or_else(Vec::new, |workers| workers.read_failures.clone()),
        })
    }
}
