//! Arguments of `kubectl kcp plan`.

use std::path::PathBuf;

use clap::Args;

use crate::{arguments::parse_control_plane, commands::scale::parse_replicas, output::OutputArguments};
use kcp_control_plane::plan::options::PlanOptions;

/// Show the steps that the controller will take, and what blocks the first one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp plan edge
  kubectl kcp plan edge --replicas 5
  kubectl kcp plan edge -f control-plane.yaml")]
pub struct PlanArguments {
    /// Control plane to plan for, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Plan a change to this number of Machines
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_replicas)]
    pub replicas: Option<i64>,

    /// Plan a change to this Kubernetes version
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,

    /// Plan the replacement of every Machine, as with rollout start
    #[arg(long)]
    pub restart: bool,

    /// Plan the change that kubectl apply of this manifest would make; - means stdin
    #[arg(short, long = "filename", value_name = "FILE", conflicts_with_all = ["replicas", "version", "restart"])]
    pub file: Option<PathBuf>,

    /// The webhook's AdmissionConfiguration, which sets the action of each rule
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

impl PlanArguments {
    pub(super) fn change(&self) -> PlanOptions {
        PlanOptions {
            replicas: self.replicas,
            version: self.version.clone(),
            restart: self.restart,
        }
    }
}
