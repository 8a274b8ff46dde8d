//! Cases of the rules in [`crate::topics::component_names`].

use crate::testing::case::{Case, V1BETA2};

const GATE: &str = "feature-gate-unknown";
const VALUE: &str = "feature-gate-value-refused";
const KUBEADM_GATE: &str = "kubeadm-feature-gate-unknown";
const PLUGIN: &str = "admission-plugin-unknown";
const API: &str = "runtime-config-unknown";

const API_SERVER: &str = "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value";

pub(super) const CASES: &[Case] = &[
    Case::create(
        "rejects_space_before_a_plugin",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":[
            {"name":"enable-admission-plugins","value":"NodeRestriction, PodSecurity"}]}}}}}"#,
        &[(PLUGIN, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "accepts_gates_of_an_emulated_version_and_spaces_after_keys",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":[
            {"name":"emulated-version","value":"1.33"},{"name":"feature-gates","value":"NodeSwap=false"},
            {"name":"runtime-config","value":"batch/v1 =true"},{"name":"enable-admission-plugins","value":"\"NodeRestriction\",\"PodSecurity\""}]}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"node-labels","value":"topology.kubernetes.io/zone =a"}]}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_gates_of_an_emulated_version",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"feature-gates","value":"NodeSwap=false"},{"name":"emulated-version","value":"1.34"}]},
            "controllerManager":{"extraArgs":[{"name":"feature-gates","value":"WorkloadWithJob=true"},{"name":"emulated-version","value":"1.34"}]},
            "scheduler":{"extraArgs":[{"name":"feature-gates","value":"NodeSwap=false"},{"name":"emulated-version","value":"${MINOR}"}]}}}}}"#,
        &[
            (GATE, "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value"),
            (VALUE, API_SERVER),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_gates_without_those_that_they_need",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"feature-gates","value":"GangScheduling=true"}]},
            "controllerManager":{"extraArgs":[{"name":"feature-gates","value":"GangScheduling=true,AllAlpha=true"}]},
            "scheduler":{"extraArgs":[{"name":"feature-gates","value":"GangScheduling=true,${GATES}"}]},
            "etcd":{"local":{"extraArgs":[{"name":"feature-gates","value":"LeaseCheckpointPersist=true"}]}}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"feature-gates","value":"ContainerRestartRules=false"}]}}}}}"#,
        &[
            (VALUE, API_SERVER),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.extraArgs[0].value"),
            (VALUE, "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "rejects_each_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{
            "clusterConfiguration":{"featureGates":{"EtcdLearnerMode":true},"apiServer":{"extraArgs":[
                {"name":"feature-gates","value":"SidecarContainers=true,NodeSwap=false"},
                {"name":"enable-admission-plugins","value":"SecurityContextDeny"},
                {"name":"runtime-config","value":"autoscaling/v2beta2=true"}]}}}}}}}"#,
        &[
            (GATE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value"),
            (VALUE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value"),
            (KUBEADM_GATE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.featureGates[EtcdLearnerMode]"),
            (PLUGIN, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (API, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[2].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_gates_with_and_without_prefix",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"feature-gates","value":"kube:WatchList=true,NodeSwap=true"}]},
            "scheduler":{"extraArgs":[{"name":"feature-gates","value":"kube:WatchList=true,kube:NodeSwap=true"}]}}}}}"#,
        &[(GATE, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_group_without_version",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"runtime-config","value":"batch=true"}]}}}}}"#,
        &[(API, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_quoted_plugin",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"enable-admission-plugins","value":"\"NodeRestriction\",\"PodSecurityPolicy\""}]}}}}}"#,
        &[(PLUGIN, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_gate_that_1_31_removed",
        r#"{"spec":{"version":"v1.31.4","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"feature-gates","value":"InTreePluginvSphereUnregister=true"}]}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"feature-gates","value":"kube:NodeSwap=true"}]}}}}}"#,
        &[
            (GATE, API_SERVER),
            (GATE, "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_values_of_gates",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"feature-gates","value":"SidecarContainers=false,WatchList=maybe,NodeSwap=true"}]}}}}}"#,
        &[(VALUE, API_SERVER), (VALUE, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_gates_of_kubeadm",
        r#"{"spec":{"version":"v1.33.2","kubeadmConfigSpec":{"clusterConfiguration":{"featureGates":
            {"EtcdLearnerMode":false,"NoSuchGate":true}}}}}"#,
        &[
            (KUBEADM_GATE, "spec.kubeadmConfigSpec.clusterConfiguration.featureGates[EtcdLearnerMode]"),
            (KUBEADM_GATE, "spec.kubeadmConfigSpec.clusterConfiguration.featureGates[NoSuchGate]"),
        ],
    ),
    Case::create(
        "rejects_plugin_that_is_gone",
        r#"{"spec":{"version":"v1.31.4","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"enable-admission-plugins","value":"NodeRestriction,PodSecurityPolicy"}]}}}}}"#,
        &[(PLUGIN, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_api_that_is_not_registered",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"runtime-config","value":"autoscaling/v2beta2=true"}]}}}}}"#,
        &[(API, API_SERVER)],
    )
    .only_in_version(V1BETA2),
];
