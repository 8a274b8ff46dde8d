//! The step `start` of `leader-migration generate`: the real `KubeadmControlPlane` controller rolls it out, and the next step is
//! refused before the controller managers report leader migration. `rollback` removes it again.

use anyhow::{Result, ensure};
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;

use super::MIGRATION;
use super::steps::{NODE_IPAM, Steps};
use crate::shared::with_controllers;

const NAMESPACE: &str = "migration-start";

/// The name of the cluster.
const NAME: &str = "edge";

#[test]
fn start_is_rolled_out_and_upgrade_waits_for_every_controller_manager() {
    with_controllers(NAMESPACE, started);
}

async fn started(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, "v1.35.4").await?;
    cluster.settled(1).await?;
    let old = cluster.machines().await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let steps = Steps {
        management,
        workload: &Kubectl::new(management.run(), &Assets::locate()?, workload.kubeconfig())?,
        namespace: NAMESPACE,
        name: NAME,
    };

    let reason = "nothing to migrate, because kube-controller-manager 1.35";
    steps
        .is_refused("start", &["--to", "v1.36.3", "--leader-name", MIGRATION], reason)
        .await?;
    let printed = steps.generate("start", &NODE_IPAM).await?;
    ensure!(
        printed.code == 0
            && printed.stdout.contains("kind: RoleBinding\n")
            && printed.stdout.contains("leaderName: migration"),
        "{printed}"
    );
    ensure!(cluster.machines().await? == old, "generate replaced a Machine");

    steps.take("start", &NODE_IPAM).await?;
    replaced(&cluster, &old).await?;
    // No controller manager runs in this Machine.
    steps
        .is_refused(
            "upgrade",
            &["--to", "v1.36.3"],
            "does not report which controllers it runs",
        )
        .await?;

    let enabled = cluster.machines().await?;
    steps.take("rollback", &[]).await?;
    replaced(&cluster, &enabled).await?;
    cluster.delete().await
}

/// Waits until the rollout has replaced the Machine.
pub(super) async fn replaced(cluster: &Cluster, old: &[String]) -> Result<()> {
    wait::until("the rollout replaces the Machine", || async {
        let now = cluster.machines().await?;
        ensure!(now.len() == 1 && now != old, "{now:?}");
        Ok(())
    })
    .await?;
    cluster.settled(1).await
}
