//! Cases of the rules in [`crate::topics::taints`].

use crate::{
    feature_gates::FeatureGates,
    testing::case::{Case, V1BETA1, V1BETA2},
};

const GATE: FeatureGates = FeatureGates {
    ignition: false,
    machine_taints: true,
};
const TAINT: &str = r#"{"spec":{"machineTemplate":{"spec":{"taints":[
    {"key":"example.com/a","effect":"NoSchedule","propagation":"Always"},
    {"key":"example.com/a","effect":"NoExecute","propagation":"Always"},
    {"key":"node.kubernetes.io/out-of-service","effect":"NoExecute","propagation":"Always"}]}}}}"#;
const RESERVED: &str = "taint-key-reserved";

pub(super) const CASES: &[Case] = &[
    Case::create("accepts_taints", TAINT, &[]).with_feature_gates(GATE).only_in_version(V1BETA2),
    Case::create("accepts_no_taints", "{}", &[]),
    Case::create(
        "rejects_taints_without_the_gate",
        TAINT,
        &[("taints-gate-off", "spec.machineTemplate.spec.taints")],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_reserved_taints",
        r#"{"spec":{"machineTemplate":{"spec":{"taints":[
            {"key":"node.cluster.x-k8s.io/uninitialized","effect":"NoSchedule"},
            {"key":"node.cluster.x-k8s.io/outdated-revision","effect":"NoSchedule"},
            {"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"},
            {"key":"node.cloudprovider.kubernetes.io/uninitialized","effect":"NoSchedule"},
            {"key":"node-role.kubernetes.io/master","effect":"NoSchedule"}]}}}}"#,
        &[
            (RESERVED, "spec.machineTemplate.spec.taints[0].key"),
            (RESERVED, "spec.machineTemplate.spec.taints[1].key"),
            (RESERVED, "spec.machineTemplate.spec.taints[2].key"),
            (RESERVED, "spec.machineTemplate.spec.taints[3].key"),
            (RESERVED, "spec.machineTemplate.spec.taints[4].key"),
        ],
    )
    .with_feature_gates(GATE).only_in_version(V1BETA2),
    Case::create(
        "rejects_reserved_taints_among_others",
        r#"{"spec":{"machineTemplate":{"spec":{"taints":[
            {"key":"example.com/a","effect":"NoSchedule","propagation":"Always"},
            {"key":"node.kubernetes.io/not-ready","effect":"NoSchedule","propagation":"Always"},
            {"key":"node-role.kubernetes.io/master","effect":"NoSchedule","propagation":"Always"}]}}}}"#,
        &[
            (RESERVED, "spec.machineTemplate.spec.taints[1].key"),
            (RESERVED, "spec.machineTemplate.spec.taints[2].key"),
        ],
    )
    .with_feature_gates(GATE).only_in_version(V1BETA2),
    Case::create(
        "rejects_invalid_and_duplicate_taints",
        r#"{"spec":{"machineTemplate":{"spec":{"taints":[{"key":"a b","effect":"NoSchedule"},
            {"key":"a","effect":"NoSchedule"},{"key":"a","effect":"NoSchedule"}]}}}}"#,
        &[
            ("taint-key-invalid", "spec.machineTemplate.spec.taints[0].key"),
            ("taint-duplicate", "spec.machineTemplate.spec.taints[2]"),
        ],
    )
    .with_feature_gates(GATE).only_in_version(V1BETA2),
    Case::create(
        "rejects_taints_in_v1beta1",
        r#"{"spec":{"machineTemplate":{"taints":[{"key":"a","effect":"NoSchedule"},
            {"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"},{"key":"a","effect":"NoSchedule"},
            {"key":"","effect":"NoSchedule"}]}}}"#,
        &[
            ("taints-gate-off", "spec.machineTemplate.taints"),
            (RESERVED, "spec.machineTemplate.taints[1].key"),
            ("taint-key-invalid", "spec.machineTemplate.taints[3].key"),
            ("taint-duplicate", "spec.machineTemplate.taints[2]"),
        ],
    )
    .only_in_version(V1BETA1),
    Case::template(
        "rejects_taints_in_template",
        r#"{"spec":{"template":{"spec":{"machineTemplate":{"spec":{"taints":[{"key":"a","effect":"NoSchedule"},
            {"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"},{"key":"a","effect":"NoSchedule"},
            {"key":"","effect":"NoSchedule"}]}}}}}}"#,
        &[
            ("taints-gate-off", "spec.template.spec.machineTemplate.spec.taints"),
            (RESERVED, "spec.template.spec.machineTemplate.spec.taints[1].key"),
            ("taint-key-invalid", "spec.template.spec.machineTemplate.spec.taints[3].key"),
            ("taint-duplicate", "spec.template.spec.machineTemplate.spec.taints[2]"),
        ],
    ).only_in_version(V1BETA2),
    Case::template(
        "rejects_taints_in_template_in_v1beta1",
        r#"{"spec":{"template":{"spec":{"machineTemplate":{"taints":[{"key":"a","effect":"NoSchedule"}]}}}}}"#,
        &[("taints-gate-off", "spec.template.spec.machineTemplate.taints")],
    )
    .only_in_version(V1BETA1),
];
