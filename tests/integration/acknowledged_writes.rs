//! A client that writes to a workload cluster's etcd continuously and records which writes etcd acknowledged, and the
//! longest time without an acknowledged write.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::etcd::EtcdClient;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::wait;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// The interval between two writes, unless a test sets another.
const PERIOD: Duration = Duration::from_millis(100);

/// A write that has no answer after this time is sent to another member. An election takes a second, and a member that was removed
/// never answers.
const ANSWER: Duration = Duration::from_secs(3);

/// The prefix of all keys.
const PREFIX: &str = "acknowledged/";

/// Writes until [`Self::end`].
pub(crate) struct AcknowledgedWrites {
    workload: Arc<WorkloadCluster>,
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    writer: JoinHandle<Written>,
}

#[derive(Debug, Default)]
struct Written {
    acknowledged: BTreeSet<String>,
    /// Writes without an answer. etcd may have stored them.
    open: usize,
    /// The longest time between two acknowledged writes.
    longest_pause: Duration,
}

/// What the client has seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) acknowledged: usize,
    /// The longest time between two acknowledged writes.
    pub(crate) longest_pause: Duration,
}

impl AcknowledgedWrites {
    pub(crate) fn begin(workload: Arc<WorkloadCluster>) -> Self {
        Self::begin_every(PERIOD, workload)
    }

    /// Writes once in each `period`, unless etcd takes longer.
    pub(crate) fn begin_every(period: Duration, workload: Arc<WorkloadCluster>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let writer = tokio::spawn(write(
            period,
            workload.clone(),
            is_over.clone(),
            acknowledged.clone(),
        ));
        Self {
            workload,
            is_over,
            acknowledged,
            writer,
        }
    }

    /// The number of acknowledged writes so far.
    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Relaxed)
    }

    /// Stops writing, and succeeds if etcd still has every acknowledged write.
    pub(crate) async fn end(self) -> Result<Summary> {
        self.is_over.store(true, Relaxed);
        let Written {
            acknowledged,
            open,
            longest_pause,
        } = self.writer.await?;
        let keys = wait::until("etcd lists the keys", || async {
            let keys = self.workload.etcd().await?.keys(PREFIX).await?;
            Ok(BTreeSet::from_iter(keys))
        })
        .await?;
        let lost: Vec<&String> = acknowledged.difference(&keys).collect();
        ensure!(
            lost.is_empty(),
            "of {} acknowledged writes these are lost: {lost:?}",
            acknowledged.len()
        );
        let surplus = keys.difference(&acknowledged).count();
        ensure!(
            surplus <= open,
            "{surplus} keys are neither acknowledged nor open, of {open} open ones"
        );
        Ok(Summary {
            acknowledged: acknowledged.len(),
            longest_pause,
        })
    }
}

async fn write(
    period: Duration,
    workload: Arc<WorkloadCluster>,
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
) -> Written {
    let mut written = Written::default();
    let mut client = None;
    let mut clock = interval(period);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    for number in 0_u64.. {
        clock.tick().await;
        if is_over.load(Relaxed) {
            break;
        }
        let key = format!("{PREFIX}{number:08}");
        if let Ok(Ok(())) = timeout(ANSWER, put(&workload, &mut client, &key)).await {
            written.acknowledged.insert(key);
            let now = Instant::now();
            let pause = last.map_or(Duration::ZERO, |last| now - last);
            written.longest_pause = written.longest_pause.max(pause);
            last = Some(now);
            acknowledged.fetch_add(1, Relaxed);
        } else {
            written.open += 1;
            client = None;
        }
    }
    written
}

async fn put(workload: &WorkloadCluster, client: &mut Option<EtcdClient>, key: &str) -> Result<()> {
    if client.is_none() {
        *client = Some(workload.etcd().await?);
    }
    client
        .as_ref()
        .context("every member has a fault")?
        .put(key, "")
        .await
}
