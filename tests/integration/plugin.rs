//! `kubectl kcp` as a user runs it: through the real kubectl, against the real API server.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::shared::with_management_cluster;

/// The size of a pool, and the number of its lessees.
const HOSTS: usize = 8;
const LESSEES: usize = 20;

#[test]
fn status_names_every_control_plane() {
    with_management_cluster(async |management| {
        let mut expected = BTreeSet::new();
        for (namespace, name) in [("status-a", "one"), ("status-a", "two"), ("status-b", "one")] {
            management.create_namespace(namespace).await.unwrap();
            // No controllers run in these namespaces. `status` must list control planes without status too.
            Cluster::create(management.client(), namespace, name, 3, "v1.34.2")
                .await
                .unwrap();
            expected.insert((namespace.to_owned(), name.to_owned()));
        }
        let status = management
            .kubectl()
            .run(["kcp", "status", "-A", "-o", "json"])
            .await
            .unwrap();
        // The exit code depends on the worst verdict, which is Unknown without a status.
        let list: Value = serde_json::from_str(&status.stdout).unwrap_or_else(|_| panic!("{status}"));
        assert_eq!(list["apiVersion"], "kubectl-kcp.dev/v1alpha1");
        assert_eq!(list["kind"], "ControlPlaneStatusList");
        // Other tests have control planes too.
        let named = names(&list["items"]).unwrap();
        assert!(
            named.is_superset(&expected),
            "{expected:?} are not all in {named:?}"
        );

        let own = management
            .kubectl()
            .run(["kcp", "status", "-n", "status-a", "-o", "json"])
            .await
            .unwrap();
        let list: Value = serde_json::from_str(&own.stdout).unwrap();
        expected.retain(|(namespace, _)| namespace == "status-a");
        assert_eq!(names(&list["items"]).unwrap(), expected);

        let nowhere = management.kubectl().run(["kcp", "status", "-n", "nowhere"]).await;
        let nowhere = nowhere.unwrap();
        assert_eq!((nowhere.code, nowhere.stdout.as_str()), (2, ""), "{nowhere}");
        let expected = "error: cannot get namespaces \"nowhere\": not found";
        assert!(nowhere.stderr.starts_with(expected), "{nowhere}");
    });
}

fn names(items: &Value) -> Result<BTreeSet<(String, String)>> {
    let items = items.as_array().context("no items")?;
    let text = |item: &Value, pointer: &str| item.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    items
        .iter()
        .map(|item| Some((text(item, "/metadata/namespace")?, text(item, "/metadata/name")?)))
        .collect::<Option<_>>()
        .context("an item without a name")
}

#[test]
fn parallel_leases_never_share_a_customization() {
    with_management_cluster(async |management| {
        create_pool(management, "leases", "hosts", HOSTS).await.unwrap();
        let mut racing = JoinSet::new();
        for number in 0..LESSEES {
            let kubectl = management.kubectl().clone();
            racing.spawn(async move {
                let lessee = format!("cluster-{number}");
                let lease = ["kcp", "pool", "lease", "hosts", "-n", "leases", "-o", "json"];
                kubectl
                    .run(lease.into_iter().chain(["--cluster-deployment", &lessee]))
                    .await
                    .unwrap()
            });
        }
        let mut leased = BTreeSet::new();
        let mut exhausted = 0;
        for ended in racing.join_all().await {
            let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"));
            match ended.code {
                0 => assert!(
                    leased.insert(customization(&answer).unwrap()),
                    "leased twice: {ended}"
                ),
                1 => {
                    assert_eq!(answer["reason"], "exhausted", "{ended}");
                    exhausted += 1;
                }
                _ => panic!("{ended}"),
            }
        }
        assert_eq!((leased.len(), exhausted), (HOSTS, LESSEES - HOSTS), "{leased:?}");
    });
}

#[test]
fn released_customization_can_be_leased_again() {
    with_management_cluster(async |management| {
        create_pool(management, "release", "hosts", 1).await.unwrap();
        let pool = async |verb: &str, lessee: &str| -> CommandOutput {
            let command = [
                "kcp",
                "pool",
                verb,
                "hosts",
                "-n",
                "release",
                "--cluster-deployment",
                lessee,
            ];
            management.kubectl().run(command).await.unwrap()
        };
        assert_eq!(pool("lease", "first").await.code, 0);
        let refused = pool("lease", "second").await;
        assert_eq!(refused.code, 1, "{refused}");
        assert_eq!(pool("release", "first").await.code, 0);
        let granted = pool("lease", "second").await;
        assert_eq!(granted.code, 0, "{granted}");
    });
}

fn customization(answer: &Value) -> Option<String> {
    Some(answer.pointer("/customization/name")?.as_str()?.to_owned())
}

/// Creates a `ClusterPool` with `size` customizations in its inventory, which our webhook reviews.
pub(crate) async fn create_pool(
    management: &ManagementCluster,
    namespace: &str,
    name: &str,
    size: usize,
) -> Result<()> {
    management.create_namespace(namespace).await?;
    let entries: Vec<String> = (0..size).map(|number| format!("host-{number}")).collect();
    let mut items: Vec<Value> = entries.iter().map(|entry| customization_object(entry)).collect();
    let inventory: Vec<Value> = entries.iter().map(|entry| json!({"name": entry})).collect();
    items.push(json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterPool",
        "metadata": {"name": name},
        "spec": {
            "baseDomain": "example.com",
            "imageSetRef": {"name": "openshift-v4.20"},
            "platform": {"none": {}},
            "size": 1,
            "inventory": inventory,
        },
    }));
    let file = management.run().folder().join(format!("pool-{namespace}.json"));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    fs::write(&file, serde_json::to_vec(&list)?).context("writing the pool")?;
    let file = file.display().to_string();
    let created = management
        .kubectl()
        .succeed(["create", "-n", namespace, "-f", &file])
        .await?;
    ensure!(created.stdout.lines().count() == size + 1, "{created}");
    Ok(())
}

fn customization_object(name: &str) -> Value {
    json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterDeploymentCustomization",
        "metadata": {"name": name},
        "spec": {"installConfigPatches": [{"op": "replace", "path": "/metadata/name", "value": name}]},
    })
}
