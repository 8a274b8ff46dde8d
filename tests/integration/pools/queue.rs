//! Lessees that wait for the only entry of a pool.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::cell::RefCell;
use std::pin::Pin;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::join_all;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use kcp_tests::kubeconfig::plain_client;
use kcp_tests::pools::command::CommandOutput;
use kcp_tests::pools::pool::Pool;
use kcp_tests::pools::server::PoolServer;
use kcp_tests::wait::until;
use kcp_tests::{manifests, products};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::lessee_role::create;
use crate::shared::with_pools;

const PLACE: &str = "kubectl-kcp.dev/place-";

/// Longer than a test takes.
const LONG: SignedDuration = SignedDuration::from_mins(10);

/// The time after which a place ends.
const PLACE_TTL: SignedDuration = SignedDuration::from_secs(90);

/// A pool with one entry, which `holder` holds.
struct Queue<'s> {
    server: &'s PoolServer,
    namespace: String,
}

type Waiting<'s> = Pin<Box<dyn Future<Output = CommandOutput> + 's>>;

impl<'s> Queue<'s> {
    async fn create(server: &'s PoolServer, namespace: &str) -> Self {
        let pool = Pool::create(server, namespace, 1).await.unwrap();
        let queue = Self {
            server,
            namespace: pool.namespace().to_owned(),
        };
        assert_eq!(queue.pool("lease", "holder", "").await.code, Some(0));
        queue
    }

    /// Runs `pool VERB hosts` for this lessee.
    async fn pool(&self, verb: &str, lessee: &str, more: &str) -> CommandOutput {
        let line = format!("{verb} hosts --cluster-deployment {lessee} {more}");
        self.run(&line).await
    }

    async fn run(&self, line: &str) -> CommandOutput {
        let words = ["pool", "-n", &self.namespace]
            .into_iter()
            .chain(line.split_whitespace());
        let words: Vec<_> = words.collect();
        let ended = self.server.plugin().run(&words, None, SignedDuration::ZERO).await;
        ended.unwrap()
    }

    /// Starts to wait for the entry, and returns once the lessee has a place. Dropping the result kills the command.
    async fn wait(&'s self, lessee: &'s str) -> Waiting<'s> {
        let mut waiting: Waiting<'s> = Box::pin(self.pool("lease", lessee, "--no-cluster --wait=9m -o json"));
        let joined = until("the lessee has a place", || async {
            let places = self.places().await?;
            ensure!(
                places.iter().any(|(_, place)| place["holder"] == lessee),
                "{places:?}"
            );
            Ok(())
        });
        tokio::select! {
            joined = joined => joined.unwrap(),
            ended = &mut waiting => panic!("{ended}"),
        }
        waiting
    }

    async fn object(&self) -> Result<Value> {
        let request = Request::get(self.path()).body(Vec::new())?;
        Ok(self.server.client().request(request).await?)
    }

    fn path(&self) -> String {
        let namespace = &self.namespace;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/kubectl-kcp-queue-hosts")
    }

    /// The annotations with places, and these places.
    async fn places(&self) -> Result<Vec<(String, Value)>> {
        let object = self.object().await?;
        let annotations = object["metadata"]["annotations"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        let places = annotations.into_iter().filter(|(key, _)| key.starts_with(PLACE));
        let place = |(key, text): (String, Value)| {
            Ok((key, serde_json::from_str(text.as_str().context("no text")?)?))
        };
        places.map(place).collect()
    }

    async fn place(&self, lessee: &str) -> Value {
        let places = self.places().await.unwrap();
        let found = places.into_iter().find(|(_, place)| place["holder"] == lessee);
        found.unwrap().1
    }

    /// Makes all places end after this time, so that nothing depends on how long the test takes, or some time ago, as if time had
    /// passed.
    async fn let_places_end(&self, after: SignedDuration) {
        let until = (Timestamp::now() + after).to_string();
        let changed = |(key, mut place): (String, Value)| {
            place["until"] = until.as_str().into();
            (key, Value::from(place.to_string()))
        };
        let annotations: Map<_, _> = self.places().await.unwrap().into_iter().map(changed).collect();
        let patch = json!({"metadata": {"annotations": annotations}});
        let request = Request::patch(self.path())
            .header("content-type", "application/merge-patch+json")
            .body(serde_json::to_vec(&patch).unwrap())
            .unwrap();
        self.server.client().request::<Value>(request).await.unwrap();
    }

    /// The lessees that `pool status` lists.
    async fn listed(&self) -> Vec<String> {
        let status = self.run("status hosts -o json").await.answer().unwrap();
        let queue = status["queue"].as_array().unwrap();
        queue
            .iter()
            .map(|place| place["holder"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[test]
fn lessees_are_served_in_order_and_are_told_their_place() {
    with_pools(async |server| {
        let queue = Queue::create(server, "queue-order").await;
        let order = RefCell::new(Vec::new());
        let mut lessees = Vec::new();
        for name in ["paris", "rome", "bern"] {
            lessees.push(queue.wait(name).await);
        }
        assert_eq!(queue.listed().await, ["paris", "rome", "bern"]);
        assert_eq!(queue.pool("release", "holder", "").await.code, Some(0));
        let serve = async |name: &'static str, lessee: Waiting<'_>| {
            let ended = lessee.await;
            order.borrow_mut().push(name);
            assert_eq!(ended.code, Some(0), "{ended}");
            assert_eq!(queue.pool("release", name, "").await.code, Some(0));
            ended.stderr
        };
        let [paris, rome, bern] = <[_; 3]>::try_from(lessees).ok().unwrap();
        let told = tokio::join!(serve("paris", paris), serve("rome", rome), serve("bern", bern));
        assert_eq!(*order.borrow(), ["paris", "rome", "bern"]);
        for (told, place) in [(told.0, "1st of 1"), (told.1, "2nd of 2"), (told.2, "3rd of 3")] {
            let expected = format!("waiting: {place} in the queue\n");
            assert!(told.contains(&expected), "{told}");
        }
        // Each release has removed the place, and the next request begins at the end.
        assert_eq!(queue.places().await.unwrap(), []);
    });
}

#[test]
fn a_request_that_does_not_wait_never_overtakes_one_that_does() {
    with_pools(async |server| {
        let queue = Queue::create(server, "queue-fresh").await;
        let paris = queue.wait("paris").await;
        let before = queue.place("paris").await;
        // Killed while it waits, and the entry is free.
        drop(paris);
        queue.let_places_end(LONG).await;
        assert_eq!(queue.pool("release", "holder", "").await.code, Some(0));
        let refused = queue.pool("lease", "rome", "-o json").await;
        assert_eq!(refused.code, Some(1), "{refused}");
        assert_eq!(refused.text("/reason").unwrap(), "exhausted");
        let message = "pool queue-fresh/hosts has no free entry for this request (1 in total): 1 free, but others have \
                       waited longer: host-1";
        assert_eq!(refused.text("/message").unwrap(), message);
        assert_eq!(queue.listed().await, ["paris"]);
        // Again under the same name, it has its place.
        let again = queue
            .pool("lease", "paris", "--no-cluster --wait=1m -o json")
            .await;
        assert_eq!(again.code, Some(0), "{again}");
        assert_eq!(queue.place("paris").await["since"], before["since"]);
        assert_eq!(
            queue.listed().await,
            Vec::<String>::new(),
            "a holder does not wait"
        );
        assert_eq!(queue.pool("release", "paris", "").await.code, Some(0));
        assert_eq!(queue.pool("lease", "rome", "").await.code, Some(0));
    });
}

#[test]
fn a_lessee_overtakes_one_that_does_not_take_a_free_entry() {
    with_pools(async |server| {
        let queue = Queue::create(server, "queue-dead").await;
        drop(queue.wait("paris").await);
        queue.let_places_end(LONG).await;
        let rome = queue.wait("rome").await;
        assert_eq!(queue.pool("release", "holder", "").await.code, Some(0));
        let rome = rome.await;
        assert_eq!(rome.code, Some(0), "{rome}");
        assert!(rome.stderr.contains("waiting: 2nd of 2 in the queue\n"), "{rome}");
        assert_eq!(queue.listed().await, ["paris"]);
        // Whoever releases gives up a place.
        assert_eq!(queue.pool("release", "paris", "").await.code, Some(0));
        assert_eq!(queue.listed().await, Vec::<String>::new());
    });
}

#[test]
fn a_wait_that_ends_without_an_entry_leaves_the_queue() {
    with_pools(async |server| {
        let queue = Queue::create(server, "queue-limit").await;
        // As a job does whose step is repeated. Each command has a generated name.
        let repeat = async |_| {
            let mut told = String::new();
            for _ in 0..2 {
                let ended = queue.run("exec hosts --wait=4s -- true").await;
                assert_eq!(ended.code, Some(75), "{ended}");
                told += &ended.stderr;
            }
            told
        };
        let told = join_all((0..10).map(repeat)).await.concat();
        assert!(told.contains(" in the queue\n"), "{told}");
        assert_eq!(queue.places().await.unwrap(), []);
        // A command with a name may continue, but its place does not count meanwhile.
        let named = async |name: String| queue.pool("lease", &name, "--no-cluster --wait=10s").await;
        let builds = (0..6).map(|number| format!("build-{number}"));
        for ended in join_all(builds.chain(["paris".to_owned()]).map(named)).await {
            assert_eq!(ended.code, Some(1), "{ended}");
        }
        let before = queue.place("paris").await;
        let until: Timestamp = before["until"].as_str().unwrap().parse().unwrap();
        assert!(until <= Timestamp::now(), "{before}");
        assert_eq!(queue.pool("release", "holder", "").await.code, Some(0));
        let oslo = queue.pool("lease", "oslo", "--no-cluster").await;
        assert_eq!(oslo.code, Some(0), "{oslo}");
        queue.let_places_end(LONG).await;
        let rome = queue.wait("rome").await;
        let again = queue.pool("lease", "paris", "--no-cluster --wait=4s").await;
        assert_eq!(again.code, Some(1), "{again}");
        assert_eq!(queue.place("paris").await["since"], before["since"]);
        // Rome overtakes the others, or their places have ended.
        assert_eq!(queue.pool("release", "oslo", "").await.code, Some(0));
        assert_eq!(rome.await.code, Some(0));
    });
}

#[test]
fn lessees_take_their_places_again_after_the_queue_was_deleted() {
    with_pools(async |server| {
        let queue = Queue::create(server, "queue-deleted").await;
        let (paris, rome) = (queue.wait("paris").await, queue.wait("rome").await);
        let mut before = queue.places().await.unwrap();
        let deletion = Request::delete(queue.path()).body(Vec::new()).unwrap();
        server.client().request::<Value>(deletion).await.unwrap();
        let again = until("both have a place", || async {
            let places = queue.places().await?;
            ensure!(places.len() == 2, "{places:?}");
            Ok(places)
        });
        let lessees = async { tokio::join!(paris, rome) };
        let mut again = tokio::select! {
            again = again => again.unwrap(),
            ended = lessees => panic!("{ended:?}"),
        };
        for (_, place) in before.iter_mut().chain(&mut again) {
            place["until"] = Value::Null;
        }
        assert_eq!(again, before);
    });
}

#[test]
fn lessees_that_are_killed_leave_no_place_behind_after_its_end() {
    with_pools(async |server| {
        let queue = Queue::create(server, "queue-killed").await;
        let names: Vec<_> = (0..10).map(|number| format!("lessee-{number}")).collect();
        let mut lessees = Vec::new();
        for name in &names {
            lessees.push(queue.wait(name).await);
        }
        drop(lessees);
        // The server's time is known only within some seconds.
        let latest = Timestamp::now() + PLACE_TTL + SignedDuration::from_secs(30);
        for (_, place) in queue.places().await.unwrap() {
            let until: Timestamp = place["until"].as_str().unwrap().parse().unwrap();
            assert!(until <= latest, "{place}");
        }
        queue.let_places_end(LONG).await;
        assert_eq!(queue.listed().await, names);
        queue.let_places_end(-SignedDuration::from_secs(5)).await;
        assert_eq!(queue.listed().await, Vec::<String>::new());
        // The next lessee that waits removes the places at which nobody may continue.
        queue.let_places_end(-SignedDuration::from_secs(20)).await;
        let rome = queue.wait("rome").await;
        assert_eq!(queue.places().await.unwrap().len(), 1);
        assert_eq!(queue.pool("release", "holder", "").await.code, Some(0));
        assert_eq!(rome.await.code, Some(0));
    });
}

/// A user with only the role that `kubectl kcp exporter --pools` needs for pools.
const EXPORTER: &str = "queue-exporter";

#[test]
fn the_exporter_serves_the_queue_and_the_leases() {
    with_pools(async |server| {
        let queue = Queue::create(server, "queue-exporter").await;
        let _paris = queue.wait("paris").await;
        queue.let_places_end(LONG).await;
        allow_pools(server).await.unwrap();
        let (_exporter, url) = start_exporter(server, &queue.namespace).await.unwrap();
        let client = plain_client(&url).unwrap();
        let labels = "{namespace=\"queue-exporter\",pool=\"hosts\"";
        let served = until("the exporter serves the pool", || async {
            let request = Request::get("/metrics").body(Vec::new())?;
            let text = client.request_text(request).await?;
            ensure!(text.contains("\nkcp_exporter_pool_list_success 1.0\n"), "{text}");
            Ok(text)
        });
        let served = served.await.unwrap();
        let lines: Vec<&str> = served.lines().collect();
        for line in [
            // The server does not serve control planes.
            "kcp_exporter_list_success 0.0".to_owned(),
            format!("kcp_pool_lessees_waiting{labels}}} 1.0"),
            format!("kcp_pool_unread_kinds{labels}}} 0.0"),
            format!("kcp_pool_entries{labels},state=\"held\"}} 1.0"),
            format!("kcp_pool_entries{labels},state=\"free\"}} 0.0"),
        ] {
            assert!(lines.contains(&line.as_str()), "{line}: {served}");
        }
        let since = |metric: &str| {
            let line = lines.iter().find(|line| line.starts_with(metric)).unwrap();
            let second: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            Timestamp::now().as_duration().as_secs_f64() - second
        };
        let lease =
            format!("kcp_pool_lease_start_timestamp_seconds{labels},entry=\"host-1\",holder=\"holder\"}}");
        let waiting = format!("kcp_pool_waiting_since_timestamp_seconds{labels}}}");
        for metric in [lease, waiting] {
            let age = since(&metric);
            assert!(
                (-5.0..LONG.as_secs_f64()).contains(&age),
                "{metric} was {age} s ago"
            );
        }
    });
}

async fn allow_pools(server: &PoolServer) -> Result<()> {
    const ROLE: &str = "kcp-exporter-pools";
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let shipped = manifests::read(&products::workspace().join("manifests/exporter/rbac.yaml"))?;
    let role = shipped.iter().find(|object| object["metadata"]["name"] == ROLE);
    create(server, &format!("{RBAC}/clusterroles"), role.context("no role")?).await?;
    let binding = json!({
        "metadata": {"name": EXPORTER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": EXPORTER}],
    });
    create(server, &format!("{RBAC}/clusterrolebindings"), &binding).await?;
    Ok(())
}

/// Starts the exporter, and returns its address. Dropping the process kills it.
async fn start_exporter(server: &PoolServer, namespace: &str) -> Result<(Child, String)> {
    let api = server.serving().await;
    let line = "exporter --pools --bind-address 127.0.0.1 --port 0 --interval 1s --as";
    let mut exporter = api
        .command(products::under_test("kubectl-kcp")?)
        .args(line.split(' ').chain([EXPORTER, "-n", namespace]))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(exporter.stdout.take().context("no stdout")?).lines();
    let line = lines.next_line().await?.context("no line")?;
    let url = line
        .strip_prefix("Serving metrics at ")
        .and_then(|url| url.strip_suffix("/metrics"));
    let url = url.with_context(|| line.clone())?.to_owned();
    Ok((exporter, url))
}
