//! The workers of a cluster: its other nodes, and what makes such.

use serde::Deserialize;

use super::kubelet_skew::Worker;
use crate::{
    cluster::{Action, Error, Kind, ReadLimit},
    control_plane::Reader,
    plan::observed::Machine,
    status::observed::{Reading, Workload},
};

/// What makes workers. A cluster without the kind has none of it.
const MAKERS: [Kind; 2] = [
    Kind {
        group: "cluster.x-k8s.io",
        kind: "MachineDeployment",
        plural: "machinedeployments",
        versions: &["v1beta2", "v1beta1"],
        product: "Cluster API",
    },
    Kind {
        group: "cluster.x-k8s.io",
        kind: "MachinePool",
        plural: "machinepools",
        versions: &["v1beta2", "v1beta1"],
        product: "Cluster API",
    },
];

/// What is known of workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workers {
    /// Those that say which version they have.
    pub known: Vec<Worker>,
    /// What could not be read, a line each.
    pub unread: Vec<String>,
}

#[derive(Deserialize)]
struct Maker {
    metadata: Metadata,
    spec: MakerSpec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MakerSpec {
    #[serde(default)]
    cluster_name: String,
    template: Option<Template>,
}

#[derive(Deserialize)]
struct Template {
    spec: Option<TemplateSpec>,
}

#[derive(Deserialize)]
struct TemplateSpec {
    version: Option<String>,
}

impl Workers {
    /// What makes workers of a Cluster, as the management cluster has it. Each read may take as long as `limit`.
    pub async fn read(reader: &Reader<'_>, cluster: Option<&str>, limit: ReadLimit) -> Self {
        let mut workers = Self::default();
        let Some(cluster) = cluster else {
            return workers;
        };
        for kind in MAKERS {
            match makers(reader, &kind, limit).await {
                Ok(makers) => workers.known.extend(made_for(cluster, kind.kind, makers)),
                Err(Error::NotServed { .. }) => {}
                Err(error) => workers
                    .unread
                    .push(format!("{}s were not read: {error}", kind.kind)),
            }
        }
        workers
    }

    /// The same with the nodes of the workload cluster that run none of its control plane.
    pub fn with_nodes(mut self, workload: &Reading<Workload>, machines: &[Machine]) -> Self {
        let nodes = workload.part(|workload| &workload.nodes);
        let Reading::Read(nodes) = nodes else {
            let why = nodes.failure().map_or_else(
                || "the workload cluster was not asked".to_owned(),
                |failure| failure.message.clone(),
            );
            self.unread
                .push(format!("the nodes' kubelets were not read: {why}"));
            return self;
        };
        let is_control_plane = |name: &str| {
            machines
                .iter()
                .any(|machine| machine.machine.node.as_deref() == Some(name))
        };
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

async fn makers(reader: &Reader<'_>, kind: &Kind, limit: ReadLimit) -> Result<Vec<Maker>, Error> {
    let connection = reader.connection;
    let resource = reader.served.resource(kind)?;
    let action = Action::new("list", &resource).in_namespace(&connection.namespace);
    let read = connection.list::<Maker>(&resource, Some(&connection.namespace), None);
    connection.within(limit, &action, read).await
}

fn made_for<'m>(cluster: &'m str, kind: &'m str, makers: Vec<Maker>) -> impl Iterator<Item = Worker> + 'm {
    let of_cluster = makers
        .into_iter()
        .filter(move |maker| maker.spec.cluster_name == cluster);
    of_cluster.filter_map(move |maker| {
        Some(Worker {
            object: format!("{kind}/{}", maker.metadata.name),
            version: maker.spec.template?.spec?.version?,
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Maker, Workers, made_for};
    use crate::{
        plan::example::machine,
        status::observed::{Failure, Reading, Workload, workload::Node},
        upgrade::kubelet_skew::Worker,
    };

    fn worker(object: &str, version: &str) -> Worker {
        Worker {
            object: object.to_owned(),
            version: version.to_owned(),
        }
    }

    #[test]
    fn what_makes_workers_of_a_cluster() {
        let maker = |name: &str, cluster: &str, template: Value| -> Maker {
            let maker =
                json!({"metadata": {"name": name}, "spec": {"clusterName": cluster, "template": template}});
            serde_json::from_value(maker).expect("decodes")
        };
        let template = |version: Option<&str>| json!({"spec": {"version": version}});
        let makers = vec![
            maker("md-0", "c1", template(Some("v1.31.0"))),
            maker("md-1", "c2", template(Some("v1.30.0"))),
            maker("md-2", "c1", template(None)),
            maker("md-3", "c1", Value::Null),
        ];
        let found: Vec<Worker> = made_for("c1", "MachineDeployment", makers).collect();
        assert_eq!(found, [worker("MachineDeployment/md-0", "v1.31.0")]);
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
    fn nodes_that_were_not_read_are_told() {
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
                "the nodes' kubelets were not read: the workload cluster was not asked",
            ),
        ] {
            let workers = Workers::default().with_nodes(&reading, &[]);
            assert_eq!((workers.known, workers.unread), (vec![], vec![line.to_owned()]));
        }
    }
}
