//! Polls for `--watch`, and redraws the screen on a terminal. Elsewhere, prints one line for each change.

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use owo_colors::OwoColorize as _;
use tokio::time::sleep;

use crate::{
    terminal::{Size, Terminal, escape, format_time_of_day, style::FAINT},
    verdict::Verdict,
};

/// The time between two polls. It limits the load on servers, because a poll queries every etcd member or makes four list
/// requests.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// What one poll of a watch has read.
pub trait Observation {
    /// The changes since the poll `before`, one line each. If `before` is none, the current state. The text
    /// is not escaped.
    fn changes(before: Option<&Self>, after: &Self) -> Vec<String>;

    fn verdict(&self) -> Verdict;
}

/// Polls until the user interrupts, or until the program that reads stdout closes its pipe. Reports a poll
/// that fails, and polls again. Draws `screen` below a line with the time. Fails if the first poll fails, or writing to stdout
/// fails.
pub async fn watch<S: Observation>(
    terminal: &Terminal,
    mut poll: impl AsyncFnMut() -> anyhow::Result<S>,
    screen: impl Fn(&S, Timestamp, Size) -> String,
) -> anyhow::Result<Verdict> {
    let mut last: Option<S> = None;
    let mut is_first = true;
    let mut last_error: Option<String> = None;
    loop {
        let polled = poll().await;
        let now = Timestamp::now();
        let (seen, error) = match (polled, last.take()) {
            (Ok(seen), before) => {
                if Terminal::size().is_none() {
                    for line in S::changes(before.as_ref(), &seen) {
                        let line = format!("{}  {}", format_time_of_day(now), escape(&line));
                        terminal.print_line(&line).context("cannot write to stdout")?;
                    }
                }
                (seen, None)
            }
            (Err(error), None) => return Err(error),
            (Err(error), Some(before)) => (before, Some(format!("{error:#}"))),
        };
        if let Some(size) = Terminal::size() {
            let text = add_heading(now, error.as_deref(), &screen(&seen, now, size));
            terminal
                .draw(&text, size, is_first)
                .context("cannot write to stdout")?;
        } else if let Some(error) = error.as_ref().filter(|error| last_error.as_ref() != Some(error)) {
            terminal.note(&format!("{error}; trying again"));
        }
        last_error = error;
        is_first = false;
        if terminal.is_stdout_closed() {
            return Ok(seen.verdict());
        }
        last = Some(seen);
        sleep(POLL_INTERVAL).await;
    }
}

/// Adds a heading above the screen. The heading contains the time, and the error of the last poll if the poll
/// failed.
pub(crate) fn add_heading(now: Timestamp, error: Option<&str>, screen: &str) -> String {
    let error = error.map_or_else(String::new, |error| {
        format!("  cannot refresh: {}", escape(error))
    });
    let heading = format!("{}{error}", format_time_of_day(now));
    format!("{}\n{screen}", heading.style(FAINT))
}
