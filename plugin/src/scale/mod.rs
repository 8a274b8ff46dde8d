//! `kubectl kcp scale`: a number of Machines, judged by the admission rules before it is written.
//!
//! - [`decision`]: whether, and what is written
//! - [`screen`]: the text

pub mod decision;
pub mod screen;

mod arguments;

use anyhow::Context as _;
pub use arguments::ScaleArguments;
use decision::decide;
use jiff::Timestamp;
use kcp_rules::{Configuration, api::DecodeError, view::View};

use crate::{
    cluster::Error,
    configuration,
    control_plane::{ControlPlane, Reader},
    edit::{Decision, Edit, Edited, Outcome},
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
    let judge = async |text: &str, control_plane: &ControlPlane| {
        let wanted = |surroundings: Surroundings<'_>| decide(text, control_plane, *replicas, surroundings);
        judge(reader, control_plane, field_manager, configuration, wanted).await
    };
    let Edited {
        before,
        warnings,
        outcome,
    } = edit.make(reader, &session.terminal, judge).await?;
    for warning in &warnings {
        session.terminal.warning(warning);
    }
    let from = before.desired_replicas;
    let mut hint = None;
    let (text, verdict) = match outcome {
        Outcome::Unchanged => (screen::unchanged(name, *replicas), Verdict::Met),
        Outcome::Made => (screen::scaled(name, from, *replicas, *dry_run), Verdict::Met),
        Outcome::Refused(refusal) => {
            hint = refusal.hint(configuration.is_some());
            let by = refusal.by(configuration.is_some());
            (
                screen::refused(name, from, *replicas, by, &refusal.why),
                Verdict::Negative,
            )
        }
        Outcome::Rejected(why) => (
            screen::refused(name, from, *replicas, "the server", &why),
            Verdict::Negative,
        ),
    };
    session.terminal.print(&text).context("cannot write to stdout")?;
    if let Some(hint) = hint {
        session.terminal.hint(hint);
    }
    Ok(verdict)
}

/// Decides, and reads the Cluster where the rules ask for it. Who may not read it is judged by the server alone.
async fn judge(
    reader: &Reader<'_>,
    control_plane: &ControlPlane,
    field_manager: &str,
    configuration: Option<&Configuration>,
    decide: impl Fn(Surroundings<'_>) -> Result<Decision, DecodeError>,
) -> anyhow::Result<Decision> {
    let now = Timestamp::now();
    let decide = |view: &View| {
        decide(Surroundings {
            now,
            field_manager,
            view,
            configuration,
        })
    };
    let mut view = View::default();
    let decision = decide(&view)?;
    if !view.wanted().cluster {
        return Ok(decision);
    }
    match reader.cluster(control_plane).await {
        Ok(cluster) => view.cluster = cluster.into(),
        Err(Error::Forbidden { .. }) => return Ok(decision),
        Err(error) => return Err(error.into()),
    }
    Ok(decide(&view)?)
}
