//! `kubectl kcp leader-migration`: hands controllers over from kube-controller-manager to cloud-controller-manager
//! (KEP-2436).
//!
//! - [`check`]: reads an upgrade; [`upgrade`]: its problems; [`document`], [`screen`]: its JSON and text
//! - [`generate`]: a configuration that protects
//! - [`status`]: what runs in a workload cluster now
//! - [`rbac`]: permissions for the migration lock
//! - [`start`]: installs the configuration, the first step of a migration
//! - [`input`]: reads manifests of control planes and controller managers

mod arguments;
mod check;
mod document;
mod generate;
mod input;
mod rbac;
mod screen;
mod start;
mod status;
#[cfg(test)]
mod tests;
mod upgrade;

pub use arguments::LeaderMigrationArguments;
use arguments::LeaderMigrationCommand;

use crate::{session::Session, verdict::Verdict};

/// Runs `leader-migration`.
///
/// # Errors
/// Nothing could be decided, or the result cannot be printed.
pub async fn run(arguments: LeaderMigrationArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        LeaderMigrationCommand::Check(arguments) => check::run(&arguments, session).await,
        LeaderMigrationCommand::Generate(arguments) => generate::run(&arguments, session),
        LeaderMigrationCommand::Status(arguments) => status::run(&arguments, session).await,
        LeaderMigrationCommand::Rbac(arguments) => rbac::run(&arguments, session).await,
        LeaderMigrationCommand::Start(arguments) => start::run(&arguments, session).await,
    }
}
