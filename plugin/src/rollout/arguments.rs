//! Arguments of `kubectl kcp rollout`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use crate::arguments::{DryRun, parse_control_plane, parse_duration};

/// Replace all Machines of a control plane, or follow that.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "start|status")]
pub struct RolloutArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: RolloutCommand,
}

/// What to do with a rollout.
#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// Have every Machine replaced, one after the other
    Start(StartArguments),
    /// Say how far a rollout is: exit code 0 when it is done, 1 while it runs
    Status(RolloutStatusArguments),
}

/// Arguments of `rollout start`.
#[derive(Debug, Args)]
pub struct StartArguments {
    /// Control plane whose Machines are replaced, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Change nothing: judge here (client), or also let the server judge (server)
    #[arg(long, value_name = "WHERE", value_enum)]
    pub dry_run: Option<DryRun>,

    /// What follows from each rule: the server's own AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

/// Arguments of `rollout status`.
#[derive(Debug, Args)]
pub struct RolloutStatusArguments {
    /// Control plane to look at, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Follow until it is done, a line per change
    #[arg(short, long)]
    pub watch: bool,

    /// How long to follow; 0 for no limit
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1h", requires = "watch")]
    pub timeout: Duration,
}
