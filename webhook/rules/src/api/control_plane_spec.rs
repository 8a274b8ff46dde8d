//! What a `KubeadmControlPlane` and a `KubeadmControlPlaneTemplate` have in common, and where it stands in each.

use std::{borrow::Cow, fmt::Display};

use super::{
    IntOrString, Text,
    control_plane::{KubeadmControlPlaneSpec, RolloutStrategy, Shape},
    kubeadm_config::{ClusterConfiguration, KubeadmConfigSpec},
    machine_template::{ObjectMeta, Taint},
};

/// The spec of either kind. Rules that read it judge both.
#[derive(Clone, Copy, Debug)]
pub struct ControlPlaneSpec<'c> {
    shape: Shape,
    root: &'static str,
    spec: Option<&'c KubeadmControlPlaneSpec<'c>>,
    metadata: Option<(&'static str, &'c ObjectMeta<'c>)>,
}

impl<'c> ControlPlaneSpec<'c> {
    /// A spec that stands at `root`.
    pub fn new(shape: Shape, root: &'static str, spec: Option<&'c KubeadmControlPlaneSpec<'c>>) -> Self {
        Self {
            shape,
            root,
            spec,
            metadata: None,
        }
    }

    /// The same with the metadata of a template, which stands at `path`.
    #[must_use]
    pub fn with_metadata(mut self, path: &'static str, metadata: Option<&'c ObjectMeta<'c>>) -> Self {
        self.metadata = metadata.map(|metadata| (path, metadata));
        self
    }

    /// Where this object's version keeps its fields.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The path of a field below the spec.
    pub fn path(&self, below: impl Display) -> Cow<'static, str> {
        Cow::Owned(format!("{}.{below}", self.root))
    }

    /// The path of a field below `kubeadmConfigSpec`.
    pub fn kubeadm_path(&self, below: impl Display) -> Cow<'static, str> {
        self.path(format_args!("kubeadmConfigSpec.{below}"))
    }

    /// What kubeadm is told on init and join, if given.
    pub fn kubeadm_config(&self) -> Option<&'c KubeadmConfigSpec<'c>> {
        self.spec?.kubeadm_config_spec.as_deref()
    }

    /// What kubeadm is told for the whole cluster, if given.
    pub fn cluster_configuration(&self) -> Option<&'c ClusterConfiguration<'c>> {
        self.kubeadm_config()?.cluster_configuration.as_ref()
    }

    /// The rollout strategy, if given.
    pub fn rollout_strategy(&self) -> Option<&'c RolloutStrategy<'c>> {
        let spec = self.spec?;
        match self.shape {
            Shape::V1Beta1 => spec.rollout_strategy.as_ref(),
            Shape::V1Beta2 => spec.rollout.as_ref()?.strategy.as_ref(),
        }
    }

    /// The path of a field below the rollout strategy.
    pub fn rollout_strategy_path(&self, below: &str) -> Cow<'static, str> {
        let strategy = match self.shape {
            Shape::V1Beta1 => "rolloutStrategy",
            Shape::V1Beta2 => "rollout.strategy",
        };
        self.path(format_args!("{strategy}.{below}"))
    }

    /// `maxSurge`, if given.
    pub fn max_surge(&self) -> Option<&'c IntOrString<'c>> {
        self.rollout_strategy()?
            .rolling_update
            .as_ref()?
            .max_surge
            .as_ref()
    }

    /// Replace Machines once their certificates are valid for fewer days than this.
    pub fn certificates_expiry_days(&self) -> Option<i64> {
        let spec = self.spec?;
        let before = match self.shape {
            Shape::V1Beta1 => spec.rollout_before,
            Shape::V1Beta2 => spec.rollout.as_ref()?.before,
        };
        before?.certificates_expiry_days
    }

    /// The path of the field that [`Self::certificates_expiry_days`] reads.
    pub fn certificates_expiry_days_path(&self) -> Cow<'static, str> {
        self.path(match self.shape {
            Shape::V1Beta1 => "rolloutBefore.certificatesExpiryDays",
            Shape::V1Beta2 => "rollout.before.certificatesExpiryDays",
        })
    }

    /// The template of Machines' names.
    pub fn naming_template(&self) -> Option<&'c Text<'c>> {
        let spec = self.spec?;
        let naming = match self.shape {
            Shape::V1Beta1 => spec.machine_naming_strategy.as_ref(),
            Shape::V1Beta2 => spec.machine_naming.as_ref(),
        };
        naming?.template.as_ref()
    }

    /// The path of the field that [`Self::naming_template`] reads.
    pub fn naming_template_path(&self) -> Cow<'static, str> {
        self.path(match self.shape {
            Shape::V1Beta1 => "machineNamingStrategy.template",
            Shape::V1Beta2 => "machineNaming.template",
        })
    }

    /// The taints of Machines' Nodes.
    pub fn taints(&self) -> &'c [Taint<'c>] {
        let taints = self.spec.and_then(|spec| {
            let template = spec.machine_template.as_ref()?;
            match self.shape {
                Shape::V1Beta1 => template.taints.as_deref(),
                Shape::V1Beta2 => template.spec.as_ref()?.taints.as_deref(),
            }
        });
        taints.unwrap_or_default()
    }

    /// The path of the field that [`Self::taints`] reads.
    pub fn taints_path(&self) -> Cow<'static, str> {
        self.path(match self.shape {
            Shape::V1Beta1 => "machineTemplate.taints",
            Shape::V1Beta2 => "machineTemplate.spec.taints",
        })
    }

    /// Labels and annotations of what is made from it, each with its path.
    pub fn metadata(&self) -> impl Iterator<Item = (Cow<'static, str>, &'c ObjectMeta<'c>)> {
        let of_template = self.metadata.map(|(path, metadata)| (path.into(), metadata));
        let of_machines = self
            .spec
            .and_then(|spec| spec.machine_template.as_ref()?.metadata.as_ref())
            .map(|metadata| (self.path("machineTemplate.metadata"), metadata));
        of_template.into_iter().chain(of_machines)
    }
}
