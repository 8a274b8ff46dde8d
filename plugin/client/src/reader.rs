//! Reads control planes and their Machines.

use kcp_api::{
    Cluster, KubeadmControlPlane, Machine, Object as _, decode,
    kind::{CLUSTER, KUBEADM_CONTROL_PLANE, MACHINE},
    names::label,
};
use kube::core::ApiResource;
use tokio::sync::OnceCell;

use crate::{Action, Connection, Error, ServedVersions};
use kcp_control_plane::snapshot::{Failure, Reading, Snapshot};

/// Reads objects of a management cluster in the API versions that it serves.
#[derive(Clone)]
pub struct Reader<'c> {
    pub connection: &'c Connection,
    pub served: ServedVersions,
    /// The resource of `KubeadmControlPlane`, in the preferred version.
    pub control_plane_resource: ApiResource,
    /// The resource of `Machine`, in the preferred version.
    pub machine_resource: ApiResource,
    /// The resource of `Cluster`, in the preferred version.
    pub cluster_resource: ApiResource,
    /// The version of the control plane controller, once it has been read.
    pub(crate) controller_version: OnceCell<Reading<Option<String>>>,
}

impl<'c> Reader<'c> {
    /// Finds out which API versions the management cluster serves.
    pub async fn discover(connection: &'c Connection) -> Result<Self, Error> {
        let served = ServedVersions::discover(connection).await?;
        Ok(Self {
            connection,
            control_plane_resource: served.resource(&KUBEADM_CONTROL_PLANE)?,
            machine_resource: served.resource(&MACHINE)?,
            cluster_resource: served.resource(&CLUSTER)?,
            served,
            controller_version: OnceCell::new(),
        })
    }

    /// Changes the API version in which control planes are read, if the cluster serves it.
    pub fn in_version(self, version: &str) -> Result<Self, Error> {
        Ok(Self {
            control_plane_resource: self.served.resource_in(&KUBEADM_CONTROL_PLANE, version)?,
            ..self
        })
    }

    /// Reads a control plane. Returns its JSON and the decoded object.
    pub async fn read_control_plane(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(String, KubeadmControlPlane), Error> {
        let text = self
            .connection
            .get_text(&self.control_plane_resource, namespace, name)
            .await?;
        let control_plane = decode(&text).map_err(|source| {
            Error::malformed(
                Action::new("get", &self.control_plane_resource)
                    .in_namespace(namespace)
                    .with_name(name),
                source,
            )
        })?;
        Ok((text, control_plane))
    }

    /// Reads a control plane and its Machines. Reads the Cluster only if its topology manages the control plane, because then
    /// the Cluster says which changes are still to come.
    pub async fn read_snapshot(&self, namespace: &str, name: &str) -> Result<Snapshot, Error> {
        let (_, control_plane) = self.read_control_plane(namespace, name).await?;
        let machines = match &control_plane.cluster() {
            Some(cluster) => self.machines_of(namespace, cluster).await?,
            // A control plane without a Cluster has no Machines.
            None => Vec::new(),
        };
        let own = machines
            .into_iter()
            .filter(|machine| control_plane.has_machine(machine));
        let machines = own.collect();
        let cluster = match control_plane.cluster() {
            Some(cluster) if control_plane.label(label::TOPOLOGY_OWNED).is_some() => {
                self.read_cluster(namespace, cluster).await
            }
            _ => Reading::NotYet,
        };
        Ok(Snapshot {
            machines,
            cluster,
            ..Snapshot::from(control_plane)
        })
    }

    async fn read_cluster(&self, namespace: &str, name: &str) -> Reading<Cluster> {
        match self.connection.get(&self.cluster_resource, namespace, name).await {
            Ok(cluster) => Reading::Read(cluster),
            Err(error) => Reading::Failed(Failure {
                object: format!("Cluster/{name}"),
                message: error.to_string(),
                hint: error.hint(),
                ..Failure::default()
            }),
        }
    }

    async fn machines_of(&self, namespace: &str, cluster: &str) -> Result<Vec<Machine>, Error> {
        let selector = format!("{}={cluster},{}", label::CLUSTER_NAME, label::CONTROL_PLANE);
        let mut machines: Vec<Machine> = self
            .connection
            .list(&self.machine_resource, Some(namespace), Some(&selector))
            .await?;
        machines.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(machines)
    }
}
