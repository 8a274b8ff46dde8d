//! `kubectl kcp debug`: collects what a person needs who helps with a control plane.
//!
//! - [`bundle`]: writes the state of a control plane to an archive
//! - [`collect`]: reads the parts of the archive; [`archive`]: its format; [`report`]: what the command prints

mod archive;
mod bundle;
mod collect;
mod report;

pub use bundle::BundleArguments;
use clap::{Args, Subcommand};

use crate::{session::Session, verdict::Verdict};

/// Collect what a person needs who helps with a control plane.
#[derive(Debug, Args)]
pub struct DebugArguments {
    #[command(subcommand)]
    pub command: DebugCommand,
}

#[derive(Debug, Subcommand)]
pub enum DebugCommand {
    /// Write the state of a control plane to an archive without secrets
    Bundle(BundleArguments),
}

/// Runs `debug`.
///
/// # Errors
/// The control plane cannot be read, or the archive cannot be written.
pub async fn run(arguments: DebugArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        DebugCommand::Bundle(arguments) => Box::pin(bundle::run(&arguments, session)).await,
    }
}
