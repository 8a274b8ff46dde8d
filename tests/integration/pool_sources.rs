//! What Hive loses sight of: an inventory that a server with an old ClusterPool CRD drops, and Secrets that change after Hive has
//! created clusters from them.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use anyhow::{Result, ensure};
use kcp_tests::api_server::ApiServer;
use kcp_tests::assets::Assets;
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::wait::until;
use kcp_tests::{hive, manifests};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::hosts::Hosts;
use crate::objects::written;
use crate::pool_repair::LONG_AGO;
use crate::shared::with_management_cluster;

const BY_HIVE: &str = "--hive=yes";
const DROPS: &str = "the server's ClusterPool CRD has no field spec.inventory, so the server drops the inventory; upgrade \
                     Hive's CRDs";

/// Replaces the ClusterPool CRD with that of a Hive without inventories: the same without `spec.inventory`.
async fn serve_definition_without_inventory(api: &ApiServer) -> Result<()> {
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let removal = json!([
        {"op": "remove", "path": format!("{spec}/properties/inventory")},
        {"op": "remove", "path": format!("{spec}/x-kubernetes-preserve-unknown-fields")},
    ]);
    change_definition(api, removal).await
}

async fn change_definition(api: &ApiServer, patch: Value) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(api.client().clone());
    let patch: json_patch::Patch = serde_json::from_value(patch)?;
    definitions
        .patch(
            "clusterpools.hive.openshift.io",
            &PatchParams::default(),
            &Patch::Json::<()>(patch),
        )
        .await?;
    manifests::definitions_served(api.client()).await
}

fn pool(inventory: &Value) -> Value {
    json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterPool",
        "metadata": {"name": "hosts", "namespace": "default"},
        "spec": {
            "baseDomain": "example.com", "imageSetRef": {"name": "v4"}, "size": 1, "runningCount": 1,
            "platform": {"vsphere": {
                "certificatesSecretRef": {"name": "certificates"}, "credentialsSecretRef": {"name": "credentials"},
            }},
            "inventory": inventory,
        },
    })
}

#[test]
fn an_inventory_that_an_old_definition_drops_is_reported() {
    with_management_cluster(async |management| {
        let api = management.another_api_server("old-clusterpool").await.unwrap();
        hive::install_definitions(api.client()).await.unwrap();
        manifests::definitions_served(api.client()).await.unwrap();
        serve_definition_without_inventory(&api).await.unwrap();
        let assets = Assets::locate().unwrap();
        let kubectl = Kubectl::new(management.run(), &assets, api.kubeconfig()).unwrap();
        let kcp = async |arguments: &[&str]| -> CommandOutput {
            let command = ["kcp"].iter().chain(arguments);
            kubectl.run(command).await.unwrap()
        };
        until("the server publishes the old definition", || async {
            let pools = [pool(&json!([{"name": "host-a"}]))];
            written(&kubectl, "apply", &pools, &["--validate=false"]).await?;
            let status = kcp(&["pool", "status", "hosts", BY_HIVE]).await;
            ensure!(status.stdout.contains(DROPS), "{status}");
            Ok(())
        })
        .await
        .unwrap();
        let lost = format!(
            "the manifest that was last applied has an inventory (host-a), but the pool has none: {DROPS}, and apply the manifest again"
        );
        let status = kcp(&["pool", "status", "hosts", BY_HIVE, "-o", "json"]).await;
        assert_eq!(status.code, 1, "{status}");
        let document: Value = serde_json::from_str(&status.stdout).unwrap();
        assert_eq!(document["dropsInventory"], true);
        let problem = json!({"kind": "lost", "object": "clusterpool/hosts", "message": lost});
        assert_eq!(document["problems"], json!([problem]));

        let lease = kcp(&["pool", "lease", "hosts", "--cluster-deployment", "paris"]).await;
        assert_eq!(lease.code, 1, "{lease}");
        assert!(lease.stderr.contains(&lost), "{lease}");

        let file = kubectl.scratch_file("old-clusterpool.json");
        std::fs::write(&file, pool(&json!([{"name": "host-a"}])).to_string()).unwrap();
        let plan = kcp(&["plan", "-f", &file.display().to_string(), "-o", "json"]).await;
        let document: Value = serde_json::from_str(&plan.stdout).unwrap();
        let problems = document["problems"].as_array().unwrap();
        assert!(problems.contains(&json!(DROPS)), "{plan}");

        let lint = kcp(&["lint", "--cluster"]).await;
        assert!(lint.stdout.contains("(inventory-dropped)"), "{lint}");

        // With the new definition, the pool still lacks the inventory, until somebody applies the manifest again.
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
        let keep = json!([{"op": "add", "path": format!("{spec}/x-kubernetes-preserve-unknown-fields"), "value": true}]);
        change_definition(&api, keep).await.unwrap();
        until("the server publishes the new definition", || async {
            let status = kcp(&["pool", "status", "hosts", BY_HIVE]).await;
            ensure!(
                status
                    .stdout
                    .contains("or the server dropped it, because the ClusterPool CRD was older"),
                "{status}"
            );
            Ok(())
        })
        .await
        .unwrap();
    });
}

impl Hosts {
    /// The kind, object and message of each problem. Checks that the exit code is 1 only if there is a problem.
    async fn problem_rows(&self) -> Vec<[String; 3]> {
        let ended = self.run(&["status", "hosts", BY_HIVE, "-o", "json"]).await;
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        let problems = document["problems"].as_array().unwrap();
        assert_eq!(ended.code, i32::from(!problems.is_empty()), "{ended}");
        let text = |problem: &Value, field: &str| problem[field].as_str().unwrap().to_owned();
        let row = |problem: &Value| ["kind", "object", "message"].map(|field| text(problem, field));
        problems.iter().map(row).collect()
    }

    /// Creates a cluster, as Hive does, from this install-config.
    async fn cluster_of_hive(&self, name: &str, entry: &str, version: &str, replicas: u8) {
        self.cluster(name, entry, &["hive.openshift.io/deprovision"])
            .await;
        self.mark(entry, false, Some(name)).await;
        let made = json!({
            "metadata": {"annotations": {"hive.openshift.io/cluster-pool-spec-hash": version}},
            "spec": {"installed": true, "clusterMetadata": {
                "adminKubeconfigSecretRef": {"name": "admin"}, "clusterID": "id", "infraID": "infra",
            }},
        });
        self.patch(&format!("clusterdeployment/{name}"), name, &made)
            .await;
        let config = format!(
            "baseDomain: example.com\nmetadata:\n  creationTimestamp: null\n  name: {entry}\ncompute:\n- name: worker\n  replicas: \
             {replicas}\n"
        );
        self.make(&[secret(&format!("{name}-install-config"), &config)], name)
            .await;
    }
}

fn secret(name: &str, install_config: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "stringData": {"install-config.yaml": install_config},
    })
}

fn template(replicas: u8) -> Value {
    secret(
        "template",
        &format!("compute:\n- name: worker\n  replicas: {replicas}\n"),
    )
}

#[test]
fn clusters_that_are_older_than_the_template_are_reported() {
    with_management_cluster(async |management| {
        let namespace = "hive-old-template";
        let hosts = Hosts::create(management, namespace, 2).await;
        hosts.make(&[template(3)], namespace).await;
        let with_template = json!({"spec": {
            "size": 2, "runningCount": 2, "installConfigSecretTemplateRef": {"name": "template"}, "skipMachinePools": true,
        }});
        hosts.patch("clusterpool/hosts", namespace, &with_template).await;
        let status = hosts.run(&["status", "hosts", BY_HIVE, "-o", "json"]).await;
        let document: Value = serde_json::from_str(&status.stdout).unwrap();
        let version = document["version"].as_str().unwrap();
        for (cluster, entry) in [("hive-old-x", "host-0"), ("hive-old-y", "host-1")] {
            hosts.cluster_of_hive(cluster, entry, version, 3).await;
        }
        assert_eq!(hosts.problem_rows().await, Vec::<[String; 3]>::new());

        // The times of a Secret have whole seconds.
        until("the template changes in a later second than the clusters were created", || async {
            let replicas = json!({"stringData": {"install-config.yaml": "compute:\n- name: worker\n  replicas: 2\n"}});
            hosts.patch("secret/template", namespace, &replicas).await;
            let kinds: Vec<_> = hosts.problem_rows().await.into_iter().map(|[kind, ..]| kind).collect();
            let back = json!({"stringData": {"install-config.yaml": "compute:\n- name: worker\n  replicas: 3\n"}});
            // Otherwise, the next try would change nothing.
            hosts.patch("secret/template", namespace, &back).await;
            ensure!(kinds == ["stale", "stale"], "{kinds:?}");
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!(
            hosts.problem_rows().await,
            Vec::<[String; 3]>::new(),
            "the content is the same again"
        );
        let replicas =
            json!({"stringData": {"install-config.yaml": "compute:\n- name: worker\n  replicas: 0\n"}});
        hosts.patch("secret/template", namespace, &replicas).await;
        let rows = hosts.problem_rows().await;
        let objects: Vec<_> = rows
            .iter()
            .map(|[kind, object, _]| format!("{kind} {object}"))
            .collect();
        assert_eq!(objects, ["stale cd/hive-old-x", "stale cd/hive-old-y"]);
        let [_, _, message] = rows.first().unwrap();
        assert!(
            message.starts_with("secret/template, the install-config template, changed at ")
                && message.ends_with(
                    ", and the cluster's install-config differs from the one that Hive would create now; to replace the cluster, \
                     delete the ClusterDeployment"
                ),
            "{message}"
        );

        let found = ["hive-old-x old-secret none -", "hive-old-y old-secret none -"].map(str::to_owned);
        assert_eq!(hosts.repair(&["--yes", BY_HIVE]).await, (1, found.into()));
        for cluster in ["hive-old-x", "hive-old-y"] {
            let kept = hosts.object("clusterdeployment", cluster, cluster).await;
            assert!(kept.unwrap()["metadata"]["deletionTimestamp"].is_null());
        }

        let gone = json!({"metadata": {"finalizers": null}});
        hosts
            .patch("clusterdeployment/hive-old-x", "hive-old-x", &gone)
            .await;
        hosts
            .patch("clusterdeployment/hive-old-y", "hive-old-y", &gone)
            .await;
    });
}

#[test]
fn the_workers_of_a_template_beside_the_machine_pools_of_hive_are_a_problem() {
    with_management_cluster(async |management| {
        let namespace = "hive-workers";
        let hosts = Hosts::create(management, namespace, 1).await;
        hosts.make(&[template(0)], namespace).await;
        let with_template = json!({"spec": {"installConfigSecretTemplateRef": {"name": "template"}}});
        hosts.patch("clusterpool/hosts", namespace, &with_template).await;
        let workers = "the install-config template has 0 workers, but Hive changes the workers of each cluster to 3 after the \
                       installation; set spec.skipMachinePools to true to keep the workers of the template";
        let row = |kind: &str, object: &str, message: &str| [kind, object, message].map(str::to_owned);
        assert_eq!(
            hosts.problem_rows().await,
            [row("workers", "clusterpool/hosts", workers)]
        );
        let decided = json!({"spec": {"skipMachinePools": true}});
        hosts.patch("clusterpool/hosts", namespace, &decided).await;
        assert_eq!(hosts.problem_rows().await, Vec::<[String; 3]>::new());
    });
}

#[test]
fn a_cluster_that_does_not_resume_is_a_problem_while_claims_wait() {
    with_management_cluster(async |management| {
        let namespace = "hive-no-timeout";
        let hosts = Hosts::create(management, namespace, 1).await;
        let cluster = "hive-no-timeout-x";
        hosts.installed_cluster(cluster, "host-0").await;
        hosts.resumes(cluster).await;
        assert_eq!(hosts.problem_rows().await, Vec::<[String; 3]>::new());
        let claim = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterClaim", "metadata": {"name": "qa"},
            "spec": {"clusterPoolName": "hosts"},
        });
        hosts.make(&[claim], namespace).await;
        let message = format!(
            "the cluster has been resuming since {LONG_AGO}, and 1 ClusterClaim waits; without \
             spec.hibernationConfig.resumeTimeout of the pool, Hive never replaces the cluster; set it, or delete the ClusterDeployment"
        );
        let expected = ["failed", &format!("cd/{cluster}"), &message].map(str::to_owned);
        assert_eq!(hosts.problem_rows().await, [expected]);
    });
}
