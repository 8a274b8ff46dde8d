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

const LONG_AGO: &str = "2026-01-01T00:00:00Z";
const FINALIZER: &str = "kubectl-kcp.dev/pool-lease";
const CUSTOMIZATION: &str = "clusterdeploymentcustomization";

impl Hosts {
    /// The exit code of `pool repair`, and `object cause remedy result` of each finding.
    async fn repair(&self, arguments: &[&str]) -> (i32, Vec<String>) {
        let ended = self.run(&[&["repair", "-o", "json"], arguments].concat()).await;
        let document: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"));
        let line = |finding: &Value| {
            let at = |pointer: &str| finding.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
            ["/object/name", "/cause", "/remedy", "/result"].map(at).join(" ")
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
    async fn mark(&self, entry: &str, available: bool, holder: Option<&str>) {
        let (status, reason, message) = if available {
            ("True", "Available", "available")
        } else {
            ("False", "Reserved", "reserved")
        };
        let condition = json!({"type": "Available", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": LONG_AGO});
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

    /// Writes a Lease that was renewed long ago, for a minute or without a limit.
    async fn record(&self, entry: &str, holder: &str, seconds: Option<u32>) {
        let renewed = "2026-01-01T00:00:00.000000Z";
        let record = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": format!("kcp-pool-{entry}"), "labels": {"kubectl-kcp.dev/pool-lease": "true"},
                "annotations": {"kubectl-kcp.dev/cluster-pool": "hosts"}},
            "spec": {"holderIdentity": holder, "renewTime": renewed, "acquireTime": renewed,
                "leaseDurationSeconds": seconds},
        });
        self.make(&[record], self.namespace).await;
    }

    async fn delete_cluster(&self, name: &str) {
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
    async fn entry(&self, name: &str) -> String {
        let entry = self.object(CUSTOMIZATION, name, self.namespace).await.unwrap();
        let at = |pointer: &str| {
            entry
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or("-")
                .to_owned()
        };
        let status = at("/status/conditions/0/status");
        format!("{} {status}", at("/status/clusterDeploymentRef/name"))
    }

    /// The UID of the cluster in the entry's Lease.
    async fn seen(&self, entry: &str) -> Option<String> {
        let record = self
            .object("lease", &format!("kcp-pool-{entry}"), self.namespace)
            .await?;
        let uid = record.pointer("/metadata/annotations/kubectl-kcp.dev~1cluster-deployment-uid")?;
        Some(uid.as_str()?.to_owned())
    }
}

#[test]
fn an_expired_lease_is_freed() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-expired", 3).await;
        hosts.mark("host-0", false, Some("paris")).await;
        hosts.record("host-0", "paris", Some(60)).await;
        // An available entry with stale references.
        hosts.mark("host-1", true, Some("rome")).await;
        hosts.record("host-1", "rome", Some(60)).await;
        // A reserved entry that is no longer in the inventory.
        hosts.mark("host-2", false, Some("oslo")).await;
        hosts.record("host-2", "oslo", Some(60)).await;
        let inventory = json!({"spec": {"inventory": [{"name": "host-0"}, {"name": "host-1"}]}}).to_string();
        let patch = [
            "patch",
            "clusterpool",
            "hosts",
            "--type=merge",
            "-n",
            hosts.namespace,
            "-p",
            &inventory,
        ];
        hosts.kubectl.succeed(patch).await.unwrap();

        let shown = hosts.run(&["repair", "hosts"]).await;
        assert_eq!(shown.code, 1, "{shown}");
        let dropped =
            "not in the inventory of hosts; reserved for oslo, whose lease expired at 2026-01-01T00:01:00Z";
        assert!(shown.stdout.contains(dropped), "{shown}");
        hosts
            .mends(&[
                "host-0 lease-expired free",
                "host-1 lease-expired free",
                "host-2 lease-expired free",
            ])
            .await;
        for entry in ["host-0", "host-1", "host-2"] {
            assert_eq!(hosts.entry(entry).await, "- True");
            let record = format!("kcp-pool-{entry}");
            assert_eq!(hosts.object("lease", &record, hosts.namespace).await, None);
        }
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
fn an_entry_outlives_its_cluster_by_the_grace_time() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-seen", 1).await;
        let lease = ["lease", "hosts", "--cluster-deployment", "repair-seen-paris"];
        let leased = hosts.run(&lease).await;
        assert_eq!(leased.code, 0, "{leased}");
        // No command has seen its cluster: only `--force` frees it.
        let now = ["--grace", "0s"];
        let unverifiable = vec!["host-0 unverifiable force -".to_owned()];
        assert_eq!(hosts.repair(&now).await, (1, unverifiable.clone()));
        assert_eq!(hosts.repair(&["--grace", "0s", "--yes"]).await, (1, unverifiable));
        assert_eq!(hosts.repair(&[]).await, (0, vec![]));

        hosts.cluster("repair-seen-paris", "host-0", &[]).await;
        assert_eq!(hosts.repair(&now).await, (0, vec![]));
        assert_eq!(hosts.seen("host-0").await, None);
        let forced = ["--grace", "0s", "--yes", "--force", "host-0"];
        assert_eq!(
            hosts.repair(&forced).await,
            (1, vec!["host-0 in-use keep -".to_owned()])
        );
        assert_eq!(hosts.entry("host-0").await, "repair-seen-paris False");
        assert!(hosts.seen("host-0").await.is_some());

        hosts.delete_cluster("repair-seen-paris").await;
        assert_eq!(hosts.repair(&["--yes"]).await, (0, vec![]));
        let gone = vec!["host-0 cluster-gone free done".to_owned()];
        assert_eq!(hosts.repair(&["--yes", "--grace", "0s"]).await, (0, gone));
        assert_eq!(hosts.entry("host-0").await, "- True");
    });
}

#[test]
fn an_entry_with_an_unverifiable_holder_needs_force() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-forced", 2).await;
        hosts.mark("host-0", false, Some("paris")).await;
        hosts.mark("host-1", false, None).await;
        let told = |first: &str| {
            vec![
                format!("host-0 unverifiable {first}"),
                "host-1 holder-unknown force -".to_owned(),
            ]
        };
        assert_eq!(hosts.repair(&["--force", "host-0"]).await, (1, told("free -")));
        let freed = hosts.repair(&["--yes", "--force", "host-0"]).await;
        assert_eq!(freed, (1, told("free done")));
        assert_eq!(hosts.entry("host-0").await, "- True");
        let last = hosts.repair(&["--yes", "--force", "cdc/host-1"]).await;
        assert_eq!(last, (0, vec!["host-1 holder-unknown free done".to_owned()]));
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
        hosts.mark("host-0", false, Some("oslo")).await;
        hosts.record("host-0", "oslo", Some(2_000_000_000)).await;
        let kept = hosts.run(&["repair", "--yes", "--force", "host-0"]).await;
        assert_eq!(kept.code, 1, "{kept}");
        assert!(
            kept.stdout
                .contains("not freed: held by oslo, whose lease ends at"),
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
        hosts.mark("host-2", false, Some("lima")).await;
        hosts.record("host-2", "lima", Some(60)).await;
        hosts.mark("host-3", true, Some("repair-used-bern")).await;
        hosts
            .mends(&[
                "host-0 marked-available reserve",
                "host-1 references-missing reserve",
                "host-2 used-by-another reserve",
                "host-3 marked-available reserve",
            ])
            .await;
        for (entry, cluster) in [
            ("host-0", "paris"),
            ("host-1", "rome"),
            ("host-2", "oslo"),
            ("host-3", "bern"),
        ] {
            assert_eq!(hosts.entry(entry).await, format!("repair-used-{cluster} False"));
            assert!(hosts.seen(entry).await.is_some(), "{entry}");
        }

        hosts.cluster("repair-used-lima", "host-0", &[]).await;
        let contested = vec!["host-0 contested none -".to_owned()];
        assert_eq!(hosts.repair(&["--yes"]).await, (1, contested));
    });
}

#[test]
fn leftovers_are_deleted_after_their_entry() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-left", 2).await;
        hosts.mark("host-0", false, Some("repair-left-paris")).await;
        hosts.cluster("repair-left-paris", "host-0", &[FINALIZER]).await;
        hosts.record("host-1", "rome", None).await;
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
        let record = vec!["kcp-pool-host-1 record-left delete -".to_owned()];
        assert_eq!(hosts.repair(&[]).await, (1, record));

        hosts.delete_cluster("repair-left-paris").await;
        let of = |result: &str| {
            [
                "host-0 cluster-taken-down free",
                "repair-left-paris finalizer-left remove-finalizer",
                "kcp-pool-host-1 record-left delete",
                "host-1 copy-left delete",
            ]
            .map(|finding| format!("{finding} {result}"))
            .to_vec()
        };
        let now = ["--grace", "0s"];
        assert_eq!(hosts.repair(&now).await, (1, of("-")));
        let account = hosts.account_of_the_sample().await;
        let mend = ["--grace", "0s", "--yes", "--as", &account];
        assert_eq!(hosts.repair(&mend).await, (0, of("done")));
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
        let done = vec![format!("{cluster} finalizer-left remove-finalizer done")];
        assert_eq!(hosts.repair(&["--yes"]).await, (0, done));
    });
}

#[test]
fn the_deletion_of_another_pools_cluster_proves_nothing() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-namesake", 1).await;
        let others = Hosts::create(management, "repair-namesake-others", 1).await;
        let cluster = "repair-namesake-bonn";
        let lease = ["lease", "hosts", "--cluster-deployment", cluster, "--ttl", "1h"];
        let leased = hosts.run(&lease).await;
        assert_eq!(leased.code, 0, "{leased}");
        others.cluster(cluster, "host-0", &[FINALIZER]).await;
        others.delete_cluster(cluster).await;
        assert_eq!(hosts.repair(&["--yes", "--grace", "0s"]).await, (0, vec![]));
        assert_eq!(hosts.entry("host-0").await, format!("{cluster} False"));
    });
}
