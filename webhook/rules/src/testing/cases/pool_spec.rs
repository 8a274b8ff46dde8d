//! Cases of the rules in [`crate::topics::pool_spec`].

use crate::testing::case::Case;

pub(super) const CASES: &[Case] = &[
    Case::pool(
        "accepts_cleaning",
        r#"{"metadata":{"annotations":{"kubectl-kcp.dev/clean-before-reuse":"true"}}}"#,
        &[],
    ),
    Case::pool(
        "accepts_no_cleaning",
        r#"{"metadata":{"annotations":{"kubectl-kcp.dev/clean-before-reuse":"false"}}}"#,
        &[],
    ),
    Case::pool(
        "warns_of_unclear_cleaning",
        r#"{"metadata":{"annotations":{"kubectl-kcp.dev/clean-before-reuse":"yes"}}}"#,
        &[(
            "clean-before-reuse-unclear",
            "metadata.annotations[kubectl-kcp.dev/clean-before-reuse]",
        )],
    ),
    Case::pool(
        "accepts_unknown_platform",
        r#"{"spec":{"platform":{"vsphere":null,"acme":{}}}}"#,
        &[],
    ),
    Case::pool(
        "rejects_no_platform",
        r#"{"spec":{"platform":{"vsphere":null}}}"#,
        &[("platform-not-one", "spec.platform")],
    ),
    Case::pool(
        "rejects_two_platforms",
        r#"{"spec":{"platform":{"acme":{}}}}"#,
        &[("platform-not-one", "spec.platform")],
    ),
    Case::pool_update(
        "rejects_second_platform",
        "{}",
        r#"{"spec":{"platform":{"aws":{"region":"eu-1"}}}}"#,
        &[
            ("platform-not-one", "spec.platform"),
            ("pool-version-changed", "spec.platform"),
        ],
    ),
    Case::pool(
        "accepts_limits",
        r#"{"spec":{"size":1,"runningCount":1,"maxSize":1,"maxConcurrent":0}}"#,
        &[],
    ),
    Case::pool(
        "rejects_negative_limits",
        r#"{"spec":{"size":-1,"runningCount":-1,"maxSize":-2,"maxConcurrent":-3}}"#,
        &[
            ("limits-negative", "spec.size"),
            ("limits-negative", "spec.runningCount"),
            ("limits-negative", "spec.maxSize"),
            ("limits-negative", "spec.maxConcurrent"),
        ],
    ),
    Case::pool(
        "rejects_negative_limits_without_a_minimum_in_the_crd",
        r#"{"spec":{"maxSize":-2,"maxConcurrent":-3}}"#,
        &[
            ("limits-negative", "spec.maxSize"),
            ("limits-negative", "spec.maxConcurrent"),
        ],
    ),
    Case::pool(
        "accepts_any_size_without_inventory",
        r#"{"spec":{"size":9,"runningCount":9,"maxSize":20,"inventory":null}}"#,
        &[],
    ),
    Case::pool(
        "warns_of_size_above_inventory",
        r#"{"spec":{"size":3,"runningCount":3,"inventory":[{"name":"a"}]}}"#,
        &[("size-above-inventory", "spec.size")],
    ),
    Case::pool(
        "warns_of_max_size_above_inventory",
        r#"{"spec":{"maxSize":3,"inventory":[{"name":"a"},{"name":"b"}]}}"#,
        &[("max-size-above-inventory", "spec.maxSize")],
    ),
    Case::pool_update(
        "accepts_size_that_was_already_above_inventory",
        r#"{"spec":{"size":3,"runningCount":3}}"#,
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        &[],
    ),
    Case::pool(
        "warns_of_max_size_below_size",
        r#"{"spec":{"size":2,"runningCount":2,"maxSize":1,"inventory":null}}"#,
        &[("max-size-below-size", "spec.maxSize")],
    ),
    Case::pool(
        "warns_of_hibernation_on_vsphere",
        r#"{"spec":{"size":1}}"#,
        &[("running-count-not-size", "spec.runningCount")],
    ),
    Case::pool(
        "warns_of_hibernation_on_openstack",
        r#"{"spec":{"size":2,"runningCount":1,"platform":{"vsphere":null,"openstack":{"cloud":"c"}},"inventory":null}}"#,
        &[("running-count-not-size", "spec.runningCount")],
    ),
    Case::pool(
        "accepts_hibernation_on_aws",
        r#"{"spec":{"size":2,"hibernationConfig":{"resumeTimeout":"30m0s"},
            "platform":{"vsphere":null,"aws":{"region":"eu-1"}},"inventory":null}}"#,
        &[],
    ),
    Case::pool(
        "warns_of_hibernation_without_timeout",
        r#"{"spec":{"size":2,"runningCount":1,"platform":{"vsphere":null,"aws":{"region":"eu-1"}},"inventory":null}}"#,
        RESUME_TIMEOUT_MISSING,
    ),
    Case::pool(
        "warns_of_hibernation_with_a_timeout_of_zero",
        r#"{"spec":{"size":1,"hibernationConfig":{"resumeTimeout":"0h0.0s"},
            "platform":{"vsphere":null,"aws":{"region":"eu-1"}}}}"#,
        RESUME_TIMEOUT_MISSING,
    ),
    Case::pool(
        "warns_of_hibernation_with_an_empty_configuration",
        r#"{"spec":{"size":1,"hibernationConfig":{},"platform":{"vsphere":null,"aws":{"region":"eu-1"}}}}"#,
        RESUME_TIMEOUT_MISSING,
    ),
    Case::pool(
        "accepts_running_clusters_without_timeout",
        r#"{"spec":{"size":1,"runningCount":1,"hibernateAfter":"2h","platform":{"vsphere":null,"aws":{"region":"eu-1"}}}}"#,
        &[],
    ),
    Case::pool_update(
        "warns_if_clusters_begin_to_hibernate",
        r#"{"spec":{"size":1,"runningCount":1,"platform":{"vsphere":null,"aws":{"region":"eu-1"}}}}"#,
        r#"{"spec":{"runningCount":0}}"#,
        RESUME_TIMEOUT_MISSING,
    ),
    Case::pool(
        "warns_of_template_beside_machine_pools",
        r#"{"spec":{"installConfigSecretTemplateRef":{"name":"template"}}}"#,
        MACHINE_POOLS_UNSPECIFIED,
    ),
    Case::pool(
        "accepts_template_without_machine_pools",
        r#"{"spec":{"installConfigSecretTemplateRef":{"name":"template"},"skipMachinePools":true}}"#,
        &[],
    ),
    Case::pool(
        "accepts_template_with_machine_pools_of_hive",
        r#"{"spec":{"installConfigSecretTemplateRef":{"name":"template"},"skipMachinePools":false}}"#,
        &[],
    ),
    Case::pool(
        "accepts_template_without_name",
        r#"{"spec":{"installConfigSecretTemplateRef":{"name":""}}}"#,
        &[],
    ),
    Case::pool_update(
        "accepts_existing_template_beside_machine_pools",
        r#"{"spec":{"installConfigSecretTemplateRef":{"name":"template"}}}"#,
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        &[],
    ),
];

const RESUME_TIMEOUT_MISSING: &[(&str, &str)] =
    &[("resume-timeout-missing", "spec.hibernationConfig.resumeTimeout")];
const MACHINE_POOLS_UNSPECIFIED: &[(&str, &str)] = &[("machine-pools-unspecified", "spec.skipMachinePools")];
