//! `kubectl kcp pool`: leases on the customizations of a cluster pool.
//!
//! - [`store`]: what is read from and written to the API server
//! - [`cluster_pool`], [`entry`], [`deployments`], [`claims`], [`record`]: the objects, and the patches that change them
//! - [`metadata`], [`conditions`]: what those have in common
//! - [`model`]: what is free, and the order of choice
//! - [`inventory_conditions`]: what a pool says of its inventory
//! - [`capacity`], [`staleness`]: how many clusters a pool may have, and which of them it has left behind
//! - [`install_config`], [`patching`], [`creation`], [`made_before`], [`cluster_creation`]: what a customization is for
//! - [`patience`], [`generated_name`], [`held`]: what the arguments say
//! - [`record_keeping`], [`holding`], [`lease`], [`release`]: the writes
//! - [`survey`], [`copies`]: what there is of all pools of a namespace
//! - [`repair`]: finding and mending what has leaked; [`status`]: how things stand; [`plan`]:
//!   what a change comes to
//! - [`taking`], [`waiting`]: a lease of a pool as it stands, and as soon as there is one
//! - [`lease_command`], [`create_command`], [`claim_command`], [`release_command`], [`exec`]: the verbs, from arguments
//!   to exit code
//! - [`document`], [`entry_state`]: how the result is told

mod arguments;
mod capacity;
mod claim_command;
mod claims;
mod cluster_creation;
mod cluster_pool;
mod conditions;
mod copies;
mod create_command;
mod creation;
mod deployments;
mod document;
mod entry;
mod entry_state;
mod exec;
#[cfg(test)]
mod fake;
mod generated_name;
mod held;
mod holding;
mod install_config;
mod inventory_conditions;
mod lease;
mod lease_command;
mod made_before;
mod metadata;
mod model;
mod patching;
mod patience;
mod plan;
mod record;
mod record_keeping;
mod release;
mod release_command;
mod repair;
#[cfg(test)]
mod schema;
mod staleness;
mod status;
mod store;
mod survey;
#[cfg(test)]
mod survey_example;
mod taking;
mod waiting;

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
        PoolCommand::Lease(arguments) => Box::pin(lease_command::run(arguments, session)).await,
        PoolCommand::Exec(arguments) => Box::pin(exec::run(arguments, session)).await,
        PoolCommand::Release(arguments) => Box::pin(release_command::run(arguments, session)).await,
    }
}

#[cfg(test)]
mod tests;
