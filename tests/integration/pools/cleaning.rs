//! A pool whose entries are cleaned between two holders.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use anyhow::{Result, ensure};
use http::Request;
use jiff::SignedDuration;
use kcp_tests::pools::command::CommandOutput;
use kcp_tests::pools::pool::Pool;
use kcp_tests::pools::server::PoolServer;
use kcp_tests::wait::until;
use serde_json::{Value, json};

use crate::shared::with_pools;

/// Runs until its parent, `pool exec`, is dead.
const UNTIL_KILLED: &str = "while kill -0 $PPID 2>/dev/null; do sleep 0.1; done";

/// A pool with the entry `host-1`, which asks for cleaning.
struct Cleaned<'s> {
    server: &'s PoolServer,
    namespace: String,
}

impl<'s> Cleaned<'s> {
    async fn create(server: &'s PoolServer, namespace: &str) -> Self {
        let pool = Pool::create(server, namespace, 1).await.unwrap();
        pool.ask_for_cleaning().await.unwrap();
        Self {
            server,
            namespace: pool.namespace().to_owned(),
        }
    }

    /// Runs `pool` with the arguments of the line, followed by `more`.
    async fn run(&self, line: &str, more: &[&str]) -> CommandOutput {
        let words = ["pool", "-n", &self.namespace].into_iter();
        let words: Vec<_> = words
            .chain(line.split_whitespace())
            .chain(more.iter().copied())
            .collect();
        let ended = self.server.plugin().run(&words, None, SignedDuration::ZERO).await;
        ended.unwrap()
    }

    async fn succeed(&self, line: &str) -> CommandOutput {
        let ended = self.run(line, &[]).await;
        assert_eq!(ended.code, Some(0), "{ended}");
        ended
    }

    /// `paris` leases the entry, and releases it.
    async fn use_entry(&self) -> CommandOutput {
        self.succeed("lease hosts --cluster-deployment paris --no-cluster")
            .await;
        self.succeed("release hosts --cluster-deployment paris").await
    }

    /// Runs this script for each entry that must be cleaned.
    async fn clean(&self, flags: &str, script: &str) -> CommandOutput {
        let line = format!("exec hosts --clean {flags} -- sh -c");
        self.run(&line, &[script]).await
    }

    fn path(&self, object: &str) -> String {
        let namespace = &self.namespace;
        format!("/apis/hive.openshift.io/v1/namespaces/{namespace}/{object}")
    }

    async fn patch(&self, object: &str, patch: &Value) {
        let request =
            Request::patch(self.path(object)).header("content-type", "application/merge-patch+json");
        let request = request.body(serde_json::to_vec(patch).unwrap()).unwrap();
        self.server.client().request::<Value>(request).await.unwrap();
    }

    async fn entry(&self) -> Result<Value> {
        let request = Request::get(self.path("clusterdeploymentcustomizations/host-1")).body(Vec::new())?;
        Ok(self.server.client().request(request).await?)
    }

    /// The record of the entry's cleaning; empty if there is none.
    async fn record(&self) -> Result<String> {
        let entry = self.entry().await?;
        let conditions = entry["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let is_cleaning = |condition: &&Value| condition["type"] == "kubectl-kcp.dev/Cleaning";
        let record = conditions
            .iter()
            .find(is_cleaning)
            .and_then(|found| found["message"].as_str());
        Ok(record.unwrap_or_default().to_owned())
    }

    /// Whether the entry is free.
    async fn is_free(&self) -> Result<bool> {
        let entry = self.entry().await?;
        let status = &entry["status"];
        let is_available = status["conditions"][0]["status"] == "True";
        Ok(is_available && status["clusterPoolRef"].is_null() && self.record().await?.is_empty())
    }

    /// Waits until a janitor has the entry.
    async fn until_cleaning(&self) {
        until("a janitor has the entry", || async {
            let record = self.record().await?;
            ensure!(!record.is_empty() && !record.contains("janitor=-"), "{record:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

#[test]
fn a_released_entry_is_leased_again_only_after_it_was_cleaned() {
    with_pools(async |server| {
        let pool = Cleaned::create(server, "pool-cleaning").await;
        let released = pool.use_entry().await;
        let expected =
            "clusterdeploymentcustomization.hive.openshift.io/host-1 released, and waits for cleaning\n";
        assert_eq!(released.stdout, expected);
        let status = pool.entry().await.unwrap()["status"].clone();
        assert_eq!(status["clusterPoolRef"]["name"], "hosts");
        assert!(status["clusterDeploymentRef"].is_null(), "{status}");
        assert_eq!(status["conditions"][0]["status"], "False");
        let refused = pool
            .run("lease hosts --cluster-deployment rome --no-cluster", &[])
            .await;
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(
            refused.stderr.contains("1 being cleaned: host-1 since 20"),
            "{refused}"
        );
        let again = pool.succeed("release hosts --cluster-deployment paris").await;
        assert_eq!(
            again.stdout,
            "paris holds nothing from pool pool-cleaning/hosts\n"
        );

        let waiter = pool.succeed("lease hosts --cluster-deployment rome --no-cluster --wait=9m -o json");
        let janitor = async {
            until("rome waits", || async {
                let status = pool.run("status hosts -o json", &[]).await.answer()?;
                ensure!(status["queue"][0]["holder"] == "rome", "{status}");
                ensure!(status["entries"][0]["state"] == "cleaning", "{status}");
                ensure!(
                    status["entries"][0]["cleaning"]["lastHolder"] == "paris",
                    "{status}"
                );
                Ok(())
            })
            .await
            .unwrap();
            let show =
                "echo $KCP_NAMESPACE $KCP_POOL $KCP_CUSTOMIZATION $KCP_CLUSTER_DEPLOYMENT ${#KCP_LEASE_ID}";
            pool.clean("", show).await
        };
        let (leased, cleaned) = tokio::join!(waiter, janitor);
        assert_eq!(cleaned.code, Some(0), "{cleaned}");
        assert_eq!(cleaned.stdout, "pool-cleaning hosts host-1 paris 16\n");
        assert_eq!(
            cleaned.stderr,
            "cleaning host-1, which paris held\nhost-1 is clean, and free\n"
        );
        assert_eq!(leased.customization().unwrap(), "host-1");
        let idle = pool.clean("", "echo ran").await;
        assert_eq!((idle.code, idle.stdout.as_str()), (Some(0), ""), "{idle}");
    });
}

#[test]
fn an_entry_that_cannot_be_cleaned_is_cordoned() {
    with_pools(async |server| {
        let pool = Cleaned::create(server, "pool-cleaning-failed").await;
        pool.use_entry().await;
        let failed = pool.clean("", "exit 7").await;
        assert_eq!(failed.code, Some(1), "{failed}");
        let reason = "cleaning failed 3 times, last with exit code 7";
        let attempt = "cleaning host-1, which paris held\n";
        assert_eq!(
            failed.stderr,
            format!(
                "{attempt}host-1 is not clean: the command exited with 7, failure 1 of 3\n{attempt}host-1 is not clean: the command \
                 exited with 7, failure 2 of 3\n{attempt}host-1 is not clean, and cordoned: {reason}\nhost-1 is not cleaned: it is \
                 cordoned: {reason}\n"
            )
        );
        let entry = pool.entry().await.unwrap();
        assert_eq!(
            entry["metadata"]["annotations"]["kubectl-kcp.dev/cordoned"],
            reason
        );
        assert!(
            pool.record()
                .await
                .unwrap()
                .contains("janitor=- deadline=- failures=3 ")
        );
        let skipped = pool.clean("", "true").await;
        assert_eq!(skipped.code, Some(0), "{skipped}");
        assert!(!pool.is_free().await.unwrap());
        let status = pool.run("status hosts", &[]).await;
        assert_eq!(status.code, Some(1), "{status}");
        let problem = "cleaning failed 3 times; no janitor tries again until the entry is uncordoned";
        assert!(status.stdout.contains(problem), "{status}");
        pool.succeed("uncordon host-1").await;
        let cleaned = pool.clean("", "true").await;
        assert_eq!(cleaned.code, Some(0), "{cleaned}");
        assert!(pool.is_free().await.unwrap());

        pool.use_entry().await;
        let missing = pool.run("exec hosts --clean -- /no/such/program", &[]).await;
        assert_eq!(missing.code, Some(127), "{missing}");
        assert!(
            pool.record()
                .await
                .unwrap()
                .contains("janitor=- deadline=- failures=0 ")
        );
        let refused = pool.run("repair hosts", &[]).await;
        assert_eq!(refused.code, Some(0), "{refused}");
        let forced = pool.succeed("repair hosts --yes --force host-1").await;
        assert!(
            forced
                .stdout
                .contains("the entry was not cleaned after paris held it"),
            "{forced}"
        );
        assert!(pool.is_free().await.unwrap());
    });
}

#[test]
fn another_janitor_takes_over_after_the_deadline() {
    with_pools(async |server| {
        let pool = Cleaned::create(server, "pool-cleaning-killed").await;
        pool.use_entry().await;
        // Dropping the command kills it.
        tokio::select! {
            ended = pool.clean("--ttl 3s", UNTIL_KILLED) => panic!("{ended}"),
            () = pool.until_cleaning() => {}
        }
        until("another janitor has cleaned the entry", || async {
            let cleaned = pool.clean("", "true").await;
            ensure!(pool.is_free().await?, "{cleaned}");
            Ok(())
        })
        .await
        .unwrap();

        pool.use_entry().await;
        let loses = pool.clean("--ttl 1m", UNTIL_KILLED);
        let taken = async {
            pool.until_cleaning().await;
            let refused = pool.run("repair hosts --yes --force host-1", &[]).await;
            assert_eq!(refused.code, Some(1), "{refused}");
            assert!(refused.stdout.contains("stop the janitor first"), "{refused}");
            let free = json!({"status": {"clusterPoolRef": null, "conditions": []}});
            pool.patch("clusterdeploymentcustomizations/host-1/status", &free)
                .await;
        };
        let (lost, ()) = tokio::join!(loses, taken);
        assert_eq!(lost.code, Some(1), "{lost}");
        let why = "\nlost host-1, which another janitor may clean now: the customization is free or has another lease\n";
        assert!(lost.stderr.ends_with(why), "{lost}");
    });
}

#[test]
fn a_janitor_finds_leases_that_have_ended() {
    with_pools(async |server| {
        let pool = Cleaned::create(server, "pool-cleaning-ended").await;
        pool.succeed("lease hosts --cluster-deployment paris --no-cluster --ttl 1s")
            .await;
        until("a janitor has cleaned the entry", || async {
            let cleaned = pool.clean("", "true").await;
            ensure!(pool.is_free().await?, "{cleaned}");
            assert!(
                cleaned.stderr.starts_with("cleaning host-1, which paris held\n"),
                "{cleaned}"
            );
            Ok(())
        })
        .await
        .unwrap();
        pool.succeed("lease hosts --cluster-deployment paris --no-cluster --ttl 1s")
            .await;
        until("the lease has ended", || async {
            let refused = pool
                .run("lease hosts --cluster-deployment rome --no-cluster", &[])
                .await;
            assert_eq!(refused.code, Some(1), "{refused}");
            ensure!(
                refused.stderr.contains("1 being cleaned: host-1 since 20"),
                "{refused}"
            );
            Ok(())
        })
        .await
        .unwrap();
        assert!(
            pool.record()
                .await
                .unwrap()
                .starts_with("v1 holder=paris since=20")
        );
    });
}
