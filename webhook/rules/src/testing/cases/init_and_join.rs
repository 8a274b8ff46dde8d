//! Cases of the rules in [`crate::topics::init_and_join`].

use crate::testing::case::{Case, V1BETA2};

const DIFFERENT: &str = "health-check-seconds-differ";
const MISSING: &str = "kubeadm-section-missing";
const CONFLICT: &str = "discovery-user-conflict";
const BOTH_USERS: &str = r#"{"spec":{"kubeadmConfigSpec":{"joinConfiguration":{"discovery":{"file":{
    "kubeConfigPath":"/a","kubeConfig":{"user":{"authProvider":{"name":"a"},"exec":{"command":"b"}}}}}}}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::create("accepts_all_sections", "{}", &[]),
    Case::create(
        "warns_of_missing_join",
        r#"{"spec":{"kubeadmConfigSpec":{"joinConfiguration":null}}}"#,
        &[(MISSING, "spec.kubeadmConfigSpec.joinConfiguration")],
    ),
    Case::create(
        "warns_of_missing_init",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":null,"initConfiguration":null}}}"#,
        &[(MISSING, "spec.kubeadmConfigSpec.initConfiguration")],
    ),
    Case::create(
        "accepts_neither_init_nor_join",
        r#"{"spec":{"kubeadmConfigSpec":{"initConfiguration":null,"joinConfiguration":null}}}"#,
        &[],
    ),
    Case::create(
        "accepts_missing_kubeadm_configuration",
        r#"{"spec":{"kubeadmConfigSpec":null}}"#,
        &[],
    ).only_in_version(V1BETA2),
    Case::update(
        "accepts_sections_that_were_already_missing",
        r#"{"spec":{"kubeadmConfigSpec":{"joinConfiguration":null}}}"#,
        r#"{"spec":{"replicas":5}}"#,
        &[],
    ),
    Case::update(
        "accepts_init_that_is_added_without_join",
        r#"{"spec":{"kubeadmConfigSpec":{"initConfiguration":null,"joinConfiguration":null}}}"#,
        r#"{"spec":{"kubeadmConfigSpec":{"initConfiguration":{"nodeRegistration":{"name":"node"}}}}}"#,
        &[],
    ),
    Case::create(
        "accepts_equal_timeouts",
        r#"{"spec":{"kubeadmConfigSpec":{
            "initConfiguration":{"timeouts":{"controlPlaneComponentHealthCheckSeconds":300}},
            "joinConfiguration":{"timeouts":{"controlPlaneComponentHealthCheckSeconds":300}}}}}"#,
        &[],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_different_timeouts",
        r#"{"spec":{"kubeadmConfigSpec":{
            "initConfiguration":{"timeouts":{"controlPlaneComponentHealthCheckSeconds":300}},
            "joinConfiguration":{"timeouts":{"controlPlaneComponentHealthCheckSeconds":240}}}}}"#,
        &[(
            DIFFERENT,
            "spec.kubeadmConfigSpec.joinConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
        )],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_timeout_only_in_join",
        r#"{"spec":{"kubeadmConfigSpec":{
            "joinConfiguration":{"timeouts":{"controlPlaneComponentHealthCheckSeconds":240}}}}}"#,
        &[(
            DIFFERENT,
            "spec.kubeadmConfigSpec.initConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
        )],
    ).only_in_version(V1BETA2),
    Case::template(
        "rejects_timeout_only_in_init_of_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{
            "initConfiguration":{"timeouts":{"controlPlaneComponentHealthCheckSeconds":240}}}}}}}"#,
        &[(
            DIFFERENT,
            "spec.template.spec.kubeadmConfigSpec.joinConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
        )],
    ).only_in_version(V1BETA2),
    Case::create(
        "accepts_one_way_to_authenticate",
        r#"{"spec":{"kubeadmConfigSpec":{"joinConfiguration":{"discovery":{"file":{
            "kubeConfigPath":"/a","kubeConfig":{"user":{"exec":{"command":"b"}}}}}}}}}"#,
        &[],
    ),
    Case::create(
        "rejects_two_ways_to_authenticate",
        BOTH_USERS,
        &[(
            CONFLICT,
            "spec.kubeadmConfigSpec.joinConfiguration.discovery.file.kubeConfig.user",
        )],
    ),
    Case::template(
        "rejects_two_ways_to_authenticate_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"joinConfiguration":{"discovery":{"file":{
            "kubeConfigPath":"/a","kubeConfig":{"user":{"authProvider":{"name":"a"},"exec":{"command":"b"}}}}}}}}}}}"#,
        &[(
            CONFLICT,
            "spec.template.spec.kubeadmConfigSpec.joinConfiguration.discovery.file.kubeConfig.user",
        )],
    ),
];
