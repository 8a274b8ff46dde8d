//! `kubectl kcp scale`: a number of Machines, judged by the admission rules before it is written.
//!
//! - [`decision`]: whether, and by which patch
//! - [`screen`]: the text

pub mod decision;
pub mod screen;

mod arguments;

use anyhow::Context as _;
pub use arguments::ScaleArguments;
use decision::{Decision, decide};

use crate::{
    arguments::DryRun,
    cluster::Write,
    control_plane::{ControlPlane, Outcome, Reader, send},
    follow::{Goal, follow},
    judgement::rejection,
    session::Session,
    verdict::Verdict,
};

/// How often a control plane is read and judged anew when somebody else writes to it between our read and our write.
/// Its controller writes the status several times a second at most, and only in bursts.
const ATTEMPTS: u32 = 5;

/// Runs `scale`.
///
/// # Errors
/// When nothing could be decided, or the outcome not be written.
pub async fn run(arguments: ScaleArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    // Read before the write, so that no Machine comes up unseen.
    let before = match arguments.wait {
        Some(_) => Some(reader.snapshot(&connection.namespace, &arguments.name).await?),
        None => None,
    };
    let verdict = scale(&arguments, &reader, session).await?;
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

/// Reads, judges and writes; all anew when the object has changed in between.
async fn scale(
    arguments: &ScaleArguments,
    reader: &Reader<'_>,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let ScaleArguments {
        name,
        replicas,
        dry_run,
        ..
    } = arguments;
    let namespace = &reader.connection.namespace;
    let print = |text: String| session.terminal.print(&text).context("cannot write to stdout");
    let mut attempt = 1;
    loop {
        let (text, control_plane) = reader.control_plane(namespace, name).await?;
        let from = control_plane.desired_replicas;
        let (patch, subresource) = match decide(&text, &control_plane, *replicas)? {
            Decision::Unchanged => {
                print(screen::unchanged(name, *replicas))?;
                return Ok(Verdict::Met);
            }
            Decision::Refused(why) => {
                print(screen::refused(name, from, *replicas, "the rules", &why))?;
                return Ok(Verdict::Negative);
            }
            Decision::Patch {
                patch,
                subresource,
                warnings,
            } => {
                for warning in warnings {
                    session.terminal.note(&format!("warning: {warning}"));
                }
                (patch, subresource)
            }
        };
        if *dry_run != Some(DryRun::Client) {
            session.terminal.on_interrupt(
                "the scaling may have been accepted already; look with: kubectl kcp status".to_owned(),
            );
            let write = Write {
                resource: &reader.control_planes,
                namespace,
                name,
                subresource,
                patch: &patch,
                field_manager: &arguments.field_manager,
                dry_run: *dry_run == Some(DryRun::Server),
            };
            let landed = |now: &ControlPlane| now.desired_replicas == Some(*replicas);
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
                    let why = rejection(&status);
                    print(screen::refused(name, from, *replicas, "the server", &why))?;
                    return Ok(Verdict::Negative);
                }
            }
        }
        print(screen::scaled(name, from, *replicas, *dry_run))?;
        return Ok(Verdict::Met);
    }
}
