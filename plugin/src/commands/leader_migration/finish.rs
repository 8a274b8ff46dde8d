//! `leader-migration finish`.

use kcp_control_plane::verbs::leader_migration::{
    CloudManifest,
    finish::{FinishOptions, decide},
};

use crate::{
    commands::leader_migration::{static_pod::StaticPod, step::Step, step_arguments::FinishArguments},
    session::Session,
    verdict::Verdict,
};

/// Runs `leader-migration finish`.
///
/// # Errors
/// A read fails, it is unknown whether the change was written, or the result cannot be printed.
pub(super) async fn run(arguments: &FinishArguments, session: &Session) -> anyhow::Result<Verdict> {
    let step = Step {
        arguments: &arguments.step,
        infinitive: "finish the leader migration of",
        not_done: "leader migration not finished",
        identities: Vec::new(),
        leader_name: None,
        is_confirmed: true,
        deletes_leases: true,
    };
    let pod = StaticPod::read(&arguments.manifest)?;
    let taken = step.take(session, |snapshot, reads, context| {
        let manager = pod.as_ref().map(|pod| pod.manager(&reads.control_plane));
        let manager = manager.transpose()?;
        let manifest = pod.as_ref().zip(manager.as_ref());
        let options = FinishOptions {
            manifest: manifest.map(|(pod, manager)| CloudManifest {
                content: &pod.content,
                manager,
            }),
            facts: reads.facts(),
        };
        Ok(decide(snapshot, options, context)?)
    });
    Box::pin(taken).await
}
