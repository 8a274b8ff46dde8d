//! Arguments of `kubectl kcp upgrade`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    arguments::{DryRun, parse_control_plane, parse_duration},
    change::output::ChangeOutput,
};

/// Bring a control plane to another Kubernetes version: what that comes to is shown and confirmed first.
#[derive(Debug, Args)]
pub struct UpgradeArguments {
    /// Control plane to upgrade, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Kubernetes version to go to, such as v1.34.2
    #[arg(long, value_name = "VERSION")]
    pub version: String,

    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,

    /// Ask for it though the preflight blocks the first step; never against the rules, quorum or workers
    #[arg(long)]
    pub force: bool,

    /// Follow until it is done, at most this long [default when given without a value: 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "1h", conflicts_with = "dry_run")]
    pub wait: Option<Duration>,

    /// Change nothing: judge here (client), or also let the server judge (server)
    #[arg(long, value_name = "WHERE", value_enum)]
    pub dry_run: Option<DryRun>,

    /// Output format; what is said otherwise goes to stderr [default: text for people]
    #[arg(short, long, value_name = "FORMAT", value_enum, conflicts_with = "wait")]
    pub output: Option<ChangeOutput>,

    /// What follows from each rule: the server's own AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}
