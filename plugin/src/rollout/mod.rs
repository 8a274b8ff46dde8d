//! `kubectl kcp rollout`: have every Machine of a control plane replaced, and follow that.
//!
//! - [`decision`]: whether a rollout may start, and what is written for it
//! - [`screen`]: the text

pub mod decision;
pub mod document;
pub mod history;
pub mod report;
pub mod schedule;
pub mod screen;

mod arguments;

use anyhow::Context as _;
pub use arguments::{RolloutArguments, RolloutCommand, RolloutStatusArguments, StartArguments};
use decision::decide;
use jiff::Timestamp;
use kcp_rules::Configuration;

use crate::{
    change::situation::Situation,
    configuration,
    control_plane::Reader,
    edit::{Edit, Edited, Outcome},
    follow::{Goal, Standing, follow},
    judgement::Surroundings,
    session::Session,
    verdict::Verdict,
};

/// Runs `rollout`.
///
/// # Errors
/// When nothing could be decided, or the outcome not be written.
pub async fn run(arguments: RolloutArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = match &arguments.command {
        RolloutCommand::Start(StartArguments { configuration, .. }) => configuration.as_deref(),
        RolloutCommand::Status(_) => None,
    };
    let configuration = configuration.map(configuration::read).transpose()?;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    match arguments.command {
        RolloutCommand::Start(arguments) => start(&arguments, configuration.as_ref(), &reader, session).await,
        RolloutCommand::Status(arguments) => status(&arguments, &reader, session).await,
    }
}

async fn start(
    arguments: &StartArguments,
    configuration: Option<&Configuration>,
    reader: &Reader<'_>,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let StartArguments {
        name,
        dry_run,
        field_manager,
        ..
    } = arguments;
    let edit = Edit {
        name,
        verb: "roll out",
        dry_run: *dry_run,
        field_manager,
    };
    let judge = async |situation: &Situation| {
        let surroundings = Surroundings {
            now: Timestamp::now(),
            field_manager,
            view: &situation.view()?,
            configuration,
        };
        let api_version = &reader.control_planes.api_version;
        let control_plane = situation.control_plane();
        Ok(decide(
            &situation.object,
            control_plane,
            api_version,
            surroundings,
        )?)
    };
    let Edited {
        warnings, outcome, ..
    } = edit.make(reader, &session.terminal, judge).await?;
    for warning in &warnings {
        session.terminal.warning(warning);
    }
    let mut hint = None;
    let (text, verdict) = match outcome {
        Outcome::Made | Outcome::Unchanged => (screen::started(name, *dry_run), Verdict::Met),
        Outcome::Refused(refusal) => {
            hint = refusal.hint(configuration.is_some());
            let by = refusal.by(configuration.is_some());
            (screen::refused(name, by, &refusal.why), Verdict::Negative)
        }
        Outcome::Overtaken(what) => (
            screen::refused(name, "others, who were faster", &what),
            Verdict::Negative,
        ),
        Outcome::Rejected(why) => (screen::refused(name, "the server", &why), Verdict::Negative),
    };
    session.terminal.print(&text).context("cannot write to stdout")?;
    if let Some(hint) = hint {
        session.terminal.hint(hint);
    }
    Ok(verdict)
}

async fn status(
    arguments: &RolloutStatusArguments,
    reader: &Reader<'_>,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let name = &arguments.name;
    let namespace = &reader.connection.namespace;
    let mut verdict = Verdict::Met;
    if arguments.watch {
        session.terminal.on_interrupt(format!(
            "a rollout goes on by itself; follow it with: kubectl kcp rollout status {name} -n {namespace} --watch"
        ));
        let limit = (!arguments.timeout.is_zero()).then_some(arguments.timeout);
        verdict = follow(reader, name, Goal::RolledOut, limit, None, &session.terminal).await?;
        if verdict != Verdict::Met {
            // What is waited for has been said.
            return Ok(verdict);
        }
    }
    let snapshot = reader.snapshot(namespace, name).await?;
    let standing = Goal::RolledOut.standing(&snapshot, None, Timestamp::now());
    if standing != Standing::Reached {
        verdict = Verdict::Negative;
    }
    session
        .terminal
        .print(&screen::status(&snapshot.control_plane, &standing))
        .context("cannot write to stdout")?;
    Ok(verdict)
}
