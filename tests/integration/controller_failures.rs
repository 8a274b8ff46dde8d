//! States in which Cluster API's controller fails at each attempt: the plugin names the cause before and after a change, and the
//! controller continues after what the hint says.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::shared::with_controllers;

const NAMESPACE: &str = "controller-failures";
const NAME: &str = "edge";

const OLD: &str = "v1.33.6";
const NEW: &str = "v1.34.2";

const IN_PROGRESS: &str = "controlplane.cluster.x-k8s.io/remediation-in-progress";

#[test]
#[ignore = "takes minutes: make test-long"]
fn causes_for_which_the_controller_fails_are_named() {
    with_controllers(NAMESPACE, are_named);
}

async fn are_named(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, OLD).await?;
    cluster.settled(1).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    a_rollout_needs_kubeadm_config(management, &cluster, &workload).await?;
    a_record_that_cannot_be_decoded_stops_scaling(management, &cluster).await?;
    a_machine_that_cannot_be_adopted_stops_everything(management, &cluster).await?;
    without_a_connection_no_machine_changes(management, &workload).await?;
    cluster.delete().await
}

async fn kcp(management: &ManagementCluster, arguments: &[&str]) -> Result<CommandOutput> {
    let place = ["-n", NAMESPACE];
    let arguments = ["kcp"].iter().chain(arguments).chain(&place);
    management.kubectl().run(arguments).await
}

/// Waits until a plan has exactly one blocker, with this reason.
async fn is_blocked(management: &ManagementCluster, change: &[&str], reason: &str) -> Result<()> {
    let plan = [&["plan", NAME, "-o", "json"], change].concat();
    wait::until(&format!("{change:?} is blocked by {reason}"), || async {
        let planned = kcp(management, &plan).await?;
        let document: Value = serde_json::from_str(&planned.stdout).with_context(|| planned.to_string())?;
        let blockers = document.get("blockers").and_then(Value::as_array);
        let reasons: Vec<&Value> = blockers
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.get("reason"))
            .collect();
        ensure!(planned.code == 1 && reasons == [reason], "{planned}");
        Ok(())
    })
    .await
}

/// Waits until `status` reports a failure of this check.
async fn is_reported(management: &ManagementCluster, check: &str) -> Result<()> {
    wait::until(&format!("status reports {check}"), || async {
        let status = kcp(management, &["status", NAME]).await?;
        ensure!(
            status.code == 1 && status.stdout.contains(&format!("({check})")),
            "{status}"
        );
        Ok(())
    })
    .await
}

/// Waits until a controller of the namespace has logged this text.
pub(crate) async fn is_logged(management: &ManagementCluster, namespace: &str, text: &str) -> Result<()> {
    wait::until(&format!("a controller logs {text:?}"), || async {
        has_logged(management, namespace, text)
    })
    .await
}

/// Succeeds if a controller of the namespace has logged this text.
pub(crate) fn has_logged(management: &ManagementCluster, namespace: &str, text: &str) -> Result<()> {
    for entry in std::fs::read_dir(management.run().logs())? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let is_own = name.is_some_and(|name| name.starts_with(&format!("cluster-api-{namespace}-")));
        if is_own && String::from_utf8_lossy(&std::fs::read(&path)?).contains(text) {
            return Ok(());
        }
    }
    anyhow::bail!("no log of {namespace} has {text:?}")
}

/// What the controller cannot update: `kubeadm-config`.
async fn a_rollout_needs_kubeadm_config(
    management: &ManagementCluster,
    cluster: &Cluster,
    workload: &WorkloadCluster,
) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(workload.client()?.clone(), "kube-system");
    let mut config = api.get("kubeadm-config").await?;
    api.delete("kubeadm-config", &DeleteParams::default()).await?;
    is_blocked(management, &["--to", NEW], "noKubeadmConfig").await?;
    is_reported(management, "kubeadm-config-unusable").await?;

    let before = cluster.machines().await?;
    cluster.patch(&json!({"spec": {"version": NEW}})).await?;
    is_logged(management, NAMESPACE, "failed to get kubeadmConfigMap").await?;
    ensure!(cluster.machines().await? == before, "a Machine was changed");
    config.metadata.resource_version = None;
    config.metadata.uid = None;
    api.create(&PostParams::default(), &config).await?;
    cluster.settled(1).await
}

async fn a_record_that_cannot_be_decoded_stops_scaling(
    management: &ManagementCluster,
    cluster: &Cluster,
) -> Result<()> {
    cluster
        .patch(&json!({"metadata": {"annotations": {IN_PROGRESS: "not JSON"}}}))
        .await?;
    is_blocked(management, &["--replicas", "3"], "malformedRemediation").await?;
    is_reported(management, "remediation-blocked").await?;

    let before = cluster.machines().await?;
    cluster.patch(&json!({"spec": {"replicas": 3}})).await?;
    is_logged(management, NAMESPACE, "failed to unmarshal value not JSON").await?;
    ensure!(cluster.machines().await? == before, "a Machine was changed");
    // The controller runs, but fails before it reports that it has processed the spec.
    let status = kcp(management, &["status", NAME]).await?;
    let words: Vec<&str> = status.stdout.split_whitespace().collect();
    let words = words.join(" ");
    let hint = format!("kubectl annotate kcp {NAME} -n {NAMESPACE} {IN_PROGRESS}-");
    ensure!(
        words.contains("has not processed generation") && words.contains(&hint),
        "{status}"
    );
    let remove = format!("{IN_PROGRESS}-");
    let hinted = ["annotate", "kcp", NAME, "-n", NAMESPACE, &remove];
    management.kubectl().succeed(hinted).await?;
    cluster.settled(3).await
}

/// Two minor versions from the control plane, a Machine without an owner is not adopted.
async fn a_machine_that_cannot_be_adopted_stops_everything(
    management: &ManagementCluster,
    cluster: &Cluster,
) -> Result<()> {
    let machines = resources::machines(management.client(), NAMESPACE);
    let names = cluster.machines().await?;
    let name = names.get(1).context("there is no second Machine")?;
    let patch = async |patch: Value| {
        machines
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    };
    // Otherwise the controller adopts the Machine between the two changes.
    cluster.pause(true).await?;
    patch(json!({"metadata": {"ownerReferences": null}, "spec": {"version": "v1.32.4"}})).await?;
    cluster.pause(false).await?;
    is_reported(management, "machines-not-owned").await?;
    is_blocked(management, &["--restart"], "cannotAdopt").await?;
    wait::until(
        "the controller reports why it does not adopt the Machine",
        || async {
            let events = ["get", "events", "-n", NAMESPACE, "-o", "json"];
            let events = management.kubectl().succeed(events).await?;
            ensure!(
                events
                    .stdout
                    .contains(&format!("Could not adopt Machine {NAMESPACE}/{name}")),
                "{events}"
            );
            Ok(())
        },
    )
    .await?;
    patch(json!({"spec": {"version": NEW}})).await?;
    // The controller does not watch a Machine without an owner.
    cluster
        .patch(&json!({"metadata": {"annotations": {"example.com/adopt": "again"}}}))
        .await?;
    wait::until("the controller adopts the Machine", || async {
        let owners = machines
            .get(name)
            .await?
            .metadata
            .owner_references
            .unwrap_or_default();
        ensure!(
            owners.iter().any(|owner| owner.kind == "KubeadmControlPlane"),
            "{owners:?}"
        );
        Ok(())
    })
    .await?;
    cluster.settled(3).await
}

async fn without_a_connection_no_machine_changes(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
) -> Result<()> {
    workload.freeze_api_server().await?;
    is_reported(management, "workload-disconnected").await?;
    // Nobody can ask etcd, so nobody can say that it has lost quorum.
    for command in [&["plan", NAME, "--replicas=5"][..], &["status", NAME]] {
        let shown = kcp(management, command).await?;
        ensure!(
            shown.code == 1
                && shown.stdout.contains("cannot connect to the workload cluster")
                && !shown.stdout.contains("lost quorum")
                && !shown.stdout.contains("lose quorum"),
            "{shown}"
        );
    }
    workload.thaw_api_server().await?;
    wait::until("status is healthy again", || async {
        let status = kcp(management, &["status", NAME]).await?;
        ensure!(status.code == 0, "{status}");
        Ok(())
    })
    .await
}
