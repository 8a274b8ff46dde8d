//! The fields that a `KubeadmControlPlane` and a `KubeadmControlPlaneTemplate` share, with their paths in each kind.

use std::{borrow::Cow, cell::OnceCell, fmt::Display};

use semver::Version;

use super::{
    IntOrString, Text,
    control_plane::{KubeadmControlPlaneSpec, RolloutStrategy, Shape},
    kubeadm_config::{ClusterConfiguration, KubeadmConfigSpec},
    machine_template::{ObjectMeta, Taint},
};
use crate::syntax::parse_version;

/// The spec of a `KubeadmControlPlane` or of a `KubeadmControlPlaneTemplate`. Rules that read it apply to both kinds.
#[derive(Clone, Debug)]
pub struct ControlPlaneSpec<'c> {
    shape: Shape,
    root: &'static str,
    spec: Option<&'c KubeadmControlPlaneSpec<'c>>,
    /// Parsed at most once, because many rules read it.
    version: OnceCell<Option<Version>>,
    metadata: Option<(&'static str, &'c ObjectMeta<'c>)>,
}

impl<'c> ControlPlaneSpec<'c> {
    /// Creates a spec whose path in the object is `root`.
    pub fn new(shape: Shape, root: &'static str, spec: Option<&'c KubeadmControlPlaneSpec<'c>>) -> Self {
        Self {
            shape,
            root,
            spec,
            version: OnceCell::new(),
            metadata: None,
        }
    }

    /// Adds the metadata of a template, whose path is `path`.
    #[must_use]
    pub fn with_metadata(mut self, path: &'static str, metadata: Option<&'c ObjectMeta<'c>>) -> Self {
        self.metadata = metadata.map(|metadata| (path, metadata));
        self
    }

    /// The shape of the object's API version.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The path of the field `below` in the spec.
    pub fn path(&self, below: impl Display) -> Cow<'static, str> {
        Cow::Owned(format!("{}.{below}", self.root))
    }

    /// The path of the field `below` in `kubeadmConfigSpec`.
    pub fn kubeadm_path(&self, below: impl Display) -> Cow<'static, str> {
        self.path(format_args!("kubeadmConfigSpec.{below}"))
    }

    /// The configuration of kubeadm, `kubeadmConfigSpec`.
    pub fn kubeadm_config(&self) -> Option<&'c KubeadmConfigSpec<'c>> {
        self.spec?.kubeadm_config_spec.as_deref()
    }

    /// The version of Kubernetes as written; `None` if there is none, as in the template of a control plane.
    pub fn version_text(&self) -> Option<&'c str> {
        self.spec?.version.as_deref()
    }

    /// The version of Kubernetes; `None` if it is invalid or absent, as in the template of a control plane.
    pub fn version(&self) -> Option<&Version> {
        let parse = || parse_version(self.version_text()?).ok();
        self.version.get_or_init(parse).as_ref()
    }

    /// The minor version of Kubernetes 1; `None` if [`Self::version`] is `None` or has another major version.
    pub fn minor(&self) -> Option<u64> {
        let version = self.version().filter(|version| version.major == 1)?;
        Some(version.minor)
    }

    pub fn cluster_configuration(&self) -> Option<&'c ClusterConfiguration<'c>> {
        self.kubeadm_config()?.cluster_configuration.as_ref()
    }

    /// The rollout strategy in either API version.
    pub fn rollout_strategy(&self) -> Option<&'c RolloutStrategy<'c>> {
        let spec = self.spec?;
        match self.shape {
            Shape::V1Beta1 => spec.rollout_strategy.as_ref(),
            Shape::V1Beta2 => spec.rollout.as_ref()?.strategy.as_ref(),
        }
    }

    /// The path of the field `below` in the rollout strategy.
    pub fn rollout_strategy_path(&self, below: &str) -> Cow<'static, str> {
        let strategy = match self.shape {
            Shape::V1Beta1 => "rolloutStrategy",
            Shape::V1Beta2 => "rollout.strategy",
        };
        self.path(format_args!("{strategy}.{below}"))
    }

    /// The `maxSurge` of the rollout strategy, in either API version.
    pub fn max_surge(&self) -> Option<&'c IntOrString<'c>> {
        self.rollout_strategy()?
            .rolling_update
            .as_ref()?
            .max_surge
            .as_ref()
    }

    /// The `certificatesExpiryDays`: Cluster API replaces Machines whose certificates expire within this number of
    /// days.
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

    /// The Go template for the names of Machines.
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

    /// The `maxRetry` of the remediation: how many times Cluster API repeats a failed replacement.
    pub fn max_retry(&self) -> Option<i64> {
        let spec = self.spec?;
        let remediation = match self.shape {
            Shape::V1Beta1 => spec.remediation_strategy,
            Shape::V1Beta2 => spec.remediation,
        };
        remediation?.max_retry
    }

    /// The path of the field that [`Self::max_retry`] reads.
    pub fn max_retry_path(&self) -> Cow<'static, str> {
        self.path(match self.shape {
            Shape::V1Beta1 => "remediationStrategy.maxRetry",
            Shape::V1Beta2 => "remediation.maxRetry",
        })
    }

    /// The taints for the Nodes of Machines.
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

    /// The labels and annotations of the objects that Cluster API creates, each with its path.
    pub fn metadata(&self) -> impl Iterator<Item = (Cow<'static, str>, &'c ObjectMeta<'c>)> {
        let of_template = self.metadata.map(|(path, metadata)| (path.into(), metadata));
        let of_machines = self
            .spec
            .and_then(|spec| spec.machine_template.as_ref()?.metadata.as_ref())
            .map(|metadata| (self.path("machineTemplate.metadata"), metadata));
        of_template.into_iter().chain(of_machines)
    }
}
