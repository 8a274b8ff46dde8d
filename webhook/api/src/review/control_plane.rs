//! `KubeadmControlPlane`, group `controlplane.cluster.x-k8s.io`, in every API version that Cluster API has served.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    ControlPlaneSpec, DecodeError, IntOrString, Metadata, Text, Verbatim,
    kubeadm_config::{KubeadmConfig, KubeadmConfigSpec},
    machine_template::{InfrastructureRef, MachineTemplate},
};

/// Go's zero `time.Time`, 0001-01-01T00:00:00Z, in seconds since 1970.
const ZERO_TIME: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// The shapes of a `KubeadmControlPlane`. API versions with the same field paths share a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// The field paths of v1alpha3 to v1beta1.
    V1Beta1,
    /// The field paths of v1beta2, and of any unknown later version.
    V1Beta2,
}

impl Shape {
    /// The shape of an API version. The version may have a group, as in `group/v1beta1`.
    pub fn from_api_version(api_version: &str) -> Self {
        let is = |version: &&str| {
            let group = api_version.strip_suffix(*version);
            group.is_some_and(|group| group.is_empty() || group.ends_with('/'))
        };
        if ["v1alpha3", "v1alpha4", "v1beta1"].iter().any(is) {
            Self::V1Beta1
        } else {
            Self::V1Beta2
        }
    }
}

/// A `KubeadmControlPlane` with the fields of both shapes. The methods read the fields of the object's [`Shape`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeadmControlPlane<'a, C = KubeadmConfig<'a>> {
    /// The API group and version, as in `controlplane.cluster.x-k8s.io/v1beta2`.
    #[serde(borrow)]
    pub api_version: Text<'a>,
    #[serde(default)]
    pub metadata: Metadata<'a>,
    pub spec: KubeadmControlPlaneSpec<'a, C>,
    #[serde(default)]
    pub status: Option<KubeadmControlPlaneStatus<'a>>,
}

/// The `spec` of a [`KubeadmControlPlane`]. The type of `kubeadmConfigSpec` is the parameter `C`, because
/// this field is by far the largest part of most objects and is not always decoded.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeadmControlPlaneSpec<'a, C = KubeadmConfig<'a>> {
    /// The desired number of control plane Machines.
    pub replicas: Option<i64>,
    /// The Kubernetes version with a leading `v`.
    #[serde(borrow)]
    pub version: Option<Text<'a>>,
    pub machine_template: Option<MachineTemplate<'a>>,
    /// Only v1alpha3 has this field; later versions have the reference in `machineTemplate`.
    pub infrastructure_template: Option<InfrastructureRef<'a>>,
    pub kubeadm_config_spec: Option<C>,
    /// The strategy and the times of rollouts. Only v1beta2 has this field.
    pub rollout: Option<Rollout<'a>>,
    /// Only v1beta1 has this field; v1beta2 has `rollout.strategy` instead.
    pub rollout_strategy: Option<RolloutStrategy<'a>>,
    /// Only v1beta1 has this field; v1beta2 has `rollout.after` instead.
    pub rollout_after: Option<Text<'a>>,
    /// Only v1alpha3 has this field; v1beta1 has `rolloutAfter` instead.
    pub upgrade_after: Option<Text<'a>>,
    /// Only v1beta1 has this field; v1beta2 has `rollout.before` instead.
    pub rollout_before: Option<RolloutBefore>,
    /// How Cluster API names Machines. Only v1beta2 has this field.
    pub machine_naming: Option<MachineNaming<'a>>,
    /// Only v1beta1 has this field; v1beta2 has `machineNaming` instead.
    pub machine_naming_strategy: Option<MachineNaming<'a>>,
    /// How Cluster API replaces unhealthy Machines. Only v1beta2 has this field.
    pub remediation: Option<Remediation>,
    /// Only v1beta1 has this field; v1beta2 has `remediation` instead.
    pub remediation_strategy: Option<Remediation>,
}

/// How Cluster API replaces unhealthy Machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Remediation {
    /// How many times Cluster API repeats a failed replacement; unlimited if unset.
    pub max_retry: Option<i64>,
}

/// How Cluster API names Machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineNaming<'a> {
    /// A Go template for the name of a Machine.
    #[serde(borrow)]
    pub template: Option<Text<'a>>,
}

/// `spec.rollout` in v1beta2.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rollout<'a> {
    #[serde(borrow)]
    pub strategy: Option<RolloutStrategy<'a>>,
    /// A time in RFC 3339. Once it has passed, Cluster API replaces the Machines that were created before it.
    pub after: Option<Text<'a>>,
    pub before: Option<RolloutBefore>,
}

/// The events before which Cluster API starts a rollout by itself, such as the expiry of certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RolloutBefore {
    /// Cluster API replaces a Machine whose certificates expire within this number of days.
    pub certificates_expiry_days: Option<i64>,
}

/// The strategy by which Cluster API replaces Machines.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RolloutStrategy<'a> {
    /// The type of the strategy. Cluster API supports only `RollingUpdate`.
    #[serde(rename = "type", borrow)]
    pub kind: Option<Text<'a>>,
    pub rolling_update: Option<RollingUpdate<'a>>,
}

/// The parameters of a rolling update of Machines.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate<'a> {
    /// How many more Machines than the desired number may exist. With 1, a rollout first creates a Machine
    /// and then deletes one; with 0, a rollout first deletes a Machine and then creates one.
    #[serde(borrow)]
    pub max_surge: Option<IntOrString<'a>>,
}

/// The `status` of a [`KubeadmControlPlane`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeadmControlPlaneStatus<'a> {
    /// The `metadata.generation` that the controller last reconciled.
    pub observed_generation: Option<i64>,
    /// The number of existing Machines.
    pub replicas: Option<i64>,
    /// The number of Machines whose condition `UpToDate` is True. This condition also depends on the version of the
    /// kubelet. Only v1beta2 has this field.
    pub up_to_date_replicas: Option<i64>,
    /// The number of Machines that match the spec. Only v1beta1 has this field.
    pub updated_replicas: Option<i64>,
    /// The status fields of v1beta1. Only v1beta2 has this field.
    pub deprecated: Option<DeprecatedStatus>,
    /// The lowest Kubernetes version among the Machines.
    #[serde(borrow)]
    pub version: Option<Text<'a>>,
    /// The conditions in v1beta2. In v1beta1, the same conditions are in [`Self::v1beta2`].
    pub conditions: Option<Vec<Condition<'a>>>,
    /// The status fields of v1beta2. Only v1beta1 has this field.
    pub v1beta2: Option<Box<KubeadmControlPlaneStatus<'a>>>,
}

/// `status.deprecated` in v1beta2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeprecatedStatus {
    /// The status fields of v1beta1.
    pub v1beta1: Option<DeprecatedV1Beta1Status>,
}

/// `status.deprecated.v1beta1` in v1beta2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeprecatedV1Beta1Status {
    /// The number of Machines that match the spec.
    pub updated_replicas: Option<i64>,
}

/// A condition in the status of a [`KubeadmControlPlane`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition<'a> {
    /// The type of the condition, such as `RollingOut`.
    #[serde(rename = "type", borrow)]
    pub kind: Option<Text<'a>>,
    /// `True`, `False` or `Unknown`.
    pub status: Option<Text<'a>>,
    /// The `metadata.generation` from which the controller computed the condition. Only conditions of v1beta2 have this
    /// field.
    pub observed_generation: Option<i64>,
}

impl KubeadmControlPlaneStatus<'_> {
    /// Whether a condition of this type is `True`.
    pub fn is_true(&self, kind: &str) -> bool {
        self.conditions_of(kind)
            .any(|condition| condition.status.as_deref() == Some("True"))
    }

    /// Whether the controller computed a condition of this type from this generation of the spec.
    pub fn observes(&self, kind: &str, generation: i64) -> bool {
        self.conditions_of(kind)
            .any(|condition| condition.observed_generation == Some(generation))
    }

    fn conditions_of(&self, kind: &str) -> impl Iterator<Item = &Condition<'_>> {
        let at_top = self.conditions.iter().flatten();
        let nested = self
            .v1beta2
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        at_top
            .chain(nested)
            .filter(move |condition| condition.kind.as_deref() == Some(kind))
    }

    /// The number of Machines that match the spec, in either API version. `None` if the status counts Machines only by their
    /// condition `UpToDate`.
    pub fn matching_replicas(&self) -> Option<i64> {
        let deprecated = self.deprecated.and_then(|deprecated| deprecated.v1beta1);
        self.updated_replicas
            .or(deprecated.and_then(|deprecated| deprecated.updated_replicas))
    }
}

impl<'a> KubeadmControlPlane<'a, &'a RawValue> {
    /// Decodes the `kubeadmConfigSpec`. If its bytes are the same as in `other`, the result shares the decoded value of `other`.
    /// Most updates do not change this field, and a comparison is faster than decoding.
    pub fn decode_config(
        self,
        other: &KubeadmControlPlane<'a>,
    ) -> Result<KubeadmControlPlane<'a>, DecodeError> {
        let Self {
            api_version,
            metadata,
            spec,
            status,
        } = self;
        let other = other.spec.kubeadm_config_spec.as_ref();
        let decoded = spec
            .kubeadm_config_spec
            .map(|config| Verbatim::decode_reusing(other, config));
        let kubeadm_config_spec = decoded
            .transpose()
            .map_err(|error| error.prefix_field("spec.kubeadmConfigSpec"))?;
        Ok(KubeadmControlPlane {
            api_version,
            metadata,
            spec: KubeadmControlPlaneSpec {
                kubeadm_config_spec,
                replicas: spec.replicas,
                version: spec.version,
                machine_template: spec.machine_template,
                infrastructure_template: spec.infrastructure_template,
                rollout: spec.rollout,
                rollout_strategy: spec.rollout_strategy,
                rollout_after: spec.rollout_after,
                upgrade_after: spec.upgrade_after,
                rollout_before: spec.rollout_before,
                machine_naming: spec.machine_naming,
                machine_naming_strategy: spec.machine_naming_strategy,
                remediation: spec.remediation,
                remediation_strategy: spec.remediation_strategy,
            },
            status,
        })
    }
}

impl<'a> KubeadmControlPlane<'a> {
    /// The time in `rollout.after`, `rolloutAfter` or `upgradeAfter`; `None` if it is unset, invalid or zero. The zero
    /// time means unset (2019 proposal, Cluster upgrade).
    pub fn rollout_after(&self) -> Option<Timestamp> {
        let after = match self.shape() {
            Shape::V1Beta1 => self
                .spec
                .rollout_after
                .as_ref()
                .or(self.spec.upgrade_after.as_ref()),
            Shape::V1Beta2 => self.spec.rollout.as_ref()?.after.as_ref(),
        };
        after?
            .parse()
            .ok()
            .filter(|after: &Timestamp| *after != ZERO_TIME)
    }

    /// The path of the field that [`Self::rollout_after`] reads.
    pub fn rollout_after_path(&self) -> &'static str {
        match self.shape() {
            Shape::V1Beta1 if self.spec.rollout_after.is_none() && self.spec.upgrade_after.is_some() => {
                "spec.upgradeAfter"
            }
            Shape::V1Beta1 => "spec.rolloutAfter",
            Shape::V1Beta2 => "spec.rollout.after",
        }
    }

    /// The shape of this object's API version.
    pub fn shape(&self) -> Shape {
        Shape::from_api_version(&self.api_version)
    }

    /// The reference to the template from which Cluster API clones infrastructure Machines, in any API version.
    pub fn infrastructure_ref(&self) -> Option<&InfrastructureRef<'a>> {
        if self.spec.infrastructure_template.is_some() && self.shape() == Shape::V1Beta1 {
            return self.spec.infrastructure_template.as_ref();
        }
        let template = self.spec.machine_template.as_ref()?;
        match self.shape() {
            Shape::V1Beta1 => template.infrastructure_ref.as_ref(),
            Shape::V1Beta2 => template.spec.as_ref()?.infrastructure_ref.as_ref(),
        }
    }

    /// The path of the field that [`Self::infrastructure_ref`] reads.
    pub fn infrastructure_ref_path(&self) -> &'static str {
        match self.shape() {
            Shape::V1Beta1 if self.spec.infrastructure_template.is_some() => "spec.infrastructureTemplate",
            Shape::V1Beta1 => "spec.machineTemplate.infrastructureRef",
            Shape::V1Beta2 => "spec.machineTemplate.spec.infrastructureRef",
        }
    }

    /// The fields that control planes and templates share.
    pub fn common_spec(&self) -> ControlPlaneSpec<'_> {
        ControlPlaneSpec::new(self.shape(), "spec", Some(&self.spec))
    }

    /// The configuration of kubeadm, `spec.kubeadmConfigSpec`.
    pub fn kubeadm_config(&self) -> Option<&KubeadmConfigSpec<'a>> {
        self.spec.kubeadm_config_spec.as_deref()
    }

    /// The rollout strategy in either API version.
    pub fn rollout_strategy(&self) -> Option<&RolloutStrategy<'_>> {
        self.common_spec().rollout_strategy()
    }

    /// The path of the field `below` in the rollout strategy.
    pub fn rollout_strategy_path(&self, below: &'static str) -> Cow<'static, str> {
        self.common_spec().rollout_strategy_path(below)
    }

    /// The `maxSurge` of the rollout strategy, in either API version.
    pub fn max_surge(&self) -> Option<&IntOrString<'_>> {
        self.common_spec().max_surge()
    }

    /// Whether the control plane uses an external etcd. If it does, rules accept an even number of Machines.
    pub fn has_external_etcd(&self) -> bool {
        self.kubeadm_config()
            .is_some_and(KubeadmConfigSpec::has_external_etcd)
    }

    /// A copy of the control plane with this number of replicas: the result of a write to the scale subresource.
    pub fn scaled_to(&self, replicas: i64) -> Self {
        let mut scaled = self.clone();
        scaled.spec.replicas = Some(replicas);
        scaled
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::KubeadmControlPlane;
    use crate::review::decode;

    fn text(config: &str) -> String {
        format!(
            r#"{{"apiVersion":"a/v1beta2","metadata":{{"name":"a"}},"spec":{{"replicas":3,"version":"v1.34.2",
            "kubeadmConfigSpec":{config},"rollout":{{"after":"2026-01-01T00:00:00Z"}}}},"status":{{"replicas":3}}}}"#
        )
    }

    #[test]
    fn decoding_beside_another_object_gives_the_same_result() {
        let (one, other) = (r#"{"files":[{"path":"/a"}]}"#, r#"{"files":[{"path":"/b"}]}"#);
        for known in [one, other, "{}", "null"].map(text) {
            let known: KubeadmControlPlane = decode(&known).unwrap();
            for object in [one, other, "{}", "null", "3", r#"{"files":[{"path":1}]}"#].map(text) {
                // Compare the Debug text, because `==` ignores differences such as default values.
                let undecoded: KubeadmControlPlane<'_, &RawValue> = decode(&object).unwrap();
                let config_text = format!("{:?}", undecoded.decode_config(&known));
                assert_eq!(
                    config_text,
                    format!("{:?}", decode::<KubeadmControlPlane>(&object)),
                    "{object}"
                );
            }
        }
    }

    #[test]
    fn decoding_beside_another_object_shares_equal_bytes() {
        let config = text(r#"{"files":[{"path":"/a"}]}"#);
        let known: KubeadmControlPlane = decode(&config).unwrap();
        let undecoded: KubeadmControlPlane<'_, &RawValue> = decode(&config).unwrap();
        let object = undecoded.decode_config(&known).unwrap();
        assert!(std::ptr::eq(
            known.kubeadm_config().unwrap(),
            object.kubeadm_config().unwrap()
        ));
    }
}
