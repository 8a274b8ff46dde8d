//! `kubectl kcp status`: a control plane as it really is, down to each member of etcd, and a verdict.
//!
//! - [`read`] -> [`observed`]: what the management cluster, the workload cluster and etcd say
//! - [`checks`], [`preflight`], [`inspect`](inspect()) -> [`inspection`]: what is decided about it
//! - [`screen`], [`document`], [`report`]: how it is told
//! - [`look`]: reads, then decides; [`watch`]: again and again

pub mod checks;
pub mod document;
pub mod health;
mod inspect;
pub mod inspection;
mod look;
pub mod observed;
mod preflight;
pub mod read;
pub mod report;
pub mod screen;
pub mod watch;

#[cfg(test)]
pub(crate) mod schema;

mod arguments;

use anyhow::{Context as _, bail};
pub use arguments::{StatusArguments, StatusOutput};
pub use inspect::inspect;
use jiff::Timestamp;

use crate::{session::Session, terminal::Terminal, verdict::Verdict};
use look::look;

/// Runs `status`.
///
/// # Errors
/// When the cluster cannot be read or the result not be written.
pub async fn run(arguments: StatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    if let Some(contradiction) = arguments.contradiction() {
        bail!(contradiction);
    }
    let connection = session.connect().await?;
    if arguments.watch {
        let is_wide = arguments.output == Some(StatusOutput::Wide);
        let look = async || Ok(look(&connection, &arguments, &session.terminal).await?);
        return Box::pin(watch::watch(&session.terminal, is_wide, look)).await;
    }
    let subject = look(&connection, &arguments, &session.terminal).await?;
    let width = Terminal::size().map(|size| size.width);
    let text = subject.report(arguments.output, Timestamp::now(), width)?;
    session.terminal.print(&text).context("cannot write to stdout")?;
    let verdicts = subject
        .inspected()
        .iter()
        .map(|inspected| inspected.inspection.health.verdict());
    Ok(Verdict::worst(verdicts))
}
