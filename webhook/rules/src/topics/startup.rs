//! Flags, feature gates, admission plugins, APIs and labels with which a component of the given version does not start. Messages
//! show only names that [`crate::components`] knows, because any other text may be secret.

use std::borrow::Cow;

use semver::Version;

use crate::{
    action::Action,
    api::ControlPlaneSpec,
    case::{Case, V1BETA1, V1BETA2},
    cel::{Cel, NoCel},
    change::Change,
    components::{self, Absence, Answer, Component, Flag, Gate},
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, ON_WRITE, Rule, Scope},
    syntax::{may_kubelet_set, parse_version},
    topics::{
        Topic,
        etcd::etcd_version,
        extra_args::{FlagList, FlagValue, component_flags, kubelets, parse_bool},
        leader_migration::{host_path, length_above},
    },
};

pub(super) const TOPIC: Topic = Topic {
    name: "startup",
    rules: RULES,
    cases: CASES,
};

const DERIVED: &str =
    "the sources of the components of each minor version, as listed in webhook/rules/components/data";

const RULES: &[Rule] = &[
    Rule {
        id: "component-flag-unknown",
        summary: "each component must know the flags that it gets",
        why: "A component exits at startup if it does not know a flag. The first new Machine then never becomes ready, and the \
              rollout stops.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        // Somebody may run a build of their own.
        overridable: true,
        source: DERIVED,
        check: Check::ControlPlaneSpec(flag_unknown),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "component-flag-deprecated",
        summary: "components should not get deprecated flags",
        why: "A later version may not know the flag, and then exits at startup.",
        operations: ON_WRITE,
        action: Action::Audit,
        scope: Scope::Object,
        overridable: false,
        source: DERIVED,
        check: Check::ControlPlaneSpec(flag_deprecated),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "component-flags-conflict",
        summary: "the flags of a component must be valid together, and with those of kubeadm",
        why: "kubeadm passes flags of its own to the components. Some flags exclude each other, and the component then exits at \
              startup.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: true,
        source: "kube-apiserver and etcd: validation of options; kubeadm, app/phases/controlplane/manifests.go",
        check: Check::ControlPlaneSpec(flags_conflict),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "component-file-unmounted",
        summary: "a volume must contain each file that a component reads at startup",
        why: "A component runs in a container, and sees only the files of its volumes. It exits at startup if a flag names a file \
              that it does not see.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: true,
        source: "kubeadm, app/phases/controlplane/volumes.go; kubernetes/kubernetes#133574",
        check: Check::ControlPlaneSpec(file_unmounted),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "feature-gate-unknown",
        summary: "each component must know the feature gates that it gets",
        why: "A component exits at startup if it does not know a feature gate. The first new Machine then never becomes ready, and \
              the rollout stops.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: true,
        source: DERIVED,
        check: Check::ControlPlaneSpec(gate_unknown),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "feature-gate-value-refused",
        summary: "each feature gate must have a value that the component accepts",
        why: "Before Kubernetes removes a feature gate, it locks the gate to its default. A component exits at startup if it gets \
              the other value, or a value that is not a boolean.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: true,
        source: DERIVED,
        check: Check::ControlPlaneSpec(gate_value_refused),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "kubeadm-feature-gate-unknown",
        summary: "kubeadm must know the feature gates that it gets",
        why: "kubeadm rejects a configuration with a feature gate that it does not know. The first new Machine then never joins the \
              cluster, and the rollout stops.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: true,
        source: DERIVED,
        check: Check::ControlPlaneSpec(kubeadm_gate_unknown),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "admission-plugin-unknown",
        summary: "kube-apiserver must know the admission plugins that it gets",
        why: "kube-apiserver exits at startup if a flag enables or disables an admission plugin that it does not know. The first new \
              Machine then never becomes ready, and the rollout stops.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: true,
        source: DERIVED,
        check: Check::ControlPlaneSpec(admission_plugin_unknown),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "runtime-config-unknown",
        summary: "kube-apiserver must know the API versions in its runtime-config",
        why: "kube-apiserver exits at startup if runtime-config names an API group or version that it does not know. The first new \
              Machine then never becomes ready, and the rollout stops.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: true,
        source: DERIVED,
        check: Check::ControlPlaneSpec(runtime_config_unknown),
        cel: Cel::None(NoCel::TooLong),
    },
    Rule {
        id: "kubelet-label-refused",
        summary: "a kubelet must only set labels that Kubernetes lets it set",
        why: "The kubelet exits at startup if node-labels has a label in Kubernetes' domains that only others may set. The Machine \
              then never becomes a Node.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        source: "kubernetes/kubernetes, pkg/kubelet/apis/well_known_labels.go; KEP-279",
        check: Check::ControlPlaneSpec(kubelet_label_refused),
        cel: Cel::None(NoCel::TooLong),
    },
];

/// The flags of one component, and its version.
struct Given<'c> {
    component: Component,
    version: Version,
    flags: FlagList<'c>,
}

/// The components whose version is known.
fn given<'c>(spec: &ControlPlaneSpec<'c>) -> impl Iterator<Item = Given<'c>> {
    let kubernetes = kubernetes_version(spec);
    let etcd = kubernetes
        .as_ref()
        .and_then(|version| etcd_version(spec, version.minor));
    component_flags(spec)
        .into_iter()
        .filter_map(move |(component, flags)| {
            let version = if component == Component::Etcd {
                &etcd
            } else {
                &kubernetes
            };
            Some(Given {
                component,
                version: version.clone()?,
                flags,
            })
        })
}

/// The version of the components. For a template, which has no version, the newest that is known; `None` if the version is not
/// valid, which another rule reports.
fn kubernetes_version(spec: &ControlPlaneSpec<'_>) -> Option<Version> {
    match spec.version() {
        Some(version) => parse_version(version).ok(),
        None => Some(Version::new(1, components::minors(Component::ApiServer).1, 0)),
    }
}

/// The program that reads a name, and what it does if it does not know the name.
#[derive(Clone, Copy)]
struct Reader {
    program: &'static str,
    major: u64,
    /// The oldest minor version that the tables cover.
    oldest: u64,
    consequence: &'static str,
}

impl Reader {
    fn new(component: Component) -> Self {
        Self {
            program: component.name(),
            major: if component == Component::Etcd { 3 } else { 1 },
            oldest: components::minors(component).0,
            consequence: "exit at startup",
        }
    }

    fn kubeadm() -> Self {
        Self {
            program: "kubeadm",
            consequence: "reject the configuration",
            ..Self::new(Component::ApiServer)
        }
    }
}

/// Reports a name that a program does not know. `what` says what it is, such as `feature gate`. Shows the name only if some version
/// knows it. `unnamed` is the path of the field without the name, if it has the name.
fn push_unknown(
    (reader, what, name, absence): (Reader, &str, &str, Absence),
    field: Cow<'static, str>,
    unnamed: Option<Cow<'static, str>>,
    action: Action,
    faults: &mut Faults,
) {
    let Reader {
        program,
        major,
        oldest,
        consequence,
    } = reader;
    let (detail, remedy) = match absence {
        Absence::RemovedIn(minor) => (
            format!("{program} {major}.{minor} and later do not know the {what} {name}, and {consequence}"),
            format!("remove {name}"),
        ),
        Absence::AddedIn(minor) => (
            format!(
                "versions of {program} before {major}.{minor} do not know the {what} {name}, and {consequence}"
            ),
            format!("remove {name}, or use version {major}.{minor} or later"),
        ),
        Absence::Always => (
            format!("{program} {major}.{oldest} and later do not know this {what}, and {consequence}"),
            "correct the name, or remove it".to_owned(),
        ),
    };
    let is_hidden = absence == Absence::Always;
    let fault = Fault {
        field: unnamed.filter(|_| is_hidden).unwrap_or_else(|| field.clone()),
        reason: CauseReason::NotSupported,
        value: Some(HIDDEN.to_owned()),
        detail: detail.into(),
        remedy: remedy.into(),
    };
    if is_hidden {
        faults.push_unnamed(name, field, fault);
    } else {
        faults.push_at_most(action, fault);
    }
}

/// Each flag of each component, and whether the component knows it.
fn answers<'c>(
    spec: &ControlPlaneSpec<'c>,
) -> impl Iterator<Item = (Component, FlagValue<'c>, Answer<Flag>)> {
    given(spec).flat_map(|given| {
        let Given {
            component,
            version,
            flags,
        } = given;
        flags.iter().map(move |flag| {
            let answer = components::flag(component, flag.name, &version);
            (component, flag, answer)
        })
    })
}

fn flag_unknown(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    for (component, flag, answer) in answers(spec) {
        let Answer::Unknown(absence) = answer else {
            continue;
        };
        // Kubernetes accepts underscores as dashes.
        let name = if component == Component::Etcd {
            format!("--{}", flag.name)
        } else {
            format!("--{}", flag.name.replace('_', "-"))
        };
        let unknown = (Reader::new(component), "flag", name.as_str(), absence);
        let unnamed = Some(flag.path_without_name(spec));
        push_unknown(
            unknown,
            flag.path(spec),
            unnamed,
            Action::of_version(spec),
            faults,
        );
    }
}

fn flag_deprecated(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    // The kubelet calls most of its flags deprecated, and keeps them.
    for (component, flag, answer) in answers(spec).filter(|(component, ..)| *component != Component::Kubelet)
    {
        let Answer::Known(Flag {
            deprecated: Some(deprecation),
            ..
        }) = answer
        else {
            continue;
        };
        faults.push(Fault {
            field: flag.path(spec),
            reason: CauseReason::NotSupported,
            value: Some(HIDDEN.to_owned()),
            detail: format!(
                "{} says about --{}: {}",
                component.name(),
                flag.name,
                deprecation.text.trim_end_matches('.')
            )
            .into(),
            remedy: "remove the flag before a version that does not know it".into(),
        });
    }
}

/// Reports flags of kube-apiserver and etcd that exclude each other, or flags that kubeadm sets.
fn flags_conflict(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    for Given {
        component,
        version,
        flags,
    } in given(spec)
    {
        let conflicts: Vec<(&'static str, &str)> = match component {
            Component::ApiServer => api_server_conflicts(&flags, version.minor),
            Component::Etcd => etcd_conflicts(&version, kubernetes_version(spec).as_ref()),
            _ => Vec::new(),
        };
        for (name, cause) in conflicts {
            let Some(flag) = flags.get(name) else { continue };
            let fault = Fault {
                field: flag.path(spec),
                reason: CauseReason::Forbidden,
                value: Some(HIDDEN.to_owned()),
                detail: format!("{cause}, so {} exits at startup", component.name()).into(),
                remedy: format!("remove --{name}").into(),
            };
            faults.push_at_most(Action::of_version(spec), fault);
        }
    }
}

fn api_server_conflicts(flags: &FlagList<'_>, minor: u64) -> Vec<(&'static str, &'static str)> {
    let mut conflicts = vec![(
        "admission-control",
        "the flag excludes --enable-admission-plugins, which kubeadm always sets",
    )];
    if minor < 30 {
        let cause = "the flag excludes --authorization-mode, which kubeadm sets before 1.30";
        conflicts.push(("authorization-config", cause));
    }
    let is_set = |prefix: &str| {
        flags
            .iter()
            .any(|flag| flag.name.replace('_', "-").starts_with(prefix))
    };
    if minor >= 30 && (is_set("authorization-mode") || is_set("authorization-webhook-")) {
        let cause = "the flag excludes --authorization-mode and the flags --authorization-webhook-*, one of which is also set";
        conflicts.push(("authorization-config", cause));
    }
    if minor >= 32 {
        let cause = "the flag excludes the key files of service accounts, which kubeadm always sets";
        conflicts.push(("service-account-signing-endpoint", cause));
    }
    if is_set("oidc-") {
        conflicts.push((
            "authentication-config",
            "the flag excludes the flags --oidc-*, which are also set",
        ));
    }
    // kubeadm enables this plugin unless the flag is set.
    let enabled = flags.get("enable-admission-plugins");
    let enabled = plugins(enabled.map_or("NodeRestriction", |flag| flag.value));
    if plugins(flags.value("disable-admission-plugins"))
        .any(|plugin| enabled.clone().any(|other| other == plugin))
    {
        let cause = "--enable-admission-plugins, which kubeadm sets to NodeRestriction by default, enables a plugin that the flag disables";
        conflicts.push(("disable-admission-plugins", cause));
    }
    conflicts
}

fn etcd_conflicts(etcd: &Version, kubernetes: Option<&Version>) -> Vec<(&'static str, &'static str)> {
    // etcd 3.7 does not know the flags.
    if etcd.minor != 6 || kubernetes.is_none_or(|kubernetes| kubernetes.minor < 34) {
        return Vec::new();
    }
    vec![
        (
            "experimental-initial-corrupt-check",
            "etcd 3.6 refuses the flag together with the gate InitialCorruptCheck, which kubeadm 1.34 and later set",
        ),
        (
            "experimental-watch-progress-notify-interval",
            "etcd 3.6 refuses the flag together with --watch-progress-notify-interval, which kubeadm 1.34 and later set",
        ),
    ]
}

/// The flags with files that kube-apiserver reads at startup.
const API_SERVER_FILES: [&str; 14] = [
    "admission-control-config-file",
    "audit-policy-file",
    "audit-webhook-config-file",
    "authentication-config",
    "authentication-token-webhook-config-file",
    "authorization-config",
    "authorization-webhook-config-file",
    "egress-selector-config-file",
    "encryption-provider-config",
    "oidc-ca-file",
    "peer-ca-file",
    "token-auth-file",
    "tracing-config-file",
    "kubelet-certificate-authority",
];

/// The flags with files that kube-controller-manager reads at startup.
const CONTROLLER_MANAGER_FILES: [&str; 2] = ["root-ca-file", "service-account-private-key-file"];

/// The flags with files that kube-scheduler reads at startup.
const SCHEDULER_FILES: [&str; 1] = ["config"];

/// The only file that kubeadm mounts into kube-scheduler.
const SCHEDULER_KUBECONFIG: &str = "/etc/kubernetes/scheduler.conf";

fn file_unmounted(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let Some(cluster) = spec.cluster_configuration() else {
        return;
    };
    let certificates = cluster
        .certificates_dir
        .as_deref()
        .filter(|folder| !folder.is_empty());
    let has_external_etcd = cluster.etcd.as_ref().is_some_and(|etcd| etcd.external.is_some());
    for Given { component, flags, .. } in given(spec) {
        let (names, settings, field): (&[&'static str], _, _) = match component {
            Component::ApiServer => (&API_SERVER_FILES, &cluster.api_server, "apiServer"),
            Component::ControllerManager => (
                &CONTROLLER_MANAGER_FILES,
                &cluster.controller_manager,
                "controllerManager",
            ),
            Component::Scheduler => (&SCHEDULER_FILES, &cluster.scheduler, "scheduler"),
            Component::Kubelet | Component::Etcd => continue,
        };
        // kubeadm also mounts the folders with the certificates for an external etcd.
        if component == Component::ApiServer && has_external_etcd {
            continue;
        }
        let volumes = settings
            .as_ref()
            .and_then(|settings| settings.extra_volumes.as_deref());
        for flag in names.iter().filter_map(|name| flags.get(name)) {
            let path = flag.value;
            let is_mounted = match component {
                Component::Scheduler => {
                    let mut mounts = volumes
                        .unwrap_or_default()
                        .iter()
                        .filter_map(|volume| volume.mount_path.as_deref());
                    path == SCHEDULER_KUBECONFIG || mounts.any(|mount| length_above(path, mount).is_some())
                }
                _ => host_path(path, volumes.unwrap_or_default(), certificates).is_some(),
            };
            if !path.starts_with('/') || is_mounted {
                continue;
            }
            let program = component.name();
            let fault = Fault {
                field: flag.path(spec),
                reason: CauseReason::NotFound,
                value: Some(HIDDEN.to_owned()),
                detail: format!("no volume of {program} contains this path, so {program} exits at startup")
                    .into(),
                remedy: format!("add the file to {field}.extraVolumes").into(),
            };
            faults.push_redacted(path, fault);
        }
    }
}

/// The admission plugins in the value of a flag. kube-apiserver does not trim their names. Quoted names, which it accepts, are left
/// out.
fn plugins(list: &str) -> impl Iterator<Item = &str> + Clone {
    let is_read = !list.is_empty() && !list.contains('"');
    list.split(',').filter(move |_| is_read)
}

/// The items of a list of a flag, such as `A,B`.
fn items(list: &str) -> impl Iterator<Item = &str> + Clone {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// The feature gates of a flag: names and values.
fn gates<'c>(
    component: Component,
    minor: u64,
    flag: &FlagValue<'c>,
) -> impl Iterator<Item = (&'c str, &'c str)> {
    items(flag.value).map(move |item| {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        let name = name.trim();
        // From 1.31 on, programs with several components take their own gates with this prefix; the kubelet and etcd do not.
        let takes_prefix = !matches!(component, Component::Kubelet | Component::Etcd) && minor >= 31;
        let own = name.strip_prefix("kube:").filter(|_| takes_prefix);
        (own.unwrap_or(name), value.trim())
    })
}

/// Calls `report` for each feature gate of each component.
fn for_each_gate<'c>(
    spec: &ControlPlaneSpec<'c>,
    mut report: impl FnMut(Component, &FlagValue<'c>, (&'c str, &'c str), Answer<Gate>),
) {
    for Given {
        component,
        version,
        flags,
    } in given(spec)
    {
        // An emulated version has its own gates and defaults.
        let is_emulated = flags.get("emulated-version").is_some();
        let Some(flag) = flags.get("feature-gates").filter(|_| !is_emulated) else {
            continue;
        };
        for (name, value) in gates(component, version.minor, &flag) {
            report(
                component,
                &flag,
                (name, value),
                components::gate(component, name, &version),
            );
        }
    }
}

fn gate_unknown(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    for_each_gate(spec, |component, flag, (name, _), answer| {
        if let Answer::Unknown(absence) = answer {
            let unknown = (Reader::new(component), "feature gate", name, absence);
            push_unknown(unknown, flag.path(spec), None, Action::of_version(spec), faults);
        }
    });
}

fn gate_value_refused(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    for_each_gate(spec, |component, flag, (name, value), answer| {
        let Answer::Known(gate) = answer else { return };
        let program = component.name();
        let (detail, remedy) = match parse_bool(value) {
            None => (
                format!(
                    "the feature gate {name} has a value that is not a boolean, and {program} exits at startup"
                ),
                format!("set {name} to true or false, or remove it"),
            ),
            Some(value) if gate.locked && value != gate.default => (
                format!(
                    "{program} locks the feature gate {name} to {}, and exits at startup if it gets another value",
                    gate.default
                ),
                format!("remove {name}"),
            ),
            Some(_) => return,
        };
        let fault = Fault {
            field: flag.path(spec),
            reason: CauseReason::NotSupported,
            value: Some(HIDDEN.to_owned()),
            detail: detail.into(),
            remedy: remedy.into(),
        };
        faults.push_at_most(Action::of_version(spec), fault);
    });
}

fn kubeadm_gate_unknown(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let Some(version) = kubernetes_version(spec) else {
        return;
    };
    let cluster = spec.cluster_configuration();
    let gates = cluster.and_then(|cluster| cluster.feature_gates.as_ref());
    for name in gates.into_iter().flat_map(|gates| gates.keys()) {
        if let Answer::Unknown(absence) = components::kubeadm_gate(name, &version) {
            let field = spec.kubeadm_path(format_args!("clusterConfiguration.featureGates[{name}]"));
            let unnamed = Some(spec.kubeadm_path("clusterConfiguration.featureGates"));
            let unknown = (Reader::kubeadm(), "feature gate", name.as_str(), absence);
            push_unknown(unknown, field, unnamed, Action::of_version(spec), faults);
        }
    }
}

/// Calls `report` for each item of these flags of kube-apiserver.
fn for_each_api_server_item<'c>(
    spec: &ControlPlaneSpec<'c>,
    flags: &[&'static str],
    items: impl Fn(&'c str) -> Vec<&'c str>,
    mut report: impl FnMut(&FlagValue<'c>, &'c str, &Version),
) {
    let api_server = given(spec).find(|given| given.component == Component::ApiServer);
    let Some(Given {
        version, flags: list, ..
    }) = api_server
    else {
        return;
    };
    for flag in flags.iter().filter_map(|name| list.get(name)) {
        for item in items(flag.value) {
            report(&flag, item, &version);
        }
    }
}

fn admission_plugin_unknown(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let flags = ["enable-admission-plugins", "disable-admission-plugins"];
    let split = |list| plugins(list).collect();
    for_each_api_server_item(spec, &flags, split, |flag, plugin, version| {
        if let Answer::Unknown(absence) = components::admission_plugin(plugin, version) {
            let unknown = (
                Reader::new(Component::ApiServer),
                "admission plugin",
                plugin,
                absence,
            );
            push_unknown(unknown, flag.path(spec), None, Action::of_version(spec), faults);
        }
    });
}

fn runtime_config_unknown(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let split = |list| items(list).collect();
    for_each_api_server_item(spec, &["runtime-config"], split, |flag, item, version| {
        let key = item.split('=').next().unwrap_or(item).trim();
        let answer = if key.contains('/') {
            components::runtime_config(key, version)
        } else {
            Answer::Unknown(Absence::Always)
        };
        if let Answer::Unknown(absence) = answer {
            let unknown = (Reader::new(Component::ApiServer), "API version", key, absence);
            push_unknown(unknown, flag.path(spec), None, Action::of_version(spec), faults);
        }
    });
}

fn kubelet_label_refused(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    for flag in kubelets(spec).iter().filter_map(|flags| flags.get("node-labels")) {
        for label in items(flag.value) {
            let key = label.split('=').next().unwrap_or(label).trim();
            if !may_kubelet_set(key) {
                let fault = Fault {
                    field: flag.path(spec),
                    reason: CauseReason::Forbidden,
                    value: Some(HIDDEN.to_owned()),
                    detail: "a kubelet may not set one of the labels in the domains kubernetes.io and k8s.io, and exits at startup".into(),
                    remedy: "set labels such as node-role.kubernetes.io/NAME in machineTemplate.metadata.labels, or for workers in \
                             template.metadata.labels of the MachineDeployment, from which Cluster API copies them to the Node; kubectl \
                             label sets any other".into(),
                };
                faults.push_redacted(key, fault);
            }
        }
    }
}

const FLAG: &str = "component-flag-unknown";
const DEPRECATED: &str = "component-flag-deprecated";
const CONFLICT: &str = "component-flags-conflict";
const FILE: &str = "component-file-unmounted";
const GATE: &str = "feature-gate-unknown";
const VALUE: &str = "feature-gate-value-refused";
const KUBEADM_GATE: &str = "kubeadm-feature-gate-unknown";
const PLUGIN: &str = "admission-plugin-unknown";
const API: &str = "runtime-config-unknown";
const LABEL: &str = "kubelet-label-refused";

const API_SERVER: &str = "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value";
const ETCD: &str = "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.extraArgs[0].value";

const CASES: &[Case] = &[
    Case::create(
        "accepts_what_1_32_knows",
        r#"{"spec":{"version":"v1.32.4","kubeadmConfigSpec":{
            "clusterConfiguration":{"featureGates":{"EtcdLearnerMode":true},
                "apiServer":{"extraArgs":[{"name":"event-ttl","value":"2h"},{"name":"profiling","value":"false"},
                    {"name":"feature-gates","value":"kube:AllAlpha=false, WatchList=True,"},
                    {"name":"enable-admission-plugins","value":"NodeRestriction,PodSecurity"},
                    {"name":"runtime-config","value":"api/beta=true,policy/v1beta1=false"}]},
                "etcd":{"local":{"extraArgs":[{"name":"experimental-initial-corrupt-check","value":"true"}]}}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[
                {"name":"node_labels","value":"rack=a,node.cluster.x-k8s.io/a=b,topology.kubernetes.io/zone=z"}]}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_upgrade_that_removes_a_flag",
        r#"{"spec":{"version":"v1.32.4","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"cloud-provider","value":"external"}]}}}}}"#,
        r#"{"spec":{"version":"v1.33.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"cloud-provider","value":"external"}]}}}}}"#,
        &[(FLAG, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_flags_that_no_version_knows",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{
            "scheduler":{"extraArgs":{"profilling":"false"}}},
            "initConfiguration":{"nodeRegistration":{"kubeletExtraArgs":{"container-runtime":"remote"}}}}}}"#,
        &[
            (FLAG, "spec.kubeadmConfigSpec.clusterConfiguration.scheduler.extraArgs"),
            (FLAG, "spec.kubeadmConfigSpec.initConfiguration.nodeRegistration.kubeletExtraArgs"),
        ],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_flag_that_etcd_3_6_does_not_know",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"extraArgs":
            [{"name":"enable-v2","value":"false"}]}}}}}}"#,
        &[(FLAG, ETCD)],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "rejects_each_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{
            "clusterConfiguration":{"featureGates":{"EtcdLearnerMode":true},"apiServer":{"extraArgs":[
                {"name":"cloud-provider","value":"external"},{"name":"apiserver-count","value":"3"},
                {"name":"service-account-signing-endpoint","value":"/s"},
                {"name":"feature-gates","value":"SidecarContainers=true,NodeSwap=false"},
                {"name":"enable-admission-plugins","value":"SecurityContextDeny"},
                {"name":"runtime-config","value":"autoscaling/v2beta2=true"},
                {"name":"tracing-config-file","value":"/etc/tracing.yaml"}]}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[
                {"name":"node-labels","value":"node-role.kubernetes.io/ingress="}]}}}}}}}"#,
        &[
            (FLAG, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value"),
            (DEPRECATED, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (CONFLICT, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[2].value"),
            (FILE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[6].value"),
            (GATE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[3].value"),
            (VALUE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[3].value"),
            (KUBEADM_GATE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.featureGates[EtcdLearnerMode]"),
            (PLUGIN, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[4].value"),
            (API, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[5].value"),
            (LABEL, "spec.template.spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "warns_of_deprecated_flag",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"apiserver-count","value":"3"}]}}}}}"#,
        &[(DEPRECATED, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_flags_that_exclude_those_of_kubeadm",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"service-account-signing-endpoint","value":"/s"}]},
            "etcd":{"local":{"extraArgs":[{"name":"experimental-initial-corrupt-check","value":"true"}]}}}}}}"#,
        &[(CONFLICT, API_SERVER), (CONFLICT, ETCD)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_other_flags_that_exclude_each_other",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"admission-control","value":"PodSecurity"},
                {"name":"authentication-config","value":"/etc/kubernetes/pki/authentication.yaml"},
                {"name":"oidc-client-id","value":"a"}]},
            "controllerManager":{"extraArgs":[{"name":"root-ca-file","value":"/etc/root.crt"}]},
            "etcd":{"local":{"extraArgs":[{"name":"experimental-watch-progress-notify-interval","value":"5s"}]}}}}}}"#,
        &[
            (DEPRECATED, API_SERVER),
            (DEPRECATED, ETCD),
            (CONFLICT, API_SERVER),
            (CONFLICT, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (CONFLICT, ETCD),
            (FILE, "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_flags_that_are_too_new_or_too_early",
        r#"{"spec":{"version":"v1.29.6","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":[
            {"name":"authorization-config","value":"/etc/kubernetes/pki/authorization.yaml"},
            {"name":"tls-curve-preferences","value":"X25519"}]}}}}}"#,
        &[
            (FLAG, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (CONFLICT, API_SERVER),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_what_excludes_defaults_of_kubeadm",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":[
            {"name":"disable-admission-plugins","value":"NodeRestriction"},
            {"name":"authorization-config","value":"/etc/kubernetes/pki/a.yaml"},{"name":"authorization-mode","value":"RBAC"},
            {"name":"runtime-config","value":"batch=true"}]}}}}}"#,
        &[
            (CONFLICT, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (CONFLICT, API_SERVER),
            (API, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[3].value"),
        ],
    )
    .only_in_version(V1BETA2),
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
        "rejects_plugin_that_is_enabled_and_disabled",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"disable-admission-plugins","value":"PodSecurity"},{"name":"enable-admission-plugins","value":"PodSecurity"}]}}}}}"#,
        &[(CONFLICT, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "accepts_files_in_volumes",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"audit-policy-file","value":"/etc/kubernetes/audit/policy.yaml"},
                {"name":"audit-log-path","value":"/var/log/audit.log"},{"name":"oidc-ca-file","value":"/etc/kubernetes/pki/oidc.crt"}],
                "extraVolumes":[{"name":"audit","hostPath":"/etc/audit","mountPath":"/etc/kubernetes/audit"}]},
            "scheduler":{"extraArgs":[{"name":"config","value":"/etc/kubernetes/scheduler/config.yaml"}],
                "extraVolumes":[{"name":"config","hostPath":"/etc/s","mountPath":"/etc/kubernetes/scheduler/config.yaml"}]}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_files_without_a_volume",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"audit-policy-file","value":"/etc/kubernetes/audit-policy.yaml"}]},
            "scheduler":{"extraArgs":[{"name":"config","value":"/etc/kubernetes/pki/config.yaml"}]}}}}}"#,
        &[
            (FILE, API_SERVER),
            (FILE, "spec.kubeadmConfigSpec.clusterConfiguration.scheduler.extraArgs[0].value"),
        ],
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
            (KUBEADM_GATE, "spec.kubeadmConfigSpec.clusterConfiguration.featureGates"),
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
    Case::create(
        "rejects_label_of_a_role",
        r#"{"spec":{"kubeadmConfigSpec":{"joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":
            [{"name":"node-labels","value":"rack=a,node-role.kubernetes.io/ingress="}]}}}}}"#,
        &[(LABEL, "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[0].value")],
    )
    .only_in_version(V1BETA2),
];
