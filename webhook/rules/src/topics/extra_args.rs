//! Command-line flags of the components. No message shows their values, because they may be secret.

use std::{borrow::Cow, collections::HashSet};

use crate::{
    api::{ControlPlaneSpec, kubeadm_config::ExtraArgs},
    cel::{Cel, NoCel},
    change::Change,
    components::Component,
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "extra-args",
    rules: RULES,
};

const RULES: &[Rule] = &[Rule {
    id: "extra-args-duplicate",
    summary: "each flag of a component must be set only once",
    why: "Cluster API passes each flag to a component once. If a flag is set twice, it is undefined which \
          value the component gets.",
    scope: Scope::Object,
    source: "CRD of KubeadmControlPlane v1beta2: extraArgs name must be unique",
    check: Check::ControlPlaneSpec(duplicate),
    cel: Cel::None(NoCel::SchemaFirst),
    ..Rule::USUAL
}];

/// The `extraArgs` of a component, and where they are.
#[derive(Clone, Copy, Debug)]
pub struct FlagList<'c> {
    /// The path of the list below `kubeadmConfigSpec`.
    pub path: &'static str,
    args: Option<&'c ExtraArgs<'c>>,
}

/// A flag in a [`FlagList`], and where it is.
#[derive(Clone, Copy, Debug)]
pub struct FlagValue<'c> {
    /// The value of the flag, which may be secret.
    pub value: &'c str,
    /// The name of the flag as written in the manifest, where it may contain underscores.
    pub name: &'c str,
    list: &'static str,
    /// The index of the flag in the list; `None` in v1beta1, where flags are a map.
    index: Option<usize>,
}

impl<'c> FlagList<'c> {
    /// The flag with this name; `None` if it is not set. As in the components, underscores count as dashes,
    /// and the last of repeated flags takes effect.
    pub fn get(&self, name: &str) -> Option<FlagValue<'c>> {
        self.iter().filter(|flag| flag.is(name)).last()
    }

    /// All flags that have a value, in order. The schema rejects a flag without one, and the API server drops a null.
    pub fn iter(&self) -> impl Iterator<Item = FlagValue<'c>> + use<'c> {
        let (list, args) = (self.path, self.args);
        args.into_iter().flat_map(move |args| {
            args.flags.iter().enumerate().filter_map(move |(index, flag)| {
                Some(FlagValue {
                    value: flag.value.as_deref()?,
                    name: flag.name.as_deref().unwrap_or_default(),
                    list,
                    index: (!args.is_map).then_some(index),
                })
            })
        })
    }

    /// The names and values of all flags, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&'c str, &'c str)> {
        self.iter().map(|flag| (flag.name, flag.value))
    }

    /// The value of the boolean flag with this name; `None` if it is not set, or not a boolean.
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.get(name)?.as_bool()
    }

    /// The value of the flag with this name; empty if the flag is not set.
    pub fn value(&self, name: &'static str) -> &'c str {
        self.get(name).map_or("", |flag| flag.value)
    }
}

/// Whether two flag names are equal if underscores count as dashes (`k8s.io/component-base`,
/// `cli/flag/flags.go`).
fn is_same_flag(one: &str, other: &str) -> bool {
    fn dashed(name: &str) -> impl Iterator<Item = u8> {
        name.bytes().map(|byte| if byte == b'_' { b'-' } else { byte })
    }
    one.len() == other.len() && dashed(one).eq(dashed(other))
}

impl FlagValue<'_> {
    /// Whether the flag has this name, with dashes or underscores.
    pub fn is(&self, name: &str) -> bool {
        is_same_flag(self.name, name)
    }

    /// The value of a boolean flag; `None` if it is not a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        parse_bool(self.value)
    }

    /// The path of the flag in the object, without the name that a user chose.
    pub fn path_without_name(&self, spec: &ControlPlaneSpec<'_>) -> Cow<'static, str> {
        match self.index {
            Some(index) => spec.kubeadm_path(format_args!("{}[{index}].name", self.list)),
            None => spec.kubeadm_path(self.list),
        }
    }

    /// The path of the flag's value in the object.
    pub fn path(&self, spec: &ControlPlaneSpec<'_>) -> Cow<'static, str> {
        let Self { list, name, .. } = self;
        match self.index {
            Some(index) => spec.kubeadm_path(format_args!("{list}[{index}].value")),
            None => spec.kubeadm_path(format_args!("{list}[{name}]")),
        }
    }
}

/// A boolean as Go parses it (`strconv.ParseBool`).
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Whether cloud-init or a command replaces a part of the value on the Machine, such as `{{ ds.meta_data.hostname }}`.
pub fn has_placeholder(value: &str) -> bool {
    ["{{", "${", "$("].iter().any(|start| value.contains(start))
}

/// The items of a list of a flag, such as `A,B`.
pub fn items(list: &str) -> impl Iterator<Item = &str> + Clone {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// The items of a list that pflag reads as CSV: with the spaces around them, and without quotes.
pub fn comma_separated(list: &str) -> Vec<&str> {
    let is_read = !list.is_empty() && !has_placeholder(list);
    list.split(',')
        .filter(|_| is_read)
        .map(|item| {
            let inner = item.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            inner.unwrap_or(item)
        })
        .collect()
}

/// The flags of the controller manager.
pub fn controller_manager<'c>(spec: &ControlPlaneSpec<'c>) -> FlagList<'c> {
    let cluster = spec.cluster_configuration();
    FlagList {
        path: "clusterConfiguration.controllerManager.extraArgs",
        args: cluster.and_then(|cluster| cluster.controller_manager.as_ref()?.extra_args.as_ref()),
    }
}

/// The flags of the first Machine's kubelet, and of the other Machines' kubelets.
pub fn kubelets<'c>(spec: &ControlPlaneSpec<'c>) -> [FlagList<'c>; 2] {
    let config = spec.kubeadm_config();
    let init = config.and_then(|config| config.init_configuration.as_ref()?.node_registration.as_ref());
    let join = config.and_then(|config| config.join_configuration.as_ref()?.node_registration.as_ref());
    [
        ("initConfiguration.nodeRegistration.kubeletExtraArgs", init),
        ("joinConfiguration.nodeRegistration.kubeletExtraArgs", join),
    ]
    .map(|(path, node)| FlagList {
        path,
        args: node.and_then(|node| node.kubelet_extra_args.as_ref()),
    })
}

/// The flags of each component. The kubelet has two lists of flags: one for the first Machine, and one for the other Machines.
pub fn component_flags<'c>(spec: &ControlPlaneSpec<'c>) -> [(Component, FlagList<'c>); 6] {
    let cluster = spec.cluster_configuration();
    let etcd = spec
        .kubeadm_config()
        .and_then(|config| config.etcd()?.local.as_ref());
    let [init, join] = kubelets(spec);
    let api_server = FlagList {
        path: "clusterConfiguration.apiServer.extraArgs",
        args: cluster.and_then(|cluster| cluster.api_server.as_ref()?.extra_args.as_ref()),
    };
    let scheduler = FlagList {
        path: "clusterConfiguration.scheduler.extraArgs",
        args: cluster.and_then(|cluster| cluster.scheduler.as_ref()?.extra_args.as_ref()),
    };
    let etcd = FlagList {
        path: "clusterConfiguration.etcd.local.extraArgs",
        args: etcd.and_then(|etcd| etcd.extra_args.as_ref()),
    };
    [
        (Component::ApiServer, api_server),
        (Component::ControllerManager, controller_manager(spec)),
        (Component::Scheduler, scheduler),
        (Component::Etcd, etcd),
        (Component::Kubelet, init),
        (Component::Kubelet, join),
    ]
}

fn duplicate(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (_, FlagList { path: list, args }) in component_flags(change.new) {
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
                        remedy: "keep only one entry for the flag".into(),
                    },
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_parsed_as_by_the_controller_manager() {
        let parsed = |value| {
            FlagValue {
                value,
                list: "",
                name: "",
                index: None,
            }
            .as_bool()
        };
        assert_eq!(
            (parsed("T"), parsed("0"), parsed("yes"), parsed("")),
            (Some(true), Some(false), None, None)
        );
    }
}
