//! Cluster API's own controllers and `clusterctl` change a cluster, and our webhooks refuse none of it.
//!
//! [`with_controllers`] fails if a webhook refused any write of a controller.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::shared::with_controllers;

const OLD: &str = "v1.33.6";
const NEW: &str = "v1.34.2";

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_cluster_is_upgraded_scaled_rolled_out_paused_and_deleted() {
    with_controllers("lifecycle", lifecycle);
}

async fn lifecycle(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), "lifecycle", "edge", 1, OLD).await?;
    cluster.settled(1).await?;
    cluster.add_worker(OLD).await?;

    cluster.patch(&json!({"spec": {"version": NEW}})).await?;
    cluster.settled(1).await?;
    has_version(&cluster, NEW).await?;

    cluster.patch(&json!({"spec": {"replicas": 3}})).await?;
    cluster.settled(3).await?;

    let before = cluster.machines().await?;
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    cluster
        .patch(&json!({"spec": {"rollout": {"after": now}}}))
        .await?;
    cluster.settled(3).await?;
    let after = cluster.machines().await?;
    ensure!(
        after.iter().all(|machine| !before.contains(machine)),
        "{before:?} became {after:?}"
    );

    let pause = |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
    cluster.patch(&pause(json!(""))).await?;
    cluster.has_condition("Paused", "True").await?;
    cluster.patch(&pause(Value::Null)).await?;
    cluster.has_condition("Paused", "False").await?;

    // The control plane and the worker still exist.
    cluster.delete().await
}

/// The topology controller writes all changes of a topology to the control plane at once.
#[test]
#[ignore = "takes minutes: make test-long"]
fn the_topology_controller_upgrades_and_scales_at_once() {
    with_controllers("topology", topology);
}

async fn topology(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create_of_class(management.client(), "topology", "edge", 1, OLD).await?;
    cluster.settled(1).await?;
    ensure!(
        cluster
            .get()
            .await?
            .pointer("/metadata/labels/topology.cluster.x-k8s.io~1owned")
            == Some(&json!("")),
        "the topology controller does not own {}",
        cluster.get().await?
    );
    let both = json!({"version": NEW, "controlPlane": {"replicas": 3}});
    let denied = cluster.patch_topology(&both).await;
    ensure!(
        denied.is_err_and(|error| format!("{error:#}").contains("(replicas-with-upgrade)")),
        "the webhook has admitted {both}"
    );
    // The annotation of the control plane also overrides rules for the Cluster.
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    let overridden = format!("replicas-with-upgrade={}", until.strftime("%Y-%m-%dT%H:%M:%SZ"));
    cluster
        .patch(&json!({"metadata": {"annotations": {"kubectl-kcp.dev/override-rules": overridden}}}))
        .await?;
    cluster.patch_topology(&both).await?;
    wait::until(
        "the topology controller has changed the control plane",
        || async {
            let control_plane = cluster.get().await?;
            let version = control_plane.pointer("/spec/version");
            ensure!(version == Some(&json!(NEW)), "its version is {version:?}");
            Ok(())
        },
    )
    .await?;
    cluster.settled(3).await?;
    has_version(&cluster, NEW).await?;
    // At the control plane, only the write of a person would have needed the override.
    let rule = r#"{rule="replicas-with-upgrade",decision="audit"}"#;
    let metrics = management.admission().metrics().await?;
    let counted = metrics.lines().find(|line| line.contains(rule));
    ensure!(counted.is_some(), "{rule} is not in\n{metrics}");
    cluster.delete().await
}

/// `clusterctl move` deletes the objects that it copied, although controllers run and workers exist.
#[test]
#[ignore = "takes minutes: make test-long"]
fn clusterctl_moves_a_cluster() {
    with_controllers("moved", moved);
}

async fn moved(management: &ManagementCluster) -> Result<()> {
    let namespace = "moved";
    let cluster = Cluster::create(management.client(), namespace, "edge", 1, NEW).await?;
    cluster.settled(1).await?;
    cluster.add_worker(NEW).await?;

    let kubectl = management.kubectl();
    let delete = [
        "delete",
        "kubeadmcontrolplane",
        "edge",
        "-n",
        namespace,
        "--dry-run=server",
    ];
    let denied = kubectl.run(delete).await?;
    ensure!(denied.stderr.contains("(control-plane-in-use)"), "{denied}");
    let annotation =
        json!({"metadata": {"annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}}});
    cluster.patch(&annotation).await?;
    kubectl.succeed(delete).await?;

    let target = management.another_without_ours("move-target").await?;
    let _admission = target.install_ours().await?;
    let to = target.kubectl().kubeconfig().display().to_string();
    kubectl
        .clusterctl(["move", "-n", namespace, "--to-kubeconfig", &to])
        .await?;
    for (client, machines) in [(management.client(), 0), (target.client(), 2)] {
        let list = resources::machines(client, namespace)
            .list(&ListParams::default())
            .await;
        let found = list.context("listing Machines")?.items.len();
        ensure!(
            found == machines,
            "there are {found} Machines instead of {machines}"
        );
    }
    Ok(())
}

async fn has_version(cluster: &Cluster, version: &str) -> Result<()> {
    let control_plane = cluster.get().await?;
    let lowest = control_plane.pointer("/status/version");
    ensure!(lowest == Some(&json!(version)), "{lowest:?} is not {version}");
    Ok(())
}
