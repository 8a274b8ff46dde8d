//! Cases of the rules in [`crate::topics::immutability`].

use crate::{
    testing::case::{Answer, Case, V1BETA1},
    topics::immutability::KUBEADM_CONFIG_SPEC,
};

const FROZEN: &str = "kubeadm-config-frozen";
const FILE: &str = r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"x"}]}}}"#;
const OTHER_FILE: &str = r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"y"}]}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::update("accepts_changed_file", FILE, OTHER_FILE, &[]),
    Case::update("rejects_changed_file_when_frozen", FILE, OTHER_FILE, &[(FROZEN, KUBEADM_CONFIG_SPEC)]).with_rule_enabled(FROZEN),
    Case::update(
        "rejects_removed_configuration_when_frozen",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":null,"initConfiguration":null,
            "joinConfiguration":null,"verbosity":4}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":null}}"#,
        &[(FROZEN, KUBEADM_CONFIG_SPEC)],
    )
    .with_rule_enabled(FROZEN),
    Case::update("accepts_scale_when_frozen", FILE, r#"{"spec":{"replicas":5}}"#, &[]).with_rule_enabled(FROZEN),
    Case::update(
        "accepts_changed_image_repository",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"imageRepository":"a.example/b"}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"imageRepository":"c.example/d"}}}}"#,
        &[],
    ),
    Case::update(
        "rejects_changed_control_plane_endpoint",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controlPlaneEndpoint":"a.example:6443"}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controlPlaneEndpoint":"b.example:6443"}}}}"#,
        &[(IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.controlPlaneEndpoint")],
    ),
    Case::update(
        "rejects_changed_certificates_dir",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"certificatesDir":"/a"}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"certificatesDir":null}}}}"#,
        &[(IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.certificatesDir")],
    ),
    Case::update(
        "rejects_changed_ca_validity",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"caCertificateValidityPeriodDays":365}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"caCertificateValidityPeriodDays":730}}}}"#,
        &[(IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.caCertificateValidityPeriodDays")],
    ),
    Case::update(
        "rejects_changed_networks_in_v1beta1",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"networking":{"podSubnet":"10.0.0.0/8"}}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"networking":
            {"podSubnet":"10.1.0.0/16","dnsDomain":"b"}}}}}"#,
        &[(IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.networking.podSubnet")],
    )
    .only_in_version(V1BETA1)
    .answered_by(Answer::Admitted),
    Case::update(
        "accepts_networks_and_names_that_storage_may_have_dropped",
        "{}",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"networking":{"podSubnet":"10.1.0.0/16"},
            "clusterName":"b","kubernetesVersion":"v1.34.3"}}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
    Case::update(
        "accepts_empty_text",
        "{}",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":
            {"controlPlaneEndpoint":"","certificatesDir":"","clusterName":""}}}}"#,
        &[],
    )
    .only_in_version(V1BETA1)
    .answered_by(Answer::Schema(&[
        "spec.kubeadmConfigSpec.clusterConfiguration.certificatesDir",
        "spec.kubeadmConfigSpec.clusterConfiguration.clusterName",
        "spec.kubeadmConfigSpec.clusterConfiguration.controlPlaneEndpoint",
    ])),
    Case::update(
        "rejects_changed_names_in_v1beta1",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"clusterName":"a","kubernetesVersion":"v1.34.2"}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"clusterName":"b","kubernetesVersion":"v1.34.3"}}}}"#,
        &[
            (IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.kubernetesVersion"),
            (IMMUTABLE, "spec.kubeadmConfigSpec.clusterConfiguration.clusterName"),
        ],
    )
    .only_in_version(V1BETA1)
    .answered_by(Answer::Admitted),
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
