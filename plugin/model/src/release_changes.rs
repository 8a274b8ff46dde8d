//! Finds what breaks with a Kubernetes upgrade: features that were removed between two versions, and pinned images that
//! are too old.
//!
//! The table of removed features is not complete. Each row has a source.

use kcp_rules::{syntax::parse_version, topics::images};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The first minor version of Kubernetes without the feature.
    pub minor: u64,
    pub what: RemovedItem,
    pub remedy: &'static str,
    pub source: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedItem {
    /// Kinds that Kubernetes no longer serves in an API version.
    Api {
        /// The removed API version, as `GROUP/VERSION`.
        version: &'static str,
        /// The names of the kinds, separated by commas.
        kinds: &'static str,
    },
    /// A command-line flag. If it is set, the component does not start.
    Flag {
        component: Component,
        /// The name of the flag, without leading dashes.
        name: &'static str,
    },
    /// A feature gate of the Kubernetes components. If it is set, a component does not start.
    FeatureGate(&'static str),
    /// A feature gate of kubeadm. kubeadm rejects a configuration that sets the gate.
    KubeadmFeatureGate(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    ApiServer,
    ControllerManager,
    Scheduler,
    Kubelet,
}

const API_GUIDE: &str = "https://kubernetes.io/docs/reference/using-api/deprecation-guide/";

const PULL_122082: &str = "https://github.com/kubernetes/kubernetes/pull/122082";
const PULL_130162: &str = "https://github.com/kubernetes/kubernetes/pull/130162";
const CHANGELOG_1_35: &str =
    "https://github.com/kubernetes/kubernetes/blob/master/CHANGELOG/CHANGELOG-1.35.md";
const PULL_135322: &str = "https://github.com/kubernetes/kubernetes/pull/135322";
const PULL_135335: &str = "https://github.com/kubernetes/kubernetes/pull/135335";
const PULL_136066: &str = "https://github.com/kubernetes/kubernetes/pull/136066";
const PULL_135773: &str = "https://github.com/kubernetes/kubernetes/pull/135773";

const REMOVALS: &[Removal] = &[
    api(25, "batch/v1beta1", "CronJob", "use batch/v1"),
    api(
        25,
        "discovery.k8s.io/v1beta1",
        "EndpointSlice",
        "use discovery.k8s.io/v1",
    ),
    api(25, "events.k8s.io/v1beta1", "Event", "use events.k8s.io/v1"),
    api(
        25,
        "autoscaling/v2beta1",
        "HorizontalPodAutoscaler",
        "use autoscaling/v2",
    ),
    api(25, "policy/v1beta1", "PodDisruptionBudget", "use policy/v1"),
    api(
        25,
        "policy/v1beta1",
        "PodSecurityPolicy",
        "use Pod Security Admission or another admission webhook",
    ),
    api(25, "node.k8s.io/v1beta1", "RuntimeClass", "use node.k8s.io/v1"),
    api(
        26,
        "flowcontrol.apiserver.k8s.io/v1beta1",
        "FlowSchema, PriorityLevelConfiguration",
        "use flowcontrol.apiserver.k8s.io/v1beta2",
    ),
    api(
        26,
        "autoscaling/v2beta2",
        "HorizontalPodAutoscaler",
        "use autoscaling/v2",
    ),
    api(
        27,
        "storage.k8s.io/v1beta1",
        "CSIStorageCapacity",
        "use storage.k8s.io/v1",
    ),
    api(
        29,
        "flowcontrol.apiserver.k8s.io/v1beta2",
        "FlowSchema, PriorityLevelConfiguration",
        "use flowcontrol.apiserver.k8s.io/v1",
    ),
    flag(31, Component::Kubelet, "keep-terminated-pod-volumes", PULL_122082),
    api(
        32,
        "flowcontrol.apiserver.k8s.io/v1beta3",
        "FlowSchema, PriorityLevelConfiguration",
        "use flowcontrol.apiserver.k8s.io/v1",
    ),
    flag(33, Component::ApiServer, "cloud-provider", PULL_130162),
    flag(33, Component::ApiServer, "cloud-config", PULL_130162),
    gate(33, "DisableCloudProviders", PULL_130162),
    gate(33, "DisableKubeletCloudCredentialProviders", PULL_130162),
    Removal {
        minor: 35,
        what: RemovedItem::Flag {
            component: Component::Kubelet,
            name: "pod-infra-container-image",
        },
        remedy: "remove the flag, and set the image in the container runtime's configuration",
        source: CHANGELOG_1_35,
    },
    gate(36, "CSIMigrationPortworx", PULL_135322),
    gate(36, "InTreePluginPortworxUnregister", PULL_135322),
    gate(36, "HonorPVReclaimPolicy", PULL_135335),
    gate(36, "WatchFromStorageWithoutResourceVersion", PULL_136066),
    Removal {
        minor: 36,
        what: RemovedItem::KubeadmFeatureGate("ControlPlaneKubeletLocalMode"),
        remedy: "remove the gate, because the feature is always enabled",
        source: PULL_135773,
    },
];

const fn flag(minor: u64, component: Component, name: &'static str, source: &'static str) -> Removal {
    Removal {
        minor,
        what: RemovedItem::Flag { component, name },
        remedy: "remove it",
        source,
    }
}

const fn gate(minor: u64, name: &'static str, source: &'static str) -> Removal {
    Removal {
        minor,
        what: RemovedItem::FeatureGate(name),
        remedy: "remove it",
        source,
    }
}

const fn api(minor: u64, version: &'static str, kinds: &'static str, remedy: &'static str) -> Removal {
    Removal {
        minor,
        what: RemovedItem::Api { version, kinds },
        remedy,
        source: API_GUIDE,
    }
}

/// Returns the features that were removed between two versions: all removed API versions, because it is unknown which
/// of them clients use, but only the flags and feature gates that the `kubeadmConfigSpec` sets.
pub fn removals(from: &str, to: &str, config: &Value) -> Vec<&'static Removal> {
    let (Ok(from), Ok(to)) = (parse_version(from), parse_version(to)) else {
        return Vec::new();
    };
    let is_gone = |removal: &&Removal| to.major > 1 || removal.minor <= to.minor;
    let concerns = |removal: &&Removal| match removal.what {
        RemovedItem::Api { .. } => from.major == 1 && removal.minor > from.minor,
        RemovedItem::Flag { component, name } => {
            component.arguments(config).any(|argument| argument.0 == name)
        }
        RemovedItem::FeatureGate(gate) => Component::ALL.into_iter().any(|component| {
            component
                .arguments(config)
                .any(|(name, value)| name == "feature-gates" && sets_gate(value, gate))
        }),
        RemovedItem::KubeadmFeatureGate(gate) => config
            .pointer("/clusterConfiguration/featureGates")
            .is_some_and(|gates| gates.get(gate).is_some()),
    };
    REMOVALS.iter().filter(is_gone).filter(concerns).collect()
}

/// Whether a list of feature gates such as `A=true,B=false` contains a gate.
fn sets_gate(value: &str, gate: &str) -> bool {
    let mut gates = value.split(',');
    gates.any(|given| given.split('=').next().is_some_and(|name| name.trim() == gate))
}

impl Component {
    const ALL: [Self; 4] = [
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubelet,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
        }
    }

    const fn pointers(self) -> &'static [&'static str] {
        match self {
            Self::ApiServer => &["/clusterConfiguration/apiServer/extraArgs"],
            Self::ControllerManager => &["/clusterConfiguration/controllerManager/extraArgs"],
            Self::Scheduler => &["/clusterConfiguration/scheduler/extraArgs"],
            Self::Kubelet => &[
                "/initConfiguration/nodeRegistration/kubeletExtraArgs",
                "/joinConfiguration/nodeRegistration/kubeletExtraArgs",
            ],
        }
    }

    /// The names and values of the component's arguments in a `kubeadmConfigSpec`: a map in v1beta1, a list in v1beta2.
    fn arguments(self, config: &Value) -> impl Iterator<Item = (&str, &str)> {
        let given = self
            .pointers()
            .iter()
            .filter_map(|pointer| config.pointer(pointer));
        given.flat_map(|arguments| {
            let mapped = arguments.as_object().into_iter().flatten();
            let mapped = mapped.map(|(name, value)| (name.as_str(), value.as_str()));
            let listed = arguments.as_array().into_iter().flatten();
            let listed = listed.filter_map(|argument| {
                let name = argument.get("name")?.as_str()?;
                Some((name, argument.get("value").and_then(Value::as_str)))
            });
            mapped
                .chain(listed)
                .map(|(name, value)| (name, value.unwrap_or_default()))
        })
    }
}

impl Removal {
    pub fn message(&self) -> String {
        let Self {
            minor, what, remedy, ..
        } = self;
        match what {
            RemovedItem::Api { version, kinds } => {
                format!("v1.{minor} no longer serves {kinds} in {version}: {remedy}")
            }
            RemovedItem::Flag { component, name } => format!(
                "v1.{minor} removed the flag --{name}, and {} does not start if the flag is set: {remedy}",
                component.name()
            ),
            RemovedItem::FeatureGate(gate) => {
                format!(
                    "v1.{minor} removed feature gate {gate}, and components do not start if it is set: \
                     {remedy}"
                )
            }
            RemovedItem::KubeadmFeatureGate(gate) => format!(
                "v1.{minor} removed feature gate {gate} of clusterConfiguration, and kubeadm rejects it: {remedy}"
            ),
        }
    }
}

/// kubeadm's default image tags in the first release of a minor version. Later patch releases have the same or newer tags.
#[derive(Clone, Copy, Debug)]
struct DefaultTags {
    minor: u64,
    core_dns: &'static str,
    etcd: &'static str,
}

/// The source is `CoreDNSVersion` and `DefaultEtcdVersion` in `cmd/kubeadm/app/constants/constants.go` of Kubernetes.
const DEFAULTS: &[DefaultTags] = &[
    defaults(31, "v1.11.1", "3.5.15-0"),
    defaults(32, "v1.11.3", "3.5.16-0"),
    defaults(33, "v1.12.0", "3.5.21-0"),
    defaults(34, "v1.12.1", "3.6.4-0"),
    defaults(35, "v1.13.1", "3.6.6-0"),
    defaults(36, "v1.14.2", "3.6.8-0"),
];

const fn defaults(minor: u64, core_dns: &'static str, etcd: &'static str) -> DefaultTags {
    DefaultTags {
        minor,
        core_dns,
        etcd,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutdatedTag {
    /// The name of the image: `CoreDNS` or `etcd`.
    pub image: &'static str,
    /// The path of the image's tag below `spec.kubeadmConfigSpec`.
    pub field: &'static str,
    pub tag: String,
    pub default: &'static str,
}

/// Returns the pinned image tags in a `kubeadmConfigSpec` that are older than kubeadm's defaults. Empty if the defaults
/// of `version` are unknown.
pub fn outdated_tags(config: &Value, version: &str) -> Vec<OutdatedTag> {
    let defaults = parse_version(version)
        .ok()
        .filter(|version| version.major == 1)
        .and_then(|version| DEFAULTS.iter().find(|defaults| defaults.minor == version.minor));
    let Some(defaults) = defaults else {
        return Vec::new();
    };
    let pinned = [
        ("CoreDNS", "clusterConfiguration.dns.imageTag", defaults.core_dns),
        ("etcd", "clusterConfiguration.etcd.local.imageTag", defaults.etcd),
    ];
    let outdated = pinned.into_iter().filter_map(|(image, field, default)| {
        let pointer = format!("/{}", field.replace('.', "/"));
        let tag = config.pointer(&pointer)?.as_str()?;
        let is_older = images::parse_tag_version(tag).ok()? < images::parse_tag_version(default).ok()?;
        is_older.then(|| OutdatedTag {
            image,
            field,
            tag: tag.to_owned(),
            default,
        })
    });
    outdated.collect()
}

impl OutdatedTag {
    pub fn message(&self, version: &str) -> String {
        let Self {
            image,
            field,
            tag,
            default,
        } = self;
        format!(
            "{field} pins {image} at {tag}, but kubeadm {version} installs {default} or newer by default: use a newer \
             tag, or remove the field"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DEFAULTS, REMOVALS, Removal, RemovedItem, outdated_tags, removals};

    fn messages(from: &str, to: &str, config: &Value) -> Vec<String> {
        removals(from, to, config)
            .into_iter()
            .map(Removal::message)
            .collect()
    }

    #[test]
    fn an_api_goes_with_the_minor_that_goes_over_it() {
        let flow_schemas = "v1.32 no longer serves FlowSchema, PriorityLevelConfiguration in \
                            flowcontrol.apiserver.k8s.io/v1beta3: use flowcontrol.apiserver.k8s.io/v1";
        for (from, to, expected) in [
            ("v1.31.9", "v1.32.0", vec![flow_schemas]),
            ("v1.31.9", "v1.32.0-rc.1", vec![flow_schemas]),
            ("v1.32.0", "v1.33.0", vec![]),
            ("v1.31.0", "v1.31.4", vec![]),
            ("nonsense", "v1.32.0", vec![]),
        ] {
            assert_eq!(messages(from, to, &json!({})), expected, "{from} to {to}");
        }
    }

    #[test]
    fn a_flag_or_gate_counts_where_it_is_given() {
        let cluster = |component: &str, arguments: Value| json!({"clusterConfiguration": {component: {"extraArgs": arguments}}});
        let kubelet = |side: &str, arguments: Value| json!({side: {"nodeRegistration": {"kubeletExtraArgs": arguments}}});
        let listed =
            |name: &str, value: &str| json!([{"name": "v", "value": "2"}, {"name": name, "value": value}]);
        let gates = "AllAlpha=false, HonorPVReclaimPolicy=true";
        let cloud = "v1.33 removed the flag --cloud-provider, and kube-apiserver does not start if the flag is set: \
             remove it";
        let gate = "v1.36 removed feature gate HonorPVReclaimPolicy, and components do not start if it is set: \
             remove it";
        let pause = "v1.35 removed the flag --pod-infra-container-image, and kubelet does not start if the \
            flag is set: remove the flag, and set the image in the container runtime's configuration";
        for (name, config, to, expected) in [
            (
                "list",
                cluster("apiServer", listed("cloud-provider", "external")),
                "v1.33.0",
                vec![cloud],
            ),
            (
                "map",
                cluster("apiServer", json!({"cloud-provider": "external"})),
                "v1.33.0",
                vec![cloud],
            ),
            (
                "long_gone",
                cluster("apiServer", json!({"cloud-provider": ""})),
                "v1.35.1",
                vec![cloud],
            ),
            (
                "not_yet",
                cluster("apiServer", listed("cloud-provider", "external")),
                "v1.32.9",
                vec![],
            ),
            (
                "another_component",
                cluster("controllerManager", listed("cloud-provider", "external")),
                "v1.33.0",
                vec![],
            ),
            (
                "gate",
                cluster("scheduler", listed("feature-gates", gates)),
                "v1.36.0",
                vec![gate],
            ),
            (
                "gate_map",
                cluster("scheduler", json!({"feature-gates": gates})),
                "v1.36.0",
                vec![gate],
            ),
            (
                "another_gate",
                cluster("scheduler", listed("feature-gates", "HonorPV=true")),
                "v1.36.0",
                vec![],
            ),
            (
                "init",
                kubelet("initConfiguration", listed("pod-infra-container-image", "p")),
                "v1.35.0",
                vec![pause],
            ),
            (
                "join",
                kubelet("joinConfiguration", listed("pod-infra-container-image", "p")),
                "v1.35.0",
                vec![pause],
            ),
            (
                "kubeadm_gate",
                json!({"clusterConfiguration": {"featureGates": {"ControlPlaneKubeletLocalMode": true}}}),
                "v1.36.0",
                vec![
                    "v1.36 removed feature gate ControlPlaneKubeletLocalMode of clusterConfiguration, and kubeadm \
                      rejects it: remove the gate, because the feature is always enabled",
                ],
            ),
        ] {
            assert_eq!(messages("v1.32.0", to, &config), expected, "{name}");
        }
    }

    #[test]
    fn the_table_is_in_order_and_has_sources() {
        assert!(REMOVALS.is_sorted_by_key(|removal| removal.minor));
        for removal in REMOVALS {
            assert!(removal.source.starts_with("https://"), "{removal:?}");
            let name = match removal.what {
                RemovedItem::Api { version, .. } => version,
                RemovedItem::Flag { name, .. }
                | RemovedItem::FeatureGate(name)
                | RemovedItem::KubeadmFeatureGate(name) => name,
            };
            assert!(
                !name.is_empty() && !name.starts_with('-') && !removal.remedy.is_empty(),
                "{removal:?}"
            );
        }
    }

    #[test]
    fn a_pinned_tag_that_is_older_is_told() {
        for (name, core_dns, etcd, version, expected) in [
            ("not_pinned", None, None, "v1.34.2", vec![]),
            (
                "both_older",
                Some("v1.11.3"),
                Some("3.5.21-0"),
                "v1.34.2",
                vec!["v1.11.3", "3.5.21-0"],
            ),
            ("as_brought", Some("v1.12.1"), Some("3.6.4-0"), "v1.34.2", vec![]),
            ("newer", Some("v1.13.0"), Some("3.6.10-0"), "v1.34.2", vec![]),
            ("without_v", Some("1.11.1"), None, "v1.34.2", vec!["1.11.1"]),
            (
                "built_by_others",
                Some("v1.11.3_vmware.7"),
                None,
                "v1.34.2",
                vec!["v1.11.3_vmware.7"],
            ),
            ("no_version", Some("latest"), Some(""), "v1.34.2", vec![]),
            ("unknown_minor", Some("v1.0.0"), Some("3.0.0"), "v1.99.0", vec![]),
        ] {
            let config = json!({"clusterConfiguration": {
                "dns": {"imageTag": core_dns}, "etcd": {"local": {"imageTag": etcd}}}});
            let tags: Vec<String> = outdated_tags(&config, version)
                .into_iter()
                .map(|found| found.tag)
                .collect();
            assert_eq!(tags, expected, "{name}");
        }
    }

    #[test]
    fn a_message_says_what_to_do() {
        let config = json!({"clusterConfiguration": {"etcd": {"local": {"imageTag": "3.5.21-0"}}}});
        let found = outdated_tags(&config, "v1.34.2");
        insta::assert_snapshot!(found[0].message("v1.34.2"), @"clusterConfiguration.etcd.local.imageTag pins etcd at 3.5.21-0, but kubeadm v1.34.2 installs 3.6.4-0 or newer by default: use a newer tag, or remove the field");
    }

    #[test]
    fn tags_never_go_back() {
        let version = |tag| kcp_rules::topics::images::parse_tag_version(tag).expect("a version");
        assert!(DEFAULTS.is_sorted_by_key(|defaults| defaults.minor));
        assert!(DEFAULTS.is_sorted_by_key(|defaults| version(defaults.core_dns)));
        assert!(DEFAULTS.is_sorted_by_key(|defaults| version(defaults.etcd)));
    }
}
