//! Labels and annotations for Machines and, in templates, for control planes.

use crate::{
    api::ControlPlaneSpec,
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, InTopology, Rule, Scope},
    syntax::{key_fault, label_value_fault},
    topics::Topic,
};
use kcp_api::names::annotation;

pub(super) const TOPIC: Topic = Topic {
    name: "machine-metadata",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "machine-label-invalid",
        summary: "the labels for Machines must be valid",
        why: "The API server rejects Machines with an invalid label, so Cluster API cannot create a Machine.",
        scope: Scope::Object,
        topology: InTopology::Judged,
        source: "Kubernetes, Labels and Selectors: Syntax and character set",
        check: Check::ControlPlaneSpec(label_invalid),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "machine-annotation-invalid",
        summary: "the annotations for Machines must be valid",
        why: "The API server rejects Machines with an invalid annotation, so Cluster API cannot create a Machine.",
        scope: Scope::Object,
        topology: InTopology::Judged,
        source: "Kubernetes, Annotations: Syntax and character set",
        check: Check::ControlPlaneSpec(annotation_invalid),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "machine-annotations-too-large",
        summary: "the annotations of a Machine must not exceed 256 KiB in total",
        why: "The API server rejects objects with more than 256 KiB of annotations, so Cluster API cannot create a \
              Machine.",
        scope: Scope::Object,
        topology: InTopology::Judged,
        source: "Kubernetes, apimachinery/pkg/api/validation/objectmeta.go: TotalAnnotationSizeLimitB",
        check: Check::ControlPlaneSpec(annotations_too_large),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "machine-annotation-misplaced",
        summary: "annotations that are meant for one Machine must not be set on all Machines",
        why: "Cluster API copies the annotations to every Machine of the control plane. Some annotations then pause all Machines, \
              make MachineHealthChecks replace all, or record a remediation that never happened. This rule denies such \
              annotations.",
        scope: Scope::Object,
        topology: InTopology::Judged,
        source: "Cluster API, api/core/v1beta2/common_types.go: PausedAnnotation, RemediateMachineAnnotation",
        check: Check::ControlPlaneSpec(annotation_misplaced),
        cel: Cel::Faults(include_str!("cel/machine-annotation-misplaced.cel")),
        ..Rule::USUAL
    },
];

/// The annotations that act on one Machine, with what they do.
const OF_ONE_MACHINE: &[(&str, &str)] = &[
    (annotation::PAUSED, "pauses every Machine"),
    (
        annotation::REMEDIATE_MACHINE,
        "has MachineHealthChecks replace every Machine",
    ),
    (
        annotation::REMEDIATION_FOR,
        "is the record of a remediation, which Cluster API sets itself",
    ),
    (
        annotation::REMEDIATION_IN_PROGRESS,
        "is the record of a remediation, which Cluster API sets itself",
    ),
];

/// Kubernetes' limit for the annotations of an object: 256 KiB.
pub(crate) const ANNOTATION_BYTES: usize = 256 * 1024;

fn label_invalid(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (path, metadata) in change.new.metadata() {
        for (key, value) in metadata.labels.iter().flatten() {
            let value = value.as_deref().unwrap_or_default();
            let key_fault = key_fault(key).map(|fault| {
                let remedy = "rename the key, for example to \"example.com/name\"";
                (quote(key), fault.to_owned(), remedy)
            });
            let value_fault = label_value_fault(value).map(|fault| {
                let remedy = "change the value, or use an annotation";
                (quote(value), format!("label {}: {fault}", quote(key)), remedy)
            });
            for (found, detail, remedy) in key_fault.into_iter().chain(value_fault) {
                faults.push(Fault {
                    field: format!("{path}.labels").into(),
                    reason: CauseReason::Invalid,
                    value: Some(found),
                    detail: detail.into(),
                    remedy: remedy.into(),
                });
            }
        }
    }
}

fn annotation_invalid(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (path, metadata) in change.new.metadata() {
        for key in metadata.annotations.iter().flatten().map(|(key, _)| key) {
            // The key of an annotation has the syntax of a label key, but the part before the slash may contain
            // uppercase letters.
            let Some(detail) = key_fault(&key.to_lowercase()) else {
                continue;
            };
            faults.push(Fault {
                field: format!("{path}.annotations").into(),
                reason: CauseReason::Invalid,
                value: Some(quote(key)),
                detail: detail.into(),
                remedy: "rename the key, for example to \"example.com/name\"".into(),
            });
        }
    }
}

fn annotation_misplaced(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let all = change.new.metadata();
    for (path, metadata) in all.filter(|(path, _)| path.ends_with(".machineTemplate.metadata")) {
        let is_set = |key: &str| {
            metadata
                .annotations
                .iter()
                .flatten()
                .any(|(set, _)| &**set == key)
        };
        for (key, effect) in OF_ONE_MACHINE.iter().filter(|(key, _)| is_set(key)) {
            let other = if *key == annotation::PAUSED {
                "to pause the Cluster, set its spec.paused"
            } else {
                "to act on one Machine, annotate that Machine"
            };
            faults.push(Fault {
                field: format!("{path}.annotations[{key}]").into(),
                reason: CauseReason::Forbidden,
                value: None,
                detail: format!("the annotation reaches every Machine of the control plane, and {effect}")
                    .into(),
                remedy: format!("remove the annotation here; {other}").into(),
            });
        }
    }
}

fn annotations_too_large(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (path, metadata) in change.new.metadata() {
        let annotations = metadata.annotations.iter().flatten();
        let bytes = annotations.fold(0_usize, |bytes, (key, value)| {
            let value = value.as_ref().map_or(0, |value| value.len());
            bytes.saturating_add(key.len()).saturating_add(value)
        });
        if bytes > ANNOTATION_BYTES {
            faults.push(Fault {
                field: format!("{path}.annotations").into(),
                reason: CauseReason::TooLong,
                value: None,
                detail: format!(
                    "the keys and values add up to {bytes} bytes, but Kubernetes allows at most \
                     {ANNOTATION_BYTES}"
                )
                .into(),
                remedy: "store the data in another object, and put only a reference to it in an \
                    annotation"
                    .into(),
            });
        }
    }
}
