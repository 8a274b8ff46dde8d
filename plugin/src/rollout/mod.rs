//! `kubectl kcp rollout`: have every Machine of a control plane replaced, and follow that.
//!
//! - [`decision`]: whether a rollout may start, and by which patch
//! - [`screen`]: the text

pub mod decision;
pub mod screen;

mod arguments;

use anyhow::Context as _;
pub use arguments::{RolloutArguments, RolloutCommand, RolloutStatusArguments, StartArguments};
use decision::{Decision, decide};
use jiff::Timestamp;

use crate::{
    arguments::DryRun,
    cluster::Write,
    control_plane::{ControlPlane, Outcome, Reader, send},
    follow::{Goal, Standing, follow},
    judgement::rejection,
    session::Session,
    verdict::Verdict,
};

/// As for `scale`.
const ATTEMPTS: u32 = 5;

/// Runs `rollout`.
///
/// # Errors
/// When nothing could be decided, or the outcome not be written.
pub async fn run(arguments: RolloutArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    match arguments.command {
        RolloutCommand::Start(arguments) => start(&arguments, &reader, session).await,
        RolloutCommand::Status(arguments) => status(&arguments, &reader, session).await,
    }
}

/// Reads, judges and writes; all anew when the object has changed in between.
async fn start(
    arguments: &StartArguments,
    reader: &Reader<'_>,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let StartArguments { name, dry_run, .. } = arguments;
    let namespace = &reader.connection.namespace;
    let print = |text: String| session.terminal.print(&text).context("cannot write to stdout");
    let mut attempt = 1;
    loop {
        let (text, control_plane) = reader.control_plane(namespace, name).await?;
        let cluster_is_paused = reader.cluster_is_paused(&control_plane).await?;
        let api_version = &reader.control_planes.api_version;
        let now = Timestamp::now();
        let (patch, after) = match decide(&text, &control_plane, cluster_is_paused, api_version, now)? {
            Decision::Refused(why) => {
                print(screen::refused(name, "kubectl kcp", &why))?;
                return Ok(Verdict::Negative);
            }
            Decision::Patch {
                patch,
                after,
                warnings,
            } => {
                for warning in warnings {
                    session.terminal.note(&format!("warning: {warning}"));
                }
                (patch, after)
            }
        };
        if *dry_run != Some(DryRun::Client) {
            let write = Write {
                resource: &reader.control_planes,
                namespace,
                name,
                subresource: None,
                patch: &patch,
                field_manager: &arguments.field_manager,
                dry_run: *dry_run == Some(DryRun::Server),
            };
            let landed = |now: &ControlPlane| now.rollout_after == Some(after);
            match send(reader, &write, &control_plane.resource_version, landed).await? {
                Outcome::Written => {}
                Outcome::Changed if attempt < ATTEMPTS => {
                    attempt += 1;
                    continue;
                }
                Outcome::Changed => {
                    anyhow::bail!("{name} was changed by others at each of {ATTEMPTS} attempts")
                }
                Outcome::Rejected(status) => {
                    print(screen::refused(name, "the server", &rejection(&status)))?;
                    return Ok(Verdict::Negative);
                }
            }
        }
        print(screen::started(name, *dry_run))?;
        return Ok(Verdict::Met);
    }
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
