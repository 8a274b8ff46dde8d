//! The workers of a cluster: nodes outside the control plane, and the objects that create them.

use kcp_api::Machine;

use crate::{
    kubelet_skew::Worker,
    snapshot::{Reading, Workload},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workers {
    /// Workers that report a version.
    pub known: Vec<Worker>,
    /// What could not be read, a line each.
    pub unread: Vec<String>,
}

impl Workers {
    /// Adds the nodes of the workload cluster that do not belong to the control plane.
    pub fn with_nodes(mut self, workload: &Reading<Workload>, machines: &[Machine]) -> Self {
        let nodes = workload.part(|workload| &workload.nodes);
        let Reading::Read(nodes) = nodes else {
            let why = nodes.failure().map_or_else(
                || "the workload cluster was not queried".to_owned(),
                |failure| failure.message.clone(),
            );
            self.unread
                .push(format!("the nodes' kubelets were not read: {why}"));
            return self;
        };
        let is_control_plane = |name: &str| machines.iter().any(|machine| machine.node() == Some(name));
        let workers = nodes
            .iter()
            .filter(|node| !node.has_control_plane_label && !is_control_plane(&node.name));
        self.known.extend(workers.map(|node| Worker {
            object: format!("Node/{}", node.name),
            version: node.kubelet_version.clone(),
        }));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Workers;
    use crate::{
        kubelet_skew::Worker,
        snapshot::{Failure, Reading, Workload, workload::Node},
        testing::plan::machine,
    };

    fn worker(object: &str, version: &str) -> Worker {
        Worker {
            object: object.to_owned(),
            version: version.to_owned(),
        }
    }

    fn workload(nodes: Reading<Vec<Node>>) -> Reading<Workload> {
        Reading::Read(Workload {
            server: "https://c1".to_owned(),
            nodes,
            static_pods: Reading::NotYet,
            kube_proxy: Reading::NotYet,
            core_dns: Reading::NotYet,
            kubeadm_version: Reading::NotYet,
            leases: Reading::NotYet,
        })
    }

    #[test]
    fn nodes_of_the_control_plane_are_no_workers() {
        let node = |name: &str, has_control_plane_label| Node {
            name: name.to_owned(),
            kubelet_version: "v1.31.0".to_owned(),
            has_control_plane_label,
            ..Node::default()
        };
        let nodes = vec![node("node-m1", false), node("w1", false), node("other", true)];
        let workers =
            Workers::default().with_nodes(&workload(Reading::Read(nodes)), &[machine("m1", "a", 1)]);
        assert_eq!(workers.known, [worker("Node/w1", "v1.31.0")]);
        assert_eq!(workers.unread, Vec::<String>::new());
    }

    #[test]
    fn nodes_that_were_not_read_are_reported() {
        let failure = Failure {
            object: "Node".to_owned(),
            message: "forbidden".to_owned(),
            hint: None,
            forbidden: None,
        };
        for (reading, line) in [
            (
                Reading::Failed(failure.clone()),
                "the nodes' kubelets were not read: forbidden",
            ),
            (
                workload(Reading::Failed(failure)),
                "the nodes' kubelets were not read: forbidden",
            ),
            (
                Reading::NotYet,
                "the nodes' kubelets were not read: the workload cluster was not queried",
            ),
        ] {
            let workers = Workers::default().with_nodes(&reading, &[]);
            assert_eq!((workers.known, workers.unread), (vec![], vec![line.to_owned()]));
        }
    }
}
