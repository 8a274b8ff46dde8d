//! `kubectl kcp leader-migration status`: each verdict, produced by real controller managers of a workload cluster.

mod scene;

use anyhow::{Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::controller_manager::{CLOUD_POD, CloudPod, Identity};
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::json;

use self::scene::{Scene, migrating, without_migration};
use super::{MIGRATION, configuration};
use crate::shared::with_controllers;

const NAMESPACE: &str = "migration-status";

/// The name of the cluster.
const NAME: &str = "edge";

const VERSION: &str = "v1.36.3";

const NODE_IPAM: &str = "node-ipam-controller";

/// kube-controller-manager after the handover of Node IPAM.
const WITHOUT_NODE_IPAM: &str = "--controllers=serviceaccount-token-controller";

#[test]
fn status_of_leader_migration_reaches_each_verdict() {
    with_controllers(NAMESPACE, verdicts);
}

async fn verdicts(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, VERSION).await?;
    cluster.settled(1).await?;
    let scene = Scene::set(management, &cluster).await?;
    nothing_to_migrate_then_runs_twice(&scene).await?;
    unprotected(&scene).await?;
    protected_then_unknown_then_stale(&scene).await?;
    orphaned_by_its_configuration(&scene).await?;
    orphaned_until_permitted(&scene).await?;
    cluster.delete().await
}

/// A stock kube-controller-manager runs Node IPAM. A cloud-controller-manager that also has it runs it a second time.
async fn nothing_to_migrate_then_runs_twice(scene: &Scene<'_>) -> Result<()> {
    let mut kube = scene.kube("alone", &[]).await?;
    let status = scene
        .comes_to(
            "nothing-to-migrate",
            0,
            &format!(
                "{} runs the controller, and no other controller manager can run it",
                scene.kube_pod
            ),
        )
        .await?;
    let manager = status.at("/controllerManagers/0");
    ensure!(
        manager.pointer("/settings/source") == Some(&json!("configz"))
            && manager.pointer("/settings/verified") == Some(&json!(true)),
        "{manager}"
    );
    let started = json!([NODE_IPAM, "serviceaccount-token-controller"]);
    ensure!(manager.get("controllers") == Some(&started), "{manager}");

    let mut cloud = scene
        .cloud("second", Identity::Administrator, &without_migration())
        .await?;
    let pods = format!("{} and {}", scene.kube_pod, CLOUD_POD);
    let reason = format!("{pods} run the controller at the same time");
    scene.comes_to("runs-twice", 1, &reason).await?;
    scene.end(&mut kube).await?;
    scene.end(&mut cloud).await
}

/// kube-controller-manager 1.36 runs with leader migration as long as it cannot take the migration lock. Its configuration
/// has the short name, so it runs Node IPAM under its main lock.
async fn unprotected(scene: &Scene<'_>) -> Result<()> {
    let text = configuration(&[NODE_IPAM]);
    let other = CloudPod {
        controllers: "service-lb-controller",
        ..migrating(&text)
    };
    let mut cloud = scene.cloud("holder", Identity::Administrator, &other).await?;
    scene.locks.held(MIGRATION).await?;
    let short = scene.programs.file("short.yaml", &configuration(&["nodeipam"]))?;
    let file = format!("--leader-migration-config={}", short.display());
    let mut kube = scene
        .kube("short-name", &["--enable-leader-migration=true", &file])
        .await?;
    let lock = "its main lock, Lease kube-controller-manager, although leader migration is enabled";
    let reason = format!("{} runs the controller under {lock}", scene.kube_pod);
    scene.comes_to("unprotected", 1, &reason).await?;
    scene.end(&mut kube).await?;
    scene.end(&mut cloud).await
}

/// After the handover, cloud-controller-manager holds the migration lock and runs Node IPAM. Then its Pod cannot be seen, and
/// then it is killed.
async fn protected_then_unknown_then_stale(scene: &Scene<'_>) -> Result<()> {
    let mut kube = scene.kube("after", &[WITHOUT_NODE_IPAM]).await?;
    let text = configuration(&[NODE_IPAM]);
    let cloud_pod = migrating(&text);
    let mut cloud = scene.cloud("after", Identity::Administrator, &cloud_pod).await?;
    let reason = format!("{CLOUD_POD} runs the controller and holds Lease {MIGRATION}");
    let status = scene.comes_to("protected", 0, &reason).await?;
    scene.checks_the_object_as_its_manifest(&cloud_pod).await?;
    let lease = status.lease(MIGRATION)?;
    let component = json!("cloud-controller-manager");
    for field in ["componentByHolder", "componentByFieldManager", "fieldManager"] {
        ensure!(lease.get(field) == Some(&component), "{field}: {lease}");
    }
    ensure!(lease.get("state") == Some(&json!("held")), "{lease}");

    scene.delete_cloud_pod().await?;
    let holder = scene.locks.holder("cloud-controller-manager").await?;
    let reason = format!(
        "{holder} renews Lease cloud-controller-manager, but no Pod of cloud-controller-manager was found"
    );
    scene.comes_to("unknown", 2, &reason).await?;

    scene.create_cloud_pod(&cloud_pod).await?;
    cloud.kill().await?;
    let reason = format!("{CLOUD_POD} does not run: nothing listens on port 10258");
    scene.comes_to("orphaned", 1, &reason).await?;
    let status = scene.comes_to_verdict("stale", 1).await?;
    let reason = status.reason();
    ensure!(
        reason.starts_with(&format!("{holder} has not renewed Lease {MIGRATION} for "))
            && reason.ends_with(", and no controller manager runs the controller"),
        "{reason}"
    );
    ensure!(
        status.lease(MIGRATION)?.get("state") == Some(&json!("expired")),
        "{status:?}"
    );
    scene.vacate_all().await?;
    scene.end(&mut kube).await
}

/// cloud-controller-manager renews the migration Lease, but its configuration assigns Node IPAM to the other component.
async fn orphaned_by_its_configuration(scene: &Scene<'_>) -> Result<()> {
    let mut kube = scene.kube("orphan", &[WITHOUT_NODE_IPAM]).await?;
    let other = configuration(&[NODE_IPAM]).replace("\"*\"", "kube-controller-manager");
    let mut cloud = scene
        .cloud("orphan", Identity::Administrator, &migrating(&other))
        .await?;
    scene.locks.held(MIGRATION).await?;
    let reason = format!("the configuration of {CLOUD_POD} assigns the controller to another component");
    let status = scene.comes_to("orphaned", 1, &reason).await?;
    ensure!(
        status.lease(MIGRATION)?.get("state") == Some(&json!("held")),
        "{status:?}"
    );
    scene.end(&mut kube).await?;
    scene.end(&mut cloud).await
}

/// cloud-controller-manager is healthy, but may not use the migration Lease, until the permissions are applied that
/// `generate` prints.
async fn orphaned_until_permitted(scene: &Scene<'_>) -> Result<()> {
    scene.permit_main_lock().await?;
    let mut kube = scene.kube("forbidden", &[WITHOUT_NODE_IPAM]).await?;
    let text = configuration(&[NODE_IPAM]);
    let cloud_pod = migrating(&text);
    let mut cloud = scene.cloud("forbidden", Identity::Own, &cloud_pod).await?;
    let reason = format!(
        "{CLOUD_POD} is healthy, but has not acquired Lease {MIGRATION}, which has no \
        holder"
    );
    let status = scene.comes_to("orphaned", 1, &reason).await?;
    // The group system:masters needs no review, so cloud-controller-manager answers although it may not create one.
    let settings = status.at("/controllerManagers/1/settings");
    ensure!(settings.get("source") == Some(&json!("configz")), "{settings}");

    scene.permit_migration_lock().await?;
    let reason = format!("{CLOUD_POD} runs the controller and holds Lease {MIGRATION}");
    scene.comes_to("protected", 0, &reason).await?;
    scene.end(&mut kube).await?;
    scene.end(&mut cloud).await
}
