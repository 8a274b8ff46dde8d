//! Cases of the rules in [`crate::topics::coredns`].

use crate::{
    testing::case::{Answer, Case},
    topics::coredns::FIELD,
};

const OLD: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.12.1"}}}}}"#;
const LOWER: &str =
    r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.11.3"}}}}}"#;
const UNSUPPORTED: &str = "coredns-migration-unsupported";

pub(super) const CASES: &[Case] = &[
    Case::update(
        "accepts_upgrade",
        OLD,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.13.1"}}}}}"#,
        &[],
    ),
    Case::update(
        "accepts_another_build_of_unknown_version",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.8.1"}}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.8.1_vendor.2"}}}}}"#,
        &[],
    ),
    Case::update(
        "accepts_removed_tag",
        OLD,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":null}}}}"#,
        &[],
    ),
    Case::update("rejects_downgrade", OLD, LOWER, &[(UNSUPPORTED, FIELD)]),
    Case::update(
        "warns_of_the_first_tag",
        r#"{"metadata":{"generation":1},"status":{"observedGeneration":1,"replicas":3}}"#,
        LOWER,
        &[("coredns-version-unknown", FIELD)],
    ),
    Case::update("accepts_the_first_tag_before_the_first_machine", "{}", LOWER, &[]),
    Case::update(
        "accepts_the_first_tag_that_cluster_api_skips",
        r#"{"metadata":{"annotations":{"controlplane.cluster.x-k8s.io/skip-coredns":""}},"status":{"replicas":3}}"#,
        LOWER,
        &[],
    ),
    Case::update(
        "accepts_downgrade_that_cluster_api_skips",
        OLD,
        r#"{"metadata":{"annotations":{"controlplane.cluster.x-k8s.io/skip-coredns":""}},
            "spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.11.3"}}}}}"#,
        &[],
    ),
    Case::update(
        "warns_of_version_between_known_ones",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.8.0"}}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.8.2"}}}}}"#,
        &[("coredns-version-unknown", FIELD)],
    )
    .answered_by(Answer::ClusterApi),
    Case::update(
        "warns_of_upgrade_from_version_between_known_ones",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.8.2"}}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.12.1"}}}}}"#,
        &[("coredns-version-unknown", FIELD)],
    )
    .answered_by(Answer::ClusterApi),
    Case::update(
        "rejects_upgrade_from_version_without_migration",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"1.0.6"}}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.12.1"}}}}}"#,
        &[(UNSUPPORTED, FIELD)],
    ),
    Case::update(
        "warns_of_newer_version",
        OLD,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.99.0"}}}}}"#,
        &[("coredns-version-unknown", FIELD)],
    )
    .answered_by(Answer::ClusterApi),
];
