//! A machine loses power and Cluster API replaces it, while our webhook reviews its writes.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::shared::with_controllers;

const NAMESPACE: &str = "remediation";

#[test]
fn replaces_a_machine_that_lost_its_etcd_member() {
    with_controllers(NAMESPACE, replace_a_machine);
}

async fn replace_a_machine(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, "edge", 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    let before = cluster.machines().await?;
    // Not the first machine, which started the processes that all machines share.
    let victim = before.get(1).context("there is no second Machine")?;

    cluster.check_health().await?;
    let workload = management.machines().cluster(NAMESPACE, "edge").await?;
    workload.inflict(Fault::Kill, victim).await?;
    let machines = resources::machines(management.client(), NAMESPACE);
    let remediate = json!({"metadata": {"annotations": {"cluster.x-k8s.io/remediate-machine": ""}}});
    machines
        .patch(victim, &PatchParams::default(), &Patch::Merge(&remediate))
        .await?;

    wait::until(&format!("{victim} is replaced"), || async {
        let now = cluster.machines().await?;
        ensure!(
            !now.contains(victim) && now.len() == 3,
            "the machines are {now:?}"
        );
        Ok(())
    })
    .await?;
    cluster.settled(3).await?;
    let after = cluster.machines().await?;
    let survivors = before.iter().filter(|machine| after.contains(machine)).count();
    ensure!(survivors == 2, "{before:?} became {after:?}");
    cluster.delete().await
}
