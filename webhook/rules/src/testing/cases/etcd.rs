//! Cases of the rules in [`crate::topics::etcd`].

use crate::{testing::case::Case, topics::etcd::EXTERNAL};

const TAG_FIELD: &str = "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.imageTag";
const AT_1_35: &str = r#"{"spec":{"version":"v1.35.3","kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"imageTag":"3.6.6-0"}}}}}}"#;
const STACKED: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"dataDir":"/data"},"external":null}}}}}"#;
const EXTERNAL_ETCD: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":null,"external":{
    "endpoints":["https://etcd:2379"],"caFile":"/ca","certFile":"/cert","keyFile":"/key"}}}}}}"#;
const OTHER_EXTERNAL_ETCD: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"external":{
    "endpoints":["https://etcd-2:2379"],"caFile":"/ca","certFile":"/cert","keyFile":"/key"}}}}}}"#;
const LOCAL_AND_EXTERNAL: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"dataDir":"/data"},"external":{
    "endpoints":["https://etcd:2379"],"caFile":"/ca","certFile":"/cert","keyFile":"/key"}}}}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::create("accepts_stacked", STACKED, &[]),
    Case::create("accepts_external", EXTERNAL_ETCD, &[]),
    Case::create(
        "rejects_both",
        LOCAL_AND_EXTERNAL,
        &[("etcd-local-and-external", EXTERNAL)],
    ),
    Case::update(
        "accepts_changed_external_endpoints",
        EXTERNAL_ETCD,
        OTHER_EXTERNAL_ETCD,
        &[],
    ),
    Case::update(
        "rejects_stacked_to_external",
        STACKED,
        EXTERNAL_ETCD,
        &[("etcd-topology-switched", EXTERNAL)],
    ),
    Case::update(
        "rejects_external_to_stacked",
        EXTERNAL_ETCD,
        STACKED,
        &[("etcd-topology-switched", EXTERNAL)],
    ),
    Case::template(
        "rejects_both_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"dataDir":"/data"},
            "external":{"endpoints":["https://etcd:2379"]}}}}}}}}"#,
        &[(
            "etcd-local-and-external",
            "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.etcd.external",
        )],
    ),
    Case::update(
        "rejects_default_to_external",
        "{}",
        EXTERNAL_ETCD,
        &[("etcd-topology-switched", EXTERNAL)],
    ),
    Case::update(
        "rejects_etcd_3_5_at_1_36",
        r#"{"spec":{"version":"v1.35.3","kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"imageTag":"3.5.21-0"}}}}}}"#,
        r#"{"spec":{"version":"v1.36.1"}}"#,
        &[("etcd-version-unsupported", TAG_FIELD)],
    ),
    Case::template(
        "warns_of_old_etcd_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"imageTag":"3.5.21-0"}}}}}}}}"#,
        &[(
            "etcd-version-unsupported",
            "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.imageTag",
        )],
    ),
    Case::update(
        "rejects_lowered_etcd",
        AT_1_35,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"imageTag":"3.5.26-0"}}}}}}"#,
        &[("etcd-version-lowered", TAG_FIELD)],
    ),
    Case::update(
        "rejects_removal_of_a_newer_tag",
        r#"{"spec":{"version":"v1.33.2","kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"dataDir":"/d","imageTag":"3.6.5-0"}}}}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"imageTag":null}}}}}}"#,
        &[("etcd-version-lowered", TAG_FIELD)],
    ),
    Case::create(
        "accepts_tag_that_moves",
        r#"{"spec":{"version":"v1.32.2","kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"imageTag":"3.5"}}}}}}"#,
        &[],
    ),
    Case::update(
        "accepts_lower_patch_of_etcd",
        AT_1_35,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"imageTag":"3.6.5-0"}}}}}}"#,
        &[],
    ),
    Case::update(
        "warns_of_upgrade_from_an_old_etcd",
        r#"{"spec":{"version":"v1.33.4"}}"#,
        r#"{"spec":{"version":"v1.34.2"}}"#,
        &[("etcd-upgrade-unsafe", "spec.version")],
    ),
    Case::update(
        "accepts_upgrade_from_a_new_etcd",
        r#"{"spec":{"version":"v1.33.4","kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"imageTag":"3.5.26-0"}}}}}}"#,
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"imageTag":"3.6.5-0"}}}}}}"#,
        &[],
    ),
];
