//! `kubectl kcp rollout undo`: shows how the spec differs from the one that earlier Machines have, and writes that spec back.

use kcp_client::{ReadLimit, reader::Reader, reads::change::LIMIT};
use kcp_control_plane::{
    change::decision::Decision,
    review::ReviewContext,
    snapshot::change::ChangeSnapshot,
    verbs::rollout::undo::{decide, question},
    wait::WaitCondition,
};

use super::UndoArguments;
use crate::{
    change::{
        diff::diff,
        engine::{Engine, FORCE_EFFECT, Verb},
    },
    session::Session,
    terminal::escape,
    verdict::Verdict,
    wait::Wait,
};

pub(super) async fn run(arguments: &UndoArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = arguments.review.read()?;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let name = &arguments.name.read(&reader, ReadLimit::per_read(LIMIT)).await?;
    let engine = Engine {
        reader: &reader,
        terminal: &session.terminal,
        arguments: &arguments.write,
        configuration: configuration.as_ref(),
    };
    let verb = Verb {
        name,
        infinitive: "roll back",
        not_done: "not rolled back",
        force_effect: Some(FORCE_EFFECT),
        waits_for_replacement: true,
    };
    let before = match arguments.wait.limit() {
        Some(_) => Some(reader.read_snapshot(&connection.namespace, name).await?),
        None => None,
    };
    let api_version = &reader.control_plane_resource.api_version;
    let changed = engine.change_control_plane_if_confirmed(
        &verb,
        arguments.confirm,
        |snapshot| question(snapshot, api_version, engine.now()),
        |snapshot, context| decide_with_diff(snapshot, arguments, api_version, context),
    );
    let verdict = engine.report(&verb, &Box::pin(changed).await?).await?;
    let (Verdict::Met, Some(timeout)) = (verdict, arguments.wait.limit()) else {
        return Ok(verdict);
    };
    let namespace = &connection.namespace;
    let wait = Wait {
        name,
        condition: WaitCondition::RolledOut,
        timeout,
        before,
        interrupt_message: format!(
            "the rollout continues; watch with: kubectl kcp rollout status {name} -n {namespace}"
        ),
        done_message: format!(
            "kubeadmcontrolplane/{} rolled back, with all Machines ready and up to date\n",
            escape(name)
        ),
    };
    Box::pin(wait.run(&reader, &session.terminal)).await
}

/// The decision, with the changed fields before the other consequences. The report of a dry run also shows these fields.
fn decide_with_diff(
    snapshot: &ChangeSnapshot,
    arguments: &UndoArguments,
    api_version: &str,
    context: ReviewContext<'_>,
) -> anyhow::Result<Decision> {
    let mut decision = decide(snapshot, arguments.force, api_version, context)?;
    if let Decision::Write(proposal) = &mut decision
        && arguments.write.dry_run.is_none()
    {
        let lines = diff(&serde_json::from_str(&snapshot.json)?, proposal.write.fields());
        proposal.consequences.splice(0..0, lines);
    }
    Ok(decision)
}
