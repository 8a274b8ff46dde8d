//! The workers of a Cluster: what creates their Machines, and their Nodes.

use kcp_api::Machine;

use super::{Reading, Workload};

/// A worker node, or an owner of worker Machines, with the version of its kubelets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Worker {
    /// The worker node or the owner, such as `Node/w1` or `MachineDeployment/md-0`.
    pub object: String,
    /// The version of the kubelets, with a leading `v`.
    pub version: String,
    /// The Machines of an owner. `None` for a Node.
    pub machines: Option<WorkerMachines>,
}

/// The Machines of a `MachineDeployment` or `MachinePool`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerMachines {
    /// The owner's name in the managed topology of its Cluster. `None` if it is not part of a topology.
    pub topology_name: Option<String>,
    /// `None` if the number is not set.
    pub desired: Option<i64>,
    pub ready: i64,
    /// `None` if the owner does not report it.
    pub up_to_date: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workers {
    pub workers: Vec<Worker>,
    /// The workers that could not be read: one line for each source.
    pub read_failures: Vec<String>,
}

impl Workers {
    /// Adds the workload cluster's nodes that do not belong to the control plane.
    pub fn with_nodes(mut self, workload: &Reading<Workload>, machines: &[Machine]) -> Self {
        let nodes = workload.part(|workload| &workload.nodes);
        let Reading::Read(nodes) = nodes else {
            let why = nodes.failure().map_or_else(
                || "the workload cluster was not read".to_owned(),
                |failure| failure.message.clone(),
            );
            self.read_failures
                .push(format!("could not read the kubelet versions of the nodes: {why}"));
            return self;
        };
        let is_control_plane = |name: &str| machines.iter().any(|machine| machine.node() == Some(name));
        let workers = nodes
            .iter()
            .filter(|node| !node.has_control_plane_label && !is_control_plane(&node.name));
        self.workers.extend(workers.map(|node| Worker {
            object: format!("Node/{}", node.name),
            version: node.kubelet_version.clone(),
            machines: None,
        }));
        self
    }
}
