//! Defines the parts that the JSON documents of all commands share.

use kcp_api::{Kind, KubeadmControlPlane, Object as _};
use serde::Serialize;

/// The `apiVersion` of all JSON documents.
pub const API_VERSION: &str = "kubectl-kcp.dev/v1alpha1";

#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ObjectName {
    pub(crate) name: String,
    pub(crate) namespace: String,
}

impl From<&KubeadmControlPlane> for ObjectName {
    fn from(control_plane: &KubeadmControlPlane) -> Self {
        Self {
            name: control_plane.name().to_owned(),
            namespace: control_plane.namespace().to_owned(),
        }
    }
}

/// The name of an object, as `kubectl get -o name` prints it: `RESOURCE.GROUP/NAME`, or `RESOURCE/NAME` in the core group.
pub(crate) fn resource_name(kind: &Kind, name: &str) -> String {
    let resource = kind.kind.to_lowercase();
    match kind.group {
        "" => format!("{resource}/{name}"),
        group => format!("{resource}.{group}/{name}"),
    }
}
