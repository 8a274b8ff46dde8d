//! Reads the Nodes that `kubectl kcp validate` validates, and the Leases of their kubelets.

use std::{collections::BTreeMap, time::Instant};

use k8s_openapi::api::{coordination::v1::Lease, core::v1};
use kcp_control_plane::{
    snapshot::{Failure, Reading},
    validation::NodeFacts,
};
use kube::api::ListParams;

use crate::{
    Connection, Error,
    reads::{
        WorkloadTarget, failure,
        secret::Secrets,
        time_limits,
        workload::{NODE_LEASES, WorkloadCluster, objects},
    },
    workload::Objects,
};

/// The Nodes of a cluster, and a connection to its API server.
pub struct ClusterNodes {
    pub connection: Connection,
    pub nodes: Vec<NodeFacts>,
}

/// Reads the Nodes of a control plane's workload cluster, until `end` at the latest.
pub async fn read_workload_nodes(
    management: &Connection,
    target: &WorkloadTarget,
    end: Instant,
) -> Result<ClusterNodes, Failure> {
    if !target.initialized {
        return Err(Failure {
            object: format!("Cluster/{}", target.cluster),
            message: "the control plane is not initialized yet".to_owned(),
            hint: None,
            ..Failure::default()
        });
    }
    let secrets = Secrets {
        management,
        namespace: &target.namespace,
        cluster: &target.cluster,
        end,
    };
    let cluster = WorkloadCluster::open(&secrets).await?;
    let describe = |object: &str, error: &Error| cluster.failures.describe(object, error);
    let nodes = read_nodes(&cluster.objects, describe).await?;
    Ok(ClusterNodes {
        connection: Connection {
            clock: cluster.server.clock.clone(),
            ..cluster.connection(management)
        },
        nodes,
    })
}

/// Reads the Nodes of the cluster of the connection, until `end` at the latest.
pub async fn read_plain_nodes(connection: &Connection, end: Instant) -> Result<ClusterNodes, Failure> {
    let limit = time_limits::for_workload(time_limits::remaining(end));
    let describe = |object: &str, error: &Error| failure::from_error(object.to_owned(), error);
    let nodes = read_nodes(&Objects::new(connection.clone(), limit), describe).await?;
    Ok(ClusterNodes {
        connection: connection.clone(),
        nodes,
    })
}

async fn read_nodes(
    objects: &Objects,
    describe: impl Fn(&str, &Error) -> Failure,
) -> Result<Vec<NodeFacts>, Failure> {
    let everything = ListParams::default();
    let (nodes, leases) = tokio::join!(
        Box::pin(objects.list(None, &everything, |node: v1::Node| Some(objects::node(node)))),
        Box::pin(objects.list(Some(NODE_LEASES), &everything, |lease: Lease| {
            let lease = objects::lease(lease);
            Some((lease.name.clone(), lease))
        }))
    );
    let nodes = nodes.map_err(|error| describe("Node", &error))?;
    let leases: Reading<BTreeMap<_, _>> = match leases {
        Ok(leases) => Reading::Read(leases.into_iter().collect()),
        Err(error) => Reading::Failed(describe("Lease", &error)),
    };
    let mut nodes: Vec<NodeFacts> = nodes
        .into_iter()
        .map(|node| NodeFacts {
            lease: leases.as_ref().map(|leases| leases.get(&node.name).cloned()),
            name: node.name,
            ready: node.ready,
        })
        .collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use kcp_control_plane::snapshot::Reading;
    use serde_json::json;

    use super::read_plain_nodes;
    use crate::{Connection, testing::failure};

    #[tokio::test]
    async fn each_node_gets_its_lease() {
        for denied in [false, true] {
            let connection = Connection::canned(move |_, path| match path {
                "/api/v1/nodes" => {
                    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
                    let items =
                        json!([{"metadata": {"name": "n2"}}, {"metadata": {"name": "n1"}, "status": ready}]);
                    (
                        200,
                        json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items}),
                    )
                }
                _ if denied => failure(403, "Forbidden", "no"),
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases" => {
                    let items = json!([{"metadata": {"name": "n1"}, "spec": {"renewTime": "2026-12-01T10:00:00.000000Z"}}]);
                    let list = json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": {},
                        "items": items});
                    (200, list)
                }
                path => panic!("{path}"),
            });
            let end = Instant::now() + Duration::from_secs(10);
            let read = read_plain_nodes(&connection, end).await;
            let nodes = read.unwrap_or_else(|failure| panic!("{failure:?}")).nodes;
            let names: Vec<_> = nodes
                .iter()
                .map(|node| (node.name.as_str(), node.ready))
                .collect();
            assert_eq!(names, [("n1", Some(true)), ("n2", None)]);
            let leases: Vec<_> = nodes
                .iter()
                .map(|node| match &node.lease {
                    Reading::Read(lease) => lease.as_ref().map_or("none", |lease| lease.name.as_str()),
                    Reading::Failed(failure) => failure.object.as_str(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(
                leases,
                if denied {
                    ["Lease", "Lease"]
                } else {
                    ["n1", "none"]
                }
            );
        }
    }
}
