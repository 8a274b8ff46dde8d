//! `kubectl kcp pool repair` on the real API server: each cause is created, reported, repaired, and then not reported
//! any more.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use kcp_tests::products;
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::objects::report;
use crate::shared::with_management_cluster;

pub(crate) const LONG_AGO: &str = "2026-01-01T00:00:00Z";
const FINALIZER: &str = "kubectl-kcp.dev/pool-lease";
pub(crate) const CUSTOMIZATION: &str = "clusterdeploymentcustomization";

impl Hosts {
    /// The exit code of `pool repair`, and `object cause remedy result` of each finding.
    pub(crate) async fn repair(&self, arguments: &[&str]) -> (i32, Vec<String>) {
        let ended = self.run(&[&["repair", "-o", "json"], arguments].concat()).await;
        // Of the install-configs.
        assert!(!ended.to_string().contains("sesame"), "{ended}");
        let document: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"));
        let line = |finding: &Value| {
            let text = |pointer: &str| finding.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
            ["/object/name", "/cause", "/remedy", "/result"]
                .map(text)
                .join(" ")
        };
        let findings = document.pointer("/findings").and_then(Value::as_array).unwrap();
        (ended.code, findings.iter().map(line).collect())
    }

    /// Checks that a repair without `--yes` reports these, that one with `--yes` repairs them, and that the next one
    /// reports nothing.
    async fn mends(&self, findings: &[&str]) {
        let lines = |result: &str| -> Vec<String> {
            let lines = findings.iter().map(|finding| format!("{finding} {result}"));
            lines.collect()
        };
        assert_eq!(self.repair(&[]).await, (1, lines("-")));
        assert_eq!(self.repair(&["--yes"]).await, (0, lines("done")));
        assert_eq!(self.repair(&["--yes"]).await, (0, vec![]));
        assert_eq!(self.repair(&[]).await, (0, vec![]));
    }

    /// Sets an entry's condition and holder, with a time long ago.
    pub(crate) async fn mark(&self, entry: &str, available: bool, holder: Option<&str>) {
        self.mark_since(entry, available, holder, LONG_AGO).await;
    }

    /// Sets an entry's condition with this time, and its holder.
    pub(crate) async fn mark_since(&self, entry: &str, available: bool, holder: Option<&str>, since: &str) {
        let (status, reason, message) = if available {
            ("True", "Available", "available")
        } else {
            ("False", "Reserved", "reserved")
        };
        let condition = json!({"type": "Available", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since});
        let name = |name: Option<&str>| name.map(|name| json!({ "name": name }));
        let status = json!({
            "conditions": [condition],
            "clusterDeploymentRef": name(holder),
            "clusterPoolRef": name(holder.map(|_| "hosts")),
        });
        report(&self.kubectl, self.namespace, [CUSTOMIZATION, entry], &status)
            .await
            .unwrap();
    }

    /// Leases an entry for a cluster, and ends the lease long ago, in this state.
    async fn ended(&self, entry: &str, holder: &str, state: &str) {
        let lease = [
            "lease",
            "hosts",
            "--cluster-deployment",
            holder,
            "--customization",
            entry,
        ];
        let leased = self.run(&lease).await;
        assert_eq!(leased.code, 0, "{leased}");
        self.rewrite_record(entry, &[("state", state), ("deadline", LONG_AGO)])
            .await;
    }

    pub(crate) async fn delete_cluster(&self, name: &str) {
        let delete = ["delete", "clusterdeployment", name, "-n", name, "--wait=false"];
        self.kubectl.succeed(delete).await.unwrap();
    }

    /// The `ServiceAccount` of the sample's `CronJob`, with its permissions.
    async fn account_of_the_sample(&self) -> String {
        let sample = products::workspace().join("manifests/samples/pool-repair.yaml");
        let sample = sample.display().to_string();
        let namespace = self.namespace;
        self.kubectl
            .succeed(["apply", "-n", namespace, "-f", &sample])
            .await
            .unwrap();
        let account = format!("--serviceaccount={namespace}:pool-repair");
        let name = format!("pool-repair-{namespace}");
        let bind = [
            "create",
            "clusterrolebinding",
            &name,
            "--clusterrole=pool-repair",
            &account,
        ];
        self.kubectl.succeed(bind).await.unwrap();
        format!("system:serviceaccount:{namespace}:pool-repair")
    }

    /// The holder and the status of condition Available of an entry.
    pub(crate) async fn entry(&self, name: &str) -> String {
        let entry = self.object(CUSTOMIZATION, name, self.namespace).await.unwrap();
        let text = |pointer: &str| {
            entry
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or("-")
                .to_owned()
        };
        let status = text("/status/conditions/0/status");
        format!("{} {status}", text("/status/clusterDeploymentRef/name"))
    }
}

#[test]
fn an_ended_lease_is_freed() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-ended", 3).await;
        hosts.ended("host-0", "paris", "gone").await;
        // It may have had a cluster: it stays reserved for a while.
        hosts.ended("host-1", "rome", "held").await;
        // A reserved entry that is no longer in the inventory.
        hosts.ended("host-2", "oslo", "gone").await;
        let inventory = json!({"spec": {"inventory": [{"name": "host-0"}, {"name": "host-1"}]}});
        hosts
            .patch("clusterpool/hosts", hosts.namespace, &inventory)
            .await;

        let shown = hosts.run(&["repair", "hosts"]).await;
        assert_eq!(shown.code, 1, "{shown}");
        assert!(
            shown
                .stdout
                .contains("the lease of oslo ended at 2026-01-01T00:00:00Z"),
            "{shown}"
        );
        hosts
            .mends(&[
                "host-0 ended free",
                "host-1 cluster-gone record",
                "host-2 ended free",
            ])
            .await;
        assert_eq!(hosts.entry("host-0").await, "- True");
        assert_eq!(hosts.entry("host-1").await, "rome False");
        assert_eq!(hosts.entry("host-2").await, "- True");
        hosts.rewrite_record("host-1", &[("deadline", LONG_AGO)]).await;
        hosts.mends(&["host-1 ended free"]).await;
    });
}

#[test]
fn the_status_of_a_pool_names_missing_entries() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-inventory", 1).await;
        let delete = ["delete", CUSTOMIZATION, "host-0", "-n", hosts.namespace];
        hosts.kubectl.succeed(delete).await.unwrap();
        let pool = async || {
            hosts
                .object("clusterpool", "hosts", hosts.namespace)
                .await
                .unwrap()
        };
        assert_eq!(hosts.repair(&[]).await, (0, vec![]));
        assert_eq!(pool().await.get("status"), None);
        assert_eq!(hosts.repair(&["--yes"]).await, (0, vec![]));
        let told = pool().await;
        let conditions = told["status"]["conditions"].as_array().unwrap();
        let conditions: Vec<_> = conditions
            .iter()
            .map(|condition| {
                ["type", "status", "message"].map(|field| condition[field].as_str().unwrap_or("-"))
            })
            .collect();
        let missing = r#"{"BrokenByCloud":[],"BrokenBySyntax":[],"Missing":["host-0"]}"#;
        assert_eq!(
            conditions,
            [
                ["InventoryValid", "False", missing],
                ["InventorySufficient", "True", ""]
            ]
        );
        assert_eq!(
            (&told["status"]["size"], &told["status"]["ready"]),
            (&json!(0), &json!(0))
        );
        assert_eq!(hosts.repair(&["--yes"]).await, (0, vec![]));
        let version = "/metadata/resourceVersion";
        assert_eq!(pool().await.pointer(version), told.pointer(version));
    });
}

#[test]
fn an_entry_whose_holder_nobody_can_know_needs_force() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-forced", 3).await;
        hosts.leases("paris").await;
        let newer = json!([{"type": "kubectl-kcp.dev/Lease", "status": "True", "reason": "Held", "message": "v2 x",
            "lastTransitionTime": LONG_AGO}]);
        hosts.mark("host-0", false, Some("paris")).await;
        let status = json!({ "conditions": newer });
        report(
            &hosts.kubectl,
            hosts.namespace,
            [CUSTOMIZATION, "host-0"],
            &status,
        )
        .await
        .unwrap();
        hosts.mark("host-1", false, None).await;
        hosts.mark("host-2", true, None).await;
        let told = |first: &str| {
            vec![
                format!("host-0 unknown {first}"),
                "host-1 unknown force -".to_owned(),
            ]
        };
        assert_eq!(hosts.repair(&["--yes"]).await, (1, told("force -")));
        let refused = hosts
            .run(&[
                "lease",
                "hosts",
                "--cluster-deployment",
                "rome",
                "--customization",
                "host-0",
            ])
            .await;
        assert_eq!(refused.code, 1, "{refused}");
        assert!(
            refused
                .stderr
                .contains("has version v2; upgrade kubectl-kcp to read it"),
            "{refused}"
        );
        assert_eq!(hosts.repair(&["--force", "host-0"]).await, (1, told("free -")));
        let freed = hosts.repair(&["--yes", "--force", "host-0"]).await;
        assert_eq!(freed, (1, told("free done")));
        assert_eq!(hosts.entry("host-0").await, "- True");
        let last = hosts.repair(&["--yes", "--force", "cdc/host-1"]).await;
        assert_eq!(last, (0, vec!["host-1 unknown free done".to_owned()]));
        let missing = hosts.run(&["repair", "--yes", "--force", "host-9"]).await;
        assert_eq!(missing.code, 1, "{missing}");
        assert_eq!(
            missing.stderr,
            "no-such-entry: customization host-9 does not exist\n"
        );
        let missing = hosts
            .run(&["repair", "--yes", "--force", "host-9", "-o", "json"])
            .await;
        let document: Value = serde_json::from_str(&missing.stdout).unwrap();
        assert_eq!((missing.code, &document["reason"]), (1, &json!("no-such-entry")));

        let lease = [
            "lease",
            "hosts",
            "--cluster-deployment",
            "oslo",
            "--customization",
            "host-0",
        ];
        assert_eq!(hosts.run(&lease).await.code, 0);
        let kept = hosts.run(&["repair", "--yes", "--force", "host-0"]).await;
        assert_eq!(kept.code, 1, "{kept}");
        assert!(
            kept.stdout
                .contains("not freed: oslo holds the entry, and the lease ends at"),
            "{kept}"
        );
        assert_eq!(hosts.entry("host-0").await, "oslo False");
        let unknown = hosts.run(&["repair", "guests"]).await;
        assert_eq!(unknown.code, 2, "{unknown}");
    });
}

#[test]
fn the_entry_of_a_living_cluster_is_reserved_for_it() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-used", 4).await;
        hosts.ended("host-2", "lima", "held").await;
        for (entry, cluster) in [
            ("host-0", "paris"),
            ("host-1", "rome"),
            ("host-2", "oslo"),
            ("host-3", "bern"),
        ] {
            hosts.cluster(&format!("repair-used-{cluster}"), entry, &[]).await;
        }
        hosts.mark("host-0", true, None).await;
        hosts.mark("host-1", false, None).await;
        // Its record was lost, as by a restore without statuses.
        hosts.mark("host-3", true, Some("repair-used-bern")).await;
        hosts
            .mends(&[
                "host-0 unrecorded record",
                "host-1 unrecorded record",
                "host-2 unrecorded record",
                "host-3 unrecorded record",
            ])
            .await;
        for (entry, cluster) in [
            ("host-0", "paris"),
            ("host-1", "rome"),
            ("host-2", "oslo"),
            ("host-3", "bern"),
        ] {
            assert_eq!(hosts.entry(entry).await, format!("repair-used-{cluster} False"));
            assert_eq!(
                hosts.record_of(entry).await.unwrap()["state"],
                "in-use",
                "{entry}"
            );
        }

        hosts.second_cluster("repair-used-lima", "host-0").await;
        let contested = vec!["host-0 contested none -".to_owned()];
        assert_eq!(hosts.repair(&["--yes"]).await, (1, contested));
    });
}

#[test]
fn leftovers_are_deleted_after_their_entry() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-left", 2).await;
        hosts.ended("host-0", "repair-left-paris", "held").await;
        hosts.cluster("repair-left-paris", "host-0", &[FINALIZER]).await;
        assert_eq!(hosts.repair(&["--yes"]).await, (0, vec![]));
        hosts
            .rewrite_record("host-0", &[("state", "gone"), ("uid", "-")])
            .await;
        management.create_namespace("repair-left-rome").await.unwrap();
        // The copy is as old as the namespace. The grace time also applies to copies.
        let copy = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeploymentCustomization",
            "metadata": {"name": "host-1", "labels": {
                "kubectl-kcp.dev/pool-lease": "true",
                "hive.openshift.io/clusterpool-namespace": hosts.namespace,
                "hive.openshift.io/clusterpool-name": "hosts"}},
            "spec": {},
        });
        hosts.make(&[copy], "repair-left-rome").await;
        assert_eq!(hosts.repair(&[]).await, (0, vec![]));

        hosts.delete_cluster("repair-left-paris").await;
        let report = |result: &str| {
            [
                "host-0 ended free",
                "repair-left-paris left remove",
                "host-1 left remove",
            ]
            .map(|finding| format!("{finding} {result}"))
            .to_vec()
        };
        let now = ["--grace", "0s"];
        assert_eq!(hosts.repair(&now).await, (1, report("-")));
        let account = hosts.account_of_the_sample().await;
        let mend = ["--grace", "0s", "--yes", "--as", &account];
        assert_eq!(hosts.repair(&mend).await, (0, report("done")));
        assert_eq!(hosts.repair(&now).await, (0, vec![]));
        assert_eq!(hosts.entry("host-0").await, "- True");
        let cluster = hosts.object("clusterdeployment", "repair-left-paris", "repair-left-paris");
        assert_eq!(cluster.await, None);
        assert_eq!(
            hosts.object(CUSTOMIZATION, "host-1", "repair-left-rome").await,
            None
        );
        assert!(
            hosts
                .object(CUSTOMIZATION, "host-1", hosts.namespace)
                .await
                .is_some()
        );
    });
}

#[test]
fn records_of_the_first_version_are_reported() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-old", 1).await;
        let record = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "kcp-pool-host-0", "labels": {"kubectl-kcp.dev/pool-lease": "true"}},
            "spec": {"holderIdentity": "paris"},
        });
        hosts.make(&[record], hosts.namespace).await;
        let told = vec!["kcp-pool-host-0 left none -".to_owned()];
        assert_eq!(hosts.repair(&["--yes"]).await, (1, told));
    });
}

#[test]
fn leftovers_of_a_deleted_pool_are_found_in_all_namespaces() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-outlived", 1).await;
        let cluster = "repair-outlived-koeln";
        hosts.cluster(cluster, "host-0", &[FINALIZER]).await;
        hosts.delete_cluster(cluster).await;
        let delete = ["delete", "clusterpool", "hosts", "-n", hosts.namespace];
        hosts.kubectl.succeed(delete).await.unwrap();
        // Other tests have pools too, so this repairs nothing.
        let names = ["kcp", "pool", "repair", "-A", "-o", "name"];
        let found = hosts.kubectl.run(names).await.unwrap();
        assert_eq!(found.code, 1, "{found}");
        let left = format!("clusterdeployment.hive.openshift.io/{cluster}\n");
        assert!(found.stdout.contains(&left), "{found}");
        let done = vec![format!("{cluster} left remove done")];
        assert_eq!(hosts.repair(&["--yes"]).await, (0, done));
    });
}

/// A cluster of the same name from another pool is seen by a repair, and then deleted.
#[test]
fn the_deletion_of_another_pools_cluster_proves_nothing() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-namesake", 1).await;
        let others = Hosts::create(management, "repair-namesake-others", 1).await;
        let cluster = "repair-namesake-bonn";
        hosts.leases(cluster).await;
        others.cluster(cluster, "host-0", &[FINALIZER]).await;
        assert_eq!(hosts.repair(&["--yes", "--grace", "0s"]).await, (0, vec![]));
        others.delete_cluster(cluster).await;
        assert_eq!(hosts.repair(&["--yes", "--grace", "0s"]).await, (0, vec![]));
        assert_eq!(hosts.entry("host-0").await, format!("{cluster} False"));
        assert_eq!(hosts.record_of("host-0").await.unwrap()["state"], "held");
    });
}
