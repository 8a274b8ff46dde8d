//! Arguments of `kubectl kcp upgrade`.

use std::time::Duration;

use clap::Args;

use crate::{arguments::parse_control_plane, change::arguments::WriteArguments};
use kcp_control_plane::duration::parse_duration;

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
          require_equals = true, default_missing_value = "1h", conflicts_with_all = ["dry_run", "output"])]
    pub wait: Option<Duration>,

    /// How it is written.
    #[command(flatten)]
    pub write: WriteArguments,
}
