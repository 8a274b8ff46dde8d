//! Recorded sequences of Hive's writes (`tests/src/pools/stand_in_hive/recording.yaml`), and what `pool status`, `pool repair`,
//! `pool lease` and the webhook say after each write. Between two writes of Hive, they report no problem; they report one if
//! Hive stops there.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

mod bugs;

use jiff::{SignedDuration, Timestamp};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::pools::stand_in_hive::recording::Names;
use kcp_tests::pools::stand_in_hive::replay::{Answer, StandInReplay};
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::objects::{report, write};
use crate::pool_repair::{CUSTOMIZATION, LONG_AGO};
use crate::shared::with_management_cluster;

/// A pool, and the stand-in for Hive that reconciles it.
struct Story<'m> {
    management: &'m ManagementCluster,
    hosts: Hosts,
    hive: StandInReplay,
    names: Names,
    /// The time of Hive's writes.
    now: Timestamp,
}

impl<'m> Story<'m> {
    /// A new pool `hosts` with entry `host-0`. Hive creates a cluster of this name.
    async fn begin(management: &'m ManagementCluster, namespace: &'static str, cluster: &str) -> Self {
        let hosts = Hosts::create(management, namespace, 1).await;
        let status = hosts.run(&["status", "hosts", "--hive=yes", "-o", "json"]).await;
        let document: Value = serde_json::from_str(&status.stdout).unwrap();
        let names = [
            ("namespace", namespace),
            ("pool", "hosts"),
            ("entry", "host-0"),
            ("cluster", cluster),
            ("version", text(&document["version"])),
        ];
        Self {
            management,
            hosts,
            hive: StandInReplay::new().unwrap(),
            names: owned(&names).collect(),
            now: Timestamp::now(),
        }
    }

    /// Replays a sequence. Returns `WRITE ANSWER: ENTRY` for each write, followed by each problem and each finding.
    async fn replay(&self, sequence: &str) -> Vec<String> {
        self.replay_with(sequence, &[], true).await
    }

    /// Replays a sequence with other names. Returns `WRITE ANSWER` for each write. Asks no command.
    async fn play(&self, sequence: &str, names: &[(&'static str, &str)]) -> Vec<String> {
        self.replay_with(sequence, names, false).await
    }

    async fn replay_with(
        &self,
        sequence: &str,
        names: &[(&'static str, &str)],
        is_observed: bool,
    ) -> Vec<String> {
        let names: Names = self.names.clone().into_iter().chain(owned(names)).collect();
        let mut lines = Vec::new();
        for reconcile in self.hive.sequence(sequence).unwrap() {
            let mut hive = self.hive.reconcile(self.management.client(), &names, self.now);
            for write in reconcile {
                let answer = hive.write(write).await.unwrap();
                let mut line = format!("{write} {answer}");
                if is_observed {
                    line = format!("{line}: {}", self.told().await);
                }
                lines.push(line);
                if matches!(answer, Answer::Refused { .. }) {
                    return lines;
                }
            }
        }
        lines
    }

    /// What `status` says of the entry, all problems in `status`, and all findings of `repair`. Checks that `lease` refuses.
    async fn told(&self) -> String {
        let pool = self.names["pool"].as_str();
        let status = ["status", pool, "--hive=yes", "-o", "json"];
        let lease = [
            "lease",
            pool,
            "--hive=yes",
            "--cluster-deployment",
            "bern",
            "-o",
            "json",
        ];
        let (status, lease, repair) = tokio::join!(
            self.hosts.run(&status),
            self.hosts.run(&lease),
            self.hosts.repair(&["--hive=yes"])
        );
        if status.code == 2 && status.stderr.contains("not found") {
            return format!("no pool{}", findings(&repair.1));
        }
        let document: Value = serde_json::from_str(&status.stdout).unwrap();
        let refused: Value = serde_json::from_str(&lease.stdout).unwrap();
        let has_no_entry = document["entries"].as_array().is_none_or(Vec::is_empty);
        let reason = if has_no_entry { "no-such-entry" } else { "blocked" };
        assert_eq!((lease.code, text(&refused["reason"])), (1, reason), "{lease}");
        let list = |field: &str| document[field].as_array().cloned().unwrap_or_default();
        let entry = list("entries")
            .into_iter()
            .find(|entry| entry["name"] == self.names["entry"]);
        let entry = entry.map_or_else(
            || "no entry".to_owned(),
            |entry| {
                let state = text(&entry["state"]).to_owned();
                entry["holder"]
                    .as_str()
                    .map_or_else(|| state.clone(), |holder| format!("{state} {holder}"))
            },
        );
        let problems = list("problems");
        assert_eq!(status.code, i32::from(!problems.is_empty()), "{status}");
        assert_eq!(repair.0, i32::from(!repair.1.is_empty()), "{repair:?}");
        let problems = problems.iter().map(|problem| {
            let [kind, object, message] = ["kind", "object", "message"].map(|field| text(&problem[field]));
            format!("; {kind} {object}: {message}")
        });
        format!("{entry}{}{}", problems.collect::<String>(), findings(&repair.1))
    }

    /// Creates another pool, if requested despite the rule that it shares no entry. Returns what kubectl prints on stderr.
    async fn create_pool(&self, name: &str, inventory: &Value, is_overridden: bool) -> String {
        let end = Timestamp::now() + SignedDuration::from_hours(1);
        let overridden = json!({"kubectl-kcp.dev/override-rules": format!("inventory-shared={end:.0}")});
        let annotations = if is_overridden { overridden } else { json!({}) };
        let pool = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterPool",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "baseDomain": "example.com", "imageSetRef": {"name": "openshift-v4.20"}, "platform": {"none": {}},
                "size": 1, "inventory": inventory,
            },
        });
        let namespace = ["-n", self.hosts.namespace];
        write(&self.hosts.kubectl, "create", &[pool], &namespace)
            .await
            .unwrap()
            .stderr
    }

    /// What etcd has of the entry: the status of Available, the holder, and the reason in ApplySucceeded.
    async fn stored(&self) -> String {
        let entry = self
            .hosts
            .object(CUSTOMIZATION, "host-0", self.hosts.namespace)
            .await
            .unwrap();
        let condition = |kind: &str, field: &str| {
            let conditions = entry["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let found = conditions.into_iter().find(|condition| condition["type"] == kind);
            found.map_or_else(|| "-".to_owned(), |found| text(&found[field]).to_owned())
        };
        let holder = entry["status"]["clusterDeploymentRef"]["name"]
            .as_str()
            .unwrap_or("-");
        format!(
            "{} {holder} {}",
            condition("Available", "status"),
            condition("ApplySucceeded", "reason")
        )
    }
}

fn owned(names: &[(&'static str, &str)]) -> impl Iterator<Item = (&'static str, String)> {
    names
        .iter()
        .map(|(placeholder, name)| (*placeholder, (*name).to_owned()))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn findings(found: &[String]) -> String {
    let lines = found.iter().map(|finding| ["; repair: ", finding].concat());
    lines.collect()
}

/// Replaces `x` by the cluster's name.
fn lines(expected: &[&str], cluster: &str) -> Vec<String> {
    expected.iter().map(|line| line.replace("{x}", cluster)).collect()
}

#[test]
fn a_cluster_is_created_installed_and_deleted() {
    with_management_cluster(async |management| {
        let story = Story::begin(management, "sequence-creation", "sequence-creation-x").await;
        let expected = [
            "initialize-pool stored: free",
            "add-pool-finalizer stored: free",
            "add-entry-finalizer stored: free",
            "report-inventory-valid stored: free",
            "report-capacity stored: free",
            "report-dependencies stored: free",
            "create-namespace stored: free",
            "reserve stored: reserved",
            "report-pending stored: reserved {x}",
            "create-cluster stored: in-use {x}",
            "report-current stored: in-use {x}",
            "add-cluster-finalizer stored: in-use {x}",
        ];
        assert_eq!(
            story.replay("creation").await,
            lines(&expected, "sequence-creation-x")
        );
        assert_eq!(
            story.stored().await,
            "False sequence-creation-x InstallationPending"
        );
        let expected = [
            "report-installed stored: in-use {x}",
            "report-success stored: in-use {x}",
        ];
        assert_eq!(
            story.replay("success").await,
            lines(&expected, "sequence-creation-x")
        );
        let expected = [
            "delete-cluster stored: in-use {x}",
            "release stored: in-use {x}",
            "remove-cluster-finalizer stored: free",
        ];
        assert_eq!(
            story.replay("deprovision").await,
            lines(&expected, "sequence-creation-x")
        );
        assert_eq!(story.stored().await, "True - Succeeded");
    });
}

/// A failed installation is a problem until the next cluster is installed with the entry, but nothing is to repair.
#[test]
fn an_installation_fails() {
    with_management_cluster(async |management| {
        let cluster = "sequence-failure-x";
        let story = Story::begin(management, "sequence-failure", cluster).await;
        story.play("creation", &[]).await;
        let failed = "failed cd/{x}: Hive has stopped installing the cluster; see the ClusterDeployment's condition ProvisionStopped";
        let broken = "broken cdc/host-0: BrokenByCloud: Cluster installation failed. This may or may not be the fault of patches. \
                      Check the installation logs.";
        let expected = [
            &format!("stop-provisioning stored: in-use {{x}}; {failed}"),
            &format!("report-broken stored: in-use {{x}}; {broken}; {failed}"),
            &format!("report-inventory-broken stored: in-use {{x}}; {broken}; {failed}"),
            &format!("delete-cluster stored: in-use {{x}}; {broken}"),
            &format!("release stored: in-use {{x}}; {broken}"),
            &format!("remove-cluster-finalizer stored: free; {broken}"),
        ];
        assert_eq!(
            story.replay("failure").await,
            lines(&expected.map(String::as_str), cluster)
        );
        assert_eq!(story.stored().await, "True - BrokenByCloud");
    });
}

#[test]
fn a_problem_is_found_if_hive_stops_while_it_reserves() {
    with_management_cluster(async |management| {
        let mut story = Story::begin(management, "sequence-stopped", "").await;
        let unfreed = |cluster: &str| {
            format!(
                "; leaked cdc/host-0: Hive reserved the entry for {cluster}, which does not exist, and has not freed the entry \
                 since; check that Hive runs; repair: host-0 hive none -"
            )
        };
        for (sequence, cluster, now, expected) in [
            (
                "stop-while-reserving",
                "sequence-stopped-v",
                Timestamp::now(),
                "reserve stored: reserved".to_owned(),
            ),
            (
                "stop-while-reserving",
                "sequence-stopped-w",
                LONG_AGO.parse().unwrap(),
                format!("reserve stored: reserved{}", unfreed("a cluster")),
            ),
            (
                "stop-after-reserving",
                "sequence-stopped-x",
                LONG_AGO.parse().unwrap(),
                format!(
                    "report-pending stored: reserved sequence-stopped-x{}",
                    unfreed("ClusterDeployment sequence-stopped-x")
                ),
            ),
        ] {
            story.now = now;
            let told = story.replay_with(sequence, &[("cluster", cluster)], true).await;
            assert_eq!(told.last(), Some(&expected), "{told:#?}");
            // Hive starts again.
            assert_eq!(story.replay("revocation").await, ["unassign stored: free"]);
        }
    });
}

/// A script leases an entry although Hive manages the pool.
#[test]
fn hive_revokes_the_lease_of_a_script() {
    with_management_cluster(async |management| {
        let story = Story::begin(management, "sequence-revoked", "sequence-revoked-x").await;
        story.play("first-update", &[]).await;
        let lease = [
            "lease",
            "hosts",
            "--hive=no",
            "--cluster-deployment",
            "paris",
            "-o",
            "json",
        ];
        let leased = story.hosts.run(&lease).await;
        assert_eq!(leased.code, 0, "{leased}");
        assert_eq!(story.told().await, "held paris");
        assert_eq!(story.replay("revocation").await, ["unassign stored: free"]);
        assert_eq!(story.stored().await, "True - -");
        assert!(
            story.hosts.record_of("host-0").await.is_some(),
            "Hive keeps conditions that it does not know"
        );
        let renew = ["renew", "hosts", "--cluster-deployment", "paris"];
        let renewed = story.hosts.run(&renew).await;
        let lost = "not-holder: paris holds no entry of pool hosts\n";
        assert_eq!((renewed.code, renewed.stderr.as_str()), (1, lost), "{renewed}");
    });
}

#[test]
fn hive_reserves_a_freed_entry_again() {
    with_management_cluster(async |management| {
        let cluster = "sequence-restored-x";
        let story = Story::begin(management, "sequence-restored", cluster).await;
        story.play("creation", &[]).await;
        // As after a restore from a backup without the status.
        let empty = json!({"conditions": [], "clusterDeploymentRef": null, "clusterPoolRef": null});
        let entry = [CUSTOMIZATION, "host-0"];
        report(&story.hosts.kubectl, story.hosts.namespace, entry, &empty)
            .await
            .unwrap();
        assert_eq!(story.told().await, format!("in-use {cluster}"));
        let expected = ["reserve stored: in-use {x}", "report-pending stored: in-use {x}"];
        assert_eq!(
            story.replay("reservation-restored").await,
            lines(&expected, cluster)
        );
        assert_eq!(
            story.stored().await,
            format!("False {cluster} InstallationPending")
        );
    });
}

#[test]
fn the_finalizers_of_entries_go_before_the_clusters_of_a_deleted_pool() {
    with_management_cluster(async |management| {
        let cluster = "sequence-deleted-x";
        let story = Story::begin(management, "sequence-deleted", cluster).await;
        story.play("creation", &[]).await;
        let delete = [
            "delete",
            "clusterpool",
            "hosts",
            "-n",
            "sequence-deleted",
            "--wait=false",
        ];
        story.hosts.kubectl.succeed(delete).await.unwrap();
        let mut hive = story.hive.reconcile(management.client(), &story.names, story.now);
        assert_eq!(
            hive.write("remove-entry-finalizer").await.unwrap().to_string(),
            "stored"
        );
        // Only the webhook still keeps the entry.
        let delete = ["delete", CUSTOMIZATION, "host-0", "-n", "sequence-deleted"];
        let refused = story.hosts.kubectl.run(delete).await.unwrap();
        assert!(
            refused.code == 1 && refused.stderr.contains("(customization-in-use)"),
            "{refused}"
        );
        let expected = [
            "remove-entry-finalizer omitted: in-use {x}",
            "delete-cluster stored: in-use {x}",
            "report-deletion-blocked stored: in-use {x}",
            "release stored: in-use {x}",
            "remove-cluster-finalizer stored: free",
            "report-deletion-possible stored: free",
            "remove-pool-finalizer stored: no pool",
        ];
        assert_eq!(story.replay("pool-deletion").await, lines(&expected, cluster));
    });
}

/// `status` names the same entries as the condition that Hive writes.
#[test]
fn broken_and_missing_entries_are_found_before_hive_reports_them() {
    with_management_cluster(async |management| {
        let story = Story::begin(management, "sequence-invalid", "sequence-invalid-x").await;
        story.play("first-update", &[]).await;
        let broken = "free; broken cdc/host-0: BrokenBySyntax: remove operation does not apply: doc is missing path: /none: missing value";
        let expected = [
            "create-namespace stored: free".to_owned(),
            format!("report-syntax-error stored: {broken}"),
            format!("report-inventory-syntax stored: {broken}"),
        ];
        assert_eq!(story.replay("syntax-error").await, expected);
        let delete = ["delete", CUSTOMIZATION, "host-0", "-n", "sequence-invalid"];
        story.hosts.kubectl.succeed(delete).await.unwrap();
        let missing = "missing; missing cdc/host-0: the inventory lists this customization, but the customization does not exist";
        assert_eq!(story.told().await, missing);
        assert_eq!(
            story.replay("missing-entry").await,
            [format!("report-inventory-missing stored: {missing}")]
        );
    });
}
