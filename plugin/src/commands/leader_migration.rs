//! `kubectl kcp leader-migration`: hands controllers over from kube-controller-manager to cloud-controller-manager
//! (KEP-2436).
//!
//! - [`check`]: reads and checks an upgrade; [`checked_upgrade`]: the result; [`document`], [`screen`]: its JSON and
//!   text
//! - [`generate`]: prints the patch and the permissions for a step of a migration
//! - [`status`]: shows which controller manager runs each controller now
//! - [`input`]: reads manifests of control planes and controller managers; [`parse`]: parses flags

mod arguments;
mod check;
mod checked_upgrade;
mod document;
mod generate;
mod input;
mod parse;
mod screen;
mod status;
#[cfg(test)]
mod tests;

pub use arguments::LeaderMigrationArguments;
use arguments::LeaderMigrationCommand;

use crate::{session::Session, verdict::Verdict};

pub async fn run(arguments: LeaderMigrationArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        LeaderMigrationCommand::Check(arguments) => check::run(&arguments, session).await,
        LeaderMigrationCommand::Generate(arguments) => Box::pin(generate::run(&arguments, session)).await,
        LeaderMigrationCommand::Status(arguments) => status::run(&arguments, session).await,
    }
}
