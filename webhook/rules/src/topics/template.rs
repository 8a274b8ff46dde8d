//! Templates of control planes, which are immutable.

use crate::{
    api::{KubeadmControlPlaneTemplate, Verbatim},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, ON_UPDATE, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "template",
    rules: RULES,
};

const RULES: &[Rule] = &[Rule {
    id: "template-spec-immutable",
    summary: "the spec of a template must not change",
    why: "A control plane records only the name of the template from which it was created. If the template \
          changed, two control planes from the same template could differ, and nothing would show why.",
    operations: ON_UPDATE,
    scope: Scope::Transition,
    source: "Cluster API, webhooks/admission/kubeadmcontrolplanetemplate.go: spec.template.spec is immutable",
    check: Check::Template(spec_immutable),
    cel: Cel::None(NoCel::Normalized),
    ..Rule::USUAL
}];

fn spec_immutable(change: &Change<'_, KubeadmControlPlaneTemplate<'_>>, faults: &mut Faults) {
    let Some(old) = change.old else { return };
    let (old, new) = (old.template(), change.new.template());
    let differences = Verbatim::differences(
        old.and_then(|old| old.spec.as_ref()),
        new.and_then(|new| new.spec.as_ref()),
    );
    if differences.is_empty() {
        return;
    }
    faults.push(Fault {
        field: "spec.template.spec".into(),
        reason: CauseReason::Forbidden,
        value: None,
        detail: format!(
            "the spec is immutable, because ClusterClasses create control planes from this template; \
             {differences} would change"
        )
        .into(),
        remedy: "create a template with another name, and refer to it in the ClusterClass".into(),
    });
}
