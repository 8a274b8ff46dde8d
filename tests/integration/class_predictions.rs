//! Compares `kubectl kcp plan cluster/NAME` with what Cluster API's controllers do to a cluster of a `ClusterClass` until the end: the
//! Machines of the control plane, minor version by minor version, and when the workers follow.

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kcp_tests::cluster::Cluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::runtime_extension::{HOOKS, RuntimeExtension};
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::predictions::{Seen, all_components_are_healthy, as_planned, clear_plan, plan, planned};
use crate::shared::with_controllers;
use crate::topology::topology_reconciled;

const NAMESPACE: &str = "class-predictions";
const OLD: &str = "v1.33.6";
const NEXT: &str = "v1.34.2";
const THIRD: &str = "v1.35.0";
const LAST: &str = "v1.36.3";

/// The hook that holds the second of two minor versions until its plan is made.
const HOLD: &str = "BeforeControlPlaneUpgrade";

#[test]
#[ignore = "takes minutes: make test-long"]
fn the_controllers_do_to_a_class_what_the_plan_says() {
    with_controllers(NAMESPACE, async |management| {
        let extension = RuntimeExtension::register(management.api(), NAMESPACE, "the test").await?;
        let predicted = predicted(management, &extension).await;
        extension.remove().await?;
        predicted
    });
}

async fn predicted(management: &ManagementCluster, extension: &RuntimeExtension) -> Result<()> {
    let steps = HOOKS
        .iter()
        .flat_map(|hook| [NEXT, THIRD, LAST].map(|version| (*hook, version)));
    for (hook, version) in steps.filter(|step| *step != (HOLD, LAST)) {
        extension.release(hook, version);
    }
    let cluster = Cluster::create_of_class(management.client(), NAMESPACE, "edge", 1, OLD).await?;
    cluster.settled(1).await?;
    cluster
        .patch_class(&json!({"spec": {"kubernetesVersions": [OLD, NEXT, THIRD, LAST]}}))
        .await?;
    let workers = json!({"machineDeployments": [{"class": "worker", "name": "md-0", "replicas": 1}]});
    cluster.patch_topology(&json!({"workers": workers})).await?;
    cluster.workers_ready(OLD).await?;

    let scaled = is_upgraded_and_scaled(management, &cluster).await;
    scaled.context("an upgrade that scales")?;
    let restart = ["rollout", "start", "cluster/edge", "--yes"];
    let rolled_out = as_planned(management, &cluster, &["--restart"], &restart, 3, 6).await;
    rolled_out.context("a rollout")?;
    let upgraded = is_upgraded_twice(management, &cluster, extension).await;
    upgraded.context("an upgrade over two minor versions")?;
    cluster.delete().await
}

/// One write changes the version and the number of Machines, which needs an override.
async fn is_upgraded_and_scaled(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let until = Timestamp::now() + SignedDuration::from_hours(1);
    let overridden = json!({"kubectl-kcp.dev/override-rules": format!("replicas-with-upgrade={until:.0}")});
    cluster
        .patch(&json!({"metadata": {"annotations": overridden}}))
        .await?;
    let (planned, document) = clear_plan(management, cluster, &["--to", NEXT, "--replicas=3"], 4).await?;
    let seen = Seen::begin(management, cluster).await?;
    cluster
        .patch_topology(&json!({"version": NEXT, "controlPlane": {"replicas": 3}}))
        .await?;
    seen.is(&planned).await?;
    ends_at(management, cluster, NEXT).await?;
    seen.is(&planned).await?;
    is_upgrade(
        &seen,
        &document,
        &json!([{"version": NEXT, "controlPlane": true, "workers": true}]),
    )
}

/// The plan before the upgrade has its versions and the Machines of the first one; the plan between the two has those of the second.
async fn is_upgraded_twice(
    management: &ManagementCluster,
    cluster: &Cluster,
    extension: &RuntimeExtension,
) -> Result<()> {
    let (first, whole) = clear_plan(management, cluster, &["--to", LAST], 6).await?;
    let seen = Seen::begin(management, cluster).await?;
    let upgrade = ["upgrade", "cluster/edge", "--to", LAST, "--yes"];
    let ended = management.kubectl().kcp(NAMESPACE, &upgrade).await?;
    ensure!(ended.code == 0, "{ended}");
    seen.is(&first).await?;

    let (second, rest) = wait::until("the hook blocks the second minor version", || async {
        cluster.is_settled(3).await?;
        all_components_are_healthy(management, cluster).await?;
        let (ended, document) = plan(management, cluster, &[]).await?;
        all_components_are_healthy(management, cluster).await?;
        let blockers = document.get("blockers").and_then(Value::as_array);
        let reasons: Vec<&Value> = blockers
            .into_iter()
            .flatten()
            .filter_map(|blocker| blocker.get("reason"))
            .collect();
        ensure!(ended.code == 1 && reasons == [&json!("lifecycleHook")], "{ended}");
        let second = planned(&document)?;
        ensure!(second.len() == 6, "{second:#?}");
        Ok((second, document))
    })
    .await?;
    seen.is(&first).await?;
    let seen_second = Seen::begin(management, cluster).await?;
    extension.release(HOLD, LAST);
    seen_second.is(&second).await?;
    ends_at(management, cluster, LAST).await?;
    seen_second.is(&second).await?;

    let last = json!({"version": LAST, "controlPlane": true, "workers": true});
    is_upgrade(&seen_second, &rest, &json!([last]))?;
    let third = json!({"version": THIRD, "controlPlane": true, "workers": false});
    is_upgrade(&seen, &whole, &json!([third, last]))
}

/// The upgrade that was planned and that has happened.
fn is_upgrade(seen: &Seen, document: &Value, expected: &Value) -> Result<()> {
    let planned = document.get("topologyUpgrade").unwrap_or(&Value::Null);
    ensure!(planned == expected, "planned: {planned}");
    let seen = seen.upgrade();
    ensure!(seen == *expected, "happened: {seen}");
    Ok(())
}

/// Waits until the topology controller is done, with all Machines at this version.
async fn ends_at(management: &ManagementCluster, cluster: &Cluster, version: &str) -> Result<()> {
    cluster.workers_ready(version).await?;
    wait::until("the topology is reconciled", || async {
        let condition = topology_reconciled(cluster, management).await?;
        ensure!(condition.get("status") == Some(&json!("True")), "{condition}");
        Ok(())
    })
    .await?;
    cluster.settled(3).await
}
