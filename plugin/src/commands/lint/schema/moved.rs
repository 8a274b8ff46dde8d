//! The fields that have another path or another type in v1beta2 than in v1beta1.

use kcp_rules::syntax::parse_go_duration;

use super::structural::{Schema, Type};
use crate::commands::lint::document::{LocatedValue, YamlNode};

/// A field of an object that another version of the kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    /// The path of the field in the object.
    pub(super) path: String,
    /// The path in the version of the object; `None` if it has no such field.
    pub(super) target: Option<String>,
    pub(super) message: String,
}

/// A field in both versions. A path is the end of the actual path, because several kinds have the same field.
struct Move {
    v1beta1: &'static str,
    /// Empty if v1beta2 has no such field.
    v1beta2: &'static str,
    difference: Difference,
}

/// How the values of the two versions differ.
#[derive(Clone, Copy)]
enum Difference {
    /// Not at all.
    None,
    /// v1beta1 has a duration such as `5m`, and v1beta2 has a number of seconds.
    Seconds,
    /// v1beta1 has a reference with `apiVersion`, and v1beta2 has one with `apiGroup`.
    Reference,
    /// v1beta1 has an `apiVersion`, and v1beta2 has only the group.
    Group,
    /// v1beta1 has a map of flags, and v1beta2 has a list of names and values.
    Flags,
    /// Objects with different fields. Contains what v1beta2 has.
    Fields(&'static str),
    /// v1beta2 has no such field. Contains the reason.
    Removed(&'static str),
}

const fn moved(v1beta1: &'static str, v1beta2: &'static str, difference: Difference) -> Move {
    Move {
        v1beta1,
        v1beta2,
        difference,
    }
}

const fn removed(v1beta1: &'static str, reason: &'static str) -> Move {
    moved(v1beta1, "", Difference::Removed(reason))
}

const GENERATED: &str = "Cluster API sets it for kubeadm";
const FROM_CLUSTER: &str = "Cluster API takes it from the Cluster and the control plane";
const SAME_NAMESPACE: &str = "the other object must be in the same namespace";
const UNUSED: &str = "Cluster API does not use it";

/// The longer of two paths with the same end is first. The first rows are fields of v1alpha3, which no release has served since 1.5.
const MOVES: [Move; 56] = [
    moved(
        "infrastructureTemplate",
        "machineTemplate.infrastructureRef",
        Difference::None,
    ),
    moved(
        "infrastructureTemplate",
        "machineTemplate.spec.infrastructureRef",
        Difference::Reference,
    ),
    moved("upgradeAfter", "rolloutAfter", Difference::None),
    moved("upgradeAfter", "rollout.after", Difference::None),
    // KubeadmConfigSpec.
    moved("apiServer.extraArgs", "apiServer.extraArgs", Difference::Flags),
    moved(
        "controllerManager.extraArgs",
        "controllerManager.extraArgs",
        Difference::Flags,
    ),
    moved("scheduler.extraArgs", "scheduler.extraArgs", Difference::Flags),
    moved("local.extraArgs", "local.extraArgs", Difference::Flags),
    moved("kubeletExtraArgs", "kubeletExtraArgs", Difference::Flags),
    moved(
        "clusterConfiguration.apiServer.timeoutForControlPlane",
        "initConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
        Difference::Seconds,
    ),
    removed("clusterConfiguration.apiVersion", GENERATED),
    removed("clusterConfiguration.kind", GENERATED),
    removed("clusterConfiguration.clusterName", FROM_CLUSTER),
    removed("clusterConfiguration.kubernetesVersion", FROM_CLUSTER),
    removed("clusterConfiguration.networking", FROM_CLUSTER),
    removed("initConfiguration.apiVersion", GENERATED),
    removed("initConfiguration.kind", GENERATED),
    removed("joinConfiguration.apiVersion", GENERATED),
    removed("joinConfiguration.kind", GENERATED),
    moved("ttl", "ttlSeconds", Difference::Seconds),
    moved(
        "joinConfiguration.discovery.timeout",
        "joinConfiguration.timeouts.tlsBootstrapSeconds",
        Difference::Seconds,
    ),
    removed("useExperimentalRetryJoin", "kubeadm retries by itself"),
    // KubeadmControlPlane.
    moved("machineNamingStrategy", "machineNaming", Difference::None),
    moved(
        "machineTemplate.infrastructureRef",
        "machineTemplate.spec.infrastructureRef",
        Difference::Reference,
    ),
    moved(
        "machineTemplate.nodeDeletionTimeout",
        "machineTemplate.spec.deletion.nodeDeletionTimeoutSeconds",
        Difference::Seconds,
    ),
    moved(
        "machineTemplate.nodeDrainTimeout",
        "machineTemplate.spec.deletion.nodeDrainTimeoutSeconds",
        Difference::Seconds,
    ),
    moved(
        "machineTemplate.nodeVolumeDetachTimeout",
        "machineTemplate.spec.deletion.nodeVolumeDetachTimeoutSeconds",
        Difference::Seconds,
    ),
    moved(
        "machineTemplate.readinessGates",
        "machineTemplate.spec.readinessGates",
        Difference::None,
    ),
    moved(
        "machineTemplate.taints",
        "machineTemplate.spec.taints",
        Difference::None,
    ),
    moved(
        "remediationStrategy",
        "remediation",
        Difference::Fields("with retryPeriodSeconds and minHealthyPeriodSeconds in place of durations"),
    ),
    moved("rolloutAfter", "rollout.after", Difference::None),
    moved("rolloutBefore", "rollout.before", Difference::None),
    moved("rolloutStrategy", "rollout.strategy", Difference::None),
    // Cluster, MachineDeployment and MachineHealthCheck.
    moved("topology.class", "topology.classRef.name", Difference::None),
    moved(
        "topology.classNamespace",
        "topology.classRef.namespace",
        Difference::None,
    ),
    moved("Ref.apiVersion", "Ref.apiGroup", Difference::Group),
    removed("Ref.namespace", SAME_NAMESPACE),
    removed("Ref.fieldPath", UNUSED),
    removed("Ref.resourceVersion", UNUSED),
    removed("Ref.uid", UNUSED),
    removed("topology.rolloutAfter", UNUSED),
    removed("definitionFrom", UNUSED),
    moved(
        "nodeDeletionTimeout",
        "deletion.nodeDeletionTimeoutSeconds",
        Difference::Seconds,
    ),
    moved(
        "nodeDrainTimeout",
        "deletion.nodeDrainTimeoutSeconds",
        Difference::Seconds,
    ),
    moved(
        "nodeVolumeDetachTimeout",
        "deletion.nodeVolumeDetachTimeoutSeconds",
        Difference::Seconds,
    ),
    moved(
        "machineHealthCheck",
        "healthCheck",
        Difference::Fields("with checks and remediation"),
    ),
    moved(
        "strategy",
        "rollout.strategy",
        Difference::Fields(
            "except for deletePolicy (now deletion.order) and remediation, which are siblings of rollout",
        ),
    ),
    moved(
        "spec.minReadySeconds",
        "spec.template.spec.minReadySeconds",
        Difference::None,
    ),
    removed("progressDeadlineSeconds", UNUSED),
    removed("revisionHistoryLimit", UNUSED),
    moved(
        "maxUnhealthy",
        "remediation.triggerIf.unhealthyLessThanOrEqualTo",
        Difference::None,
    ),
    moved(
        "unhealthyRange",
        "remediation.triggerIf.unhealthyInRange",
        Difference::None,
    ),
    moved(
        "nodeStartupTimeout",
        "checks.nodeStartupTimeoutSeconds",
        Difference::Seconds,
    ),
    moved(
        "remediationTemplate",
        "remediation.templateRef",
        Difference::Fields("without namespace"),
    ),
    moved(
        "unhealthyMachineConditions",
        "checks.unhealthyMachineConditions",
        Difference::Fields("with timeoutSeconds in place of timeout"),
    ),
    moved(
        "unhealthyConditions",
        "checks.unhealthyNodeConditions",
        Difference::Fields("with timeoutSeconds in place of timeout"),
    ),
];

/// The version of an object, and the other one of v1beta1 and v1beta2.
pub(super) struct Versions {
    pub(super) own: &'static str,
    pub(super) other: &'static str,
    pub(super) own_schema: &'static Schema,
    pub(super) other_schema: &'static Schema,
}

impl Versions {
    /// `None` if Cluster API does not serve the kind in this `apiVersion`.
    pub(super) fn new(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.rsplit_once('/')?;
        let (own, other) = match version {
            "v1beta1" => ("v1beta1", "v1beta2"),
            _ => ("v1beta2", "v1beta1"),
        };
        Some(Self {
            own,
            other,
            own_schema: Schema::of_kind(api_version, kind)?,
            other_schema: Schema::of_kind(&format!("{group}/{other}"), kind)?,
        })
    }

    /// The fields of another version in an unknown field: the field itself, or fields inside it.
    pub(super) fn moved(&self, path: &str, value: &LocatedValue) -> Vec<Moved> {
        let mut found = Vec::new();
        search(path, value, &|path, value| self.row(path, value), &mut found);
        if found.is_empty() && self.other_schema.at(path).is_some() {
            let (own, other) = (self.own, self.other);
            found.push(Moved {
                path: path.to_owned(),
                target: None,
                message: format!(
                    "{own} has no such field, and the API server drops it, because only {other} has it; remove it, or \
                     write the object in {other}"
                ),
            });
        }
        found
    }

    /// The fields of an object in v1beta1 that decided before Cluster API 1.11, the first release with v1beta2. Since then, the
    /// conversion loses them, and the value of the Cluster or of the control plane decides.
    pub(super) fn lost(&self, object: &LocatedValue) -> Vec<Moved> {
        let mut found = Vec::new();
        if self.own == "v1beta1" {
            search(
                "",
                object,
                &|path, value| self.lost_field(path, value),
                &mut found,
            );
        }
        found
    }

    fn lost_field(&self, path: &str, value: &LocatedValue) -> Option<Moved> {
        let is_lost = |row: &Move| {
            matches!(row.difference, Difference::Removed(FROM_CLUSTER))
                && prefix(path, row.v1beta1).is_some()
                && self.own_schema.at(path).is_some()
        };
        (!value.is_null() && MOVES.iter().any(is_lost)).then(|| Moved {
            path: path.to_owned(),
            target: None,
            message: format!(
                "since release 1.11, Cluster API silently ignores this field: {FROM_CLUSTER}; set the value there, and remove this \
                 field"
            ),
        })
    }

    /// A field that has this type in the other version.
    pub(super) fn retyped(&self, path: &str, value: &LocatedValue) -> Option<Moved> {
        let given = match &value.node {
            YamlNode::Scalar(scalar) => Type::of(scalar),
            YamlNode::List(_) => Type::Array,
            YamlNode::Object(_) => Type::Object,
        };
        let is_of_other = self.other_schema.at(path)?.accepts(given);
        self.row(path, value).filter(|_| is_of_other)
    }

    fn row(&self, path: &str, value: &LocatedValue) -> Option<Moved> {
        MOVES.iter().find_map(|row| {
            let (old, new) = (row.v1beta1, row.v1beta2);
            let target = match row.difference {
                Difference::Removed(_) => {
                    prefix(path, old)?;
                    self.other_schema.at(path)?;
                    None
                }
                _ => Some([(old, new), (new, old)].into_iter().find_map(|(here, there)| {
                    let target = format!("{}{there}", prefix(path, here)?);
                    self.own_schema.at(&target).is_some().then_some(target)
                })?),
            };
            Some(Moved {
                message: self.message(path, target.as_deref(), row.difference, value),
                path: path.to_owned(),
                target,
            })
        })
    }

    fn message(
        &self,
        path: &str,
        target: Option<&str>,
        difference: Difference,
        value: &LocatedValue,
    ) -> String {
        let Self { own, other, .. } = self;
        let is_current = *own == "v1beta2";
        let form = match difference {
            Difference::Removed(reason) => {
                return format!(
                    "{own} has no such field, and the API server drops it, because only {other} has it: {reason}; \
                     remove it"
                );
            }
            Difference::Flags => {
                let (found, meant) = if is_current {
                    ("a map", "a list")
                } else {
                    ("a list", "a map")
                };
                let example = converted(difference, is_current, value);
                let example = example.map_or(String::new(), |flag| format!(", such as {flag}"));
                return format!(
                    "this is {found}, as in {other}: in {own}, flags are {meant}; write {meant}{example}"
                );
            }
            Difference::Seconds if is_current => ", as a number of seconds",
            Difference::Seconds => ", as a duration such as 5m",
            Difference::Reference if is_current => ", with apiGroup in place of apiVersion",
            Difference::Reference => ", with apiVersion in place of apiGroup",
            Difference::Group if is_current => ", the group without the version",
            Difference::Group => ", the group and the version",
            Difference::Fields(fields) if is_current => fields,
            Difference::Fields(_) | Difference::None => "",
        };
        let origin = match self.other_schema.at(path) {
            Some(_) => format!("this is a field of {other}"),
            None => "this is a field of another version".to_owned(),
        };
        let remedy = match converted(difference, is_current, value) {
            Some(value) => format!("write {value} there"),
            None => "move the value there".to_owned(),
        };
        let separator = if form.is_empty() || form.starts_with(',') {
            ""
        } else {
            ", "
        };
        format!(
            "{origin}, and the API server drops it: in {own}, it is {}{separator}{form}; {remedy}",
            target.unwrap_or_default()
        )
    }
}

/// The value as the version of the object has it; `None` if it is the same or unknown. Converts only the first of several flags.
fn converted(difference: Difference, is_current: bool, value: &LocatedValue) -> Option<String> {
    let json = value.to_json();
    match difference {
        Difference::Seconds if is_current => {
            let duration = parse_go_duration(json.as_str()?)?;
            (duration.subsec_nanos() == 0).then(|| duration.as_secs().to_string())
        }
        Difference::Seconds => json.as_u64().map(|seconds| format!("{seconds}s")),
        Difference::Group if is_current => Some(json.as_str()?.split_once('/')?.0.to_owned()),
        Difference::Flags if is_current => {
            let (name, value) = json.as_object()?.iter().next()?;
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some(format!("{{name: {name}, value: {value:?}}}"))
        }
        Difference::Flags => {
            let text = |field| json.get(0)?.get(field)?.as_str();
            Some(format!("{}: {:?}", text("name")?, text("value")?))
        }
        _ => None,
    }
}

/// Collects what `find` returns for the value at the path, or else for the fields inside it.
fn search(
    path: &str,
    value: &LocatedValue,
    find: &impl Fn(&str, &LocatedValue) -> Option<Moved>,
    found: &mut Vec<Moved>,
) {
    if let Some(moved) = find(path, value) {
        found.push(moved);
    } else if let YamlNode::Object(fields) = &value.node {
        let separator = if path.is_empty() { "" } else { "." };
        for (name, field) in fields {
            search(&format!("{path}{separator}{name}"), field, find, found);
        }
    }
}

/// What is before the end of a path; `None` if the path does not end with it.
fn prefix<'p>(path: &'p str, end: &str) -> Option<&'p str> {
    let before = path.strip_suffix(end)?;
    // `Ref.apiVersion` is the end of the name of any reference.
    (end.starts_with("Ref.") || before.is_empty() || before.ends_with('.')).then_some(before)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::{LocatedValue, Moved, Schema, Type, Versions};
    use crate::commands::lint::document;

    const KINDS: [(&str, &str); 7] = [
        ("cluster.x-k8s.io", "Cluster"),
        ("cluster.x-k8s.io", "MachineDeployment"),
        ("cluster.x-k8s.io", "MachineHealthCheck"),
        ("bootstrap.cluster.x-k8s.io", "KubeadmConfig"),
        ("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate"),
        ("controlplane.cluster.x-k8s.io", "KubeadmControlPlane"),
        ("controlplane.cluster.x-k8s.io", "KubeadmControlPlaneTemplate"),
    ];

    fn nothing() -> LocatedValue {
        document::parse(b"{}").remove(0).unwrap()
    }

    fn versions(own: &str, (group, kind): (&str, &str)) -> Versions {
        Versions::new(&format!("{group}/{own}"), kind).unwrap()
    }

    /// The type of each field, by path.
    fn fields(schema: &'static Schema, path: &str, found: &mut BTreeMap<String, Option<Type>>) {
        let schema = schema.resolved();
        let kind = if schema.additional_properties.is_some() {
            None
        } else {
            schema.kind
        };
        found.insert(path.to_owned(), kind);
        for (name, field) in &schema.properties {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            fields(field, &path, found);
        }
        if let Some(items) = &schema.items {
            fields(items, &format!("{path}[0]"), found);
        }
    }

    fn is_inside(path: &str, outer: &str) -> bool {
        path.strip_prefix(outer)
            .is_some_and(|rest| rest.starts_with(['.', '[']))
    }

    /// The outermost fields that only one version has, or that have another type there.
    fn differences(own: &Versions) -> Vec<String> {
        let (mut here, mut there) = (BTreeMap::new(), BTreeMap::new());
        fields(own.own_schema, "", &mut here);
        fields(own.other_schema, "", &mut there);
        let mut found: Vec<String> = Vec::new();
        for (path, kind) in there {
            let is_part = found.iter().any(|outer| is_inside(&path, outer));
            if !is_part && here.get(&path) != Some(&kind) {
                found.push(path);
            }
        }
        found
    }

    /// Fields that only v1beta2 has.
    const NEW: [&str; 12] = [
        "timeouts",
        "initConfiguration.timeouts.discoverySeconds",
        "initConfiguration.timeouts.etcdAPICallSeconds",
        "initConfiguration.timeouts.kubeletHealthCheckSeconds",
        "initConfiguration.timeouts.kubernetesAPICallSeconds",
        "initConfiguration.timeouts.tlsBootstrapSeconds",
        "controlPlaneComponentHealthCheckSeconds",
        "machineTemplate.spec",
        "rollout",
        "deletion",
        "remediation",
        "checks",
    ];

    #[test]
    fn every_field_of_v1beta1_has_a_row() {
        for kind in KINDS {
            let versions = versions("v1beta2", kind);
            let different = differences(&versions);
            assert!(!different.is_empty(), "{kind:?}");
            for path in different {
                assert!(versions.row(&path, &nothing()).is_some(), "{kind:?}: {path}");
            }
        }
    }

    /// A field of v1beta2 has a row, or contains a field with one, or is new.
    #[test]
    fn every_field_of_v1beta2_has_a_row() {
        for kind in KINDS {
            let versions = versions("v1beta1", kind);
            let mut all = BTreeMap::new();
            fields(versions.other_schema, "", &mut all);
            for path in differences(&versions) {
                let is_known = all
                    .keys()
                    .filter(|inner| **inner == path || is_inside(inner, &path))
                    .any(|inner| versions.row(inner, &nothing()).is_some());
                let is_new = NEW.iter().any(|new| path.ends_with(new));
                assert!(is_known || is_new, "{kind:?}: {path}");
            }
        }
    }

    fn moved(own: &str, path: &str, value: &serde_json::Value) -> Vec<Moved> {
        let value = document::parse(value.to_string().as_bytes()).remove(0).unwrap();
        versions(own, KINDS[5]).moved(path, &value)
    }

    #[test]
    fn says_where_a_field_is() {
        for (own, path, value, expected) in [
            (
                "v1beta2",
                "spec.machineTemplate.infrastructureRef",
                json!({"kind": "K"}),
                vec![(
                    "spec.machineTemplate.infrastructureRef",
                    Some("spec.machineTemplate.spec.infrastructureRef"),
                    "this is a field of v1beta1, and the API server drops it: in v1beta2, it is \
                     spec.machineTemplate.spec.infrastructureRef, with apiGroup in place of apiVersion; move the value there",
                )],
            ),
            (
                "v1beta2",
                "spec.infrastructureTemplate",
                json!({"kind": "K"}),
                vec![(
                    "spec.infrastructureTemplate",
                    Some("spec.machineTemplate.spec.infrastructureRef"),
                    "this is a field of another version, and the API server drops it: in v1beta2, it is \
                     spec.machineTemplate.spec.infrastructureRef, with apiGroup in place of apiVersion; move the value there",
                )],
            ),
            (
                "v1beta2",
                "spec.kubeadmConfigSpec.useExperimentalRetryJoin",
                json!(true),
                vec![(
                    "spec.kubeadmConfigSpec.useExperimentalRetryJoin",
                    None,
                    "v1beta2 has no such field, and the API server drops it, because only v1beta1 has it: kubeadm retries by \
                     itself; remove it",
                )],
            ),
            (
                "v1beta1",
                "spec.rollout",
                json!({"strategy": {}, "after": "2030-01-01T00:00:00Z", "foo": 1}),
                vec![
                    (
                        "spec.rollout.after",
                        Some("spec.rolloutAfter"),
                        "this is a field of v1beta2, and the API server drops it: in v1beta1, it is spec.rolloutAfter; \
                         move the value there",
                    ),
                    (
                        "spec.rollout.strategy",
                        Some("spec.rolloutStrategy"),
                        "this is a field of v1beta2, and the API server drops it: in v1beta1, it is spec.rolloutStrategy; \
                         move the value there",
                    ),
                ],
            ),
            (
                "v1beta1",
                "spec.kubeadmConfigSpec.joinConfiguration.timeouts",
                json!({"discoverySeconds": 3}),
                vec![(
                    "spec.kubeadmConfigSpec.joinConfiguration.timeouts",
                    None,
                    "v1beta1 has no such field, and the API server drops it, because only v1beta2 has it; remove it, or write \
                     the object in v1beta2",
                )],
            ),
            (
                "v1beta2",
                "spec.machineTemplate.nodeDrainTimeout",
                json!("5m"),
                vec![(
                    "spec.machineTemplate.nodeDrainTimeout",
                    Some("spec.machineTemplate.spec.deletion.nodeDrainTimeoutSeconds"),
                    "this is a field of v1beta1, and the API server drops it: in v1beta2, it is \
                     spec.machineTemplate.spec.deletion.nodeDrainTimeoutSeconds, as a number of seconds; write 300 there",
                )],
            ),
            ("v1beta1", "spec.foo", json!({"bar": 1}), vec![]),
        ] {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(path, target, message): (&str, Option<&str>, &str)| Moved {
                    path: path.to_owned(),
                    target: target.map(str::to_owned),
                    message: message.to_owned(),
                })
                .collect();
            assert_eq!(moved(own, path, &value), expected, "{own} {path}");
        }
    }

    #[test]
    fn says_which_type_a_flag_has() {
        const PATH: &str = "spec.kubeadmConfigSpec.clusterConfiguration.scheduler.extraArgs";
        for (own, value, expected) in [
            (
                "v1beta2",
                json!({"v": "1"}),
                Some(
                    "this is a map, as in v1beta1: in v1beta2, flags are a list; write a list, such as {name: v, value: \"1\"}",
                ),
            ),
            (
                "v1beta1",
                json!([{"name": "v", "value": "1"}]),
                Some(
                    "this is a list, as in v1beta2: in v1beta1, flags are a map; write a map, such as v: \"1\"",
                ),
            ),
            ("v1beta2", json!("v=1"), None),
        ] {
            let value = document::parse(value.to_string().as_bytes()).remove(0).unwrap();
            let found = versions(own, KINDS[5]).retyped(PATH, &value);
            assert_eq!(found.map(|moved| moved.message).as_deref(), expected, "{own}");
        }
    }
}
