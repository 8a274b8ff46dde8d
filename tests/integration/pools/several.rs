//! Lessees that want several entries at once, in processes of their own.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::collections::BTreeMap;
use std::pin::Pin;

use anyhow::{Result, ensure};
use http::Request;
use jiff::SignedDuration;
use kcp_tests::pools::command::CommandOutput;
use kcp_tests::pools::fault::{FAULTS, FaultPlan};
use kcp_tests::pools::pool::Pool;
use kcp_tests::pools::server::PoolServer;
use kcp_tests::pools::sets::{HeldSet, check_sets, compete_for_sets};
use kcp_tests::pools::verb::LEASE_TWO;
use kcp_tests::pools::version::Revision;
use kcp_tests::wait::until;
use serde_json::Value;

use crate::shared::with_pools;

const ENTRIES: usize = 4;

/// A pool with four entries.
struct Hosts<'s> {
    server: &'s PoolServer,
    pool: Pool<'s>,
}

type Waiting<'h> = Pin<Box<dyn Future<Output = CommandOutput> + 'h>>;

impl<'s> Hosts<'s> {
    async fn create(server: &'s PoolServer, namespace: &str) -> Self {
        let pool = Pool::create(server, namespace, ENTRIES).await.unwrap();
        Self { server, pool }
    }

    async fn run(&self, line: &str) -> CommandOutput {
        let words = ["pool", "-n", self.pool.namespace()]
            .into_iter()
            .chain(line.split_whitespace());
        let words: Vec<_> = words.collect();
        let plugin = self.server.plugin();
        plugin.run(&words, None, SignedDuration::ZERO).await.unwrap()
    }

    async fn lease(&self, lessee: &str, count: usize, more: &str) -> CommandOutput {
        let line =
            format!("lease hosts --cluster-deployment {lessee} --count {count} --no-cluster -o json {more}");
        self.run(&line).await
    }

    async fn release(&self, lessee: &str) {
        let line = format!("release hosts --cluster-deployment {lessee}");
        let ended = self.run(&line).await;
        assert_eq!(ended.code, Some(0), "{ended}");
    }

    /// The entries that each lessee holds.
    async fn held(&self) -> BTreeMap<String, Vec<String>> {
        let status = self.run("status hosts -o json").await.answer().unwrap();
        let mut held = BTreeMap::<_, Vec<_>>::new();
        for entry in status["entries"].as_array().unwrap() {
            if let Some(holder) = entry["holder"].as_str() {
                let name = entry["name"].as_str().unwrap();
                held.entry(holder.to_owned()).or_default().push(name.to_owned());
            }
        }
        held
    }

    /// Starts to wait, and returns once the lessee has a place.
    async fn wait(&'s self, lessee: &'s str, count: usize) -> Waiting<'s> {
        let mut waiting: Waiting<'s> = Box::pin(self.lease(lessee, count, "--wait=9m"));
        let joined = until("the lessee has a place", || async {
            let places = self.places().await?;
            ensure!(places.iter().any(|place| place["holder"] == lessee), "{places:?}");
            Ok(())
        });
        tokio::select! {
            joined = joined => joined.unwrap(),
            ended = &mut waiting => panic!("{ended}"),
        }
        waiting
    }

    async fn places(&self) -> Result<Vec<Value>> {
        let namespace = self.pool.namespace();
        let path =
            format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/kubectl-kcp-queue-hosts");
        let request = Request::get(path).body(Vec::new())?;
        let queue: Value = self.server.client().request(request).await?;
        let annotations = queue["metadata"]["annotations"].as_object();
        let places = annotations.into_iter().flatten();
        let places = places.filter(|(key, _)| key.starts_with("kubectl-kcp.dev/place-"));
        let places = places.map(|(_, place)| Ok(serde_json::from_str(place.as_str().unwrap_or_default())?));
        places.collect()
    }

    async fn revision(&self) -> Revision {
        self.server.history().revision().await.unwrap()
    }

    /// Waits until the lessee has its set, and releases it. Returns the set.
    async fn serve(&self, lessee: &str, waiting: impl Future<Output = CommandOutput>) -> HeldSet {
        let ended = waiting.await;
        assert_eq!(ended.code, Some(0), "{ended}");
        let first = self.revision().await;
        let entries = ended
            .leases()
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let last = self.revision().await;
        self.release(lessee).await;
        HeldSet {
            lessee: lessee.to_owned(),
            entries,
            first,
            last,
        }
    }
}

/// Runs rounds in which lessees of these numbers of entries wait at the same time, in this order. Each number and the next one
/// exceed the entries, so that each lessee is served after the one before it.
async fn rounds(server: &PoolServer, namespace: &str, counts: &[usize], rounds: usize) {
    let hosts = Hosts::create(server, namespace).await;
    let mut sets = Vec::new();
    for round in 0..rounds {
        let names: Vec<_> = (0..counts.len())
            .map(|number| format!("lessee-{round}-{number}"))
            .collect();
        assert_eq!(hosts.lease("holder", ENTRIES, "").await.code, Some(0));
        let mut waiting = Vec::new();
        for (name, count) in names.iter().zip(counts) {
            waiting.push(hosts.wait(name, *count).await);
        }
        hosts.release("holder").await;
        let lessees = names.iter().zip(waiting);
        let lessees = lessees.map(|(name, waiting)| hosts.serve(name, waiting));
        let lessees = futures_util::future::join_all(lessees).await;
        for (held, count) in lessees.iter().zip(counts) {
            assert_eq!(held.entries.len(), *count, "{}", held.lessee);
        }
        let order: Vec<_> = lessees.iter().map(|held| held.first).collect();
        assert!(order.is_sorted(), "round {round}: {order:?}");
        assert_eq!(hosts.held().await, BTreeMap::new(), "round {round}");
        sets.extend(lessees);
    }
    let versions = server.history().take(namespace).await.unwrap().entries;
    check_sets(&sets, &versions).unwrap();
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn two_lessees_of_overlapping_sets_are_served_in_thirty_rounds() {
    with_pools(async |server| rounds(server, "several-two", &[3, 2], 30).await);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn four_lessees_of_overlapping_sets_are_served_in_order_in_thirty_rounds() {
    with_pools(async |server| rounds(server, "several-four", &[3, 2, 3, 2], 30).await);
}

#[test]
fn lessees_that_wait_for_overlapping_sets_neither_block_nor_share() {
    with_pools(async |server| compete_for_sets(server, "several-competing", 4).await.unwrap());
}

/// Without a queue, so that they meet while they write.
#[test]
fn lessees_that_ask_at_the_same_time_get_all_or_none() {
    with_pools(async |server| {
        let hosts = Hosts::create(server, "several-at-once").await;
        for (round, counts) in [[2, 2, 2, 2], [3, 3, 3, 3], [3, 2, 3, 2], [4, 4, 2, 2]]
            .iter()
            .enumerate()
        {
            let names: Vec<_> = (0..counts.len())
                .map(|number| format!("lessee-{round}-{number}"))
                .collect();
            let asked = names.iter().zip(counts);
            let asked = asked.map(|(name, count)| hosts.lease(name, *count, ""));
            let answers = futures_util::future::join_all(asked).await;
            let held = hosts.held().await;
            for ((name, count), answer) in names.iter().zip(counts).zip(answers) {
                if answer.code == Some(0) {
                    assert_eq!(held[name].len(), *count, "{answer}");
                    hosts.release(name).await;
                } else {
                    assert_eq!(answer.text("/reason").unwrap(), "exhausted", "{answer}");
                    assert_eq!(held.get(name), None, "{answer}");
                }
            }
            assert_eq!(hosts.held().await, BTreeMap::new());
        }
    });
}

#[test]
fn a_lessee_of_several_entries_is_not_overtaken_by_lessees_of_one() {
    with_pools(async |server| {
        let hosts = Hosts::create(server, "several-starved").await;
        assert_eq!(hosts.lease("holder", 3, "").await.code, Some(0));
        let paris = hosts.wait("paris", 2).await;
        let rome = hosts.wait("rome", 1).await;
        // One entry is free, and paris keeps it for longer than any lessee of one entry would.
        let refused = hosts.lease("bern", 1, "--wait=12s").await;
        assert_eq!(refused.code, Some(1), "{refused}");
        assert_eq!(hosts.held().await.keys().collect::<Vec<_>>(), ["holder"]);
        let release = hosts.run("release cdc/host-1 --cluster-deployment holder").await;
        assert_eq!(release.code, Some(0), "{release}");
        let paris = paris.await;
        assert_eq!(paris.code, Some(0), "{paris}");
        let message = "pool several-starved/hosts has too few free entries for this request of 2 (4 in total): 1 free: host-4; 3 held: host-1 by holder until";
        assert!(paris.stderr.contains(message), "{paris}");
        let entries: Vec<_> = paris
            .leases()
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(entries, ["host-1", "host-4"]);
        hosts.release("holder").await;
        assert_eq!(rome.await.code, Some(0));
    });
}

#[test]
fn the_same_request_completes_and_renews_the_set_of_a_killed_command() {
    with_pools(async |server| {
        for fault in FAULTS {
            for write in 1..=2 {
                let namespace = format!("several-{fault:?}-{write}").to_lowercase();
                let hosts = Hosts::create(server, &namespace).await;
                let ended = hosts
                    .pool
                    .run(&LEASE_TWO, "paris", Some(FaultPlan { write, fault }))
                    .await
                    .unwrap();
                assert_eq!(ended.was_killed(), fault.kills(), "{ended}");
                let before = hosts.held().await;
                let again = hosts.pool.succeed(&LEASE_TWO, "paris").await.unwrap();
                let held = &hosts.held().await["paris"];
                let entries: Vec<_> = again
                    .leases()
                    .unwrap()
                    .into_iter()
                    .map(|(name, _)| name)
                    .collect();
                assert_eq!((&entries, entries.len()), (held, 2));
                let kept = before.get("paris").into_iter().flatten();
                assert!(kept.clone().all(|name| entries.contains(name)), "{before:?}");
                let renewed = hosts
                    .run("renew hosts --cluster-deployment paris --ttl 48h -o json")
                    .await;
                let leases = renewed.answer().unwrap()["leases"].as_array().unwrap().len();
                assert_eq!((renewed.code, leases), (Some(0), 2), "{renewed}");
                let found = hosts.run("repair hosts -o json").await;
                assert_eq!(found.code, Some(0), "{found}");
                hosts.release("paris").await;
                assert_eq!(hosts.held().await, BTreeMap::new());
            }
        }
    });
}

#[test]
fn a_request_for_too_many_entries_fails_at_once() {
    with_pools(async |server| {
        let hosts = Hosts::create(server, "several-too-many").await;
        let refused = hosts.lease("paris", 5, "--wait").await;
        assert_eq!(refused.code, Some(1), "{refused}");
        assert_eq!(refused.text("/reason").unwrap(), "no-such-entry");
        let message = refused.text("/message").unwrap();
        assert_eq!(message, "pool hosts has 4 entries, and 5 are requested");
        assert_eq!(hosts.lease("paris", 3, "").await.code, Some(0));
        let refused = hosts.lease("paris", 2, "").await;
        assert_eq!(
            (refused.code, refused.text("/reason").unwrap().as_str()),
            (Some(1), "held")
        );
        let held = refused.text("/message").unwrap();
        assert!(
            held.starts_with("paris already holds host-1, host-2, host-3, and 2 are requested"),
            "{held}"
        );
        // A name has no place for others to wait behind.
        assert_eq!(hosts.lease("rome", 1, "").await.code, Some(0));
    });
}
