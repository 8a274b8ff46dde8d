//! Looking at something again and again: in place on a terminal, a line for each change elsewhere.

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use owo_colors::OwoColorize as _;
use tokio::time::sleep;

use crate::{
    terminal::{Size, Terminal, clock, escape, style::FAINT},
    verdict::Verdict,
};

/// From the end of one look to the next. A look asks every member of etcd, or five lists: more often would be a load.
const INTERVAL: Duration = Duration::from_secs(2);

/// What is seen at one look.
pub trait Seen {
    /// What has changed since the look before, a line each; for the first, how things stand. Not escaped.
    fn changes(before: Option<&Self>, after: &Self) -> Vec<String>;

    /// What it comes to.
    fn verdict(&self) -> Verdict;
}

/// Shows what is seen until the process is interrupted, or whoever reads stdout has gone away. A look that fails is told,
/// and the next one made, except for the first. `screen` is what is shown below the line that says when it was.
///
/// # Errors
/// When the first look fails, or the result cannot be written.
pub async fn watch<S: Seen>(
    terminal: &Terminal,
    mut look: impl AsyncFnMut() -> anyhow::Result<S>,
    screen: impl Fn(&S, Timestamp, Size) -> String,
) -> anyhow::Result<Verdict> {
    let mut last: Option<S> = None;
    let mut is_first = true;
    let mut told: Option<String> = None;
    loop {
        let looked = look().await;
        let now = Timestamp::now();
        let (seen, trouble) = match (looked, last.take()) {
            (Ok(seen), before) => {
                if Terminal::size().is_none() {
                    for line in S::changes(before.as_ref(), &seen) {
                        let line = format!("{}  {}", clock(now), escape(&line));
                        terminal.line(&line).context("cannot write to stdout")?;
                    }
                }
                (seen, None)
            }
            (Err(error), None) => return Err(error),
            (Err(error), Some(before)) => (before, Some(format!("{error:#}"))),
        };
        if let Some(size) = Terminal::size() {
            let text = below_heading(now, trouble.as_deref(), &screen(&seen, now, size));
            terminal
                .draw(&text, size, is_first)
                .context("cannot write to stdout")?;
        } else if let Some(trouble) = trouble.as_ref().filter(|trouble| told.as_ref() != Some(trouble)) {
            terminal.note(&format!("{trouble}; trying again"));
        }
        told = trouble;
        is_first = false;
        if terminal.is_unread() {
            return Ok(seen.verdict());
        }
        last = Some(seen);
        sleep(INTERVAL).await;
    }
}

/// A screen below a line that says when it was, and what is wrong with looking.
pub(crate) fn below_heading(now: Timestamp, trouble: Option<&str>, screen: &str) -> String {
    let trouble = trouble.map_or_else(String::new, |trouble| {
        format!("  as before, could not look again: {}", escape(trouble))
    });
    let heading = format!("{}{trouble}", clock(now));
    format!("{}\n{screen}", heading.style(FAINT))
}
