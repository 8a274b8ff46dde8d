//! Reads control planes and their Machines.

use std::collections::BTreeMap;

use kcp_rules::view::Cluster;
use kube::core::ApiResource;

use super::{
    ControlPlane, Machine, Snapshot, label,
    wire::{WireCluster, WireControlPlane, WireMachine},
};
use crate::cluster::{Action, CLUSTER, Connection, Error, KUBEADM_CONTROL_PLANE, MACHINE, Served};

/// Reads from one management cluster, in the versions that it serves.
#[derive(Clone)]
pub struct Reader<'c> {
    /// The cluster.
    pub connection: &'c Connection,
    /// What it serves.
    pub served: Served,
    /// `KubeadmControlPlane` in the version to use.
    pub control_planes: ApiResource,
    /// `Machine` in the version to use.
    pub machines: ApiResource,
    /// `Cluster` in the version to use.
    pub clusters: ApiResource,
}

impl<'c> Reader<'c> {
    /// Asks which versions to use.
    ///
    /// # Errors
    /// When the cluster does not answer, or does not have Cluster API.
    pub async fn discover(connection: &'c Connection) -> Result<Self, Error> {
        let served = Served::discover(connection).await?;
        Ok(Self {
            connection,
            control_planes: served.resource(&KUBEADM_CONTROL_PLANE)?,
            machines: served.resource(&MACHINE)?,
            clusters: served.resource(&CLUSTER)?,
            served,
        })
    }

    /// One control plane as the server wrote it, and as we understand it.
    ///
    /// # Errors
    /// When it is not there or cannot be read.
    pub async fn control_plane(&self, namespace: &str, name: &str) -> Result<(String, ControlPlane), Error> {
        let text = self
            .connection
            .get_text(&self.control_planes, namespace, name)
            .await?;
        let wire: WireControlPlane = serde_json::from_str(&text).map_err(|source| Error::Malformed {
            action: Action::new("get", &self.control_planes)
                .in_namespace(namespace)
                .named(name),
            source,
        })?;
        Ok((text, wire.into()))
    }

    /// One control plane with its Machines.
    ///
    /// # Errors
    /// When it is not there or cannot be read.
    pub async fn snapshot(&self, namespace: &str, name: &str) -> Result<Snapshot, Error> {
        let (_, control_plane) = self.control_plane(namespace, name).await?;
        let machines = match &control_plane.cluster {
            Some(cluster) => self.machines(Some(namespace), Some(cluster)).await?,
            // Not linked to a Cluster yet: it cannot have Machines.
            None => Vec::new(),
        };
        Ok(Snapshot {
            machines: machines
                .into_iter()
                .filter(|machine| control_plane.has(machine))
                .collect(),
            control_plane,
        })
    }

    /// All control planes of a namespace, or of all, with their Machines, by namespace and name.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn snapshots(&self, namespace: Option<&str>) -> Result<Vec<Snapshot>, Error> {
        let control_planes = self
            .connection
            .list::<WireControlPlane>(&self.control_planes, namespace, None);
        // Both are awaited, so that of two errors it is always the first that is told.
        let (control_planes, machines) = tokio::join!(control_planes, self.machines(namespace, None));
        let (control_planes, machines) = (control_planes?, machines?);
        Ok(join(
            control_planes.into_iter().map(ControlPlane::from).collect(),
            machines,
        ))
    }

    /// The Cluster of a control plane; none when there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn cluster(&self, control_plane: &ControlPlane) -> Result<Option<Cluster>, Error> {
        let Some(name) = &control_plane.cluster else {
            return Ok(None);
        };
        let cluster = self
            .connection
            .get::<WireCluster>(&self.clusters, &control_plane.namespace, name);
        match cluster.await {
            Ok(cluster) => Ok(Some(cluster.into())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn machines(&self, namespace: Option<&str>, cluster: Option<&str>) -> Result<Vec<Machine>, Error> {
        let selector = match cluster {
            Some(cluster) => format!("{}={cluster},{}", label::CLUSTER_NAME, label::CONTROL_PLANE),
            None => label::CONTROL_PLANE.to_owned(),
        };
        let machines = self
            .connection
            .list::<WireMachine>(&self.machines, namespace, Some(&selector))
            .await?;
        let mut machines: Vec<Machine> = machines.into_iter().map(Machine::from).collect();
        machines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(machines)
    }
}

/// Gives each control plane its Machines. Machines are looked up by namespace, so that thousands of each take no
/// quadratic time.
fn join(mut control_planes: Vec<ControlPlane>, machines: Vec<Machine>) -> Vec<Snapshot> {
    control_planes.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let mut by_cluster: BTreeMap<(String, Option<String>), Vec<Machine>> = BTreeMap::new();
    for machine in machines {
        let key = (machine.namespace.clone(), machine.cluster.clone());
        by_cluster.entry(key).or_default().push(machine);
    }
    control_planes
        .into_iter()
        .map(|control_plane| {
            let key = (control_plane.namespace.clone(), control_plane.cluster.clone());
            let candidates = by_cluster.get(&key).map(Vec::as_slice).unwrap_or_default();
            Snapshot {
                machines: candidates
                    .iter()
                    .filter(|machine| control_plane.has(machine))
                    .cloned()
                    .collect(),
                control_plane,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{ControlPlane, Machine, join};

    #[test]
    fn each_control_plane_gets_its_own_machines() {
        let control_plane = |namespace: &str, name: &str, cluster: &str| ControlPlane {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster: Some(cluster.to_owned()),
            ..ControlPlane::default()
        };
        let machine = |namespace: &str, name: &str, cluster: &str, owner: Option<&str>| Machine {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster: Some(cluster.to_owned()),
            owner: owner.map(str::to_owned),
            ..Machine::default()
        };
        let joined = join(
            vec![
                control_plane("b", "kcp", "c1"),
                control_plane("a", "kcp2", "c2"),
                control_plane("a", "kcp1", "c1"),
            ],
            vec![
                machine("a", "owned", "c1", Some("kcp1")),
                machine("a", "unowned", "c1", None),
                machine("a", "of-another", "c1", Some("other")),
                machine("b", "elsewhere", "c1", Some("kcp")),
            ],
        );
        let names: Vec<_> = joined
            .iter()
            .map(|snapshot| {
                let machines = snapshot.machines.iter().map(|machine| machine.name.as_str());
                (snapshot.control_plane.name.as_str(), machines.collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(
            names,
            [
                ("kcp1", vec!["owned", "unowned"]),
                ("kcp2", vec![]),
                ("kcp", vec!["elsewhere"])
            ]
        );
    }
}
