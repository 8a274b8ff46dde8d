//! Rules that depend on other objects, which the server reads with the shipped role.

use anyhow::{Result, ensure};
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use crate::objects::{cluster, control_plane, report, write, written};
use crate::shared::with_management_cluster;

#[test]
fn accepts_the_reversal_of_an_upgrade_until_a_machine_has_joined() {
    with_management_cluster(async |management| {
        downgrade(management).await.unwrap();
    });
}

async fn downgrade(management: &ManagementCluster) -> Result<()> {
    let namespace = "downgrade";
    let here = ["-n", namespace];
    management.create_namespace(namespace).await?;
    let kubectl = management.kubectl();
    written(kubectl, "apply", &cluster("edge", 1, "v1.34.2"), &here).await?;

    let reverted = written(kubectl, "apply", &[control_plane("edge", 1, "v1.33.6")], &here).await?;
    ensure!(reverted.stderr.contains("(version-reverted)"), "{reverted}");
    written(kubectl, "apply", &[control_plane("edge", 1, "v1.34.2")], &here).await?;
    let joined = json!({"nodeRef": {"name": "edge-1"}});
    report(kubectl, namespace, ["machine", "edge-1"], &joined).await?;

    // A manifest without the label applies to the object that has it.
    let mut bare = control_plane("edge", 1, "v1.33.6");
    if let Some(metadata) = bare.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("labels");
    }
    for lower in [control_plane("edge", 1, "v1.33.6"), bare] {
        let denied = write(kubectl, "apply", &[lower], &here).await?;
        ensure!(
            denied.code == 1 && denied.stderr.contains("(version-lowered)"),
            "{denied}"
        );
    }
    Ok(())
}

#[test]
fn rejects_a_customization_that_another_pool_lists() {
    with_management_cluster(async |management| {
        shared_inventory(management).await.unwrap();
    });
}

async fn shared_inventory(management: &ManagementCluster) -> Result<()> {
    let namespace = "shared-inventory";
    management.create_namespace(namespace).await?;
    let pool = |name: &str| {
        json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterPool", "metadata": {"name": name},
            "spec": {"platform": {"none": {}}, "baseDomain": "example.com", "imageSetRef": {"name": "release"},
                "size": 0, "inventory": [{"kind": "ClusterDeploymentCustomization", "name": "foo"}]}
        })
    };
    let customization = json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeploymentCustomization",
        "metadata": {"name": "foo"},
        "spec": {"installConfigPatches": [{"op": "replace", "path": "metadata/name", "value": "foo"}]}
    });
    let (kubectl, here) = (management.kubectl(), ["-n", namespace]);
    let mended = written(kubectl, "apply", &[customization, pool("first")], &here).await?;
    ensure!(
        mended
            .stderr
            .contains("added the leading slash that a JSON pointer must have"),
        "{mended}"
    );
    let denied = write(kubectl, "apply", &[pool("second")], &here).await?;
    ensure!(
        denied.code == 1 && denied.stderr.contains("(inventory-shared)"),
        "{denied}"
    );
    Ok(())
}
