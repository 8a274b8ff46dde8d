//! Runs `kubectl kcp leader-migration start`.

use kcp_control_plane::verbs::leader_migration::start::{StartOptions, decide};

use crate::{
    commands::leader_migration::{
        step::Step,
        step_arguments::{StartArguments, kube_identity},
    },
    session::Session,
    verdict::Verdict,
};

/// Runs `leader-migration start`.
///
/// # Errors
/// A read fails, it is unknown whether the change was written, or the result cannot be printed.
pub(super) async fn run(arguments: &StartArguments, session: &Session) -> anyhow::Result<Verdict> {
    let step = Step {
        arguments: &arguments.step,
        infinitive: "start the leader migration of",
        not_done: "leader migration not started",
        identities: vec![kube_identity()],
        leader_name: Some(&arguments.leader_name),
        is_confirmed: true,
        deletes_leases: false,
    };
    let taken = step.take(session, |snapshot, reads, context| {
        let options = StartOptions {
            to: arguments.to,
            migrates_node_ipam: arguments.node_ipam,
            leader_name: &arguments.leader_name,
            facts: reads.facts(),
        };
        Ok(decide(snapshot, options, context)?)
    });
    Box::pin(taken).await
}
