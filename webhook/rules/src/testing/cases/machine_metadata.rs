//! Cases of the rules in [`crate::topics::machine_metadata`].

use crate::{testing::case::Case, topics::machine_metadata::ANNOTATION_BYTES};

const LABEL: &str = "machine-label-invalid";
const MISPLACED: &str = "machine-annotation-misplaced";
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

pub(super) const CASES: &[Case] = &[
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
    Case::create(
        "rejects_annotations_of_one_machine",
        r#"{"spec":{"machineTemplate":{"metadata":{"annotations":{"cluster.x-k8s.io/paused":"",
            "cluster.x-k8s.io/remediate-machine":""}}}}}"#,
        &[
            (
                MISPLACED,
                "spec.machineTemplate.metadata.annotations[cluster.x-k8s.io/paused]",
            ),
            (
                MISPLACED,
                "spec.machineTemplate.metadata.annotations[cluster.x-k8s.io/remediate-machine]",
            ),
        ],
    ),
    Case::template(
        "rejects_annotation_of_one_machine_in_template",
        r#"{"spec":{"template":{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}},
            "spec":{"machineTemplate":{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}}}}}}}"#,
        &[(
            MISPLACED,
            "spec.template.spec.machineTemplate.metadata.annotations[cluster.x-k8s.io/paused]",
        )],
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
