//! A release of Cluster API that serves v1beta1 and not v1beta2: rules, defaults and reads. `tests/support-matrix` runs this test
//! with the programs of such a release.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use crate::objects::written;
use crate::schema;
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "v1beta1-only";
const NAME: &str = "old";

#[test]
#[ignore = "needs Cluster API 1.10: make support-matrix"]
fn cluster_api_without_v1beta2_is_guarded_and_read() {
    with_management_cluster(async |management| is_guarded_and_read(management).await.unwrap());
}

async fn is_guarded_and_read(management: &ManagementCluster) -> Result<()> {
    let kubectl = management.kubectl();
    let here = ["-n", NAMESPACE];
    management.create_namespace(NAMESPACE).await?;
    written(kubectl, "create", &[control_plane("1.33.6")], &here).await?;
    let defaults = "jsonpath={.apiVersion} {.spec.replicas} {.spec.version} {.spec.rolloutStrategy.rollingUpdate.maxSurge}";
    let stored = ["get", "kubeadmcontrolplane", NAME, "-o", defaults];
    let stored = kubectl.succeed(stored.iter().chain(&here)).await?.stdout;
    ensure!(
        stored == "controlplane.cluster.x-k8s.io/v1beta1 1 v1.33.6 1",
        "{stored}"
    );

    let scaled = ["scale", "kubeadmcontrolplane", NAME, "--replicas=4"];
    let scaled = kubectl.run(scaled.iter().chain(&here)).await?;
    let denial = "The KubeadmControlPlane \"old\" is invalid: spec.replicas: Invalid value: 4: with stacked etcd, 4 Machines \
                  tolerate no more failures than 3 would; set 3 or 5 (replicas-even)\n";
    ensure!(scaled.code == 1 && scaled.stderr == denial, "{scaled}");

    let status = ["kcp", "status", NAME, "-o", "json"];
    let status = kubectl.run(status.iter().chain(&here)).await?;
    let document: Value = serde_json::from_str(&status.stdout)?;
    schema::holds("controlplanestatus.json", &document)?;
    let found: BTreeSet<_> = document
        .pointer("/findings")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|finding| finding.get("id")?.as_str())
        .collect();
    // No controller runs, and there is neither a Cluster nor a template.
    let expected = [
        "infrastructure-template-missing",
        "management-unreadable",
        "secrets-missing",
        "status-missing",
    ];
    ensure!(found == BTreeSet::from(expected), "{found:?}");

    let version = kubectl.succeed(["kcp", "version", "-o", "json"]).await?.stdout;
    let version: Value = serde_json::from_str(&version)?;
    ensure!(version.to_string().contains(r#"["v1beta1"]"#), "{version:#}");
    Ok(())
}

fn control_plane(version: &str) -> Value {
    let template = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "StandInMachineTemplate", "name": NAME});
    json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "KubeadmControlPlane",
        "metadata": {"name": NAME, "labels": {"cluster.x-k8s.io/cluster-name": NAME}},
        "spec": {"version": version, "machineTemplate": {"infrastructureRef": template}, "kubeadmConfigSpec": {}}
    })
}
