//! Reads control planes and pools in rounds. Each round lists them in the management cluster, and reads the workload cluster and etcd of
//! each. A control plane that is healthy and does not change needs no other read; all others are read as completely as by `status`.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::ready,
    mem::take,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::stream::{self, StreamExt as _};
use kcp_api::Object as _;
use kcp_client::{
    Connection, Error,
    reader::Reader,
    reads::{self, Excluded, Kept},
};
use kcp_control_plane::{duration::format_duration, snapshot::Snapshot};
use kcp_pool::status::{PoolSelection, pool_states};
use tokio::{
    sync::Notify,
    time::{Instant as Clock, sleep_until, timeout},
};

use crate::{
    commands::exporter::{
        ExporterArguments,
        metrics::{Judged, Samples},
        pools::of_pool,
        published::{Name, Published, Round},
    },
    terminal::Terminal,
};

/// The maximum number of control planes that are read at the same time, and of those that respond slowly. Each needs a dozen
/// connections.
const MAX_CONCURRENT_READS: usize = 16;

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

    /// Reads in rounds for ever. Prints why the control planes cannot be listed, or the pools cannot be read.
    pub(super) async fn run(&self, terminal: &Terminal) {
        let mut last_errors = [None, None];
        loop {
            let started = Clock::now();
            let (listed, pools) = tokio::join!(Box::pin(self.round()), Box::pin(self.read_pools()));
            self.published.end_round(Round {
                is_listed: listed.is_ok(),
                are_pools_read: pools.as_ref().map(Result::is_ok),
                control_planes: u32::try_from(self.known.borrow().len()).unwrap_or(u32::MAX),
                complete_reads: self.complete_reads.take(),
                ended: self.connection.now(),
                duration: started.elapsed(),
            });
            let errors = [
                listed.err().map(|error| error.to_string()),
                pools.and_then(Result::err),
            ];
            for (error, last) in errors.iter().zip(&last_errors) {
                if let Some(error) = error
                    && last.as_ref() != Some(error)
                {
                    terminal.note(&format!("{error}; trying again"));
                }
            }
            last_errors = errors;
            sleep_until(started + self.arguments.interval).await;
        }
    }

    /// Reads the pools, and publishes their metrics. `None` without `--pools`.
    async fn read_pools(&self) -> Option<Result<(), String>> {
        let selection = PoolSelection {
            includes_all_namespaces: self.arguments.all_namespaces,
            ..PoolSelection::default()
        };
        let limit = self.arguments.interval.max(self.arguments.timeout);
        let read = self
            .arguments
            .pools
            .then(|| timeout(limit, pool_states(self.connection, selection)))?;
        let read = match read.await {
            Ok(Ok(pools)) => Ok(pools),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!(
                "the pools could not be read in {}",
                format_duration(limit)
            )),
        };
        let pools = read.as_deref().unwrap_or_default().iter();
        let samples = pools.map(|pool| ((pool.namespace.clone(), pool.name.clone()), of_pool(pool)));
        self.published.set_pools(samples.collect());
        Some(read.map(drop))
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
