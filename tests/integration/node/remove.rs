//! Removal of Nodes: real evictions against real budgets. No controller computes the status of budgets here, so the test writes
//! it.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, from_value, json};

use super::{BareCluster, exists};
use crate::shared::with_run;

const SHOP: &str = "shop";

#[test]
fn a_node_is_removed_after_its_pods_or_only_cordoned() {
    with_run(async |run| {
        let cluster = BareCluster::start(run, "node-remove", &[]).await.unwrap();
        removed(&cluster).await.unwrap();
    });
}

async fn removed(cluster: &BareCluster) -> Result<()> {
    let namespace: Namespace = from_value(json!({"metadata": {"name": SHOP}}))?;
    let namespaces: Api<Namespace> = Api::all(cluster.api.client().clone());
    namespaces.create(&PostParams::default(), &namespace).await?;
    nodes_of_machines_are_refused(cluster).await?;
    the_only_control_plane_node_is_refused(cluster).await?;

    cluster.create_node("w1", &json!({}), &json!({})).await?;
    run_pod(cluster, "web-0", &json!({"app": "web"}), true).await?;
    run_pod(cluster, "batch-0", &json!({}), true).await?;
    losses_need_force(cluster).await?;
    allow(cluster, 0).await?;
    a_budget_delays_until_the_time_limit(cluster).await?;
    allow(cluster, 1).await?;
    the_node_is_deleted_last(cluster).await
}

fn pods(cluster: &BareCluster) -> Api<Pod> {
    Api::namespaced(cluster.api.client().clone(), SHOP)
}

/// Creates a ready pod on `w1`. No kubelet runs, so it disappears as soon as it is deleted only without a grace period.
async fn run_pod(cluster: &BareCluster, name: &str, labels: &Value, has_controller: bool) -> Result<()> {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]);
    let pod = json!({
        "metadata": {"name": name, "labels": labels, "ownerReferences": has_controller.then_some(owner)},
        "spec": {
            "nodeName": "w1", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "web", "image": "web"}],
        },
    });
    pods(cluster)
        .create(&PostParams::default(), &from_value(pod)?)
        .await?;
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods(cluster)
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// Sets how many disruptions the budget of `web-0` allows.
async fn allow(cluster: &BareCluster, disruptions: u8) -> Result<()> {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.api.client().clone(), SHOP);
    let budget = from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }))?;
    if budgets.get_opt("web").await?.is_none() {
        budgets.create(&PostParams::default(), &budget).await?;
    }
    let budget = budgets.get("web").await?;
    let status = json!({"status": {"observedGeneration": budget.metadata.generation, "disruptionsAllowed": disruptions,
        "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    budgets
        .patch_status("web", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

async fn is_cordoned(cluster: &BareCluster) -> Result<bool> {
    let node = cluster.nodes().get("w1").await?;
    Ok(node.spec.and_then(|spec| spec.unschedulable) == Some(true))
}

async fn has_pod(cluster: &BareCluster, name: &str) -> Result<bool> {
    Ok(pods(cluster).get_opt(name).await?.is_some())
}

async fn nodes_of_machines_are_refused(cluster: &BareCluster) -> Result<()> {
    let of_machine =
        json!({"cluster.x-k8s.io/machine": "edge-1", "cluster.x-k8s.io/cluster-namespace": "fleet"});
    for (name, labels, remedy) in [
        (
            "machine-worker",
            json!({}),
            "kubectl delete machine edge-1 -n fleet",
        ),
        (
            "machine-control-plane",
            json!({"node-role.kubernetes.io/control-plane": ""}),
            "kubectl kcp machine replace edge-1 -n fleet",
        ),
    ] {
        cluster.create_node(name, &labels, &of_machine).await?;
        let refused = cluster.node(&["remove", name, "--yes", "--force"]).await?;
        ensure!(
            refused.code == 1
                && refused.stdout.contains(&format!(
                    "Node {name} belongs to Machine fleet/edge-1 of Cluster API"
                ))
                && refused.stderr.contains(remedy),
            "{refused}"
        );
        let node = cluster.nodes().get(name).await?;
        ensure!(
            node.spec.and_then(|spec| spec.unschedulable).is_none(),
            "{name} is cordoned"
        );
        cluster
            .nodes()
            .delete(name, &kube::api::DeleteParams::default())
            .await?;
    }
    Ok(())
}

async fn the_only_control_plane_node_is_refused(cluster: &BareCluster) -> Result<()> {
    let labels = json!({"node-role.kubernetes.io/control-plane": ""});
    cluster.create_node("cp", &labels, &json!({})).await?;
    let refused = cluster.node(&["remove", "cp", "--yes"]).await?;
    ensure!(
        refused.code == 1
            && refused
                .stdout
                .contains("cp is the only Node of the control plane"),
        "{refused}"
    );
    Ok(())
}

async fn losses_need_force(cluster: &BareCluster) -> Result<()> {
    run_pod(cluster, "bare", &json!({}), false).await?;
    let refused = cluster.node(&["remove", "w1", "--yes", "-o", "json"]).await?;
    let document: Value = serde_json::from_str(&refused.stdout).with_context(|| format!("{refused}"))?;
    let reasons = json!(["no controller recreates pod shop/bare on another Node: the drain deletes it"]);
    ensure!(
        refused.code == 1
            && document.get("result") == Some(&json!("refused"))
            && document.get("reasons") == Some(&reasons)
            && refused.stderr.contains("--force"),
        "{refused}"
    );
    let unconfirmed = cluster.node(&["remove", "w1", "--force"]).await?;
    ensure!(
        unconfirmed.code == 2 && unconfirmed.stderr.contains("hint: confirm with --yes"),
        "{unconfirmed}"
    );
    let dry = cluster.node(&["remove", "w1", "--force", "--dry-run"]).await?;
    ensure!(
        dry.code == 0 && dry.stdout == "node/w1 removed (dry run): evicts 3 pods\n",
        "{dry}"
    );
    ensure!(
        !is_cordoned(cluster).await? && has_pod(cluster, "bare").await?,
        "something was changed"
    );
    Ok(())
}

async fn a_budget_delays_until_the_time_limit(cluster: &BareCluster) -> Result<()> {
    let file = cluster.file("unwritten.sh");
    let words = [
        "remove",
        "w1",
        "--yes",
        "--force",
        "--timeout",
        "5s",
        "--output-file",
        &file,
    ];
    let stopped = cluster.node(&words).await?;
    let expected = "node/w1 not removed: pods are left after 5s; only the cordon remains, and evicted pods run elsewhere\n  \
        PodDisruptionBudget shop/web allows no disruption of pod shop/web-0\n";
    ensure!(
        stopped.code == 1
            && stopped.stdout == expected
            && stopped
                .stderr
                .contains("warning: the drain waits: PodDisruptionBudget shop/web allows no disruption")
            && stopped
                .stderr
                .contains("hint: let pods run on the Node again with: kubectl uncordon w1"),
        "{stopped}"
    );
    ensure!(
        !exists(&file) && is_cordoned(cluster).await?,
        "not only the cordon remains"
    );
    let left = [
        has_pod(cluster, "web-0").await?,
        has_pod(cluster, "batch-0").await?,
        has_pod(cluster, "bare").await?,
    ];
    ensure!(left == [true, false, false], "{left:?}");
    Ok(())
}

async fn the_node_is_deleted_last(cluster: &BareCluster) -> Result<()> {
    let done = cluster.node(&["remove", "w1", "--yes"]).await?;
    ensure!(
        done.code == 0
            && done.stdout.starts_with("#!/bin/bash\n")
            && done.stdout.contains("\nnode_name='w1'\n")
            && done
                .stderr
                .contains("node/w1 removed: evicted 1 pod; run the script as root on the host"),
        "{done}"
    );
    ensure!(
        cluster.nodes().get_opt("w1").await?.is_none() && !has_pod(cluster, "web-0").await?,
        "the Node or its pod still exists"
    );
    let again = cluster.node(&["remove", "w1", "--yes"]).await?;
    ensure!(again.code == 2 && again.stderr.contains("not found"), "{again}");
    Ok(())
}
