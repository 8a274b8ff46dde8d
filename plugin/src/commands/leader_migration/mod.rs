//! `kubectl kcp leader-migration`: hands controllers over from kube-controller-manager to cloud-controller-manager
//! (KEP-2436).
//!
//! - [`check`]: reads and checks an upgrade; [`checked_upgrade`]: the result; [`document`], [`screen`]: its JSON and
//!   text
//! - [`generate`]: prints a configuration that protects the controllers
//! - [`status`]: what runs in a workload cluster now
//! - [`rbac`]: permissions for the migration lock
//! - [`start`], [`upgrade`], [`finish`], [`rollback`]: the steps of a migration; [`step`], [`static_pod`]:
//!   the parts that they share
//! - [`input`]: reads manifests of control planes and controller managers; [`parse`]: parses flags

mod arguments;
mod check;
mod checked_upgrade;
mod document;
mod finish;
mod generate;
mod input;
mod left_over;
mod parse;
mod rbac;
mod rollback;
mod screen;
mod start;
mod static_pod;
mod status;
mod step;
mod step_arguments;
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
        LeaderMigrationCommand::Upgrade(arguments) => upgrade::run(&arguments, session).await,
        LeaderMigrationCommand::Finish(arguments) => finish::run(&arguments, session).await,
        LeaderMigrationCommand::Rollback(arguments) => rollback::run(&arguments, session).await,
    }
}
