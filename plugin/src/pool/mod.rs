//! `kubectl kcp pool`: leases on the customizations of a cluster pool.
//!
//! - [`objects`]: what is read, and the patches that change it; [`store`], [`survey`]: from and to the API server
//! - [`inventory`]: what is free, what room there is, what is stale
//! - [`lease`], [`release`], [`exec`]: a lease, taken, given back, and held while a command runs
//! - [`install_config`], [`creation`]: what a customization is for, and a cluster made with it
//! - [`claim_command`]: a cluster from Hive
//! - [`repair`]: what has leaked, and mending it; [`status`]: how things stand; [`plan`]: what a change comes to
//! - [`document`]: how a lease and its end are told

mod arguments;
mod claim_command;
mod creation;
mod document;
mod exec;
#[cfg(test)]
mod fake;
mod install_config;
mod inventory;
mod lease;
mod objects;
mod plan;
mod release;
mod repair;
#[cfg(test)]
mod schema;
mod status;
mod store;
mod survey;
#[cfg(test)]
mod survey_example;

pub use arguments::{PoolArguments, PoolCommand};
pub use exec::NO_LEASE;

use crate::{session::Session, verdict::Verdict};

/// Runs `pool`.
///
/// # Errors
/// When nothing could be decided.
pub async fn run(arguments: PoolArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        PoolCommand::Repair(arguments) => Box::pin(repair::run(arguments, session)).await,
        PoolCommand::Status(arguments) => Box::pin(status::run(arguments, session)).await,
        PoolCommand::Plan(arguments) => Box::pin(plan::run(arguments, session)).await,
        PoolCommand::Lease(arguments) => Box::pin(lease::command::run(arguments, session)).await,
        PoolCommand::Exec(arguments) => Box::pin(exec::run(arguments, session)).await,
        PoolCommand::Release(arguments) => Box::pin(release::command::run(arguments, session)).await,
    }
}

#[cfg(test)]
mod tests;
