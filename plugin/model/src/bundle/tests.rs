//! What a bundle contains of each kind, and what it must not contain of any.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{REDACTED, Redacted};

/// A place of a secret in [`places`].
const SECRET: &str = "@";

fn redacted(object: Value) -> Value {
    Redacted::object(object).value().clone()
}

/// The object in a bundle. Each test below changes only what the bundle must not contain.
fn assert_becomes(object: Value, expected: &Value) {
    assert_eq!(redacted(object), *expected);
}

#[test]
fn metadata_keeps_names_and_harmless_annotations() {
    let machine = |metadata: Value| json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata});
    assert_becomes(
        machine(json!({
            "name": "edge-1", "labels": {"cluster.x-k8s.io/cluster-name": "edge"}, "generation": 3,
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {
                "cluster.x-k8s.io/cloned-from-name": "edge",
                "kubectl.kubernetes.io/last-applied-configuration": "{\"spec\": {}}",
                "example.com/owner": "somebody",
                "example.com/empty": "",
            },
        })),
        &machine(json!({
            "name": "edge-1", "labels": {"cluster.x-k8s.io/cluster-name": "edge"}, "generation": 3,
            "annotations": {
                "cluster.x-k8s.io/cloned-from-name": "edge",
                "kubectl.kubernetes.io/last-applied-configuration": REDACTED,
                "example.com/owner": REDACTED,
                "example.com/empty": "",
            },
        })),
    );
}

#[test]
fn a_control_plane_keeps_what_decides_its_rollouts() {
    let control_plane = |argument: &str, secret: &str| {
        let template = json!({"kind": "DevMachineTemplate", "name": "edge"});
        json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
            "spec": {
                "replicas": 3, "version": "v1.34.2",
                "machineTemplate": {"spec": {"infrastructureRef": template}},
                "kubeadmConfigSpec": {
                    "clusterConfiguration": {"apiServer": {
                        "certSANs": ["127.0.0.1"],
                        "extraArgs": [{"name": "v", "value": "4"}, {"name": "oidc-password", "value": argument}],
                        "extraEnvs": [{"name": "TOKEN", "value": secret}],
                    }},
                    "files": [{"path": "/etc/a", "permissions": "0600", "content": secret}],
                    "users": [{"name": "admin", "lockPassword": false, "passwd": secret, "sshAuthorizedKeys": [secret]}],
                    "preKubeadmCommands": [secret],
                    "mounts": [[secret, secret]],
                },
            },
        })
    };
    assert_becomes(
        control_plane("p", "curl -u a:b"),
        &control_plane(REDACTED, REDACTED),
    );
}

#[test]
fn a_static_pod_keeps_its_harmless_flags() {
    let pod = |password: &str, value: &str, header: &str| {
        let headers = json!([{"name": header, "value": value}]);
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n1", "containers": [{
            "name": "kube-apiserver", "image": "registry.k8s.io/kube-apiserver:v1.34.2",
            "command": ["kube-apiserver", "--secure-port=6443", format!("--some-password={password}")],
            "env": [{"name": "A", "value": value}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "livenessProbe": {"httpGet": {"path": "/livez", "port": 6443, "httpHeaders": headers}},
        }]}})
    };
    assert_becomes(pod("p", "p", "Authorization"), &pod(REDACTED, REDACTED, REDACTED));
}

#[test]
fn a_machine_of_a_provider_keeps_what_the_contract_requires() {
    let machine = |secret: &str| {
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "DevMachine",
            "spec": {"providerID": "dev:///1", "memoryMiB": 8192, "userData": secret},
            "status": {"ready": true, "conditions": [{"type": "Ready", "message": "no capacity"}], "console": secret},
        })
    };
    assert_becomes(machine("p"), &machine(REDACTED));
}

#[test]
fn an_event_loses_only_secrets_in_its_note() {
    let event = |token: &str| {
        json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "reason": "FailedScaleUp",
            "note": format!("could not use token {token}"), "regarding": {"kind": "Machine", "name": "m"}})
    };
    assert_becomes(event("abcdef.0123456789abcdef"), &event(REDACTED));
}

#[test]
fn a_variable_of_a_topology_loses_numbers_too() {
    let cluster = |value: Value| {
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": {"topology": {
            "version": "v1.34.2", "variables": [{"name": "login", "value": value}]}}})
    };
    assert_becomes(cluster(json!({"pin": 1234})), &cluster(json!(REDACTED)));
}

#[test]
fn a_document_loses_only_secrets_in_its_messages() {
    let document = json!({"kind": "Plan", "passwd": "x", "problems": [{"text": "token abcdef.0123456789abcdef is old"}]});
    let expected = json!({"kind": "Plan", "passwd": "x", "problems": [{"text": "token <redacted> is old"}]});
    let redacted = Redacted::document(&document).expect("JSON");
    assert_eq!(redacted.value(), &expected);
}

/// A `KubeadmConfigSpec` in which each `@` stands where a secret may stand.
fn kubeadm_places(arguments: &Value) -> Value {
    let component = json!({"extraArgs": arguments, "extraEnvs": [{"name": "A", "value": "@"}]});
    json!({
        "bootCommands": ["@"], "preKubeadmCommands": ["@", "echo @"], "postKubeadmCommands": ["@"],
        "files": [{"path": "/etc/a", "content": "@"}],
        "users": [{"name": "a", "passwd": "@", "gecos": "@", "sudo": "@", "sshAuthorizedKeys": ["@"]}],
        "mounts": [["@", "@"]],
        "diskSetup": {"filesystems": [{"device": "@", "extraOpts": ["@"]}]},
        "ignition": {"containerLinuxConfig": {"additionalConfig": "@"}},
        "clusterConfiguration": {
            "apiServer": component, "controllerManager": component, "scheduler": component, "etcd": {"local": component},
        },
        "initConfiguration": {
            "bootstrapTokens": [{"token": "@", "description": "@"}], "certificateKey": "@",
            "nodeRegistration": {"kubeletExtraArgs": arguments},
        },
        "joinConfiguration": {
            "controlPlane": {"certificateKey": "@"},
            "discovery": {
                "tlsBootstrapToken": "@", "bootstrapToken": {"token": "@"},
                "file": {"kubeConfig": {
                    "cluster": {"server": "@", "certificateAuthorityData": "@"},
                    "user": {"exec": {"command": "@", "args": ["@"], "env": [{"name": "A", "value": "@"}]},
                        "authProvider": {"name": "@", "config": {"@": "@"}}},
                }},
            },
            "nodeRegistration": {"kubeletExtraArgs": arguments},
        },
    })
}

fn metadata_places() -> Value {
    json!({
        "name": "a",
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "@", "cluster.x-k8s.io/conversion-data": "@",
            "controlplane.cluster.x-k8s.io/kubeadm-cluster-configuration": "@", "example.com/any": "@",
            "kubectl-kcp.dev/leader-migration": "@",
        },
        "managedFields": [{"manager": "@"}],
    })
}

/// Objects of Cluster API in this version. `arguments` are flags in the form of the version.
fn cluster_api_places(version: &str, arguments: &Value) -> [Value; 5] {
    let metadata = metadata_places();
    let kubeadm = kubeadm_places(arguments);
    let object = |group: &str, kind: &str, spec: Value| {
        let api_version = format!("{group}cluster.x-k8s.io/{version}");
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
    };
    let overrides = json!({"overrides": [{"name": "a", "value": "@"}]});
    let workers = json!({"machineDeployments": [{"metadata": metadata, "variables": overrides}]});
    [
        object("bootstrap.", "KubeadmConfig", kubeadm.clone()),
        object(
            "controlplane.",
            "KubeadmControlPlane",
            json!({"kubeadmConfigSpec": kubeadm, "machineTemplate": {"metadata": metadata}}),
        ),
        object("", "Machine", json!({"bootstrap": {"data": "@"}})),
        object(
            "",
            "MachineDeployment",
            json!({"template": {"metadata": metadata, "spec": {"bootstrap": {"data": "@"}}}}),
        ),
        object(
            "",
            "Cluster",
            json!({"topology": {
                "variables": [{"name": "a", "value": {"@": ["@"]}}],
                "controlPlane": {"metadata": metadata, "variables": overrides},
                "workers": workers,
            }}),
        ),
    ]
}

/// Objects of other kinds, some of them malformed.
fn other_places() -> [Value; 8] {
    let metadata = metadata_places();
    let headers = json!([{"name": "A", "value": "@"}]);
    let container = json!({
        "name": "a", "command": ["tool", "@", "--password=@"], "args": ["@", "--password=@"],
        "env": [{"name": "A", "value": "@"}],
        "livenessProbe": {"exec": {"command": ["@"]}, "httpGet": {"httpHeaders": headers}},
        "lifecycle": {"preStop": {"exec": {"command": ["@"]}}},
    });
    let volume = json!({"name": "a", "csi": {"volumeAttributes": {"password": "@"}}});
    [
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"containers": [container], "initContainers": [container], "volumes": [volume]},
            "status": {"containerStatuses": [{"state": {"terminated": {"message": "@"}}}]}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"a": "@"}, "stringData": {"a": "@"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "@"}}),
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "DevMachine", "metadata": metadata,
            "spec": {"bootstrap": "@", "userData": ["@"], "metadata": {"labels": {"a": "@"}}},
            "status": {"console": {"password": "@"}}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": metadata, "webhooks": [{"clientConfig": {"url": "https://host/@", "caBundle": "@"}}]}),
        json!({"kind": "KubeadmControlPlane", "spec": {"kubeadmConfigSpec": {"format": "@"}}}),
        json!({"metadata": ["@"], "kind": 1}),
    ]
}

/// Objects in which each `@` stands where a secret may stand.
fn places() -> Vec<Value> {
    let list = json!([{"name": "some-password", "value": "@"}, {"value": "@"}]);
    let map = json!({"some-password": "@"});
    let places = cluster_api_places("v1beta2", &list).into_iter();
    places
        .chain(cluster_api_places("v1beta1", &map))
        .chain(other_places())
        .collect()
}

/// The object with the secret in all its places.
fn plant(object: &Value, secret: &str) -> Value {
    match object {
        Value::String(text) => Value::String(text.replace(SECRET, secret)),
        Value::Array(items) => items.iter().map(|item| plant(item, secret)).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (key.replace(SECRET, secret), plant(value, secret)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

fn contains(value: &Value, secret: &str) -> bool {
    match value {
        Value::String(text) => text.contains(secret),
        Value::Array(items) => items.iter().any(|item| contains(item, secret)),
        Value::Object(fields) => fields
            .iter()
            .any(|(key, value)| key.contains(secret) || contains(value, secret)),
        _ => false,
    }
}

proptest! {
    #[test]
    fn no_planted_secret_stays(rest in any::<String>()) {
        // No field, kind or path contains this text.
        let secret = format!("s3cr3t{rest}");
        for place in places() {
            let object = plant(&place, &secret);
            prop_assert!(contains(&object, &secret), "{}", place);
            let redacted = redacted(object);
            prop_assert!(!contains(&redacted, "s3cr3t"), "{}", redacted);
        }
    }

    #[test]
    fn a_second_redaction_changes_nothing(secret in any::<String>()) {
        for place in places() {
            let once = redacted(plant(&place, &secret));
            prop_assert_eq!(redacted(once.clone()), once);
        }
    }
}
