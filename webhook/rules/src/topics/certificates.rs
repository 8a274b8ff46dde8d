//! The validity of certificates, and the replacement of Machines before their certificates expire.

use crate::{
    api::{ControlPlaneSpec, KubeadmControlPlane},
    cel::Cel,
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "certificates",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "certificates-expiry-days-endless",
        summary: "certificatesExpiryDays must be less than the validity period of the certificates",
        why: "Cluster API replaces a Machine this many days before its certificates expire. If new \
              certificates are valid for a shorter time, Cluster API replaces each new Machine immediately, \
              and the rollout never ends.",
        scope: Scope::Object,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: must be less than the validity period",
        check: Check::ControlPlaneSpec(expiry_days_endless),
        cel: Cel::Faults(include_str!("cel/certificates-expiry-days-endless.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "certificate-validity-above-ca",
        summary: "a certificate must not be valid longer than the CA that signs it",
        why: "Clients reject a certificate as soon as its CA expires, even if the certificate itself is still \
              valid.",
        scope: Scope::Object,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: at most the CA's validity period",
        check: Check::ControlPlaneSpec(validity_above_ca),
        cel: Cel::Faults(include_str!("cel/certificate-validity-above-ca.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "encryption-algorithm-unknown",
        summary: "kubeadm must know the encryption algorithm that it gets",
        why: "kubeadm rejects a configuration with an encryption algorithm that it does not know. The first new \
              Machine then never joins the cluster, and the rollout stops.",
        scope: Scope::Object,
        overridable: true,
        source: "Kubernetes, cmd/kubeadm/app/apis/kubeadm/validation/validation.go: ValidateEncryptionAlgorithm",
        check: Check::ControlPlane(algorithm_unknown),
        cel: Cel::Faults(include_str!("cel/encryption-algorithm-unknown.cel")),
        ..Rule::USUAL
    },
];

/// The algorithm that kubeadm knows since [`P384_SINCE`]. The schema of Cluster API lists it and the older ones.
const P384: &str = "ECDSA-P384";
const P384_SINCE: u64 = 34;

/// The first minor version for which Cluster API writes the algorithm into kubeadm's configuration. For older versions, it omits
/// the algorithm.
const ALGORITHM_SINCE: u64 = 31;

/// The default validity of certificates in kubeadm, in days.
const DEFAULT_VALIDITY_DAYS: i64 = 365;
/// The default validity of CAs in Cluster API, in days.
const DEFAULT_CA_VALIDITY_DAYS: i64 = 3650;

/// A number of days; `None` for 0, which Cluster API treats as unset.
fn nonzero(days: Option<i64>) -> Option<i64> {
    days.filter(|days| *days != 0)
}

fn expiry_days_endless(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let Some(days) = nonzero(spec.certificates_expiry_days()) else {
        return;
    };
    let validity = spec
        .cluster_configuration()
        .and_then(|configuration| nonzero(configuration.certificate_validity_period_days));
    let valid = validity.unwrap_or(DEFAULT_VALIDITY_DAYS);
    if days >= valid {
        let set = if validity.is_some() {
            ""
        } else {
            " when certificateValidityPeriodDays is unset"
        };
        faults.push(Fault {
            field: spec.certificates_expiry_days_path(),
            reason: CauseReason::Invalid,
            value: Some(days.to_string()),
            detail: format!(
                "certificates are valid for {valid} days{set}, so Cluster API would replace each new Machine \
                 immediately"
            )
            .into(),
            remedy: format!("set fewer than {valid} days, or increase certificateValidityPeriodDays").into(),
        });
    }
}

fn validity_above_ca(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let Some(configuration) = change.new.cluster_configuration() else {
        return;
    };
    let Some(days) = nonzero(configuration.certificate_validity_period_days) else {
        return;
    };
    let ca = nonzero(configuration.ca_certificate_validity_period_days);
    let valid = ca.unwrap_or(DEFAULT_CA_VALIDITY_DAYS);
    if days > valid {
        let set = if ca.is_some() {
            ""
        } else {
            " when caCertificateValidityPeriodDays is unset"
        };
        faults.push(Fault {
            field: change
                .new
                .kubeadm_path("clusterConfiguration.certificateValidityPeriodDays"),
            reason: CauseReason::Invalid,
            value: Some(days.to_string()),
            detail: format!("the CA that signs the certificate is valid for {valid} days{set}").into(),
            remedy: format!("set {valid} days or fewer").into(),
        });
    }
}

fn algorithm_unknown(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let spec = change.new.common_spec();
    let cluster = spec.cluster_configuration();
    let algorithm = cluster.and_then(|cluster| cluster.encryption_algorithm.as_deref());
    let is_too_old = |minor| (ALGORITHM_SINCE..P384_SINCE).contains(&minor);
    if algorithm == Some(P384) && spec.minor().is_some_and(is_too_old) {
        faults.push(Fault {
            field: spec.kubeadm_path("clusterConfiguration.encryptionAlgorithm"),
            reason: CauseReason::NotSupported,
            value: Some(format!("{P384:?}")),
            detail: format!(
                "kubeadm before 1.{P384_SINCE} does not know this algorithm and rejects its configuration"
            )
            .into(),
            remedy: "set another algorithm, such as ECDSA-P256".into(),
        });
    }
}
