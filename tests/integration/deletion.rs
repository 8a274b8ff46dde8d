//! Only the API server may set a deletionTimestamp, but it calls mutating webhooks before it drops the one that a
//! client sends.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use crate::objects::{control_plane, write, written};
use crate::shared::with_management_cluster;

#[test]
fn rejects_an_invalid_write_that_claims_a_deletion() {
    with_management_cluster(async |management| judged(management).await.unwrap());
}

async fn judged(management: &ManagementCluster) -> Result<()> {
    let namespace = "deletion";
    let here = ["-n", namespace];
    management.create_namespace(namespace).await?;
    let kubectl = management.kubectl();
    written(kubectl, "create", &[control_plane("live", 3, "v1.34.2")], &here).await?;

    let mut even = control_plane("live", 4, "v1.34.2");
    let metadata = even.pointer_mut("/metadata").and_then(Value::as_object_mut);
    let claimed = json!("2026-01-01T00:00:00Z");
    metadata
        .context("no metadata")?
        .insert("deletionTimestamp".to_owned(), claimed);
    let denied = write(kubectl, "replace", &[even], &here).await?;
    ensure!(
        denied.code == 1 && denied.stderr.ends_with("(replicas-even)\n"),
        "{denied}"
    );
    Ok(())
}
