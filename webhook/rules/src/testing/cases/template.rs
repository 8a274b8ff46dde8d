//! Cases of the rules in [`crate::topics::template`].

use crate::testing::case::{Case, V1BETA1, V1BETA2};

const RULE: &str = "template-spec-immutable";
const FIELD: &str = "spec.template.spec";
const FILE: &str =
    r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"x"}]}}}}}"#;
const OTHER_FILE: &str =
    r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"y"}]}}}}}"#;

pub(super) const CASES: &[Case] = &[
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
