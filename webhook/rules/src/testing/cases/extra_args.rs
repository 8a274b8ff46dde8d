//! Cases of the rules in [`crate::topics::extra_args`].

use crate::testing::case::{Case, V1BETA1, V1BETA2};

const RULE: &str = "extra-args-duplicate";

pub(super) const CASES: &[Case] = &[
    Case::create(
        "accepts_different_flags",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"v","value":"2"},{"name":"profiling","value":"false"}]},
            "scheduler":{"extraArgs":[{"name":"v","value":"2"}]}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "accepts_map_of_v1beta1",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            {"v":"2","profiling":"false"}}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_duplicate_flags",
        r#"{"spec":{"kubeadmConfigSpec":{
            "clusterConfiguration":{
                "apiServer":{"extraArgs":[{"name":"v","value":"2"},{"name":"v","value":"3"}]},
                "controllerManager":{"extraArgs":[{"name":"v","value":"2"},{"name":"v","value":"3"}]},
                "scheduler":{"extraArgs":[{"name":"v","value":"2"},{"name":"v","value":"3"}]},
                "etcd":{"local":{"extraArgs":[{"name":"max-wals","value":"2"},{"name":"max-wals","value":"3"}]}}},
            "initConfiguration":{"nodeRegistration":{"kubeletExtraArgs":
                [{"name":"v","value":"2"},{"name":"v","value":"3"}]}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":
                [{"name":"v","value":"2"},{"name":"v","value":"3"}]}}}}}"#,
        &[
            (
                RULE,
                "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].name",
            ),
            (
                RULE,
                "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[1].name",
            ),
            (
                RULE,
                "spec.kubeadmConfigSpec.clusterConfiguration.scheduler.extraArgs[1].name",
            ),
            (
                RULE,
                "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.extraArgs[1].name",
            ),
            (
                RULE,
                "spec.kubeadmConfigSpec.initConfiguration.nodeRegistration.kubeletExtraArgs[1].name",
            ),
            (
                RULE,
                "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[1].name",
            ),
        ],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "rejects_duplicate_flags_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"v","value":"2"},{"name":"v","value":"3"}]}}}}}}}"#,
        &[(
            RULE,
            "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].name",
        )],
    )
    .only_in_version(V1BETA2),
];
