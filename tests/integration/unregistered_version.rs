//! A version of control planes that the API server serves and our webhook configurations do not list: with `matchPolicy:
//! Equivalent`, the API server converts its writes for the webhook.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::objects::{control_plane, write, written};
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "unregistered-version";
const DEFINITION: &str = "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io";
const VERSION: &str = "controlplane.cluster.x-k8s.io/v1beta3";

#[test]
fn a_served_version_that_is_not_registered_is_reviewed_and_reported() {
    with_management_cluster(async |management| {
        third_version(management).await.unwrap();
    });
}

async fn third_version(management: &ManagementCluster) -> Result<()> {
    let cluster = management.another_without_ours(NAMESPACE).await?;
    cluster.create_namespace(NAMESPACE).await?;
    let kubectl = cluster.kubectl();
    let read = kubectl.succeed(["get", "crd", DEFINITION, "-o", "json"]).await?;
    let mut definition: Value = serde_json::from_str(&read.stdout)?;
    let versions = definition
        .pointer_mut("/spec/versions")
        .and_then(Value::as_array_mut)
        .context("no versions")?;
    let newest = versions
        .iter()
        .find(|version| version.get("name") == Some(&json!("v1beta2")));
    let mut third = newest.context("no v1beta2")?.clone();
    if let Some(third) = third.as_object_mut() {
        third.insert("name".to_owned(), json!("v1beta3"));
        third.insert("storage".to_owned(), json!(false));
    }
    // Without a conversion, all versions must have the same fields, which those of v1beta1 are not.
    for version in versions.iter_mut().filter_map(Value::as_object_mut) {
        if version.get("name") == Some(&json!("v1beta1")) {
            version.insert("served".to_owned(), json!(false));
        }
    }
    versions.push(third);
    // Cluster API's conversion webhook does not know the version, whose fields are those of v1beta2.
    *definition
        .pointer_mut("/spec/conversion")
        .context("no conversion")? = json!({"strategy": "None"});
    written(kubectl, "replace", &[definition], &[]).await?;

    wait::until("the version is discovered", || async {
        let group = kubectl
            .succeed(["get", "--raw", "/apis/controlplane.cluster.x-k8s.io"])
            .await?;
        ensure!(group.stdout.contains("v1beta3"), "{group}");
        Ok(())
    })
    .await?;
    let admission = cluster.install_ours().await?;
    let of = |replicas: u32| {
        let mut object = control_plane("third", replicas, "v1.34.2");
        if let Some(object) = object.as_object_mut() {
            object.insert("apiVersion".to_owned(), json!(VERSION));
        }
        object
    };
    let here = ["-n", NAMESPACE];
    wait::until("the version is served", || async {
        written(kubectl, "apply", &[of(3)], &here).await.map(drop)
    })
    .await?;
    let denied = write(kubectl, "apply", &[of(4)], &here).await?;
    ensure!(
        denied.code == 1 && denied.stderr.contains("(replicas-even)"),
        "{denied}"
    );
    let mut without = of(3);
    without
        .pointer_mut("/spec")
        .and_then(Value::as_object_mut)
        .context("no spec")?
        .remove("replicas");
    written(kubectl, "replace", &[without], &here).await?;
    let replicas = ["get", DEFINITION, "third", "-o", "jsonpath={.spec.replicas}"];
    let replicas = kubectl.succeed(replicas.iter().chain(&here)).await?.stdout;
    ensure!(replicas == "3", "omitted replicas became {replicas}");

    wait::until("the version is reported", || async {
        let metrics = admission.metrics().await?;
        let line = "kcp_webhook_unregistered_version{version=\"v1beta3\"} 1";
        ensure!(metrics.contains(line), "{line} is not in\n{metrics}");
        let ready = admission.readiness().await?;
        ensure!(ready.contains("[i]unregistered-version/v1beta3 "), "{ready}");
        ensure!(ready.ends_with("readyz check passed\n"), "{ready}");
        Ok(())
    })
    .await
}
