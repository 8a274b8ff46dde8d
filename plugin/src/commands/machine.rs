//! `kubectl kcp machine`: replaces or remediates one Machine, or marks it to be deleted first.

use std::time::Duration;

use clap::{Args, Subcommand};
use kcp_client::reader::Reader;
use kcp_control_plane::{
    duration::parse_duration,
    verbs::machine::{
        prefer_delete::{self, Preference},
        remediate, replace,
    },
    wait::WaitCondition,
};

use crate::{
    arguments::parse_machine,
    change::{
        arguments::WriteArguments,
        engine::{Engine, Verb},
    },
    session::Session,
    terminal::escape,
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
    /// Delete a Machine so that the control plane creates a new one, if etcd keeps its quorum
    Replace(ReplaceArguments),
    /// Mark a Machine to be deleted first at the next scale down or rollout
    PreferDelete(PreferDeleteArguments),
    /// Mark a Machine as unhealthy, so that its machine health check starts a remediation
    Remediate(RemediateArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp machine replace edge-9hng4 --wait")]
pub struct ReplaceArguments {
    #[command(flatten)]
    pub target: TargetArguments,

    /// Delete the Machine even if the controller cannot create a new one now; never against etcd's quorum
    #[arg(long)]
    pub force: bool,

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
  kubectl kcp machine remediate edge-9hng4")]
pub struct RemediateArguments {
    #[command(flatten)]
    pub target: TargetArguments,

    /// Mark the Machine even if the controller cannot replace it now; never against etcd's quorum
    #[arg(long)]
    pub force: bool,
}

/// The Machine, and arguments for writing.
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
/// Nothing could be decided, or the result cannot be printed.
pub async fn run(arguments: MachineArguments, session: &Session) -> anyhow::Result<Verdict> {
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
    };
    let changed = engine.change_machine(&verb, false, |machine, now| {
        replace::decide(machine, arguments.force, now)
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
        on_interrupt: format!(
            "the replacement continues; watch with: kubectl kcp status {control_plane} -n {namespace} --watch"
        ),
        done: format!(
            "machine/{} is deleted, and the Machines of kubeadmcontrolplane/{} are ready\n",
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
    };
    let field_manager = &arguments.target.write.field_manager;
    let changed = engine.change_machine(&verb, false, |machine, now| {
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
    };
    let field_manager = &arguments.target.write.field_manager;
    let changed = engine.change_machine(&verb, true, |machine, now| {
        remediate::decide(machine, arguments.force, field_manager, now)
    });
    engine.report(&verb, &changed.await?).await
}
