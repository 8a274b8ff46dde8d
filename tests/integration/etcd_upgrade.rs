//! `kubectl kcp upgrade` to a version that brings etcd 3.6, on members that run etcd 3.5, under Cluster API's real controllers.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use serde_json::{Value, json};

use crate::rollouts::{OLD, Subject};
use crate::shared::with_controllers;

/// Before and after 3.5.26, from which an upgrade to 3.6 is safe.
const UNSAFE: &str = "3.5.23";
const SAFE: &str = "3.5.35";

impl Subject<'_> {
    async fn generation(&self) -> Result<i64> {
        let control_plane = self.cluster.get().await?;
        let generation = control_plane.pointer("/metadata/generation");
        generation.and_then(Value::as_i64).context("no generation")
    }
}

#[test]
#[ignore = "builds two versions of etcd, and takes minutes: make test-long"]
fn etcd_3_6_waits_until_every_member_runs_a_safe_version() {
    with_controllers("etcd-upgrade", async |management| {
        let client = management.client();
        let cluster = Cluster::create_with_etcd(client, "etcd-upgrade", "edge", OLD, UNSAFE).await?;
        let subject = Subject::of(management, "etcd-upgrade", cluster).await?;
        is_refused(&subject).await?;
        goes_through_from_a_safe_version(&subject).await?;
        subject.cluster.delete().await
    });
}

async fn is_refused(subject: &Subject<'_>) -> Result<()> {
    let machine = subject.cluster.machines().await?.concat();
    let runs = format!("{machine} runs {UNSAFE}");
    let before = subject.generation().await?;
    let finding = format!("runs etcd {UNSAFE}; before an upgrade to Kubernetes 1.34");
    subject.says("status edge", 0, &finding).await?;
    let refused = subject.says("upgrade edge --to v1.34.2 --yes", 1, &runs).await?;
    ensure!(refused.stderr.contains("use --force"), "{refused}");
    subject.says("plan edge --to v1.34.2", 1, &runs).await?;
    // etcd 3.6 is what matters, not the version of Kubernetes.
    subject
        .says(
            "upgrade edge --to v1.33.7 --dry-run=server",
            0,
            "(server dry run)",
        )
        .await?;
    subject
        .says(
            "upgrade edge --to v1.34.2 --force --dry-run=server",
            0,
            "(server dry run)",
        )
        .await?;
    ensure!(subject.generation().await? == before, "the spec has changed");
    Ok(())
}

async fn goes_through_from_a_safe_version(subject: &Subject<'_>) -> Result<()> {
    let image = json!({"etcd": SAFE, "image": "ubuntu-v1.33.7"});
    subject
        .cluster
        .add_machine_template("edge-1.33.7", &image)
        .await?;
    subject
        .cluster
        .add_machine_template("edge-1.34.2", &json!({}))
        .await?;
    let before = subject.generation().await?;
    let missing = subject
        .kcp("upgrade edge --to v1.33.7 --infrastructure-template none --yes")
        .await?;
    ensure!(missing.code == 2 && missing.stderr.contains("none"), "{missing}");
    let upgraded = subject
        .says(
            "upgrade edge --to v1.33.7 --infrastructure-template edge-1.33.7 --yes --wait=10m",
            0,
            "upgraded from v1.33.6 to v1.33.7, with infrastructure template edge-1.33.7",
        )
        .await?;
    ensure!(upgraded.stdout.contains("spec.template.spec.etcd"), "{upgraded}");
    ensure!(subject.generation().await? == before + 1, "more than one update");

    let stays = subject
        .says(
            "upgrade edge --to v1.34.2 --dry-run=server",
            0,
            "contains 1.33 in spec.template.spec.image",
        )
        .await?;
    ensure!(!stays.stdout.contains(" runs 3.5"), "{stays}");
    let upgraded = subject
        .says(
            "upgrade edge --to v1.34.2 --infrastructure-template edge-1.34.2 --yes --wait=10m",
            0,
            "with infrastructure template edge-1.34.2",
        )
        .await?;
    ensure!(!upgraded.stdout.contains("contains 1.33"), "{upgraded}");
    let status = subject.kcp("status edge -o json").await?;
    ensure!(
        status.code == 0 && status.stdout.contains("\"version\": \"3.6.") && !status.stdout.contains(SAFE),
        "{status}"
    );
    Ok(())
}
