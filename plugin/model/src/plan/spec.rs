//! What a control plane asks for, as far as Machines come and go by it.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// kubeadm's own validity of a certificate, in days.
const DEFAULT_CERTIFICATE_VALIDITY_DAYS: i64 = 365;

/// Where a configuration says otherwise.
const CERTIFICATE_VALIDITY_DAYS: &str = "/clusterConfiguration/certificateValidityPeriodDays";

/// `spec`, the same for both API versions.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Machines.
    pub replicas: usize,
    /// Kubernetes version, with a leading `v`.
    pub version: String,
    /// Machines above `replicas` that a rollout may make: 0 or 1.
    pub max_surge: usize,
    /// Machines made before this time are replaced, once it has come.
    pub rollout_after: Option<Timestamp>,
    /// Machines whose certificates expire within so many days are replaced.
    pub certificates_expiry_days: Option<i64>,
    /// What infrastructure Machines are cloned from.
    pub infrastructure: TemplateRef,
    /// What Machines are configured by.
    pub config: ConfigSpec,
    /// Limits on remediation.
    pub remediation: RemediationLimits,
}

/// A template, as the annotations `cloned-from-groupkind` and `cloned-from-name` tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateRef {
    /// `Kind.group`.
    pub group_kind: String,
    /// Its name.
    pub name: String,
}

/// The spec of a `KubeadmConfig`, or `spec.kubeadmConfigSpec`. May hold passwords and keys: it has no text form.
#[derive(Clone, PartialEq)]
pub struct ConfigSpec {
    /// `v1beta1` or `v1beta2`: fields differ.
    pub version: String,
    /// As the API server sent it.
    pub fields: Value,
}

impl fmt::Debug for ConfigSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ConfigSpec")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Limits on remediation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemediationLimits {
    /// How often a Machine may be replaced in a row; none for no limit.
    pub max_retry: Option<i64>,
    /// How long to wait between two tries.
    pub retry_period: SignedDuration,
    /// A Machine that fails before it is this old is a failure of the remediation that made it.
    pub min_healthy_period: SignedDuration,
}

impl Default for RemediationLimits {
    /// As the API documents.
    fn default() -> Self {
        Self {
            max_retry: None,
            retry_period: SignedDuration::ZERO,
            min_healthy_period: SignedDuration::from_hours(1),
        }
    }
}

/// A Kubernetes version with its leading `v`, given or not, as Cluster API's own webhook has it.
pub fn with_leading_v(version: &str) -> String {
    format!("v{}", version.strip_prefix('v').unwrap_or(version))
}

impl Spec {
    /// How long a certificate of a new Machine lasts, in days.
    pub fn certificate_validity_days(&self) -> i64 {
        self.configured_certificate_validity_days()
            .unwrap_or(DEFAULT_CERTIFICATE_VALIDITY_DAYS)
    }

    fn configured_certificate_validity_days(&self) -> Option<i64> {
        let days = self.config.fields.pointer(CERTIFICATE_VALIDITY_DAYS)?;
        days.as_i64()
    }

    /// Forgets what Machines are configured by, which may be large and hold secrets, but for how long certificates last.
    pub fn forget_config(&mut self) {
        self.config.fields = match self.configured_certificate_validity_days() {
            Some(days) => json!({"clusterConfiguration": {"certificateValidityPeriodDays": days}}),
            None => Value::Null,
        };
    }

    /// Whether new Machines would be replaced as soon as they are there, for ever: their certificates expire within
    /// the days of `certificatesExpiryDays`.
    pub fn rolls_out_for_ever(&self) -> bool {
        self.certificates_expiry_days
            .is_some_and(|days| days >= self.certificate_validity_days())
    }

    /// Machines that there may be during a rollout.
    pub const fn most_replicas(&self) -> usize {
        self.replicas + self.max_surge
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::plan::example::spec;

    #[test]
    fn certificates_that_expire_before_they_are_new_roll_out_for_ever() {
        for (days, validity, for_ever) in [
            (None, None, false),
            (Some(90), None, false),
            (Some(364), None, false),
            (Some(365), None, true),
            (Some(90), Some(90), true),
            (Some(90), Some(91), false),
        ] {
            let mut spec = spec();
            spec.certificates_expiry_days = days;
            spec.config.fields = json!({"clusterConfiguration": {"certificateValidityPeriodDays": validity}});
            assert_eq!(spec.rolls_out_for_ever(), for_ever, "{days:?} of {validity:?}");
            spec.forget_config();
            assert_eq!(spec.rolls_out_for_ever(), for_ever, "{days:?} of {validity:?}");
        }
    }
}
