//! All rules put to one change. Every finding is reported, in table order; no rule stops another.

use crate::{
    api::{ClusterDeploymentCustomization, ClusterPool, KubeadmControlPlane},
    change::Change,
    finding::{Faults, Finding},
    rule::{Check, Rule},
    topics,
};

/// Judges a write to a `KubeadmControlPlane` or to its scale subresource.
pub fn judge_control_plane(change: &Change<'_, KubeadmControlPlane<'_>>) -> Vec<Finding> {
    judge(change, |rule, faults| {
        if let Check::ControlPlane(check) = rule.check {
            check(change, faults);
        }
    })
}

/// Judges a write to a `ClusterPool`.
pub fn judge_cluster_pool(change: &Change<'_, ClusterPool<'_>>) -> Vec<Finding> {
    judge(change, |rule, faults| {
        if let Check::ClusterPool(check) = rule.check {
            check(change, faults);
        }
    })
}

/// Judges a write to a `ClusterDeploymentCustomization`.
pub fn judge_customization(change: &Change<'_, ClusterDeploymentCustomization<'_>>) -> Vec<Finding> {
    judge(change, |rule, faults| {
        if let Check::Customization(check) = rule.check {
            check(change, faults);
        }
    })
}

fn judge<T>(change: &Change<'_, T>, apply: impl Fn(&'static Rule, &mut Faults)) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in topics::rules().filter(|rule| rule.operations.contains(&change.operation)) {
        let mut faults = Faults::default();
        apply(rule, &mut faults);
        findings.extend(faults.into_vec().into_iter().map(|fault| Finding {
            rule,
            action: rule.action,
            fault,
        }));
    }
    findings
}
