//! Arguments of `kubectl kcp pool plan`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

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
