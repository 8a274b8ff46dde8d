//! Arguments of `kubectl kcp plan`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{arguments::parse_control_plane, commands::scale::parse_replicas};
use kcp_control_plane::plan::ask::Change;

/// Say what the controller will do to a control plane, step by step, and what keeps it from the first step.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// Control plane to plan for, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Plan for this number of Machines
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_replicas)]
    pub replicas: Option<i64>,

    /// Plan for this Kubernetes version
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,

    /// Plan for the replacement of every Machine, as by rollout start
    #[arg(long)]
    pub restart: bool,

    /// Plan for what a manifest asks for, as kubectl apply would write it; - for stdin
    #[arg(short, long = "filename", value_name = "FILE", conflicts_with_all = ["replicas", "version", "restart"])]
    pub file: Option<PathBuf>,

    /// What follows from each rule: the server's own AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,

    /// Output format [default: text for people]
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<PlanOutput>,
}

impl PlanArguments {
    /// The change that the flags name.
    pub(super) fn change(&self) -> Change {
        Change {
            replicas: self.replicas,
            version: self.version.clone(),
            restart: self.restart,
        }
    }
}

/// Output formats of `plan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanOutput {
    /// A JSON document
    Json,
}
