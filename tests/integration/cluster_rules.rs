//! Rules that look at other objects, judged on what the server reads with the role that the manifests ship.
//!
//! No controller runs in these namespaces: Machines are objects that nobody boots.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::Ended;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use crate::shared::with_management_cluster;

/// A Cluster, its control plane, one Machine of it that has joined, and one worker.
fn cluster(version: &str) -> Vec<Value> {
    let labels = json!({"cluster.x-k8s.io/cluster-name": "edge"});
    let infrastructure =
        |kind: &str| json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": "edge"});
    let machine = |name: &str, labels: Value| {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": name, "labels": labels},
            "spec": {"clusterName": "edge", "version": version, "bootstrap": {"dataSecretName": ""},
                "infrastructureRef": infrastructure("StandInMachine")}
        })
    };
    vec![
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "edge"},
            "spec": {
                "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io",
                    "kind": "KubeadmControlPlane", "name": "edge"},
                "infrastructureRef": infrastructure("StandInCluster")
            }
        }),
        control_plane(version),
        machine(
            "edge-1",
            json!({"cluster.x-k8s.io/cluster-name": "edge", "cluster.x-k8s.io/control-plane": ""}),
        ),
        machine("worker-1", labels),
    ]
}

fn control_plane(version: &str) -> Value {
    json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
        "metadata": {"name": "edge", "labels": {"cluster.x-k8s.io/cluster-name": "edge"}},
        "spec": {
            "replicas": 1, "version": version,
            "machineTemplate": {"spec": {"infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "StandInMachineTemplate", "name": "edge"}}},
            "kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}}}
        }
    })
}

async fn apply(management: &ManagementCluster, namespace: &str, objects: &[Value]) -> Result<Ended> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let file = management.run().folder().join(format!("{namespace}.json"));
    std::fs::write(&file, serde_json::to_vec(&list)?).context("writing the objects")?;
    let file = file.display().to_string();
    management
        .kubectl()
        .run(["apply", "-n", namespace, "-f", &file])
        .await
}

async fn applied(management: &ManagementCluster, namespace: &str, objects: &[Value]) -> Result<Ended> {
    let ended = apply(management, namespace, objects).await?;
    ensure!(ended.code == 0, "{ended}");
    Ok(ended)
}

#[test]
fn keeps_a_control_plane_that_workers_need() {
    with_management_cluster(async |management| {
        deletion_with_workers(management).await.unwrap();
    });
}

async fn deletion_with_workers(management: &ManagementCluster) -> Result<()> {
    let namespace = "deletion";
    management.create_namespace(namespace).await?;
    applied(management, namespace, &cluster("v1.34.2")).await?;
    let kubectl = management.kubectl();
    let delete = [
        "delete",
        "kubeadmcontrolplane",
        "edge",
        "-n",
        namespace,
        "--wait=false",
    ];
    let denied = kubectl.run(delete).await?;
    ensure!(
        denied.code == 1 && denied.stderr.contains("(control-plane-in-use)"),
        "{denied}"
    );
    ensure!(denied.stderr.contains("worker-1"), "{denied}");
    kubectl
        .succeed(["delete", "machine", "worker-1", "-n", namespace, "--wait=false"])
        .await?;
    kubectl.succeed(delete).await?;
    Ok(())
}

#[test]
fn refuses_a_downgrade_once_a_machine_has_joined() {
    with_management_cluster(async |management| {
        downgrade(management).await.unwrap();
    });
}

async fn downgrade(management: &ManagementCluster) -> Result<()> {
    let namespace = "downgrade";
    management.create_namespace(namespace).await?;
    applied(management, namespace, &cluster("v1.34.2")).await?;

    let lower = [control_plane("v1.33.4")];
    let reverted = apply(management, namespace, &lower).await?;
    ensure!(reverted.code == 0, "{reverted}");
    ensure!(reverted.stderr.contains("(version-reverted)"), "{reverted}");

    applied(management, namespace, &[control_plane("v1.34.2")]).await?;
    let status = json!({"status": {"nodeRef": {"name": "edge-1"}}}).to_string();
    let machine = [
        "patch",
        "machine",
        "edge-1",
        "-n",
        namespace,
        "--subresource=status",
    ];
    management
        .kubectl()
        .succeed(machine.into_iter().chain(["--type=merge", "-p", &status]))
        .await?;
    let denied = apply(management, namespace, &lower).await?;
    ensure!(
        denied.code == 1 && denied.stderr.contains("(version-lowered)"),
        "{denied}"
    );

    // Whoever leaves the label out of the manifest is judged by the object as it is.
    let mut bare = control_plane("v1.33.4");
    if let Some(metadata) = bare.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("labels");
    }
    let denied = apply(management, namespace, &[bare]).await?;
    ensure!(
        denied.code == 1 && denied.stderr.contains("(version-lowered)"),
        "{denied}"
    );
    Ok(())
}

#[test]
fn refuses_a_customization_that_another_pool_lists() {
    with_management_cluster(async |management| {
        shared_inventory(management).await.unwrap();
    });
}

async fn shared_inventory(management: &ManagementCluster) -> Result<()> {
    let namespace = "shared-inventory";
    management.create_namespace(namespace).await?;
    let pool = |name: &str| {
        json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterPool", "metadata": {"name": name},
            "spec": {"platform": {"none": {}}, "baseDomain": "example.com", "imageSetRef": {"name": "release"},
                "size": 0, "inventory": [{"kind": "ClusterDeploymentCustomization", "name": "foo"}]}
        })
    };
    let customization = json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeploymentCustomization",
        "metadata": {"name": "foo"},
        "spec": {"installConfigPatches": [{"op": "replace", "path": "metadata/name", "value": "foo"}]}
    });
    let mended = applied(management, namespace, &[customization, pool("first")]).await?;
    ensure!(
        mended
            .stderr
            .contains("\"metadata/name\" became \"/metadata/name\""),
        "{mended}"
    );
    let denied = apply(management, namespace, &[pool("second")]).await?;
    ensure!(
        denied.code == 1 && denied.stderr.contains("(inventory-shared)"),
        "{denied}"
    );
    Ok(())
}
