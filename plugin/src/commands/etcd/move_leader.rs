//! `kubectl kcp etcd move-leader`: moves the leadership to another member.

use std::time::Instant;

use anyhow::anyhow;
use clap::Args;
use kcp_control_plane::{
    change::decision::ChangeEvent,
    snapshot::Snapshot,
    verbs::etcd::{
        members::EtcdCluster,
        move_leader::{decide, is_moved},
    },
};
use tokio::time::sleep;

use crate::{
    commands::etcd::{
        maintenance::{CALL_LIMIT, Maintenance, MaintenanceArguments, POLL_INTERVAL, maintain},
        report::MaintenanceResult,
    },
    session::Session,
    verdict::Verdict,
};

const NOT_DONE: &str = "leadership not moved";

/// Move the leadership to another member.
#[derive(Debug, Args)]
#[command(
    after_help = "The new leader must be a healthy voting member that has applied the latest writes, on a Machine that \
        is not being deleted. Without --member, the command prefers a Machine that passes its \
        health check, then one that is up to date, then the newest, as Cluster API 1.14 does.

Examples:
  kubectl kcp etcd move-leader edge
  kubectl kcp etcd move-leader edge --member edge-9hng4"
)]
pub struct MoveLeaderArguments {
    #[command(flatten)]
    pub maintenance: MaintenanceArguments,

    /// New leader, by the name of its node or Machine [default: the member that Cluster API would select]
    #[arg(long, value_name = "MACHINE")]
    pub member: Option<String>,
}

pub async fn run(arguments: &MoveLeaderArguments, session: &Session) -> anyhow::Result<Verdict> {
    maintain(&arguments.maintenance, session, async |maintenance, observed| {
        move_leader(arguments, maintenance, &observed).await
    })
    .await
}

async fn move_leader(
    arguments: &MoveLeaderArguments,
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
) -> anyhow::Result<Verdict> {
    let moved = match decide(observed, arguments.member.as_deref()) {
        Ok(Some(moved)) => moved,
        Ok(None) => {
            let leader = EtcdCluster::new(observed)
                .ok()
                .and_then(|cluster| Some(cluster.leader()?.name.clone()));
            let to = leader.unwrap_or_default();
            let result = MaintenanceResult::MoveLeader { from: None, to };
            return maintenance.finish(observed, None, &result).await;
        }
        Err(refusal) => return maintenance.refuse(observed, NOT_DONE, &refusal),
    };
    let goal = format!(
        "move the leadership of etcd from {} to {} in control plane {}",
        moved.from.name, moved.to, maintenance.members.control_plane
    );
    if let Some(verdict) = maintenance.confirm(observed, &goal, NOT_DONE).await? {
        return Ok(verdict);
    }
    if !maintenance.is_dry_run() {
        let opened = maintenance.open(observed, &moved.from, CALL_LIMIT).await?;
        opened.move_leader(moved.to_id).await?;
        let end = Instant::now() + CALL_LIMIT;
        while !is_moved(&maintenance.observe().await?, moved.to_id) {
            if Instant::now() >= end {
                return Err(anyhow!(
                    "this command asked etcd to make member {} the leader, but the members still follow another \
                     leader; check with: kubectl kcp status {}",
                    moved.to,
                    maintenance.members.control_plane
                ));
            }
            sleep(POLL_INTERVAL).await;
        }
    }
    let event = ChangeEvent {
        reason: "EtcdLeaderMoved",
        action: "EtcdMoveLeader",
        note_verb: "etcd leadership moved",
        detail: format!("from {} to {}", moved.from.name, moved.to),
    };
    let result = MaintenanceResult::MoveLeader {
        from: Some(moved.from.name),
        to: moved.to,
    };
    maintenance.finish(observed, Some(event), &result).await
}
