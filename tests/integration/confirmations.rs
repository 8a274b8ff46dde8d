//! Commands that delete or replace something, without a terminal: each refuses without `--yes`, and changes nothing.

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::cluster::Cluster;
use serde_json::{Value, json};

use crate::shared::with_controllers;

const NAMESPACE: &str = "confirmations";
const NAME: &str = "edge";

#[test]
fn without_a_terminal_nothing_is_deleted_without_yes() {
    with_controllers(NAMESPACE, async |management| {
        let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.33.6").await?;
        cluster.settled(3).await?;
        let not_ready = json!({"type": "Ready", "status": "False", "timeoutSeconds": 3600});
        let checks = json!({"unhealthyNodeConditions": [not_ready]});
        cluster.check_health_with(&checks).await?;
        let machines = cluster.machines().await?;
        let [first, .., last] = machines.as_slice() else {
            bail!("the Machines are {machines:?}");
        };
        let file = management.kubectl().scratch_file("confirmations.db");
        let file = file.to_str().context("text")?;
        let before = state(&cluster).await?;
        for command in [
            &["scale", NAME, "--replicas", "1"][..],
            &["rollout", "start", NAME],
            &["rollout", "start", NAME, "--in", "8h"],
            &["rollout", "restart", NAME, "--snapshot", file],
            &["upgrade", NAME, "--to", "v1.34.2"],
            &["machine", "replace", last],
            &["machine", "remediate", last],
            &["machine", "replace", first],
            &["etcd", "defrag", NAME],
            &["etcd", "move-leader", NAME, "--member", first],
            &["etcd", "move-leader", NAME, "--member", last],
        ] {
            let ended = management.kubectl().kcp(NAMESPACE, command).await?;
            // One of the Machines already leads.
            let is_done = command.contains(&"move-leader") && ended.code == 0;
            let says = ended
                .stderr
                .contains("without confirmation: stdin or stderr is not a terminal")
                && ended.stderr.ends_with("hint: confirm with --yes\n");
            ensure!(is_done || (ended.code == 2 && says), "{command:?}: {ended}");
            ensure!(
                state(&cluster).await? == before,
                "{command:?} has changed something: {ended}"
            );
        }
        ensure!(!std::fs::exists(file)?, "a snapshot was saved");
        for command in [
            &["scale", NAME, "--replicas", "1", "--dry-run=client"][..],
            &["scale", NAME, "--replicas", "5", "--dry-run=server"],
            &["rollout", "start", NAME, "--dry-run=server"],
            &["machine", "replace", last, "--dry-run=server"],
            &["machine", "remediate", last, "--dry-run=client"],
            &["machine", "replace", first, "--dry-run=client"],
            &["etcd", "defrag", NAME, "--dry-run"],
        ] {
            let ended = management.kubectl().kcp(NAMESPACE, command).await?;
            ensure!(ended.code == 0, "{command:?}: {ended}");
        }
        let usage = management
            .kubectl()
            .kcp(NAMESPACE, &["rollout", "start", NAME, "--in", "8", "--yes"])
            .await?;
        ensure!(
            usage.code == 2 && usage.stderr.contains("the unit is missing: write 8s, 8m or 8h"),
            "{usage}"
        );
        ensure!(
            state(&cluster).await? == before,
            "a dry run has changed something"
        );
        // A scale up deletes nothing.
        let scaled = management
            .kubectl()
            .kcp(NAMESPACE, &["scale", NAME, "--replicas", "5", "--wait=10m"])
            .await?;
        ensure!(scaled.code == 0, "{scaled}");
        cluster.delete().await
    });
}

/// What the commands could change: the spec and the annotations of the control plane, and its Machines.
async fn state(cluster: &Cluster) -> Result<(Option<Value>, Option<Value>, Vec<String>)> {
    let object = cluster.get().await?;
    let part = |pointer| object.pointer(pointer).cloned();
    Ok((
        part("/spec"),
        part("/metadata/annotations"),
        cluster.machines().await?,
    ))
}
