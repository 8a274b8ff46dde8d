//! Reads all control planes of one or all namespaces from the management cluster. Keeps only the fields that are
//! needed, so that a thousand control planes take little memory.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kcp_api::{
    Cluster, Kind, Machine, MachineHealthCheck, Object as _,
    control_plane::ControlPlaneWithoutConfig,
    kind::{CLUSTER, MACHINE, MACHINE_HEALTH_CHECK},
    names::label,
};
use kube::{Api, core::ApiResource};
use serde::de::DeserializeOwned;

use crate::reads::{failure, management::add_cluster_facts};
use crate::{Action, Connection, Error, ReadLimit, reader::Reader};
use kcp_control_plane::snapshot::{Failure, Reading, Snapshot};

/// Reads control planes with their Machines, Clusters and `MachineHealthChecks`, sorted by namespace and name.
/// `namespace` is none for all namespaces; `selector` is a label selector.
///
/// # Errors
/// The control planes cannot be read.
pub async fn list(
    reader: &Reader<'_>,
    namespace: Option<&str>,
    selector: Option<&str>,
    limit: ReadLimit,
) -> Result<Vec<Snapshot>, Error> {
    let lists = Lists {
        reader,
        namespace,
        limit,
    };
    let health_checks = reader.served.resource(&MACHINE_HEALTH_CHECK);
    let (control_planes, machines, clusters, health_checks) = tokio::join!(
        Box::pin(lists.all(Ok(reader.control_planes.clone()), selector)),
        Box::pin(lists.all(Ok(reader.machines.clone()), Some(label::CONTROL_PLANE))),
        Box::pin(lists.all(Ok(reader.clusters.clone()), None)),
        Box::pin(lists.all(health_checks, None))
    );
    let mut context = RelatedObjects {
        machines: by_cluster(&MACHINE, machines, |machine: &Machine| {
            Some((machine.namespace().to_owned(), machine.spec.cluster_name.clone()?))
        }),
        clusters: by_cluster(&CLUSTER, clusters, |cluster: &Cluster| {
            Some((cluster.namespace().to_owned(), cluster.name().to_owned()))
        }),
        health_checks: by_cluster(
            &MACHINE_HEALTH_CHECK,
            health_checks,
            |check: &MachineHealthCheck| {
                Some((check.namespace().to_owned(), check.spec.cluster_name.clone()))
            },
        ),
    };
    let mut control_planes: Vec<Snapshot> = control_planes?
        .into_iter()
        .map(|ControlPlaneWithoutConfig(control_plane)| control_plane.into())
        .collect();
    control_planes.sort_by(|a, b| {
        let (a, b) = (&a.control_plane, &b.control_plane);
        (a.namespace(), a.name()).cmp(&(b.namespace(), b.name()))
    });
    let missing = |key: &Key| Error::NotFound {
        action: Action::new("get", &reader.clusters)
            .in_namespace(&key.0)
            .named(&key.1),
    };
    Ok(control_planes
        .into_iter()
        .map(|control_plane| context.add_to(control_plane, missing))
        .collect())
}

/// Checks that a namespace exists. Succeeds if the user is not allowed to read the namespace.
///
/// # Errors
/// The namespace does not exist.
pub async fn namespace_exists(
    connection: &Connection,
    namespace: &str,
    limit: ReadLimit,
) -> Result<(), Error> {
    let action = Action::new("get", &ApiResource::erase::<Namespace>(&())).named(namespace);
    let namespaces: Api<Namespace> = Api::all(connection.client.clone());
    let read = connection.read(&action, || namespaces.get_metadata(namespace));
    match connection.run_with_limit(limit, &action, read).await {
        Err(missing @ Error::NotFound { .. }) => Err(missing),
        Ok(_) | Err(_) => Ok(()),
    }
}

struct Lists<'r> {
    reader: &'r Reader<'r>,
    namespace: Option<&'r str>,
    limit: ReadLimit,
}

impl Lists<'_> {
    async fn all<T: DeserializeOwned>(
        &self,
        resource: Result<ApiResource, Error>,
        selector: Option<&str>,
    ) -> Result<Vec<T>, Error> {
        let resource = resource?;
        let mut action = Action::new("list", &resource);
        action.namespace = self.namespace.map(str::to_owned);
        let connection = self.reader.connection;
        let read = connection.list(&resource, self.namespace, selector);
        connection.run_with_limit(self.limit, &action, read).await
    }
}

type Key = (String, String);

/// Groups objects by their Cluster.
type ByCluster<T> = Result<BTreeMap<Key, Vec<T>>, Box<Failure>>;

fn by_cluster<T>(kind: &Kind, read: Result<Vec<T>, Error>, key: impl Fn(&T) -> Option<Key>) -> ByCluster<T> {
    let objects = read.map_err(|error| Box::new(failure::of_kind(kind, &error)))?;
    let mut by_cluster: BTreeMap<Key, Vec<T>> = BTreeMap::new();
    for object in objects {
        if let Some(key) = key(&object) {
            by_cluster.entry(key).or_default().push(object);
        }
    }
    Ok(by_cluster)
}

/// Objects that belong to the listed control planes.
struct RelatedObjects {
    machines: ByCluster<Machine>,
    clusters: ByCluster<Cluster>,
    health_checks: ByCluster<MachineHealthCheck>,
}

impl RelatedObjects {
    /// Adds a control plane's related objects to its snapshot. `missing` creates the error for a missing Cluster.
    fn add_to(&mut self, mut snapshot: Snapshot, missing: impl Fn(&Key) -> Error) -> Snapshot {
        let itself = &snapshot.control_plane;
        let Some(cluster) = itself.cluster().map(str::to_owned) else {
            return snapshot;
        };
        let key = (itself.namespace().to_owned(), cluster);
        match &mut self.machines {
            Ok(machines) => {
                if let Some(of_cluster) = machines.get_mut(&key) {
                    let own = of_cluster.extract_if(.., |machine| itself.has(machine));
                    snapshot.machines = own.collect();
                    snapshot.machines.sort_by(|a, b| a.name().cmp(b.name()));
                }
            }
            Err(failure) => snapshot.unread.push((**failure).clone()),
        }
        snapshot.cluster = match &self.clusters {
            Ok(clusters) => {
                let cluster = clusters.get(&key).and_then(|listed| listed.first());
                cluster.cloned().map_or_else(
                    || {
                        let object = failure::object(CLUSTER.kind, Some(&key.1));
                        Reading::Failed(failure::from_error(object, &missing(&key)))
                    },
                    Reading::Read,
                )
            }
            Err(failure) => Reading::Failed((**failure).clone()),
        };
        let health_checks = match &self.health_checks {
            Ok(all) => Reading::Read(all.get(&key).map(Vec::as_slice).unwrap_or_default()),
            Err(failure) => Reading::Failed((**failure).clone()),
        };
        add_cluster_facts(snapshot, health_checks)
    }
}

#[cfg(test)]
mod tests;
