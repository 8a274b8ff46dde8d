//! Flags with which the controller manager or the kubelet of a version does not start. No value of a flag is shown,
//! because it may be secret.

use crate::{
    action::Action,
    api::ControlPlaneSpec,
    case::{Case, V1BETA1, V1BETA2},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, HIDDEN},
    leader_migration::{Controller, cloud_provider, known_names},
    rule::{Check, ON_WRITE, Rule, Scope},
    topics::{
        Topic,
        extra_args::{FlagList, controller_manager, kubelets},
    },
};

pub(super) const TOPIC: Topic = Topic {
    name: "controller-manager",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "controller-manager-flag-removed",
        summary: "the controller manager must know its flags at the given version",
        why: "The controller manager exits at start if it does not know a flag. The first new Machine then never \
              becomes ready, and the rollout stops.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        // A build of Kubernetes can contain a controller of another name.
        overridable: true,
        source: "kube-controller-manager 1.37.0: unknown flag; not in the list of known controllers",
        check: Check::ControlPlaneSpec(flag_removed),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "cloud-provider-removed",
        summary: "controller manager and kubelet must support the cloud provider at the version",
        why: "Kubernetes 1.31 has no in-tree cloud providers. The controller manager and the kubelet exit at start \
              if a flag names one.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: true,
        source: "kubernetes/kubernetes, cmd/kube-controller-manager/app/cloudproviders.go; KEP-2395",
        check: Check::ControlPlaneSpec(cloud_provider_removed),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "kubelet-cloud-provider-differs",
        summary: "all kubelets of a control plane must have the same cloud provider",
        why: "The cloud-controller-manager initializes only Nodes whose kubelet has cloud-provider=external. A mix \
              leaves some Nodes without addresses and zones, depending on which Machine is created first.",
        operations: ON_WRITE,
        action: Action::Warn,
        scope: Scope::Object,
        overridable: false,
        source: "KEP-2395, external cloud providers: the kubelet taints a Node until the provider initializes it",
        check: Check::ControlPlaneSpec(kubelet_cloud_provider_differs),
        cel: Cel::None(NoCel::TooLong),
    },
];

/// A value that a flag cannot have, or a flag that does not exist, from a minor version on.
struct Removed {
    flag: &'static str,
    since: u64,
    /// Whether the value of the flag is affected.
    affects: fn(&str) -> bool,
    detail: &'static str,
    remedy: &'static str,
}

/// From real binaries of 1.30, 1.35, 1.36 and 1.37, and from the sources of 1.27.
const REMOVED: [Removed; 4] = [
    Removed {
        flag: "concurrent-service-syncs",
        since: 37,
        affects: |_| true,
        detail: "kube-controller-manager 1.37 and later does not know this flag and exits at start",
        remedy: "remove it; cloud-controller-manager has the flag",
    },
    Removed {
        flag: "controllers",
        since: 37,
        affects: names_cloud_loop,
        detail: "kube-controller-manager 1.37 and later does not know the route, service and cloud-node-lifecycle \
                 controllers, and exits at start",
        remedy: "remove their names from the list",
    },
    Removed {
        flag: "feature-gates",
        since: 27,
        affects: |gates| {
            gates
                .split(',')
                .any(|gate| gate.split('=').next() == Some("ControllerManagerLeaderMigration"))
        },
        detail: "kube-controller-manager 1.27 and later does not know the feature gate ControllerManagerLeaderMigration, \
                 and exits at start",
        remedy: "remove the gate; leader migration needs none",
    },
    Removed {
        flag: "leader-elect-resource-lock",
        since: 0,
        affects: |lock| lock != "leases",
        detail: "controller managers exit at start with a lock other than leases",
        remedy: "remove the flag; leases is the default",
    },
];

fn names_cloud_loop(controllers: &str) -> bool {
    controllers.split(',').any(|name| {
        let name = name.trim().trim_start_matches('-');
        Controller::named(name).is_some() && known_names::is_known(name, 37) == Some(false)
    })
}

fn flag_removed(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for removed in &REMOVED {
        let found = controller_manager(change.new).get(removed.flag);
        let Some(found) = found.filter(|found| (removed.affects)(found.value)) else {
            continue;
        };
        let action = match change.new.minor() {
            Some(minor) if minor < removed.since => continue,
            None if removed.since > 0 => Action::Warn,
            Some(_) | None => Action::Deny,
        };
        let fault = Fault {
            field: found.path(change.new),
            reason: CauseReason::NotSupported,
            value: Some(HIDDEN.to_owned()),
            detail: removed.detail.into(),
            remedy: removed.remedy.into(),
        };
        faults.push_at_most(action, fault);
    }
    unknown_controller(change.new, faults);
}

/// A name in `--controllers` that the version does not know, apart from those that [`REMOVED`] has.
fn unknown_controller(spec: &ControlPlaneSpec<'_>, faults: &mut Faults) {
    let (Some(found), Some(minor)) = (controller_manager(spec).get("controllers"), spec.minor()) else {
        return;
    };
    let is_unknown = |item: &str| {
        let name = item.trim().trim_start_matches('-');
        item.trim() != "*"
            && Controller::named(name).is_none()
            && known_names::is_known(name, minor) == Some(false)
    };
    if found.value.split(',').any(is_unknown) {
        faults.push(Fault {
            field: found.path(spec),
            reason: CauseReason::NotSupported,
            value: Some(HIDDEN.to_owned()),
            detail: format!(
                "kube-controller-manager 1.{minor} does not know a controller in this list, and exits at start"
            )
            .into(),
            remedy: "correct or remove the name; kube-controller-manager --help lists all names".into(),
        });
    }
}

const CLOUD_PROVIDER: &str = "cloud-provider";

fn cloud_provider_removed(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let components = [("kube-controller-manager", controller_manager(spec))];
    let kubelets = kubelets(spec).map(|flags| ("the kubelet", flags));
    for (component, flags) in components.into_iter().chain(kubelets) {
        let Some(found) = flags.get(CLOUD_PROVIDER) else {
            continue;
        };
        let Some(cause) = cloud_provider::refusal(found.value, flags.value("feature-gates"), spec.minor())
        else {
            continue;
        };
        let fault = Fault {
            field: found.path(spec),
            reason: CauseReason::NotSupported,
            value: Some(HIDDEN.to_owned()),
            detail: format!("{cause}, so {component} exits at start").into(),
            remedy: "set external and deploy a cloud-controller-manager, or remove the flag".into(),
        };
        faults.push_at_most(spec.versioned_action(), fault);
    }
}

fn kubelet_cloud_provider_differs(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let [init, join] = kubelets(change.new);
    let is_external = |flags: FlagList<'_>| flags.value(CLOUD_PROVIDER) == "external";
    let (differing, first, others) = match (is_external(init), is_external(join)) {
        (true, false) => (join, "external", "not external"),
        (false, true) => (init, "not external", "external"),
        _ => return,
    };
    faults.push(Fault {
        field: change.new.kubeadm_path(differing.path),
        reason: CauseReason::Invalid,
        value: None,
        detail: format!(
            "cloud-provider of the first Machine's kubelet is {first}, and of the other Machines' kubelets {others}, so \
             the cloud-controller-manager initializes only some of the Nodes"
        )
        .into(),
        remedy: "set cloud-provider to external in both sections, or in none".into(),
    });
}

const REMOVED_FLAG: &str = "controller-manager-flag-removed";
const PROVIDER: &str = "cloud-provider-removed";
const DIFFERS: &str = "kubelet-cloud-provider-differs";
const AT_1_37: &str = r#"{"spec":{"version":"v1.37.0","kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
    "extraArgs":[{"name":"concurrent-service-syncs","value":"2"},{"name":"controllers","value":"*,-route"}]}}}}}"#;

const CASES: &[Case] = &[
    Case::create(
        "accepts_flags_that_1_36_knows",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"concurrent-service-syncs","value":"2"},
                {"name":"controllers","value":"*,-route"},{"name":"cloud-provider","value":"external"},
                {"name":"leader-elect-resource-lock","value":"leases"}]}},
            "initConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"cloud-provider","value":"external"}]}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"cloud-provider","value":"external"}]}}}}}"#,
        &[],
    )
    .only_in(V1BETA2),
    Case::create(
        "rejects_flags_that_1_37_does_not_know",
        AT_1_37,
        &[
            (
                REMOVED_FLAG,
                "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value",
            ),
            (
                REMOVED_FLAG,
                "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[1].value",
            ),
        ],
    )
    .only_in(V1BETA2),
    Case::create(
        "rejects_unknown_controller",
        r#"{"spec":{"version":"v1.35.4","kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"controllers","value":"*,-tokencleaner,-node-ipam"}]}}}}}"#,
        &[(
            REMOVED_FLAG,
            "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value",
        )],
    )
    .only_in(V1BETA2),
    Case::create(
        "rejects_gate_and_lock",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{"extraArgs":{
            "feature-gates":"A=true,ControllerManagerLeaderMigration=true","leader-elect-resource-lock":"endpoints"}}}}}}"#,
        &[
            (
                REMOVED_FLAG,
                "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[feature-gates]",
            ),
            (
                REMOVED_FLAG,
                "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[leader-elect-resource-lock]",
            ),
        ],
    )
    .only_in(V1BETA1),
    Case::create(
        "rejects_in_tree_cloud_provider",
        r#"{"spec":{"version":"v1.31.0","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"cloud-provider","value":"gce"}]}},
            "initConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"cloud-provider","value":"gce"}]}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"cloud-provider","value":"gce"}]}}}}}"#,
        &[
            (
                PROVIDER,
                "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value",
            ),
            (
                PROVIDER,
                "spec.kubeadmConfigSpec.initConfiguration.nodeRegistration.kubeletExtraArgs[0].value",
            ),
            (
                PROVIDER,
                "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[0].value",
            ),
        ],
    )
    .only_in(V1BETA2),
    Case::template(
        "warns_of_in_tree_cloud_provider_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"cloud-provider","value":"gce"}]}}}}}}}"#,
        &[(
            PROVIDER,
            "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value",
        )],
    )
    .only_in(V1BETA2),
    Case::template(
        "warns_of_removed_flag_and_different_kubelets_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"concurrent-service-syncs","value":"2"}]}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"cloud-provider","value":"external"}]}}
            }}}}}"#,
        &[
            (
                REMOVED_FLAG,
                "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value",
            ),
            (
                DIFFERS,
                "spec.template.spec.kubeadmConfigSpec.initConfiguration.nodeRegistration.kubeletExtraArgs",
            ),
        ],
    )
    .only_in(V1BETA2),
    Case::create(
        "warns_of_different_cloud_providers",
        r#"{"spec":{"kubeadmConfigSpec":{"initConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[
            {"name":"cloud-provider","value":"external"}]}}}}}"#,
        &[(
            DIFFERS,
            "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs",
        )],
    )
    .only_in(V1BETA2),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cloud_loops_are_found_in_either_spelling() {
        for (controllers, expected) in [
            ("*", false),
            ("*,-nodeipam", false),
            ("*,-node-ipam-controller,-service", true),
            ("*,-service-lb-controller", true),
            ("cloud-node-lifecycle", true),
            ("*,-routes", false),
        ] {
            assert_eq!(names_cloud_loop(controllers), expected, "{controllers}");
        }
    }
}
