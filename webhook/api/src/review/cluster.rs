//! `Cluster`, group `cluster.x-k8s.io`, reduced to the fields that rules read.

use serde::Deserialize;

use super::{Metadata, Text};

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Cluster<'a> {
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
    #[serde(default)]
    pub spec: Option<ClusterSpec<'a>>,
}

/// The `spec` of a [`Cluster`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec<'a> {
    #[serde(borrow)]
    pub control_plane_ref: Option<ControlPlaneRef<'a>>,
}

/// A reference to the control plane object of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ControlPlaneRef<'a> {
    /// The kind of the control plane object, such as `KubeadmControlPlane`.
    #[serde(borrow)]
    pub kind: Option<Text<'a>>,
    /// The name of the control plane object, in the namespace of the Cluster.
    pub name: Option<Text<'a>>,
}

impl<'a> Cluster<'a> {
    /// The name of the Cluster's control plane; `None` unless it is a `KubeadmControlPlane`.
    pub fn control_plane_name(&self) -> Option<&Text<'a>> {
        let reference = self.spec.as_ref()?.control_plane_ref.as_ref()?;
        reference
            .name
            .as_ref()
            .filter(|_| reference.kind.as_deref() == Some("KubeadmControlPlane"))
    }
}
