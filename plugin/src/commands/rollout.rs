//! `kubectl kcp rollout`: replaces every Machine of a control plane, now or later, shows the progress, and undoes a change.
//!
//! - [`undo`]: writes back the spec that earlier Machines have
//! - [`report`]: the progress of a rollout; [`document`], [`screen`]: its JSON and text
//! - [`history`]: the generations of Machines

pub mod document;
pub mod history;
pub mod report;
pub mod screen;

mod arguments;
mod undo;

use std::time::Duration;

use anyhow::Context as _;
pub use arguments::{
    CancelArguments, HistoryArguments, PauseArguments, RolloutArguments, RolloutCommand,
    RolloutStatusArguments, StartArguments, UndoArguments,
};
use document::RolloutStatus;
use history::{History, document::RolloutHistory, history};
use kcp_api::Object as _;
use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use kcp_client::{
    ReadLimit,
    reader::Reader,
    reads::{
        change::LIMIT,
        planned::{Reads, Unread, add_obstacles, fetch},
    },
};
use kcp_control_plane::{
    change::{decision::Decision, replacement::apply_replacement_refusal},
    review::ReviewContext,
    snapshot::change::{ChangeSnapshot, ReadScope},
    verbs::rollout::{
        cancel,
        pause::{self, PauseAction},
        start::{self, StartOptions},
    },
    wait::WaitCondition,
};
use report::RolloutReport;
use serde::Serialize;

use crate::{
    arguments::ControlPlaneName,
    change::{
        arguments::{ReviewArguments, WriteArguments},
        engine::{ChangeOutcome, Changed, Engine, FORCE_EFFECT, Verb},
    },
    document::{Versioned, resource_name},
    output::{Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
    wait::{Shown, WaitEndingKind, poll_until},
};

/// The time limit of each read for `rollout history`, and of the reads of obstacles for `rollout status`.
const READ_LIMIT: Duration = Duration::from_secs(10);

pub async fn run(arguments: RolloutArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        RolloutCommand::Start(arguments) => start_rollout(&arguments, session).await,
        RolloutCommand::Cancel(arguments) => cancel_rollout(&arguments, session).await,
        RolloutCommand::Undo(arguments) => Box::pin(undo::run(&arguments, session)).await,
        RolloutCommand::Pause(arguments) => pause_or_resume(&arguments, PauseAction::Pause, session).await,
        RolloutCommand::Resume(arguments) => pause_or_resume(&arguments, PauseAction::Resume, session).await,
        RolloutCommand::Status(arguments) => status(&arguments, session).await,
        RolloutCommand::History(arguments) => show_history(&arguments, session).await,
    }
}

async fn start_rollout(arguments: &StartArguments, session: &Session) -> anyhow::Result<Verdict> {
    let options = StartOptions {
        start: arguments.start_time(),
        force: arguments.force,
    };
    let configuration = arguments.review.read()?;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let name = &arguments.name.read(&reader, ReadLimit::per_read(LIMIT)).await?;
    let verb = Verb {
        name,
        infinitive: "roll out",
        not_done: "rollout not started",
        force_effect: Some(FORCE_EFFECT),
        waits_for_replacement: true,
    };
    let terminal = &session.terminal;
    let engine = Engine {
        reader: &reader,
        terminal,
        arguments: &arguments.write,
        configuration: configuration.as_ref(),
    };
    let decide = |snapshot: &ChangeSnapshot, context: ReviewContext<'_>| {
        let decision = start::decide(
            snapshot,
            options,
            &reader.control_plane_resource.api_version,
            context,
        )?;
        if matches!(decision, Decision::Write(_)) {
            arguments
                .snapshot
                .warn(snapshot.control_plane(), context.now, terminal);
        }
        anyhow::Ok(decision)
    };
    let mut confirm = arguments.confirm;
    if arguments.snapshot.is_set() {
        let snapshot = Box::pin(engine.read(name, ReadScope::All)).await?;
        let view = snapshot.view();
        let refusal = engine.refusal_during_replacement(&verb, &snapshot, None);
        let decision = decide(&snapshot, engine.context(&view))?;
        let proposal = match apply_replacement_refusal(decision, refusal) {
            Decision::Write(proposal) => proposal,
            // A later read could allow the rollout, which would then start without the snapshot.
            Decision::Unchanged(why) => {
                let changed = Changed::without_write(&snapshot, ChangeOutcome::Unchanged(why));
                return engine.report(&verb, &changed).await;
            }
            Decision::Refused(refusal) => {
                let changed = Changed::without_write(&snapshot, ChangeOutcome::Refused(refusal));
                return engine.report(&verb, &changed).await;
            }
        };
        let asked = start::question(&snapshot, options.start);
        if !engine.ask(confirm, &asked, &proposal, &[]).await? {
            let control_plane = snapshot.control_plane();
            let changed =
                Changed::unconfirmed(&KUBEADM_CONTROL_PLANE, verb.name, &snapshot.json, control_plane);
            return engine.report(&verb, &changed).await;
        }
        confirm.yes = true;
        let saved = arguments
            .snapshot
            .save(snapshot.control_plane(), &reader, terminal);
        Box::pin(saved).await?;
    }
    let question = |snapshot: &ChangeSnapshot| Some(start::question(snapshot, options.start));
    let changed = engine.change_control_plane_if_confirmed(&verb, confirm, question, decide);
    engine.report(&verb, &Box::pin(changed).await?).await
}

async fn cancel_rollout(arguments: &CancelArguments, session: &Session) -> anyhow::Result<Verdict> {
    let scope = ReadScope::AllOnceRollingOut;
    let (write, review) = (&arguments.write, &arguments.review);
    let cancel = change(
        &arguments.name,
        ("cancel the rollout of", "rollout not cancelled"),
        scope,
        write,
        review,
        session,
        |snapshot, version, context| Ok(cancel::decide(snapshot, arguments.running, version, context)?),
    );
    cancel.await
}

async fn pause_or_resume(
    arguments: &PauseArguments,
    action: PauseAction,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let (texts, scope) = match action {
        PauseAction::Pause => (("pause", "not paused"), ReadScope::ControlPlane),
        PauseAction::Resume => (("resume", "not resumed"), ReadScope::All),
    };
    let (write, review) = (&arguments.write, &arguments.review);
    let pause = change(
        &arguments.name,
        texts,
        scope,
        write,
        review,
        session,
        |snapshot, _, context| Ok(pause::decide(snapshot, action, context)?),
    );
    pause.await
}

/// Lets a verb change a control plane, and prints the result. `infinitive` and `not_done` are those of [`Verb`]. `decide` gets the
/// snapshot and the API version of the control plane.
async fn change(
    name: &ControlPlaneName,
    (infinitive, not_done): (&'static str, &str),
    scope: ReadScope,
    write: &WriteArguments,
    review: &ReviewArguments,
    session: &Session,
    decide: impl Fn(&ChangeSnapshot, &str, ReviewContext<'_>) -> anyhow::Result<Decision>,
) -> anyhow::Result<Verdict> {
    let configuration = review.read()?;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let engine = Engine {
        reader: &reader,
        terminal: &session.terminal,
        arguments: write,
        configuration: configuration.as_ref(),
    };
    let verb = Verb {
        name: &name.read(&reader, ReadLimit::per_read(LIMIT)).await?,
        infinitive,
        not_done,
        force_effect: None,
        waits_for_replacement: false,
    };
    let api_version = &reader.control_plane_resource.api_version;
    let changed = engine.change_control_plane(&verb, scope, |snapshot, context| {
        decide(snapshot, api_version, context)
    });
    engine.report(&verb, &Box::pin(changed).await?).await
}

async fn status(arguments: &RolloutStatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    let output = &arguments.output;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let name = &arguments
        .name
        .read(&reader, ReadLimit::per_read(READ_LIMIT))
        .await?;
    let namespace = &connection.namespace;
    if !arguments.watch {
        let mut snapshot = reader.read_snapshot(namespace, name).await?;
        Box::pin(add_obstacles(&reader, &mut snapshot, READ_LIMIT)).await;
        let report = RolloutReport::from_poll(snapshot, connection.now());
        print(&report, output, &session.terminal)?;
        return Ok(report.verdict());
    }
    session.terminal.set_interrupt_note(format!(
        "the rollout continues; watch with: kubectl kcp rollout status {name} -n {namespace}"
    ));
    let limit = (!arguments.timeout.is_zero()).then_some(arguments.timeout);
    let shown = if output.is_text() {
        Shown::Lines
    } else {
        Shown::Nothing
    };
    let condition = WaitCondition::RolledOut;
    let ending = poll_until(&reader, name, &condition, limit, None, shown, &session.terminal).await?;
    let now = connection.now();
    if output.is_text() && matches!(ending.kind, WaitEndingKind::TimedOut(_)) {
        let text = ending.text(&condition, now);
        session.terminal.print(&text).context("cannot write to stdout")?;
        return Ok(ending.verdict());
    }
    let report = RolloutReport::from_ending(ending, now);
    print(&report, output, &session.terminal)?;
    Ok(report.verdict())
}

async fn show_history(arguments: &HistoryArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let limit = ReadLimit::per_read(READ_LIMIT);
    let name = arguments.name.read(&reader, limit).await?;
    let fetched = Box::pin(fetch(&reader, &connection.namespace, &name, limit)).await?;
    for Unread { kind, error, .. } in &fetched.unread {
        session
            .terminal
            .warning(&format!("could not read {kind}: {error}"));
    }
    let reads = Reads {
        reader: &reader,
        namespace: &connection.namespace,
        limit: ReadLimit::per_read(READ_LIMIT),
    };
    let events = Box::pin(reads.read_rollout_events(&fetched.observed.control_plane, &fetched.json)).await;
    if let Some(failure) = events.failure() {
        session
            .terminal
            .warning(&format!("could not read Events: {}", failure.message));
    }
    let history = history(&fetched.observed, events.value().cloned(), connection.now());
    print(&history, &arguments.output, &session.terminal)?;
    Ok(Verdict::Met)
}

impl Report for RolloutReport {
    fn table(&self, layout: Layout) -> String {
        screen::render(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(RolloutStatus::new(self))
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(
            &KUBEADM_CONTROL_PLANE,
            self.snapshot.control_plane.name(),
        )]
    }
}

impl Report for History {
    fn table(&self, layout: Layout) -> String {
        history::screen::render(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(RolloutHistory::new(self))
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&KUBEADM_CONTROL_PLANE, &self.name)]
    }
}
