//! `kubectl kcp status`: a control plane as it really is, down to each member of etcd, and a verdict.
//!
//! - [`screen`], [`document`], [`report`]: how it is told
//! - [`look`]: reads, then decides; [`watch`]: again and again

mod deep;
pub mod document;
mod look;
pub mod report;
pub mod screen;
pub mod watch;

#[cfg(test)]
pub(crate) mod schema;

mod arguments;

use std::time::Instant;

use anyhow::{Context as _, bail};
pub use arguments::{StatusArguments, StatusOutput};
use jiff::Timestamp;
pub use kcp_control_plane::inspection::inspect;

use crate::{session::Session, terminal::Terminal, verdict::Verdict};
use look::look;
use report::Subject;

/// Runs `status`.
///
/// # Errors
/// When the cluster cannot be read or the result not be written.
pub async fn run(arguments: StatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    if let Some(contradiction) = arguments.contradiction() {
        bail!(contradiction);
    }
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    if arguments.watch {
        let is_wide = arguments.output == Some(StatusOutput::Wide);
        let look = async || {
            let end = Instant::now() + arguments.timeout;
            Ok(look(&connection, &arguments, end, &session.terminal).await?)
        };
        let screen = |subject: &Subject, now, size| watch::screen(subject, now, size, is_wide);
        return Box::pin(crate::watch::watch(&session.terminal, look, screen)).await;
    }
    let subject = look(&connection, &arguments, end, &session.terminal).await?;
    let width = Terminal::size().map(|size| size.width);
    let text = subject.report(arguments.output, Timestamp::now(), width)?;
    session.terminal.print(&text).context("cannot write to stdout")?;
    Ok(subject.verdict())
}
