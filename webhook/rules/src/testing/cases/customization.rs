//! Cases of the rules in [`crate::topics::customization`].

use crate::testing::case::{Answer, Case};

pub(super) const CASES: &[Case] = &[
    Case::customization(
        "accepts_replace",
        r#"{"spec":{"installConfigPatches":[{"op":"replace","path":"/metadata/name","value":"foo"}]}}"#,
        &[],
    ),
    Case::customization(
        "accepts_every_operation",
        r#"{"spec":{"installConfigPatches":[
            {"op":"add","path":"/a~1b/-","valueJSON":"{\"c\":[1]}"},{"op":"remove","path":"/a"},
            {"op":"replace","path":"","valueJSON":"null"},{"op":"move","path":"/b","from":"/bc"},
            {"op":"copy","path":"/c/d","from":"/c"},{"op":"test","path":"/~0","value":"x"}]}}"#,
        &[],
    ),
    Case::customization(
        "rejects_unknown_op",
        r#"{"spec":{"installConfigPatches":[{"op":"merge","path":"/a","value":"b"}]}}"#,
        &[("patch-op-unknown", "spec.installConfigPatches[0].op")],
    ),
    Case::customization(
        "rejects_relative_path_of_the_design_document",
        r#"{"spec":{"installConfigPatches":[{"op":"replace","path":"metadata/name","value":"foo"}]}}"#,
        &[("patch-path-invalid", "spec.installConfigPatches[0].path")],
    )
    .answered_by(Answer::Mutation(r#""/metadata/name""#)),
    Case::customization(
        "rejects_dotted_path",
        r#"{"spec":{"installConfigPatches":[{"op":"replace","path":"metadata.name","value":"foo"}]}}"#,
        &[("patch-path-invalid", "spec.installConfigPatches[0].path")],
    ),
    Case::customization(
        "rejects_unescaped_tilde",
        r#"{"spec":{"installConfigPatches":[{"op":"remove","path":"/a~b"},{"op":"remove","path":"/a~"}]}}"#,
        &[
            ("patch-path-invalid", "spec.installConfigPatches[0].path"),
            ("patch-path-invalid", "spec.installConfigPatches[1].path"),
        ],
    ),
    Case::customization(
        "rejects_copy_without_from",
        r#"{"spec":{"installConfigPatches":[{"op":"copy","path":"/a"}]}}"#,
        &[("patch-from-missing", "spec.installConfigPatches[0].from")],
    ),
    Case::customization(
        "rejects_relative_from",
        r#"{"spec":{"installConfigPatches":[{"op":"copy","path":"/a","from":"b"}]}}"#,
        &[("patch-from-invalid", "spec.installConfigPatches[0].from")],
    ),
    Case::customization(
        "rejects_move_into_itself",
        r#"{"spec":{"installConfigPatches":[{"op":"move","path":"/a/b","from":"/a"}]}}"#,
        &[("patch-from-invalid", "spec.installConfigPatches[0].from")],
    ),
    Case::customization(
        "rejects_injected_operation_in_value_json",
        r#"{"spec":{"installConfigPatches":[
            {"op":"add","path":"/a","valueJSON":"{}}, {\"op\":\"remove\",\"path\":\"/b\""}]}}"#,
        &[(
            "patch-value-json-invalid",
            "spec.installConfigPatches[0].valueJSON",
        )],
    ),
    Case::customization(
        "warns_of_value_and_value_json",
        r#"{"spec":{"installConfigPatches":[{"op":"add","path":"/a","value":"b","valueJSON":"[1]"}]}}"#,
        &[("patch-value-ignored", "spec.installConfigPatches[0].value")],
    ),
    Case::customization(
        "accepts_empty_value_or_value_json",
        r#"{"spec":{"installConfigPatches":[
            {"op":"add","path":"/a","value":"b","valueJSON":""},{"op":"add","path":"/a","value":"","valueJSON":"1"}]}}"#,
        &[],
    ),
    Case::customization(
        "rejects_invalid_manifest_patches",
        r#"{"spec":{"installerManifestPatches":[{"manifestSelector":{"glob":"*.yaml"},"patches":[
            {"op":"remove","path":"/a"},{"op":"move","path":"b"}]}]}}"#,
        &[
            (
                "patch-path-invalid",
                "spec.installerManifestPatches[0].patches[1].path",
            ),
            (
                "patch-from-missing",
                "spec.installerManifestPatches[0].patches[1].from",
            ),
        ],
    ),
];
