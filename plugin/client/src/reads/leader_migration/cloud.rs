//! Reads the Deployment or `DaemonSet` of a cloud-controller-manager.

use std::{fmt::Debug, time::Instant};

use k8s_openapi::{
    ListableResource,
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::ConfigMap,
    },
};
use kcp_api::KubeadmControlPlane;
use kcp_control_plane::snapshot::Failure;
use kcp_rules::leader_migration::workload::{MountedFile, Workload};
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    Connection,
    reads::{failure::object_name, workload::WorkloadCluster},
};

/// The kind of an object that runs cloud-controller-manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    Deployment,
    DaemonSet,
}

impl WorkloadKind {
    /// The resource as in kubectl's `deployment/NAME`.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::DaemonSet => "daemonset",
        }
    }
}

/// Reads the Deployment or `DaemonSet` with this namespace and name from the workload cluster, and the `ConfigMap` with
/// its leader migration configuration, if it mounts one.
pub async fn read_cloud_workload(
    management: &Connection,
    control_plane: &KubeadmControlPlane,
    (kind, namespace, name): (WorkloadKind, &str, &str),
    end: Instant,
) -> Result<Vec<Value>, Failure> {
    let cluster = super::open(management, control_plane, end).await?;
    let found = match kind {
        WorkloadKind::Deployment => read::<Deployment>(&cluster, namespace, name).await?,
        WorkloadKind::DaemonSet => read::<DaemonSet>(&cluster, namespace, name).await?,
    };
    let found = found.ok_or_else(|| Failure {
        object: format!("{}/{name}", kind.resource()),
        message: format!("not found in namespace {namespace} of the workload cluster"),
        hint: None,
        ..Failure::default()
    })?;
    let config_map = match config_map(&found) {
        Some(name) => read::<ConfigMap>(&cluster, namespace, &name).await?,
        None => None,
    };
    Ok(std::iter::once(found).chain(config_map).collect())
}

/// The name of the `ConfigMap` that the cloud-controller-manager mounts at the path of its leader migration
/// configuration. `None` if it does not mount one.
fn config_map(manifest: &Value) -> Option<String> {
    let workload = Workload::find(manifest)?;
    let flags = workload.flags()?;
    match workload.file(flags.configuration_path()?) {
        MountedFile::ConfigMap { name, .. } => Some(name),
        MountedFile::Host(_) | MountedFile::Unknown => None,
    }
}

/// Reads an object as JSON that contains its kind. `None` if the object does not exist.
async fn read<K>(cluster: &WorkloadCluster, namespace: &str, name: &str) -> Result<Option<Value>, Failure>
where
    K: Resource<DynamicType = ()> + ListableResource + Serialize + DeserializeOwned + Clone + Debug,
{
    let kind = K::kind(&());
    let failed = |message: String| Failure {
        object: object_name(&kind, Some(name)),
        message,
        hint: None,
        ..Failure::default()
    };
    let read = Box::pin(cluster.objects.get::<K>(namespace, name)).await;
    let read = read.map_err(|error| cluster.failures.describe(&object_name(&kind, Some(name)), &error))?;
    let Some(read) = read else { return Ok(None) };
    let mut json = serde_json::to_value(read).map_err(|error| failed(error.to_string()))?;
    if let Some(fields) = json.as_object_mut() {
        fields.insert("kind".to_owned(), json!(kind));
    }
    Ok(Some(json))
}
