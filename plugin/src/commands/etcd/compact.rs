//! `kubectl kcp etcd compact`: deletes the old revisions of all keys.

use std::time::Duration;

use clap::Args;
use kcp_control_plane::{
    change::decision::{ChangeEvent, Refusal},
    snapshot::Snapshot,
    verbs::etcd::compact::{Compaction, KeptHistory, ROUND_KEY, decide, select_member},
};

use crate::{
    commands::etcd::{
        maintenance::{CALL_LIMIT, Maintenance, MaintenanceArguments, maintain},
        report::MaintenanceResult,
    },
    session::Session,
    verdict::Verdict,
};

/// The time limit of the compaction. A member responds when its database is compacted, which takes minutes after millions
/// of writes.
const LIMIT: Duration = Duration::from_secs(600);

pub(super) const NOT_DONE: &str = "not compacted";

/// Delete the old revisions of all keys.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --keep-revisions or --revision, the command keeps the history since kube-apiserver's last \
        compaction round, as kube-apiserver's next compaction would. kube-apiserver begins a round every five minutes \
        (--etcd-compaction-interval), and records the round in the key compact_rev_key. If it has begun no round yet, the command keeps 1,000 revisions. If the database is full, \
        kube-apiserver cannot begin a round, so it no longer compacts etcd. A client that watches from a deleted \
        revision must list the objects again. etcd reuses the freed space for new data; etcd defrag returns it to the \
        file system. The other members may count the deleted revisions as in use until their next \
        write.

Examples:
  kubectl kcp etcd compact edge
  kubectl kcp etcd compact edge --keep-revisions 1000"
)]
pub struct CompactArguments {
    #[command(flatten)]
    pub maintenance: MaintenanceArguments,

    /// Keep the newest revision and this number of revisions before it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub keep_revisions: Option<i64>,

    /// Keep this revision and all newer ones
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(1..),
          conflicts_with = "keep_revisions")]
    pub revision: Option<i64>,
}

impl CompactArguments {
    fn kept(&self) -> KeptHistory {
        match (self.revision, self.keep_revisions) {
            (Some(revision), _) => KeptHistory::From(revision),
            (None, Some(count)) => KeptHistory::Revisions(count),
            (None, None) => KeptHistory::SinceLastRound,
        }
    }
}

pub async fn run(arguments: &CompactArguments, session: &Session) -> anyhow::Result<Verdict> {
    maintain(&arguments.maintenance, session, async |maintenance, observed| {
        compact(arguments, maintenance, &observed).await
    })
    .await
}

async fn compact(
    arguments: &CompactArguments,
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
) -> anyhow::Result<Verdict> {
    let compaction = match judge(maintenance, observed, arguments.kept()).await? {
        Ok(compaction) => compaction,
        Err(refusal) => return maintenance.refuse(observed, NOT_DONE, &refusal),
    };
    if let Some(goal) = compaction.goal(maintenance.members.control_plane)
        && let Some(verdict) = maintenance.confirm(observed, &goal, NOT_DONE).await?
    {
        return Ok(verdict);
    }
    perform(maintenance, observed, &compaction).await
}

/// Decides up to which revision etcd deletes its history. The inner error is the refusal.
pub(super) async fn judge(
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
    history: KeptHistory,
) -> anyhow::Result<Result<Compaction, Refusal>> {
    let member = match select_member(observed) {
        Ok(member) => member,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let round = match history {
        KeptHistory::SinceLastRound => {
            let opened = maintenance.open(observed, &member, CALL_LIMIT).await?;
            opened.read_key_revision(ROUND_KEY).await?
        }
        KeptHistory::Revisions(_) | KeptHistory::From(_) => None,
    };
    Ok(decide(observed, history, round))
}

/// Compacts etcd, unless this is a dry run, and prints the result.
pub(super) async fn perform(
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
    compaction: &Compaction,
) -> anyhow::Result<Verdict> {
    let mut was_compact = !compaction.deletes_revisions();
    if !was_compact && !maintenance.is_dry_run() {
        let opened = maintenance.open(observed, &compaction.member, LIMIT).await?;
        maintenance.terminal.spin("compacting etcd");
        was_compact = !opened.compact(compaction.oldest_revision).await?;
    }
    let event = ChangeEvent {
        reason: "EtcdCompacted",
        action: "EtcdCompact",
        note_verb: "etcd compacted",
        detail: format!(
            "to revision {} of {}",
            compaction.oldest_revision, compaction.newest_revision
        ),
    };
    let result = MaintenanceResult::Compact {
        revision: compaction.oldest_revision,
        current_revision: compaction.newest_revision,
        was_compact,
    };
    let event = (!was_compact).then_some(event);
    maintenance.finish(observed, event, &result).await
}
