//! `kubectl kcp machine`: one Machine of a control plane is replaced, remediated, or preferred for deletion.
//!
//! - [`change`]: reading, judging and writing, anew when others have written in between
//! - [`screen`], [`wording`]: the text; [`output`]: what scripts are given
//! - [`telling`]: saying what came of it

mod arguments;
mod change;
mod output;
mod read;
mod screen;
mod telling;
mod wording;

use std::cell::Cell;

use anyhow::Context as _;
pub use arguments::{
    ChangeArguments, MachineArguments, MachineCommand, PreferDeleteArguments, RemediateArguments,
    ReplaceArguments,
};
use change::{MachineChange, Outcome};
use jiff::Timestamp;
use kcp_control_plane::verbs::machine::preference::Preference;
use kcp_control_plane::verbs::machine::{preference, remediation, replacement};
pub use read::NoSuchMachine;
use telling::MachineTelling;
use wording::{CLEARED, PREFERRED, REMEDIATED, REPLACED, Wording};

use crate::{session::Session, verdict::Verdict, wait::follow};
use kcp_client::reader::Reader;
use kcp_control_plane::{change::decision::RefusedBy, wait::Goal};

/// The change is judged by no rule, so that no configuration of the rules matters to it.
const IS_CONFIGURED: bool = true;

/// Runs `machine`.
///
/// # Errors
/// When nothing could be decided, or the outcome not be written.
pub async fn run(arguments: MachineArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    match arguments.command {
        MachineCommand::Replace(arguments) => replace(&arguments, &reader, session).await,
        MachineCommand::PreferDelete(arguments) => prefer_delete(&arguments, &reader, session).await,
        MachineCommand::Remediate(arguments) => remediate(&arguments, &reader, session).await,
    }
}

async fn replace(
    arguments: &ReplaceArguments,
    reader: &Reader<'_>,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let change = change_of(&arguments.change, REPLACED, false);
    let changed = change
        .make(reader, &session.terminal, |of| {
            replacement::decide(of, arguments.force, Timestamp::now())
        })
        .await?;
    let telling = telling(&arguments.change, &change, REPLACED, reader, session);
    let verdict = telling.tell(&changed, None).await?;
    let (Verdict::Met, Some(limit), Some(control_plane)) = (verdict, arguments.wait, changed.control_plane)
    else {
        return Ok(verdict);
    };
    let ChangeArguments { name, .. } = &arguments.change;
    let namespace = &reader.connection.namespace;
    session.terminal.on_interrupt(format!(
        "the replacement goes on by itself; look with: kubectl kcp status {control_plane} -n {namespace} --watch"
    ));
    let limit = (!limit.is_zero()).then_some(limit);
    let goal = Goal::Replaced(name.clone());
    let verdict = follow(reader, &control_plane, goal, limit, None, &session.terminal).await?;
    if verdict == Verdict::Met {
        let text = screen::replaced(name, &control_plane);
        session.terminal.print(&text).context("cannot write to stdout")?;
    }
    Ok(verdict)
}

async fn prefer_delete(
    arguments: &PreferDeleteArguments,
    reader: &Reader<'_>,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let (preference, wording) = if arguments.clear {
        (Preference::Cleared, CLEARED)
    } else {
        (Preference::Preferred, PREFERRED)
    };
    let change = change_of(&arguments.change, wording, false);
    let changed = change
        .make(reader, &session.terminal, |of| {
            preference::decide(of, preference, change.field_manager, Timestamp::now())
        })
        .await?;
    let telling = telling(&arguments.change, &change, wording, reader, session);
    telling.tell(&changed, None).await
}

async fn remediate(
    arguments: &RemediateArguments,
    reader: &Reader<'_>,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let change = change_of(&arguments.change, REMEDIATED, true);
    let may_be_replaced = Cell::new(false);
    let changed = change
        .make(reader, &session.terminal, |of| {
            let now = Timestamp::now();
            may_be_replaced.set(replacement::is_open(of, now));
            remediation::decide(of, arguments.force, change.field_manager, now)
        })
        .await?;
    let otherwise = match &changed.outcome {
        Outcome::Refused(refusal) if refusal.by == RefusedBy::Command && may_be_replaced.get() => {
            Some(format!(
                "delete it where etcd's quorum can stand that with: kubectl kcp machine replace {} -n {}",
                change.name, reader.connection.namespace
            ))
        }
        _ => None,
    };
    let telling = telling(&arguments.change, &change, REMEDIATED, reader, session);
    telling.tell(&changed, otherwise.as_deref()).await
}

fn change_of(arguments: &ChangeArguments, wording: Wording, with_health_checks: bool) -> MachineChange<'_> {
    MachineChange {
        name: &arguments.name,
        verb: wording.verb,
        dry_run: arguments.dry_run,
        field_manager: &arguments.field_manager,
        with_health_checks,
    }
}

const fn telling<'t>(
    arguments: &ChangeArguments,
    change: &'t MachineChange<'t>,
    wording: Wording,
    reader: &'t Reader<'t>,
    session: &'t Session,
) -> MachineTelling<'t> {
    MachineTelling {
        reader,
        terminal: &session.terminal,
        output: arguments.output,
        change,
        wording,
    }
}
