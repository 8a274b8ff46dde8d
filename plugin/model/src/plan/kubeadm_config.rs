//! Compares a Machine's `KubeadmConfig` with the spec of its control plane.
//!
//! The comparison follows `matchesKubeadmConfig` of Cluster API v1.14.2, on JSON documents instead of Go types: fields that
//! cannot change a Machine are removed from both documents before they are compared.

use kcp_api::KubeadmConfigSpec;
use serde_json::{Map, Value, json};

use crate::merge_patch::{self, differences};

/// The fields whose empty value differs from an absent one. For example, an empty `taints` disables kubeadm's default taint.
const MEANINGFUL_WHEN_EMPTY: &[&str] = &["taints"];
/// The fields with command-line arguments of components. In v1beta1 they are a map, in which an empty value is still an
/// argument.
const ARGUMENT_FIELDS: &[&str] = &["extraArgs", "kubeletExtraArgs"];
/// The fields that are not compared. Each of them has one of these reasons: Cluster API itself writes the field into a Machine's
/// configuration; the field applies to the whole workload cluster; only new Machines use the field; v1beta2 removed the field.
const IGNORED_FIELDS: &[&str] = &[
    "/clusterConfiguration/controlPlaneEndpoint",
    "/clusterConfiguration/dns",
    "/clusterConfiguration/apiServer/timeoutForControlPlane",
    "/clusterConfiguration/clusterName",
    "/clusterConfiguration/kubernetesVersion",
    "/clusterConfiguration/networking",
    "/initConfiguration/timeouts/controlPlaneComponentHealthCheckSeconds",
    "/joinConfiguration/timeouts/controlPlaneComponentHealthCheckSeconds",
    "/joinConfiguration/discovery",
    "/useExperimentalRetryJoin",
];
/// The default values that earlier versions of Cluster API wrote into absent fields.
const DEFAULTS: &[(&str, &str)] = &[
    ("/format", "cloud-config"),
    (
        "/initConfiguration/nodeRegistration/imagePullPolicy",
        "IfNotPresent",
    ),
    (
        "/joinConfiguration/nodeRegistration/imagePullPolicy",
        "IfNotPresent",
    ),
];
/// The fields of `initConfiguration` that `joinConfiguration` also has.
const JOIN_FIELDS_FROM_INIT: &[&str] = &["timeouts", "patches", "skipPhases", "nodeRegistration"];

/// The paths at which a Machine's configuration differs from `desired`. `None` if the two have different API versions, so
/// that they cannot be compared.
pub fn outdated_paths(
    machine: &KubeadmConfigSpec,
    desired: &KubeadmConfigSpec,
    version: &str,
) -> Option<Vec<String>> {
    if machine.version != desired.version {
        return None;
    }
    let is_first = is_first(&machine.fields);
    let as_joining = compare(
        as_joining_config(&machine.fields, &desired.fields, is_first),
        desired_when_joining(desired, version),
    );
    // The configuration of the first Machine may match `initConfiguration` instead.
    if as_joining.is_empty() || !is_first {
        return Some(as_joining);
    }
    Some(compare(
        machine.fields.clone(),
        desired_when_first(desired, version),
    ))
}

fn compare(machine: Value, desired: Value) -> Vec<String> {
    differences(&comparable(machine), &comparable(desired))
}

/// The document without the fields that cannot change a Machine.
fn comparable(mut document: Value) -> Value {
    for pointer in IGNORED_FIELDS {
        remove(&mut document, pointer);
    }
    for (pointer, default) in DEFAULTS {
        if document.pointer(pointer).and_then(Value::as_str) == Some(*default) {
            remove(&mut document, pointer);
        }
    }
    remove_empty_values(&mut document);
    document
}

/// How the `kubeadmConfigSpec` of a control plane becomes the one from which a Machine was created.
#[derive(Clone, Default, PartialEq)]
pub struct Reversal {
    /// The merge patch of `kubeadmConfigSpec`.
    pub patch: Value,
    /// The field that stays as it is, because no Machine shows its earlier value.
    pub unknown: Option<&'static str>,
}

/// How `desired` gets the values of `machine`, the configuration of a Machine, in all fields that can change a Machine. `first` is
/// the configuration of the Machine that initialized the cluster, if this is a different Machine with the same earlier spec. `None`
/// if `machine` and `desired` have different API versions.
pub fn reversal(
    machine: &KubeadmConfigSpec,
    first: Option<&KubeadmConfigSpec>,
    desired: &KubeadmConfigSpec,
    version: &str,
) -> Option<Reversal> {
    if machine.version != desired.version {
        return None;
    }
    let patch = |old, new| merge_patch::between(&comparable(old), &comparable(new));
    let when_first =
        |machine: &KubeadmConfigSpec| patch(desired_when_first(desired, version), machine.fields.clone());
    let when_joining = |is_first| {
        let machine = as_joining_config(&machine.fields, &desired.fields, is_first);
        patch(desired_when_joining(desired, version), machine)
    };
    // Cluster API empties `joinConfiguration` for the first Machine, and `initConfiguration` for all others.
    let (mut patch, other, unknown) = if is_first(&machine.fields) {
        let joins_alike = has_equal_init_and_join(desired, version).then(|| when_joining(true));
        (when_first(machine), joins_alike, "joinConfiguration")
    } else {
        (when_joining(false), first.map(when_first), "initConfiguration")
    };
    let is_known = other.is_some();
    if let (Value::Object(patch), Some(Value::Object(mut other))) = (&mut patch, other) {
        let field = other.remove(unknown);
        patch.extend(field.map(|field| (unknown.to_owned(), field)));
    }
    merge_patch::remove_emptied(&desired.fields, &mut patch);
    let is_unknown = !is_known && desired.fields.get(unknown).is_some_and(|field| !field.is_null());
    Some(Reversal {
        patch,
        unknown: is_unknown.then_some(unknown),
    })
}

/// Whether the first Machine and all others get the same configuration, as Cluster API recommends.
fn has_equal_init_and_join(desired: &KubeadmConfigSpec, version: &str) -> bool {
    let converted = as_joining_config(
        &Value::Object(with_feature_gates(&desired.fields, version)),
        &desired.fields,
        true,
    );
    compare(converted, desired_when_joining(desired, version)).is_empty()
}

/// Whether the Machine is the one that initialized the cluster (`isKubeadmConfigForInit`).
pub(crate) fn is_first(fields: &Value) -> bool {
    !has_control_plane_of_join(fields) && !has_kubelet_arguments_of_join(fields)
}

/// Whether the configuration is that of a joined Machine, but lacks `joinConfiguration.controlPlane`. A reentrancy issue of the
/// bootstrap provider of v1.11 could lose the field (kubernetes-sigs/cluster-api#14167). [`EARLIER_RELEASES`] decide by this
/// field alone (`isKubeadmConfigForJoin` in `controlplane/kubeadm/pkg/filters.go` of v1.14.1), compare such a Machine as if it
/// were the first Machine, and replace it. v1.14.2 and v1.13.6 also look at the kubelet arguments.
pub fn lacks_control_plane_of_join(machine: &KubeadmConfigSpec) -> bool {
    !has_control_plane_of_join(&machine.fields) && has_kubelet_arguments_of_join(&machine.fields)
}

/// The releases of Cluster API without the correction of [`lacks_control_plane_of_join`], for messages. v1.11 and earlier
/// compare in another way.
pub const EARLIER_RELEASES: &str = "v1.12, v1.13.0 to v1.13.5, and v1.14.0 and v1.14.1";

/// Says that [`EARLIER_RELEASES`] would replace these Machines.
pub fn replaced_by_earlier_releases(machines: &str) -> String {
    format!(
        "an update of Cluster API to {EARLIER_RELEASES} would replace {machines}, because the KubeadmConfig lacks \
         joinConfiguration.controlPlane (kubernetes-sigs/cluster-api#14167); v1.13.6 and v1.14.2 would not"
    )
}

fn has_control_plane_of_join(fields: &Value) -> bool {
    let control_plane = fields.pointer("/joinConfiguration/controlPlane");
    control_plane.is_some_and(|value| !value.is_null())
}

fn has_kubelet_arguments_of_join(fields: &Value) -> bool {
    match fields.pointer("/joinConfiguration/nodeRegistration/kubeletExtraArgs") {
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        _ => false,
    }
}

/// Converts a Machine's configuration into the configuration of a joining Machine.
fn as_joining_config(machine: &Value, desired: &Value, is_first: bool) -> Value {
    let mut fields = object(machine);
    if is_first {
        let mut join = object(fields.get("joinConfiguration").unwrap_or(&Value::Null));
        let init = object(&fields.remove("initConfiguration").unwrap_or_default());
        for key in JOIN_FIELDS_FROM_INIT {
            let value = init.get(*key).cloned().unwrap_or_default();
            join.insert((*key).to_owned(), value);
        }
        let endpoint = init.get("localAPIEndpoint").cloned().unwrap_or_default();
        join.insert("controlPlane".to_owned(), json!({"localAPIEndpoint": endpoint}));
        let authority = desired
            .pointer("/joinConfiguration/caCertPath")
            .cloned()
            .unwrap_or_default();
        join.insert("caCertPath".to_owned(), authority);
        fields.insert("joinConfiguration".to_owned(), Value::Object(join));
    }
    Value::Object(fields)
}

fn desired_when_joining(desired: &KubeadmConfigSpec, version: &str) -> Value {
    let mut fields = with_feature_gates(&desired.fields, version);
    fields.remove("initConfiguration");
    Value::Object(fields)
}

fn desired_when_first(desired: &KubeadmConfigSpec, version: &str) -> Value {
    let mut fields = with_feature_gates(&desired.fields, version);
    fields.remove("joinConfiguration");
    Value::Object(fields)
}

/// Adds `ControlPlaneKubeletLocalMode: true` if it is not set, as Cluster API does for Kubernetes 1.31 to 1.35.
fn with_feature_gates(desired: &Value, version: &str) -> Map<String, Value> {
    let mut fields = object(desired);
    let minor = version
        .trim_start_matches('v')
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse::<u32>().ok());
    if minor.is_some_and(|minor| (31..36).contains(&minor)) {
        let mut cluster = object(fields.get("clusterConfiguration").unwrap_or(&Value::Null));
        let mut gates = object(cluster.get("featureGates").unwrap_or(&Value::Null));
        gates
            .entry("ControlPlaneKubeletLocalMode")
            .or_insert(Value::Bool(true));
        cluster.insert("featureGates".to_owned(), Value::Object(gates));
        fields.insert("clusterConfiguration".to_owned(), Value::Object(cluster));
    }
    fields
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn remove(document: &mut Value, pointer: &str) {
    let Some((parent, key)) = pointer.rsplit_once('/') else {
        return;
    };
    if let Some(parent) = document.pointer_mut(parent).and_then(Value::as_object_mut) {
        parent.remove(key);
    }
}

/// Removes the values that are equivalent to an absent field.
fn remove_empty_values(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                if !(value.is_object() && ARGUMENT_FIELDS.contains(&key.as_str())) {
                    remove_empty_values(value);
                }
            }
            fields.retain(|key, value| match value {
                Value::Null => false,
                Value::Object(fields) => !fields.is_empty(),
                Value::Array(list) => !list.is_empty() || MEANINGFUL_WHEN_EMPTY.contains(&key.as_str()),
                // In v1beta2, `value` is the value of an argument, which can be empty.
                Value::String(text) => !text.is_empty() || key == "value",
                Value::Bool(_) | Value::Number(_) => true,
            });
        }
        Value::Array(list) => list.iter_mut().for_each(remove_empty_values),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{KubeadmConfigSpec, merge_patch, outdated_paths, reversal};
    use crate::testing::plan::config;

    const GATES: &str = r#"{"ControlPlaneKubeletLocalMode": true}"#;

    fn gates() -> Value {
        serde_json::from_str(GATES).expect("JSON")
    }

    /// The configurations of control planes, each of which a change can turn into any other.
    fn specs() -> Vec<Value> {
        let argument = |value: &str| json!([{"name": "v", "value": value}]);
        vec![
            json!({}),
            json!({"clusterConfiguration": {"apiServer": {"extraArgs": argument("1")}}}),
            json!({"clusterConfiguration": {"apiServer": {"extraArgs": argument(""), "certSANs": ["a", "b"]}}}),
            json!({"clusterConfiguration": {"apiServer": {"certSANs": ["b"]}, "scheduler": {"extraArgs": argument("2")}}}),
            json!({"clusterConfiguration": {"featureGates": {"ControlPlaneKubeletLocalMode": false}}}),
            json!({"clusterConfiguration": {"featureGates": {"A": true}, "dns": {"imageTag": "v1"}}}),
            json!({"clusterConfiguration": {"etcd": {"local": {"imageTag": "3.5.0-0"}}, "dns": {"imageTag": "v2"}}}),
            json!({"joinConfiguration": {"nodeRegistration": {"taints": []}, "discovery": {"file": {}}}}),
            json!({"joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs": argument("3")}, "skipPhases": ["p"]},
                "initConfiguration": {"nodeRegistration": {"kubeletExtraArgs": argument("3")}, "skipPhases": ["p"]}}),
            json!({"joinConfiguration": {"controlPlane": {"localAPIEndpoint": {"bindPort": 6444}}, "caCertPath": "/ca"}}),
            json!({"initConfiguration": {"bootstrapTokens": [{"token": "t"}], "nodeRegistration": {"name": "i"}}}),
            json!({"files": [{"path": "/f", "content": "c"}], "format": "cloud-config"}),
            json!({"format": "ignition", "preKubeadmCommands": ["a"], "ntp": {"enabled": true}, "verbosity": 3}),
        ]
    }

    /// The configuration of a Machine that Cluster API creates (`ComputeDesiredKubeadmConfig`).
    fn created(spec: &Value, is_first: bool) -> Value {
        let mut fields = spec.clone();
        let gates = &mut fields["clusterConfiguration"]["featureGates"];
        if gates["ControlPlaneKubeletLocalMode"].is_null() {
            gates["ControlPlaneKubeletLocalMode"] = json!(true);
        }
        if is_first {
            fields["joinConfiguration"] = Value::Null;
        } else {
            fields["initConfiguration"] = Value::Null;
            if fields["joinConfiguration"]["controlPlane"].is_null() {
                fields["joinConfiguration"]["controlPlane"] = json!({});
            }
        }
        fields
    }

    fn has_empty_object(value: &Value) -> bool {
        match value {
            Value::Object(fields) => fields.is_empty() || fields.values().any(has_empty_object),
            Value::Array(items) => items.iter().any(has_empty_object),
            _ => false,
        }
    }

    #[test]
    fn a_reversal_makes_a_machine_of_any_earlier_spec_up_to_date_again() {
        for (earlier, later, is_first) in specs().iter().flat_map(|earlier| {
            let later = specs().into_iter();
            later.flat_map(move |later| [true, false].map(|first| (earlier, later.clone(), first)))
        }) {
            let machine = config(created(earlier, is_first));
            let desired = config(later.clone());
            let reversal = reversal(&machine, None, &desired, "v1.34.1").expect("the same version");
            let mut reverted = later.clone();
            merge_patch::apply(&mut reverted, &reversal.patch);
            let case = format!("{earlier} {later} {is_first} {}", reversal.patch);
            let left =
                outdated_paths(&machine, &config(reverted.clone()), "v1.34.1").expect("the same version");
            assert_eq!(left, Vec::<String>::new(), "{case}");
            // "discovery" has an empty object in one of the specs.
            let had = has_empty_object(&later) || reverted.as_object().is_some_and(serde_json::Map::is_empty);
            assert!(had || !has_empty_object(&reverted), "{case}");
            for kept in ["/clusterConfiguration/dns", "/joinConfiguration/discovery"] {
                assert_eq!(reverted.pointer(kept), later.pointer(kept), "{case}");
            }
            if outdated_paths(&machine, &desired, "v1.34.1") == Some(Vec::new()) && !is_first {
                assert_eq!(reversal.patch, json!({}), "{case}");
            }
        }
    }

    fn paths(machine: Value, desired: Value) -> Vec<String> {
        outdated_paths(&config(machine), &config(desired), "v1.36.0").expect("the same version")
    }

    /// The configuration of the Machine and the desired configuration, both for a joining Machine.
    #[test]
    fn a_machine_that_joined_is_compared_with_what_is_asked_of_one_that_joins() {
        let join = |registration: Value| json!({"controlPlane": {}, "nodeRegistration": registration});
        for (name, machine, desired, expected) in [
            (
                "same",
                json!({"joinConfiguration": join(json!({"name": "n"}))}),
                json!({"joinConfiguration": {"nodeRegistration": {"name": "n"}}}),
                vec![],
            ),
            (
                "other_name",
                json!({"joinConfiguration": join(json!({"name": "n"}))}),
                json!({"joinConfiguration": {"nodeRegistration": {"name": "o"}}}),
                vec!["joinConfiguration.nodeRegistration.name"],
            ),
            (
                "command_added",
                json!({"joinConfiguration": join(json!({}))}),
                json!({"preKubeadmCommands": ["true"]}),
                vec!["preKubeadmCommands"],
            ),
            (
                "init_is_of_the_first_machine_only",
                json!({"joinConfiguration": join(json!({}))}),
                json!({"initConfiguration": {"skipPhases": ["addon/kube-proxy"]}}),
                vec![],
            ),
            (
                "discovery_dns_endpoint_health_check",
                json!({
                    "joinConfiguration": {"controlPlane": {}, "discovery": {"bootstrapToken": {"token": "t"}},
                        "timeouts": {"controlPlaneComponentHealthCheckSeconds": 5}},
                    "clusterConfiguration": {"controlPlaneEndpoint": "e", "dns": {"imageTag": "v1"},
                        "clusterName": "c", "networking": {"dnsDomain": "d"}}}),
                json!({"clusterConfiguration": {"dns": {"imageTag": "v2"},
                    "apiServer": {"timeoutForControlPlane": "4m0s"}}}),
                vec![],
            ),
            (
                "empty_is_absent",
                json!({"joinConfiguration": join(json!({})), "files": [], "ntp": {"servers": []}}),
                json!({"users": [], "diskSetup": {}, "format": ""}),
                vec![],
            ),
            (
                "no_taints_is_not_absent",
                json!({"joinConfiguration": join(json!({"taints": []}))}),
                json!({"joinConfiguration": {}}),
                vec!["joinConfiguration.nodeRegistration.taints"],
            ),
            (
                "defaults_of_earlier_versions",
                json!({"format": "cloud-config", "joinConfiguration": join(json!({"imagePullPolicy": "IfNotPresent"})),
                    "initConfiguration": {"nodeRegistration": {"imagePullPolicy": "IfNotPresent"}}}),
                json!({}),
                vec![],
            ),
            (
                "ignition",
                json!({"joinConfiguration": join(json!({}))}),
                json!({"format": "ignition"}),
                vec!["format"],
            ),
            (
                "v1_11_without_control_plane",
                json!({"joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs": [{"name": "a", "value": ""}]}}}),
                json!({"joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs": [{"name": "a", "value": ""}]}},
                    "initConfiguration": {"skipPhases": ["x"]}}),
                vec![],
            ),
            (
                "extra_argument",
                json!({"joinConfiguration": join(json!({"kubeletExtraArgs": [{"name": "a", "value": "1"}]}))}),
                json!({"joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs": [{"name": "a", "value": "2"}]}}}),
                vec!["joinConfiguration.nodeRegistration.kubeletExtraArgs[0].value"],
            ),
            (
                "argument_without_value_in_v1beta1",
                json!({"joinConfiguration": join(json!({}))}),
                json!({"joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs": {"a": ""}}}}),
                vec!["joinConfiguration.nodeRegistration.kubeletExtraArgs.a"],
            ),
            (
                "no_arguments_in_v1beta1",
                json!({"joinConfiguration": join(json!({}))}),
                json!({"joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs": {}}}}),
                vec![],
            ),
        ] {
            assert_eq!(paths(machine, desired), expected, "{name}");
        }
    }

    #[test]
    fn the_first_machine_may_be_as_either_is_asked() {
        let registration = json!({"name": "n"});
        let first = json!({"initConfiguration": {"nodeRegistration": registration, "localAPIEndpoint": {"bindPort": 1}}});
        for (name, desired, expected) in [
            // Compared as a joining Machine, because only the join configuration has caCertPath.
            (
                "as_joining",
                json!({"joinConfiguration": {"nodeRegistration": registration, "caCertPath": "/ca",
                "controlPlane": {"localAPIEndpoint": {"bindPort": 1}}}}),
                vec![],
            ),
            (
                "as_first",
                json!({"initConfiguration": {"nodeRegistration": registration,
                "localAPIEndpoint": {"bindPort": 1}}, "joinConfiguration": {"skipPhases": ["x"]}}),
                vec![],
            ),
            (
                "as_neither",
                json!({"initConfiguration": {"nodeRegistration": registration}}),
                vec!["initConfiguration.localAPIEndpoint.bindPort"],
            ),
        ] {
            assert_eq!(paths(first.clone(), desired), expected, "{name}");
        }
    }

    #[test]
    fn kubelet_local_mode_is_set_from_1_31_to_1_35() {
        let machine = |gates: Value| {
            config(
                json!({"clusterConfiguration": {"featureGates": gates}, "joinConfiguration": {"controlPlane": {}}}),
            )
        };
        let path = vec!["clusterConfiguration.featureGates.ControlPlaneKubeletLocalMode".to_owned()];
        for (version, gates, expected) in [
            ("v1.30.9", gates(), path.clone()),
            ("v1.31.0", gates(), vec![]),
            ("v1.35.2-rc.1", gates(), vec![]),
            ("v1.36.0", gates(), path.clone()),
            ("v1.34.0", json!({}), path),
            ("v1.36.0", json!({}), vec![]),
        ] {
            let paths = outdated_paths(&machine(gates), &config(json!({})), version);
            assert_eq!(paths, Some(expected), "{version}");
        }
        let off = json!({"clusterConfiguration": {"featureGates": {"ControlPlaneKubeletLocalMode": false}}});
        let machine = machine(json!({"ControlPlaneKubeletLocalMode": false}));
        assert_eq!(outdated_paths(&machine, &config(off), "v1.34.0"), Some(vec![]));
    }

    #[test]
    fn two_versions_are_not_compared() {
        let earlier = KubeadmConfigSpec {
            version: "v1beta1".to_owned(),
            ..config(json!({}))
        };
        assert_eq!(outdated_paths(&earlier, &config(json!({})), "v1.34.0"), None);
    }
}
