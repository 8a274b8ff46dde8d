//! `kubectl kcp status`: shows the health of control planes, of their Machines and of each etcd member.
//!
//! - [`screen`], [`document`], [`report`]: the output
//! - [`poll`]: reads and checks once; [`watch`]: polls until the user interrupts

pub mod document;
mod poll;
pub mod report;
pub mod screen;
pub mod watch;

mod arguments;

use std::time::Instant;

use anyhow::{Context as _, bail};
pub use arguments::StatusArguments;
pub use kcp_control_plane::inspection::inspect;

use crate::{
    output::print,
    session::Session,
    terminal::{Size, Terminal},
    verdict::Verdict,
};
pub(in crate::commands) use poll::read_one;
use poll::{poll, poll_rows};
use report::{StatusReport, Subject};

/// Runs `status`.
///
/// # Errors
/// The cluster cannot be read, or the result cannot be printed.
pub async fn run(arguments: StatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    if let Some(contradiction) = arguments.contradiction() {
        bail!(contradiction);
    }
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    if arguments.watch {
        let poll_again = async || {
            let end = Instant::now() + arguments.timeout;
            Ok(poll(&connection, &arguments, end, &session.terminal).await?)
        };
        let screen = |subject: &Subject, _, size: Size| {
            let layout = arguments.output.layout(Some(size.width));
            watch::screen(subject, connection.now(), size, layout)
        };
        return Box::pin(crate::watch::watch(&session.terminal, poll_again, screen)).await;
    }
    if arguments.needs_only_rows() {
        let rows = poll_rows(&connection, arguments.selector.as_deref(), end).await?;
        let verdict = Verdict::worst(rows.iter().map(|row| Verdict::from(row.health)));
        let layout = arguments.output.layout(Terminal::size().map(|size| size.width));
        let screen = screen::list(rows, None, connection.now(), layout);
        session
            .terminal
            .print(&screen.text())
            .context("cannot write to stdout")?;
        return Ok(verdict);
    }
    let subject = poll(&connection, &arguments, end, &session.terminal).await?;
    let report = StatusReport {
        subject: &subject,
        now: connection.now(),
    };
    print(&report, &arguments.output, &session.terminal)?;
    Ok(subject.verdict())
}
