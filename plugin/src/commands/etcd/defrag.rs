//! `kubectl kcp etcd defrag`: rewrites the database of each member, one after the other. `--compact` first deletes the old
//! revisions, and `--disarm` afterwards disarms the alarm NOSPACE.

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use kcp_control_plane::{
    change::decision::{ChangeEvent, Refusal},
    duration::format_duration,
    snapshot::{Snapshot, etcd::QueriedMember},
    verbs::etcd::{
        compact::KeptHistory,
        defrag::{DefragStep, Defragmentation, DefragmentedMember, condition::DefragCondition},
        disarm as disarm_decision,
    },
};
use tokio::time::sleep;

use crate::{
    arguments::parse_timeout,
    commands::etcd::{
        compact, disarm,
        maintenance::{Maintenance, MaintenanceOptions, POLL_INTERVAL},
        report::MaintenanceResult,
        several::{SelectionArguments, maintain_each},
    },
    session::Session,
    verdict::Verdict,
};

const NOT_DONE: &str = "not defragmented";

/// How many times at most `--compact --disarm` defragments the members. The second time follows if a member was still compacting
/// the first time, so that its database kept its size.
const ROUNDS: usize = 2;

/// Return the unused space of each member's database to the file system.
#[derive(Debug, Args)]
#[command(
    after_help = "A member serves no requests while it rewrites its database, which takes a few seconds for each GiB. \
        The command defragments one member after the other, the leader last. Before each member, the command waits \
        until the previous member is healthy and has applied the latest writes. The command stops if etcd would have \
        no quorum without the next member, or if a Machine is being created or deleted.

--when compares inUse, the percentage of the database that is in use, and size, the size of the database: \
        EXPRESSION consists of comparisons with <, <=, > or >=, joined with && and ||; && binds tighter. If no member \
        matches, nothing changes, and the exit code is 0.

--compact does the same as etcd compact before the defragmentation, and --disarm the same as etcd disarm after it. With -A or \
        -l, a refusal for one control plane does not stop the next one; the exit code is the worst of all.

Examples:
  kubectl kcp etcd defrag edge
  kubectl kcp etcd defrag edge --dry-run
  kubectl kcp etcd defrag -A --yes --when 'inUse < 50 && size > 1Gi'
  kubectl kcp etcd defrag edge --compact --disarm"
)]
pub struct DefragArguments {
    #[command(flatten)]
    pub selection: SelectionArguments,

    #[command(flatten)]
    pub options: MaintenanceOptions,

    /// Defragment only members whose databases match, such as 'inUse < 50 && size > 1Gi'
    #[arg(long, value_name = "EXPRESSION")]
    pub when: Option<DefragCondition>,

    /// Delete the old revisions of all keys first
    #[arg(long)]
    pub compact: bool,

    /// With --compact, keep the newest revision and this number of revisions before it [default: those since the last
    /// compaction round of kube-apiserver]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..), requires = "compact")]
    pub keep_revisions: Option<i64>,

    /// Afterwards, disarm the alarm NOSPACE if every database has space again
    #[arg(long)]
    pub disarm: bool,

    /// Defragment even if etcd has only one or two members; the API server pauses while a member is defragmented
    #[arg(long)]
    pub allow_pause: bool,

    /// Time limit for each member to be healthy again and to have applied the latest writes
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10m")]
    pub member_timeout: Duration,
}

impl DefragArguments {
    fn defragmentation(&self) -> Defragmentation {
        Defragmentation::new(self.allow_pause, self.when.clone())
    }

    const fn has_steps(&self) -> bool {
        self.compact || self.disarm
    }
}

pub async fn run(arguments: &DefragArguments, session: &Session) -> anyhow::Result<Verdict> {
    let is_list = arguments.has_steps();
    maintain_each(
        &arguments.selection,
        &arguments.options,
        session,
        is_list,
        async |maintenance, observed| Box::pin(run_steps(arguments, maintenance, observed)).await,
    )
    .await
}

/// Judges each step as far as it is known before the first one, asks once, and takes the steps. A step that is refused ends the
/// command, because the next one depends on it.
async fn run_steps(
    arguments: &DefragArguments,
    maintenance: &Maintenance<'_>,
    mut observed: Snapshot,
) -> anyhow::Result<Verdict> {
    let name = maintenance.members.control_plane;
    let mut goals = Vec::new();
    let mut compaction = None;
    if arguments.compact {
        let kept = arguments.keep_revisions;
        let history = kept.map_or(KeptHistory::SinceLastRound, KeptHistory::Revisions);
        match compact::judge(maintenance, &observed, history).await? {
            Ok(judged) => {
                goals.extend(judged.goal(name));
                compaction = Some(judged);
            }
            Err(refusal) => return maintenance.refuse(&observed, compact::NOT_DONE, &refusal),
        }
    }
    let deletes_revisions = !goals.is_empty();
    let now = maintenance.connection().now();
    let mut work = arguments.defragmentation();
    let planned = match work.plan(&observed, now) {
        Ok(planned) => planned,
        Err(refusal) => return maintenance.refuse(&observed, NOT_DONE, &refusal),
    };
    match &arguments.when {
        // Which members match is known only after the compaction.
        Some(condition) if deletes_revisions => goals.push(format!(
            "defragment the etcd members of control plane {name} that match {condition} after the compaction"
        )),
        _ if planned.is_empty() => {}
        _ => goals.push(format!(
            "defragment etcd members {} of control plane {name}",
            names(&planned)
        )),
    }
    let mut alarms = None;
    if arguments.disarm {
        alarms = match disarm_decision::plan(&observed) {
            Ok(alarms) => alarms,
            Err(refusal) => return maintenance.refuse(&observed, disarm::NOT_DONE, &refusal),
        };
        // The previous steps may take minutes. In this time, another member may raise the alarm.
        match &alarms {
            Some(alarms) => goals.push(format!(
                "{}, and of any other member that raises it in the meantime",
                disarm::goal(alarms, name)
            )),
            None if goals.is_empty() => {}
            None => goals.push(format!(
                "disarm the alarm NOSPACE of any etcd member of control plane {name} that raises it in the meantime"
            )),
        }
    }
    if !goals.is_empty() {
        let goal = goals.join(", then ");
        if let Some(verdict) = maintenance.confirm(&observed, &goal, NOT_DONE).await? {
            return Ok(verdict);
        }
    }
    if let Some(compaction) = &compaction {
        compact::perform(maintenance, &observed, compaction).await?;
    }
    if maintenance.is_dry_run() {
        let result = MaintenanceResult::Defrag { members: planned };
        maintenance.finish(&observed, None, &result).await?;
        if arguments.disarm {
            disarm::perform(maintenance, &observed, alarms).await?;
        }
        return Ok(Verdict::Met);
    }
    if !deletes_revisions && let Err(refusal) = work.confirm_members(&observed) {
        return maintenance.refuse(&observed, NOT_DONE, &refusal);
    }
    let mut round = 1;
    loop {
        let verdict = defrag(arguments, maintenance, &observed, work).await?;
        if verdict != Verdict::Met || !arguments.disarm {
            return Ok(verdict);
        }
        if goals.is_empty() {
            // The user did not confirm that an alarm is disarmed, so an alarm that was raised in the meantime stays.
            return disarm::perform(maintenance, &observed, None).await;
        }
        observed = maintenance.observe().await?;
        match disarm_decision::decide(&observed) {
            Ok(alarms) => return disarm::perform(maintenance, &observed, alarms).await,
            Err(_) if deletes_revisions && round < ROUNDS && disarm_decision::needs_only_space(&observed) => {
                work = arguments.defragmentation();
                round += 1;
            }
            Err(refusal) => return maintenance.refuse(&observed, disarm::NOT_DONE, &refusal),
        }
    }
}

/// Defragments the members, records an Event, and prints the result.
async fn defrag(
    arguments: &DefragArguments,
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
    mut work: Defragmentation,
) -> anyhow::Result<Verdict> {
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
        maintenance.members.control_plane,
        maintenance.connection().namespace
    ));
    // etcd keeps the old database until the new one is complete, so a member that fails loses nothing.
    let defragmented = opened.defragment().await;
    maintenance.terminal.clear_interrupt_note();
    defragmented.with_context(|| {
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
