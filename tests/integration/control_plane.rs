//! A control plane's life under Cluster API's real controllers.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use kcp_tests::admission::DOMAIN;
use kcp_tests::cluster::Cluster;
use kcp_tests::cluster_api::Scope;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::json;

use crate::shared::{turn, with_management_cluster};

const VERSION: &str = "v1.34.2";

/// From nothing to the first machine, or for one change of three machines. A quarter of it on an idle machine.
const LIMIT: Duration = Duration::from_secs(150);

#[test]
fn scales_up_and_rolls_out_without_a_denial() {
    with_management_cluster(async |management| {
        let namespace = "lifecycle";
        let lived = scale_up_and_roll_out(management, namespace).await;
        lived
            .and_then(|()| without_denials(management, namespace))
            .unwrap();
    });
}

async fn scale_up_and_roll_out(management: &ManagementCluster, namespace: &str) -> Result<()> {
    let _turn = turn().await;
    management.create_namespace(namespace).await?;
    management.start_controllers(Scope::Namespace(namespace)).await?;
    let cluster = Cluster::create(management.client(), namespace, "edge", 1, VERSION).await?;
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

    cluster.delete().await?;
    management.stop_controllers(Scope::Namespace(namespace)).await;
    Ok(())
}

/// Our webhooks must never stand in the way of Cluster API's controllers.
fn without_denials(management: &ManagementCluster, namespace: &str) -> Result<()> {
    let mut read = 0;
    for entry in fs::read_dir(management.run().logs())? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.starts_with(&format!("cluster-api-{namespace}-")) {
            continue;
        }
        read += 1;
        let text = fs::read_to_string(&path)?;
        let denial = text
            .lines()
            .find(|line| line.contains(DOMAIN) && line.contains("denied the request"));
        ensure!(
            denial.is_none(),
            "{}: {}",
            path.display(),
            denial.unwrap_or_default()
        );
    }
    ensure!(
        read == 3,
        "{read} logs of controllers were found instead of three"
    );
    Ok(())
}
