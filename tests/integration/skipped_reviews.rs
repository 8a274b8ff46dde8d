//! The updates that skip our webhooks, so that a controller can always finish. The server's request counters show it.

use anyhow::{Result, ensure};
use kcp_tests::admission::Admission;
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use serde_json::{Value, json};

use crate::objects::{control_plane, report, written};
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "skipped-reviews";
const OBJECT: [&str; 2] = [
    "kubeadmcontrolplanes.v1beta2.controlplane.cluster.x-k8s.io",
    "held",
];
const DEPLOYMENTS: &str = "clusterdeployments.hive.openshift.io";
const DEPLOYMENT_ALONE: &str = "alone";
const DEPLOYMENT_OF_POOL: &str = "of-pool";

#[test]
fn updates_of_status_finalizers_and_deleted_objects_skip_reviews() {
    with_management_cluster(async |management| {
        let cluster = management.another_without_ours("skipped-reviews").await.unwrap();
        cluster.create_namespace(NAMESPACE).await.unwrap();
        let admission = cluster.install_ours().await.unwrap();
        control_planes_skip_reviews(cluster.kubectl(), &admission)
            .await
            .unwrap();
        cluster_deployments_skip_reviews(cluster.kubectl(), &admission)
            .await
            .unwrap();
    });
}

async fn control_planes_skip_reviews(kubectl: &Kubectl, admission: &Admission) -> Result<()> {
    written(
        kubectl,
        "create",
        &[control_plane("held", 3, "v1.34.2")],
        &["-n", NAMESPACE],
    )
    .await?;
    let before = reviews(admission).await?;
    changed(
        kubectl,
        OBJECT,
        &json!({"spec": {"kubeadmConfigSpec": {"preKubeadmCommands": ["true"]}}}),
    )
    .await?;
    let asked = reviews(admission).await?;
    ensure!(
        asked == before + 2,
        "a change is asked about {} times",
        asked - before
    );

    report(kubectl, NAMESPACE, OBJECT, &json!({"replicas": 3})).await?;
    let held = json!({"metadata": {"finalizers": ["example.com/held"], "labels": {"note": "x"}}});
    changed(kubectl, OBJECT, &held).await?;
    ensure!(
        reviews(admission).await? == asked,
        "asked about status or finalizers"
    );

    let delete = ["delete", "-n", NAMESPACE, "--wait=false"];
    kubectl.succeed(delete.into_iter().chain(OBJECT)).await?;
    let deletion = reviews(admission).await?;
    ensure!(
        deletion == asked + 1,
        "a deletion is asked about {} times",
        deletion - asked
    );
    changed(
        kubectl,
        OBJECT,
        &json!({"spec": {"rollout": {"strategy": {"rollingUpdate": {"maxSurge": "50%"}}}}}),
    )
    .await?;
    changed(kubectl, OBJECT, &json!({"metadata": {"finalizers": null}})).await?;
    ensure!(
        reviews(admission).await? == deletion,
        "asked about what is being deleted"
    );
    Ok(())
}

/// The webhook reviews only a `ClusterDeployment`'s reference to a pool, because Hive writes the rest all the time.
async fn cluster_deployments_skip_reviews(kubectl: &Kubectl, admission: &Admission) -> Result<()> {
    let deployment = |name: &str, pool: Value| {
        json!({
            "apiVersion": "hive.openshift.io/v1",
            "kind": "ClusterDeployment",
            "metadata": {"name": name},
            "spec": {"baseDomain": "example.com", "clusterName": name, "platform": {}, "clusterPoolRef": pool},
        })
    };
    let before = reviews(admission).await?;
    let alone = deployment(DEPLOYMENT_ALONE, Value::Null);
    written(kubectl, "create", &[alone], &["-n", NAMESPACE]).await?;
    let installed = json!({"spec": {"installed": true}, "metadata": {"labels": {"note": "x"}}});
    changed(kubectl, [DEPLOYMENTS, DEPLOYMENT_ALONE], &installed).await?;
    ensure!(
        reviews(admission).await? == before,
        "asked about a ClusterDeployment of no pool"
    );

    let pooled = deployment(
        DEPLOYMENT_OF_POOL,
        json!({"namespace": NAMESPACE, "poolName": "pool"}),
    );
    written(kubectl, "create", &[pooled], &["-n", NAMESPACE]).await?;
    let created = reviews(admission).await?;
    ensure!(
        created == before + 2,
        "a ClusterDeployment made for a pool is asked about {} times",
        created - before
    );
    changed(kubectl, [DEPLOYMENTS, DEPLOYMENT_OF_POOL], &installed).await?;
    ensure!(
        reviews(admission).await? == created,
        "asked although the reference stays"
    );
    let claimed = json!({"spec": {"clusterPoolRef": {"claimName": "one"}}});
    changed(kubectl, [DEPLOYMENTS, DEPLOYMENT_OF_POOL], &claimed).await?;
    let asked = reviews(admission).await?;
    ensure!(
        asked == created + 2,
        "a claim is asked about {} times",
        asked - created
    );
    Ok(())
}

async fn changed(kubectl: &Kubectl, object: [&str; 2], patch: &Value) -> Result<CommandOutput> {
    let patch = patch.to_string();
    let arguments = ["patch", "-n", NAMESPACE, "--type=merge", "-p", &patch];
    kubectl.succeed(arguments.into_iter().chain(object)).await
}

/// The number of reviews that the server answered.
async fn reviews(admission: &Admission) -> Result<u64> {
    let metrics = admission.metrics().await?;
    let counted = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("controller_runtime_webhook_requests_total{"))
        .filter_map(|rest| rest.rsplit_once(' ')?.1.parse::<u64>().ok());
    Ok(counted.sum())
}
