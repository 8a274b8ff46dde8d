//! Reads the objects that create workers of a Cluster.

use kcp_api::{
    Kind, MachineDeployment, Object as _,
    kind::{MACHINE_DEPLOYMENT, MACHINE_POOL},
};
use kcp_control_plane::kubelet_skew::{Worker, Workers};

use crate::{Action, Error, ReadLimit, reader::Reader};

/// The kinds that create workers. A cluster may lack a kind.
const MAKERS: [Kind; 2] = [MACHINE_DEPLOYMENT, MACHINE_POOL];

/// The workers that objects of the management cluster create for a Cluster. `limit` is for each read.
pub async fn read_workers(reader: &Reader<'_>, cluster: Option<&str>, limit: ReadLimit) -> Workers {
    let mut workers = Workers::default();
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

async fn makers(reader: &Reader<'_>, kind: &Kind, limit: ReadLimit) -> Result<Vec<MachineDeployment>, Error> {
    let connection = reader.connection;
    let resource = reader.served.resource(kind)?;
    let action = Action::new("list", &resource).in_namespace(&connection.namespace);
    let read = connection.list::<MachineDeployment>(&resource, Some(&connection.namespace), None);
    connection.within(limit, &action, read).await
}

fn made_for<'m>(
    cluster: &'m str,
    kind: &'m str,
    makers: Vec<MachineDeployment>,
) -> impl Iterator<Item = Worker> + 'm {
    let of_cluster = makers
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

    use super::made_for;
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
        let makers = vec![
            maker("md-0", "c1", template(Some("v1.31.0"))),
            maker("md-1", "c2", template(Some("v1.30.0"))),
            maker("md-2", "c1", template(None)),
            maker("md-3", "c1", Value::Null),
        ];
        let found: Vec<Worker> = made_for("c1", "MachineDeployment", makers).collect();
        assert_eq!(found, [worker("MachineDeployment/md-0", "v1.31.0")]);
    }
}
