//! Reads the leader election Leases of Cluster API's controllers.

use k8s_openapi::api::coordination::v1::Lease;
use kcp_api::{KubeadmControlPlane, names::lease};
use kcp_control_plane::snapshot::{ControllerLease, MachineLeases, Reading};
use kube::core::ApiResource;

use crate::{
    Action, Error, ReadLimit,
    reader::Reader,
    reads::{failure, planned::Reads, workload::objects},
};

/// Reads the Lease of the control plane controller, whether or not it has processed a spec.
pub async fn read_controller_lease(
    reader: &Reader<'_>,
    limit: ReadLimit,
) -> Reading<Option<ControllerLease>> {
    let reads = Reads {
        reader,
        namespace: lease::CONTROL_PLANE_NAMESPACE,
        limit,
    };
    reads
        .lease(lease::CONTROL_PLANE_NAMESPACE, lease::CONTROL_PLANE)
        .await
}

impl Reads<'_> {
    /// Reads the Lease if the controller has not processed the spec yet. Otherwise, nothing depends on the Lease.
    pub(super) async fn read_controller_lease(
        &self,
        control_plane: &KubeadmControlPlane,
    ) -> Reading<Option<ControllerLease>> {
        if control_plane.is_observed() && control_plane.condition("Available").is_some() {
            return Reading::NotYet;
        }
        self.lease(lease::CONTROL_PLANE_NAMESPACE, lease::CONTROL_PLANE)
            .await
    }

    /// Reads the Leases of the controllers on which Machines depend.
    pub(super) async fn read_machine_leases(&self) -> MachineLeases {
        let (core, bootstrap) = tokio::join!(
            self.lease(lease::CORE_NAMESPACE, lease::CORE),
            self.lease(lease::BOOTSTRAP_NAMESPACE, lease::BOOTSTRAP)
        );
        MachineLeases { core, bootstrap }
    }

    async fn lease(&self, namespace: &str, name: &str) -> Reading<Option<ControllerLease>> {
        let resource = ApiResource::erase::<Lease>(&());
        let action = Action::new("get", &resource)
            .in_namespace(namespace)
            .with_name(name);
        let connection = self.reader.connection;
        let read = connection.get::<Lease>(&resource, namespace, name);
        match connection.run_with_limit(self.limit, &action, read).await {
            Ok(lease) => Reading::Read(Some(objects::lease(lease))),
            Err(Error::NotFound { .. }) => Reading::Read(None),
            Err(error) => {
                let object = failure::object_name("Lease", Some(name));
                Reading::Failed(failure::from_error(object, &error))
            }
        }
    }
}
