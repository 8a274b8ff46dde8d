//! Staying with pools: in place on a terminal, a line for each change elsewhere.

use std::time::Duration;

use anyhow::Context as _;
use jiff::{Timestamp, tz::TimeZone};
use owo_colors::OwoColorize as _;
use tokio::time::sleep;

use super::{changes::changes, model::PoolState, screen::Layout};
use crate::{
    terminal::{Terminal, escape, style::FAINT},
    verdict::Verdict,
};

/// From the end of one look to the next: a look is five lists.
const INTERVAL: Duration = Duration::from_secs(2);

/// Shows pools until the process is interrupted. A look that fails is told, and the next one made, except for the first.
///
/// # Errors
/// When the first look fails, or the result cannot be written.
pub(super) async fn watch(
    terminal: &Terminal,
    is_wide: bool,
    mut look: impl AsyncFnMut() -> anyhow::Result<Vec<PoolState>>,
    screen: impl Fn(&[PoolState], Timestamp, Layout) -> String,
) -> anyhow::Result<Verdict> {
    let mut last: Option<Vec<PoolState>> = None;
    let mut told: Option<String> = None;
    let mut is_first = true;
    loop {
        let looked = look().await;
        let now = Timestamp::now();
        let (pools, trouble) = match (looked, last.take()) {
            (Ok(pools), before) => {
                if Terminal::size().is_none() {
                    for line in changes(before.as_deref(), &pools) {
                        let line = format!("{}  {}", clock(now), escape(&line));
                        terminal.line(&line).context("cannot write to stdout")?;
                    }
                }
                (pools, None)
            }
            (Err(error), None) => return Err(error),
            (Err(error), Some(before)) => (before, Some(format!("{error:#}"))),
        };
        if let Some(size) = Terminal::size() {
            let layout = Layout {
                width: Some(size.width),
                is_wide,
            };
            let trouble = trouble.as_ref().map_or_else(String::new, |trouble| {
                format!("  as before, could not look again: {}", escape(trouble))
            });
            let heading = format!("{}{trouble}", clock(now));
            let text = format!("{}\n{}", heading.style(FAINT), screen(&pools, now, layout));
            terminal
                .draw(&text, size, is_first)
                .context("cannot write to stdout")?;
        } else if let Some(trouble) = trouble.as_ref().filter(|trouble| told.as_ref() != Some(trouble)) {
            terminal.note(&format!("{trouble}; trying again"));
        }
        told = trouble;
        is_first = false;
        last = Some(pools);
        sleep(INTERVAL).await;
    }
}

fn clock(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string()
}
