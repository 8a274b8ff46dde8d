//! Cases of the rules in [`crate::topics::remediation`].

use crate::testing::case::{Case, V1BETA1, V1BETA2};

const RULE: &str = "max-retry-negative";

pub(super) const CASES: &[Case] = &[
    Case::create(
        "accepts_no_retries",
        r#"{"spec":{"remediation":{"maxRetry":0}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_negative_retries",
        r#"{"spec":{"remediation":{"maxRetry":-1}}}"#,
        &[(RULE, "spec.remediation.maxRetry")],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_negative_retries_in_v1beta1",
        r#"{"spec":{"remediationStrategy":{"maxRetry":-1}}}"#,
        &[(RULE, "spec.remediationStrategy.maxRetry")],
    )
    .only_in_version(V1BETA1),
    Case::template(
        "rejects_negative_retries_in_template",
        r#"{"spec":{"template":{"spec":{"remediation":{"maxRetry":-1}}}}}"#,
        &[(RULE, "spec.template.spec.remediation.maxRetry")],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "rejects_negative_retries_in_template_in_v1beta1",
        r#"{"spec":{"template":{"spec":{"remediationStrategy":{"maxRetry":-1}}}}}"#,
        &[(RULE, "spec.template.spec.remediationStrategy.maxRetry")],
    )
    .only_in_version(V1BETA1),
];
