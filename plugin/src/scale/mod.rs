//! `kubectl kcp scale`: a number of Machines, judged by the admission rules before it is written.
//!
//! - [`decision`]: whether, and what is written
//! - [`screen`]: the text

pub mod decision;
pub mod screen;

mod arguments;

use anyhow::Context as _;
pub use arguments::ScaleArguments;
pub(crate) use arguments::parse_replicas;
use decision::{Wanted, decide};
use jiff::Timestamp;
use kcp_rules::Configuration;

use crate::{
    change::situation::Situation,
    configuration,
    control_plane::Reader,
    edit::{Edit, Edited, Outcome},
    follow::{Goal, follow},
    judgement::Surroundings,
    session::Session,
    verdict::Verdict,
};

/// Runs `scale`.
///
/// # Errors
/// When nothing could be decided, or the outcome not be written.
pub async fn run(arguments: ScaleArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = arguments.configuration.as_deref();
    let configuration = configuration.map(configuration::read).transpose()?;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    // Read before the write, so that no Machine comes up unseen.
    let before = match arguments.wait {
        Some(_) => Some(reader.snapshot(&connection.namespace, &arguments.name).await?),
        None => None,
    };
    let verdict = scale(&arguments, configuration.as_ref(), &reader, session).await?;
    let (Verdict::Met, Some(limit)) = (verdict, arguments.wait) else {
        return Ok(verdict);
    };
    session.terminal.on_interrupt(format!(
        "the scaling goes on by itself; follow it with: kubectl kcp scale {} -n {} --replicas {} --wait",
        arguments.name, connection.namespace, arguments.replicas
    ));
    let limit = (!limit.is_zero()).then_some(limit);
    let goal = Goal::Replicas(arguments.replicas);
    let verdict = follow(&reader, &arguments.name, goal, limit, before, &session.terminal).await?;
    if verdict == Verdict::Met {
        let text = screen::done(&arguments.name, arguments.replicas);
        session.terminal.print(&text).context("cannot write to stdout")?;
    }
    Ok(verdict)
}

async fn scale(
    arguments: &ScaleArguments,
    configuration: Option<&Configuration>,
    reader: &Reader<'_>,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let ScaleArguments {
        name,
        replicas,
        dry_run,
        field_manager,
        ..
    } = arguments;
    let edit = Edit {
        name,
        verb: "scale",
        dry_run: *dry_run,
        field_manager,
    };
    let wanted = Wanted {
        replicas: *replicas,
        current: arguments.current_replicas,
        force: arguments.force,
    };
    let judge = async |situation: &Situation| {
        let surroundings = Surroundings {
            now: Timestamp::now(),
            field_manager,
            view: &situation.view()?,
            configuration,
        };
        Ok(decide(situation, wanted, surroundings)?)
    };
    let edited = edit.make(reader, &session.terminal, judge).await?;
    for warning in &edited.warnings {
        session.terminal.warning(warning);
    }
    let is_configured = configuration.is_some();
    let (text, verdict) = told(arguments, &edited, is_configured);
    let hint = match &edited.outcome {
        Outcome::Refused(refusal) => refusal.hint(is_configured),
        _ => None,
    };
    if let Some(format) = arguments.output {
        for line in text.lines() {
            session.terminal.note(line);
        }
        let now = match (&edited.outcome, dry_run) {
            (Outcome::Made, None) => {
                let namespace = &reader.connection.namespace;
                Some(reader.control_plane(namespace, name).await?.0)
            }
            _ => None,
        };
        let document = edited.output(format, now.as_deref(), is_configured)?;
        session
            .terminal
            .print(&document)
            .context("cannot write to stdout")?;
    } else {
        session.terminal.print(&text).context("cannot write to stdout")?;
    }
    if let Some(hint) = hint {
        session.terminal.hint(hint);
    }
    Ok(verdict)
}

/// What is told of it to people, and what that means.
fn told(arguments: &ScaleArguments, edited: &Edited, is_configured: bool) -> (String, Verdict) {
    let ScaleArguments {
        name,
        replicas,
        dry_run,
        ..
    } = arguments;
    let from = edited.before.desired_replicas;
    let refused = |by: &str, why: &[String]| screen::refused(name, from, *replicas, by, why);
    match &edited.outcome {
        Outcome::Unchanged => (screen::unchanged(name, *replicas), Verdict::Met),
        Outcome::Made => {
            let text = screen::scaled(name, from, *replicas, *dry_run, &edited.consequences);
            (text, Verdict::Met)
        }
        Outcome::Refused(refusal) => (
            refused(refusal.by(is_configured), &refusal.why),
            Verdict::Negative,
        ),
        Outcome::Rejected(why) => (refused("the server", why), Verdict::Negative),
        Outcome::Overtaken(what) => (screen::overtaken(name, *replicas, what), Verdict::Negative),
    }
}
