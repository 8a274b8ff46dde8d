//! Objects of a cluster that no controller reconciles: their Machines never boot.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::run::random;
use serde_json::{Value, json};

/// A Cluster, its control plane, one control plane Machine, one worker, and the infrastructure template. All except the
/// Machines have this name.
pub(crate) fn cluster(name: &str, replicas: u32, version: &str) -> Vec<Value> {
    let infrastructure =
        |kind: &str| json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name});
    let machine = |suffix: &str, role: Option<&str>| {
        let mut labels = json!({"cluster.x-k8s.io/cluster-name": name});
        if let (Some(role), Some(labels)) = (role, labels.as_object_mut()) {
            labels.insert(role.to_owned(), json!(""));
        }
        // As if the control plane had adopted it.
        let owners = role.map(|_| {
            json!([{"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
                "name": name, "uid": "0", "controller": true}])
        });
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": format!("{name}-{suffix}"), "labels": labels, "ownerReferences": owners},
            "spec": {"clusterName": name, "version": version, "bootstrap": {"dataSecretName": ""},
                "infrastructureRef": infrastructure("StandInMachine")}
        })
    };
    vec![
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": name},
            "spec": {
                "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io",
                    "kind": "KubeadmControlPlane", "name": name},
                "infrastructureRef": infrastructure("StandInCluster")
            }
        }),
        adopted(control_plane(name, replicas, version)),
        machine("1", Some("cluster.x-k8s.io/control-plane")),
        machine("worker", None),
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "StandInMachineTemplate",
            "metadata": {"name": name}, "spec": {"template": {"spec": {}}}
        }),
    ]
}

/// A control plane as if its Cluster had adopted it.
pub(crate) fn adopted(mut control_plane: Value) -> Value {
    let name = control_plane.pointer("/metadata/name").cloned();
    if let Some(metadata) = control_plane.get_mut("metadata").and_then(Value::as_object_mut) {
        let owner =
            json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": name, "uid": "0"});
        metadata.insert("ownerReferences".to_owned(), json!([owner]));
    }
    control_plane
}

/// The control plane of the Cluster with the same name.
pub(crate) fn control_plane(name: &str, replicas: u32, version: &str) -> Value {
    json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
        "metadata": {"name": name, "labels": {"cluster.x-k8s.io/cluster-name": name}},
        "spec": {
            "replicas": replicas, "version": version,
            "machineTemplate": {"spec": {"infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "StandInMachineTemplate", "name": name}}},
            "kubeadmConfigSpec": {
                "clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}},
                "initConfiguration": {"nodeRegistration": {"name": "{{ ds.meta_data.local_hostname }}"}},
                "joinConfiguration": {"nodeRegistration": {"name": "{{ ds.meta_data.local_hostname }}"}}
            }
        }
    })
}

/// Runs `kubectl VERB -f`, such as create or apply, with these objects and arguments. Any exit code is accepted.
pub(crate) async fn write(
    kubectl: &Kubectl,
    verb: &str,
    objects: &[Value],
    arguments: &[&str],
) -> Result<CommandOutput> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let file = kubectl.scratch_file(&format!("{:016x}.json", random()));
    std::fs::write(&file, serde_json::to_vec(&list)?).context("writing the objects")?;
    let file = file.display().to_string();
    kubectl.run([verb, "-f", &file].iter().chain(arguments)).await
}

/// [`write`] that must succeed.
pub(crate) async fn written(
    kubectl: &Kubectl,
    verb: &str,
    objects: &[Value],
    arguments: &[&str],
) -> Result<CommandOutput> {
    let ended = write(kubectl, verb, objects, arguments).await?;
    ensure!(ended.code == 0, "{ended}");
    Ok(ended)
}

/// Sets an object's status, as its controller would.
pub(crate) async fn report(
    kubectl: &Kubectl,
    namespace: &str,
    object: [&str; 2],
    status: &Value,
) -> Result<()> {
    let status = json!({"status": status}).to_string();
    let patch = [
        "patch",
        "-n",
        namespace,
        "--subresource=status",
        "--type=merge",
        "-p",
        &status,
    ];
    kubectl.succeed(patch.into_iter().chain(object)).await?;
    Ok(())
}
