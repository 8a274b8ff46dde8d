//! `kubectl kcp lint --cluster`: the objects of a cluster that the webhook would deny once it is installed.

#![expect(
    clippy::indexing_slicing,
    reason = "a part that a JSON document lacks is null, and fails the test"
)]

use std::fs;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kcp_tests::api_server::ApiServer;
use kcp_tests::cluster::Cluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{hive, manifests, wait};
use serde_json::{Value, json};

use crate::objects::{control_plane, written};
use crate::shared::{with_controllers, with_management_cluster};

#[test]
fn lists_what_the_webhook_would_deny() {
    with_management_cluster(async |management| {
        let api = hive_alone(management).await.unwrap();
        let kubeconfig = api.kubeconfig().display().to_string();
        let lint = |flags: &[&str]| {
            let command = [
                "kcp",
                "lint",
                "--cluster",
                "-o",
                "json",
                "--kubeconfig",
                &kubeconfig,
            ];
            let command: Vec<String> = command.iter().chain(flags).map(|&word| word.to_owned()).collect();
            async move { management.kubectl().run(command).await.unwrap() }
        };

        let all = lint(&["-A"]).await;
        assert_eq!(all.code, 1, "{all}");
        let report: Value = serde_json::from_str(&all.stdout).unwrap();
        assert_eq!(
            found(&report),
            [
                ("one", "inventory-shared", "deny"),
                ("two", "inventory-name-unknown", "warn"),
                ("two", "inventory-shared", "deny"),
                ("unready", "patch-path-invalid", "deny"),
            ],
            "{all}"
        );
        assert_eq!(report["judged"], 3, "{all}");
        let not_served = report["notServed"].as_array().unwrap();
        assert!(
            not_served.contains(&json!("kubeadmcontrolplanes.controlplane.cluster.x-k8s.io")),
            "{all}"
        );

        let elsewhere = lint(&["-n", "kube-system"]).await;
        assert_eq!(elsewhere.code, 0, "{elsewhere}");
    });
}

/// The object, rule and action of each finding, sorted.
fn found(report: &Value) -> Vec<(&str, &str, &str)> {
    let findings = report.get("findings").and_then(Value::as_array);
    let mut found: Vec<_> = findings
        .into_iter()
        .flatten()
        .map(|finding| {
            let text = |pointer: &str| {
                finding
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            (text("/object/name"), text("/rule"), text("/action"))
        })
        .collect();
    found.sort_unstable();
    found
}

/// A cluster with Hive's definitions, but without Cluster API and our webhook.
async fn hive_alone(management: &ManagementCluster) -> Result<ApiServer> {
    let api = management.another_api_server("lint").await?;
    hive::install_definitions(api.client()).await?;
    manifests::definitions_served(api.client()).await?;
    let kubeconfig = api.kubeconfig().display().to_string();
    let pool = |name: &str, inventory: Value| {
        json!({
            "apiVersion": "hive.openshift.io/v1",
            "kind": "ClusterPool",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "baseDomain": "example.com",
                "imageSetRef": {"name": "release"},
                "platform": {"none": {}},
                "size": 1,
                "inventory": inventory,
            },
        })
    };
    let customization = json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterDeploymentCustomization",
        "metadata": {"name": "unready", "namespace": "default"},
        "spec": {"installConfigPatches": [{"op": "replace", "path": "metadata/name", "value": "a"}]},
    });
    let items = [
        pool("one", json!([{"name": "unready"}])),
        pool("two", json!([{"name": "unready"}, {"name": "absent"}])),
        customization,
    ];
    let file = management.run().folder().join("lint.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    fs::write(&file, serde_json::to_vec(&list)?).context("writing the objects")?;
    let file = file.display().to_string();
    let apply = ["apply", "--kubeconfig", &kubeconfig, "-f", &file];
    wait::until("the objects are created", || async {
        management.kubectl().succeed(apply).await.map(drop)
    })
    .await?;
    Ok(api)
}

/// Cluster API makes the Cluster the owner of each control plane. An owner alone makes no copy.
#[test]
fn adopted_control_planes_are_denied() {
    with_controllers("lint-adopted", adopted_and_faulty);
}

async fn adopted_and_faulty(management: &ManagementCluster) -> Result<()> {
    const NAMESPACE: &str = "lint-adopted";
    let faults = [
        ("one", "component-flag-unknown", "concurrent-service-syncs", "2"),
        ("two", "cloud-provider-removed", "cloud-provider", "aws"),
    ];
    let until = Timestamp::now() + SignedDuration::from_hours(1);
    let kubectl = management.kubectl();
    for (name, rule, flag, value) in faults {
        Cluster::create_without_control_plane(management.client(), NAMESPACE, name).await?;
        let mut object = control_plane(name, 1, "v1.37.0");
        object["metadata"]["annotations"] =
            json!({"kubectl-kcp.dev/override-rules": format!("{rule}={until:.0}")});
        object["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["controllerManager"] =
            json!({"extraArgs": [{"name": flag, "value": value}]});
        written(kubectl, "create", &[object], &["-n", NAMESPACE]).await?;
        let control_plane = ["kubeadmcontrolplane", name, "-n", NAMESPACE];
        wait::until(&format!("Cluster API adopts {name}"), || async {
            let owner = ["-o", "jsonpath={.metadata.ownerReferences[0].kind}"];
            let adopted = kubectl
                .succeed(["get"].iter().chain(&control_plane).chain(&owner))
                .await?;
            ensure!(adopted.stdout == "Cluster", "{adopted}");
            Ok(())
        })
        .await?;
        // The webhook allows what was wrong before.
        let annotate = ["annotate"].iter().chain(&control_plane);
        kubectl
            .succeed(annotate.chain(&["kubectl-kcp.dev/override-rules-"]))
            .await?;
    }

    let lint = kubectl
        .run(["kcp", "lint", "--cluster", "-n", NAMESPACE, "-o", "json"])
        .await?;
    let report: Value = serde_json::from_str(&lint.stdout).with_context(|| format!("{lint}"))?;
    let denied = faults.map(|(name, rule, ..)| (name, rule, "deny"));
    ensure!(lint.code == 1 && found(&report) == denied, "{lint}");

    // An exported object has the owner too.
    let exported = kubectl
        .succeed(["get", "kubeadmcontrolplane", "-n", NAMESPACE, "-o", "yaml"])
        .await?;
    let file = kubectl.scratch_file("exported.yaml");
    fs::write(&file, &exported.stdout).context("writing the export")?;
    let file = file.display().to_string();
    let lint = kubectl.run(["kcp", "lint", "-f", &file, "-o", "json"]).await?;
    let report: Value = serde_json::from_str(&lint.stdout).with_context(|| format!("{lint}"))?;
    ensure!(lint.code == 1 && found(&report) == denied, "{lint}");
    Ok(())
}

#[test]
fn a_missing_permission_is_named() {
    with_management_cluster(async |management| {
        let lint = management
            .kubectl()
            .run(["kcp", "lint", "--cluster", "-n", "default", "--as", "nobody"])
            .await
            .unwrap();
        assert_eq!(lint.code, 2, "{lint}");
        assert_eq!(
            lint.stderr.lines().next(),
            Some("error: cannot list clusters in namespace \"default\": forbidden for user \"nobody\""),
            "{lint}"
        );
    });
}

#[test]
fn an_object_is_checked_with_its_neighbours() {
    with_management_cluster(async |management| {
        beside_its_neighbours(management).await.unwrap();
    });
}

async fn beside_its_neighbours(management: &ManagementCluster) -> Result<()> {
    management.create_namespace("lint").await?;
    Cluster::create(management.client(), "lint", "one", 3, "v1.34.2").await?;
    // No webhook reviews a Cluster in this API server.
    let stray = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": "stray", "namespace": "lint"},
        "spec": {"controlPlaneRef": {
            "apiGroup": "controlplane.cluster.x-k8s.io",
            "kind": "KubeadmControlPlane",
            "name": "two",
        }},
    });
    let file = management.run().folder().join("lint-stray.json");
    fs::write(&file, serde_json::to_vec(&stray)?).context("writing the Cluster")?;
    let kubectl = management.kubectl();
    kubectl
        .succeed(["apply", "-f", &file.display().to_string()])
        .await?;

    let lint = kubectl
        .run(["kcp", "lint", "--cluster", "-n", "lint", "-o", "json"])
        .await?;
    let report: Value = serde_json::from_str(&lint.stdout).with_context(|| format!("{lint}"))?;
    let expected = [("stray", "control-plane-ref-unknown", "deny")];
    ensure!(found(&report) == expected && lint.code == 1, "{lint}");
    ensure!(
        report.get("judged") == Some(&json!(3)) && report.get("notServed").is_none(),
        "{lint}"
    );
    Ok(())
}
