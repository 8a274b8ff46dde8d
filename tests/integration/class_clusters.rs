//! The plugin changes a cluster of a `ClusterClass` through its Cluster, under Cluster API's real topology controller. The user has
//! the shipped roles only.

use anyhow::{Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use crate::roles;
use crate::shared::with_controllers;

const NAMESPACE: &str = "class-clusters";
const OPERATOR: &str = "class-operator";
const OLD: &str = "v1.33.6";
const NEXT: &str = "v1.34.2";
const LAST: &str = "v1.35.0";

struct Subject<'m> {
    management: &'m ManagementCluster,
    cluster: Cluster,
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_cluster_of_a_class_is_changed_through_its_cluster() {
    with_controllers(NAMESPACE, is_changed);
}

async fn is_changed(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create_of_class(management.client(), NAMESPACE, "edge", 1, OLD).await?;
    cluster.settled(1).await?;
    cluster
        .patch_class(&json!({"spec": {"kubernetesVersions": [OLD, NEXT, LAST]}}))
        .await?;
    roles::bind_operator(management.kubectl(), OPERATOR, NAMESPACE).await?;
    let subject = Subject { management, cluster };
    subject.scales().await?;
    subject.pauses().await?;
    subject.rolls_out().await?;
    subject.upgrades().await?;
    subject.says("status cluster/edge", 0, "Healthy").await?;
    subject.cluster.delete().await
}

impl Subject<'_> {
    async fn says(&self, command: &str, code: i32, text: &str) -> Result<CommandOutput> {
        let user = format!("--as={OPERATOR}");
        let arguments: Vec<&str> = command.split(' ').chain([user.as_str()]).collect();
        let kubectl = self.management.kubectl();
        let output = kubectl.kcp(NAMESPACE, &arguments).await?;
        ensure!(
            output.code == code && output.words().contains(text),
            "{text:?}, exit code {code}: {output}"
        );
        Ok(output)
    }

    async fn has(&self, path: &str, value: &Value) -> Result<()> {
        let cluster = self.cluster.get_cluster().await?;
        ensure!(
            cluster.pointer(path).unwrap_or(&Value::Null) == value,
            "{path}: {cluster:#}"
        );
        Ok(())
    }

    async fn scales(&self) -> Result<()> {
        let replicas = "/spec/topology/controlPlane/replicas";
        self.says("scale cluster/edge --replicas 2 --yes", 1, "(replicas-even)")
            .await?;
        self.says(
            "scale cluster/edge --replicas 3 --dry-run=server",
            0,
            "cluster/edge scaled from 1 to 3 (server dry run)",
        )
        .await?;
        self.has(replicas, &json!(1)).await?;
        let scaled = self
            .says(
                "scale cluster/edge --replicas 3 --wait=10m",
                0,
                "cluster/edge scaled from 1 to 3",
            )
            .await?;
        ensure!(
            scaled.stdout.ends_with("has 3 Machines, ready and up to date\n"),
            "{scaled}"
        );
        self.has(replicas, &json!(3)).await?;
        self.cluster.settled(3).await
    }

    async fn pauses(&self) -> Result<()> {
        self.says("rollout pause cluster/edge", 0, "cluster/edge paused")
            .await?;
        self.has("/spec/paused", &json!(true)).await?;
        self.cluster.has_condition("Paused", "True").await?;
        self.says("rollout pause cluster/edge", 0, "unchanged: already paused")
            .await?;
        self.says("scale cluster/edge --replicas 5", 1, "the Cluster is paused")
            .await?;
        self.says("rollout resume cluster/edge", 0, "cluster/edge resumed")
            .await?;
        self.has("/spec/paused", &Value::Null).await?;
        self.cluster.has_condition("Paused", "False").await
    }

    /// The topology sets no time of a rollout, so the control plane's own field does not go back.
    async fn rolls_out(&self) -> Result<()> {
        let before = self.cluster.machines().await?;
        self.says("rollout start cluster/edge --yes", 0, "rollout started")
            .await?;
        self.says("rollout status cluster/edge --watch --timeout=10m", 0, "complete")
            .await?;
        let after = self.cluster.machines().await?;
        ensure!(
            after.iter().all(|machine| !before.contains(machine)),
            "{before:?} became {after:?}"
        );
        Ok(())
    }

    /// Several minor versions in one write: Cluster API goes over those of the class.
    async fn upgrades(&self) -> Result<()> {
        let upgraded = self
            .says(
                &format!("upgrade cluster/edge --to {LAST} --yes --wait=20m"),
                0,
                &format!("cluster/edge upgraded from {OLD} to {LAST}"),
            )
            .await?;
        let versions = format!("upgrades the control plane through {NEXT}, {LAST}");
        ensure!(upgraded.words().contains(&versions), "{upgraded}");
        let end = format!("is at {LAST}, with all Machines ready and up to date\n");
        ensure!(upgraded.stdout.ends_with(&end), "{upgraded}");
        self.has("/spec/topology/version", &json!(LAST)).await?;
        self.cluster.settled(3).await
    }
}
