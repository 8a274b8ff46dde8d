//! Staying with a control plane until a change is done.
//!
//! - [`progress`]: what has changed since the last look, a line each
//! - [`ending`]: how it ended

pub mod ending;
pub mod progress;

use std::time::Duration;

use anyhow::Context as _;
pub use ending::{Ending, EndingKind};
use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    terminal::{Terminal, clock, escape},
    verdict::Verdict,
};
use kcp_client::{Error, reader::Reader};
use kcp_control_plane::{
    control_plane::Snapshot,
    staleness::stuck,
    wait::{Goal, GoalState},
};

/// Between two looks. A watch would be told sooner, but a change of a control plane takes minutes, and a look survives
/// an API server that goes away and comes back, as that of a self-hosted management cluster does.
const INTERVAL: Duration = Duration::from_secs(1);

/// How far away "never" is, for a wait without limit.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What is shown of what changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A line each, on stdout.
    Lines,
    /// Nothing on stdout: a document follows there.
    Nothing,
}

/// Follows a control plane until it has reached a goal, cannot reach it any more, is stuck, or `timeout` has passed
/// (none: for ever), and says so on the terminal. `before` is how it was before the change, if there is one.
///
/// # Errors
/// As [`follow_to_its_end`].
pub async fn follow(
    reader: &Reader<'_>,
    name: &str,
    goal: Goal,
    timeout: Option<Duration>,
    before: Option<Snapshot>,
    terminal: &Terminal,
) -> anyhow::Result<Verdict> {
    let ending = follow_to_its_end(reader, name, &goal, timeout, before, Shown::Lines, terminal).await?;
    terminal
        .print(&ending.text(&goal, Timestamp::now()))
        .context("cannot write to stdout")?;
    Ok(ending.verdict())
}

/// The same, and leaves it to the caller to say how it ended.
///
/// # Errors
/// When the control plane cannot be read; a server that is away for a while is waited for.
pub async fn follow_to_its_end(
    reader: &Reader<'_>,
    name: &str,
    goal: &Goal,
    timeout: Option<Duration>,
    before: Option<Snapshot>,
    shown: Shown,
    terminal: &Terminal,
) -> anyhow::Result<Ending> {
    let namespace = &reader.connection.namespace;
    let deadline = Instant::now() + timeout.unwrap_or(FOR_EVER);
    let mut last = before;
    let mut away: Option<Error> = None;
    loop {
        match timeout_at(deadline, reader.snapshot(namespace, name)).await {
            Ok(Ok(snapshot)) => {
                away = None;
                let at = Timestamp::now();
                if shown == Shown::Lines {
                    print_changes(last.as_ref(), &snapshot, at, terminal)?;
                }
                let uid = last.as_ref().map(|last| last.control_plane.uid.as_str());
                let kind = match goal.state(&snapshot, uid, at) {
                    GoalState::Reached => Some(EndingKind::Reached),
                    GoalState::OutOfReach(why) => Some(EndingKind::OutOfReach(why)),
                    GoalState::WaitingFor(what) => {
                        terminal.spin(&format!("waiting for {}", what.join(", ")));
                        let stuck = stuck(&snapshot.control_plane, &snapshot.machines, at);
                        (!stuck.is_empty()).then_some(EndingKind::Stuck(stuck))
                    }
                };
                if let Some(kind) = kind {
                    terminal.stop_spinning();
                    return Ok(Ending { snapshot, kind });
                }
                last = Some(snapshot);
            }
            Ok(Err(error)) if error.may_pass() => {
                if away.is_none() {
                    terminal.note(&format!("{error}; trying again"));
                }
                away = Some(error);
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {}
        }
        if Instant::now() + INTERVAL >= deadline {
            terminal.stop_spinning();
            return match (away, last) {
                (Some(error), _) => Err(error.into()),
                (None, None) => anyhow::bail!("the time is up before the control plane could be read"),
                (None, Some(snapshot)) => Ok(Ending {
                    snapshot,
                    kind: EndingKind::TimedOut(timeout.unwrap_or_default()),
                }),
            };
        }
        sleep(INTERVAL).await;
    }
}

fn print_changes(
    before: Option<&Snapshot>,
    after: &Snapshot,
    at: Timestamp,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let clock = clock(at);
    for line in progress::changes(before, after) {
        terminal
            .line(&format!("{clock}  {}", escape(&line)))
            .context("cannot write to stdout")?;
    }
    Ok(())
}
