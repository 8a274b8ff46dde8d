//! Labels and annotations for Machines and, in templates, for control planes.

use crate::{
    action::Action,
    api::ControlPlaneSpec,
    case::Case,
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, ON_WRITE, Rule, Scope},
    syntax::{key_fault, label_value_fault},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "machine-metadata",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "machine-label-invalid",
        summary: "the labels for Machines must be valid",
        why: "The API server rejects Machines with an invalid label, so Cluster API cannot create a Machine.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        source: "Kubernetes, Labels and Selectors: Syntax and character set",
        check: Check::ControlPlaneSpec(label_invalid),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "machine-annotation-invalid",
        summary: "the annotations for Machines must be valid",
        why: "The API server rejects Machines with an invalid annotation, so Cluster API cannot create a Machine.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        source: "Kubernetes, Annotations: Syntax and character set",
        check: Check::ControlPlaneSpec(annotation_invalid),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "machine-annotations-too-large",
        summary: "the annotations of a Machine must not exceed 256 KiB in total",
        why: "The API server rejects objects with more than 256 KiB of annotations, so Cluster API cannot create a \
              Machine.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        source: "Kubernetes, apimachinery/pkg/api/validation/objectmeta.go: TotalAnnotationSizeLimitB",
        check: Check::ControlPlaneSpec(annotations_too_large),
        cel: Cel::None(NoCel::TooLong),
    },
];

/// Kubernetes' limit for the annotations of an object: 256 KiB.
const ANNOTATION_BYTES: usize = 256 * 1024;

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

const LABEL: &str = "machine-label-invalid";
const ANNOTATION: &str = "machine-annotation-invalid";

/// JSON that contains a string of 256 KiB. Together with its key, the string exceeds the limit.
const fn around_large_string<const LENGTH: usize>(open: &str, close: &str) -> [u8; LENGTH] {
    let mut json = [b'a'; LENGTH];
    let (start, rest) = json.split_at_mut(open.len());
    start.copy_from_slice(open.as_bytes());
    let (_, end) = rest.split_at_mut(ANNOTATION_BYTES);
    end.copy_from_slice(close.as_bytes());
    json
}

macro_rules! around_large_string {
    ($open:literal, $close:literal) => {{
        const JSON: [u8; $open.len() + ANNOTATION_BYTES + $close.len()] = around_large_string($open, $close);
        match str::from_utf8(&JSON) {
            Ok(json) => json,
            Err(_) => "",
        }
    }};
}

const LARGE: &str = around_large_string!(
    r#"{"spec":{"machineTemplate":{"metadata":{"annotations":{"a":""#,
    r#""}}}}}"#
);
const LARGE_IN_TEMPLATE: &str = around_large_string!(
    r#"{"spec":{"template":{"metadata":{"annotations":{"a":""#,
    r#""}}}}}"#
);

const CASES: &[Case] = &[
    Case::create(
        "accepts_metadata",
        r#"{"spec":{"machineTemplate":{"metadata":{"labels":{"example.com/a":"b","c":""},
            "annotations":{"Example.com/a":"any text, of any length"}}}}}"#,
        &[],
    ),
    Case::create(
        "rejects_label_key_and_value",
        r#"{"spec":{"machineTemplate":{"metadata":{"labels":{"a b":"c","d":"e f"}}}}}"#,
        &[
            (LABEL, "spec.machineTemplate.metadata.labels"),
            (LABEL, "spec.machineTemplate.metadata.labels"),
        ],
    ),
    Case::create(
        "rejects_annotation_key",
        r#"{"spec":{"machineTemplate":{"metadata":{"annotations":{"a/b/c":""}}}}}"#,
        &[(ANNOTATION, "spec.machineTemplate.metadata.annotations")],
    ),
    Case::create(
        "rejects_large_annotation",
        LARGE,
        &[(
            "machine-annotations-too-large",
            "spec.machineTemplate.metadata.annotations",
        )],
    ),
    Case::create(
        "rejects_label_key",
        r#"{"spec":{"machineTemplate":{"metadata":{"labels":{"/a":""}}}}}"#,
        &[(LABEL, "spec.machineTemplate.metadata.labels")],
    ),
    Case::template(
        "rejects_metadata_in_template",
        r#"{"spec":{"template":{"metadata":{"labels":{"a b":""},"annotations":{"":""}},
            "spec":{"machineTemplate":{"metadata":{"labels":{"a":"-"}}}}}}}"#,
        &[
            (LABEL, "spec.template.metadata.labels"),
            (LABEL, "spec.template.spec.machineTemplate.metadata.labels"),
            (ANNOTATION, "spec.template.metadata.annotations"),
        ],
    ),
    Case::template(
        "rejects_large_annotation_in_template",
        LARGE_IN_TEMPLATE,
        &[(
            "machine-annotations-too-large",
            "spec.template.metadata.annotations",
        )],
    ),
    Case::template(
        "accepts_metadata_in_template",
        r#"{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}"#,
        &[],
    ),
];
