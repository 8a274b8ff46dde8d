//! What cannot be changed once a control plane exists.
//!
//! A list of what is immutable, not of what is mutable: a field that we do not know passes, so that a newer Cluster
//! API is never held up.

use std::fmt;

use crate::{
    action::Action,
    api::{
        KubeadmControlPlane, Text, Verbatim,
        kubeadm_config::{ClusterConfiguration, KubeadmConfigSpec},
    },
    case::{Answer, Case, V1BETA1},
    cel::{Cel, Without},
    change::Change,
    fault::{CauseReason, Fault, Faults, quoted},
    rule::{Check, ON_UPDATE, Rule, Scope},
    topics::Topic,
};

/// What cannot be changed once a control plane exists.
pub const TOPIC: Topic = Topic {
    name: "immutability",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "cluster-configuration-immutable",
        summary: "settings that kubeadm init fixed for the whole cluster do not change",
        operations: ON_UPDATE,
        action: Action::Deny,
        scope: Scope::Transition,
        overridable: false,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: the paths that its allow list leaves out",
        check: Check::ControlPlane(cluster_configuration_immutable),
        cel: Cel::Faults(include_str!("cel/cluster-configuration-immutable.cel")),
    },
    Rule {
        id: "kubeadm-section-removed",
        summary: "the cluster, init and join configurations are not removed entirely",
        operations: ON_UPDATE,
        action: Action::Deny,
        scope: Scope::Transition,
        overridable: false,
        source: "KubeadmControlPlane proposal, Create: all three stanzas should be specified",
        check: Check::ControlPlane(section_removed),
        cel: Cel::Faults(include_str!("cel/kubeadm-section-removed.cel")),
    },
    Rule {
        id: "kubeadm-config-frozen",
        summary: "the kubeadm configuration does not change",
        operations: ON_UPDATE,
        action: Action::Off,
        scope: Scope::Transition,
        overridable: true,
        source: "2019 proposal, Upgrade: kubeadmConfigSpec is immutable; Cluster API has since opened it",
        check: Check::ControlPlane(config_frozen),
        cel: Cel::Without(Without::Normalized),
    },
];

const KUBEADM_CONFIG_SPEC: &str = "spec.kubeadmConfigSpec";

/// A field of `clusterConfiguration` that kubeadm init fixed.
struct Fixed {
    field: &'static str,
    /// Whether every version has it. An API server that stores v1beta2 forgets the others, and the old object never has
    /// them: then nothing tells what was there.
    kept: bool,
    value: for<'c> fn(&'c ClusterConfiguration<'_>) -> Option<Scalar<'c>>,
    why: &'static str,
    remedy: &'static str,
}

const FIXED: &[Fixed] = &[
    Fixed {
        field: "controlPlaneEndpoint",
        kept: true,
        value: |configuration| text(configuration.control_plane_endpoint.as_ref()),
        why: "every Machine's kubeconfig uses it",
        remedy: "keep it and point its DNS record elsewhere",
    },
    Fixed {
        field: "certificatesDir",
        kept: true,
        value: |configuration| text(configuration.certificates_dir.as_ref()),
        why: "existing Machines have their certificates there",
        remedy: "keep it",
    },
    Fixed {
        field: "caCertificateValidityPeriodDays",
        kept: true,
        value: |configuration| {
            configuration
                .ca_certificate_validity_period_days
                .filter(|days| *days != 0)
                .map(Scalar::Number)
        },
        why: "the cluster's CAs were created with it",
        remedy: "keep it, and rotate the CAs if they must last longer",
    },
    Fixed {
        field: "networking.serviceSubnet",
        kept: false,
        value: |configuration| text(configuration.networking.as_ref()?.service_subnet.as_ref()),
        why: "Services have addresses in it",
        remedy: "keep it, or create a new Cluster with the other network",
    },
    Fixed {
        field: "networking.podSubnet",
        kept: false,
        value: |configuration| text(configuration.networking.as_ref()?.pod_subnet.as_ref()),
        why: "pods have addresses in it",
        remedy: "keep it, or create a new Cluster with the other network",
    },
    Fixed {
        field: "networking.dnsDomain",
        kept: false,
        value: |configuration| text(configuration.networking.as_ref()?.dns_domain.as_ref()),
        why: "workloads resolve names in it",
        remedy: "keep it, or create a new Cluster with the other domain",
    },
    Fixed {
        field: "kubernetesVersion",
        kept: false,
        value: |configuration| text(configuration.kubernetes_version.as_ref()),
        why: "Cluster API takes the version from spec.version",
        remedy: "keep it, and change spec.version instead",
    },
    Fixed {
        field: "clusterName",
        kept: false,
        value: |configuration| text(configuration.cluster_name.as_ref()),
        why: "Cluster API takes the name from the Cluster",
        remedy: "keep it",
    },
];

#[derive(PartialEq)]
enum Scalar<'c> {
    Text(&'c str),
    Number(i64),
}

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Cluster API takes an empty one for unset.
fn text<'c>(value: Option<&'c Text<'_>>) -> Option<Scalar<'c>> {
    value
        .filter(|text| !text.is_empty())
        .map(|text| Scalar::Text(text))
}

fn cluster_configuration_immutable(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    // A section that is gone as a whole is the other rule's.
    let (Some(old), Some(new)) = (change.old, cluster_configuration(change.new)) else {
        return;
    };
    let unset = ClusterConfiguration::default();
    let old = cluster_configuration(old).unwrap_or(&unset);
    for fixed in FIXED {
        let (was, is) = ((fixed.value)(old), (fixed.value)(new));
        if was != is && (fixed.kept || was.is_some()) {
            faults.push(Fault {
                field: format!("{KUBEADM_CONFIG_SPEC}.clusterConfiguration.{}", fixed.field).into(),
                reason: CauseReason::Forbidden,
                value: is.map(|is| is.to_string()),
                detail: format!(
                    "it was {} when the cluster was created, and {}",
                    was.map_or("unset".to_owned(), |was| was.to_string()),
                    fixed.why
                )
                .into(),
                remedy: fixed.remedy.into(),
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
                detail: "existing Machines were created with it, and new ones would differ without it"
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
            detail: format!("this installation does not allow changes to it, and {differences} would change").into(),
            remedy: "keep it, or create a new Cluster with the other configuration".into(),
        });
    }
}

const FROZEN: &str = "kubeadm-config-frozen";
const FILE: &str = r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"x"}]}}}"#;
const OTHER_FILE: &str = r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"y"}]}}}"#;

const CASES: &[Case] = &[
    Case::update("accepts_other_file", FILE, OTHER_FILE, &[]),
    Case::update("rejects_other_file_when_frozen", FILE, OTHER_FILE, &[(FROZEN, KUBEADM_CONFIG_SPEC)]).enabling(FROZEN),
    Case::update(
        "rejects_configuration_taken_away_when_frozen",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":null,"initConfiguration":null,
            "joinConfiguration":null,"verbosity":4}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":null}}"#,
        &[(FROZEN, KUBEADM_CONFIG_SPEC)],
    )
    .enabling(FROZEN),
    Case::update("accepts_scale_when_frozen", FILE, r#"{"spec":{"replicas":5}}"#, &[]).enabling(FROZEN),
    Case::update(
        "accepts_other_image_repository",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"imageRepository":"a.example/b"}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"imageRepository":"c.example/d"}}}}"#,
        &[],
    ),
    Case::update(
        "rejects_other_control_plane_endpoint",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controlPlaneEndpoint":"a.example:6443"}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controlPlaneEndpoint":"b.example:6443"}}}}"#,
        &[(IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.controlPlaneEndpoint")],
    ),
    Case::update(
        "rejects_other_certificates_dir",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"certificatesDir":"/a"}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"certificatesDir":null}}}}"#,
        &[(IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.certificatesDir")],
    ),
    Case::update(
        "rejects_other_ca_validity",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"caCertificateValidityPeriodDays":365}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"caCertificateValidityPeriodDays":730}}}}"#,
        &[(IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.caCertificateValidityPeriodDays")],
    ),
    Case::update(
        "rejects_other_networks_in_v1beta1",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"networking":{"podSubnet":"10.0.0.0/8"}}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"networking":
            {"podSubnet":"10.1.0.0/16","dnsDomain":"b"}}}}}"#,
        &[(IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.networking.podSubnet")],
    )
    .of(V1BETA1)
    .answered(Answer::Admitted),
    Case::update(
        "accepts_networks_and_names_that_may_have_been_forgotten",
        "{}",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"networking":{"podSubnet":"10.1.0.0/16"},
            "clusterName":"b","kubernetesVersion":"v1.34.3"}}}}"#,
        &[],
    )
    .of(V1BETA1),
    Case::update(
        "accepts_empty_text",
        "{}",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":
            {"controlPlaneEndpoint":"","certificatesDir":"","clusterName":""}}}}"#,
        &[],
    )
    .of(V1BETA1)
    .answered(Answer::Schema(&[
        "spec.kubeadmConfigSpec.clusterConfiguration.certificatesDir",
        "spec.kubeadmConfigSpec.clusterConfiguration.clusterName",
        "spec.kubeadmConfigSpec.clusterConfiguration.controlPlaneEndpoint",
    ])),
    Case::update(
        "rejects_other_names_in_v1beta1",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"clusterName":"a","kubernetesVersion":"v1.34.2"}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"clusterName":"b","kubernetesVersion":"v1.34.3"}}}}"#,
        &[
            (IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.kubernetesVersion"),
            (IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.clusterName"),
        ],
    )
    .of(V1BETA1)
    .answered(Answer::Admitted),
    Case::update(
        "accepts_change_inside_a_section",
        r#"{"spec":{"kubeadmConfigSpec":{"joinConfiguration":{"patches":{"directory":"/a"}}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"joinConfiguration":{"patches":{"directory":"/b"}}}}}"#,
        &[],
    ),
    Case::update(
        "rejects_removed_init_and_join_sections",
        r#"{"spec":{"kubeadmConfigSpec":{"initConfiguration":{"patches":{"directory":"/a"}},
            "joinConfiguration":{"patches":{"directory":"/a"}}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"initConfiguration":null,"joinConfiguration":null}}}"#,
        &[
            (REMOVED, "spec.kubeadmConfigSpec.initConfiguration"),
            (REMOVED, "spec.kubeadmConfigSpec.joinConfiguration"),
        ],
    ),
    Case::update(
        "rejects_removed_cluster_section",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"imageRepository":"a.example/b"}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":null}}}"#,
        &[(REMOVED, "spec.kubeadmConfigSpec.clusterConfiguration")],
    ),
];

const IMMUTABLE: &str = "cluster-configuration-immutable";
const REMOVED: &str = "kubeadm-section-removed";
