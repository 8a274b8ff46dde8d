//! A control plane's life under Cluster API's real controllers.

use std::time::Duration;

use anyhow::{Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::json;

use crate::shared::with_controllers;

const NAMESPACE: &str = "lifecycle";
const VERSION: &str = "v1.34.2";

/// From nothing to the first machine, or for one change of three machines. A quarter of it on an idle machine.
const LIMIT: Duration = Duration::from_secs(150);

#[test]
fn scales_up_and_rolls_out_without_a_denial() {
    with_controllers(NAMESPACE, scale_up_and_roll_out);
}

async fn scale_up_and_roll_out(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, "edge", 1, VERSION).await?;
    cluster.settled(1, LIMIT).await?;

    cluster.patch(&json!({"spec": {"replicas": 3}})).await?;
    cluster.settled(3, LIMIT).await?;

    let before = cluster.machines().await?;
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    cluster
        .patch(&json!({"spec": {"rollout": {"after": now}}}))
        .await?;
    cluster.settled(3, LIMIT).await?;
    let after = cluster.machines().await?;
    ensure!(
        after.iter().all(|machine| !before.contains(machine)),
        "{before:?} became {after:?}"
    );

    cluster.delete().await
}
