//! `kubectl kcp rollout`: replaces every Machine of a control plane, now or later, and shows the progress.
//!
//! - [`report`]: the progress of a rollout; [`document`], [`screen`]: its JSON and text
//! - [`history`]: the generations of Machines

pub mod document;
pub mod history;
pub mod report;
pub mod screen;

mod arguments;

use std::time::Duration;

use anyhow::Context as _;
pub use arguments::{
    CancelArguments, DocumentFormat, HistoryArguments, PauseArguments, RolloutArguments, RolloutCommand,
    RolloutStatusArguments, StartArguments,
};
use document::RolloutStatus;
use history::{document::RolloutHistory, history};
use jiff::Timestamp;
use kcp_client::{
    ReadLimit,
    reader::Reader,
    reads::planned::{Unread, fetch},
};
use kcp_control_plane::{
    change::{
        decision::Decision,
        snapshot::{ChangeSnapshot, ReadScope},
    },
    review::ReviewContext,
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
    change::{
        arguments::{ReviewArguments, WriteArguments},
        engine::{Engine, FORCED, Verb},
    },
    document::text,
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
    wait::{EndingKind, Shown, poll_until},
};

/// The longest that one read of a history may take.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Runs `rollout`.
///
/// # Errors
/// When nothing could be decided, or the result not be printed.
pub async fn run(arguments: RolloutArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        RolloutCommand::Start(arguments) => start_rollout(&arguments, session).await,
        RolloutCommand::Cancel(arguments) => cancel_rollout(&arguments, session).await,
        RolloutCommand::Pause(arguments) => pause_or_resume(&arguments, PauseAction::Pause, session).await,
        RolloutCommand::Resume(arguments) => pause_or_resume(&arguments, PauseAction::Resume, session).await,
        RolloutCommand::Status(arguments) => status(&arguments, session).await,
        RolloutCommand::History(arguments) => show_history(&arguments, session).await,
    }
}

async fn start_rollout(arguments: &StartArguments, session: &Session) -> anyhow::Result<Verdict> {
    let verb = Verb {
        name: &arguments.name,
        infinitive: "roll out",
        not_done: "rollout not started",
        forced: Some(FORCED),
    };
    let options = StartOptions {
        start: arguments.start(),
        force: arguments.force,
    };
    let (write, review) = (&arguments.write, &arguments.review);
    let start = change(
        &verb,
        ReadScope::All,
        write,
        review,
        session,
        |snapshot, version, context| Ok(start::decide(snapshot, options, version, context)?),
    );
    start.await
}

async fn cancel_rollout(arguments: &CancelArguments, session: &Session) -> anyhow::Result<Verdict> {
    let verb = Verb {
        name: &arguments.name,
        infinitive: "cancel the rollout of",
        not_done: "rollout not cancelled",
        forced: None,
    };
    let scope = ReadScope::AllOnceRollingOut;
    let (write, review) = (&arguments.write, &arguments.review);
    let cancel = change(
        &verb,
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
    let (infinitive, not_done) = match action {
        PauseAction::Pause => ("pause", "not paused"),
        PauseAction::Resume => ("resume", "not resumed"),
    };
    let verb = Verb {
        name: &arguments.name,
        infinitive,
        not_done,
        forced: None,
    };
    let (write, review) = (&arguments.write, &arguments.review);
    let pause = change(
        &verb,
        ReadScope::ControlPlane,
        write,
        review,
        session,
        |snapshot, _, context| Ok(pause::decide(snapshot, action, context)?),
    );
    pause.await
}

/// Changes a control plane, and reports the result. `decide` is given the version of its API as well.
async fn change(
    verb: &Verb<'_>,
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
    let api_version = &reader.control_planes.api_version;
    let changed = engine.change_control_plane(verb, scope, |snapshot, context| {
        decide(snapshot, api_version, context)
    });
    engine.report(verb, &Box::pin(changed).await?).await
}

async fn status(arguments: &RolloutStatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    let RolloutStatusArguments { name, output, .. } = arguments;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let namespace = &connection.namespace;
    if !arguments.watch {
        let snapshot = reader.snapshot(namespace, name).await?;
        let now = Timestamp::now();
        let report = RolloutReport::of(snapshot, now);
        return print_report(&report, *output, now, &session.terminal);
    }
    session.terminal.on_interrupt(format!(
        "the rollout continues; watch it with: kubectl kcp rollout status {name} -n {namespace} --watch"
    ));
    let limit = (!arguments.timeout.is_zero()).then_some(arguments.timeout);
    let shown = match output {
        None => Shown::Lines,
        Some(_) => Shown::Nothing,
    };
    let condition = WaitCondition::RolledOut;
    let ending = poll_until(&reader, name, &condition, limit, None, shown, &session.terminal).await?;
    let now = Timestamp::now();
    if output.is_none() && ending.kind != EndingKind::Met {
        let text = ending.text(&condition, now);
        session.terminal.print(&text).context("cannot write to stdout")?;
        return Ok(ending.verdict());
    }
    print_report(
        &RolloutReport::at_the_end(ending, now),
        *output,
        now,
        &session.terminal,
    )
}

/// Prints a report in the format that is asked for.
fn print_report(
    report: &RolloutReport,
    output: Option<DocumentFormat>,
    now: Timestamp,
    terminal: &Terminal,
) -> anyhow::Result<Verdict> {
    let shown = match output {
        None => screen::status(report, now),
        Some(format) => format.of(&RolloutStatus::of(report, now))?,
    };
    terminal.print(&shown).context("cannot write to stdout")?;
    Ok(report.verdict())
}

async fn show_history(arguments: &HistoryArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let fetched = Box::pin(fetch(
        &reader,
        &connection.namespace,
        &arguments.name,
        ReadLimit::each(READ_LIMIT),
    ))
    .await?;
    for Unread { kind, error, .. } in &fetched.unread {
        session.terminal.warning(&format!("{kind} was not read: {error}"));
    }
    let now = Timestamp::now();
    let history = history(&fetched.observed, now);
    let shown = match arguments.output {
        None => history::screen::screen(&history, Terminal::size().map(|size| size.width), now),
        Some(format) => format.of(&RolloutHistory::of(&history))?,
    };
    session.terminal.print(&shown).context("cannot write to stdout")?;
    Ok(Verdict::Met)
}

impl DocumentFormat {
    fn of(self, document: &impl Serialize) -> anyhow::Result<String> {
        Ok(match self {
            Self::Json => text(document).context("cannot write JSON")?,
            Self::Yaml => serde_saphyr::to_string(document).context("cannot write YAML")?,
        })
    }
}
