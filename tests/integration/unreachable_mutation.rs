//! With the mutating webhook alone unreachable, no update scales a control plane down.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::addresses::free_port;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::objects::{control_plane, write, written};
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "unreachable-mutation";
const CONFIGURATION: [&str; 2] = ["mutatingwebhookconfiguration", "admission.kubectl-kcp.dev"];

#[test]
fn omitted_replicas_never_scale_down_while_only_mutate_is_unreachable() {
    with_management_cluster(async |management| {
        omitted_replicas(management).await.unwrap();
    });
}

async fn omitted_replicas(management: &ManagementCluster) -> Result<()> {
    let cluster = management.another_without_ours(NAMESPACE).await?;
    cluster.create_namespace(NAMESPACE).await?;
    let _admission = cluster.install_ours().await?;
    let kubectl = cluster.kubectl();
    let here = ["-n", NAMESPACE];
    written(kubectl, "create", &[control_plane("three", 3, "v1.34.2")], &here).await?;

    let mut reduced = control_plane("three", 3, "v1.34.2");
    reduced
        .pointer_mut("/spec")
        .and_then(Value::as_object_mut)
        .context("no spec")?
        .remove("replicas");
    written(kubectl, "replace", &[reduced.clone()], &here).await?;
    ensure!(replicas(kubectl).await? == "3", "the default was not applied");

    make_unreachable(kubectl).await?;
    wait::until("the API server cannot reach /mutate", || async {
        let dry_run = ["-n", NAMESPACE, "--dry-run=server"];
        let created = write(
            kubectl,
            "create",
            &[control_plane("other", 3, "v1.34.2")],
            &dry_run,
        )
        .await?;
        ensure!(created.stderr.contains("failed calling webhook"), "{created}");
        Ok(())
    })
    .await?;
    let refused = write(kubectl, "replace", &[reduced], &here).await?;
    ensure!(
        refused.code == 1
            && refused
                .stderr
                .contains("failed calling webhook \"kubeadmcontrolplanes.mutate.kubectl-kcp.dev\""),
        "{refused}"
    );
    ensure!(replicas(kubectl).await? == "3", "the control plane was scaled");
    Ok(())
}

async fn replicas(kubectl: &Kubectl) -> Result<String> {
    let arguments = [
        "get",
        "kubeadmcontrolplane",
        "three",
        "-n",
        NAMESPACE,
        "-o",
        "jsonpath={.spec.replicas}",
    ];
    Ok(kubectl.succeed(arguments).await?.stdout)
}

/// Points every entry of the mutating configuration to a port at which no server listens.
async fn make_unreachable(kubectl: &Kubectl) -> Result<()> {
    let get = ["get", "-o", "json"];
    let read = kubectl.succeed(get.into_iter().chain(CONFIGURATION)).await?;
    let mut configuration: Value = serde_json::from_str(&read.stdout)?;
    let url = format!("https://127.0.0.1:{}/mutate", free_port()?);
    let webhooks = configuration.get_mut("webhooks").and_then(Value::as_array_mut);
    for webhook in webhooks.context("no webhooks")? {
        *webhook.pointer_mut("/clientConfig/url").context("no URL")? = json!(url);
    }
    written(kubectl, "replace", &[configuration], &[]).await?;
    Ok(())
}
