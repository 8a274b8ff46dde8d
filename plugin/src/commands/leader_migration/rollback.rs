//! `leader-migration rollback`.

use kcp_control_plane::verbs::leader_migration::rollback::decide;

use crate::{
    commands::leader_migration::{step::Step, step_arguments::RollbackArguments},
    session::Session,
    verdict::Verdict,
};

/// Runs `leader-migration rollback`.
///
/// # Errors
/// A read fails, it is unknown whether the change was written, or the result cannot be printed.
pub(super) async fn run(arguments: &RollbackArguments, session: &Session) -> anyhow::Result<Verdict> {
    let step = Step {
        arguments: &arguments.step,
        infinitive: "roll back the leader migration of",
        not_done: "not rolled back",
        identities: Vec::new(),
        leader_name: None,
        // A second rollback would reverse the step before.
        is_confirmed: false,
        deletes_leases: false,
    };
    let taken = step.take(session, |snapshot, reads, context| {
        Ok(decide(snapshot, reads.facts(), context)?)
    });
    Box::pin(taken).await
}
