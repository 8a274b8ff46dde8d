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
use jiff::Timestamp;
pub use kcp_control_plane::inspection::inspect;

use crate::{
    fleet,
    output::print,
    session::Session,
    terminal::{Size, Terminal},
    verdict::Verdict,
};
pub(in crate::commands) use poll::{WAITING_FOR_MANAGEMENT, poll, read_one, waiting_for};
use poll::{poll_contexts, poll_rows};
use report::{StatusReport, Subject};

pub async fn run(arguments: StatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    if let Some(contradiction) = arguments.contradiction(&session.global) {
        bail!(contradiction);
    }
    if !arguments.contexts.contexts.is_empty() {
        return Box::pin(run_in_contexts(&arguments, session)).await;
    }
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    if arguments.watch {
        let poll_again = async || {
            let end = Instant::now() + arguments.timeout;
            Ok(poll(&connection, &arguments, end, &session.terminal).await?)
        };
        return watch_status(&arguments, session, poll_again, || connection.now()).await;
    }
    if arguments.needs_only_rows() {
        let rows = poll_rows(&connection, &arguments, end, &session.terminal).await?;
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

/// Polls for `--watch`. `now` is the time to which ages are relative.
async fn watch_status(
    arguments: &StatusArguments,
    session: &Session,
    poll: impl AsyncFnMut() -> anyhow::Result<Subject>,
    now: impl Fn() -> Timestamp,
) -> anyhow::Result<Verdict> {
    let screen = |subject: &Subject, _, size: Size| {
        let layout = arguments.output.layout(Some(size.width));
        watch::render(subject, now(), size, layout)
    };
    Box::pin(crate::watch::watch(&session.terminal, poll, screen)).await
}

async fn run_in_contexts(arguments: &StatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connections = fleet::connect(session, &arguments.contexts.contexts, arguments.timeout).await;
    let terminal = &session.terminal;
    if arguments.watch {
        let poll_again = async || Ok(poll_contexts(&connections, arguments, terminal).await);
        return watch_status(arguments, session, poll_again, || fleet::now(&connections)).await;
    }
    let subject = poll_contexts(&connections, arguments, terminal).await;
    let report = StatusReport {
        subject: &subject,
        now: fleet::now(&connections),
    };
    print(&report, &arguments.output, terminal)?;
    Ok(subject.verdict())
}
