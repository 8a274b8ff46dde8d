//! Sequences that bugs in Hive cause, and what ends them.

use serde_json::json;

use super::{Story, lines, owned};
use crate::shared::with_management_cluster;

const BUG: &str = "leaked cdc/host-0: a bug in Hive: another program freed the entry, or the last cluster of the entry never finished \
                   installing, so Hive frees and reserves the entry several times a second; repair: host-0 hive record -";

const SHARED: &str = "shared cdc/host-0: also in the inventory of others; leaked cdc/host-0: pools hosts, others list this entry, and \
                      Hive manages them, so each pool frees the leases of the others; list the entry in only one pool; \
                      repair: host-0 hive none -";

#[test]
fn a_flapping_entry_is_found_at_each_write_and_repaired() {
    with_management_cluster(async |management| {
        let cluster = "sequence-flapping-x";
        let story = Story::begin(management, "sequence-flapping", cluster).await;
        // The last cluster never finished installing.
        story
            .play("stop-after-reserving", &[("cluster", "sequence-flapping-w")])
            .await;
        story.play("revocation", &[]).await;
        let told = story.replay("creation").await;
        let expected = [
            "create-namespace stored: free".to_owned(),
            "reserve stored: reserved".to_owned(),
            "report-pending omitted: reserved".to_owned(),
            format!("create-cluster stored: in-use {{x}}; {BUG}"),
            format!("report-current stored: in-use {{x}}; {BUG}"),
            format!("add-cluster-finalizer stored: in-use {{x}}; {BUG}"),
        ];
        let expected: Vec<_> = expected.iter().map(|line| line.replace("{x}", cluster)).collect();
        assert_eq!(told[6..], expected);
        let written = |writes: &[&str]| -> Vec<String> {
            let writes = writes.iter();
            writes
                .map(|write| format!("{write}: in-use {cluster}; {BUG}"))
                .collect()
        };
        let twice = ["unassign stored", "reserve stored", "report-pending omitted"].repeat(2);
        assert_eq!(story.replay("flapping").await, written(&twice));

        // The repair is written between two writes of Hive.
        let mut hive = story.hive.reconcile(management.client(), &story.names, story.now);
        hive.write("unassign").await.unwrap();
        let repaired = story.hosts.repair(&["--hive=yes", "--yes"]).await;
        assert_eq!(repaired, (0, vec!["host-0 hive record done".to_owned()]));
        assert_eq!(hive.write("reserve").await.unwrap().to_string(), "conflict");
        assert_eq!(story.told().await, format!("in-use {cluster}"));
        assert_eq!(
            story.stored().await,
            format!("False {cluster} InstallationPending")
        );
        let expected = [
            "report-installed stored: in-use {x}",
            "report-success stored: in-use {x}",
        ];
        assert_eq!(story.replay("success").await, lines(&expected, cluster));

        // Another program frees the entry of the installed cluster.
        assert_eq!(story.replay("revocation").await, written(&["unassign stored"]));
        let once = ["unassign omitted", "reserve stored", "report-success omitted"];
        assert_eq!(story.replay("flapping-after-installation").await, written(&once));
        let repaired = story.hosts.repair(&["--hive=yes", "--yes"]).await;
        assert_eq!(repaired, (0, vec!["host-0 hive record done".to_owned()]));
        assert_eq!(story.stored().await, format!("False {cluster} Succeeded"));
    });
}

#[test]
fn an_entry_flaps_until_its_cluster_is_installed() {
    with_management_cluster(async |management| {
        let cluster = "sequence-installed-x";
        let story = Story::begin(management, "sequence-installed", cluster).await;
        story
            .play("stop-after-reserving", &[("cluster", "sequence-installed-w")])
            .await;
        story.play("revocation", &[]).await;
        story.play("creation", &[]).await;
        let expected = [
            "report-installed stored: in-use {x}",
            "unassign stored: in-use {x}",
            "reserve stored: in-use {x}",
            "report-success stored: in-use {x}",
        ];
        assert_eq!(story.replay("flapping-ends").await, lines(&expected, cluster));
        assert_eq!(story.stored().await, format!("False {cluster} Succeeded"));
    });
}

/// The webhook refuses the second cluster.
#[test]
fn two_pools_free_the_reservations_of_each_other() {
    with_management_cluster(async |management| {
        let cluster = "sequence-shared-x";
        let story = Story::begin(management, "sequence-shared", cluster).await;
        story.play("creation", &[]).await;
        let inventory = json!([{"name": "host-0"}]);
        let refused = story.create_pool("others", &inventory, false).await;
        assert!(refused.contains("(inventory-shared)"), "{refused}");
        story.create_pool("others", &inventory, true).await;
        assert_eq!(story.told().await, format!("in-use {cluster}; {SHARED}"));
        let others = [("pool", "others"), ("cluster", "sequence-shared-y")];
        assert_eq!(
            story.replay_with("revocation", &others, true).await,
            [format!("unassign stored: in-use {cluster}; {SHARED}")]
        );
        let told = story.play("creation", &others).await;
        let refusal = told.last().unwrap();
        assert!(
            refusal.starts_with("create-cluster refused with 422: ")
                && refusal.contains("ClusterDeployment sequence-shared-x uses this customization"),
            "{told:#?}"
        );
        assert_eq!(story.stored().await, "False - InstallationPending");
        let expected = ["unassign stored", "reserve stored", "report-pending omitted"].repeat(2);
        let expected = expected
            .iter()
            .map(|write| format!("{write}: in-use {cluster}; {SHARED}"));
        assert_eq!(story.replay("flapping").await, expected.collect::<Vec<_>>());
    });
}

/// A user moves an entry to another pool while its cluster exists.
#[test]
fn an_entry_that_another_pool_lists_is_freed_although_a_cluster_uses_it() {
    with_management_cluster(async |management| {
        let cluster = "sequence-moved-x";
        let story = Story::begin(management, "sequence-moved", cluster).await;
        story.play("creation", &[]).await;
        let left = json!({"spec": {"inventory": [{"name": "host-1"}]}});
        story
            .hosts
            .patch("clusterpool/hosts", "sequence-moved", &left)
            .await;
        story
            .create_pool("others", &json!([{"name": "host-0"}]), false)
            .await;
        let moved = "host-0 hive none -".to_owned();
        assert_eq!(story.hosts.repair(&["--hive=yes"]).await, (1, vec![moved]));
        let shown = story.hosts.run(&["repair", "--hive=yes"]).await;
        let why = "ClusterDeployment sequence-moved-x of pool hosts uses this entry, but only pool others lists it, so Hive frees \
                   the entry for pool others; remove the entry from the inventory of pool others until the ClusterDeployment is \
                   deleted";
        assert!(shown.stdout.contains(why), "{shown}");
        let others = [("pool", "others"), ("cluster", "sequence-moved-y")];
        story.play("revocation", &others).await;
        let told = story.play("creation", &others).await;
        assert!(
            told.last()
                .unwrap()
                .starts_with("create-cluster refused with 422: "),
            "{told:#?}"
        );
    });
}

/// Hive releases the entry of a cluster without a check for which cluster the entry is reserved.
#[test]
fn a_deprovisioned_cluster_frees_the_entry_of_another() {
    with_management_cluster(async |management| {
        let (cluster, other) = ("sequence-released-x", "sequence-released-y");
        let story = Story::begin(management, "sequence-released", cluster).await;
        story.play("creation", &[]).await;
        story.hosts.mark("host-0", false, Some(other)).await;
        let mut hive = story.hive.reconcile(management.client(), &story.names, story.now);
        assert_eq!(hive.write("report-pending").await.unwrap().to_string(), "stored");
        story.hosts.second_cluster(other, "host-0").await;
        let contested = format!(
            "in-use {other}; leaked cdc/host-0: several ClusterDeployments use or hold the entry: {cluster} and {other}; decide which \
             one may use it, and delete the others; repair: host-0 contested none -"
        );
        assert_eq!(story.told().await, contested);
        let expected = [
            format!("delete-cluster stored: in-use {other}"),
            // Both clusters exist, and the entry refers to neither.
            format!("release stored: in-use {cluster}; {BUG}"),
            format!("remove-cluster-finalizer stored: in-use {other}; {BUG}"),
        ];
        assert_eq!(story.replay("deprovision").await, expected);
    });
}

/// The webhook does not review objects in namespace kube-system.
#[test]
fn an_empty_inventory_vanishes_with_the_first_update_of_hive() {
    with_management_cluster(async |management| {
        let mut story = Story::begin(management, "sequence-empty", "sequence-empty-x").await;
        let refused = story.create_pool("empty", &json!([]), false).await;
        assert!(refused.contains("(inventory-empty)"), "{refused}");
        story.hosts.namespace = "kube-system";
        story
            .names
            .extend(owned(&[("namespace", "kube-system"), ("pool", "sequence-empty")]));
        story.create_pool("sequence-empty", &json!([]), false).await;
        let told = story.replay("first-update").await;
        assert_eq!(
            told,
            [
                "initialize-pool stored: no entry; short clusterpool/sequence-empty: size is 1, but the inventory has 0 entries",
                "add-pool-finalizer stored: no entry"
            ]
        );
        let pool = story
            .hosts
            .object("clusterpool", "sequence-empty", "kube-system")
            .await
            .unwrap();
        assert_eq!(pool["spec"].get("inventory"), None);
        let gone = json!({"metadata": {"finalizers": null}});
        story
            .hosts
            .patch("clusterpool/sequence-empty", "kube-system", &gone)
            .await;
        let delete = ["delete", "clusterpool", "sequence-empty", "-n", "kube-system"];
        story.hosts.kubectl.succeed(delete).await.unwrap();
    });
}
