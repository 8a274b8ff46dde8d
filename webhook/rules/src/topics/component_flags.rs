//! Flags with which a component of the given version does not start: those that it does not know, values that it cannot parse, and
//! flags that exclude each other.
//!
//! - [`values`]: what the value of a flag must be, by its type
//! - [`checks`]: what a component demands of a value beyond its type
//! - [`conflicts`]: flags that a component refuses together

mod checks;
mod conflicts;
mod values;

use std::borrow::Cow;

use checks::{TAINT_EFFECTS, required_by_check};
use conflicts::{
    api_server_conflicts, etcd_conflicts, kubelet_conflicts, manager_conflicts, signer_conflicts,
};
use semver::Version;
use values::{parse_emulated, required_value};

use crate::{
    action::Action,
    api::{ControlPlaneSpec, kubeadm_config::KubeadmConfigSpec},
    cel::{Cel, NoCel},
    change::Change,
    components::{self, Absence, Answer, Component, Flag},
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, InTopology, Rule, Scope},
    syntax::may_kubelet_set,
    topics::{
        Topic,
        etcd::etcd_version,
        extra_args::{FlagList, FlagValue, component_flags, has_placeholder, items, kubelets},
    },
};

pub(super) const TOPIC: Topic = Topic {
    name: "component-flags",
    rules: RULES,
};

pub(super) const DERIVED: &str =
    "the sources of the components of each minor version, as listed in webhook/rules/components/data";

const RULES: &[Rule] = &[
    Rule {
        id: "component-flag-unknown",
        summary: "each component must know the flags that it gets",
        why: "A component exits at startup if it does not know a flag. The first new Machine then never becomes ready, and the \
              rollout stops.",
        scope: Scope::Object,
        // A user may run a custom build of a component that knows other flags.
        overridable: true,
        topology: InTopology::Strands,
        source: DERIVED,
        check: Check::ControlPlaneSpec(flag_unknown),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "component-flag-deprecated",
        summary: "components should not get deprecated flags",
        why: "A later version of the component may not know the flag, and then exits at startup.",
        action: Action::Audit,
        scope: Scope::Object,
        source: DERIVED,
        check: Check::ControlPlaneSpec(flag_deprecated),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "component-flag-value-refused",
        summary: "each flag must have a value that the component accepts",
        why: "A component exits at startup if it cannot parse the value of a flag (such as a duration without a unit), or does \
              not accept the value. The first new Machine then never becomes ready, and the rollout stops.",
        scope: Scope::Object,
        overridable: true,
        topology: InTopology::Strands,
        source: "spf13/pflag and Go's flag, strconv and time; the validation of options in kube-apiserver, component-base, the kubelet \
                 and etcd",
        check: Check::ControlPlaneSpec(value_refused),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "component-flags-conflict",
        summary: "the flags of a component must not conflict with each other or kubeadm's flags",
        why: "kubeadm passes flags of its own to the components. Some flags cannot be combined: a component that gets two such \
              flags exits at startup.",
        scope: Scope::Object,
        overridable: true,
        topology: InTopology::Strands,
        source: "kube-apiserver and etcd: validation of options; kubeadm, app/phases/controlplane/manifests.go",
        check: Check::ControlPlaneSpec(flags_conflict),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "kubelet-label-refused",
        summary: "a kubelet must set only the labels that Kubernetes allows",
        why: "The kubelet exits at startup if node-labels has a label in the domains kubernetes.io or k8s.io that Kubernetes \
              does not let a kubelet set. The Machine then never becomes a Node.",
        scope: Scope::Object,
        topology: InTopology::Strands,
        source: "kubernetes/kubernetes, pkg/kubelet/apis/well_known_labels.go; KEP-279",
        check: Check::ControlPlaneSpec(kubelet_label_refused),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
];

/// The flags of one component, and its version.
pub(super) struct Given<'c> {
    pub(super) component: Component,
    pub(super) version: Version,
    pub(super) flags: FlagList<'c>,
}

impl Given<'_> {
    /// Whether the kubelet may get settings that come neither from its flags nor from kubeadm.
    pub(super) fn has_kubelet_configuration(&self, spec: &ControlPlaneSpec<'_>) -> bool {
        self.flags.get("config-dir").is_some()
            || self.flags.get("config").is_some()
            || spec.kubeadm_config().is_some_and(KubeadmConfigSpec::has_patches)
    }

    /// The version whose feature gates apply: the one in `--emulated-version`, or else that of the component; `None` if it is not
    /// known.
    pub(super) fn gates_version(&self) -> Option<Version> {
        let is_emulated = self.flags.get("emulated-version").is_some();
        // Some defaults depend on the version of the other components.
        if self.flags.get("min-compatibility-version").is_some() {
            return None;
        }
        match self.component {
            Component::Kubelet | Component::Etcd => Some(self.version.clone()),
            _ if !is_emulated => Some(self.version.clone()),
            _ => parse_emulated(self.flags.value("emulated-version")),
        }
    }
}

/// The components whose version is known.
pub(super) fn given<'c>(spec: &ControlPlaneSpec<'c>) -> impl Iterator<Item = Given<'c>> {
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

/// The version of the components. If the object has no version, as a template, this is the newest version in the tables. `None`
/// if the version is not valid, which another rule reports.
pub(super) fn kubernetes_version(spec: &ControlPlaneSpec<'_>) -> Option<Version> {
    match spec.version_text() {
        Some(_) => spec.version().cloned(),
        None => Some(Version::new(1, components::minors(Component::ApiServer).1, 0)),
    }
}

/// Whether a name that a user wrote can be shown: it has at most two digits, so that it is no token.
fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    name.len() <= 64 && digits <= 2 && name.bytes().all(is_plain)
}

/// A name that a program does not know.
pub(super) struct Unknown<'n> {
    program: &'static str,
    major: u64,
    /// The oldest minor version that the tables cover.
    oldest: u64,
    consequence: &'static str,
    /// What the name is, such as `feature gate`.
    what: &'static str,
    name: &'n str,
    absence: Absence,
    /// What to write in its place.
    instead: Option<String>,
}

impl<'n> Unknown<'n> {
    pub(super) fn new(component: Component, what: &'static str, name: &'n str, absence: Absence) -> Self {
        Self {
            program: component.name(),
            major: component.major(),
            oldest: components::minors(component).0,
            consequence: "exit at startup",
            what,
            name,
            absence,
            instead: None,
        }
    }

    pub(super) fn or_write(self, instead: Option<String>) -> Self {
        Self { instead, ..self }
    }

    pub(super) fn to_kubeadm(what: &'static str, name: &'n str, absence: Absence) -> Self {
        Self {
            program: "kubeadm",
            consequence: "reject the configuration",
            ..Self::new(Component::ApiServer, what, name, absence)
        }
    }

    /// Whether the message may show the name: if some version knows it, or if it cannot be a secret.
    fn is_shown(&self) -> bool {
        self.absence != Absence::Always || is_plain_name(self.name)
    }

    /// Reports the name. `field` is the path of the field. If this path contains the name, `unnamed` is the path without it.
    pub(super) fn push(
        &self,
        field: Cow<'static, str>,
        unnamed: Option<Cow<'static, str>>,
        spec: &ControlPlaneSpec<'_>,
        faults: &mut Faults,
    ) {
        let action = match self.absence {
            Absence::Always => Action::Deny,
            Absence::RemovedIn(_) | Absence::AddedIn(_) => Action::of_version(spec),
        };
        self.push_at_most(action, field, unnamed, faults);
    }

    /// Warns of the name.
    fn warn(&self, field: Cow<'static, str>, unnamed: Option<Cow<'static, str>>, faults: &mut Faults) {
        self.push_at_most(Action::Warn, field, unnamed, faults);
    }

    fn push_at_most(
        &self,
        action: Action,
        field: Cow<'static, str>,
        unnamed: Option<Cow<'static, str>>,
        faults: &mut Faults,
    ) {
        let Self {
            program,
            major,
            oldest,
            consequence,
            what,
            name,
            absence,
            ref instead,
        } = *self;
        let (detail, remedy) = match absence {
            Absence::RemovedIn(minor) => (
                format!(
                    "{program} {major}.{minor} and later do not know the {what} {name}, and {consequence}"
                ),
                format!("remove {name}"),
            ),
            Absence::AddedIn(minor) => (
                format!(
                    "versions of {program} before {major}.{minor} do not know the {what} {name}, and {consequence}"
                ),
                format!("remove {name}, or use version {major}.{minor} or later"),
            ),
            Absence::Always if name.is_empty() => (
                format!(
                    "the list in the flag's value has an empty item, which is not a valid {what}, so {program} exits at startup"
                ),
                "remove the extra comma".to_owned(),
            ),
            Absence::Always if self.is_shown() => (
                format!(
                    "{program} {major}.{oldest} and later do not know the {what} {name}, and {consequence}"
                ),
                format!("correct {name}, or remove it"),
            ),
            Absence::Always => (
                format!("{program} {major}.{oldest} and later do not know this {what}, and {consequence}"),
                "correct the name, or remove it".to_owned(),
            ),
        };
        let remedy = instead
            .as_ref()
            .map_or(remedy, |instead| format!("write {instead}"));
        let unnamed = unnamed.filter(|_| !self.is_shown());
        let fault = Fault {
            field: unnamed.unwrap_or_else(|| field.clone()),
            // The value of an unknown flag is not at fault.
            reason: if what == "flag" {
                CauseReason::Forbidden
            } else {
                CauseReason::NotSupported
            },
            value: Some(HIDDEN.to_owned()),
            detail: detail.into(),
            remedy: remedy.into(),
        };
        faults.push_unnamed(action, name, field, fault);
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

/// Whether the version of Kubernetes is older than each one in the tables.
fn is_older(spec: &ControlPlaneSpec<'_>, component: Component) -> bool {
    let oldest = components::minors(Component::ApiServer).0;
    component != Component::Etcd && spec.minor().is_some_and(|minor| minor < oldest)
}

/// Whether no version of the tables knows a flag of Kubernetes.
fn is_never_known(component: Component, flag: &str) -> bool {
    let oldest = Version::new(1, components::minors(component).0, 0);
    components::flag(component, flag, &oldest) == Answer::Unknown(Absence::Always)
}

/// Whether the newest version in the tables knows a flag.
fn is_known(component: Component, flag: &str) -> bool {
    let newest = Version::new(component.major(), components::minors(component).1, 0);
    matches!(components::flag(component, flag, &newest), Answer::Known(_))
}

fn flag_unknown(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    // The schema requires a name.
    for (component, flag, answer) in answers(spec).filter(|(_, flag, _)| !flag.name.is_empty()) {
        let absence = match answer {
            Answer::Unknown(absence) => absence,
            // A version before the oldest one in the tables may have removed the flag. The version of the object may be older
            // still and know the flag, so the rule only warns.
            Answer::NotCovered if is_older(spec, component) && is_never_known(component, flag.name) => {
                Absence::Always
            }
            Answer::Known(_) | Answer::NotCovered => continue,
        };
        // Kubernetes accepts underscores as dashes.
        let name = if component == Component::Etcd {
            format!("--{}", flag.name)
        } else {
            format!("--{}", flag.name.replace('_', "-"))
        };
        let bare = flag.name.trim_start_matches('-');
        let is_flag = bare != flag.name && is_known(component, bare);
        let instead = is_flag.then(|| format!("{bare}, because Cluster API adds the dashes"));
        let unknown = Unknown::new(component, "flag", &name, absence).or_write(instead);
        let unnamed = Some(flag.path_without_name(spec));
        if is_older(spec, component) {
            unknown.warn(flag.path(spec), unnamed, faults);
        } else {
            unknown.push(flag.path(spec), unnamed, spec, faults);
        }
    }
}

fn flag_deprecated(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    // The kubelet calls most of its flags deprecated, and keeps them.
    for (component, flag, answer) in answers(spec).filter(|(component, ..)| *component != Component::Kubelet)
    {
        let Answer::Known(Flag {
            deprecated: Some(text),
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
                text.trim_end_matches('.')
            )
            .into(),
            remedy: "remove the flag before you upgrade to a version that does not know it".into(),
        });
    }
}

fn value_refused(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    for Given {
        component,
        version,
        flags,
    } in given(spec)
    {
        // A template has no version, so the checks that only some versions make do not apply.
        let minor = spec.version_text().map(|_| version.minor);
        for flag in flags.iter().filter(|flag| !has_placeholder(flag.value)) {
            let Answer::Known(known) = components::flag(component, flag.name, &version) else {
                continue;
            };
            let required = required_value(component, &flag, known.kind)
                .or_else(|| required_by_check(component, minor, &flags, &flag));
            let Some(required) = required else {
                continue;
            };
            let program = component.name();
            let name = flag.name;
            let fault = Fault {
                field: flag.path(spec),
                reason: CauseReason::Invalid,
                value: Some(HIDDEN.to_owned()),
                detail: format!("{program} exits at startup unless --{name} is {required}").into(),
                remedy: format!("correct --{name}, or remove it").into(),
            };
            faults.push_redacted(flag.value, fault);
        }
    }
    taint_refused(spec, faults);
}

/// Reports taints with an effect that the kubelet does not know. kubeadm passes these taints to the kubelet as a flag.
fn taint_refused(spec: &ControlPlaneSpec<'_>, faults: &mut Faults) {
    let config = spec.kubeadm_config();
    let init = config.and_then(|config| config.init_configuration.as_ref()?.node_registration.as_ref());
    let join = config.and_then(|config| config.join_configuration.as_ref()?.node_registration.as_ref());
    for (name, node) in [("init", init), ("join", join)] {
        let taints = node.and_then(|node| node.taints.as_deref()).unwrap_or_default();
        let effects = taints
            .iter()
            .map(|taint| taint.effect.as_deref().unwrap_or_default());
        for (index, effect) in effects
            .enumerate()
            .filter(|(_, effect)| !TAINT_EFFECTS.contains(effect) && !has_placeholder(effect))
        {
            let fault = Fault {
                field: spec.kubeadm_path(format_args!(
                    "{name}Configuration.nodeRegistration.taints[{index}].effect"
                )),
                reason: CauseReason::NotSupported,
                value: Some(HIDDEN.to_owned()),
                detail: "kubeadm passes the taint to the kubelet, which does not know this effect and exits at startup".into(),
                remedy: format!("set one of {}", TAINT_EFFECTS.join(", ")).into(),
            };
            faults.push_redacted(effect, fault);
        }
    }
}

/// Reports flags that the component refuses together.
fn flags_conflict(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    for given in given(spec) {
        let is_configured = given.has_kubelet_configuration(spec);
        let Given {
            component,
            version,
            flags,
        } = given;
        let conflicts = match component {
            Component::ApiServer => api_server_conflicts(&flags, version.minor),
            Component::Etcd => etcd_conflicts(&flags, &version, kubernetes_version(spec).as_ref()),
            Component::Kubelet if is_configured => Vec::new(),
            Component::ControllerManager => [manager_conflicts(&flags), signer_conflicts(&flags)].concat(),
            Component::Scheduler => manager_conflicts(&flags),
            Component::Kubelet => kubelet_conflicts(&flags),
        };
        for (flag, cause, needed) in conflicts {
            let remedy = format!("remove --{}", flag.name);
            let fault = Fault {
                field: flag.path(spec),
                reason: CauseReason::Forbidden,
                value: Some(HIDDEN.to_owned()),
                detail: format!("{cause}, so {} exits at startup", component.name()).into(),
                remedy: needed
                    .map_or(remedy.clone(), |needed| format!("set {needed}, or {remedy}"))
                    .into(),
            };
            faults.push_at_most(Action::of_version(spec), fault);
        }
    }
}

fn kubelet_label_refused(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    for flag in kubelets(spec).iter().filter_map(|flags| flags.get("node-labels")) {
        let keys = items(flag.value).map(|label| label.split('=').next().unwrap_or(label).trim());
        for key in keys.filter(|key| !has_placeholder(key)) {
            if !may_kubelet_set(key) {
                let label = if is_plain_name(key) {
                    format!("the label {key}")
                } else {
                    "one of the labels".to_owned()
                };
                let fault = Fault {
                    field: flag.path(spec),
                    reason: CauseReason::Forbidden,
                    value: Some(HIDDEN.to_owned()),
                    detail: format!("Kubernetes does not let a kubelet set {label}, so the kubelet exits at startup").into(),
                    remedy: "remove the label here. If its domain is node-role.kubernetes.io or node-restriction.kubernetes.io, \
                             set it in spec.machineTemplate.metadata.labels, or for workers in \
                             spec.template.metadata.labels of the MachineDeployment: Cluster API copies it to the Node. Set any other \
                             label with kubectl label node".into(),
                };
                faults.push_redacted(key, fault);
            }
        }
    }
}
