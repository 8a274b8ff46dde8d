//! Arguments of `kubectl kcp certificates`.

use std::time::Duration;

use clap::Args;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane_of_cluster, parse_timeout},
    output::OutputArguments,
};

/// Show when the certificates of control planes expire, and who or what renews them.
#[derive(Debug, Args)]
#[command(
    after_help = "The command neither decodes nor prints private keys. It adds (soon) to a certificate that expires \
        within 30 days, and to a CA that expires within 180 days. A short-lived certificate gets (soon) in the last \
        third of its lifetime. The exit code is 1 if a certificate has expired or is missing.

Examples:
  kubectl kcp certificates
  kubectl kcp certificates edge
  kubectl kcp certificates -A -o json"
)]
pub struct CertificatesArguments {
    /// Control plane to show, as NAME, kcp/NAME or cluster/NAME [default: all in the namespace]
    #[arg(value_parser = parse_control_plane_of_cluster, conflicts_with = "all_namespaces")]
    pub name: Option<ControlPlaneName>,

    /// Show the control planes of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Show the control planes that match this label selector, such as team=edge,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "name")]
    pub selector: Option<String>,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for reading, such as 30s or 2m; in a list, for each control plane
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}
