//! Reads the objects that create a Cluster's worker Machines.

use kcp_api::{
    Kind, MachineDeployment, Object as _,
    kind::{MACHINE_DEPLOYMENT, MACHINE_POOL},
};
use kcp_control_plane::kubelet_skew::{Worker, Workers};

use crate::{Action, Error, ReadLimit, reader::Reader};

/// The kinds that create worker Machines. A cluster may not serve all of them.
const WORKER_KINDS: [Kind; 2] = [MACHINE_DEPLOYMENT, MACHINE_POOL];

/// Reads the Kubernetes versions of a Cluster's workers. `limit` applies to each read.
pub async fn read_workers(reader: &Reader<'_>, cluster: Option<&str>, limit: ReadLimit) -> Workers {
    let mut workers = Workers::default();
    let Some(cluster) = cluster else {
        return workers;
    };
    for kind in WORKER_KINDS {
        match worker_owners(reader, &kind, limit).await {
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
    kind: &Kind,
    limit: ReadLimit,
) -> Result<Vec<MachineDeployment>, Error> {
    let connection = reader.connection;
    let resource = reader.served.resource(kind)?;
    let action = Action::new("list", &resource).in_namespace(&connection.namespace);
    let read = connection.list::<MachineDeployment>(&resource, Some(&connection.namespace), None);
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
        Some(Worker {
            object: format!("{kind}/{}", maker.name()),
            version: maker.version()?.to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use kcp_api::MachineDeployment;
    use serde_json::{Value, json};

    use super::workers_with_version;
    use kcp_control_plane::kubelet_skew::Worker;

    fn worker(object: &str, version: &str) -> Worker {
        Worker {
            object: object.to_owned(),
            version: version.to_owned(),
        }
    }

    #[test]
    fn what_makes_workers_of_a_cluster() {
        let maker = |name: &str, cluster: &str, template: Value| -> MachineDeployment {
            let maker =
                json!({"metadata": {"name": name}, "spec": {"clusterName": cluster, "template": template}});
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
        assert_eq!(found, [worker("MachineDeployment/md-0", "v1.31.0")]);
    }
}
