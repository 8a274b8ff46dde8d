//! `KubeadmControlPlaneTemplate`, group `controlplane.cluster.x-k8s.io`: what a `ClusterClass` makes control planes
//! from.

use serde::Deserialize;

use super::{
    ControlPlaneSpec, Metadata, Text, Verbatim,
    control_plane::{KubeadmControlPlaneSpec, Shape},
    machine_template::ObjectMeta,
};

/// A `KubeadmControlPlaneTemplate`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeadmControlPlaneTemplate<'a> {
    /// `group/version`.
    #[serde(borrow)]
    pub api_version: Text<'a>,
    /// Object metadata.
    #[serde(default)]
    pub metadata: Metadata<'a>,
    /// The template, one level down.
    #[serde(default)]
    pub spec: Option<TemplateSpec<'a>>,
}

/// `spec` of a [`KubeadmControlPlaneTemplate`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TemplateSpec<'a> {
    /// The template.
    #[serde(borrow)]
    pub template: Option<Template<'a>>,
}

/// `spec.template`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Template<'a> {
    /// Put on control planes.
    #[serde(borrow)]
    pub metadata: Option<ObjectMeta<'a>>,
    /// As a control plane's, without replicas, version and infrastructure.
    pub spec: Option<Verbatim<'a, KubeadmControlPlaneSpec<'a>>>,
}

impl<'a> KubeadmControlPlaneTemplate<'a> {
    /// `spec.template`, if given.
    pub fn template(&self) -> Option<&Template<'a>> {
        self.spec.as_ref()?.template.as_ref()
    }

    /// What it has in common with a control plane.
    pub fn common_spec(&self) -> ControlPlaneSpec<'_> {
        let template = self.template();
        let spec = template.and_then(|template| template.spec.as_deref());
        let metadata = template.and_then(|template| template.metadata.as_ref());
        ControlPlaneSpec::new(Shape::of(&self.api_version), "spec.template.spec", spec)
            .with_metadata("spec.template.metadata", metadata)
    }
}
