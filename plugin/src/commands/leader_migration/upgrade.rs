//! `leader-migration upgrade`.

use kcp_control_plane::{
    plan::options::with_leading_v,
    verbs::{
        leader_migration::{
            CloudManifest,
            upgrade::{HandoverOptions, decide},
        },
        upgrade::UpgradeOptions,
    },
};

use crate::{
    commands::leader_migration::{
        static_pod::StaticPod,
        step::Step,
        step_arguments::{UpgradeArguments, kube_identity},
    },
    session::Session,
    verdict::Verdict,
};

/// Runs `leader-migration upgrade`.
///
/// # Errors
/// A read fails, it is unknown whether the change was written, or the result cannot be printed.
pub(super) async fn run(arguments: &UpgradeArguments, session: &Session) -> anyhow::Result<Verdict> {
    let version = with_leading_v(&arguments.to);
    let step = Step {
        arguments: &arguments.step,
        infinitive: "upgrade",
        not_done: &format!("not upgraded to {version}"),
        identities: vec![kube_identity(), arguments.cloud.identity()],
        leader_name: None,
        is_confirmed: true,
        deletes_leases: false,
    };
    let pod = StaticPod::read(&arguments.manifest)?;
    let taken = step.take(session, |snapshot, reads, context| {
        let manager = pod.as_ref().map(|pod| pod.manager(&reads.control_plane));
        let manager = manager.transpose()?;
        let manifest = pod.as_ref().zip(manager.as_ref());
        let options = HandoverOptions {
            upgrade: UpgradeOptions {
                version: &version,
                force: false,
                workers: &reads.workers,
            },
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
