//! Reads control planes and pools in rounds. Each round lists them in the management cluster, and reads the workload cluster and etcd of
//! each. A control plane that is healthy and does not change needs no other read; all others are read as completely as by `status`.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::{pending, ready},
    mem::take,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::stream::{self, StreamExt as _};
use kcp_api::{Object as _, kind::CLUSTER_POOL};
use kcp_client::{
    Action, Connection, Error, ReadLimit,
    reader::Reader,
    reads::{self, Excluded, Kept},
};
use kcp_control_plane::snapshot::Snapshot;
use kcp_pool::status::{PoolSelection, PoolState, pool_names, pool_states_in};
use tokio::{
    sync::Notify,
    time::{Instant as Clock, sleep_until, timeout},
};

use crate::{
    commands::exporter::{
        ExporterArguments,
        metrics::{Judged, Samples},
        pools::{of_pool, unread_pool},
        published::{Name, Published, Round},
    },
    terminal::Terminal,
};

/// The maximum number of control planes that are read at the same time, and of those that respond slowly. Each needs a dozen
/// connections.
const MAX_CONCURRENT_READS: usize = 16;

/// The maximum number of namespaces whose pools are read at the same time. For each, all ClusterDeployments are in memory.
const MAX_CONCURRENT_NAMESPACES: usize = 4;

/// How long facts are kept that no list contains, such as when a CA expires.
const KEPT_FOR: Duration = Duration::from_secs(10 * 60);

pub(super) struct Rounds<'r> {
    connection: &'r Connection,
    arguments: &'r ExporterArguments,
    published: &'r Arc<Published>,
    /// The control planes of the last list.
    known: RefCell<BTreeMap<Name, Known>>,
    /// The control planes of the last list that respond slowly, and wait for a read that delays no other.
    slow: RefCell<Vec<Snapshot>>,
    slow_listed: Notify,
    /// The control planes that were read completely since the last round ended.
    complete_reads: Cell<u32>,
}

#[derive(Default)]
struct Known {
    kept: Option<(Kept, Instant)>,
    /// Whether the last read took more than half of its time limit.
    is_slow: bool,
}

impl<'r> Rounds<'r> {
    pub(super) fn new(
        connection: &'r Connection,
        arguments: &'r ExporterArguments,
        published: &'r Arc<Published>,
    ) -> Self {
        Self {
            connection,
            arguments,
            published,
            known: RefCell::default(),
            slow: RefCell::default(),
            slow_listed: Notify::new(),
            complete_reads: Cell::new(0),
        }
    }

    /// Reads the control planes in rounds for ever. Prints why they cannot be listed.
    pub(super) async fn run(&self, terminal: &Terminal) {
        let round = async || {
            let started = Clock::now();
            let listed = Box::pin(self.round()).await;
            self.published.end_round(Round {
                is_listed: listed.is_ok(),
                control_planes: u32::try_from(self.known.borrow().len()).unwrap_or(u32::MAX),
                complete_reads: self.complete_reads.take(),
                ended: self.connection.now(),
                duration: started.elapsed(),
            });
            Vec::from_iter(listed.err().map(|error| error.to_string()))
        };
        self.repeat(terminal, round).await;
    }

    /// Reads the pools in rounds for ever, beside [`Self::run`], so that they do not delay the control planes. Prints which pools cannot
    /// be read, and why. Without `--pools`, only waits.
    pub(super) async fn run_pools(&self, terminal: &Terminal) {
        if !self.arguments.pools {
            return pending().await;
        }
        let round = async || Box::pin(self.read_pools()).await;
        self.repeat(terminal, round).await;
    }

    /// Begins a round each interval, for ever. Prints the errors of a round that the round before did not have.
    async fn repeat(&self, terminal: &Terminal, round: impl AsyncFn() -> Vec<String>) {
        let mut last_errors = Vec::new();
        loop {
            let started = Clock::now();
            let errors = round().await;
            for error in errors.iter().filter(|error| !last_errors.contains(*error)) {
                terminal.note(&format!("{error}; trying again"));
            }
            last_errors = errors;
            sleep_until(started + self.arguments.interval).await;
        }
    }

    /// Reads the pools, and publishes their metrics. Returns why the pools of some namespaces could not be read.
    async fn read_pools(&self) -> Vec<String> {
        let limit = reads::list_limit(self.arguments.interval.max(self.arguments.timeout));
        let action = Action::new("list", &CLUSTER_POOL.api_resource("v1"));
        let list = pool_names(self.connection, self.pool_selection());
        let names = match self.connection.run_with_limit(limit, &action, list).await {
            Ok(names) => names,
            Err(error) => {
                self.published.end_pool_round(None);
                return vec![error.to_string()];
            }
        };
        let reads = names
            .into_iter()
            .map(|(namespace, names)| self.read_pools_in(namespace, names, limit));
        let reads = stream::iter(reads).buffered(MAX_CONCURRENT_NAMESPACES);
        let (samples, errors): (Vec<_>, Vec<_>) = reads.collect::<Vec<_>>().await.into_iter().unzip();
        let samples = samples.into_iter().flatten();
        self.published.end_pool_round(Some(samples.collect()));
        errors.into_iter().flatten().collect()
    }

    /// The samples of the pools of a namespace. If they could not be read, those of pools with these names, and why.
    async fn read_pools_in(
        &self,
        namespace: String,
        names: BTreeSet<String>,
        limit: ReadLimit,
    ) -> (Vec<(Name, Samples)>, Option<String>) {
        let action = Action::new("list", &CLUSTER_POOL.api_resource("v1")).in_namespace(&*namespace);
        let read = pool_states_in(self.connection, namespace.clone(), self.pool_selection());
        match self.connection.run_with_limit(limit, &action, read).await {
            Ok(pools) => {
                let samples = |pool: &PoolState| ((namespace.clone(), pool.name.clone()), of_pool(pool));
                (pools.iter().map(samples).collect(), None)
            }
            Err(error) => {
                let unread = names
                    .into_iter()
                    .map(|name| ((namespace.clone(), name), unread_pool()));
                let why = format!("the pools of namespace {namespace} are unknown: {error}");
                (unread.collect(), Some(why))
            }
        }
    }

    fn pool_selection(&self) -> PoolSelection<'static> {
        PoolSelection {
            includes_all_namespaces: self.arguments.all_namespaces,
            ..PoolSelection::default()
        }
    }

    async fn round(&self) -> Result<(), Error> {
        let limit = reads::list_limit(self.arguments.interval.max(self.arguments.timeout));
        let reader = reads::discover(self.connection, limit).await?;
        let namespace = Some(self.connection.namespace.as_str());
        let namespace = namespace.filter(|_| !self.arguments.all_namespaces);
        let selector = self.arguments.selector.as_deref();
        let listed = reads::list(&reader, namespace, selector, limit).await?;
        let names: BTreeSet<Name> = listed.iter().map(name).collect();
        self.published.retain(|name| names.contains(name));
        self.know(names);
        let (slow, quick): (Vec<Snapshot>, Vec<Snapshot>) =
            listed.into_iter().partition(|listed| self.is_slow(&name(listed)));
        *self.slow.borrow_mut() = slow;
        self.slow_listed.notify_one();
        run_all(quick.into_iter().map(|listed| self.read_quickly(&reader, listed))).await;
        Ok(())
    }

    /// Reads one control plane in half of its time limit, or leaves it to [`Self::read_slow`].
    async fn read_quickly(&self, reader: &Reader<'_>, listed: Snapshot) {
        let name = name(&listed);
        let limit = self.arguments.timeout / 2;
        if timeout(limit, self.read(reader, listed.clone())).await.is_err() {
            if let Some(known) = self.known.borrow_mut().get_mut(&name) {
                known.is_slow = true;
            }
            self.slow.borrow_mut().push(listed);
            self.slow_listed.notify_one();
        }
    }

    /// Forgets all other control planes.
    fn know(&self, names: BTreeSet<Name>) {
        let mut known = self.known.borrow_mut();
        known.retain(|name, _| names.contains(name));
        for name in names {
            known.entry(name).or_default();
        }
    }

    fn is_slow(&self, name: &Name) -> bool {
        self.known.borrow().get(name).is_some_and(|known| known.is_slow)
    }

    /// Reads the control planes that respond slowly, so that they do not delay the others. Runs beside [`Self::run`], for ever.
    pub(super) async fn read_slow(&self) {
        loop {
            self.slow_listed.notified().await;
            let slow = take(&mut *self.slow.borrow_mut());
            if slow.is_empty() {
                continue;
            }
            let limit = reads::list_limit(self.arguments.timeout);
            // If this fails, the next round reports it.
            if let Ok(reader) = reads::discover(self.connection, limit).await {
                run_all(slow.into_iter().map(|listed| self.read(&reader, listed))).await;
            }
        }
    }

    /// Reads one control plane, and publishes its metrics, unless it has been deleted meanwhile.
    async fn read(&self, reader: &Reader<'_>, listed: Snapshot) {
        let name = name(&listed);
        let started = Instant::now();
        let kept = self
            .known
            .borrow_mut()
            .get_mut(&name)
            .and_then(|known| known.kept.take());
        let kept = kept.filter(|(_, since)| since.elapsed() < KEPT_FOR);
        let (samples, kept) = Box::pin(self.judge(reader, listed, kept)).await;
        if let Some(known) = self.known.borrow_mut().get_mut(&name) {
            known.kept = kept;
            known.is_slow = started.elapsed() > self.arguments.timeout / 2;
            self.published.set(name, samples);
        }
    }

    async fn judge(
        &self,
        reader: &Reader<'_>,
        listed: Snapshot,
        kept: Option<(Kept, Instant)>,
    ) -> (Samples, Option<(Kept, Instant)>) {
        let end = Instant::now() + self.arguments.timeout;
        let now = || self.connection.now();
        if let Some((kept, since)) = kept {
            let half = Instant::now() + self.arguments.timeout / 2;
            let observed = kept.observe(self.connection, listed.clone(), half).await;
            let judged = Judged::new(&observed, now());
            if judged.is_settled() {
                return (judged.samples(), Some((kept, since)));
            }
        }
        self.complete_reads.set(self.complete_reads.get() + 1);
        let (namespace, name) = name(&listed);
        let read = reads::observe(reader, &namespace, &name, Excluded::default(), end).await;
        let observed = match read {
            Ok(observed) => observed,
            Err(error) => reads::unread_snapshot(listed.clone(), &error),
        };
        let judged = Judged::new(&observed, now());
        if judged.is_settled()
            && let Some(kept) = Kept::new(self.connection, &observed, end).await
        {
            let read = (
                observed.workload.clone(),
                observed.endpoint_certificate.clone(),
                observed.etcd.clone(),
            );
            let short = kept.add_to(listed, read);
            // Otherwise, a problem would come and go with the kind of the read.
            if Judged::new(&short, now()).problems() == judged.problems() {
                return (judged.samples(), Some((kept, Instant::now())));
            }
        }
        (judged.samples(), None)
    }
}

/// Runs all reads, at most [`MAX_CONCURRENT_READS`] at the same time.
async fn run_all(reads: impl Iterator<Item = impl Future<Output = ()>>) {
    let reads = stream::iter(reads).buffer_unordered(MAX_CONCURRENT_READS);
    reads.for_each(|()| ready(())).await;
}

fn name(listed: &Snapshot) -> Name {
    let control_plane = &listed.control_plane;
    (
        control_plane.namespace().to_owned(),
        control_plane.name().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, sync::Arc, time::Duration};

    use kcp_client::{Connection, testing::failure};
    use kcp_pool::testing::objects::pool_object;
    use serde_json::{Value, json};

    use super::{ExporterArguments, Published, Rounds};

    const ALL: &str = "/apis/hive.openshift.io/v1/clusterpools";
    const OF_E: &str = "/apis/hive.openshift.io/v1/namespaces/e/clusterpools";
    const CLAIMS_OF_E: &str = "/apis/hive.openshift.io/v1/namespaces/e/clusterclaims";

    /// A server with a pool in namespace `d`, and one in `e`. It forbids to read this path.
    fn server(forbidden: &'static str) -> Connection {
        Connection::canned(move |_, path| {
            let pool = |namespace: &str| {
                let mut pool = pool_object("hosts", &json!({}));
                pool["metadata"]["namespace"] = namespace.into();
                pool
            };
            let list = |items: Vec<Value>| (200, json!({"metadata": {}, "items": items}));
            match path {
                _ if path == forbidden => failure(403, "Forbidden", "no"),
                ALL => list(vec![pool("d"), pool("e")]),
                OF_E => list(vec![pool("e")]),
                _ if path == OF_E.replace("/e/", "/d/") => list(vec![pool("d")]),
                _ => list(Vec::new()),
            }
        })
    }

    #[tokio::test]
    async fn pools_that_cannot_be_read_cost_no_other_pool() {
        let arguments = ExporterArguments {
            all_namespaces: true,
            selector: None,
            pools: true,
            bind_address: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            interval: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
        };
        for (forbidden, expected, error) in [
            ("", "d 1, e 1; claims of d, e", None),
            (
                OF_E,
                "d 1, e 0; claims of d",
                Some("the pools of namespace e are unknown: cannot list "),
            ),
            (ALL, "d 0, e 0; claims of ", Some("cannot list clusterpools")),
            (CLAIMS_OF_E, "d 1, e 1; claims of d", None),
        ] {
            let published = Arc::new(Published::default());
            let before = server("");
            assert!(
                Rounds::new(&before, &arguments, &published)
                    .read_pools()
                    .await
                    .is_empty()
            );
            let now = server(forbidden);
            let errors = Rounds::new(&now, &arguments, &published).read_pools().await;
            let text = published.encode().unwrap();
            let served = |metric: &str| {
                let lines = text.lines().filter_map(|line| {
                    let (namespace, value) = line
                        .strip_prefix(metric)?
                        .strip_prefix("{namespace=\"")?
                        .split_once("\",pool=\"hosts\"} ")?;
                    Some((namespace.to_owned(), value.trim_end_matches(".0").to_owned()))
                });
                lines.collect::<Vec<_>>()
            };
            let read = served("kcp_pool_read").into_iter();
            let read: Vec<_> = read
                .map(|(namespace, value)| format!("{namespace} {value}"))
                .collect();
            let claims = served("kcp_pool_claims_waiting").into_iter();
            let claims: Vec<_> = claims.map(|(namespace, _)| namespace).collect();
            let found = format!("{}; claims of {}", read.join(", "), claims.join(", "));
            assert_eq!(found, expected, "{forbidden}");
            assert_eq!(errors.len(), usize::from(error.is_some()), "{errors:?}");
            for (found, expected) in errors.iter().zip(error) {
                assert!(found.starts_with(expected), "{found}");
            }
        }
    }
}
