//! The reference to the template from which Cluster API clones infrastructure Machines.

use crate::{
    action::Action,
    api::{KubeadmControlPlane, control_plane::Shape, machine_template::InfrastructureRef},
    case::{Case, V1BETA1, V1BETA2},
    cel::Cel,
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, InTopology, ON_WRITE, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "infrastructure",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "infrastructure-ref-incomplete",
        summary: "the infrastructure reference must have group, kind and name",
        why: "Cluster API clones every Machine from the infrastructure template. Without a complete reference, it \
              cannot find the template and creates no Machine.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        topology: InTopology::Unjudged,
        source: "KubeadmControlPlane proposal, New API Types: infrastructureRef is required",
        check: Check::ControlPlane(reference_incomplete),
        cel: Cel::Faults(include_str!("cel/infrastructure-ref-incomplete.cel")),
    },
    Rule {
        id: "infrastructure-ref-namespace-ignored",
        summary: "the infrastructure template must be in the control plane's namespace",
        why: "The API version v1beta2 has no namespace in this reference. Cluster API uses the template with \
              this name in the control plane's namespace, which may be another template or may not exist.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        topology: InTopology::Unjudged,
        source: "Cluster API, webhooks/conversion: v1beta2 has no infrastructureRef.namespace",
        check: Check::ControlPlane(namespace_ignored),
        cel: Cel::FaultsOnlyInV1Beta1(include_str!("cel/infrastructure-ref-namespace-ignored.cel")),
    },
];

fn namespace_ignored(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let control_plane = change.new;
    if control_plane.shape() != Shape::V1Beta1 {
        return;
    }
    let reference = control_plane.infrastructure_ref();
    let given = reference.and_then(|reference| reference.namespace.as_deref());
    let (Some(given), Some(own)) = (given, control_plane.metadata.namespace.as_deref()) else {
        return;
    };
    if !given.is_empty() && given != own {
        faults.push(Fault {
            field: format!("{}.namespace", control_plane.infrastructure_ref_path()).into(),
            reason: CauseReason::Forbidden,
            value: Some(quote(given)),
            detail: "v1beta2 does not have this field, so Cluster API clones the template with this name in \
                     the control plane's namespace"
                .into(),
            remedy: "create the template in the control plane's namespace, and omit \
                     infrastructureRef.namespace"
                .into(),
        });
    }
}

fn reference_incomplete(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let control_plane = change.new;
    let path = control_plane.infrastructure_ref_path();
    let Some(reference) = control_plane.infrastructure_ref() else {
        faults.push(Fault {
            field: path.into(),
            reason: CauseReason::Required,
            value: None,
            detail: "without an infrastructure template, Cluster API cannot create Machines".into(),
            remedy: "refer to the machine template of your infrastructure provider".into(),
        });
        return;
    };
    for (field, value, remedy) in missing_fields(reference, control_plane.shape()) {
        let (reason, detail) = if value.is_some() {
            (
                CauseReason::Invalid,
                "the API group is missing, and every machine template has one",
            )
        } else {
            (
                CauseReason::Required,
                "without this field, Cluster API cannot find the template to clone Machines from",
            )
        };
        faults.push(Fault {
            field: format!("{path}.{field}").into(),
            reason,
            value,
            detail: detail.into(),
            remedy: remedy.into(),
        });
    }
}

/// A field that is missing in the reference or invalid: its name, its value if it is invalid, and what to do.
type MissingField = (&'static str, Option<String>, &'static str);

fn missing_fields(reference: &InfrastructureRef<'_>, shape: Shape) -> impl Iterator<Item = MissingField> {
    const GROUP: &str = "set the template's group, such as \"infrastructure.cluster.x-k8s.io\"";
    const VERSION: &str = "set the template's apiVersion, which contains its group and version";
    let is_set = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
    let api = match (shape, reference.api_version.as_deref()) {
        (Shape::V1Beta2, _) => ("apiGroup", is_set(reference.api_group.as_deref()), None, GROUP),
        // "v1" has no group.
        (Shape::V1Beta1, version) => (
            "apiVersion",
            version.is_some_and(|version| version.contains('/') && !version.starts_with('/')),
            version.filter(|version| !version.is_empty()).map(quote),
            VERSION,
        ),
    };
    let kind = is_set(reference.kind.as_deref());
    let name = is_set(reference.name.as_deref());
    [
        api,
        ("kind", kind, None, "set the template's kind, as in its manifest"),
        ("name", name, None, "set the template's metadata.name"),
    ]
    .into_iter()
    .filter_map(|(field, is_set, value, remedy)| (!is_set).then_some((field, value, remedy)))
}

const RULE: &str = "infrastructure-ref-incomplete";
const NAMESPACE_IGNORED: &str = "infrastructure-ref-namespace-ignored";

const CASES: &[Case] = &[
    Case::create("accepts_reference", "{}", &[]),
    Case::create(
        "accepts_namespace_of_the_control_plane",
        r#"{"spec":{"machineTemplate":{"infrastructureRef":{"namespace":"default"}}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_another_namespace",
        r#"{"spec":{"machineTemplate":{"infrastructureRef":{"namespace":"templates"}}}}"#,
        &[(NAMESPACE_IGNORED, "spec.machineTemplate.infrastructureRef.namespace")],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_empty_reference",
        r#"{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"apiGroup":"","kind":"","name":null}}}}}"#,
        &[
            (RULE, "spec.machineTemplate.spec.infrastructureRef.apiGroup"),
            (RULE, "spec.machineTemplate.spec.infrastructureRef.kind"),
            (RULE, "spec.machineTemplate.spec.infrastructureRef.name"),
        ],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_no_reference",
        r#"{"spec":{"machineTemplate":null}}"#,
        &[(RULE, "spec.machineTemplate.spec.infrastructureRef")],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_reference_without_group_in_v1beta1",
        r#"{"spec":{"machineTemplate":{"infrastructureRef":{"apiVersion":"v1","kind":""}}}}"#,
        &[
            (RULE, "spec.machineTemplate.infrastructureRef.apiVersion"),
            (RULE, "spec.machineTemplate.infrastructureRef.kind"),
        ],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_no_reference_in_v1beta1",
        r#"{"spec":{"machineTemplate":null}}"#,
        &[(RULE, "spec.machineTemplate.infrastructureRef")],
    )
    .only_in_version(V1BETA1),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Configuration, api::decode, judge};

    /// The field of v1alpha3 in the design documents. No server has it, but `lint` reads it.
    #[test]
    fn v1alpha3_has_the_reference_in_another_field() {
        for (name, expected) in [
            ("template", vec![]),
            ("", vec!["spec.infrastructureTemplate.name"]),
        ] {
            let manifest = format!(
                r#"{{"apiVersion":"controlplane.cluster.x-k8s.io/v1alpha3","spec":{{"infrastructureTemplate":
                    {{"apiVersion":"infrastructure.cluster.x-k8s.io/v1alpha3","kind":"K","name":"{name}"}}}}}}"#
            );
            let control_plane: KubeadmControlPlane = decode(&manifest).unwrap();
            let findings = judge(&Change::create(&control_plane), &Configuration::default()).findings;
            let found: Vec<_> = findings
                .iter()
                .filter(|finding| finding.rule.id == RULE)
                .map(|finding| &*finding.fault.field)
                .collect();
            assert_eq!(found, expected);
        }
    }
}
