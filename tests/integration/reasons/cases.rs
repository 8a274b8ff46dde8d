//! Changes of a control plane's spec, and the Machines that each makes outdated according to Cluster API's
//! documentation.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub(super) struct Case {
    pub(super) name: &'static str,
    /// The API version of the change.
    pub(super) version: &'static str,
    /// Merged into the spec.
    pub(super) change: Value,
    pub(super) outdated: Outdated,
    /// The names in `kubectl kcp plan -o json`.
    pub(super) reasons: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outdated {
    All,
    /// All Machines except for the first.
    Joined,
    None,
}

pub(super) fn cases() -> Vec<Case> {
    let all = [
        of_every_field(),
        of_every_config(),
        of_joined(),
        of_none(),
        of_none_in_config(),
        of_v1beta1(),
    ];
    all.into_iter().flatten().collect()
}

fn outdating(name: &'static str, change: Value, reasons: &'static [&'static str]) -> Case {
    Case {
        name,
        version: "v1beta2",
        change,
        outdated: Outdated::All,
        reasons,
    }
}

fn harmless(name: &'static str, change: Value) -> Case {
    Case {
        outdated: Outdated::None,
        ..outdating(name, change, &[])
    }
}

fn config(fields: &Value) -> Value {
    json!({"kubeadmConfigSpec": fields})
}

fn cluster(fields: &Value) -> Value {
    config(&json!({"clusterConfiguration": fields}))
}

fn nodes(joining: &Value, first: &Value) -> Value {
    config(&json!({"joinConfiguration": joining, "initConfiguration": first}))
}

fn arguments() -> Value {
    json!({"nodeRegistration": {"kubeletExtraArgs": [{"name": "v", "value": "2"}]}})
}

fn in_hours(hours: i64) -> String {
    let time = Timestamp::now() + SignedDuration::from_hours(hours);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn of_every_field() -> Vec<Case> {
    let template = json!({"spec": {"infrastructureRef": {"name": "another"}}});
    vec![
        outdating("version", json!({"version": "v1.34.3"}), &["version"]),
        outdating(
            "template",
            json!({"machineTemplate": template}),
            &["infrastructure"],
        ),
        outdating(
            "version and template",
            json!({"version": "v1.34.3", "machineTemplate": template}),
            &["infrastructure", "version"],
        ),
        outdating(
            "restart",
            json!({"rollout": {"after": in_hours(0)}}),
            &["rolloutAfter"],
        ),
        outdating(
            "certificates that expire within the time",
            json!({"rollout": {"before": {"certificatesExpiryDays": 60}}}),
            &["certificates"],
        ),
    ]
}

fn of_every_config() -> Vec<Case> {
    let changes = [
        (
            "the API server's arguments",
            cluster(&json!({"apiServer": {"extraArgs": [{"name": "v", "value": "2"}]}})),
        ),
        (
            "etcd's arguments",
            cluster(
                &json!({"etcd": {"local": {"extraArgs": [{"name": "snapshot-count", "value": "5000"}]}}}),
            ),
        ),
        (
            "files",
            config(&json!({"files": [{"path": "/etc/motd", "content": "hello"}]})),
        ),
        ("commands", config(&json!({"preKubeadmCommands": ["true"]}))),
        ("users", config(&json!({"users": [{"name": "operator"}]}))),
        ("time servers", config(&json!({"ntp": {"enabled": true}}))),
        ("arguments of every kubelet", nodes(&arguments(), &arguments())),
    ];
    let outdating = changes.map(|(name, change)| outdating(name, change, &["config"]));
    outdating.into()
}

fn of_joined() -> Vec<Case> {
    let joining = |name, fields| Case {
        outdated: Outdated::Joined,
        ..outdating(name, nodes(&fields, &json!({})), &["config"])
    };
    vec![
        joining("arguments of a kubelet that joins", arguments()),
        joining(
            "no taints on nodes that join",
            json!({"nodeRegistration": {"taints": []}}),
        ),
    ]
}

fn of_none() -> Vec<Case> {
    let template = |fields: Value| json!({"machineTemplate": fields});
    vec![
        harmless(
            "labels and annotations of Machines",
            template(json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}})),
        ),
        harmless(
            "limits on deletion",
            template(json!({"spec": {"deletion": {"nodeDrainTimeoutSeconds": 60,
                "nodeVolumeDetachTimeoutSeconds": 60, "nodeDeletionTimeoutSeconds": 60}}})),
        ),
        harmless(
            "readiness gates",
            template(json!({"spec": {"readinessGates": [{"conditionType": "Approved"}]}})),
        ),
        harmless("restart to come", json!({"rollout": {"after": in_hours(2)}})),
        harmless(
            "restart before they were made",
            json!({"rollout": {"after": in_hours(-24)}}),
        ),
        harmless(
            "certificates that expire later",
            json!({"rollout": {"before": {"certificatesExpiryDays": 7}}}),
        ),
        harmless(
            "remediation and names",
            json!({"remediation": {"maxRetry": 3},
                "machineNaming": {"template": "{{ .kubeadmControlPlane.name }}-x-{{ .random }}"}}),
        ),
    ]
}

fn of_none_in_config() -> Vec<Case> {
    let health = json!({"timeouts": {"controlPlaneComponentHealthCheckSeconds": 300}});
    let discovery = json!({"discovery": {"tlsBootstrapToken": "abcdef.0123456789abcdef"}});
    vec![
        harmless("arguments of the first kubelet", nodes(&json!({}), &arguments())),
        harmless(
            "image of the DNS server",
            cluster(&json!({"dns": {"imageRepository": "registry.example/coredns"}})),
        ),
        harmless("time for components to become healthy", nodes(&health, &health)),
        harmless("discovery", nodes(&discovery, &json!({}))),
        harmless(
            "what was the default",
            config(&json!({"format": "cloud-config",
                "joinConfiguration": {"nodeRegistration": {"imagePullPolicy": "IfNotPresent"}}})),
        ),
    ]
}

/// Fields that differ in this version.
fn of_v1beta1() -> Vec<Case> {
    let cases = [
        outdating(
            "restart in v1beta1",
            json!({"rolloutAfter": in_hours(0)}),
            &["rolloutAfter"],
        ),
        outdating(
            "the scheduler's arguments in v1beta1",
            cluster(&json!({"scheduler": {"extraArgs": {"v": "2"}}})),
            &["config"],
        ),
        harmless(
            "time for the API server in v1beta1",
            cluster(&json!({"apiServer": {"timeoutForControlPlane": "6m0s"}})),
        ),
        harmless(
            "another way to join in v1beta1",
            config(&json!({"useExperimentalRetryJoin": true})),
        ),
        harmless(
            "limits on deletion in v1beta1",
            json!({"machineTemplate": {"nodeDrainTimeout": "1m0s", "nodeDeletionTimeout": "1m0s"}}),
        ),
    ];
    let of_v1beta1 = cases.map(|case| Case {
        version: "v1beta1",
        ..case
    });
    of_v1beta1.into()
}
