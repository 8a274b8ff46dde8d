//! Flags that prevent kube-controller-manager or the kubelet of a version from starting. Messages do not show
//! the value of a flag, because it may be secret.

use crate::{
    action::Action,
    api::ControlPlaneSpec,
    cel::{Cel, NoCel},
    change::Change,
    components,
    fault::{CauseReason, Fault, Faults, HIDDEN},
    leader_migration::{Component, Flags, StartupError, cloud_provider, startup_error},
    rule::{Check, InTopology, Rule, Scope},
    topics::{
        Topic,
        extra_args::{FlagList, controller_manager, kubelets},
    },
};

pub(super) const TOPIC: Topic = Topic {
    name: "controller-manager",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "controller-manager-flag-refused",
        summary: "kube-controller-manager must know its controllers, and use a Lease as its lock",
        why: "kube-controller-manager exits at startup if --controllers has a name that it does not know, or if its lock is not a \
              Lease. The first new Machine then never becomes ready, and the rollout stops.",
        scope: Scope::Object,
        // A user may run a custom build of Kubernetes with other controllers.
        overridable: true,
        topology: InTopology::Strands,
        source: "kube-controller-manager 1.37.0: not in the list of known controllers",
        check: Check::ControlPlaneSpec(flag_refused),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "cloud-provider-removed",
        summary: "kube-controller-manager and the kubelet must support the cloud provider",
        why: "Kubernetes 1.31 and later have no in-tree cloud providers. kube-controller-manager and the \
              kubelet exit at startup if a flag names such a provider.",
        scope: Scope::Object,
        overridable: true,
        topology: InTopology::Strands,
        source: "kubernetes/kubernetes, cmd/kube-controller-manager/app/cloudproviders.go; KEP-2395",
        check: Check::ControlPlaneSpec(cloud_provider_removed),
        cel: Cel::FaultsOfControlPlanes(include_str!("cel/cloud-provider-removed.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "kubelet-cloud-provider-differs",
        summary: "all kubelets of a control plane must have the same cloud provider",
        why: "The cloud-controller-manager initializes only Nodes whose kubelet has cloud-provider=external. \
              If only some kubelets have this value, the Nodes of the other kubelets get no addresses and no \
              zones.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "KEP-2395, external cloud providers: the kubelet taints a Node until the provider initializes it",
        check: Check::ControlPlaneSpec(kubelet_cloud_provider_differs),
        cel: Cel::Faults(include_str!("cel/kubelet-cloud-provider-differs.cel")),
        ..Rule::USUAL
    },
];

/// Finds flags that make kube-controller-manager exit at startup, except for flags that other rules check.
fn flag_refused(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let list = controller_manager(spec);
    // A template has no version. Its problems are only warnings.
    let minor = spec
        .minor()
        .unwrap_or_else(|| components::minors(components::Component::ControllerManager).1);
    let flags = Flags::from_pairs(list.pairs());
    let errors = startup_error::errors_of_flags(Component::Kube, minor, &flags);
    let mut names: Vec<&str> = Vec::new();
    for error in &errors {
        let (flag, detail, remedy) = match error {
            StartupError::ResourceLock => (
                "leader-elect-resource-lock",
                "kube-controller-manager exits at startup with any lock other than leases".to_owned(),
                "remove the flag; leases is the default",
            ),
            StartupError::UnknownController(name) => {
                // Text that is not the name of a controller may be secret.
                names.push(components::controller_name(name).unwrap_or("one of the names"));
                continue;
            }
            // Other rules report these.
            StartupError::FeatureGate
            | StartupError::LockedGate
            | StartupError::UnknownFlag(_)
            | StartupError::MigrationUnsupported
            | StartupError::NoServiceAccountKey
            | StartupError::NotABoolean(_)
            | StartupError::CloudProvider(_)
            | StartupError::NoFile
            | StartupError::Configuration(_) => continue,
        };
        let action = if *error == StartupError::ResourceLock {
            Action::Deny
        } else {
            Action::of_version(spec)
        };
        push(spec, flag, detail, remedy, action, faults);
    }
    names.dedup();
    if !names.is_empty() {
        let detail = format!(
            "kube-controller-manager 1.{minor} does not know {} in --controllers, and exits at startup",
            names.join(" and ")
        );
        let remedy = "correct or remove the name; kube-controller-manager --help lists all controllers";
        push(
            spec,
            "controllers",
            detail,
            remedy,
            Action::of_version(spec),
            faults,
        );
    }
}

fn push(
    spec: &ControlPlaneSpec<'_>,
    flag: &'static str,
    detail: String,
    remedy: &'static str,
    action: Action,
    faults: &mut Faults,
) {
    let Some(found) = controller_manager(spec).get(flag) else {
        return;
    };
    let fault = Fault {
        field: found.path(spec),
        reason: CauseReason::NotSupported,
        value: Some(HIDDEN.to_owned()),
        detail: detail.into(),
        remedy: remedy.into(),
    };
    faults.push_at_most(action, fault);
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
        let Some(cause) =
            cloud_provider::startup_error(found.value, flags.value("feature-gates"), spec.minor())
        else {
            continue;
        };
        let fault = Fault {
            field: found.path(spec),
            reason: CauseReason::NotSupported,
            value: Some(HIDDEN.to_owned()),
            detail: format!("{cause}, so {component} exits at startup").into(),
            remedy: "set the flag to external and deploy a cloud-controller-manager, or remove the flag"
                .into(),
        };
        faults.push_at_most(Action::of_version(spec), fault);
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
        detail: format!("cloud-provider is {first} for the first Machine, but {others} for the others")
            .into(),
        remedy: "use external for all, or for none".into(),
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        Configuration,
        api::{KubeadmControlPlane, decode},
        judge,
        testing::case::{Base, V1BETA1},
    };

    /// Each row was run on a real binary (integration test `leader_migration::start`), or is from the source of
    /// `k8s.io/controller-manager`, `options/generic.go`, and of pflag.
    #[test]
    fn flags_are_denied_if_the_program_exits() {
        for (version, flags, is_denied) in [
            ("v1.35.4", json!({"controllers": "*,-nodeipam"}), false),
            ("v1.36.3", json!({"controllers": "*,-route"}), false),
            (
                "v1.37.0",
                json!({"controllers": "*,-node-ipam-controller,-service"}),
                true,
            ),
            ("v1.37.0", json!({"controllers": "cloud-node-lifecycle"}), true),
            // Only one dash is removed, spaces belong to names, and an empty name is a name.
            ("v1.35.4", json!({"controllers": "*,--nodeipam"}), true),
            ("v1.35.4", json!({"controllers": "*, -nodeipam"}), true),
            ("v1.35.4", json!({"controllers": "*,,-nodeipam"}), true),
            ("v1.35.4", json!({"controllers": ""}), false),
            // Without leader election, nothing reads the lock.
            (
                "v1.35.4",
                json!({"leader-elect-resource-lock": "endpoints"}),
                true,
            ),
            ("v1.35.4", json!({"leader-elect-resource-lock": ""}), true),
            (
                "v1.35.4",
                json!({"leader-elect-resource-lock": "endpoints", "leader-elect": "false"}),
                false,
            ),
        ] {
            let mut object = Base::ControlPlane(V1BETA1).object();
            let patch = json!({"spec": {"version": version, "kubeadmConfigSpec": {"clusterConfiguration": {
                "controllerManager": {"extraArgs": flags}}}}});
            json_patch::merge(&mut object, &patch);
            let text = object.to_string();
            let control_plane: KubeadmControlPlane<'_> = decode(&text).unwrap();
            let judgement = judge(&Change::create(&control_plane), &Configuration::default());
            let found = judgement
                .denials()
                .any(|finding| finding.rule.id == "controller-manager-flag-refused");
            assert_eq!(found, is_denied, "{version} {flags}");
        }
    }
}
