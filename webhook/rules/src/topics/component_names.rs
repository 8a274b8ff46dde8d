//! Feature gates, admission plugins and API versions with which a component of the given version does not start.

use crate::{
    action::Action,
    api::ControlPlaneSpec,
    cel::{Cel, NoCel},
    change::Change,
    components::{self, Absence, Answer, Component, Gate},
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, InTopology, Rule, Scope},
    topics::{
        Topic,
        component_flags::{DERIVED, Given, Unknown, given, kubernetes_version},
        extra_args::{FlagValue, comma_separated, has_placeholder, items, parse_bool},
    },
};

pub(super) const TOPIC: Topic = Topic {
    name: "component-names",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "feature-gate-unknown",
        summary: "each component must know the feature gates that it gets",
        why: "A component exits at startup if it does not know a feature gate. The first new Machine then never becomes ready, and \
              the rollout stops.",
        scope: Scope::Object,
        overridable: true,
        topology: InTopology::Strands,
        source: DERIVED,
        check: Check::ControlPlaneSpec(gate_unknown),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "feature-gate-value-refused",
        summary: "each feature gate must have a value that the component accepts",
        why: "Before Kubernetes removes a feature gate, it locks the gate to its default. A component exits at startup in three \
              cases: a locked gate has the other value, a value is not a boolean, or a gate is on but a gate that it needs is off.",
        scope: Scope::Object,
        overridable: true,
        topology: InTopology::Strands,
        source: DERIVED,
        check: Check::ControlPlaneSpec(gate_value_refused),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "kubeadm-feature-gate-unknown",
        summary: "kubeadm must know the feature gates that it gets",
        why: "kubeadm rejects a configuration with a feature gate that it does not know. The first new Machine then never joins the \
              cluster, and the rollout stops.",
        scope: Scope::Object,
        overridable: true,
        topology: InTopology::Strands,
        source: DERIVED,
        check: Check::ControlPlaneSpec(kubeadm_gate_unknown),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "admission-plugin-unknown",
        summary: "kube-apiserver must know the admission plugins that it gets",
        why: "kube-apiserver exits at startup if a flag enables or disables an admission plugin that it does not know. The first new \
              Machine then never becomes ready, and the rollout stops.",
        scope: Scope::Object,
        overridable: true,
        topology: InTopology::Strands,
        source: DERIVED,
        check: Check::ControlPlaneSpec(admission_plugin_unknown),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "runtime-config-unknown",
        summary: "kube-apiserver must know the API versions in its runtime-config",
        why: "kube-apiserver exits at startup if runtime-config names an API group or version that it does not know. The first new \
              Machine then never becomes ready, and the rollout stops.",
        scope: Scope::Object,
        overridable: true,
        topology: InTopology::Strands,
        source: DERIVED,
        check: Check::ControlPlaneSpec(runtime_config_unknown),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
];

/// The prefix of Kubernetes' own feature gates.
const KUBE: &str = "kube:";

/// From 1.31 on, a component accepts its feature gates with the prefix [`KUBE`]. The kubelet and etcd do not.
const fn takes_prefix(component: Component, minor: u64) -> bool {
    !matches!(component, Component::Kubelet | Component::Etcd) && minor >= 31
}

/// The feature gates of a flag: names and values.
fn gates<'c>(
    component: Component,
    minor: u64,
    flag: &FlagValue<'c>,
) -> impl Iterator<Item = (&'c str, &'c str)> {
    items(flag.value)
        .filter(|item| !has_placeholder(item))
        .map(move |item| {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            let name = name.trim();
            let own = name.strip_prefix(KUBE).filter(|_| takes_prefix(component, minor));
            (own.unwrap_or(name), value.trim())
        })
}

/// The version of each component, and the flag with its feature gates.
fn gate_flags<'c>(spec: &ControlPlaneSpec<'c>) -> impl Iterator<Item = (Given<'c>, FlagValue<'c>)> {
    given(spec).filter_map(|given| {
        let flag = given.flags.get("feature-gates")?;
        Some((given, flag))
    })
}

/// Whether a component knows a feature gate. An emulated version has defaults and locks of its own, and refuses newer gates.
fn answer(given: &Given<'_>, name: &str) -> Answer<Gate> {
    let answer = components::gate(given.component, name, &given.version);
    let Answer::Known(gate) = answer else {
        return answer;
    };
    let unlocked = Answer::Known(Gate {
        locked_since: None,
        ..gate
    });
    let Some(emulated) = given.gates_version() else {
        return unlocked;
    };
    match components::gate(given.component, name, &emulated) {
        Answer::NotCovered | Answer::Unknown(Absence::RemovedIn(_) | Absence::Always) => unlocked,
        emulated => emulated,
    }
}

/// Calls `report` for each feature gate of each component.
fn for_each_gate<'c>(
    spec: &ControlPlaneSpec<'c>,
    mut report: impl FnMut(Component, &FlagValue<'c>, (&'c str, &'c str), Answer<Gate>),
) {
    for (given, flag) in gate_flags(spec) {
        for (name, value) in gates(given.component, given.version.minor, &flag) {
            report(given.component, &flag, (name, value), answer(&given, name));
        }
    }
}

fn gate_unknown(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    for (given, flag) in gate_flags(spec) {
        for (name, _) in gates(given.component, given.version.minor, &flag) {
            let Answer::Unknown(absence) = answer(&given, name) else {
                continue;
            };
            let real = components::gate(given.component, name, &given.version);
            let instead = matches!(real, Answer::Known(_))
                .then(|| format!("a later version in --emulated-version, or remove {name}"));
            let unknown = Unknown::new(given.component, "feature gate", name, absence).or_write(instead);
            unknown.push(flag.path(spec), None, spec, faults);
        }
    }
    for (
        Given {
            component, version, ..
        },
        flag,
    ) in gate_flags(spec)
    {
        let mut names = items(flag.value);
        if takes_prefix(component, version.minor)
            && names.clone().any(|name| name.starts_with(KUBE))
            && !names.all(|name| name.starts_with(KUBE))
        {
            let program = component.name();
            let fault = Fault {
                field: flag.path(spec),
                reason: CauseReason::Invalid,
                value: Some(HIDDEN.to_owned()),
                detail: format!("some feature gates have the prefix {KUBE} and others have none, so {program} exits at startup").into(),
                remedy: format!("write all feature gates with {KUBE}, or all without it").into(),
            };
            faults.push_at_most(Action::of_version(spec), fault);
        }
    }
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
            Some(value)
                if value != gate.default
                    && let Some(minor) = gate.locked_since =>
            {
                (
                    format!(
                        "{program} {}.{minor} and later lock the feature gate {name} to {}, and exit at startup if they get another value",
                        component.major(),
                        gate.default
                    ),
                    format!("remove {name}"),
                )
            }
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
    for (given, flag) in gate_flags(spec) {
        for (gate, off) in unmet_gates(&given, &flag, spec) {
            let program = given.component.name();
            let off = off.join(" and ");
            let fault = Fault {
                field: flag.path(spec),
                reason: CauseReason::NotSupported,
                value: Some(HIDDEN.to_owned()),
                detail: format!("the feature gate {gate} is on and needs {off} to be on too, so {program} exits at startup").into(),
                remedy: format!("set {off} to true, or {gate} to false").into(),
            };
            faults.push_at_most(Action::of_version(spec), fault);
        }
    }
}

/// The feature gates that are on although gates that they need are off. A component checks this only if it accepts each gate of
/// the flag by itself.
fn unmet_gates(
    given: &Given<'_>,
    flag: &FlagValue<'_>,
    spec: &ControlPlaneSpec<'_>,
) -> Vec<(&'static str, Vec<&'static str>)> {
    let is_configured = given.component == Component::Kubelet && given.has_kubelet_configuration(spec);
    let accepted = gates(given.component, given.version.minor, flag).map(|(name, value)| {
        let value = parse_bool(value)?;
        let Answer::Known(gate) = answer(given, name) else {
            return None;
        };
        (gate.default == value || gate.locked_since.is_none()).then_some((name, value))
    });
    let accepted: Option<Vec<_>> = accepted.collect();
    match (accepted, given.gates_version()) {
        (Some(accepted), Some(version)) if !is_configured && !has_placeholder(flag.value) => {
            components::unmet_gates(given.component, [&given.version, &version], &accepted)
        }
        _ => Vec::new(),
    }
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
            let unknown = Unknown::to_kubeadm("feature gate", name, absence);
            let field = spec.kubeadm_path(format_args!("clusterConfiguration.featureGates[{name}]"));
            let unnamed = spec.kubeadm_path("clusterConfiguration.featureGates");
            unknown.push(field, Some(unnamed), spec, faults);
        }
    }
}

fn api_server<'c>(spec: &ControlPlaneSpec<'c>) -> Option<Given<'c>> {
    given(spec).find(|given| given.component == Component::ApiServer)
}

fn admission_plugin_unknown(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let Some(Given { version, flags, .. }) = api_server(spec) else {
        return;
    };
    let names = ["enable-admission-plugins", "disable-admission-plugins"];
    for flag in names.iter().filter_map(|name| flags.get(name)) {
        for plugin in comma_separated(flag.value) {
            if let Answer::Unknown(absence) = components::admission_plugin(plugin, &version) {
                let unknown = Unknown::new(Component::ApiServer, "admission plugin", plugin, absence);
                unknown.push(flag.path(spec), None, spec, faults);
            }
        }
    }
}

fn runtime_config_unknown(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let Some(Given { version, flags, .. }) = api_server(spec) else {
        return;
    };
    let Some(flag) = flags.get("runtime-config") else {
        return;
    };
    for item in items(flag.value).filter(|item| !has_placeholder(item)) {
        let key = item.split('=').next().unwrap_or(item).trim();
        if let Answer::Unknown(absence) = components::runtime_config(key, &version) {
            let value = item.split_once('=').map_or("true", |(_, value)| value.trim());
            let versions = components::api_versions(key, &version);
            let instead = versions
                .iter()
                .map(|known| format!("{known}={value}"))
                .collect::<Vec<_>>();
            let instead = (!instead.is_empty() && parse_bool(value).is_some()).then(|| instead.join(","));
            let unknown = Unknown::new(Component::ApiServer, "API version", key, absence).or_write(instead);
            unknown.push(flag.path(spec), None, spec, faults);
        }
    }
}
