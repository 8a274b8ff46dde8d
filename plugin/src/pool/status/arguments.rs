//! Arguments of `kubectl kcp pool status`.

use clap::{Args, ValueEnum};

use crate::arguments::parse_cluster_pool;

/// Arguments of `pool status`.
#[derive(Debug, Args)]
pub struct PoolStatusArguments {
    /// Cluster pool to show; all of the namespace when absent
    #[arg(value_parser = parse_cluster_pool, conflicts_with = "all_namespaces")]
    pub pool: Option<String>,

    /// Show the pools of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Stay, and show what changes: in place on a terminal, a line each elsewhere
    #[arg(short, long)]
    pub watch: bool,

    /// Output format [default: text for people]
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<PoolStatusOutput>,
}

/// Output formats of `pool status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PoolStatusOutput {
    /// Text with all columns and lines as long as they are
    Wide,
    /// A JSON document: `PoolStatus` with POOL, `PoolStatusList` without
    Json,
    /// The same document as YAML
    Yaml,
    /// Each pool as RESOURCE/NAME
    Name,
}

impl PoolStatusArguments {
    /// What is asked for and cannot be had together, for people.
    pub(in crate::pool) fn contradiction(&self) -> Option<&'static str> {
        match self.output {
            Some(PoolStatusOutput::Json | PoolStatusOutput::Yaml | PoolStatusOutput::Name) if self.watch => {
                Some("--watch shows text: leave out --output, or set it to wide")
            }
            _ => None,
        }
    }
}
