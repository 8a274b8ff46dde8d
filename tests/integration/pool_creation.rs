//! `kubectl kcp pool lease --create` on the real API server, with objects of earlier leases.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::fs;

use kcp_tests::kubectl::CommandOutput;
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::shared::with_management_cluster;

impl Hosts {
    /// Leases an entry for a cluster that is created from this install-config.
    async fn make_cluster(&self, name: &str, install_config: &str) -> CommandOutput {
        let file = self.kubectl.scratch_file(&format!("{name}.yaml"));
        fs::write(&file, install_config).unwrap();
        let install_config = format!("--install-config={}", file.display());
        let lease = [
            "lease",
            "hosts",
            "--cluster-deployment",
            name,
            "--create",
            "-o",
            "json",
        ];
        self.run(&[&lease[..], &[&install_config]].concat()).await
    }

    /// Deletes the cluster and releases its lease. The other objects of the cluster remain.
    async fn give_back(&self, name: &str) {
        let delete = ["delete", "clusterdeployment", name, "-n", name, "--wait=false"];
        self.kubectl.succeed(delete).await.unwrap();
        let release = ["release", "hosts", "--cluster-deployment", name];
        let released = self.run(&release).await;
        assert_eq!(released.code, 0, "{released}");
    }

    /// The install-config of a cluster, as base64.
    async fn installs(&self, name: &str) -> String {
        let cluster = self.object("clusterdeployment", name, name).await.unwrap();
        let secret = cluster
            .pointer("/spec/provisioning/installConfigSecretRef/name")
            .and_then(Value::as_str);
        let secret = self.object("secret", secret.unwrap(), name).await.unwrap();
        let data = secret
            .pointer("/data/install-config.yaml")
            .and_then(Value::as_str);
        data.unwrap().to_owned()
    }
}

const CONFIG: &str = "metadata:\n  name: generated\n";

/// The customization in the lease's document.
fn customization(told: &CommandOutput) -> String {
    assert_eq!(told.code, 0, "{told}");
    let document: Value = serde_json::from_str(&told.stdout).unwrap();
    let name = document.pointer("/customization/name").and_then(Value::as_str);
    name.unwrap().to_owned()
}

/// base64 of `metadata:\n  name: host-N\n`
fn named_after(host: &str) -> &'static str {
    if host == "host-0" {
        "bWV0YWRhdGE6CiAgbmFtZTogaG9zdC0wCg=="
    } else {
        "bWV0YWRhdGE6CiAgbmFtZTogaG9zdC0xCg=="
    }
}

#[test]
fn two_clusters_never_install_with_one_customization() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "creation-again", 2).await;
        let (lima, rome) = ("creation-again-lima", "creation-again-rome");
        let first = customization(&hosts.make_cluster(lima, CONFIG).await);
        assert_eq!(hosts.installs(lima).await, named_after(&first));
        hosts.give_back(lima).await;
        // Another cluster leases the released entry.
        let other = if first == "host-0" { "host-1" } else { "host-0" };
        let off = json!({"spec": {"inventory": [{"name": first}]}}).to_string();
        let full = json!({"spec": {"inventory": [{"name": "host-0"}, {"name": "host-1"}]}}).to_string();
        let patch = [
            "patch",
            "clusterpool",
            "hosts",
            "-n",
            hosts.namespace,
            "--type=merge",
            "-p",
        ];
        hosts
            .kubectl
            .succeed(patch.iter().copied().chain([off.as_str()]))
            .await
            .unwrap();
        assert_eq!(customization(&hosts.make_cluster(rome, CONFIG).await), first);
        hosts
            .kubectl
            .succeed(patch.iter().copied().chain([full.as_str()]))
            .await
            .unwrap();
        assert_eq!(customization(&hosts.make_cluster(lima, CONFIG).await), other);
        assert_eq!(hosts.installs(rome).await, named_after(&first));
        assert_eq!(hosts.installs(lima).await, named_after(other));
        // An existing cluster keeps its install-config.
        let told = hosts
            .make_cluster(lima, "metadata:\n  name: generated\nx: y\n")
            .await;
        assert_eq!(customization(&told), other);
        assert_eq!(hosts.installs(lima).await, named_after(other));

        // A changed copy is corrected, but not a copy that others created.
        hosts.give_back(lima).await;
        let kind = "clusterdeploymentcustomization";
        let patch = |patch: Value| {
            let patch = patch.to_string();
            let hosts = &hosts;
            async move {
                let patch = [
                    "patch",
                    kind,
                    other,
                    "-n",
                    lima,
                    "--type=merge",
                    "-p",
                    patch.as_str(),
                ];
                hosts.kubectl.succeed(patch).await.unwrap();
            }
        };
        patch(json!({"spec": {"installConfigPatches": [], "installerManifestPatches": []}})).await;
        assert_eq!(customization(&hosts.make_cluster(lima, CONFIG).await), other);
        let own = hosts.object(kind, other, hosts.namespace).await.unwrap();
        let copy = hosts.object(kind, other, lima).await.unwrap();
        assert_eq!(copy["spec"], own["spec"]);
        hosts.give_back(lima).await;
        let changed = json!({"installConfigPatches": []});
        patch(json!({"metadata": {"labels": {"kubectl-kcp.dev/pool-lease": null}}, "spec": changed})).await;
        let blocked = hosts.make_cluster(lima, CONFIG).await;
        assert_eq!(blocked.code, 1, "{blocked}");
        let why = format!("ClusterDeploymentCustomization {other} exists, but was not created for a lease");
        assert!(blocked.stderr.contains(&why), "{blocked}");
        assert_eq!(hosts.object("clusterdeployment", lima, lima).await, None);
    });
}

#[test]
fn rejects_an_invalid_namespace_name_before_it_leases() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "creation-name", 1).await;
        for name in ["creation.name", &"a".repeat(64)] {
            let refused = hosts.make_cluster(name, CONFIG).await;
            assert_eq!(refused.code, 1, "{refused}");
            let document: Value = serde_json::from_str(&refused.stdout).unwrap();
            assert_eq!(document["reason"], "blocked", "{refused}");
            assert_eq!(hosts.holder_of("host-0").await, None, "{refused}");
        }
    });
}

/// The message says how to use the namespace.
#[test]
fn a_namespace_of_others_is_found_before_an_entry_is_leased() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "creation-foreign", 1).await;
        let name = "creation-foreign-bern";
        management.create_namespace(name).await.unwrap();
        let blocked = hosts.make_cluster(name, CONFIG).await;
        assert_eq!(blocked.code, 1, "{blocked}");
        let label = "kubectl-kcp.dev/pool-lease=true";
        let hint = format!("to use it anyway, run: kubectl label namespace {name} {label}");
        assert!(blocked.stderr.contains(&hint), "{blocked}");
        assert_eq!(hosts.holder_of("host-0").await, None);
        hosts
            .kubectl
            .succeed(["label", "namespace", name, label])
            .await
            .unwrap();
        assert_eq!(customization(&hosts.make_cluster(name, CONFIG).await), "host-0");
    });
}

#[test]
fn clusters_that_are_created_at_once_stay_within_the_capacity_of_their_pool() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "creation-full", 4).await;
        hosts
            .patch(
                "clusterpool/hosts",
                hosts.namespace,
                &json!({"spec": {"maxSize": 1}}),
            )
            .await;
        let names = ["bern", "oslo", "rome", "lima"].map(|name| format!("creation-full-{name}"));
        let [bern, oslo, rome, lima] = &names;
        let (bern, oslo, rome, lima) = tokio::join!(
            hosts.make_cluster(bern, CONFIG),
            hosts.make_cluster(oslo, CONFIG),
            hosts.make_cluster(rome, CONFIG),
            hosts.make_cluster(lima, CONFIG),
        );
        let mut codes = [bern.code, oslo.code, rome.code, lima.code];
        codes.sort_unstable();
        assert_eq!(codes, [0, 1, 1, 1], "{bern}\n{oslo}\n{rome}\n{lima}");
        let mut clusters = 0;
        for name in &names {
            clusters += usize::from(hosts.object("clusterdeployment", name, name).await.is_some());
        }
        assert_eq!(clusters, 1);
        assert_eq!(hosts.run(&["status", "hosts"]).await.code, 0);
        let pool = hosts
            .object("clusterpool", "hosts", hosts.namespace)
            .await
            .unwrap();
        assert_eq!(
            pool.pointer("/metadata/annotations/kubectl-kcp.dev~1creating"),
            None,
            "{pool}"
        );
    });
}
