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
        r#"{"spec":{"size":2,"platform":{"vsphere":null,"aws":{"region":"eu-1"}},"inventory":null}}"#,
        &[],
    ),
];
