//! The replacement of unhealthy Machines.

use crate::{
    action::Action,
    api::ControlPlaneSpec,
    case::{Case, V1BETA1, V1BETA2},
    cel::Cel,
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, InTopology, ON_WRITE, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "remediation",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[Rule {
    id: "max-retry-negative",
    summary: "maxRetry of a remediation must not be negative",
    why: "Cluster API compares the number of retries with this limit. A negative limit has no meaning.",
    operations: ON_WRITE,
    action: Action::Deny,
    scope: Scope::Object,
    overridable: false,
    topology: InTopology::Unjudged,
    source: "KubeadmControlPlane proposal, Remediation: maxRetry; the CRD has no minimum",
    check: Check::ControlPlaneSpec(max_retry_negative),
    cel: Cel::Faults(include_str!("cel/max-retry-negative.cel")),
}];

fn max_retry_negative(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let Some(retries) = change.new.max_retry().filter(|retries| *retries < 0) else {
        return;
    };
    faults.push(Fault {
        field: change.new.max_retry_path(),
        reason: CauseReason::Invalid,
        value: Some(retries.to_string()),
        detail: "a number of retries cannot be negative".into(),
        remedy: "set 0 for no retries, or omit maxRetry to retry without a limit".into(),
    });
}

const RULE: &str = "max-retry-negative";

const CASES: &[Case] = &[
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
