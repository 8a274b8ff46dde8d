//! The replacement of unhealthy Machines.

use crate::{
    api::ControlPlaneSpec,
    cel::Cel,
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "remediation",
    rules: RULES,
};

const RULES: &[Rule] = &[Rule {
    id: "max-retry-negative",
    summary: "maxRetry of a remediation must not be negative",
    why: "Cluster API compares the number of retries with this limit. A negative limit has no meaning.",
    scope: Scope::Object,
    source: "KubeadmControlPlane proposal, Remediation: maxRetry; the CRD has no minimum",
    check: Check::ControlPlaneSpec(max_retry_negative),
    cel: Cel::Faults(include_str!("cel/max-retry-negative.cel")),
    ..Rule::USUAL
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
