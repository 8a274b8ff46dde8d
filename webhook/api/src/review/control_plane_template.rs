//! `KubeadmControlPlaneTemplate`, group `controlplane.cluster.x-k8s.io`, from which a `ClusterClass` creates control
//! planes.

use serde::Deserialize;

use super::{
    ControlPlaneSpec, Metadata, Text, Verbatim,
    control_plane::{KubeadmControlPlaneSpec, Shape},
    machine_template::ObjectMeta,
};

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeadmControlPlaneTemplate<'a> {
    /// The API group and version, as in `controlplane.cluster.x-k8s.io/v1beta2`.
    #[serde(borrow)]
    pub api_version: Text<'a>,
    #[serde(default)]
    pub metadata: Metadata<'a>,
    #[serde(default)]
    pub spec: Option<TemplateSpec<'a>>,
}

/// The `spec` of a [`KubeadmControlPlaneTemplate`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TemplateSpec<'a> {
    #[serde(borrow)]
    pub template: Option<Template<'a>>,
}

/// The template for control planes, `spec.template` of a [`KubeadmControlPlaneTemplate`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Template<'a> {
    /// The labels and annotations of control planes.
    #[serde(borrow)]
    pub metadata: Option<ObjectMeta<'a>>,
    /// The spec of control planes, without replicas, version and infrastructure reference.
    pub spec: Option<Verbatim<'a, KubeadmControlPlaneSpec<'a>>>,
}

impl<'a> KubeadmControlPlaneTemplate<'a> {
    /// The template for control planes, `spec.template`.
    pub fn template(&self) -> Option<&Template<'a>> {
        self.spec.as_ref()?.template.as_ref()
    }

    /// The fields that control planes and templates share.
    pub fn common_spec(&self) -> ControlPlaneSpec<'_> {
        let template = self.template();
        let spec = template.and_then(|template| template.spec.as_deref());
        let metadata = template.and_then(|template| template.metadata.as_ref());
        ControlPlaneSpec::new(
            Shape::from_api_version(&self.api_version),
            "spec.template.spec",
            spec,
        )
        .with_metadata("spec.template.metadata", metadata)
    }
}
