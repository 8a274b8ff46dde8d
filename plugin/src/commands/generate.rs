//! `kubectl kcp generate`: prints fields for the manifest of a control plane or of workers.

mod anchor;
mod api_proxy;
mod join_report;

pub use anchor::AnchorArguments;
pub use api_proxy::{ApiProxyArguments, ProxyArguments};
use clap::{Args, Subcommand};
pub use join_report::JoinReportArguments;

use crate::{session::Session, verdict::Verdict};

/// Print fields for the manifest of a control plane or of workers.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "anchor|api-proxy|join-report")]
pub struct GenerateArguments {
    #[command(subcommand)]
    pub command: GenerateCommand,
}

#[derive(Debug, Subcommand)]
pub enum GenerateCommand {
    /// Print the fields that make new control plane Machines run kcp-webhook from their first boot on
    Anchor(AnchorArguments),
    /// Print the fields that make new Machines run HAProxy in front of all API servers
    ApiProxy(ApiProxyArguments),
    /// Print the fields that make new control plane Machines report why kubeadm has failed
    JoinReport(JoinReportArguments),
}

pub async fn run(arguments: GenerateArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        GenerateCommand::Anchor(arguments) => anchor::run(&arguments, session).await,
        GenerateCommand::ApiProxy(arguments) => api_proxy::run(&arguments, session).await,
        GenerateCommand::JoinReport(arguments) => join_report::run(&arguments, session),
    }
}
