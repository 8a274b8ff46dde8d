//! `kubectl kcp machine replace` of the first Machine: what exists only there is listed and refused, and the Machine is replaced.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{from_value, json};

use super::NAMESPACE;

pub(super) async fn replaces_the_first_machine(
    management: &ManagementCluster,
    cluster: &Cluster,
    workload: &WorkloadCluster,
) -> Result<()> {
    let first = first_machine(management).await?;
    let listed = format!("the first Machine is {first}, on {first}");
    let dry = replace(management, &first, &["--dry-run=client"]).await?;
    ensure!(
        dry.code == 0 && dry.stderr.contains(&listed) && dry.stdout.contains(&first),
        "{dry}"
    );
    let another = cluster.machines().await?;
    let another = another.iter().find(|name| **name != first);
    let other = replace(
        management,
        another.context("no other Machine")?,
        &["--dry-run=client"],
    );
    let other = other.await?;
    ensure!(
        other.code == 0 && !other.stderr.contains("the first Machine"),
        "{other}"
    );

    hold_data_and_a_pod(workload, &first).await?;
    let refused = replace(management, &first, &["--dry-run=client"]).await?;
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        format!("machine/{first} not replaced: refused by kubectl kcp"),
        "the data of PersistentVolume data is lost".to_owned(),
        "Pod default/pinned cannot run on another Node, because of its nodeSelector kubernetes.io/hostname"
            .to_owned(),
    ] {
        ensure!(
            refused.code == 1 && words(&refused.stdout).contains(&line),
            "{line:?}: {refused}"
        );
    }
    ensure!(
        words(&refused.stderr).contains(
            "the data of PersistentVolume data (claim: shop/data) is on the disk of the first Machine"
        ) && words(&refused.stderr).contains("hint: move the data and the Pods, or use --accept-loss"),
        "{refused}"
    );
    let accepted = replace(management, &first, &["--dry-run=client", "--accept-loss"]).await?;
    ensure!(accepted.code == 0, "{accepted}");
    let pods: Api<Pod> = Api::namespaced(workload.client()?.clone(), "default");
    pods.delete("pinned", &DeleteParams::default().grace_period(0))
        .await?;
    let volumes: Api<PersistentVolume> = Api::all(workload.client()?.clone());
    volumes.delete("data", &DeleteParams::default()).await?;
    // kube-controller-manager, which removes the finalizer of a volume, does not run.
    let unprotected = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes
        .patch("data", &PatchParams::default(), &unprotected)
        .await?;

    let replaced = replace(management, &first, &["--yes"]).await?;
    ensure!(replaced.code == 0, "{replaced}");
    wait::until("the first Machine is replaced", || async {
        cluster.is_settled(3).await?;
        ensure!(
            !cluster.machines().await?.contains(&first),
            "{first} still exists"
        );
        Ok(())
    })
    .await
}

async fn replace(management: &ManagementCluster, machine: &str, more: &[&str]) -> Result<CommandOutput> {
    let words = ["kcp", "machine", "replace", machine, "-n", NAMESPACE];
    management.kubectl().run(words.iter().chain(more)).await
}

/// The oldest control plane Machine.
async fn first_machine(management: &ManagementCluster) -> Result<String> {
    let machines = resources::machines(management.client(), NAMESPACE);
    let control_plane = ListParams::default().labels("cluster.x-k8s.io/control-plane");
    let machines = machines.list(&control_plane).await?;
    let oldest = machines
        .iter()
        .min_by_key(|machine| (machine.metadata.creation_timestamp.clone(), machine.name_any()));
    oldest.map(kube::ResourceExt::name_any).context("no Machine")
}

async fn hold_data_and_a_pod(workload: &WorkloadCluster, node: &str) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(workload.client()?.clone());
    let only = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}});
    let volume = json!({
        "metadata": {"name": "data"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/data"},
            "nodeAffinity": only, "claimRef": {"namespace": "shop", "name": "data"}},
    });
    volumes
        .create(&PostParams::default(), &from_value(volume)?)
        .await?;
    let pods: Api<Pod> = Api::namespaced(workload.client()?.clone(), "default");
    let pod = json!({
        "metadata": {"name": "pinned"},
        "spec": {"nodeName": node, "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "c"}]},
    });
    pods.create(&PostParams::default(), &from_value(pod)?).await?;
    Ok(())
}
