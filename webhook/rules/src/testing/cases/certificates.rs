//! Cases of the rules in [`crate::topics::certificates`].

use crate::testing::case::{Case, V1BETA1, V1BETA2};

const ENDLESS: &str = "certificates-expiry-days-endless";
const ABOVE_CA: &str = "certificate-validity-above-ca";
const V1BETA2_EXPIRY: &str = "spec.rollout.before.certificatesExpiryDays";
const VALIDITY: &str = "spec.kubeadmConfigSpec.clusterConfiguration.certificateValidityPeriodDays";
const HUNDRED_OF_HUNDRED: &str = r#"{"spec":{"rollout":{"before":{"certificatesExpiryDays":100}},
    "kubeadmConfigSpec":{"clusterConfiguration":{"certificateValidityPeriodDays":100}}}}"#;
const ABOVE_CA_PATCH: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":
    {"certificateValidityPeriodDays":731,"caCertificateValidityPeriodDays":730}}}}"#;

const UNKNOWN_ALGORITHM: &str = "encryption-algorithm-unknown";
const P384_AT_33: &str = r#"{"spec":{"version":"v1.33.4","kubeadmConfigSpec":{"clusterConfiguration":{"encryptionAlgorithm":"ECDSA-P384"}}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::create(
        "rejects_p384_at_33",
        P384_AT_33,
        &[(
            UNKNOWN_ALGORITHM,
            "spec.kubeadmConfigSpec.clusterConfiguration.encryptionAlgorithm",
        )],
    ),
    Case::create(
        "accepts_p384_at_34",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"encryptionAlgorithm":"ECDSA-P384"}}}}"#,
        &[],
    ),
    Case::create(
        "accepts_p256_at_33",
        r#"{"spec":{"version":"v1.33.4","kubeadmConfigSpec":{"clusterConfiguration":{"encryptionAlgorithm":"ECDSA-P256"}}}}"#,
        &[],
    ),
    Case::create(
        "accepts_p384_at_30_whose_kubeadm_does_not_get_it",
        r#"{"spec":{"version":"v1.30.4","kubeadmConfigSpec":{"clusterConfiguration":{"encryptionAlgorithm":"ECDSA-P384"}}}}"#,
        &[],
    ),
    Case::create(
        "accepts_one_month_with_default_validity",
        r#"{"spec":{"rollout":{"before":{"certificatesExpiryDays":30}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "accepts_one_year_with_validity_of_two",
        r#"{"spec":{"rollout":{"before":{"certificatesExpiryDays":365}},
            "kubeadmConfigSpec":{"clusterConfiguration":{"certificateValidityPeriodDays":730}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_expiry_days_equal_to_validity",
        HUNDRED_OF_HUNDRED,
        &[(ENDLESS, V1BETA2_EXPIRY)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_expiry_days_above_default_validity",
        r#"{"spec":{"rollout":{"before":{"certificatesExpiryDays":400}}}}"#,
        &[(ENDLESS, V1BETA2_EXPIRY)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "accepts_validity_equal_to_the_ca",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":
            {"certificateValidityPeriodDays":730,"caCertificateValidityPeriodDays":730}}}}"#,
        &[],
    ),
    Case::create(
        "rejects_validity_above_the_ca",
        ABOVE_CA_PATCH,
        &[(ABOVE_CA, VALIDITY)],
    ),
    Case::create(
        "rejects_validity_above_the_default_ca",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"certificateValidityPeriodDays":3651}}}}"#,
        &[(ABOVE_CA, VALIDITY)],
    ),
    Case::create(
        "accepts_one_month_with_default_validity_in_v1beta1",
        r#"{"spec":{"rolloutBefore":{"certificatesExpiryDays":30}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_expiry_days_equal_to_default_validity_in_v1beta1",
        r#"{"spec":{"rolloutBefore":{"certificatesExpiryDays":365}}}"#,
        &[(ENDLESS, "spec.rolloutBefore.certificatesExpiryDays")],
    )
    .only_in_version(V1BETA1),
    Case::template(
        "rejects_days_in_template",
        r#"{"spec":{"template":{"spec":{"rollout":{"before":{"certificatesExpiryDays":365}},
            "kubeadmConfigSpec":{"clusterConfiguration":
            {"certificateValidityPeriodDays":10,"caCertificateValidityPeriodDays":9}}}}}}"#,
        &[
            (
                ENDLESS,
                "spec.template.spec.rollout.before.certificatesExpiryDays",
            ),
            (
                ABOVE_CA,
                "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.certificateValidityPeriodDays",
            ),
        ],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "rejects_days_in_template_in_v1beta1",
        r#"{"spec":{"template":{"spec":{"rolloutBefore":{"certificatesExpiryDays":365}}}}}"#,
        &[(ENDLESS, "spec.template.spec.rolloutBefore.certificatesExpiryDays")],
    )
    .only_in_version(V1BETA1),
];
