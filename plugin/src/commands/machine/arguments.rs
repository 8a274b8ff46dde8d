//! Arguments of `kubectl kcp machine`.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::{
    arguments::{DryRun, parse_machine},
    change::output::ChangeOutput,
};
use kcp_control_plane::duration::parse_duration;

/// Have one Machine of a control plane replaced, remediated, or deleted before others.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "replace|prefer-delete|remediate")]
pub struct MachineArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: MachineCommand,
}

/// What to do with a Machine.
#[derive(Debug, Subcommand)]
pub enum MachineCommand {
    /// Delete a Machine so that its control plane makes another, if etcd's quorum can stand that
    Replace(ReplaceArguments),
    /// Mark a Machine as the first to go at the next scale down or rollout
    PreferDelete(PreferDeleteArguments),
    /// Mark a Machine as unhealthy, for the health check that selects it to have it replaced
    Remediate(RemediateArguments),
}

/// Arguments of `machine replace`.
#[derive(Debug, Args)]
pub struct ReplaceArguments {
    /// What all of them take.
    #[command(flatten)]
    pub change: ChangeArguments,

    /// Delete it though the controller could not make another now; etcd's quorum still holds
    #[arg(long)]
    pub force: bool,

    /// Follow until another has taken its place, at most this long [default when given without a value: 15m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "15m", conflicts_with_all = ["dry_run", "output"])]
    pub wait: Option<Duration>,
}

/// Arguments of `machine prefer-delete`.
#[derive(Debug, Args)]
pub struct PreferDeleteArguments {
    /// What all of them take.
    #[command(flatten)]
    pub change: ChangeArguments,

    /// Take the mark away again
    #[arg(long)]
    pub clear: bool,
}

/// Arguments of `machine remediate`.
#[derive(Debug, Args)]
pub struct RemediateArguments {
    /// What all of them take.
    #[command(flatten)]
    pub change: ChangeArguments,

    /// Mark it though the controller could not replace it now; etcd's quorum still holds
    #[arg(long)]
    pub force: bool,
}

/// What every change of a Machine takes.
#[derive(Debug, Args)]
pub struct ChangeArguments {
    /// Machine of a control plane, as NAME or machine/NAME
    #[arg(value_parser = parse_machine)]
    pub name: String,

    /// Change nothing: judge here (client), or also let the server judge (server)
    #[arg(long, value_name = "WHERE", value_enum)]
    pub dry_run: Option<DryRun>,

    /// Output format; what is said otherwise goes to stderr [default: text for people]
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<ChangeOutput>,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}
