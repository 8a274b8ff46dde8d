//! Scaling right after another change of a control plane, before its controller has observed that change.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::resources;
use kube::Error;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::objects::{cluster, control_plane, report, write, written};
use crate::shared::{with_controllers, with_management_cluster};

const OLD: &str = "v1.34.2";
const TIMES: usize = 3;

/// No controller runs, as if it were down.
#[test]
fn a_scale_waits_until_the_controller_has_observed_the_last_change() {
    with_management_cluster(async |management| {
        unobserved(management).await.unwrap();
    });
}

/// The controller reports a condition, before it stops.
async fn available(management: &ManagementCluster, namespace: &str) -> Result<()> {
    let available = json!({"type": "Available", "status": "True", "reason": "Available", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"conditions": [available]});
    report(
        management.kubectl(),
        namespace,
        ["kubeadmcontrolplane", "edge"],
        &status,
    )
    .await
    .map(drop)
}

/// `status` names the controller that does not process a change, and how to look at it; its preflight is unknown.
async fn stopped_controller_is_named(management: &ManagementCluster, namespace: &str) -> Result<()> {
    let status = ["kcp", "status", "edge", "-n", namespace];
    let screen = management.kubectl().run(status).await?;
    let text = screen.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "Cluster API's kubeadm control plane controller has not processed generation ",
        " of the spec; the last processed generation is ",
        "kubectl get pods -A -l cluster.x-k8s.io/provider=control-plane-kubeadm",
    ] {
        ensure!(text.contains(expected), "{expected:?}: {screen}");
    }
    let json = management
        .kubectl()
        .run(status.iter().chain(&["-o", "json"]))
        .await?;
    let document: Value = serde_json::from_str(&json.stdout).with_context(|| json.to_string())?;
    let allowed = document.pointer("/preflight/scaleUp/allowed");
    ensure!(allowed.is_some_and(|allowed| *allowed != json!(true)), "{json}");
    Ok(())
}

/// The controller manages no control plane with Machines of another owner.
async fn machine_of_another_owner_is_reported(management: &ManagementCluster, namespace: &str) -> Result<()> {
    let owned_by = async |name: &str| {
        let owner = json!([{
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "name": name,
            "uid": "00000000-0000-0000-0000-000000000001", "controller": true,
        }]);
        let owners = json!({"metadata": {"ownerReferences": owner}}).to_string();
        let patch = [
            "patch",
            "machine",
            "edge-1",
            "--type=merge",
            "-n",
            namespace,
            "-p",
            &owners,
        ];
        management.kubectl().succeed(patch).await
    };
    owned_by("another").await?;
    let message = "belongs to KubeadmControlPlane another";
    let ended = management
        .kubectl()
        .run(["kcp", "status", "edge", "-n", namespace])
        .await?;
    let text = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(ended.code == 1 && text.contains(message), "{ended}");
    owned_by("edge").await.map(drop)
}

async fn unobserved(management: &ManagementCluster) -> Result<()> {
    let namespace = "unobserved";
    let here = ["-n", namespace];
    management.create_namespace(namespace).await?;
    let kubectl = management.kubectl();
    let planes = resources::control_planes(management.client(), namespace);

    // Before the first Machine, everything is allowed, although no controller observes it.
    written(kubectl, "create", &[control_plane("edge", 3, "v1.35.0")], &here).await?;
    written(kubectl, "apply", &[control_plane("edge", 5, OLD)], &here).await?;
    written(kubectl, "apply", &[control_plane("edge", 3, OLD)], &here).await?;

    written(kubectl, "apply", &cluster("edge", 3, OLD), &here).await?;
    for time in 0..TIMES {
        observed(management, namespace).await?;
        patched(&planes, &configuration(&format!("first-{time}"))).await?;
        patched(&planes, &configuration(&format!("second-{time}"))).await?;
        let both = json!({"spec": {"replicas": 5, "version": "v1.34.9"}});
        let denied = refusal(patch(&planes, &both).await)?;
        ensure!(denied.contains("(replicas-with-upgrade)"), "{denied}");

        // A scale right after a change, with nothing in between.
        observed(management, namespace).await?;
        if time == 0 {
            available(management, namespace).await?;
        }
        patched(&planes, &configuration(&format!("third-{time}"))).await?;
        let denied = refusal(scale(&planes, 5).await)?;
        ensure!(
            denied.contains("Cluster API has not yet compared the Machines with the last change")
                && denied.contains("(replicas-during-rollout)"),
            "{denied}"
        );
        if time == 0 {
            stopped_controller_is_named(management, namespace).await?;
        }
        // A control plane that fails stays correctable.
        patched(&planes, &configuration(&format!("corrected-{time}"))).await?;
    }
    let paused = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    patched(&planes, &paused).await?;
    scale(&planes, 5)
        .await
        .context("scaling a paused control plane")?;
    patched(
        &planes,
        &json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}}),
    )
    .await?;
    observed(management, namespace).await?;
    scale(&planes, 3)
        .await
        .context("scaling after the change was observed")?;

    machine_of_another_owner_is_reported(management, namespace).await?;

    // A Machine without a controller is about to be adopted.
    observed(management, namespace).await?;
    let orphan = json!({"metadata": {"ownerReferences": null}}).to_string();
    let patch = ["patch", "machine", "edge-1", "--type=merge", "-p", &orphan];
    kubectl.succeed(patch.iter().chain(&here)).await?;
    let denied = write(kubectl, "apply", &[control_plane("edge", 5, OLD)], &here).await?;
    ensure!(denied.stderr.contains("(replicas-while-adopting)"), "{denied}");
    Ok(())
}

/// Writes the status that a controller writes once it has processed the current spec.
async fn observed(management: &ManagementCluster, namespace: &str) -> Result<()> {
    let planes = resources::control_planes(management.client(), namespace);
    let generation = planes.get("edge").await?.metadata.generation;
    let status = json!({
        "observedGeneration": generation, "replicas": 3, "upToDateReplicas": 3, "version": OLD,
        "deprecated": {"v1beta1": {"updatedReplicas": 3}},
    });
    report(
        management.kubectl(),
        namespace,
        ["kubeadmcontrolplane", "edge"],
        &status,
    )
    .await
}

fn configuration(text: &str) -> Value {
    json!({"spec": {"kubeadmConfigSpec": {"preKubeadmCommands": [format!("echo {text}")]}}})
}

async fn patch(planes: &Api<DynamicObject>, patch: &Value) -> kube::Result<DynamicObject> {
    let parameters = PatchParams::default();
    planes.patch("edge", &parameters, &Patch::Merge(patch)).await
}

async fn patched(planes: &Api<DynamicObject>, change: &Value) -> Result<()> {
    patch(planes, change)
        .await
        .with_context(|| format!("patching with {change}"))?;
    Ok(())
}

async fn scale(planes: &Api<DynamicObject>, replicas: u32) -> kube::Result<()> {
    let patch = json!({"spec": {"replicas": replicas}});
    planes
        .patch_scale("edge", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map(drop)
}

/// The message of a denial.
fn refusal<T>(answer: kube::Result<T>) -> Result<String> {
    match answer {
        Err(Error::Api(status)) => Ok(serde_json::to_string(&status)?),
        Err(error) => Err(error.into()),
        Ok(_) => anyhow::bail!("the write was admitted"),
    }
}

/// The same with a controller that runs: it is slower than two writes of one client.
#[test]
fn a_scale_right_after_a_change_is_refused_while_the_controller_runs() {
    with_controllers("observed", async |management| {
        let namespace = "observed";
        let cluster = Cluster::create(management.client(), namespace, "edge", 1, OLD).await?;
        cluster.settled(1).await?;
        let planes = resources::control_planes(management.client(), namespace);
        patched(&planes, &configuration("rolled-out")).await?;
        let denied = refusal(scale(&planes, 3).await)?;
        ensure!(denied.contains("(replicas-during-rollout)"), "{denied}");
        cluster.settled(1).await?;
        scale(&planes, 3).await.context("scaling after the rollout")?;
        cluster.settled(3).await?;
        cluster.delete().await
    });
}
