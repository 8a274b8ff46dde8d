//! The reference to the template from which Cluster API clones infrastructure Machines.

use semver::Version;

use crate::{
    action::Action,
    api::{KubeadmControlPlane, control_plane::Shape, machine_template::InfrastructureRef},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, ON_UPDATE, Rule, Scope},
    topics::{Topic, version::version_change},
};

pub(super) const TOPIC: Topic = Topic {
    name: "infrastructure",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "infrastructure-ref-incomplete",
        summary: "the infrastructure reference must have group, kind and name",
        why: "Cluster API clones every Machine from the infrastructure template. Without a complete reference, it \
              cannot find the template and creates no Machine.",
        scope: Scope::Object,
        source: "KubeadmControlPlane proposal, New API Types: infrastructureRef is required",
        check: Check::ControlPlane(reference_incomplete),
        cel: Cel::Faults(include_str!("cel/infrastructure-ref-incomplete.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "infrastructure-ref-namespace-ignored",
        summary: "the infrastructure template must be in the control plane's namespace",
        why: "The API version v1beta2 has no namespace in this reference. Cluster API uses the template with \
              this name in the control plane's namespace, which may be another template or may not exist.",
        scope: Scope::Object,
        source: "Cluster API, webhooks/conversion: v1beta2 has no infrastructureRef.namespace",
        check: Check::ControlPlane(namespace_ignored),
        cel: Cel::FaultsOnlyInV1Beta1(include_str!("cel/infrastructure-ref-namespace-ignored.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "machine-image-kept",
        summary: "a minor upgrade should replace an infrastructure template that names an image",
        why: "The templates of some providers name one image, which contains the kubelet and kubeadm. If only the version \
              changes, new Machines have the old kubelet and kubeadm, and join with the wrong version, or not at all.",
        operations: ON_UPDATE,
        action: Action::Warn,
        scope: Scope::Transition,
        source: "cluster-api-provider-vsphere issue 797; cluster-api pull request 2607",
        check: Check::ControlPlane(image_kept),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
];

/// The kinds whose schema requires an image, or requires a template or a server that contains an image. The templates of other
/// providers can choose an image by the version of the Machine.
const KINDS_WITH_IMAGE: [&str; 9] = [
    "CloudStackMachineTemplate",
    "HCloudMachineTemplate",
    "Metal3MachineTemplate",
    "NutanixMachineTemplate",
    "OCIMachineTemplate",
    "OpenStackMachineTemplate",
    "ProxmoxMachineTemplate",
    "VCDMachineTemplate",
    "VSphereMachineTemplate",
];

fn image_kept(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let minor = |version: &Version| (version.major, version.minor);
    let Some(version_change) =
        version_change(change).filter(|change| minor(&change.to) > minor(&change.from))
    else {
        return;
    };
    let reference = change.new.infrastructure_ref();
    let before = change.old.and_then(KubeadmControlPlane::infrastructure_ref);
    let (Some(reference), Some(before)) = (reference, before) else {
        return;
    };
    let kind = reference.kind.as_deref().unwrap_or_default();
    if !KINDS_WITH_IMAGE.contains(&kind) || (&reference.kind, &reference.name) != (&before.kind, &before.name)
    {
        return;
    }
    let (old, new) = (version_change.old, version_change.new);
    let control_plane = change.new.metadata.name.as_deref().unwrap_or("NAME");
    faults.push(Fault {
        field: change.new.infrastructure_ref_path().into(),
        reason: CauseReason::Invalid,
        value: reference.name.as_deref().map(quote),
        detail: format!("the template does not change, so if its image contains Kubernetes {old}, new Machines get the old \
                         kubelet").into(),
        remedy: format!(
            "create a {kind} with an image of {new}, and write both in one update: kubectl kcp upgrade {control_plane} --to {new} \
             --infrastructure-template TEMPLATE"
        )
        .into(),
    });
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Configuration, api::decode, judge};

    /// An API server converts such an object only if it has the CRD of the template, so this is no row.
    #[test]
    fn an_image_that_stays_is_found_in_v1beta1() {
        let object = |version: &str| {
            format!(
                r#"{{"apiVersion":"controlplane.cluster.x-k8s.io/v1beta1","spec":{{"version":"{version}","machineTemplate":
                    {{"infrastructureRef":{{"kind":"VSphereMachineTemplate","name":"ubuntu-1-34"}}}}}}}}"#
            )
        };
        let (old, new) = (object("v1.34.2"), object("v1.35.0"));
        let (old, new): (KubeadmControlPlane, KubeadmControlPlane) =
            (decode(&old).unwrap(), decode(&new).unwrap());
        let findings = judge(&Change::update(&old, &new), &Configuration::default()).findings;
        let found = findings
            .iter()
            .find(|finding| finding.rule.id == "machine-image-kept")
            .unwrap();
        assert_eq!(
            (&*found.fault.field, found.action),
            ("spec.machineTemplate.infrastructureRef", Action::Warn)
        );
    }

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
                .filter(|finding| finding.rule.id == "infrastructure-ref-incomplete")
                .map(|finding| &*finding.fault.field)
                .collect();
            assert_eq!(found, expected);
        }
    }
}
