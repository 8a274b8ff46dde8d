//! Reads the objects of the workload cluster: Nodes, the static Pods of the control plane, Leases, and the Events about them.

use std::time::Instant;

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
    events::v1::Event,
};
use kcp_control_plane::{
    bundle::selection::{ObjectNames, events_about, object_name},
    snapshot::{Failure, Snapshot},
};
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
const EVENTS: &str = "workload/events.json";

/// The namespaces of Events: those about Nodes are in `default`.
const EVENT_NAMESPACES: [&str; 2] = ["default", KUBE_SYSTEM];

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
    let files = [NODES, PODS, LEADER_LEASES, KUBELET_LEASES, EVENTS].into_iter();
    files
        .map(|file| ObjectList::new(file, Err(failure.clone())))
        .collect()
}

async fn read(cluster: &WorkloadCluster) -> Vec<ObjectList> {
    let objects = &cluster.objects;
    let everything = ListParams::default();
    let of_control_plane = ListParams::default().labels(CONTROL_PLANE_PODS);
    let [controller_manager, scheduler] = LEASES;
    let events = |namespace| objects.list(Some(namespace), &everything, |event: Event| json(&event));
    let [of_nodes, of_pods] = EVENT_NAMESPACES.map(events);
    let (nodes, pods, controller_manager, scheduler, node_leases, of_nodes, of_pods) = tokio::join!(
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
        Box::pin(objects.list(Some(NODE_LEASES), &everything, |lease: Lease| json(&lease))),
        Box::pin(of_nodes),
        Box::pin(of_pods)
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
    let mut lists = vec![
        list(NODES, "Node", nodes),
        list(PODS, "Pod", pods),
        leader_leases,
        list(KUBELET_LEASES, "Lease", node_leases),
    ];
    let names: ObjectNames = lists
        .iter()
        .flat_map(|list| list.objects.iter().filter_map(object_name))
        .collect();
    let mut events = ObjectList::new(EVENTS, Ok(Vec::new()));
    for read in [of_nodes, of_pods] {
        match read {
            Ok(read) => events.objects.extend(read),
            Err(error) => events.failures.push(cluster.failures.describe("Event", &error)),
        }
    }
    events.objects = events_about(&names, events.objects);
    lists.push(events);
    lists
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
    use crate::{Connection, testing::failure};

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
        let files = ["nodes", "pods", "leases", "nodeleases", "events"];
        let expected = files.map(|file| format!("workload/{file}.json: {why}"));
        assert_eq!(unread, expected);
    }
}
