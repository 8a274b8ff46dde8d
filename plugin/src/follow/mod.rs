//! Staying with a control plane until a change is done.
//!
//! - [`goal`]: whether it is, and what is waited for
//! - [`progress`]: what has changed since the last look, a line each

pub mod goal;
pub mod progress;

use std::{fmt::Write as _, time::Duration};

use anyhow::Context as _;
pub use goal::{Goal, Standing};
use jiff::{Timestamp, tz::TimeZone};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    arguments::duration::format_duration,
    cluster::Error,
    control_plane::{Reader, Snapshot},
    terminal::{Terminal, escape},
    verdict::Verdict,
};

/// Between two looks. A watch would be told sooner, but a change of a control plane takes minutes, and a look survives
/// an API server that goes away and comes back, as that of a self-hosted management cluster does.
const INTERVAL: Duration = Duration::from_secs(1);

/// How far away "never" is, for a wait without limit.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Follows a control plane until it has reached a goal, cannot reach it any more, or `timeout` has passed (none: for
/// ever), and says so on the terminal. `before` is how it was before the change, if there is one.
///
/// # Errors
/// When the control plane cannot be read; a server that is away for a while is waited for.
pub async fn follow(
    reader: &Reader<'_>,
    name: &str,
    goal: Goal,
    timeout: Option<Duration>,
    before: Option<Snapshot>,
    terminal: &Terminal,
) -> anyhow::Result<Verdict> {
    let namespace = &reader.connection.namespace;
    let deadline = Instant::now() + timeout.unwrap_or(FOR_EVER);
    let mut last = before;
    let mut away: Option<Error> = None;
    loop {
        match timeout_at(deadline, reader.snapshot(namespace, name)).await {
            Ok(Ok(snapshot)) => {
                away = None;
                let at = Timestamp::now();
                for line in progress::changes(last.as_ref(), &snapshot) {
                    let clock = at.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string();
                    terminal
                        .line(&format!("{clock}  {}", escape(&line)))
                        .context("cannot write to stdout")?;
                }
                let uid = last.as_ref().map(|last| last.control_plane.uid.as_str());
                match goal.standing(&snapshot, uid, at) {
                    Standing::Reached => {
                        terminal.stop_spinning();
                        return Ok(Verdict::Met);
                    }
                    Standing::OutOfReach(why) => {
                        terminal.stop_spinning();
                        terminal.line(&escape(&why)).context("cannot write to stdout")?;
                        return Ok(Verdict::Negative);
                    }
                    Standing::WaitingFor(what) => terminal.spin(&format!("waiting for {}", what.join(", "))),
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
            return timed_out(last.as_ref(), away, &goal, timeout, terminal);
        }
        sleep(INTERVAL).await;
    }
}

fn timed_out(
    last: Option<&Snapshot>,
    away: Option<Error>,
    goal: &Goal,
    timeout: Option<Duration>,
    terminal: &Terminal,
) -> anyhow::Result<Verdict> {
    if let Some(error) = away {
        return Err(error.into());
    }
    let Some(last) = last else {
        anyhow::bail!("the time is up before the control plane could be read");
    };
    let after = format_duration(timeout.unwrap_or_default());
    let mut text = format!("timed out after {after}, still waiting for:\n");
    if let Standing::WaitingFor(what) = goal.standing(last, None, Timestamp::now()) {
        for what in what.iter().chain(&goal::reasons(&last.control_plane)) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {}", escape(what));
        }
    }
    terminal.print(&text).context("cannot write to stdout")?;
    Ok(Verdict::Negative)
}
