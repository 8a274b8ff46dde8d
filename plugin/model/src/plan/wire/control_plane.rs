//! A control plane and what it asks for.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::plan::wire::{Metadata, Reference};
use crate::{
    control_plane::ControlPlane,
    plan::{
        observed::Remediation,
        spec::{ConfigSpec, RemediationLimits, Spec},
    },
};

const REMEDIATION_IN_PROGRESS: &str = "controlplane.cluster.x-k8s.io/remediation-in-progress";

/// A control plane with what it asks for.
#[derive(Deserialize)]
#[serde(try_from = "Box<RawValue>")]
pub struct PlannedControlPlane {
    pub control_plane: ControlPlane,
    pub spec: Spec,
    pub remediation_in_progress: Option<Remediation>,
}

impl TryFrom<Box<RawValue>> for PlannedControlPlane {
    type Error = serde_json::Error;

    fn try_from(object: Box<RawValue>) -> serde_json::Result<Self> {
        Self::decode(object.get())
    }
}

impl PlannedControlPlane {
    /// From the object.
    ///
    /// # Errors
    /// When it does not have its kind's types.
    pub fn decode(object: &str) -> serde_json::Result<Self> {
        let control_plane: ControlPlane = serde_json::from_str(object)?;
        let wire: WireControlPlane = serde_json::from_str(object)?;
        Ok(Self {
            remediation_in_progress: wire.metadata.remediation(REMEDIATION_IN_PROGRESS),
            spec: spec(wire, control_plane.rollout_after),
            control_plane,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireControlPlane {
    api_version: String,
    metadata: Metadata,
    spec: WireSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    replicas: Option<i64>,
    version: Option<String>,
    #[serde(default)]
    kubeadm_config_spec: Value,
    machine_template: Option<MachineTemplate>,
    // v1beta2
    rollout: Option<Rollout>,
    remediation: Option<WireLimits>,
    // v1beta1
    rollout_before: Option<RolloutBefore>,
    rollout_strategy: Option<RolloutStrategy>,
    remediation_strategy: Option<WireLimits>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineTemplate {
    /// v1beta2.
    spec: Option<MachineTemplateSpec>,
    /// v1beta1.
    infrastructure_ref: Option<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineTemplateSpec {
    infrastructure_ref: Option<Reference>,
}

#[derive(Default, Deserialize)]
struct Rollout {
    before: Option<RolloutBefore>,
    strategy: Option<RolloutStrategy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RolloutBefore {
    certificates_expiry_days: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RolloutStrategy {
    rolling_update: Option<RollingUpdate>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RollingUpdate {
    max_surge: Option<IntOrString>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum IntOrString {
    Int(i64),
    String(String),
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireLimits {
    max_retry: Option<i64>,
    // v1beta2
    retry_period_seconds: Option<i64>,
    min_healthy_period_seconds: Option<i64>,
    // v1beta1
    retry_period: Option<SignedDuration>,
    min_healthy_period: Option<SignedDuration>,
}

fn spec(wire: WireControlPlane, rollout_after: Option<Timestamp>) -> Spec {
    let WireControlPlane {
        api_version, spec, ..
    } = wire;
    let rollout = spec.rollout.unwrap_or_default();
    let surge = rollout
        .strategy
        .or(spec.rollout_strategy)
        .and_then(|strategy| strategy.rolling_update?.max_surge);
    let template = spec.machine_template.and_then(|template| {
        let later = template.spec.and_then(|spec| spec.infrastructure_ref);
        later.or(template.infrastructure_ref)
    });
    Spec {
        // As Cluster API's webhook has it where nothing is said.
        replicas: count(spec.replicas.unwrap_or(1)),
        version: spec.version.unwrap_or_default(),
        max_surge: surge.map_or(1, IntOrString::count),
        rollout_after,
        certificates_expiry_days: rollout
            .before
            .or(spec.rollout_before)
            .and_then(|before| before.certificates_expiry_days)
            .filter(|days| *days != 0),
        infrastructure: template.map(|template| template.template()).unwrap_or_default(),
        config: ConfigSpec {
            version: version_of(&api_version).to_owned(),
            fields: spec.kubeadm_config_spec,
        },
        remediation: limits(spec.remediation.or(spec.remediation_strategy).unwrap_or_default()),
    }
}

fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

impl IntOrString {
    /// As Cluster API reads it: what is no whole number is 0.
    fn count(self) -> usize {
        match self {
            Self::Int(number) => count(number),
            Self::String(text) => text.parse().unwrap_or(0),
        }
    }
}

fn limits(wire: WireLimits) -> RemediationLimits {
    let default = RemediationLimits::default();
    let period = |seconds: Option<i64>, earlier: Option<SignedDuration>, default| {
        seconds
            .map(SignedDuration::from_secs)
            .or(earlier)
            .unwrap_or(default)
    };
    RemediationLimits {
        max_retry: wire.max_retry,
        retry_period: period(wire.retry_period_seconds, wire.retry_period, default.retry_period),
        min_healthy_period: period(
            wire.min_healthy_period_seconds,
            wire.min_healthy_period,
            default.min_healthy_period,
        ),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::PlannedControlPlane;
    use crate::plan::{
        example::template,
        spec::{RemediationLimits, Spec},
    };

    fn spec_of(object: &Value) -> Spec {
        PlannedControlPlane::decode(&object.to_string())
            .expect("decodes")
            .spec
    }

    #[test]
    fn both_versions_of_a_control_plane_ask_for_the_same() {
        let object = |version: &str, spec: Value| {
            json!({"apiVersion": format!("controlplane.cluster.x-k8s.io/{version}"),
                "metadata": {"name": "c1-cp"}, "spec": spec})
        };
        let config = json!({"verbosity": 3});
        let later = spec_of(&object(
            "v1beta2",
            json!({"replicas": 3, "version": "v1.34.1", "kubeadmConfigSpec": config,
                "rollout": {"after": "2026-08-21T09:00:00Z", "before": {"certificatesExpiryDays": 21},
                    "strategy": {"rollingUpdate": {"maxSurge": 0}}},
                "remediation": {"maxRetry": 2, "retryPeriodSeconds": 90, "minHealthyPeriodSeconds": 7200},
                "machineTemplate": {"spec": {"infrastructureRef": {
                    "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerMachineTemplate", "name": "t1"}}}}),
        ));
        let earlier = spec_of(&object(
            "v1beta1",
            json!({"replicas": 3, "version": "v1.34.1", "kubeadmConfigSpec": config,
                "rolloutAfter": "2026-08-21T09:00:00Z", "rolloutBefore": {"certificatesExpiryDays": 21},
                "rolloutStrategy": {"rollingUpdate": {"maxSurge": 0}},
                "remediationStrategy": {"maxRetry": 2, "retryPeriod": "1m30s", "minHealthyPeriod": "2h0m0s"},
                "machineTemplate": {"infrastructureRef": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
                    "kind": "DockerMachineTemplate", "name": "t1"}}}),
        ));
        assert_eq!(later.infrastructure, template("t1"));
        assert_eq!((later.replicas, later.max_surge), (3, 0));
        assert_eq!(later.certificates_expiry_days, Some(21));
        assert_eq!(later.rollout_after, "2026-08-21T09:00:00Z".parse().ok());
        assert_eq!(
            later.remediation,
            RemediationLimits {
                max_retry: Some(2),
                retry_period: SignedDuration::from_secs(90),
                min_healthy_period: SignedDuration::from_hours(2),
            }
        );
        assert_eq!(later.config.fields, config);
        assert_eq!(earlier.config.version, "v1beta1");
        let mut same = earlier;
        same.config.version = "v1beta2".to_owned();
        assert_eq!(later, same);
    }

    #[test]
    fn what_a_control_plane_does_not_say_is_as_cluster_api_has_it() {
        let bare = json!({"apiVersion": "g/v1beta2", "metadata": {"name": "c"}, "spec": {}});
        let spec = spec_of(&bare);
        assert_eq!((spec.replicas, spec.max_surge), (1, 1));
        assert_eq!((spec.rollout_after, spec.certificates_expiry_days), (None, None));
        assert_eq!(spec.remediation, RemediationLimits::default());
        for (surge, expected) in [
            (json!("1"), 1),
            (json!("50%"), 0),
            (json!(0), 0),
            (Value::Null, 1),
        ] {
            let mut object = bare.clone();
            object["spec"]["rollout"] = json!({"strategy": {"rollingUpdate": {"maxSurge": surge}}});
            assert_eq!(spec_of(&object).max_surge, expected, "{surge}");
        }
    }

    #[test]
    fn a_remediation_in_progress_is_noted_in_an_annotation() {
        let object = json!({"apiVersion": "g/v1beta2", "spec": {}, "metadata": {"name": "c", "annotations": {
            "controlplane.cluster.x-k8s.io/remediation-in-progress": r#"{"machine":"m1"}"#}}});
        let planned = PlannedControlPlane::decode(&object.to_string()).expect("decodes");
        assert_eq!(planned.remediation_in_progress.expect("a note").machine, "m1");
    }
}
