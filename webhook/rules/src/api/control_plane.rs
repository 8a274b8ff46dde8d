//! `KubeadmControlPlane`, group `controlplane.cluster.x-k8s.io`, in every version that has been served.

use std::borrow::Cow;

use serde::Deserialize;

use super::{IntOrString, Metadata, Text, kubeadm_config::KubeadmConfigSpec};

/// The shapes that `KubeadmControlPlane` has had: versions that put a field in the same place share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// v1alpha3 to v1beta1.
    V1Beta1,
    /// v1beta2, and whatever comes after it until we know better.
    V1Beta2,
}

impl Shape {
    /// The shape of a version, given as `v1beta1` or `group/v1beta1`.
    pub fn of(api_version: &str) -> Self {
        match api_version.rsplit('/').next() {
            Some("v1alpha3" | "v1alpha4" | "v1beta1") => Self::V1Beta1,
            _ => Self::V1Beta2,
        }
    }
}

/// A `KubeadmControlPlane`. Fields of both shapes stand side by side; the accessors pick by [`Shape`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeadmControlPlane<'a> {
    /// `group/version`.
    #[serde(borrow)]
    pub api_version: Text<'a>,
    /// Object metadata.
    #[serde(default)]
    pub metadata: Metadata<'a>,
    /// The desired state.
    pub spec: KubeadmControlPlaneSpec<'a>,
}

/// `spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeadmControlPlaneSpec<'a> {
    /// Desired number of control plane Machines.
    pub replicas: Option<i64>,
    /// Kubernetes version, with a leading `v`.
    #[serde(borrow)]
    pub version: Option<Text<'a>>,
    /// What kubeadm is told on init and join.
    pub kubeadm_config_spec: Option<KubeadmConfigSpec<'a>>,
    /// v1beta2.
    pub rollout: Option<Rollout<'a>>,
    /// v1beta1.
    pub rollout_strategy: Option<RolloutStrategy<'a>>,
}

/// `spec.rollout` of v1beta2.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rollout<'a> {
    /// How Machines are replaced.
    #[serde(borrow)]
    pub strategy: Option<RolloutStrategy<'a>>,
}

/// How Machines are replaced.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RolloutStrategy<'a> {
    /// Only `RollingUpdate` is supported.
    #[serde(rename = "type", borrow)]
    pub kind: Option<Text<'a>>,
    /// Parameters of a rolling update.
    pub rolling_update: Option<RollingUpdate<'a>>,
}

/// Parameters of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate<'a> {
    /// How many Machines may exist above the desired number: 1 creates first, 0 deletes first.
    #[serde(borrow)]
    pub max_surge: Option<IntOrString<'a>>,
}

impl<'a> KubeadmControlPlane<'a> {
    /// Where this object's version keeps its fields.
    pub fn shape(&self) -> Shape {
        Shape::of(&self.api_version)
    }

    /// The rollout strategy, if given.
    pub fn rollout_strategy(&self) -> Option<&RolloutStrategy<'a>> {
        match self.shape() {
            Shape::V1Beta1 => self.spec.rollout_strategy.as_ref(),
            Shape::V1Beta2 => self
                .spec
                .rollout
                .as_ref()
                .and_then(|rollout| rollout.strategy.as_ref()),
        }
    }

    /// The path of a field below the rollout strategy.
    pub fn rollout_strategy_path(&self, below: &'static str) -> Cow<'static, str> {
        let strategy = match self.shape() {
            Shape::V1Beta1 => "spec.rolloutStrategy",
            Shape::V1Beta2 => "spec.rollout.strategy",
        };
        Cow::Owned(format!("{strategy}.{below}"))
    }

    /// `maxSurge`, if given.
    pub fn max_surge(&self) -> Option<&IntOrString<'a>> {
        self.rollout_strategy()?
            .rolling_update
            .as_ref()?
            .max_surge
            .as_ref()
    }

    /// Whether etcd is run elsewhere, so that the number of Machines is free.
    pub fn has_external_etcd(&self) -> bool {
        self.spec
            .kubeadm_config_spec
            .as_ref()
            .is_some_and(KubeadmConfigSpec::has_external_etcd)
    }

    /// The same control plane scaled to `replicas`: what a write to the scale subresource would make of it.
    pub fn scaled_to(&self, replicas: i64) -> Self {
        let mut scaled = self.clone();
        scaled.spec.replicas = Some(replicas);
        scaled
    }
}
