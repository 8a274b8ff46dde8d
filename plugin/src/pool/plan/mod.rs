//! `pool plan`: what a change of a pool would make stale or delete. Nothing is written.
//!
//! - [`file`]: the pool as it is to be
//! - [`model`], [`effect`]: what comes of it, decided
//! - [`document`], [`screen`]: how it is told

mod arguments;
mod document;
mod effect;
#[cfg(test)]
mod example;
mod file;
mod model;
mod screen;

use anyhow::Context as _;
pub(super) use arguments::PoolPlanArguments;
use arguments::PoolPlanOutput;

use crate::{
    document::{text, yaml},
    pool::store::Store,
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};

/// Runs `pool plan`.
///
/// # Errors
/// When the file or the cluster cannot be read, or the result not be written.
pub(super) async fn run(arguments: PoolPlanArguments, session: &Session) -> anyhow::Result<Verdict> {
    let pool = file::read(&arguments.filename)?;
    let mut connection = session.connect().await?;
    if !pool.metadata.namespace.is_empty() {
        connection.namespace.clone_from(&pool.metadata.namespace);
    }
    let survey = Store::new(&connection, "kubectl-kcp").survey().await?;
    let plan = model::plan(&survey, &pool);
    let printed = match arguments.output {
        None => screen::screen(&plan, Terminal::size().map(|size| size.width)),
        Some(PoolPlanOutput::Json) => text(&document::PoolPlan::of(&plan))?,
        Some(PoolPlanOutput::Yaml) => yaml(&document::PoolPlan::of(&plan))?,
    };
    session
        .terminal
        .print(&printed)
        .context("cannot write to stdout")?;
    Ok(if plan.is_destructive() {
        Verdict::Negative
    } else {
        Verdict::Met
    })
}
