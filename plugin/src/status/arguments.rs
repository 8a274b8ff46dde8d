//! Arguments of `kubectl kcp status`.

use clap::{Args, ValueEnum};

use crate::arguments::parse_control_plane;

/// Show control planes, their Machines and what is wrong with them.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Control plane to show, as NAME or kcp/NAME; all of the namespace when absent
    #[arg(value_parser = parse_control_plane, conflicts_with = "all_namespaces")]
    pub name: Option<String>,

    /// Show the control planes of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Output format [default: text for people]
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<StatusOutput>,
}

/// Output formats of `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusOutput {
    /// A JSON document: one control plane with NAME, a list without
    Json,
}
