//! Entries of pools that Hive manages. The tests write what Hive's controllers write, in the order in which Hive (openshift/hive
//! c02e517) wrote it beside these commands.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use anyhow::ensure;
use jiff::Timestamp;
use kcp_tests::wait::until;
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::objects::{report, write, written};
use crate::pool_repair::{CUSTOMIZATION, LONG_AGO};
use crate::pool_status::allowed;
use crate::shared::with_management_cluster;

const DEPROVISION: &str = "hive.openshift.io/deprovision";
const BY_HIVE: &str = "--hive=yes";

impl Hosts {
    /// Creates a cluster with a customization, and reports that it is installed.
    pub(crate) async fn installed_cluster(&self, cluster: &str, entry: &str) {
        self.cluster(cluster, entry, &[]).await;
        self.mark(entry, false, Some(cluster)).await;
        let installed = json!({"spec": {
            "installed": true, "powerState": "Running",
            "clusterMetadata": {"adminKubeconfigSecretRef": {"name": "admin"}, "clusterID": "id", "infraID": "infra"},
        }});
        self.patch(&format!("clusterdeployment/{cluster}"), cluster, &installed)
            .await;
    }

    /// Reports that a cluster has been resuming since [`LONG_AGO`].
    pub(crate) async fn resumes(&self, cluster: &str) {
        let resuming = json!({"powerState": "WaitingForNodes", "conditions": [
            {"type": "Hibernating", "status": "False", "reason": "ResumingOrRunning", "message": "Cluster is starting",
                "lastProbeTime": LONG_AGO, "lastTransitionTime": LONG_AGO},
        ]});
        report(&self.kubectl, cluster, ["clusterdeployment", cluster], &resuming)
            .await
            .unwrap();
    }

    /// Removes entries from the inventory, as a user does.
    async fn list_only(&self, entries: &[&str]) {
        let entries: Vec<_> = entries.iter().map(|name| json!({ "name": name })).collect();
        let inventory = json!({"spec": {"inventory": entries}});
        self.patch("clusterpool/hosts", self.namespace, &inventory).await;
    }

    /// The message of each problem of the pool. Checks that the exit code is 1 only if there is a problem.
    async fn problems(&self) -> Vec<String> {
        let ended = self.run(&["status", "hosts", BY_HIVE, "-o", "json"]).await;
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        let problems = document
            .get("problems")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        assert_eq!(ended.code, i32::from(!problems.is_empty()), "{ended}");
        let text = |problem: &Value| problem["message"].as_str().unwrap_or_default().to_owned();
        problems.iter().map(text).collect()
    }
}

#[test]
fn no_record_is_written_in_an_entry_that_hive_has_freed() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "hive-freed", 2).await;
        let cluster = "hive-freed-x";
        hosts.cluster(cluster, "host-0", &[DEPROVISION]).await;
        hosts.mark("host-0", false, Some(cluster)).await;
        hosts.list_only(&["host-1"]).await;
        hosts.delete_cluster(cluster).await;
        // Hive frees the entry once the cluster is deprovisioned, and then removes its finalizer from the cluster.
        hosts.mark("host-0", true, None).await;
        assert_eq!(hosts.repair(&["--yes", BY_HIVE]).await, (0, vec![]));
        assert_eq!(hosts.record_of("host-0").await, None);
        // Hive may have deleted the pool before.
        let delete = ["delete", "clusterpool", "hosts", "-n", hosts.namespace];
        hosts.kubectl.succeed(delete).await.unwrap();
        assert_eq!(hosts.repair(&["--yes", BY_HIVE]).await, (0, vec![]));
        let gone = json!({"metadata": {"finalizers": null}});
        hosts
            .patch(&format!("clusterdeployment/{cluster}"), cluster, &gone)
            .await;
        assert_eq!(hosts.repair(&["--yes", BY_HIVE]).await, (0, vec![]));
        assert_eq!(hosts.entry("host-0").await, "- True");
        assert_eq!(hosts.record_of("host-0").await, None);
    });
}

#[test]
fn an_entry_that_was_dropped_while_hive_had_reserved_it_is_freed() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "hive-dropped", 2).await;
        // Hive stopped between its reservation and the creation of the cluster.
        hosts.mark("host-0", false, Some("hive-dropped-x")).await;
        hosts.mark("host-1", false, Some("hive-dropped-y")).await;
        let unfreed = |cluster: &str| {
            format!(
                "Hive reserved the entry for ClusterDeployment {cluster}, which does not exist, and has not freed the entry \
                 since; check that Hive runs"
            )
        };
        let both = [unfreed("hive-dropped-x"), unfreed("hive-dropped-y")];
        assert_eq!(hosts.problems().await, both);
        hosts
            .mark_since(
                "host-1",
                false,
                Some("hive-dropped-y"),
                &format!("{:.0}", Timestamp::now()),
            )
            .await;
        hosts.list_only(&["host-1"]).await;
        let reserved = |cluster: &str| {
            format!(
                "Hive reserved the entry for ClusterDeployment {cluster}, which does not exist; Hive does not free the \
                 entry, because no pool lists the entry, except for pools that are being deleted"
            )
        };
        assert_eq!(hosts.problems().await, [reserved("hive-dropped-x")]);
        let found = |entry: &str, result: &str| vec![format!("{entry} hive free {result}")];
        assert_eq!(hosts.repair(&[BY_HIVE]).await, (1, found("host-0", "-")));
        assert_eq!(
            hosts.repair(&["--yes", BY_HIVE]).await,
            (0, found("host-0", "done"))
        );
        assert_eq!(hosts.entry("host-0").await, "- True");

        // Hive frees no entries of a pool that is being deleted.
        hosts.delete_pool().await;
        assert_eq!(hosts.problems().await, Vec::<String>::new());
        hosts.mark("host-1", false, Some("hive-dropped-y")).await;
        assert_eq!(hosts.problems().await, [reserved("hive-dropped-y")]);
        assert_eq!(
            hosts.repair(&["--yes", BY_HIVE]).await,
            (0, found("host-1", "done"))
        );
        assert_eq!(hosts.entry("host-1").await, "- True");
        assert_eq!(hosts.problems().await, Vec::<String>::new());
        hosts.end_deletion().await;
    });
}

#[test]
fn an_available_entry_that_refers_to_a_missing_cluster_is_reported() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "hive-dirty", 1).await;
        hosts.mark("host-0", true, Some("hive-dirty-x")).await;
        let dirty = "the condition Available is True, but the status refers to ClusterDeployment hive-dirty-x, which \
                     does not exist, so Hive cannot create a cluster with the entry";
        assert_eq!(hosts.problems().await, [dirty]);
        let freed = (0, vec!["host-0 hive free done".to_owned()]);
        assert_eq!(hosts.repair(&["--yes", BY_HIVE]).await, freed);
        assert_eq!(hosts.entry("host-0").await, "- True");

        // Without Hive, and without a reference to a pool.
        hosts.mark("host-0", true, Some("hive-dirty-x")).await;
        let poolless = json!({"clusterPoolRef": null});
        report(
            &hosts.kubectl,
            hosts.namespace,
            [CUSTOMIZATION, "host-0"],
            &poolless,
        )
        .await
        .unwrap();
        let status = hosts.run(&["status", "hosts"]).await;
        let why = "refers to ClusterDeployment hive-dirty-x, which does not exist, and to no pool";
        assert!(status.code == 1 && status.stdout.contains(why), "{status}");
        let found = |remedy: &str| vec![format!("host-0 unknown {remedy}")];
        assert_eq!(hosts.repair(&["--yes"]).await, (1, found("force -")));
        assert_eq!(
            hosts.repair(&["--yes", "--force", "host-0"]).await,
            (0, found("free done"))
        );
        assert_eq!(hosts.entry("host-0").await, "- True");
    });
}

/// The user may not read Hive's own objects, so the pool's finalizer decides.
#[test]
fn a_cordon_is_refused_in_a_pool_of_hive() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "hive-cordon", 1).await;
        let finalizer = json!({"metadata": {"finalizers": ["hive.openshift.io/clusters"]}});
        hosts
            .patch("clusterpool/hosts", hosts.namespace, &finalizer)
            .await;
        let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["hive.openshift.io"], "resources": [resource], "verbs": verbs});
        let rules = [
            rule("clusterpools", &["get", "list"]),
            rule("clusterdeploymentcustomizations", &["get", "list", "patch"]),
        ];
        let with_pools = allowed("hive-cordon-operator", rules.into_iter());
        let rules = [rule("clusterdeploymentcustomizations", &["get", "list", "patch"])];
        let without_pools = allowed("hive-cordon-without-pools", rules.into_iter());
        written(
            &hosts.kubectl,
            "create",
            &[with_pools, without_pools].concat(),
            &[],
        )
        .await
        .unwrap();
        let version = async || {
            let entry = hosts
                .object(CUSTOMIZATION, "host-0", hosts.namespace)
                .await
                .unwrap();
            entry["metadata"]["resourceVersion"].clone()
        };
        let before = version().await;
        let refused = async |user: &str, code: i32, why: &str| {
            for verb in [
                &["cordon", "host-0", "--reason", "fan", "--as", user][..],
                &["uncordon", "host-0", "--as", user],
            ] {
                until("the API server has learned of the role", || async {
                    let ended = hosts.run(verb).await;
                    ensure!(ended.code == code && ended.stderr.contains(why), "{ended}");
                    Ok(())
                })
                .await
                .unwrap();
            }
        };
        let by_hive = "blocked: Hive manages, or may manage, pool hosts (the pool has Hive's finalizer)";
        refused("hive-cordon-operator", 1, by_hive).await;
        let unknown = "cannot find out whether Hive manages a pool of host-0; if it does not, add --hive=no";
        refused("hive-cordon-without-pools", 2, unknown).await;
        assert_eq!(version().await, before);

        let user = ["--as", "hive-cordon-without-pools", "--hive=no"];
        let cordon = [&["cordon", "host-0", "--reason", "fan"][..], &user].concat();
        let cordoned = hosts.run(&cordon).await;
        assert_eq!(cordoned.code, 0, "{cordoned}");
        let uncordoned = hosts.run(&[&["uncordon", "host-0"][..], &user].concat()).await;
        assert_eq!(uncordoned.code, 0, "{uncordoned}");
    });
}

#[test]
fn force_names_the_command_that_frees_an_entry_within_the_grace_period() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "repair-in-grace", 1).await;
        let release = "kubectl kcp pool release hosts --cluster-deployment paris -n repair-in-grace";
        let kept = async |why: &str| {
            let kept = hosts
                .run(&["repair", "hosts", "--yes", "--force", "host-0"])
                .await;
            let texts = [why, release, "1 not freed by --force\n"];
            let says_all = texts.iter().all(|text| kept.stdout.contains(text));
            assert!(kept.code == 1 && says_all, "{kept}");
            assert_eq!(hosts.entry("host-0").await, "paris False");
            let released = hosts
                .run(&["release", "hosts", "--cluster-deployment", "paris"])
                .await;
            assert_eq!(released.code, 0, "{released}");
            assert_eq!(hosts.entry("host-0").await, "- True");
        };
        hosts.leases("paris").await;
        hosts.rewrite_record("host-0", &[("state", "gone")]).await;
        kept("not freed: the cluster of paris no longer exists, and the entry stays reserved until ").await;
        hosts.mark("host-0", false, Some("paris")).await;
        kept("not freed: the entry is reserved for ClusterDeployment paris, which does not exist").await;
    });
}

#[test]
fn a_cluster_that_resumes_too_long_is_a_problem() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "hive-resuming", 1).await;
        let cluster = "hive-resuming-x";
        let timeout = json!({"spec": {"hibernationConfig": {"resumeTimeout": "30m"}}});
        hosts.patch("clusterpool/hosts", hosts.namespace, &timeout).await;
        hosts.installed_cluster(cluster, "host-0").await;
        assert_eq!(hosts.problems().await, Vec::<String>::new());
        hosts.resumes(cluster).await;
        let problem = format!(
            "the cluster has been resuming since {LONG_AGO}, and has exceeded the pool's resumeTimeout; Hive deletes the cluster and \
             creates another one"
        );
        assert_eq!(hosts.problems().await, [problem]);
    });
}

#[test]
fn a_cluster_that_hive_did_not_create_is_admitted_with_a_warning() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "hive-by-hand", 2).await;
        let listed = json!({"metadata": {"finalizers": ["hive.openshift.io/hosts"]}});
        for entry in ["host-0", "host-1"] {
            hosts
                .patch(&format!("{CUSTOMIZATION}/{entry}"), hosts.namespace, &listed)
                .await;
        }
        let create = async |name: &str, entry: &str, annotations: Value| {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let deployment = json!({
                "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
                "metadata": {"name": name, "namespace": name, "annotations": annotations},
                "spec": {
                    "baseDomain": "example.com", "clusterName": name, "platform": {},
                    "clusterPoolRef": {"namespace": "hive-by-hand", "poolName": "hosts",
                        "clusterDeploymentCustomization": {"name": entry}},
                },
            });
            let created = write(&hosts.kubectl, "create", &[namespace, deployment], &[])
                .await
                .unwrap();
            assert_eq!(created.code, 0, "{created}");
            created.stderr
        };
        let warning = create("hive-by-hand-x", "host-0", json!({})).await;
        assert!(warning.contains("(cluster-not-made-by-hive)"), "{warning}");
        let of_hive = json!({"hive.openshift.io/cluster-pool-spec-hash": "a6dcbd6776a3c92b"});
        assert_eq!(create("hive-by-hand-y", "host-1", of_hive).await, "");
    });
}
