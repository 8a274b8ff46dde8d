//! `kubectl kcp machine`: replaces or remediates one Machine, or marks it to be deleted first.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use kcp_api::{Object as _, kind::MACHINE};
use kcp_client::{reader::Reader, reads::machine::FoundMachine, update::ReadObject as _};
use kcp_control_plane::{
    change::decision::{Decision, Proposal},
    drain::forecast,
    duration::parse_duration,
    plan::DeletedMachines,
    snapshot::change::MachineSnapshot,
    verbs::machine::{
        prefer_delete::{self, Preference},
        remediate,
        replace::{self, ReplaceOptions},
    },
    wait::WaitCondition,
};

use crate::{
    arguments::parse_machine,
    change::{
        arguments::WriteArguments,
        engine::{Changed, Engine, MachineScope, Verb},
    },
    session::Session,
    terminal::{Terminal, escape},
    verdict::Verdict,
    wait::Wait,
};

/// Replace or remediate one Machine of a control plane, or mark it to be deleted first.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "replace|prefer-delete|remediate")]
pub struct MachineArguments {
    #[command(subcommand)]
    pub command: MachineCommand,
}

#[derive(Debug, Subcommand)]
pub enum MachineCommand {
    /// Delete a Machine if etcd keeps its quorum without it; the control plane then creates a new one
    Replace(ReplaceArguments),
    /// Mark a Machine to be deleted first at the next scale down or rollout
    PreferDelete(PreferDeleteArguments),
    /// Show which command deletes a Machine
    #[command(
        hide = true,
        after_help = "Examples:\n  kubectl kcp machine replace edge-9hng4"
    )]
    Delete {
        /// Ignored
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<String>,
    },
    /// Mark a Machine as unhealthy, so that its machine health check starts a remediation
    Remediate(RemediateArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp machine replace edge-9hng4 --wait
  kubectl kcp machine replace edge-9hng4 --dry-run client")]
pub struct ReplaceArguments {
    #[command(flatten)]
    pub target: TargetArguments,

    /// Delete the Machine even if the controller cannot create a new one now; etcd must still keep its quorum
    #[arg(long)]
    pub force: bool,

    /// If etcd cannot be queried, rely on the conditions of the Machines, which can be out of date
    #[arg(long)]
    pub without_etcd: bool,

    /// Do not ask for confirmation on a terminal; without a terminal, the command never asks
    #[arg(short, long)]
    pub yes: bool,

    /// Wait until a new Machine is ready, at most this long [default without a value: 15m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "15m", conflicts_with_all = ["dry_run", "output"])]
    pub wait: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp machine prefer-delete edge-9hng4
  kubectl kcp machine prefer-delete edge-9hng4 --clear")]
pub struct PreferDeleteArguments {
    #[command(flatten)]
    pub target: TargetArguments,

    /// Remove the mark
    #[arg(long)]
    pub clear: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp machine remediate edge-9hng4
  kubectl kcp machine remediate edge-9hng4 --dry-run server")]
pub struct RemediateArguments {
    #[command(flatten)]
    pub target: TargetArguments,

    /// Mark the Machine even if the controller cannot replace it now; etcd must still keep its quorum
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct TargetArguments {
    /// Machine of a control plane, as NAME or machine/NAME
    #[arg(value_parser = parse_machine)]
    pub name: String,

    #[command(flatten)]
    pub write: WriteArguments,
}

/// Runs `machine`.
///
/// # Errors
/// A read fails, or the result cannot be printed.
pub async fn run(arguments: MachineArguments, session: &Session) -> anyhow::Result<Verdict> {
    if let MachineCommand::Delete { .. } = arguments.command {
        bail!(
            "machine delete does not exist; to delete a Machine after a check of etcd: kubectl kcp machine \
             replace NAME"
        );
    }
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let engine = |write| Engine {
        reader: &reader,
        terminal: &session.terminal,
        arguments: write,
        configuration: None,
    };
    match &arguments.command {
        MachineCommand::Replace(arguments) => {
            replace_machine(arguments, engine(&arguments.target.write)).await
        }
        MachineCommand::Delete { .. } => Ok(Verdict::Undecided),
        MachineCommand::PreferDelete(arguments) => {
            prefer_deletion(arguments, engine(&arguments.target.write)).await
        }
        MachineCommand::Remediate(arguments) => {
            remediate_machine(arguments, engine(&arguments.target.write)).await
        }
    }
}

/// Replaces one Machine.
///
/// # Errors
/// Same as [`run`].
pub(crate) async fn replace_machine(
    arguments: &ReplaceArguments,
    engine: Engine<'_>,
) -> anyhow::Result<Verdict> {
    let name = &arguments.target.name;
    let verb = Verb {
        name,
        infinitive: "replace",
        not_done: "not replaced",
        force_effect: Some(replace::FORCE_HINT),
        waits_for_replacement: true,
    };
    let options = ReplaceOptions {
        force: arguments.force,
        without_etcd: arguments.without_etcd,
    };
    let decide = |machine: &MachineSnapshot, now| replace::decide(machine, options, now);
    let asks = engine.arguments.dry_run.is_none() && !arguments.yes && Terminal::can_prompt();
    let mut confirmed = None;
    if asks {
        let found = Box::pin(engine.read_machine(&verb, false)).await?;
        if let (Decision::Write(proposal), FoundMachine::OfControlPlane(machine)) =
            (engine.decide_machine(&verb, &found, decide), &found)
        {
            if !confirm_replacement(&engine, machine, &proposal).await? {
                let changed = Changed::unconfirmed(
                    &MACHINE,
                    found.object(),
                    machine.control_plane_snapshot.control_plane(),
                );
                return engine.report(&verb, &changed).await;
            }
            confirmed = Some(proposal);
        }
    }
    let changed = engine.change_machine(&verb, MachineScope::Replacement, |machine, now| {
        let decision = replace::refuse_if_changed(decide(machine, now), confirmed.as_ref());
        replace::add_drain_warnings(decision, machine)
    });
    let changed = changed.await?;
    let verdict = engine.report(&verb, &changed).await?;
    let (Verdict::Met, Some(timeout), Some(control_plane)) = (verdict, arguments.wait, changed.control_plane)
    else {
        return Ok(verdict);
    };
    let namespace = &engine.reader.connection.namespace;
    let wait = Wait {
        name: &control_plane,
        condition: WaitCondition::Replaced(name.clone()),
        timeout,
        before: None,
        interrupt_message: format!(
            "the replacement continues; watch with: kubectl kcp status {control_plane} -n {namespace} --watch"
        ),
        done_message: format!(
            "machine/{} has been deleted, and the Machines of kubeadmcontrolplane/{} are ready\n",
            escape(name),
            escape(&control_plane)
        ),
    };
    Box::pin(wait.run(engine.reader, engine.terminal)).await
}

/// Shows the consequences of replacing the Machine, and asks the user to confirm.
async fn confirm_replacement(
    engine: &Engine<'_>,
    machine: &MachineSnapshot,
    proposal: &Proposal,
) -> anyhow::Result<bool> {
    engine.warn(&proposal.warnings);
    let drain = forecast(machine.observed(), &DeletedMachines::one(machine.object.name()));
    for consequence in proposal.consequences.iter().chain(&drain) {
        engine.terminal.note(consequence);
    }
    let question = format!(
        "delete Machine {} of control plane {} {}?",
        machine.object.name(),
        machine.control_plane_snapshot.control_plane().name(),
        engine.reader.connection.describe_target()
    );
    engine.terminal.confirm(&question).await
}

async fn prefer_deletion(arguments: &PreferDeleteArguments, engine: Engine<'_>) -> anyhow::Result<Verdict> {
    let (preference, infinitive, not_done) = if arguments.clear {
        let infinitive = "unmark";
        (
            Preference::Cleared,
            infinitive,
            "still marked to be deleted first",
        )
    } else {
        let infinitive = "mark";
        (
            Preference::Preferred,
            infinitive,
            "not marked to be deleted first",
        )
    };
    let verb = Verb {
        name: &arguments.target.name,
        infinitive,
        not_done,
        force_effect: None,
        waits_for_replacement: false,
    };
    let field_manager = &arguments.target.write.field_manager;
    let changed = engine.change_machine(&verb, MachineScope::Machine, |machine, now| {
        prefer_delete::decide(machine, preference, field_manager, now)
    });
    engine.report(&verb, &changed.await?).await
}

async fn remediate_machine(arguments: &RemediateArguments, engine: Engine<'_>) -> anyhow::Result<Verdict> {
    let verb = Verb {
        name: &arguments.target.name,
        infinitive: "remediate",
        not_done: "not marked for remediation",
        force_effect: Some(remediate::FORCE_HINT),
        waits_for_replacement: true,
    };
    let field_manager = &arguments.target.write.field_manager;
    let changed = engine.change_machine(&verb, MachineScope::MachineAndHealthChecks, |machine, now| {
        remediate::decide(machine, arguments.force, field_manager, now)
    });
    engine.report(&verb, &changed.await?).await
}
