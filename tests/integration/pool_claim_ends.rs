//! How claims of clusters end: by the command that created them, at their lifetime, or by a repair. A stand-in for Hive
//! serves the claims.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::pools::stand_in_hive::StandInHive;
use kcp_tests::wait::until;
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::objects::report;
use crate::pool::document;
use crate::shared::with_management_cluster;

/// A pool of the stand-in for Hive, with this number of unclaimed clusters.
async fn served(
    management: &ManagementCluster,
    namespace: &'static str,
    size: usize,
) -> (Hosts, StandInHive) {
    let hosts = Hosts::create(management, namespace, 1).await;
    (
        hosts,
        StandInHive::new(management.client(), namespace, "hosts", size).unwrap(),
    )
}

/// Runs a verb with `--hive=yes`.
async fn pool(hosts: &Hosts, verb: &str, arguments: &[&str]) -> CommandOutput {
    hosts.pool(verb, &[&["--hive=yes"], arguments].concat()).await
}

async fn claim(hosts: &Hosts) -> Option<Value> {
    hosts.own("clusterclaim", "paris").await
}

const PARIS: [&str; 3] = ["--cluster-deployment", "paris", "--claim"];

/// A script that ends when the file exists.
fn until_exists(file: &Path) -> String {
    format!("until [ -e '{}' ]; do sleep 0.1; done", file.display())
}

/// A script that creates this file, and runs until it is terminated.
fn until_terminated(up: &Path) -> String {
    format!(
        "trap 'exit 0' TERM; : > '{}'; while :; do sleep 0.1; done",
        up.display()
    )
}

/// Waits until the script has created this file.
async fn runs(up: &Path) {
    until("the command runs", || async {
        ensure!(up.exists(), "no {}", up.display());
        Ok(())
    })
    .await
    .unwrap();
}

fn exec<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&PARIS, options, &["--", "sh", "-c", script]].concat()
}

#[test]
fn hive_deletes_the_claim_of_a_killed_exec_at_its_end() {
    with_management_cluster(async |management| {
        let (hosts, mut hive) = served(management, "claim-killed", 1).await;
        // The command's parent is kubectl-kcp.
        let script = "kill -9 $PPID";
        let ran = hive
            .serve_while(pool(&hosts, "exec", &exec(&[], script)))
            .await
            .unwrap();
        assert_ne!(ran.code, 0, "{ran}");
        let now = Timestamp::now();
        assert_eq!(hive.settle(now).await.unwrap().len(), 1);
        // The default ttl of exec is 15 minutes.
        let later = now + SignedDuration::from_mins(16);
        assert_eq!(hive.settle(later).await.unwrap(), Vec::<Value>::new());
    });
}

#[test]
fn a_claim_lasts_as_long_as_its_command() {
    with_management_cluster(async |management| {
        let (hosts, mut hive) = served(management, "claim-extended", 1).await;
        let go = hosts.kubectl.scratch_file("claim-extended");
        let script = format!("{}; exit 3", until_exists(&go));
        let extended = async {
            until("exec has extended the claim twice", || async {
                let claim = claim(&hosts).await.context("no claim")?;
                let lifetime = claim["spec"]["lifetime"].as_str().context("no lifetime")?;
                let seconds: u64 = lifetime.trim_end_matches('s').parse()?;
                ensure!(seconds >= 30, "the lifetime is {lifetime}");
                Ok(())
            })
            .await
            .unwrap();
            fs::write(&go, "").unwrap();
        };
        let options = ["--ttl", "20s"];
        let arguments = exec(&options, &script);
        let run = async { tokio::join!(pool(&hosts, "exec", &arguments), extended) };
        let (ran, ()) = hive.serve_while(run).await.unwrap();
        assert_eq!(ran.code, 3, "{ran}");
        assert_eq!(hive.settle(Timestamp::now()).await.unwrap(), Vec::<Value>::new());
    });
}

#[test]
fn one_claim_is_given_to_one_command_only() {
    with_management_cluster(async |management| {
        let (hosts, mut hive) = served(management, "claim-once", 2).await;
        for round in 0..4 {
            let lease = [&PARIS[..], &["--new", "-o", "json"]].concat();
            let go = hosts.kubectl.scratch_file(&format!("claim-once-{round}"));
            let script = until_exists(&go);
            let held = exec(&[], &script);
            let all = async {
                let leases = async {
                    let leases = join_all((0..6).map(|_| pool(&hosts, "lease", &lease))).await;
                    fs::write(&go, "").unwrap();
                    leases
                };
                tokio::join!(leases, pool(&hosts, "exec", &held))
            };
            let (leases, of_exec) = hive.serve_while(all).await.unwrap();
            let (given, refused): (Vec<_>, Vec<_>) = leases.iter().partition(|ended| ended.code == 0);
            let expected = if of_exec.code == 0 { (0, 0) } else { (1, 125) };
            assert_eq!((given.len(), of_exec.code), expected, "{leases:?} {of_exec}");
            for refused in refused {
                assert_eq!(document(refused)["reason"], "held", "{refused}");
            }
            // Only the command that created the claim has deleted it.
            let left = hive.settle(Timestamp::now()).await.unwrap();
            assert_eq!(left.len(), given.len());
            let release = [&PARIS[..2], &["--delete-cluster", "--yes"]].concat();
            let released = pool(&hosts, "release", &release).await;
            assert_eq!(released.code, 0, "{released}");
            hive.settle(Timestamp::now()).await.unwrap();
        }
    });
}

#[test]
fn exec_does_not_delete_the_claim_of_the_next_run() {
    with_management_cluster(async |management| {
        let (hosts, mut hive) = served(management, "claim-next", 1).await;
        let up = hosts.kubectl.scratch_file("claim-next");
        let next = async {
            runs(&up).await;
            let first = claim(&hosts).await.unwrap()["metadata"]["uid"].clone();
            let delete = ["delete", "clusterclaim", "paris", "-n", hosts.namespace];
            hosts.kubectl.succeed(delete).await.unwrap();
            let leased = pool(&hosts, "lease", &[&PARIS[..], &["--new"]].concat()).await;
            assert_eq!(leased.code, 0, "{leased}");
            let second = claim(&hosts).await.unwrap()["metadata"]["uid"].clone();
            assert_ne!(first, second);
            second
        };
        let script = until_terminated(&up);
        let arguments = exec(&[], &script);
        let run = async { tokio::join!(pool(&hosts, "exec", &arguments), next) };
        let (ran, second) = hive.serve_while(run).await.unwrap();
        let left = claim(&hosts).await.map(|claim| claim["metadata"].clone());
        let left = left.map(|left| (left["uid"].clone(), left["deletionTimestamp"].clone()));
        assert_eq!(left, Some((second, Value::Null)), "{ran}");
        assert_eq!(ran.code, 125, "{ran}");
        let lost = "lost the cluster claim-next-0: ClusterClaim paris was deleted\n";
        assert!(ran.stderr.contains(lost), "{ran}");
    });
}

#[test]
fn renew_extends_a_claim() {
    with_management_cluster(async |management| {
        let (hosts, mut hive) = served(management, "claim-renew", 1).await;
        let lease = [&PARIS[..], &["-o", "json"]].concat();
        let leased = hive.serve_while(pool(&hosts, "lease", &lease)).await.unwrap();
        assert_eq!(leased.code, 0, "{leased}");
        let leased = document(&leased);
        hive.settle(Timestamp::now()).await.unwrap();
        let renew = |arguments: Vec<&'static str>| {
            let hosts = &hosts;
            async move {
                let command = [&["renew", "hosts", "-o", "json"][..], &PARIS[..2], &arguments].concat();
                hosts.run(&command).await
            }
        };
        let refused = renew(vec!["--id", "bcdfghjk"]).await;
        assert_eq!(
            (refused.code, &document(&refused)["reason"]),
            (1, &json!("not-holder")),
            "{refused}"
        );
        let renewed = renew(vec!["--ttl", "48h"]).await;
        assert_eq!(renewed.code, 0, "{renewed}");
        let renewed = &document(&renewed)["claim"];
        assert_eq!(renewed["leaseId"], leased["leaseId"]);
        let seconds = |time: &Value| time.as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
        let longer = seconds(&renewed["ends"]) - seconds(&leased["ends"]);
        assert!((86_390..=87_000).contains(&longer), "{renewed} after {leased}");
        // The claim ends later than that already.
        let kept = renew(vec!["--ttl", "1m"]).await;
        assert_eq!(document(&kept)["claim"]["ends"], renewed["ends"], "{kept}");
        let never = renew(vec!["--ttl", "0"]).await;
        assert_eq!(never.code, 2, "{never}");

        let status = hosts.run(&["status", "hosts", "--hive=yes", "-o", "json"]).await;
        let listed = json!([{
            "name": "paris", "clusterDeployment": "claim-renew-0", "leaseId": leased["leaseId"],
            "user": "admin", "ends": renewed["ends"], "deleting": false,
        }]);
        assert_eq!(document(&status)["claims"], listed, "{status}");
    });
}

#[test]
fn a_lost_cluster_is_named() {
    with_management_cluster(async |management| {
        let (hosts, mut hive) = served(management, "claim-lost", 1).await;
        let up = hosts.kubectl.scratch_file("claim-lost");
        let loss = async {
            runs(&up).await;
            let cluster = [
                "delete",
                "clusterdeployment",
                "claim-lost-0",
                "-n",
                "claim-lost-0",
            ];
            hosts.kubectl.succeed(cluster).await.unwrap();
            // The message is about the cluster, whether Hive has noticed or not.
            until("the cluster is gone", || async {
                let cluster = hosts
                    .object("clusterdeployment", "claim-lost-0", "claim-lost-0")
                    .await;
                ensure!(cluster.is_none(), "the cluster exists");
                Ok(())
            })
            .await
            .unwrap();
            let again = pool(
                &hosts,
                "lease",
                &[&PARIS[..], &["--wait=1s", "-o", "json"]].concat(),
            )
            .await;
            assert_eq!(again.code, 1, "{again}");
            let why = "ClusterDeployment claim-lost-0 was deleted, although Hive had assigned it to ClusterClaim paris; the claim remains, \
                       because it existed before this command";
            assert_eq!(document(&again)["message"], why, "{again}");
        };
        let script = until_terminated(&up);
        let arguments = exec(&[], &script);
        let run = async { tokio::join!(pool(&hosts, "exec", &arguments), loss) };
        let (ran, ()) = hive.serve_while(run).await.unwrap();
        let message = "lost the cluster claim-lost-0: ClusterDeployment claim-lost-0 was deleted\n";
        assert!(ran.code == 125 && ran.stderr.contains(message), "{ran}");
    });
}

#[test]
fn a_pool_that_is_being_deleted_gets_no_claim() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "claim-no-pool", 1).await;
        hosts.delete_pool().await;
        let refused = pool(
            &hosts,
            "lease",
            &[&PARIS[..], &["--wait=2m", "-o", "json"]].concat(),
        )
        .await;
        assert_eq!(
            (refused.code, &document(&refused)["message"]),
            (1, &json!("pool hosts is being deleted")),
            "{refused}"
        );
        assert_eq!(claim(&hosts).await, None);
        hosts.end_deletion().await;
    });
}

/// Hive does not run here, so nothing deletes the claim at its end.
#[test]
fn repair_deletes_a_claim_that_hive_did_not_delete_at_its_end() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "claim-overdue", 1).await;
        let late = pool(&hosts, "lease", &[&PARIS[..], &["--wait=1s", "--keep"]].concat()).await;
        assert_eq!(late.code, 1, "{late}");
        let assigned = |when: &str| {
            let condition = json!({"type": "Pending", "status": "False", "lastTransitionTime": when});
            json!({"conditions": [condition]})
        };
        let kind = ["clusterclaim", "paris"];
        report(
            &hosts.kubectl,
            hosts.namespace,
            kind,
            &assigned("2999-01-01T00:00:00Z"),
        )
        .await
        .unwrap();
        let repair = async |arguments: &[&str]| {
            let ended = pool(&hosts, "repair", &[&["-o", "json"], arguments].concat()).await;
            (ended.code, document(&ended)["findings"].clone())
        };
        assert_eq!(repair(&["--yes"]).await, (0, json!([])));
        report(
            &hosts.kubectl,
            hosts.namespace,
            kind,
            &assigned("2026-01-01T00:00:00Z"),
        )
        .await
        .unwrap();
        let finding = |result: Option<&str>| {
            let mut finding = json!({
                "namespace": hosts.namespace, "pool": "hosts", "cause": "hive", "remedy": "remove",
                "object": {"kind": "ClusterClaim", "namespace": hosts.namespace, "name": "paris"},
                "message": "the claim ended at 2026-01-02T00:00:00Z, but Hive has not deleted it",
            });
            if let Some(result) = result {
                finding["result"] = result.into();
            }
            json!([finding])
        };
        assert_eq!(repair(&[]).await, (1, finding(None)));
        let status = pool(&hosts, "status", &["-o", "json"]).await;
        let problem = json!({
            "kind": "left", "object": "clusterclaim/paris",
            "message": "the claim ended at 2026-01-02T00:00:00Z, but Hive has not deleted it",
        });
        let problems = document(&status)["problems"].as_array().unwrap().clone();
        assert!(status.code == 1 && problems.contains(&problem), "{status}");
        assert_eq!(repair(&["--yes"]).await, (0, finding(Some("done"))));
        assert_eq!(claim(&hosts).await, None);
    });
}
