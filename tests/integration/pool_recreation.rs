//! `kubectl kcp pool repair --recreate` on the real API server creates missing clusters again.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::objects::written;
use crate::shared::with_management_cluster;

const CLUSTER: &str = "clusterdeployment";
const RECREATE: [&str; 4] = ["hosts", "--recreate", "--install-config", "secret/install-config"];

impl Hosts {
    /// The pool, and the install-config of its clusters.
    async fn with_install_config(
        management: &ManagementCluster,
        namespace: &'static str,
        size: usize,
    ) -> Self {
        let hosts = Self::create(management, namespace, size).await;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "install-config", "namespace": namespace},
            "stringData": {"install-config.yaml": "metadata:\n  name: generated\npullSecret: sesame\n"},
        });
        written(&hosts.kubectl, "create", &[secret], &[]).await.unwrap();
        hosts
    }

    /// Leases a customization, creates a cluster with it, and returns the customization's name.
    async fn lease_with_cluster(&self, cluster: &str) -> String {
        let create = ["--create", "--install-config", "secret/install-config"];
        let lease = ["lease", "hosts", "--cluster-deployment", cluster, "-o", "json"];
        let leased = self.run(&[&lease[..], &create].concat()).await;
        assert_eq!(leased.code, 0, "{leased}");
        let answer: Value = serde_json::from_str(&leased.stdout).unwrap();
        let name = answer.pointer("/customization/name").and_then(Value::as_str);
        name.unwrap().to_owned()
    }

    /// [`Self::repair`] without a grace period.
    async fn repair_at_once(&self, arguments: &[&str]) -> (i32, Vec<String>) {
        self.repair(&[&["--grace", "0s"], arguments].concat()).await
    }

    async fn recreate(&self, arguments: &[&str]) -> (i32, Vec<String>) {
        self.repair_at_once(&[&RECREATE[..], arguments].concat()).await
    }

    /// All objects of a cluster, without the fields that the server sets.
    async fn made(&self, cluster: &str, customization: &str) -> Vec<Option<Value>> {
        let secret = format!("{cluster}-{customization}-install-config");
        let mut made = Vec::new();
        for (kind, name) in [
            ("namespace", cluster),
            ("secret", &secret),
            ("clusterdeploymentcustomization", customization),
            (CLUSTER, cluster),
        ] {
            let mut object = self.object(kind, name, cluster).await;
            if let Some(metadata) = object
                .as_mut()
                .and_then(|object| object["metadata"].as_object_mut())
            {
                for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                    metadata.remove(field);
                }
            }
            made.push(object);
        }
        made
    }

    /// Deletes a cluster and its finalizer. Nothing releases its lease.
    async fn lose(&self, cluster: &str) {
        let none = json!({"metadata": {"finalizers": []}});
        self.patch(&format!("{CLUSTER}/{cluster}"), cluster, &none).await;
        self.delete(CLUSTER, cluster, cluster).await;
    }

    async fn delete(&self, kind: &str, name: &str, namespace: &str) {
        let delete = ["delete", kind, name, "-n", namespace];
        self.kubectl.succeed(delete).await.unwrap();
    }

    async fn change(&self, spec: Value) {
        let spec = json!({ "spec": spec });
        self.patch("clusterpool/hosts", self.namespace, &spec).await;
    }
}

#[test]
fn a_missing_cluster_is_recreated_as_its_lease_created_it() {
    with_management_cluster(async |management| {
        let hosts = Hosts::with_install_config(management, "recreate", 2).await;
        // The version of a pool on this platform is known.
        let aws = json!({"credentialsSecretRef": {"name": "aws-creds"}, "region": "region"});
        hosts
            .change(json!({"platform": {"none": null, "aws": aws}}))
            .await;
        let cluster = "recreate-paris";
        let host = hosts.lease_with_cluster(cluster).await;
        let first = hosts.made(cluster, &host).await;
        assert!(first.iter().all(Option::is_some), "{first:?}");
        assert_eq!(hosts.recreate(&[]).await, (0, vec![]));
        hosts.lose(cluster).await;
        let secret = format!("{cluster}-{host}-install-config");
        hosts.delete("secret", &secret, cluster).await;
        hosts
            .delete("clusterdeploymentcustomization", &host, cluster)
            .await;

        let told = |remedy: &str| vec![format!("{host} cluster-gone {remedy}")];
        assert_eq!(hosts.repair_at_once(&[]).await, (1, told("record -")));
        assert_eq!(hosts.recreate(&[]).await, (1, told("recreate -")));
        assert_eq!(hosts.object(CLUSTER, cluster, cluster).await, None);
        assert_eq!(hosts.recreate(&["--yes"]).await, (0, told("recreate done")));
        assert_eq!(hosts.made(cluster, &host).await, first);
        let made = hosts.object(CLUSTER, cluster, cluster).await.unwrap();
        let hash = "hive.openshift.io/cluster-pool-spec-hash";
        assert!(made["metadata"]["annotations"][hash].is_string(), "{made}");
        let entry = hosts
            .object("clusterdeploymentcustomization", &host, hosts.namespace)
            .await
            .unwrap();
        assert_eq!(entry["status"]["clusterDeploymentRef"]["name"], cluster);

        assert_eq!(hosts.recreate(&["--yes"]).await, (0, vec![]));
        assert_eq!(hosts.repair_at_once(&["--yes"]).await, (0, vec![]));
    });
}

#[test]
fn clusters_are_recreated_only_within_the_capacity_of_their_pool() {
    with_management_cluster(async |management| {
        let hosts = Hosts::with_install_config(management, "recreate-full", 3).await;
        let clusters = ["recreate-full-paris", "recreate-full-rome", "recreate-full-oslo"];
        let mut leased = Vec::new();
        for cluster in clusters {
            leased.push(hosts.lease_with_cluster(cluster).await);
        }
        for cluster in &clusters[..2] {
            hosts.lose(cluster).await;
        }
        leased.truncate(2);
        leased.sort();
        let told = |results: [&str; 2]| {
            let told = leased.iter().zip(results);
            told.map(|(host, result)| format!("{host} cluster-gone recreate {result}"))
                .collect::<Vec<_>>()
        };
        hosts.change(json!({"maxSize": 2})).await;
        assert_eq!(hosts.recreate(&[]).await, (1, told(["-", "-"])));
        assert_eq!(hosts.recreate(&["--yes"]).await, (1, told(["done", "blocked"])));
        let blocked = vec![format!("{} cluster-gone recreate blocked", leased[1])];
        assert_eq!(hosts.recreate(&["--yes"]).await, (1, blocked.clone()));
        let shown = hosts.run(&[&["repair", "--yes"], &RECREATE[..]].concat()).await;
        let why = "pool hosts cannot have another cluster now: maxSize is 2, and the pool has 2 clusters";
        assert!(shown.stderr.contains(why), "{shown}");

        hosts.change(json!({"maxSize": null, "maxConcurrent": 2})).await;
        assert_eq!(hosts.recreate(&["--yes"]).await, (1, blocked));
        hosts.change(json!({"maxConcurrent": 3})).await;
        let done = vec![format!("{} cluster-gone recreate done", leased[1])];
        assert_eq!(hosts.recreate(&["--yes"]).await, (0, done));
        for cluster in clusters {
            assert!(
                hosts.object(CLUSTER, cluster, cluster).await.is_some(),
                "{cluster}"
            );
        }
    });
}

#[test]
fn a_cluster_that_cannot_be_recreated_does_not_block_the_others() {
    with_management_cluster(async |management| {
        let hosts = Hosts::with_install_config(management, "recreate-blocked", 2).await;
        let usage = hosts.run(&["repair", "hosts", "--recreate"]).await;
        assert_eq!(usage.code, 2, "{usage}");
        assert!(usage.stderr.contains("--install-config"), "{usage}");

        let clusters = ["recreate-blocked-paris", "recreate-blocked-rome"];
        let mut leased = Vec::new();
        for cluster in clusters {
            leased.push(hosts.lease_with_cluster(cluster).await);
            hosts.lose(cluster).await;
        }
        // Its patch has a path that does not exist.
        let absent = json!({"spec": {"installConfigPatches": [{"op": "remove", "path": "/absent"}]}});
        let customization = format!("clusterdeploymentcustomization/{}", leased[0]);
        hosts.patch(&customization, hosts.namespace, &absent).await;
        let mut told = vec![
            format!("{} cluster-gone recreate blocked", leased[0]),
            format!("{} cluster-gone recreate done", leased[1]),
        ];
        told.sort();
        assert_eq!(hosts.recreate(&["--yes"]).await, (1, told));
        let kept = vec![format!("{} cluster-gone record done", leased[0])];
        assert_eq!(hosts.repair_at_once(&["--yes"]).await, (0, kept));
    });
}
