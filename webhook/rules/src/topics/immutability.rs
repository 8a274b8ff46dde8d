//! Fields that cannot change after a control plane has been created.
//!
//! The rules list immutable fields, not mutable ones. Unknown fields may change, so that the rules never block new
//! fields of Cluster API.

use std::fmt;

use crate::{
    action::Action,
    api::{
        KubeadmControlPlane, Text, Verbatim,
        kubeadm_config::{ClusterConfiguration, KubeadmConfigSpec},
    },
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, ON_UPDATE, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "immutability",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "cluster-configuration-immutable",
        summary: "settings that kubeadm init sets once for the whole cluster must not change",
        why: "kubeadm init writes these settings into certificates, kubeconfigs and manifests of the first \
              Machine. A later change applies only to new Machines, which then no longer match the existing \
              ones.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: the paths that its allow list omits",
        check: Check::ControlPlane(cluster_configuration_immutable),
        cel: Cel::Faults(include_str!("cel/cluster-configuration-immutable.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "kubeadm-section-removed",
        summary: "the cluster, init and join configurations must not be removed",
        why: "If one of these sections is missing, kubeadm uses its own defaults on new Machines, so the new \
              Machines differ from the existing ones.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        source: "KubeadmControlPlane proposal, section \"Create\": all three stanzas should be specified",
        check: Check::ControlPlane(section_removed),
        cel: Cel::Faults(include_str!("cel/kubeadm-section-removed.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "kubeadm-config-frozen",
        summary: "the kubeadm configuration must not change",
        why: "A change to the kubeadm configuration makes Cluster API replace every Machine. This rule is \
              off by default; a platform team can turn it on to keep all Machines of a control plane \
              identical.",
        operations: ON_UPDATE,
        action: Action::Off,
        scope: Scope::Transition,
        overridable: true,
        source: "KubeadmControlPlane proposal of 2019, Upgrade: kubeadmConfigSpec is immutable; Cluster API now \
                 allows changes",
        check: Check::ControlPlane(config_frozen),
        cel: Cel::None(NoCel::Normalized),
        ..Rule::USUAL
    },
];

pub(crate) const KUBEADM_CONFIG_SPEC: &str = "spec.kubeadmConfigSpec";

/// A field of `clusterConfiguration` that kubeadm init sets once.
struct ImmutableField {
    field: &'static str,
    /// Whether every API version has the field. An API server that stores v1beta2 drops a field that only v1beta1 has.
    /// If the old object does not have such a field, its old value is therefore unknown.
    in_all_versions: bool,
    value: for<'c> fn(&'c ClusterConfiguration<'_>) -> Option<FieldValue<'c>>,
    reason: &'static str,
    remedy: &'static str,
}

const IMMUTABLE_FIELDS: &[ImmutableField] = &[
    ImmutableField {
        field: "controlPlaneEndpoint",
        in_all_versions: true,
        value: |configuration| text(configuration.control_plane_endpoint.as_ref()),
        reason: "every Machine's kubeconfig uses the original endpoint",
        remedy: "keep the endpoint, and change the address in its DNS record",
    },
    ImmutableField {
        field: "certificatesDir",
        in_all_versions: true,
        value: |configuration| text(configuration.certificates_dir.as_ref()),
        reason: "existing Machines have their certificates in the original directory",
        remedy: "keep the current value",
    },
    ImmutableField {
        field: "caCertificateValidityPeriodDays",
        in_all_versions: true,
        value: |configuration| {
            configuration
                .ca_certificate_validity_period_days
                .filter(|days| *days != 0)
                .map(FieldValue::Number)
        },
        reason: "the cluster's CAs were created with the original validity",
        remedy: "keep the current validity, and rotate the CAs if they must last longer",
    },
    ImmutableField {
        field: "networking.serviceSubnet",
        in_all_versions: false,
        value: |configuration| text(configuration.networking.as_ref()?.service_subnet.as_ref()),
        reason: "Services have addresses in the original range",
        remedy: "keep the current range, or create a new Cluster with the new range",
    },
    ImmutableField {
        field: "networking.podSubnet",
        in_all_versions: false,
        value: |configuration| text(configuration.networking.as_ref()?.pod_subnet.as_ref()),
        reason: "pods have addresses in the original range",
        remedy: "keep the current range, or create a new Cluster with the new range",
    },
    ImmutableField {
        field: "networking.dnsDomain",
        in_all_versions: false,
        value: |configuration| text(configuration.networking.as_ref()?.dns_domain.as_ref()),
        reason: "workloads resolve Service names in the original domain",
        remedy: "keep the current domain, or create a new Cluster with the new domain",
    },
    ImmutableField {
        field: "kubernetesVersion",
        in_all_versions: false,
        value: |configuration| text(configuration.kubernetes_version.as_ref()),
        reason: "Cluster API takes the version from spec.version",
        remedy: "keep the current value, and change spec.version instead",
    },
    ImmutableField {
        field: "clusterName",
        in_all_versions: false,
        value: |configuration| text(configuration.cluster_name.as_ref()),
        reason: "Cluster API takes the name from the Cluster",
        remedy: "keep the current value",
    },
];

#[derive(PartialEq)]
enum FieldValue<'c> {
    Text(&'c str),
    Number(i64),
}

impl fmt::Display for FieldValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str(HIDDEN),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// The text of a field; `None` if it is empty, which Cluster API treats as unset.
fn text<'c>(value: Option<&'c Text<'_>>) -> Option<FieldValue<'c>> {
    value
        .filter(|text| !text.is_empty())
        .map(|text| FieldValue::Text(text))
}

fn cluster_configuration_immutable(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    // Another rule covers the removal of the whole section.
    let (Some(old), Some(new)) = (change.old, cluster_configuration(change.new)) else {
        return;
    };
    let unset = ClusterConfiguration::default();
    let old = cluster_configuration(old).unwrap_or(&unset);
    for immutable in IMMUTABLE_FIELDS {
        let (was, is) = ((immutable.value)(old), (immutable.value)(new));
        if was != is && (immutable.in_all_versions || was.is_some()) {
            faults.push(Fault {
                field: format!("{KUBEADM_CONFIG_SPEC}.clusterConfiguration.{}", immutable.field).into(),
                reason: CauseReason::Forbidden,
                value: is.as_ref().map(ToString::to_string),
                detail: format!(
                    "the value was {} when the cluster was created, and {}",
                    match was {
                        None => "unset".to_owned(),
                        Some(FieldValue::Text(_)) if is.is_none() => "set".to_owned(),
                        Some(FieldValue::Text(_)) => "another string".to_owned(),
                        Some(number) => number.to_string(),
                    },
                    immutable.reason
                )
                .into(),
                remedy: immutable.remedy.into(),
            });
        }
    }
}

fn cluster_configuration<'k, 'a>(
    control_plane: &'k KubeadmControlPlane<'a>,
) -> Option<&'k ClusterConfiguration<'a>> {
    control_plane.kubeadm_config()?.cluster_configuration.as_ref()
}

fn section_removed(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(old) = change.old.and_then(KubeadmControlPlane::kubeadm_config) else {
        return;
    };
    let none = KubeadmConfigSpec::default();
    let new = change.new.kubeadm_config().unwrap_or(&none);
    let sections = [
        (
            "clusterConfiguration",
            old.cluster_configuration.is_some(),
            new.cluster_configuration.is_some(),
        ),
        (
            "initConfiguration",
            old.init_configuration.is_some(),
            new.init_configuration.is_some(),
        ),
        (
            "joinConfiguration",
            old.join_configuration.is_some(),
            new.join_configuration.is_some(),
        ),
    ];
    for (section, was, is) in sections {
        if was && !is {
            faults.push(Fault {
                field: format!("{KUBEADM_CONFIG_SPEC}.{section}").into(),
                reason: CauseReason::Required,
                value: None,
                detail:
                    "existing Machines were created with this section, and new Machines would differ without this \
                    section"
                        .into(),
                remedy: "keep the section and change fields inside it".into(),
            });
        }
    }
}

fn config_frozen(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(old) = change.old else { return };
    let differences = Verbatim::differences(
        old.spec.kubeadm_config_spec.as_ref(),
        change.new.spec.kubeadm_config_spec.as_ref(),
    );
    if !differences.is_empty() {
        faults.push(Fault {
            field: KUBEADM_CONFIG_SPEC.into(),
            reason: CauseReason::Forbidden,
            value: None,
            detail: format!(
                "the rule kubeadm-config-frozen forbids changes to the configuration, but \
                             this write changes {differences}"
            )
            .into(),
            remedy: "keep the configuration, or create a new Cluster with the new configuration".into(),
        });
    }
}
