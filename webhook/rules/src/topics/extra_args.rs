//! Flags of the components. Their values are not shown, because they may be secret.

use std::collections::HashSet;

use crate::{
    action::Action,
    api::{
        ControlPlaneSpec,
        kubeadm_config::{Component, ExtraArgs, NodeRegistration},
    },
    case::{Case, V1BETA1, V1BETA2},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, ON_WRITE, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "extra-args",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[Rule {
    id: "extra-args-duplicate",
    summary: "each flag of a component must be set only once",
    operations: ON_WRITE,
    action: Action::Deny,
    scope: Scope::Object,
    overridable: false,
    source: "CRD of KubeadmControlPlane v1beta2: extraArgs name must be unique",
    check: Check::ControlPlaneSpec(duplicate),
    cel: Cel::None(NoCel::SchemaFirst),
}];

fn lists<'c>(spec: &ControlPlaneSpec<'c>) -> Option<[(&'static str, Option<&'c ExtraArgs<'c>>); 6]> {
    let config = spec.kubeadm_config()?;
    let cluster = config.cluster_configuration.as_ref();
    let of = |component: Option<&'c Component<'c>>| component?.extra_args.as_ref();
    let etcd = config.etcd().and_then(|etcd| etcd.local.as_ref());
    let init = config.init_configuration.as_ref();
    let join = config.join_configuration.as_ref();
    let kubelet = |node: Option<&'c NodeRegistration<'c>>| node?.kubelet_extra_args.as_ref();
    Some([
        (
            "clusterConfiguration.apiServer.extraArgs",
            of(cluster.and_then(|cluster| cluster.api_server.as_ref())),
        ),
        (
            "clusterConfiguration.controllerManager.extraArgs",
            of(cluster.and_then(|cluster| cluster.controller_manager.as_ref())),
        ),
        (
            "clusterConfiguration.scheduler.extraArgs",
            of(cluster.and_then(|cluster| cluster.scheduler.as_ref())),
        ),
        (
            "clusterConfiguration.etcd.local.extraArgs",
            etcd.and_then(|etcd| etcd.extra_args.as_ref()),
        ),
        (
            "initConfiguration.nodeRegistration.kubeletExtraArgs",
            kubelet(init.and_then(|init| init.node_registration.as_ref())),
        ),
        (
            "joinConfiguration.nodeRegistration.kubeletExtraArgs",
            kubelet(join.and_then(|join| join.node_registration.as_ref())),
        ),
    ])
}

fn duplicate(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (list, args) in lists(change.new).into_iter().flatten() {
        let mut seen = HashSet::new();
        let repeatable = args.filter(|args| !args.is_map);
        for (index, flag) in repeatable.iter().flat_map(|args| &args.flags).enumerate() {
            let Some(name) = flag.name.as_deref() else {
                continue;
            };
            if !seen.insert(name) {
                faults.push_redacted(
                    name,
                    Fault {
                        field: change.new.kubeadm_path(format_args!("{list}[{index}].name")),
                        reason: CauseReason::Duplicate,
                        value: Some(HIDDEN.to_owned()),
                        detail: "an earlier entry sets this flag, and Cluster API passes each flag once"
                            .into(),
                        remedy: "keep one entry".into(),
                    },
                );
            }
        }
    }
}

const RULE: &str = "extra-args-duplicate";

const CASES: &[Case] = &[
    Case::create(
        "accepts_different_flags",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"v","value":"2"},{"name":"profiling","value":"false"}]},
            "scheduler":{"extraArgs":[{"name":"v","value":"2"}]}}}}}"#,
        &[],
    )
    .only_in(V1BETA2),
    Case::create(
        "accepts_map_of_v1beta1",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            {"v":"2","profiling":"false"}}}}}}"#,
        &[],
    )
    .only_in(V1BETA1),
    Case::create(
        "rejects_duplicate_flags",
        r#"{"spec":{"kubeadmConfigSpec":{
            "clusterConfiguration":{
                "apiServer":{"extraArgs":[{"name":"v","value":"2"},{"name":"v","value":"3"}]},
                "controllerManager":{"extraArgs":[{"name":"v","value":"2"},{"name":"v","value":"3"}]},
                "scheduler":{"extraArgs":[{"name":"v","value":"2"},{"name":"v","value":"3"}]},
                "etcd":{"local":{"extraArgs":[{"name":"v","value":"2"},{"name":"v","value":"3"}]}}},
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
    .only_in(V1BETA2),
    Case::template(
        "rejects_duplicate_flags_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"v","value":"2"},{"name":"v","value":"3"}]}}}}}}}"#,
        &[(
            RULE,
            "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].name",
        )],
    )
    .only_in(V1BETA2),
];
