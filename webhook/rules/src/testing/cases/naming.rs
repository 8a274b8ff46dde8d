//! Cases of the rules in [`crate::topics::naming`].

use crate::testing::case::{Answer, Case, V1BETA1, V1BETA2};

const INVALID: &str = "naming-template-invalid";
const NOT_RANDOM: &str = "naming-template-not-random";
const FIELD: &str = "spec.machineNaming.template";

pub(super) const CASES: &[Case] = &[
    Case::create(
        "accepts_all_fields",
        r#"{"spec":{"machineNaming":{"template":"{{ .cluster.name }}-{{ .kubeadmControlPlane.name }}-{{ .random }}"}}}"#,
        &[],
    ).only_in_version(V1BETA2),
    Case::create(
        "accepts_any_spaces_and_trim_markers",
        r#"{"spec":{"machineNaming":{"template":"{{.cluster.name}}- {{- .kubeadmControlPlane.name -}} -{{ .random }}"}}}"#,
        &[],
    ).only_in_version(V1BETA2),
    Case::create(
        "accepts_truncated_name",
        r#"{"spec":{"machineNaming":{"template":"a12345678901234567890123456789012345678901234567890123456789-{{ .random }}-"}}}"#,
        &[],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_no_random",
        r#"{"spec":{"machineNaming":{"template":"{{ .cluster.name }}-cp"}}}"#,
        &[(NOT_RANDOM, FIELD)],
    ).only_in_version(V1BETA2),
    Case::create(
        "warns_of_random_without_spaces",
        r#"{"spec":{"machineNaming":{"template":"{{ .cluster.name }}-{{.random}}"}}}"#,
        &[(NOT_RANDOM, FIELD)],
    ).only_in_version(V1BETA2).answered_by(Answer::ClusterApi),
    Case::create(
        "rejects_unknown_field",
        r#"{"spec":{"machineNaming":{"template":"{{ .cluster.namespace }}-{{ .random }}"}}}"#,
        &[(INVALID, FIELD)],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_unclosed_action",
        r#"{"spec":{"machineNaming":{"template":"{{ .random }}-{{ .cluster.name"}}}"#,
        &[(INVALID, FIELD)],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_upper_case",
        r#"{"spec":{"machineNaming":{"template":"CP-{{ .random }}"}}}"#,
        &[(INVALID, FIELD)],
    ).only_in_version(V1BETA2),
    Case::create(
        "warns_of_functions",
        r#"{"spec":{"machineNaming":{"template":"{{ .cluster.name | printf \"%.5s\" }}-{{ .random }}"}}}"#,
        &[("naming-template-unverified", FIELD)],
    ).only_in_version(V1BETA2),
    Case::create(
        "accepts_template_in_v1beta1",
        r#"{"spec":{"machineNamingStrategy":{"template":"{{ .cluster.name }}-{{ .random }}"}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_no_random_in_v1beta1",
        r#"{"spec":{"machineNamingStrategy":{"template":"{{ .cluster.name }}"}}}"#,
        &[(NOT_RANDOM, "spec.machineNamingStrategy.template")],
    )
    .only_in_version(V1BETA1),
    Case::template(
        "rejects_naming_in_template",
        r#"{"spec":{"template":{"spec":{"machineNaming":{"template":"{{ .machineSet.name }}"}}}}}"#,
        &[
            (INVALID, "spec.template.spec.machineNaming.template"),
            (NOT_RANDOM, "spec.template.spec.machineNaming.template"),
        ],
    ).only_in_version(V1BETA2),
    Case::template(
        "warns_of_functions_in_template_in_v1beta1",
        r#"{"spec":{"template":{"spec":{"machineNamingStrategy":{"template":"{{ len .cluster.name }}{{ .random }}"}}}}}"#,
        &[(
            "naming-template-unverified",
            "spec.template.spec.machineNamingStrategy.template",
        )],
    )
    .only_in_version(V1BETA1),
];
