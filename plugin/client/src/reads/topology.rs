//! Reads through which versions Cluster API's topology controller upgrades a Cluster.

use kcp_api::{ClusterClass, cluster::Topology, kind::CLUSTER_CLASS};
use kcp_control_plane::{
    snapshot::Snapshot,
    verbs::upgrade_path::{chained_versions, versions_between},
};

use crate::{
    Error, ReadLimit,
    reader::Reader,
    reads::{change::LIMIT, workers::read_workers},
};

/// Reads the versions through which the topology controller upgrades the control plane to a version that is several minor
/// versions ahead. Empty if the version is not so far ahead, if the Cluster has no managed topology, or if its class does not
/// list all of these versions.
pub async fn read_chain(reader: &Reader<'_>, observed: &Snapshot, to: &str) -> Result<Vec<String>, Error> {
    let from = observed.control_plane.spec.version();
    let Some(class) = observed.topology().and_then(Topology::class) else {
        return Ok(Vec::new());
    };
    if versions_between(from, to).is_none() {
        return Ok(Vec::new());
    }
    let namespace = class.namespace.as_ref().unwrap_or(&reader.connection.namespace);
    let resource = reader.served.resource(&CLUSTER_CLASS)?;
    let class: ClusterClass = reader.connection.get(&resource, namespace, &class.name).await?;
    Ok(chained_versions(from, to, class.kubernetes_versions()))
}

/// Reads the versions through which the topology controller upgrades the control plane: to `to`, or without `to`, to the version
/// of the topology. Adds the workers to the snapshot. Empty if the Cluster has no managed topology, or if no upgrade is planned.
pub async fn read_upgrade(
    reader: &Reader<'_>,
    observed: &mut Snapshot,
    to: Option<&str>,
) -> Result<Vec<String>, Error> {
    let Some((cluster, topology)) = observed.cluster.value().zip(observed.topology()) else {
        return Ok(Vec::new());
    };
    let from = observed.control_plane.spec.version();
    let Some(to) = to.or(topology.version.as_deref()).filter(|to| *to != from) else {
        return Ok(Vec::new());
    };
    let (to, reported) = (to.to_owned(), cluster.status.control_plane_upgrades.clone());
    let limit = ReadLimit::per_read(LIMIT);
    let workers = read_workers(reader, &observed.control_plane, limit).await;
    observed.workers = Some(Box::new(workers));
    if reported.last() == Some(&to) {
        return Ok(reported);
    }
    let chain = read_chain(reader, observed, &to).await?;
    let is_next = versions_between(observed.control_plane.spec.version(), &to).is_none();
    Ok(if chain.is_empty() && is_next {
        vec![to]
    } else {
        chain
    })
}
