//! `kubectl kcp validate`: checks that a cluster works, with a Pod on each Node.
//!
//! - [`cluster`]: reads the Nodes, runs the Pods and prints the results
//! - [`pods`]: creates the Pods, waits for them, reads their logs and deletes them
//! - [`report`]: what the command prints

mod cluster;
mod pods;
mod report;

use clap::{Args, Subcommand};
pub use cluster::ClusterArguments;

use crate::{session::Session, verdict::Verdict};

/// Check that a cluster works, with a Pod on each Node.
#[derive(Debug, Args)]
pub struct ValidateArguments {
    #[command(subcommand)]
    pub command: ValidateCommand,
}

#[derive(Debug, Subcommand)]
pub enum ValidateCommand {
    /// Check that each Node is ready, and that a Pod on it resolves names and reaches the API server
    Cluster(ClusterArguments),
}

/// Runs `validate`.
///
/// # Errors
/// The Nodes cannot be read, or the result cannot be printed.
pub async fn run(arguments: ValidateArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        ValidateCommand::Cluster(arguments) => Box::pin(cluster::run(&arguments, session)).await,
    }
}
