//! `kubectl kcp plan -f` of a ClusterPool on the real API server: the effect of a change to a pool. It writes nothing.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::fs;
use std::path::PathBuf;

use kcp_tests::kubectl::CommandOutput;
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::schema;
use crate::shared::with_management_cluster;

impl Hosts {
    async fn clusterpool(&self) -> Value {
        let pool = self.object("clusterpool", "hosts", self.namespace).await;
        pool.unwrap()
    }

    fn file(&self, pools: &[&Value]) -> PathBuf {
        let file = self.kubectl.scratch_file(&format!("{}.yaml", self.namespace));
        let documents: Vec<String> = pools.iter().map(ToString::to_string).collect();
        fs::write(&file, documents.join("\n---\n")).unwrap();
        file
    }

    async fn plan(&self, pools: &[&Value], arguments: &[&str]) -> CommandOutput {
        let file = self.file(pools).display().to_string();
        let plan = ["kcp", "plan", "-n", self.namespace, "-f", &file];
        self.kubectl.run(plan.iter().chain(arguments)).await.unwrap()
    }

    /// The exit code and the document, which matches its schema.
    async fn planned(&self, pool: &Value) -> (i32, Value) {
        let ended = self.plan(&[pool], &["-o", "json"]).await;
        assert_eq!(ended.stderr, "", "{ended}");
        let document = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"));
        schema::holds("poolplan.json", &document).unwrap();
        (ended.code, without_versions(document))
    }
}

/// The document without the two versions, which are hashes; they differ only if the plan says so.
fn without_versions(mut document: Value) -> Value {
    let changes = document.pointer("/version/changes") == Some(&Value::Bool(true));
    let mut take = |path| document.pointer_mut(path).map(Value::take);
    let (before, after) = (take("/version/before"), take("/version/after"));
    assert_eq!(before != after, changes, "{before:?} {after:?}");
    document
}

#[test]
fn a_plan_reports_what_a_change_makes_stale() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-plan", 2).await;
        hosts.cluster("pool-plan-paris", "host-0", &[]).await;
        let pool = hosts.clusterpool().await;
        // Hive's mark of the clusters that it creates. A cluster without the pool's version is stale already.
        let plan = hosts.plan(&[&pool], &["-o", "json"]).await;
        let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
        let version = plan["version"]["before"].as_str().unwrap();
        let mark = format!("hive.openshift.io/cluster-pool-spec-hash={version}");
        let cluster = ["clusterdeployment", "pool-plan-paris", "-n", "pool-plan-paris"];
        let annotate = ["annotate"].into_iter().chain(cluster).chain([mark.as_str()]);
        hosts.kubectl.succeed(annotate).await.unwrap();
        hosts.leases("rome").await;
        let before = hosts.clusterpool().await;
        let document = |changes: bool, stale: Value, entries: Value, problems: Value| {
            json!({
                "apiVersion": "kubectl-kcp.dev/v1alpha1", "kind": "PoolPlan",
                "metadata": {"namespace": "pool-plan", "name": "hosts"},
                "new": false, "runByHive": false,
                "version": {"before": null, "after": null, "changes": changes},
                "stale": stale, "excess": 0, "entries": entries, "problems": problems,
            })
        };
        let stale = |reason: &str| {
            let name = "pool-plan-paris";
            json!([{"namespace": name, "name": name, "reason": reason}])
        };
        let unchanged = document(false, json!([]), json!([]), json!([]));
        assert_eq!(hosts.planned(&before).await, (0, unchanged));

        let mut other_image = before.clone();
        other_image["spec"]["imageSetRef"]["name"] = json!("openshift-v4.21");
        let replaced = document(true, stale("version"), json!([]), json!([]));
        assert_eq!(hosts.planned(&other_image).await, (1, replaced));

        let mut other_hosts = before.clone();
        other_hosts["spec"]["inventory"] = json!([{"name": "host-9"}]);
        let entry = |name: &str, change: &str, effect: &str, message: &str| json!({"name": name, "change": change, "effect": effect, "message": message});
        let becomes_stale = "unclaimed ClusterDeployment pool-plan-paris becomes stale";
        let entries = json!([
            entry(
                "host-9",
                "added",
                "missing",
                "the customization does not exist yet"
            ),
            entry("host-0", "dropped", "cluster-stale", becomes_stale),
            entry(
                "host-1",
                "dropped",
                "held",
                "stays reserved until rome releases it"
            ),
        ]);
        let missing = json!(["customization host-9 does not exist"]);
        let moved = document(false, stale("dropped-from-inventory"), entries, missing);
        assert_eq!(hosts.planned(&other_hosts).await, (1, moved));

        let now = hosts.clusterpool().await;
        assert_eq!(
            now["metadata"]["resourceVersion"],
            before["metadata"]["resourceVersion"]
        );
    });
}

#[test]
fn a_plan_that_fails_reports_why() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-plan-refused", 1).await;
        let pool = hosts.clusterpool().await;
        let forbidden = hosts.plan(&[&pool], &["--as", "nobody"]).await;
        // Both kinds are listed at the same time, so either can be the first that is forbidden.
        let expected = ["clusterdeploymentcustomizations", "clusterpools"].map(|resource| {
            format!(
                "error: cannot list {resource} in namespace \"pool-plan-refused\": forbidden for user \"nobody\"\n\
                 hint: check with: kubectl auth can-i list {resource}.hive.openshift.io -n pool-plan-refused --as=nobody\n"
            )
        });
        assert_eq!(forbidden.code, 2, "{forbidden}");
        assert!(expected.contains(&forbidden.stderr), "{forbidden}");
        let two = hosts.plan(&[&pool, &pool], &[]).await;
        let file = hosts.file(&[&pool, &pool]);
        let expected = format!(
            "error: {} contains 2 ClusterPools, but must contain exactly one\n",
            file.display()
        );
        assert_eq!((two.code, two.stderr), (2, expected));
    });
}
