//! Templates of control planes, which are immutable.

use crate::{
    action::Action,
    api::{KubeadmControlPlaneTemplate, Verbatim},
    case::{Case, V1BETA1, V1BETA2},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, InTopology, ON_UPDATE, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "template",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[Rule {
    id: "template-spec-immutable",
    summary: "the spec of a template must not change",
    why: "A control plane records only the name of the template from which it was created. If the template \
          changed, two control planes from the same template could differ, and nothing would show why.",
    operations: ON_UPDATE,
    action: Action::Deny,
    scope: Scope::Transition,
    overridable: false,
    topology: InTopology::Unjudged,
    source: "Cluster API, webhooks/admission/kubeadmcontrolplanetemplate.go: spec.template.spec is immutable",
    check: Check::Template(spec_immutable),
    cel: Cel::None(NoCel::Normalized),
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

const RULE: &str = "template-spec-immutable";
const FIELD: &str = "spec.template.spec";
const FILE: &str =
    r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"x"}]}}}}}"#;
const OTHER_FILE: &str =
    r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"y"}]}}}}}"#;

const CASES: &[Case] = &[
    Case::template_update("accepts_no_change", FILE, FILE, &[]),
    Case::template_update(
        "accepts_changed_labels",
        "{}",
        r#"{"metadata":{"labels":{"a":"b"}},"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}"#,
        &[],
    ),
    Case::template_update(
        "accepts_removal_of_former_defaults",
        r#"{"spec":{"template":{"spec":{"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}},
            "kubeadmConfigSpec":{"format":"cloud-config",
            "initConfiguration":{"nodeRegistration":{"imagePullPolicy":"IfNotPresent"}}}}}}}"#,
        r#"{"spec":{"template":{"spec":{"rollout":null,
            "kubeadmConfigSpec":{"format":null,"initConfiguration":null}}}}}"#,
        &[],
    ).only_in_version(V1BETA2),
    Case::template_update("rejects_changed_file", FILE, OTHER_FILE, &[(RULE, FIELD)]),
    Case::template_update(
        "rejects_max_surge_0",
        r#"{"spec":{"template":{"spec":{"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}}}}"#,
        r#"{"spec":{"template":{"spec":{"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0}}}}}}}"#,
        &[(RULE, FIELD)],
    ).only_in_version(V1BETA2),
    Case::template_update(
        "rejects_removed_spec",
        FILE,
        r#"{"spec":{"template":{"spec":null}}}"#,
        &[(RULE, FIELD)],
    ),
    Case::template_update(
        "accepts_empty_fields_in_v1beta1",
        "{}",
        r#"{"spec":{"template":{"spec":{"rolloutStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}},
            "kubeadmConfigSpec":{"useExperimentalRetryJoin":false,"files":[],
            "initConfiguration":{"localAPIEndpoint":{"bindPort":0}}}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
];
