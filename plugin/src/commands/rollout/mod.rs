//! `kubectl kcp rollout`: have every Machine of a control plane replaced, at once or later, and follow that.
//!
//! - [`document`], [`screen`]: the JSON and the text

pub mod document;
pub mod history;
pub mod report;
pub mod screen;

mod arguments;
mod write;

use std::{cell::Cell, time::Duration};

use anyhow::Context as _;
pub use arguments::{
    CancelArguments, DocumentFormat, HistoryArguments, PauseArguments, RolloutArguments, RolloutCommand,
    RolloutStatusArguments, StartArguments,
};
use document::RolloutStatus;
use history::{document::RolloutHistory, history};
use jiff::Timestamp;
use kcp_control_plane::verbs::rollout::pausing::Wish;
use kcp_control_plane::verbs::rollout::{
    cancellation::{self, Planned},
    decision, pausing,
};
use report::RolloutReport;
use serde::Serialize;
use write::{Said, Verb, carry_out};

use crate::{
    document::text,
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
    wait::{EndingKind, Shown, follow_to_its_end},
};
use kcp_client::{
    ReadLimit,
    reader::Reader,
    reads::planned::{Unread, fetch},
};
use kcp_control_plane::{change::situation::Extent, wait::Goal};

/// The longest that one read of a history may take.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Runs `rollout`.
///
/// # Errors
/// When nothing could be decided, or the outcome not be written.
pub async fn run(arguments: RolloutArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        RolloutCommand::Start(arguments) => start(&arguments, session).await,
        RolloutCommand::Cancel(arguments) => cancel(&arguments, session).await,
        RolloutCommand::Pause(arguments) => pause(&arguments, Wish::Pause, session).await,
        RolloutCommand::Resume(arguments) => pause(&arguments, Wish::Resume, session).await,
        RolloutCommand::Status(arguments) => status(&arguments, session).await,
        RolloutCommand::History(arguments) => show_history(&arguments, session).await,
    }
}

async fn start(arguments: &StartArguments, session: &Session) -> anyhow::Result<Verdict> {
    let wanted = decision::Wanted {
        begin: arguments.begin(),
        force: arguments.force,
    };
    let verb = Verb {
        infinitive: "roll out",
        not_done: "rollout not started",
        extent: Extent::All,
    };
    let done = if wanted.begin.is_planned() {
        "rollout planned"
    } else {
        "rollout started"
    };
    let start = carry_out(
        verb,
        &arguments.name,
        &arguments.write,
        session,
        |situation, reader, surroundings| {
            let api_version = &reader.control_planes.api_version;
            decision::decide(situation, wanted, api_version, surroundings)
        },
        |_| Said {
            done: done.to_owned(),
            unchanged: "a rollout of this time is asked for already".to_owned(),
        },
    );
    start.await
}

async fn cancel(arguments: &CancelArguments, session: &Session) -> anyhow::Result<Verdict> {
    let verb = Verb {
        infinitive: "cancel the rollout of",
        not_done: "rollout not cancelled",
        extent: Extent::AllOnceRollingOut,
    };
    let planned = Cell::new(Planned::Nothing);
    let cancel = carry_out(
        verb,
        &arguments.name,
        &arguments.write,
        session,
        |situation, reader, surroundings| {
            planned.set(Planned::of(situation, surroundings.now));
            let api_version = &reader.control_planes.api_version;
            cancellation::decide(situation, arguments.running, api_version, surroundings)
        },
        |_| said(&planned.take()),
    );
    cancel.await
}

async fn pause(arguments: &PauseArguments, wish: Wish, session: &Session) -> anyhow::Result<Verdict> {
    let verb = match wish {
        Wish::Pause => Verb {
            infinitive: "pause",
            not_done: "not paused",
            extent: Extent::ControlPlane,
        },
        Wish::Resume => Verb {
            infinitive: "resume",
            not_done: "not resumed",
            extent: Extent::ControlPlane,
        },
    };
    let cluster_is_paused = Cell::new(false);
    let pause = carry_out(
        verb,
        &arguments.name,
        &arguments.write,
        session,
        |situation, _, surroundings| {
            cluster_is_paused.set(situation.observed.cluster.paused);
            pausing::decide(situation, wish, surroundings)
        },
        |_| match wish {
            Wish::Pause => Said {
                done: "paused".to_owned(),
                unchanged: "it is paused already".to_owned(),
            },
            Wish::Resume => Said {
                done: "resumed".to_owned(),
                unchanged: "it is not paused by its annotation".to_owned(),
            },
        },
    );
    let verdict = pause.await?;
    if wish == Wish::Resume && cluster_is_paused.get() {
        let warning =
            "its Cluster is paused as well: no controller reconciles it until spec.paused of that is false";
        session.terminal.warning(warning);
    }
    Ok(verdict)
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
        return told(&report, *output, now, &session.terminal);
    }
    session.terminal.on_interrupt(format!(
        "a rollout goes on by itself; follow it with: kubectl kcp rollout status {name} -n {namespace} --watch"
    ));
    let limit = (!arguments.timeout.is_zero()).then_some(arguments.timeout);
    let shown = match output {
        None => Shown::Lines,
        Some(_) => Shown::Nothing,
    };
    let goal = Goal::RolledOut;
    let ending = follow_to_its_end(&reader, name, &goal, limit, None, shown, &session.terminal).await?;
    let now = Timestamp::now();
    if output.is_none() && ending.kind != EndingKind::Reached {
        let text = ending.text(&goal, now);
        session.terminal.print(&text).context("cannot write to stdout")?;
        return Ok(ending.verdict());
    }
    told(
        &RolloutReport::at_the_end(ending, now),
        *output,
        now,
        &session.terminal,
    )
}

/// Prints a report in the format that is asked for.
fn told(
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
    /// A document as it is printed.
    fn of(self, document: &impl Serialize) -> anyhow::Result<String> {
        Ok(match self {
            Self::Json => text(document).context("cannot write JSON")?,
            Self::Yaml => serde_saphyr::to_string(document).context("cannot write YAML")?,
        })
    }
}

fn said(planned: &Planned) -> Said {
    let (done, unchanged) = match planned {
        Planned::Nothing => ("rollout cancelled".to_owned(), "no rollout is planned".to_owned()),
        Planned::Over { after } => (
            "rollout cancelled".to_owned(),
            format!(
                "no rollout is planned: that of {after} is done, and its time stays, for without it no Machine would \
                     be out of date either"
            ),
        ),
        Planned::Running { after, .. } | Planned::ToCome { after } => {
            (format!("rollout of {after} cancelled"), String::new())
        }
    };
    Said { done, unchanged }
}
