//! `pool plan`.

mod document;
mod screen;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use kcp_pool::{
    plan::{file as manifest, plan},
    store::Store,
};

use crate::{
    document::{text, yaml},
    file,
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};

/// Arguments of `pool plan`.
#[derive(Debug, Args)]
pub struct PoolPlanArguments {
    /// File with the cluster pool as it is to be, - for stdin
    #[arg(short, long, value_name = "FILE")]
    pub filename: PathBuf,

    /// Output format [default: text for people]
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<PoolPlanOutput>,
}

/// Output formats of `pool plan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PoolPlanOutput {
    /// A JSON document: `PoolPlan`
    Json,
    /// The same document as YAML
    Yaml,
}

/// Runs `pool plan`.
///
/// # Errors
/// When the file or the cluster cannot be read, or the result not be written.
pub(crate) async fn run(arguments: PoolPlanArguments, session: &Session) -> anyhow::Result<Verdict> {
    let filename = &arguments.filename;
    let pool = manifest::pool(&file::read(filename)?, &filename.display().to_string())?;
    let mut connection = session.connect().await?;
    if !pool.metadata.namespace.is_empty() {
        connection.namespace.clone_from(&pool.metadata.namespace);
    }
    let survey = Store::new(&connection, "kubectl-kcp").survey().await?;
    let plan = plan(&survey, &pool);
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
