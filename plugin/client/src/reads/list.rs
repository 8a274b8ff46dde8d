//! Reads all control planes of one or all namespaces from the management cluster, one namespace after the other. Keeps
//! only the fields that are needed, so that ten thousand control planes take little memory.

mod sorted;

use k8s_openapi::api::core::v1::Namespace;
use kcp_api::{
    Cluster, KubeadmControlPlane, Machine, MachineHealthCheck, Object, Undecodable,
    control_plane::ControlPlaneWithoutConfig,
    kind::{CLUSTER, KUBEADM_CONTROL_PLANE, MACHINE, MACHINE_HEALTH_CHECK},
    names::label,
};
use kube::{
    Api,
    core::{ApiResource, PartialObjectMeta},
};
use serde_json::json;

use crate::reads::{failure, management::add_cluster_facts};
use crate::{Action, Connection, Error, ReadLimit, reader::Reader};
use kcp_control_plane::snapshot::{Reading, Snapshot};

use sorted::{ByCluster, Lists, SortedList};

/// Reads control planes with their Machines, Clusters and `MachineHealthChecks`, sorted by namespace and name.
/// `namespace` is none for all namespaces; `selector` is a label selector.
///
/// An object that cannot be decoded is listed in `failed_reads` of each control plane to which it may belong.
pub async fn list(
    reader: &Reader<'_>,
    namespace: Option<&str>,
    selector: Option<&str>,
    limit: ReadLimit,
) -> Result<Vec<Snapshot>, Error> {
    let mut listed = Vec::new();
    for_each(reader, namespace, selector, limit, |snapshot| {
        listed.push(snapshot);
    })
    .await?;
    Ok(listed)
}

/// Like [`list`], but gives each control plane to `visit` as soon as its namespace is read. At any time, only the objects
/// of one namespace and at most one page of each list are in memory.
pub async fn for_each(
    reader: &Reader<'_>,
    namespace: Option<&str>,
    selector: Option<&str>,
    limit: ReadLimit,
    mut visit: impl FnMut(Snapshot),
) -> Result<(), Error> {
    let lists = Lists {
        reader,
        namespace,
        limit,
    };
    let mut control_planes: SortedList<'_, ControlPlaneWithoutConfig> =
        lists.sorted_list(Ok(reader.control_plane_resource.clone()), selector);
    let mut machines: SortedList<'_, Machine> =
        lists.sorted_list(Ok(reader.machine_resource.clone()), Some(label::CONTROL_PLANE));
    let mut clusters: SortedList<'_, Cluster> = lists.sorted_list(Ok(reader.cluster_resource.clone()), None);
    let mut health_checks: SortedList<'_, MachineHealthCheck> =
        lists.sorted_list(reader.served.resource(&MACHINE_HEALTH_CHECK), None);
    loop {
        let ((), (), (), (), version) = tokio::join!(
            Box::pin(control_planes.fill()),
            Box::pin(machines.fill()),
            Box::pin(clusters.fill()),
            Box::pin(health_checks.fill()),
            Box::pin(reader.controller_version(limit))
        );
        let disorders = [
            control_planes.order_error.take(),
            machines.order_error.take(),
            clusters.order_error.take(),
            health_checks.order_error.take(),
        ];
        if let Some(error) = disorders.into_iter().flatten().next() {
            return Err(error);
        }
        let Some(namespace) = control_planes.next_namespace().map(str::to_owned) else {
            return control_planes.failure.map_or(Ok(()), Err);
        };
        let (of_namespace, machines, clusters, health_checks) = tokio::join!(
            Box::pin(control_planes.take(&namespace)),
            Box::pin(
                machines.take_by_cluster(&MACHINE, &namespace, |machine| machine.spec.cluster_name.clone())
            ),
            Box::pin(
                clusters.take_by_cluster(&CLUSTER, &namespace, |cluster| Some(cluster.name().to_owned()))
            ),
            Box::pin(
                health_checks.take_by_cluster(&MACHINE_HEALTH_CHECK, &namespace, |check| {
                    Some(check.spec.cluster_name.clone())
                })
            )
        );
        let mut related = RelatedObjects {
            machines,
            clusters,
            health_checks,
        };
        let action = control_planes.action(&reader.control_plane_resource);
        let of_namespace = of_namespace.into_iter().map(|object| match object {
            Ok(ControlPlaneWithoutConfig(control_plane)) => Ok(control_plane.into()),
            Err(object) => undecodable(*object, &action),
        });
        let mut of_namespace = of_namespace.collect::<Result<Vec<Snapshot>, Error>>()?;
        of_namespace.sort_by(|a, b| a.control_plane.name().cmp(b.control_plane.name()));
        let missing = |cluster: &str| Error::NotFound {
            action: Action::new("get", &reader.cluster_resource)
                .in_namespace(&namespace)
                .with_name(cluster),
        };
        for control_plane in of_namespace {
            visit(Snapshot {
                controller_version: version.clone(),
                ..related.add_to(control_plane, missing)
            });
        }
    }
}

/// Checks that a namespace exists. Succeeds if the user is not allowed to read the namespace.
pub async fn check_namespace_exists(
    connection: &Connection,
    namespace: &str,
    limit: ReadLimit,
) -> Result<(), Error> {
    match read_namespace_metadata(connection, namespace, limit).await {
        Err(missing @ Error::NotFound { .. }) => Err(missing),
        Ok(_) | Err(_) => Ok(()),
    }
}

pub(super) async fn read_namespace_metadata(
    connection: &Connection,
    name: &str,
    limit: ReadLimit,
) -> Result<PartialObjectMeta<Namespace>, Error> {
    let action = Action::new("get", &ApiResource::erase::<Namespace>(&())).with_name(name);
    let namespaces: Api<Namespace> = Api::all(connection.client.clone());
    let read = connection.read(&action, || namespaces.get_metadata(name));
    connection.run_with_limit(limit, &action, read).await
}

/// The snapshot of a control plane if only its metadata can be decoded.
fn undecodable(object: Undecodable, action: &Action) -> Result<Snapshot, Error> {
    let Undecodable {
        api_version,
        namespace,
        name,
        labels,
        error,
        ..
    } = object;
    let metadata = json!({"namespace": namespace, "name": name, "labels": labels});
    let known = json!({"apiVersion": api_version, "metadata": metadata});
    let malformed = Error::malformed(action.clone(), error);
    let Ok(control_plane) = serde_json::from_value::<KubeadmControlPlane>(known) else {
        return Err(malformed);
    };
    let mut snapshot = Snapshot::from(control_plane);
    let object = failure::object_name(KUBEADM_CONTROL_PLANE.kind, Some(&name));
    snapshot
        .failed_reads
        .push(failure::from_error(object, &malformed));
    Ok(snapshot)
}

/// Objects that belong to the control planes of a namespace.
struct RelatedObjects {
    machines: ByCluster<Machine>,
    clusters: ByCluster<Cluster>,
    health_checks: ByCluster<MachineHealthCheck>,
}

impl RelatedObjects {
    /// Adds a control plane's related objects to its snapshot. `missing` creates the error for a missing Cluster.
    fn add_to(&mut self, mut snapshot: Snapshot, missing: impl Fn(&str) -> Error) -> Snapshot {
        let itself = &snapshot.control_plane;
        let Some(name) = itself.cluster().map(str::to_owned) else {
            return snapshot;
        };
        match self.machines.of_cluster(&name) {
            Ok(of_cluster) => {
                if let Some(of_cluster) = of_cluster {
                    let own = of_cluster.extract_if(.., |machine| itself.has_machine(machine));
                    snapshot.machines = own.collect();
                    snapshot.machines_of_other_owners.clone_from(of_cluster);
                    // Put the Machines back for another control plane of the Cluster: for it, they belong to another owner.
                    if !of_cluster.is_empty() {
                        of_cluster.extend_from_slice(&snapshot.machines);
                    }
                    snapshot.machines.sort_by(|a, b| a.name().cmp(b.name()));
                }
            }
            Err(failure) => snapshot.failed_reads.push(*failure),
        }
        snapshot.cluster = match self.clusters.of_cluster(&name) {
            Ok(clusters) => {
                let cluster = clusters.and_then(|listed| listed.first());
                cluster.cloned().map_or_else(
                    || {
                        let object = failure::object_name(CLUSTER.kind, Some(&name));
                        Reading::Failed(failure::from_error(object, &missing(&name)))
                    },
                    Reading::Read,
                )
            }
            Err(failure) => Reading::Failed(*failure),
        };
        let health_checks = match self.health_checks.of_cluster(&name) {
            Ok(all) => Reading::Read(all.map(|all| all.as_slice()).unwrap_or_default()),
            Err(failure) => Reading::Failed(*failure),
        };
        add_cluster_facts(snapshot, health_checks)
    }
}

#[cfg(test)]
mod tests;
