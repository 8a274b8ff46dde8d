//! `kubectl kcp leader-migration start`: the real `KubeadmControlPlane` controller rolls out what it writes, and it does not
//! pass before the controller managers report leader migration. `rollback` removes it again.

use anyhow::{Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;

use super::MIGRATION;
use crate::shared::with_controllers;

const NAMESPACE: &str = "migration-start";

/// The name of the cluster.
const NAME: &str = "edge";

#[test]
fn start_installs_leader_migration_once_and_waits_for_every_controller_manager() {
    with_controllers(NAMESPACE, started);
}

async fn started(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, "v1.35.4").await?;
    cluster.settled(1).await?;
    let old = cluster.machines().await?;

    let nothing = start(management, &[]).await?;
    ensure!(
        nothing.code == 0
            && nothing
                .stdout
                .contains("nothing to migrate, because kube-controller-manager 1.35"),
        "{nothing}"
    );
    let planned = start(management, &["--node-ipam", "--dry-run=server", "-o", "yaml"]).await?;
    ensure!(
        planned.code == 0 && planned.stdout.contains("leaderName: migration"),
        "{planned}"
    );
    ensure!(cluster.machines().await? == old, "a dry run replaced a Machine");

    // The rollout takes longer than a second.
    let late = start(management, &["--node-ipam", "--wait=1s"]).await?;
    ensure!(
        late.code == 1
            && late
                .stdout
                .contains("leader migration enabled with Lease migration")
            && late.stdout.contains("timed out after 1s, still waiting for:\n"),
        "{late}"
    );
    wait::until("the rollout replaces the Machine", || async {
        let now = cluster.machines().await?;
        ensure!(now.len() == 1 && now != old, "{now:?}");
        Ok(())
    })
    .await?;
    cluster.settled(1).await?;

    // No controller manager runs in this Machine.
    let unproven = start(management, &["--node-ipam"]).await?;
    ensure!(
        unproven.code == 1
            && unproven
                .stdout
                .contains("does not report which controllers it runs"),
        "{unproven}"
    );

    let enabled = cluster.machines().await?;
    let arguments = ["rollback", NAME, "-n", NAMESPACE, "--yes", "--wait=9m"];
    let leader_migration = ["kcp", "leader-migration"].into_iter();
    let back = management
        .kubectl()
        .run(leader_migration.chain(arguments))
        .await?;
    ensure!(
        back.code == 0
            && back
                .stdout
                .contains("rolled back to the state before leader migration")
            && back
                .stdout
                .ends_with("the rollout of kubeadmcontrolplane/edge is complete\n"),
        "{back}"
    );
    // The wait ends after the rollout.
    cluster.is_settled(1).await?;
    ensure!(
        cluster.machines().await? != enabled,
        "the rollout replaced no Machine"
    );
    cluster.delete().await
}

async fn start(management: &ManagementCluster, more: &[&str]) -> Result<CommandOutput> {
    let arguments = [
        "kcp",
        "leader-migration",
        "start",
        NAME,
        "-n",
        NAMESPACE,
        "--to=v1.36.0",
        "--leader-name",
        MIGRATION,
        "--yes",
    ];
    management.kubectl().run(arguments.iter().chain(more)).await
}
