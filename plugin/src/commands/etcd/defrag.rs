//! `kubectl kcp etcd defrag`: rewrites the database of each member, one after the other.

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use kcp_control_plane::{
    change::decision::{ChangeEvent, Refusal},
    duration::format_duration,
    snapshot::{Snapshot, etcd::QueriedMember},
    verbs::etcd::defrag::{DefragStep, Defragmentation, DefragmentedMember},
};
use tokio::time::sleep;

use crate::{
    arguments::parse_timeout,
    commands::etcd::{
        maintenance::{Maintenance, MaintenanceArguments, POLL_INTERVAL, maintain},
        report::MaintenanceResult,
    },
    session::Session,
    verdict::Verdict,
};

const NOT_DONE: &str = "not defragmented";

/// Return the unused space of each member's database to the file system.
#[derive(Debug, Args)]
#[command(
    after_help = "A member serves no requests while it rewrites its database, which takes a few seconds for each GiB. \
        The command defragments one member after the other, the leader last. Before each member, the command waits \
        until the previous member is healthy and has applied the latest writes. The command stops if etcd would have \
        no quorum without the next member, or if a Machine is being created or deleted.

Examples:
  kubectl kcp etcd defrag edge
  kubectl kcp etcd defrag edge --dry-run"
)]
pub struct DefragArguments {
    #[command(flatten)]
    pub maintenance: MaintenanceArguments,

    /// Defragment even if etcd has only one or two members; the API server pauses while a member is defragmented
    #[arg(long)]
    pub allow_pause: bool,

    /// Time limit for each member to be healthy again and to have applied the latest writes
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10m")]
    pub member_timeout: Duration,
}

/// Runs `etcd defrag`.
pub async fn run(arguments: &DefragArguments, session: &Session) -> anyhow::Result<Verdict> {
    maintain(&arguments.maintenance, session, async |maintenance, observed| {
        defrag(arguments, maintenance, &observed).await
    })
    .await
}

async fn defrag(
    arguments: &DefragArguments,
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
) -> anyhow::Result<Verdict> {
    let mut work = Defragmentation::new(arguments.allow_pause);
    let planned = match work.plan(observed, maintenance.connection().now()) {
        Ok(planned) => planned,
        Err(refusal) => return maintenance.refuse(observed, NOT_DONE, &refusal),
    };
    if maintenance.is_dry_run() {
        let result = MaintenanceResult::Defrag { members: planned };
        return maintenance.finish(observed, None, &result).await;
    }
    let goal = format!(
        "defragment etcd members {} of control plane {}",
        names(&planned),
        arguments.maintenance.name
    );
    if let Some(verdict) = maintenance.confirm(observed, &goal, NOT_DONE).await? {
        return Ok(verdict);
    }
    let ended = Box::pin(defragment(arguments, maintenance, &mut work)).await;
    maintenance.terminal.stop_spinning();
    if !work.completed_members.is_empty() {
        let event = ChangeEvent {
            reason: "EtcdDefragmented",
            action: "EtcdDefrag",
            note_verb: "etcd defragmented",
            detail: format!("on members {}", names(&work.completed_members)),
        };
        maintenance.record_event(observed, event).await;
    }
    let members = work.completed_members;
    match ended {
        Ok(None) => {
            let result = MaintenanceResult::Defrag { members };
            maintenance.finish(observed, None, &result).await
        }
        Ok(Some((observed, refusal))) => {
            note(maintenance, &members);
            maintenance.refuse(&observed, &not_all(&members), &refusal)
        }
        Err(error) => {
            note(maintenance, &members);
            Err(error)
        }
    }
}

/// Defragments one member after the other. Returns the refusal if the next member must not be defragmented now.
async fn defragment(
    arguments: &DefragArguments,
    maintenance: &Maintenance<'_>,
    work: &mut Defragmentation,
) -> anyhow::Result<Option<(Snapshot, Refusal)>> {
    let mut end = Instant::now() + arguments.member_timeout;
    loop {
        let observed = maintenance.observe().await?;
        let now = maintenance.connection().now();
        match work.next(&observed, now) {
            Ok(DefragStep::Complete) => return Ok(None),
            Ok(DefragStep::Defragment(member)) => {
                end = Instant::now() + arguments.member_timeout;
                rewrite(arguments, maintenance, &observed, &member).await?;
            }
            Ok(DefragStep::Wait(why)) => {
                if Instant::now() >= end {
                    return Err(anyhow!(
                        "{why}; the member has not caught up within {} of the start of its defragmentation, so the \
                         command does not defragment the remaining members",
                        format_duration(arguments.member_timeout)
                    ));
                }
                maintenance.terminal.spin(&why);
                sleep(POLL_INTERVAL).await;
            }
            Err(refusal) => return Ok(Some((observed, refusal))),
        }
    }
}

async fn rewrite(
    arguments: &DefragArguments,
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
    member: &QueriedMember,
) -> anyhow::Result<()> {
    let name = &member.name;
    let opened = maintenance
        .open(observed, member, arguments.member_timeout)
        .await?;
    maintenance
        .terminal
        .spin(&format!("defragmenting etcd member {name}"));
    maintenance.terminal.set_interrupt_note(format!(
        "the defragmentation of etcd member {name} continues; check the member with: kubectl kcp status {} -n {}",
        arguments.maintenance.name,
        maintenance.connection().namespace
    ));
    // etcd keeps the old database until the new one is complete, so a member that fails loses nothing.
    opened.defragment().await.with_context(|| {
        format!(
            "etcd member {name} failed during its defragmentation (no data is lost; when the member is healthy, run \
             the command again to defragment the remaining members)"
        )
    })
}

/// Says which members have been defragmented, for a command that failed at a later member.
fn note(maintenance: &Maintenance<'_>, members: &[DefragmentedMember]) {
    if !members.is_empty() {
        maintenance.terminal.note(&format!(
            "these etcd members have been defragmented: {}",
            names(members)
        ));
    }
}

fn not_all(members: &[DefragmentedMember]) -> String {
    if members.is_empty() {
        NOT_DONE.to_owned()
    } else {
        format!("defragmented only on {}", names(members))
    }
}

fn names(members: &[DefragmentedMember]) -> String {
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    names.join(", ")
}
