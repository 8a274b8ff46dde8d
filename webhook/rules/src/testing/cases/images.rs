//! Cases of the rules in [`crate::topics::images`].

use crate::testing::case::Case;

const DNS: &str = "spec.kubeadmConfigSpec.clusterConfiguration.dns.imageTag";

pub(super) const CASES: &[Case] = &[
    Case::create("accepts_tags", TAGS, &[]),
    Case::create(
        "accepts_build_in_tag",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.13.1_vendor.2"}}}}}"#,
        &[],
    ),
    Case::create(
        "accepts_short_version",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"1.13"}}}}}"#,
        &[],
    ),
    Case::create(
        "rejects_image_name_in_dns_tag",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"coredns:v1.13.1"}}}}}"#,
        &[("image-tag-invalid", DNS)],
    ),
    Case::create(
        "rejects_build_with_plus",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.13.1+vendor.2"}}}}}"#,
        &[("image-tag-invalid", DNS)],
    ),
    Case::create(
        "rejects_digest_in_etcd_tag",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"imageTag":"3.6.5-0@sha256:00"}}}}}}"#,
        &[(
            "image-tag-invalid",
            "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.imageTag",
        )],
    ),
    Case::create(
        "rejects_dns_tag_without_version",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"latest"}}}}}"#,
        &[("dns-image-tag-not-semantic", DNS)],
    ),
    Case::template(
        "rejects_tags_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":
            {"dns":{"imageTag":"latest"},"etcd":{"local":{"imageTag":"-"}}}}}}}}"#,
        &[
            (
                "image-tag-invalid",
                "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.imageTag",
            ),
            (
                "dns-image-tag-not-semantic",
                "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.dns.imageTag",
            ),
        ],
    ),
];

const TAGS: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":
    {"dns":{"imageTag":"v1.13.1"},"etcd":{"local":{"imageTag":"3.6.5-0"}}}}}}"#;
