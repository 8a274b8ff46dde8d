//! Reads the objects that create a Cluster's worker Machines.

use futures_util::future::join_all;
use kcp_api::{
    Kind, KubeadmControlPlane, MachineDeployment, Object as _,
    kind::{MACHINE_DEPLOYMENT, MACHINE_POOL},
    names::label,
};
use kcp_control_plane::snapshot::workers::{Worker, WorkerMachines, Workers};

use crate::{Action, Error, ReadLimit, reader::Reader};

/// The kinds that create worker Machines. A cluster may not serve all of them.
const WORKER_KINDS: [Kind; 2] = [MACHINE_DEPLOYMENT, MACHINE_POOL];

/// Reads the workers of a control plane's Cluster. `limit` applies to each read.
pub async fn read_workers(
    reader: &Reader<'_>,
    control_plane: &KubeadmControlPlane,
    limit: ReadLimit,
) -> Workers {
    let mut workers = Workers::default();
    let Some(cluster) = control_plane.cluster() else {
        return workers;
    };
    let namespace = control_plane.namespace();
    let lists = WORKER_KINDS.map(|kind| worker_owners(reader, namespace, cluster, kind, limit));
    for (kind, list) in WORKER_KINDS.iter().zip(join_all(lists).await) {
        match list {
            Ok(worker_owners) => {
                workers
                    .workers
                    .extend(workers_with_version(cluster, kind.kind, worker_owners));
            }
            Err(Error::NotServed { .. }) => {}
            Err(error) => workers
                .read_failures
                .push(format!("could not read {}s: {error}", kind.kind)),
        }
    }
    workers
}

async fn worker_owners(
    reader: &Reader<'_>,
    namespace: &str,
    cluster: &str,
    kind: Kind,
    limit: ReadLimit,
) -> Result<Vec<MachineDeployment>, Error> {
    let connection = reader.connection;
    let resource = reader.served.resource(&kind)?;
    let action = Action::new("list", &resource).in_namespace(namespace);
    // The controllers of both kinds set this label.
    let selector = format!("{}={cluster}", label::CLUSTER_NAME);
    let read = connection.list::<MachineDeployment>(&resource, Some(namespace), Some(&selector));
    connection.run_with_limit(limit, &action, read).await
}

fn workers_with_version<'m>(
    cluster: &'m str,
    kind: &'m str,
    worker_owners: Vec<MachineDeployment>,
) -> impl Iterator<Item = Worker> + 'm {
    let of_cluster = worker_owners
        .into_iter()
        .filter(move |maker| maker.spec.cluster_name == cluster);
    of_cluster.filter_map(move |maker| {
        let names = [label::TOPOLOGY_DEPLOYMENT_NAME, label::TOPOLOGY_POOL_NAME];
        let mut names = names.iter().filter_map(|name| maker.metadata.label(name));
        Some(Worker {
            object: format!("{kind}/{}", maker.name()),
            version: maker.version()?.to_owned(),
            machines: Some(WorkerMachines {
                topology_name: names.next().map(str::to_owned),
                desired: maker.spec.replicas,
                ready: maker.status.ready_replicas,
                up_to_date: maker.status.up_to_date_replicas,
            }),
        })
    })
}

#[cfg(test)]
mod tests {
    use kcp_api::MachineDeployment;
    use serde_json::{Value, json};

    use super::workers_with_version;
    use kcp_control_plane::snapshot::workers::{Worker, WorkerMachines};

    #[test]
    fn what_makes_workers_of_a_cluster() {
        let maker = |name: &str, cluster: &str, template: Value| -> MachineDeployment {
            let maker = json!({
                "metadata": {"name": name, "labels": {"topology.cluster.x-k8s.io/deployment-name": "w"}},
                "spec": {"clusterName": cluster, "replicas": 3, "template": template},
                "status": {"replicas": 4, "readyReplicas": 2, "upToDateReplicas": 1},
            });
            serde_json::from_value(maker).expect("decodes")
        };
        let template = |version: Option<&str>| json!({"spec": {"version": version}});
        let worker_owners = vec![
            maker("md-0", "c1", template(Some("v1.31.0"))),
            maker("md-1", "c2", template(Some("v1.30.0"))),
            maker("md-2", "c1", template(None)),
            maker("md-3", "c1", Value::Null),
        ];
        let found: Vec<Worker> = workers_with_version("c1", "MachineDeployment", worker_owners).collect();
        let expected = Worker {
            object: "MachineDeployment/md-0".to_owned(),
            version: "v1.31.0".to_owned(),
            machines: Some(WorkerMachines {
                topology_name: Some("w".to_owned()),
                desired: Some(3),
                ready: 2,
                up_to_date: Some(1),
            }),
        };
        assert_eq!(found, [expected]);
    }
}
