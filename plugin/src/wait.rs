//! Waits until a change of a control plane is complete.
//!
//! - [`progress`]: changes since the last poll
//! - [`ending`]: the end of a wait

pub mod ending;
pub mod progress;

use std::time::Duration;

use anyhow::Context as _;
pub use ending::{WaitEnding, WaitEndingKind};
use jiff::Timestamp;
use kcp_api::Object as _;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    terminal::{Terminal, escape, format_time_of_day},
    verdict::Verdict,
};
use kcp_client::{Error, reader::Reader, reads::planned::add_obstacles};
use kcp_control_plane::{
    join_times::JoinTimes,
    snapshot::Snapshot,
    staleness::find_stuck,
    wait::{WaitCondition, WaitProgress},
};

/// The time between two polls. A change takes minutes. Unlike a Kubernetes watch, polling continues after the API server of a
/// self-hosted management cluster restarts.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A wait reads the infrastructure template and the Events only once in this number of polls.
const OBSTACLE_POLLS: u32 = 3;

/// The time limit of one read of the infrastructure template, and of the Events.
const OBSTACLE_LIMIT: Duration = Duration::from_secs(5);

/// The time limit of a wait for which the user sets no limit: ten years.
const NO_LIMIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// When a wait ends that begins now. `timeout` is `None` for a wait without a limit.
pub fn deadline(timeout: Option<Duration>) -> Instant {
    Instant::now() + timeout.unwrap_or(NO_LIMIT)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Lines,
    /// Print no changes, because stdout is for a document.
    Nothing,
}

/// What `--wait` waits for, and what it prints.
pub struct Wait<'w> {
    pub name: &'w str,
    pub condition: WaitCondition,
    pub timeout: Duration,
    /// The control plane before the change. It is read before the write, so that no new Machine is missed.
    pub before: Option<Snapshot>,
    /// The text to print if the user interrupts the wait.
    pub interrupt_message: String,
    /// The text to print once the condition is met.
    pub done_message: String,
}

impl Wait<'_> {
    /// Polls the control plane until the wait ends, and prints the result.
    pub async fn run(self, reader: &Reader<'_>, terminal: &Terminal) -> anyhow::Result<Verdict> {
        terminal.set_interrupt_note(self.interrupt_message);
        let timeout = (!self.timeout.is_zero()).then_some(self.timeout);
        let condition = &self.condition;
        let shown = Shown::Lines;
        let ending = poll_until(
            reader,
            self.name,
            condition,
            timeout,
            self.before,
            shown,
            terminal,
        )
        .await?;
        let text = match ending.kind {
            WaitEndingKind::Met => self.done_message,
            _ => ending.text(condition, reader.connection.now()),
        };
        terminal.print(&text).context("cannot write to stdout")?;
        Ok(ending.verdict())
    }
}

/// Polls a control plane until a condition is met or can no longer be met, until the change is stuck, or until `timeout`
/// has passed (`None` for no limit). `before` is the control plane before the change.
pub async fn poll_until(
    reader: &Reader<'_>,
    name: &str,
    condition: &WaitCondition,
    timeout: Option<Duration>,
    before: Option<Snapshot>,
    shown: Shown,
    terminal: &Terminal,
) -> anyhow::Result<WaitEnding> {
    let namespace = &reader.connection.namespace;
    let deadline = deadline(timeout);
    let mut last = before;
    let mut unreachable: Option<Error> = None;
    let mut polls: u32 = 0;
    let mut unprocessed = Unprocessed::default();
    loop {
        match timeout_at(deadline, reader.read_snapshot(namespace, name)).await {
            Ok(Ok(mut snapshot)) => {
                unreachable = None;
                if polls.is_multiple_of(OBSTACLE_POLLS) {
                    Box::pin(add_obstacles(reader, &mut snapshot, OBSTACLE_LIMIT)).await;
                }
                polls += 1;
                let now = reader.connection.now();
                snapshot.unprocessed_seen = unprocessed.seen(&snapshot, now);
                let uid = last.as_ref().map(|last| last.control_plane.uid());
                let kind = match condition.progress(&snapshot, uid, now) {
                    WaitProgress::Met => Some(WaitEndingKind::Met),
                    WaitProgress::Impossible(why) => Some(WaitEndingKind::Impossible(why)),
                    WaitProgress::WaitingFor(what) => {
                        terminal.spin(&what.join(", "));
                        let stuck = find_stuck(&snapshot, now);
                        (!stuck.is_empty()).then_some(WaitEndingKind::Stuck(stuck))
                    }
                };
                // A wait that ends at once prints only its result.
                if shown == Shown::Lines && (last.is_some() || kind.is_none()) {
                    print_changes(last.as_ref(), &snapshot, now, terminal)?;
                }
                if let Some(kind) = kind {
                    terminal.stop_spinning();
                    return Ok(WaitEnding { snapshot, kind });
                }
                last = Some(snapshot);
            }
            Ok(Err(error)) if error.is_transient() => {
                if unreachable.is_none() {
                    terminal.note(&format!("{error}; retrying"));
                }
                unreachable = Some(error);
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {}
        }
        if Instant::now() + POLL_INTERVAL >= deadline {
            terminal.stop_spinning();
            return match (unreachable, last) {
                (Some(error), _) => Err(error.into()),
                (None, None) => anyhow::bail!("timed out before the control plane could be read"),
                (None, Some(snapshot)) => Ok(WaitEnding {
                    snapshot,
                    kind: WaitEndingKind::TimedOut(timeout.unwrap_or_default()),
                }),
            };
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// The generation of the spec that the controller had not processed at the last poll, and when a poll first saw it.
#[derive(Default)]
struct Unprocessed(Option<(i64, Timestamp)>);

impl Unprocessed {
    /// When a poll first saw the current generation, which the controller has not processed yet. `None` if it has processed the
    /// generation.
    fn seen(&mut self, snapshot: &Snapshot, at: Timestamp) -> Option<Timestamp> {
        let generation = snapshot.control_plane.generation();
        let known = self.0.filter(|(known, _)| *known == generation);
        let is_processed = snapshot.control_plane.is_observed();
        self.0 = (!is_processed).then(|| known.unwrap_or((generation, at)));
        self.0.map(|(_, since)| since)
    }
}

fn print_changes(
    before: Option<&Snapshot>,
    after: &Snapshot,
    at: Timestamp,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let clock = format_time_of_day(at);
    // The Machines that exist at the start are the earlier Machines of the estimate.
    let estimate = before
        .is_none()
        .then(|| JoinTimes::measure(&after.machines))
        .flatten();
    let estimate = estimate.map(|times| times.message());
    for line in progress::changes(before, after).into_iter().chain(estimate) {
        terminal
            .print_line(&format!("{clock}  {}", escape(&line)))
            .context("cannot write to stdout")?;
    }
    Ok(())
}
