//! `kubectl kcp machine`: diagnoses, replaces or remediates one Machine, or marks it to be deleted first.

mod diagnose;

use std::time::{Duration, Instant};

use anyhow::bail;
use clap::{Args, Subcommand};
use kcp_client::{reader::Reader, reads::first_machine::read_first_machine};
use kcp_control_plane::{
    verbs::machine::{
        first,
        prefer_delete::{self, Preference},
        remediate,
        replace::{self, ReplaceOptions},
    },
    wait::WaitCondition,
};

use diagnose::DiagnoseArguments;

use crate::{
    arguments::parse_machine,
    change::{
        arguments::{WaitArguments, WriteArguments},
        confirmation::ConfirmArguments,
        engine::{Engine, MachineScope, Verb},
    },
    session::Session,
    terminal::escape,
    verdict::Verdict,
    wait::Wait,
};

/// The time limit for reading what exists only on the first Machine.
const FIRST_MACHINE_LIMIT: Duration = Duration::from_secs(30);

/// Diagnose one Machine; replace or remediate it, or mark it to be deleted first.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "diagnose|replace|prefer-delete|remediate")]
pub struct MachineArguments {
    #[command(subcommand)]
    pub command: MachineCommand,
}

#[derive(Debug, Subcommand)]
pub enum MachineCommand {
    /// Show all that is known about a Machine, and who acts next
    Diagnose(DiagnoseArguments),
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
#[command(
    after_help = "If the Machine is the first (oldest) one of the control plane, the command lists what exists only on this \
        Machine. The command refuses if the control plane endpoint is an address of the Machine, if volumes have their data on \
        the Machine's disk, or if Pods can run only on its Node.

Examples:
  kubectl kcp machine replace edge-9hng4 --yes --wait
  kubectl kcp machine replace edge-9hng4 --dry-run"
)]
pub struct ReplaceArguments {
    #[command(flatten)]
    pub target: TargetArguments,

    /// Replace the first Machine even if data on its disk is lost, Pods cannot run on another Node, or either is unknown
    #[arg(long)]
    pub accept_loss: bool,

    /// Delete the Machine even if the controller cannot create a new one now; etcd must still keep its quorum
    #[arg(long)]
    pub force: bool,

    /// If etcd cannot be queried, rely on the conditions of the Machines, which can be out of date
    #[arg(long)]
    pub without_etcd: bool,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    #[command(flatten)]
    pub wait: WaitArguments,
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
  kubectl kcp machine remediate edge-9hng4 --dry-run=server")]
pub struct RemediateArguments {
    #[command(flatten)]
    pub target: TargetArguments,

    /// Mark the Machine even if the controller cannot replace it now; etcd must still keep its quorum
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub confirm: ConfirmArguments,
}

#[derive(Debug, Args)]
pub struct TargetArguments {
    /// Machine of a control plane, as NAME or machine/NAME
    #[arg(value_parser = parse_machine)]
    pub name: String,

    #[command(flatten)]
    pub write: WriteArguments,
}

pub async fn run(arguments: MachineArguments, session: &Session) -> anyhow::Result<Verdict> {
    if let MachineCommand::Delete { .. } = arguments.command {
        bail!(
            "machine delete does not exist; to delete a Machine after a check of etcd: kubectl kcp machine \
             replace NAME"
        );
    }
    if let MachineCommand::Diagnose(arguments) = &arguments.command {
        return Box::pin(diagnose::run(arguments, session)).await;
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
        MachineCommand::Diagnose(_) | MachineCommand::Delete { .. } => Ok(Verdict::Undecided),
        MachineCommand::PreferDelete(arguments) => {
            prefer_deletion(arguments, engine(&arguments.target.write)).await
        }
        MachineCommand::Remediate(arguments) => {
            remediate_machine(arguments, engine(&arguments.target.write)).await
        }
    }
}

async fn replace_machine(arguments: &ReplaceArguments, engine: Engine<'_>) -> anyhow::Result<Verdict> {
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
    let end = Instant::now() + FIRST_MACHINE_LIMIT;
    let first = Box::pin(read_first_machine(engine.reader, name, end)).await?;
    for line in first.iter().flat_map(first::list_holdings) {
        engine.terminal.note(&line);
    }
    let changed = engine.change_machine_if_confirmed(
        &verb,
        MachineScope::Replacement,
        arguments.confirm,
        replace::question,
        |machine, now| {
            let decision = replace::decide(machine, options, now);
            first::guard(decision, first.as_ref(), arguments.accept_loss)
        },
    );
    let changed = Box::pin(changed).await?;
    let verdict = engine.report(&verb, &changed).await?;
    let (Verdict::Met, Some(timeout), Some(control_plane)) =
        (verdict, arguments.wait.limit(), changed.control_plane)
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
    let changed = engine.change_machine_if_confirmed(
        &verb,
        MachineScope::MachineAndHealthChecks,
        arguments.confirm,
        remediate::question,
        |machine, now| remediate::decide(machine, arguments.force, field_manager, now),
    );
    engine.report(&verb, &Box::pin(changed).await?).await
}
