//! Arguments of `kubectl kcp audit`.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::{
    arguments::{ControlPlaneName, parse_control_plane_of_cluster, parse_timeout},
    output::OutputArguments,
};

/// Check whether a cluster survives the loss of a Node, and comes back by itself after a power failure.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "resiliency")]
pub struct AuditArguments {
    #[command(subcommand)]
    pub command: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Find what prevents a cluster from surviving the loss of a Node, or from starting after a power failure
    Resiliency(ResiliencyArguments),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without CONTROL-PLANE, the command checks the cluster of the current context, such as a cluster that \
        kubeadm created without Cluster API. It then cannot query etcd, and cannot tell when the certificates in \
        /etc/kubernetes/pki expire.

Exits with 0 if all checks pass, with 1 if one fails, and with 2 if none fails and one is unknown. The audit finds what is \
        known to prevent a restart. It does not prove that the cluster restarts.

Examples:
  kubectl kcp audit resiliency edge
  kubectl kcp audit resiliency edge --power-off 2160h
  kubectl kcp audit resiliency -o json"
)]
pub struct ResiliencyArguments {
    /// Control plane whose workload cluster is checked, as NAME, kcp/NAME or cluster/NAME [default: the cluster of the
    /// current context]
    #[arg(value_name = "CONTROL-PLANE", value_parser = parse_control_plane_of_cluster)]
    pub name: Option<ControlPlaneName>,

    /// How long the machines stay off, such as 72h; certificates must be valid for longer
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "720h")]
    pub power_off: Duration,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for all reads, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "20s")]
    pub timeout: Duration,
}
