//! Cases of the rules in [`crate::topics::infrastructure`].

use crate::testing::case::{Case, V1BETA1, V1BETA2};

const RULE: &str = "infrastructure-ref-incomplete";
const IMAGE_KEPT: &str = "machine-image-kept";
const NAMES_IMAGE: &str = r#"{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"kind":"VSphereMachineTemplate","name":"ubuntu-1-34"}}}}}"#;
const NEXT_MINOR: &str = r#"{"spec":{"version":"v1.35.0"}}"#;
const NAMESPACE_IGNORED: &str = "infrastructure-ref-namespace-ignored";

pub(super) const CASES: &[Case] = &[
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
    Case::update(
        "warns_of_an_image_that_stays",
        NAMES_IMAGE,
        NEXT_MINOR,
        &[(IMAGE_KEPT, "spec.machineTemplate.spec.infrastructureRef")],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_another_image_with_the_version",
        NAMES_IMAGE,
        r#"{"spec":{"version":"v1.35.0","machineTemplate":{"spec":{"infrastructureRef":{"name":"ubuntu-1-35"}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_a_patch_version_with_the_same_image",
        NAMES_IMAGE,
        r#"{"spec":{"version":"v1.34.3"}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_no_reference_in_v1beta1",
        r#"{"spec":{"machineTemplate":null}}"#,
        &[(RULE, "spec.machineTemplate.infrastructureRef")],
    )
    .only_in_version(V1BETA1),
];
