//! `Cluster`, group `cluster.x-k8s.io`, as far as rules read it.

use serde::Deserialize;

use super::{Metadata, Text};

/// A `Cluster`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Cluster<'a> {
    /// Object metadata.
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
    /// The desired state.
    #[serde(default)]
    pub spec: Option<ClusterSpec<'a>>,
}

/// `spec` of a [`Cluster`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec<'a> {
    /// The object that runs its control plane.
    #[serde(borrow)]
    pub control_plane_ref: Option<ControlPlaneRef<'a>>,
}

/// The object that runs a cluster's control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ControlPlaneRef<'a> {
    /// Its kind.
    #[serde(borrow)]
    pub kind: Option<Text<'a>>,
    /// Its name.
    pub name: Option<Text<'a>>,
}

impl<'a> Cluster<'a> {
    /// The name of the `KubeadmControlPlane` that it refers to, if it refers to one.
    pub fn control_plane_name(&self) -> Option<&Text<'a>> {
        let reference = self.spec.as_ref()?.control_plane_ref.as_ref()?;
        reference
            .name
            .as_ref()
            .filter(|_| reference.kind.as_deref() == Some("KubeadmControlPlane"))
    }
}
