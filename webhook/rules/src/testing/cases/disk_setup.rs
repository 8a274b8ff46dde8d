//! Cases of the rules in [`crate::topics::disk_setup`].

use crate::testing::case::{Case, V1BETA1, V1BETA2};

const SIXTY_TWICE: &str = r#"{"spec":{"kubeadmConfigSpec":{"diskSetup":{"partitions":[
    {"device":"/dev/a","layout":false,"diskLayout":[{"percentage":60},{"percentage":60}]}]}}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::create(
        "accepts_the_whole_disk",
        r#"{"spec":{"kubeadmConfigSpec":{"diskSetup":{"partitions":[
            {"device":"/dev/a","diskLayout":[{"percentage":60},{"percentage":40}]}]}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "accepts_the_whole_disk_in_v1beta1",
        r#"{"spec":{"kubeadmConfigSpec":{"diskSetup":{"partitions":[
            {"device":"/dev/a","layout":true,"diskLayout":[{"percentage":60},{"percentage":40}]}]}}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_more_than_the_disk",
        SIXTY_TWICE,
        &[(
            "disk-layout-above-hundred",
            "spec.kubeadmConfigSpec.diskSetup.partitions[0].diskLayout",
        )],
    ),
    Case::template(
        "rejects_more_than_the_disk_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"diskSetup":{"partitions":[
            {"device":"/dev/a","diskLayout":[{"percentage":101}]}]}}}}}}"#,
        &[(
            "disk-layout-above-hundred",
            "spec.template.spec.kubeadmConfigSpec.diskSetup.partitions[0].diskLayout",
        )],
    ),
];
