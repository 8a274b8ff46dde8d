//! `kubectl kcp scale`: a number of Machines, judged by the admission rules before it is written.
//!
//! - [`screen`]: the text

pub mod screen;

mod arguments;

use anyhow::Context as _;
pub use arguments::ScaleArguments;
pub(crate) use arguments::parse_replicas;
use jiff::Timestamp;
use kcp_control_plane::verbs::scale::{Wanted, decide};
use kcp_rules::Configuration;

use crate::{
    change::telling::Telling,
    configuration,
    edit::{Edit, Edited, Outcome},
    session::Session,
    verdict::Verdict,
    wait::follow,
};
use kcp_client::reader::Reader;
use kcp_control_plane::{
    change::situation::{Extent, Situation},
    judgement::Surroundings,
    wait::Goal,
};

/// Runs `scale`.
///
/// # Errors
/// When nothing could be decided, or the outcome not be written.
pub async fn run(arguments: ScaleArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = arguments.write.configuration.as_deref();
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
    let follow_up = screen::follow_up(&arguments.name, &connection.namespace, arguments.replicas);
    session.terminal.on_interrupt(follow_up);
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
        write,
        ..
    } = arguments;
    let edit = Edit {
        name,
        verb: "scale",
        extent: Extent::All,
        dry_run: write.dry_run,
        field_manager: &write.field_manager,
    };
    let wanted = Wanted {
        replicas: *replicas,
        current: arguments.current_replicas,
        force: arguments.force,
    };
    let judge = async |situation: &Situation| {
        let surroundings = Surroundings {
            now: Timestamp::now(),
            field_manager: &write.field_manager,
            view: &situation.view()?,
            configuration,
        };
        Ok(decide(situation, wanted, surroundings)?)
    };
    let edited = edit.make(reader, &session.terminal, judge).await?;
    let telling = Telling {
        reader,
        terminal: &session.terminal,
        output: write.output,
        dry_run: write.dry_run,
        is_configured: configuration.is_some(),
    };
    telling
        .tell(&edited, &told(arguments, &edited, telling.is_configured))
        .await
}

/// What is told of it to people.
fn told(arguments: &ScaleArguments, edited: &Edited, is_configured: bool) -> String {
    let ScaleArguments {
        name,
        replicas,
        write,
        ..
    } = arguments;
    let from = edited.before.desired_replicas;
    let refused = |by: &str, why: &[String]| screen::refused(name, from, *replicas, by, why);
    match &edited.outcome {
        Outcome::Unchanged => screen::unchanged(name, *replicas),
        Outcome::Made => screen::scaled(name, from, *replicas, write.dry_run, &edited.consequences),
        Outcome::Refused(refusal) => refused(refusal.by(is_configured), &refusal.why),
        Outcome::Rejected(why) => refused("the server", why),
        Outcome::Overtaken(what) => screen::overtaken(name, *replicas, what),
    }
}
