//! Cases of the rules in [`crate::topics::ignition`].

use crate::{
    feature_gates::FeatureGates,
    testing::case::{Case, V1BETA1},
};

const GATE: FeatureGates = FeatureGates {
    ignition: true,
    machine_taints: false,
};
const OFF: &str = "ignition-gate-off";
const UNSUPPORTED: &str = "ignition-unsupported";
const IGNITION: &str = r#"{"spec":{"kubeadmConfigSpec":{"format":"ignition","ignition":{"containerLinuxConfig":{"strict":true}}}}}"#;
const NO_FORMAT: &str =
    r#"{"spec":{"kubeadmConfigSpec":{"ignition":{"containerLinuxConfig":{"strict":true}}}}}"#;
const EVERYTHING: &str = r#"{"spec":{"kubeadmConfigSpec":{"format":"ignition","bootCommands":["date"],
    "users":[{"name":"a","inactive":true}],"files":[{"path":"/a","content":"x","encoding":"gzip"}],
    "diskSetup":{"partitions":[{"device":"/dev/a","layout":true,"tableType":"mbr"}],"filesystems":[
        {"device":"/dev/a","filesystem":"ext4","replaceFS":"ext3","partition":"auto"}]}}}}"#;
const EVERYTHING_FOUND: &[(&str, &str)] = &[
    (UNSUPPORTED, "spec.kubeadmConfigSpec.users[0].inactive"),
    (UNSUPPORTED, "spec.kubeadmConfigSpec.files[0].encoding"),
    (UNSUPPORTED, "spec.kubeadmConfigSpec.bootCommands"),
    (
        UNSUPPORTED,
        "spec.kubeadmConfigSpec.diskSetup.partitions[0].tableType",
    ),
    (
        UNSUPPORTED,
        "spec.kubeadmConfigSpec.diskSetup.filesystems[0].replaceFS",
    ),
    (
        UNSUPPORTED,
        "spec.kubeadmConfigSpec.diskSetup.filesystems[0].partition",
    ),
];

pub(super) const CASES: &[Case] = &[
    Case::create(
        "accepts_cloud_config",
        r#"{"spec":{"kubeadmConfigSpec":{"format":"cloud-config","bootCommands":["date"]}}}"#,
        &[],
    ),
    Case::create("accepts_ignition", IGNITION, &[]).with_feature_gates(GATE),
    Case::create(
        "rejects_ignition_without_the_gate",
        IGNITION,
        &[(OFF, "spec.kubeadmConfigSpec.format"), (OFF, "spec.kubeadmConfigSpec.ignition")],
    ),
    Case::create(
        "rejects_ignition_configuration_without_its_format",
        NO_FORMAT,
        &[("ignition-without-format", "spec.kubeadmConfigSpec.format")],
    )
    .with_feature_gates(GATE),
    Case::create("rejects_unsupported_settings", EVERYTHING, EVERYTHING_FOUND).with_feature_gates(GATE),
    Case::create(
        "accepts_empty_ignition_configuration",
        r#"{"spec":{"kubeadmConfigSpec":{"ignition":{"containerLinuxConfig":{}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
    Case::template(
        "rejects_ignition_in_template_without_the_gate",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"format":"ignition"}}}}}"#,
        &[(OFF, "spec.template.spec.kubeadmConfigSpec.format")],
    ),
    Case::template(
        "rejects_ignition_configuration_in_template_without_its_format",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"format":"cloud-config",
            "ignition":{"containerLinuxConfig":{"additionalConfig":"x"}}}}}}}"#,
        &[("ignition-without-format", "spec.template.spec.kubeadmConfigSpec.format")],
    )
    .with_feature_gates(GATE),
    Case::template(
        "rejects_unsupported_settings_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"format":"ignition","bootCommands":["date"]}}}}}"#,
        &[(UNSUPPORTED, "spec.template.spec.kubeadmConfigSpec.bootCommands")],
    )
    .with_feature_gates(GATE),
];
