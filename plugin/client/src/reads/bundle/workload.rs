//! Reads the objects of the workload cluster: Nodes, the static Pods of the control plane, and Leases.

use std::time::Instant;

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kcp_control_plane::snapshot::{Failure, Snapshot};
use kube::api::ListParams;
use serde::Serialize;
use serde_json::Value;

use super::ObjectList;
use crate::{
    Connection, Error,
    reads::{
        WorkloadTarget,
        secret::Secrets,
        workload::{KUBE_SYSTEM, LEASES, NODE_LEASES, WorkloadCluster},
    },
};

const NODES: &str = "workload/nodes.json";
const PODS: &str = "workload/pods.json";
const LEADER_LEASES: &str = "workload/leases.json";
const KUBELET_LEASES: &str = "workload/nodeleases.json";

/// The Pods that kubeadm creates for the control plane.
const CONTROL_PLANE_PODS: &str = "tier=control-plane";

/// Reads the objects of the workload cluster, until `end` at the latest. Each list that cannot be read has its failure.
pub async fn read_workload_objects(
    management: &Connection,
    observed: &Snapshot,
    end: Instant,
) -> Vec<ObjectList> {
    let target = WorkloadTarget::new(&observed.control_plane).filter(|target| target.initialized);
    let Some(target) = target else {
        return unread(&Failure {
            object: "workload cluster".to_owned(),
            message: "not read, because the control plane is not initialized yet".to_owned(),
            hint: None,
            ..Failure::default()
        });
    };
    let secrets = Secrets {
        management,
        namespace: &target.namespace,
        cluster: &target.cluster,
        end,
    };
    match WorkloadCluster::open(&secrets).await {
        Ok(cluster) => read(&cluster).await,
        Err(failure) => unread(&failure),
    }
}

fn unread(failure: &Failure) -> Vec<ObjectList> {
    let files = [NODES, PODS, LEADER_LEASES, KUBELET_LEASES].into_iter();
    files
        .map(|file| ObjectList::new(file, Err(failure.clone())))
        .collect()
}

async fn read(cluster: &WorkloadCluster) -> Vec<ObjectList> {
    let objects = &cluster.objects;
    let everything = ListParams::default();
    let of_control_plane = ListParams::default().labels(CONTROL_PLANE_PODS);
    let [controller_manager, scheduler] = LEASES;
    let (nodes, pods, controller_manager, scheduler, node_leases) = tokio::join!(
        Box::pin(objects.list(None, &everything, |mut node: Node| {
            if let Some(status) = &mut node.status {
                // Leave out the images: a Node lists up to 50 of them, which are most of its size.
                status.images = None;
            }
            json(&node)
        })),
        Box::pin(objects.list(Some(KUBE_SYSTEM), &of_control_plane, |pod: Pod| json(&pod))),
        Box::pin(objects.get::<Lease>(KUBE_SYSTEM, controller_manager)),
        Box::pin(objects.get::<Lease>(KUBE_SYSTEM, scheduler)),
        Box::pin(objects.list(Some(NODE_LEASES), &everything, |lease: Lease| json(&lease)))
    );
    let list = |file: &str, kind: &str, read: Result<Vec<Value>, Error>| {
        ObjectList::new(
            file,
            read.map_err(|error| cluster.failures.describe(kind, &error)),
        )
    };
    let mut leader_leases = ObjectList::new(LEADER_LEASES, Ok(Vec::new()));
    for lease in [controller_manager, scheduler] {
        match lease {
            Ok(lease) => leader_leases.objects.extend(lease.as_ref().and_then(json)),
            Err(error) => leader_leases
                .failures
                .push(cluster.failures.describe("Lease", &error)),
        }
    }
    vec![
        list(NODES, "Node", nodes),
        list(PODS, "Pod", pods),
        leader_leases,
        list(KUBELET_LEASES, "Lease", node_leases),
    ]
}

/// The object with `apiVersion` and `kind`, which `k8s_openapi` adds. It can always be written as JSON.
fn json(object: &impl Serialize) -> Option<Value> {
    serde_json::to_value(object).ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use kcp_control_plane::testing::plan::observed;

    use super::{Failure, read_workload_objects};
    use crate::{Connection, canned::failure};

    #[tokio::test]
    async fn a_control_plane_that_is_not_initialized_has_no_workload_cluster() {
        let connection = Connection::canned(|_, path| failure(500, "InternalError", path));
        let mut observed = observed();
        observed.control_plane.status.initialized = false;
        let end = Instant::now() + Duration::from_secs(10);
        let lists = read_workload_objects(&connection, &observed, end).await;
        let unread: Vec<String> = lists
            .iter()
            .map(|list| {
                let failures = list.failures.iter().map(Failure::text);
                let failures: Vec<String> = failures.collect();
                format!("{}: {}", list.file, failures.join(" "))
            })
            .collect();
        let why = "workload cluster: not read, because the control plane is not initialized yet";
        let files = ["nodes", "pods", "leases", "nodeleases"];
        let expected = files.map(|file| format!("workload/{file}.json: {why}"));
        assert_eq!(unread, expected);
    }
}
