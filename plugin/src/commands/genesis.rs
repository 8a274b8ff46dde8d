//! `kubectl kcp genesis replace`: replaces the first Machine of a control plane, after listing what exists only on that Machine.
//!
//! The decision whether etcd keeps its quorum, and the deletion, are those of `machine replace`.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use kcp_api::Object as _;
use kcp_client::{
    reader::Reader,
    reads::{self, genesis::read_holdings},
};
use kcp_control_plane::{
    duration::parse_duration,
    snapshot::{Reading, Snapshot},
    verbs::genesis::{Genesis, Holdings, first_machine, list_holdings, refuse},
};

use crate::{
    arguments::{ControlPlaneName, parse_control_plane_of_cluster},
    change::{
        arguments::WriteArguments, confirmation::ConfirmArguments, engine::Engine, report::RefusalReport,
    },
    commands::machine::{ReplaceArguments, TargetArguments, replace_machine},
    output::print,
    session::Session,
    verdict::Verdict,
};

/// The time limit for reading what exists only on the first Machine.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// Replace the first Machine of a control plane, after listing what exists only on that Machine.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "replace")]
pub struct GenesisArguments {
    #[command(subcommand)]
    pub command: GenesisCommand,
}

#[derive(Debug, Subcommand)]
pub enum GenesisCommand {
    /// Delete the oldest Machine if nothing depends on it alone; the control plane then creates a new one
    Replace(GenesisReplaceArguments),
}

#[derive(Debug, Args)]
#[command(
    after_help = "The first Machine is the oldest one. The command lists what exists only on that Machine, and refuses if \
        the control plane endpoint is one of its addresses, if volumes have their data on its disk, or if Pods can run only on \
        its Node. It then does what `machine replace` does.

Examples:
  kubectl kcp genesis replace edge --dry-run=client
  kubectl kcp genesis replace edge --yes --wait"
)]
pub struct GenesisReplaceArguments {
    /// Control plane, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane_of_cluster)]
    pub name: ControlPlaneName,

    /// Replace the Machine although data on its disk is lost, or Pods cannot run on another Node
    #[arg(long)]
    pub accept_loss: bool,

    /// Delete the Machine even if the controller cannot create a new one now; etcd must still keep its quorum
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    /// Wait until a new Machine is ready, at most this long [default without a value: 15m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "15m", conflicts_with_all = ["dry_run", "output"])]
    pub wait: Option<Duration>,

    #[command(flatten)]
    pub write: WriteArguments,
}

/// Runs `genesis`.
///
/// # Errors
/// A read fails, or the result cannot be printed.
pub async fn run(arguments: GenesisArguments, session: &Session) -> anyhow::Result<Verdict> {
    let GenesisCommand::Replace(arguments) = arguments.command;
    let end = Instant::now() + READ_LIMIT;
    let connection = session.connect_within(READ_LIMIT).await?;
    let remaining = || end.saturating_duration_since(Instant::now());
    let reader = reads::discover(&connection, reads::list_limit(remaining())).await?;
    let limit = reads::limit_per_control_plane(remaining());
    let namespace = &connection.namespace;
    let name = arguments.name.read(&reader, limit).await?;
    let observed = reads::read_from_management(&reader, namespace, &name, limit).await?;
    let genesis = match first_machine(&observed.machines) {
        Some(machine) => {
            let node = machine.node().map(str::to_owned);
            let holdings = match &node {
                Some(node) => Box::pin(read_holdings(&connection, &observed.control_plane, node, end)).await,
                None => Reading::NotYet,
            };
            describe(&observed, machine.name(), node, holdings)
        }
        None => describe(&observed, "unknown", None, Reading::NotYet),
    };
    for line in list_holdings(&genesis) {
        session.terminal.note(&line);
    }
    if let Some(refusal) = refuse(&genesis, arguments.accept_loss) {
        let report = RefusalReport {
            control_plane: &observed.control_plane,
            not_done: "the first Machine is not replaced",
            refusal: &refusal,
        };
        print(&report, &arguments.write.output, &session.terminal)?;
        for remedy in &refusal.remedies {
            session.terminal.hint(remedy);
        }
        return Ok(Verdict::Negative);
    }
    hand_over(&arguments, &genesis.machine, &reader, session).await
}

fn describe(
    observed: &Snapshot,
    machine: &str,
    node: Option<String>,
    holdings: Reading<Holdings>,
) -> Genesis {
    let endpoint = observed
        .cluster
        .value()
        .and_then(|cluster| cluster.spec.control_plane_endpoint.as_ref());
    Genesis {
        machine: machine.to_owned(),
        node,
        desired: observed.control_plane.desired_replicas(),
        machines: observed.machines.len(),
        endpoint: endpoint.map(|endpoint| endpoint.host.clone()),
        holdings,
    }
}

/// Replaces the Machine as `machine replace` does.
async fn hand_over(
    arguments: &GenesisReplaceArguments,
    machine: &str,
    reader: &Reader<'_>,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let replace = ReplaceArguments {
        target: TargetArguments {
            name: machine.to_owned(),
            write: arguments.write.clone(),
        },
        force: arguments.force,
        without_etcd: false,
        confirm: arguments.confirm,
        wait: arguments.wait,
    };
    let engine = Engine {
        reader,
        terminal: &session.terminal,
        arguments: &replace.target.write,
        configuration: None,
    };
    Box::pin(replace_machine(&replace, engine)).await
}
