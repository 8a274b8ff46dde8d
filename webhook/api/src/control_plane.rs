//! Decodes `KubeadmControlPlane` from v1beta1 and v1beta2 of Cluster API.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    Condition, KubeadmConfigSpec, Machine, Reference, Remediation, condition,
    decode::{null_as_default, timestamp},
    metadata::{self, ManagedFieldsEntry, Object},
    names::{annotation, label},
};

/// How long certificates are valid if the control plane does not configure it. This is kubeadm's default.
const DEFAULT_CERTIFICATE_VALIDITY_DAYS: i64 = 365;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct KubeadmControlPlane {
    pub api_version: String,
    pub metadata: ObjectMeta,
    pub spec: KubeadmControlPlaneSpec,
    pub status: KubeadmControlPlaneStatus,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KubeadmControlPlaneSpec {
    /// The desired number of Machines. `None` in a manifest without `replicas`, or if Cluster API's webhook did not set
    /// the default.
    pub replicas: Option<i64>,
    /// The desired Kubernetes version, with a leading `v`.
    pub version: Option<String>,
    /// `spec.rollout.after`. Once this time has passed, the controller replaces the Machines that were created before it.
    pub rollout_after: Option<Timestamp>,
    /// `spec.rollout.before.certificatesExpiryDays`. The controller replaces Machines whose certificates expire within
    /// this number of days. Never 0, which Cluster API treats as absent.
    pub certificates_expiry_days: Option<i64>,
    /// `spec.rollout.strategy.rollingUpdate.maxSurge`: how many more Machines than `replicas` may exist during a
    /// rollout. As in Cluster API, 1 if absent and 0 if not an integer.
    pub max_surge: usize,
    pub remediation: RemediationLimits,
    /// `spec.machineTemplate.spec.infrastructureRef`: the template of new infrastructure machines.
    pub infrastructure_ref: Reference,
    pub kubeadm_config_spec: KubeadmConfigSpec,
}

/// `spec.remediation`, with Cluster API's defaults for absent fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemediationLimits {
    /// How many times the controller may retry a remediation if the replacement Machine fails too. `None` for
    /// no limit.
    pub max_retry: Option<i64>,
    /// The minimum time between a remediation and its retry. A retry remediates the replacement Machine.
    pub retry_period: SignedDuration,
    /// If a replacement Machine fails before it reaches this age, its remediation counts as a retry of the previous
    /// remediation.
    pub min_healthy_period: SignedDuration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeadmControlPlaneStatus {
    /// The last generation of the spec that the controller has processed. `None` until the controller has reconciled the
    /// control plane once.
    pub observed_generation: Option<i64>,
    pub replicas: i64,
    pub ready_replicas: i64,
    pub available_replicas: i64,
    pub up_to_date_replicas: i64,
    /// `status.version`: the lowest Kubernetes version of the control plane's Machines.
    pub version: Option<String>,
    /// `status.initialization.controlPlaneInitialized`: whether the workload cluster's API server has been reachable at
    /// least once.
    pub initialized: bool,
    /// The reason for a failure from which the controller does not recover. Only v1beta1 reports such failures.
    pub failure_reason: Option<String>,
    pub failure_message: Option<String>,
    pub conditions: Vec<Condition>,
}

impl Default for KubeadmControlPlaneSpec {
    fn default() -> Self {
        Self {
            replicas: None,
            version: None,
            rollout_after: None,
            certificates_expiry_days: None,
            max_surge: 1,
            remediation: RemediationLimits::default(),
            infrastructure_ref: Reference::default(),
            kubeadm_config_spec: KubeadmConfigSpec::default(),
        }
    }
}

impl Default for RemediationLimits {
    fn default() -> Self {
        Self {
            max_retry: None,
            retry_period: SignedDuration::ZERO,
            min_healthy_period: SignedDuration::from_hours(1),
        }
    }
}

impl KubeadmControlPlane {
    /// The name of the control plane's Cluster. `None` until Cluster API has set the label or the owner reference.
    pub fn cluster(&self) -> Option<&str> {
        self.label(label::CLUSTER_NAME).or_else(|| self.owner("Cluster"))
    }

    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        condition::find(&self.status.conditions, type_)
    }

    /// Whether the control plane has this condition with the status True.
    pub fn is_condition_true(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(Condition::is_true)
    }

    /// Whether the controller has observed the current generation of the spec.
    pub fn is_observed(&self) -> bool {
        let observed = self.status.observed_generation;
        observed.is_some_and(|observed| observed >= self.generation())
    }

    /// Whether a reconcile has compared the Machines with the current generation of the spec, so that the status shows whether a
    /// rollout is in progress. Each reconcile does so just before it sets this condition (Cluster API 1.11 to 1.14,
    /// `reconcileControlPlaneAndMachinesConditions`). It writes the result and the condition even if it fails later.
    pub fn has_compared_machines(&self) -> bool {
        let condition = self.condition("ControlPlaneComponentsHealthy");
        self.is_observed()
            || condition.is_some_and(|condition| condition.observed_generation == Some(self.generation()))
    }

    /// When a client last wrote the spec, if the controller has not processed it yet. `None` if the status is up to
    /// date, or if the time is unknown:
    /// - The API server writes no time into the entry of the subresource `scale` in `managedFields`. The entry remains after
    ///   the controller has processed it, so it only counts while the number of Machines differs from `spec.replicas`.
    /// - The entry of a client that owns no field of the spec says when it wrote an annotation or a label.
    /// - A change that only removes fields leaves no time. A status that is later than the last known time may not include
    ///   such a change.
    pub fn unprocessed_since(&self) -> Option<Timestamp> {
        let entries = || self.metadata.managed_fields.iter().flatten();
        let latest = |has_kind: fn(&ManagedFieldsEntry) -> bool| {
            let times = entries().filter(|entry| has_kind(entry));
            times.filter_map(|entry| Some(entry.time.as_ref()?.0)).max()
        };
        let may_be_scaled = self.status.replicas != self.desired_replicas();
        let has_no_time =
            |entry: &ManagedFieldsEntry| metadata::owns_spec(entry) && entry.time.is_none() && may_be_scaled;
        if self.is_observed() || entries().any(has_no_time) {
            return None;
        }
        let written = latest(|entry| !is_of_status(entry) && metadata::owns_spec(entry))?;
        let is_later = latest(is_of_status).is_none_or(|status| status <= written);
        is_later.then_some(written)
    }

    /// When a client or controller last wrote the control plane or its status. `None` if no time is known.
    pub fn last_write(&self) -> Option<Timestamp> {
        let entries = self.metadata.managed_fields.iter().flatten();
        entries.filter_map(|entry| Some(entry.time.as_ref()?.0)).max()
    }

    /// Whether the condition `RollingOut` is True, or the status counts outdated Machines.
    pub fn is_rolling_out(&self) -> bool {
        self.is_condition_true("RollingOut") || self.status.up_to_date_replicas < self.status.replicas
    }

    /// `spec.replicas`, or Cluster API's default of 1 if absent.
    pub fn desired_replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1)
    }

    /// The remediation that has deleted a Machine, but has not created its replacement yet. `None` if there is
    /// no such remediation.
    pub fn remediation_in_progress(&self) -> Option<Remediation> {
        let value = self.annotation(annotation::REMEDIATION_IN_PROGRESS)?;
        Some(Remediation::from_annotation(value))
    }

    /// Whether the Machine belongs to this control plane: the control plane owns the Machine, or will adopt it because
    /// it belongs to the same Cluster and has no controller.
    pub fn has_machine(&self, machine: &Machine) -> bool {
        let is_adopted = || {
            machine.controller().is_none()
                && machine.spec.cluster_name.is_some()
                && machine.spec.cluster_name.as_deref() == self.cluster()
        };
        machine.namespace() == self.namespace()
            && machine
                .control_plane()
                .map_or_else(is_adopted, |owner| owner == self.name())
    }
}

impl KubeadmControlPlaneSpec {
    /// `spec.replicas` as a count: 1 if absent, 0 if negative.
    pub fn replica_count(&self) -> usize {
        usize::try_from(self.replicas.unwrap_or(1)).unwrap_or(0)
    }

    /// `spec.version`, or an empty string if absent.
    pub fn version(&self) -> &str {
        self.version.as_deref().unwrap_or_default()
    }

    /// How long a new Machine's certificates are valid, in days.
    pub fn certificate_validity_days(&self) -> i64 {
        let configured = self.kubeadm_config_spec.certificate_validity_days();
        configured.unwrap_or(DEFAULT_CERTIFICATE_VALIDITY_DAYS)
    }

    /// Whether every new Machine is outdated immediately, because its certificates expire within
    /// `certificatesExpiryDays`.
    pub fn rolls_out_forever(&self) -> bool {
        self.certificates_expiry_days
            .is_some_and(|days| days >= self.certificate_validity_days())
    }
}

impl KubeadmControlPlaneStatus {
    /// A failure from which the controller does not recover, as `reason: message`. `None` if the controller reports no
    /// such failure.
    pub fn failure(&self) -> Option<String> {
        match (&self.failure_reason, &self.failure_message) {
            (Some(reason), Some(message)) => Some(format!("{reason}: {message}")),
            (one, other) => one.as_ref().or(other.as_ref()).cloned(),
        }
    }
}

/// A control plane without the large fields of its kubeadm configuration. Decoding a long list drops those fields with
/// [`KubeadmConfigSpec::drop_unread_fields`] before it decodes the next item.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "KubeadmControlPlane")]
pub struct ControlPlaneWithoutConfig(pub KubeadmControlPlane);

impl Object for ControlPlaneWithoutConfig {
    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }
}

impl From<KubeadmControlPlane> for ControlPlaneWithoutConfig {
    fn from(mut control_plane: KubeadmControlPlane) -> Self {
        control_plane.spec.kubeadm_config_spec.drop_unread_fields();
        Self(control_plane)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default)]
    api_version: String,
    #[serde(deserialize_with = "metadata::without_field_sets")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    replicas: Option<i64>,
    version: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    kubeadm_config_spec: Map<String, Value>,
    machine_template: Option<WireMachineTemplate>,
    // v1beta2
    rollout: Option<WireRollout>,
    remediation: Option<WireRemediation>,
    // v1beta1
    #[serde(default, deserialize_with = "timestamp")]
    rollout_after: Option<Timestamp>,
    rollout_before: Option<WireRolloutBefore>,
    rollout_strategy: Option<WireRolloutStrategy>,
    remediation_strategy: Option<WireRemediation>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMachineTemplate {
    spec: Option<WireMachineTemplateSpec>,
    infrastructure_ref: Option<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMachineTemplateSpec {
    infrastructure_ref: Option<Reference>,
}

#[derive(Default, Deserialize)]
struct WireRollout {
    #[serde(default, deserialize_with = "timestamp")]
    after: Option<Timestamp>,
    before: Option<WireRolloutBefore>,
    strategy: Option<WireRolloutStrategy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRolloutBefore {
    certificates_expiry_days: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRolloutStrategy {
    rolling_update: Option<WireRollingUpdate>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRollingUpdate {
    max_surge: Option<IntOrString>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRemediation {
    max_retry: Option<i64>,
    // v1beta2
    retry_period_seconds: Option<i64>,
    min_healthy_period_seconds: Option<i64>,
    // v1beta1
    retry_period: Option<SignedDuration>,
    min_healthy_period: Option<SignedDuration>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    observed_generation: Option<i64>,
    replicas: Option<i64>,
    ready_replicas: Option<i64>,
    version: Option<String>,
    conditions: Option<Vec<Condition>>,
    // v1beta2
    available_replicas: Option<i64>,
    up_to_date_replicas: Option<i64>,
    initialization: Option<WireInitialization>,
    deprecated: Option<WireDeprecated>,
    // v1beta1
    updated_replicas: Option<i64>,
    unavailable_replicas: Option<i64>,
    initialized: Option<bool>,
    failure_reason: Option<String>,
    failure_message: Option<String>,
    v1beta2: Option<WireV1Beta2Status>,
}

/// The v1beta2 fields of an object that is served as v1beta1.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireV1Beta2Status {
    conditions: Option<Vec<Condition>>,
    ready_replicas: Option<i64>,
    available_replicas: Option<i64>,
    up_to_date_replicas: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireInitialization {
    control_plane_initialized: Option<bool>,
}

/// The v1beta1 fields of an object that is served as v1beta2.
#[derive(Deserialize)]
struct WireDeprecated {
    v1beta1: Option<WireFailure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireFailure {
    failure_reason: Option<String>,
    failure_message: Option<String>,
}

impl From<Wire> for KubeadmControlPlane {
    fn from(wire: Wire) -> Self {
        Self {
            spec: wire.spec.into_spec(&wire.api_version),
            status: wire.status.into(),
            api_version: wire.api_version,
            metadata: wire.metadata,
        }
    }
}

impl WireSpec {
    fn into_spec(self, api_version: &str) -> KubeadmControlPlaneSpec {
        let rollout = self.rollout.unwrap_or_default();
        let before = rollout.before.or(self.rollout_before);
        let strategy = rollout.strategy.or(self.rollout_strategy);
        let max_surge = strategy.and_then(|strategy| strategy.rolling_update?.max_surge);
        let template = self.machine_template.and_then(|template| {
            let v1beta2 = template.spec.and_then(|spec| spec.infrastructure_ref);
            v1beta2.or(template.infrastructure_ref)
        });
        KubeadmControlPlaneSpec {
            replicas: self.replicas,
            version: self.version,
            rollout_after: rollout.after.or(self.rollout_after),
            certificates_expiry_days: before
                .and_then(|before| before.certificates_expiry_days)
                .filter(|days| *days != 0),
            max_surge: max_surge.map_or(1, whole_number),
            remediation: self
                .remediation
                .or(self.remediation_strategy)
                .unwrap_or_default()
                .into(),
            infrastructure_ref: template.unwrap_or_default(),
            kubeadm_config_spec: KubeadmConfigSpec::new(api_version, self.kubeadm_config_spec),
        }
    }
}

fn is_of_status(entry: &ManagedFieldsEntry) -> bool {
    entry.subresource.as_deref() == Some("status")
}

fn whole_number(value: IntOrString) -> usize {
    match value {
        IntOrString::Int(number) => usize::try_from(number).unwrap_or(0),
        IntOrString::String(text) => text.parse().unwrap_or(0),
    }
}

impl From<WireRemediation> for RemediationLimits {
    fn from(wire: WireRemediation) -> Self {
        let default = Self::default();
        let seconds = |seconds: Option<i64>| seconds.map(SignedDuration::from_secs);
        let retry_period = seconds(wire.retry_period_seconds).or(wire.retry_period);
        let min_healthy_period = seconds(wire.min_healthy_period_seconds).or(wire.min_healthy_period);
        Self {
            max_retry: wire.max_retry,
            retry_period: retry_period.unwrap_or(default.retry_period),
            min_healthy_period: min_healthy_period.unwrap_or(default.min_healthy_period),
        }
    }
}

impl From<WireStatus> for KubeadmControlPlaneStatus {
    fn from(wire: WireStatus) -> Self {
        let v1beta2 = wire.v1beta2.unwrap_or_default();
        let failure = wire.deprecated.and_then(|deprecated| deprecated.v1beta1);
        let (failure_reason, failure_message) = failure.map_or((None, None), |failure| {
            (failure.failure_reason, failure.failure_message)
        });
        let initialized = wire
            .initialization
            .and_then(|initialization| initialization.control_plane_initialized);
        let replicas = wire.replicas.unwrap_or(0);
        let available = wire
            .unavailable_replicas
            .map(|unavailable| replicas - unavailable);
        Self {
            observed_generation: wire.observed_generation,
            replicas,
            // Both versions have `readyReplicas`, but they count different Machines.
            ready_replicas: v1beta2.ready_replicas.or(wire.ready_replicas).unwrap_or(0),
            available_replicas: wire
                .available_replicas
                .or(v1beta2.available_replicas)
                .or(available)
                .unwrap_or(0),
            up_to_date_replicas: wire
                .up_to_date_replicas
                .or(v1beta2.up_to_date_replicas)
                .or(wire.updated_replicas)
                .unwrap_or(0),
            version: wire.version,
            initialized: initialized.or(wire.initialized).unwrap_or(false),
            failure_reason: wire.failure_reason.or(failure_reason),
            failure_message: wire.failure_message.or(failure_message),
            conditions: v1beta2.conditions.or(wire.conditions).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
