//! `kubectl kcp etcd promote`: gives a vote to a learner that has caught up.

use std::time::Instant;

use anyhow::{Context as _, anyhow};
use clap::Args;
use kcp_control_plane::{
    change::decision::{ChangeEvent, Refusal},
    snapshot::{
        Snapshot,
        etcd::{QueriedMember, hexadecimal},
    },
    verbs::etcd::{
        members::refusal,
        promote::{NOT_IN_SYNC, PromotedMember, Promotion, decide, is_promoted},
    },
};
use tokio::time::sleep;

use crate::{
    commands::{
        etcd::{
            maintenance::{CALL_LIMIT, Maintenance, MaintenanceArguments, POLL_INTERVAL, maintain},
            report::MaintenanceResult,
        },
        plan::document::EtcdVotes,
    },
    session::Session,
    verdict::Verdict,
};

const NOT_DONE: &str = "member not promoted";

/// Promote a learner that has caught up.
#[derive(Debug, Args)]
#[command(
    after_help = "A learner receives etcd's data, but does not vote. kubeadm adds the member of a new Machine as a learner, and promotes it \
        once it has caught up. This command promotes a learner that kubeadm has given up on: one that runs, follows the leader \
        and has applied the leader's writes, on a Machine that is not being deleted. etcd must have a quorum of healthy voting members.

Examples:
  kubectl kcp etcd promote edge 8e9e05c52164694d
  kubectl kcp etcd promote edge edge-9hng4 --dry-run"
)]
pub struct PromoteArguments {
    #[command(flatten)]
    pub maintenance: MaintenanceArguments,

    /// Learner to promote, by its name, its id as etcdctl prints it, or the name of its Machine
    #[arg(value_name = "MEMBER")]
    pub member: String,
}

pub async fn run(arguments: &PromoteArguments, session: &Session) -> anyhow::Result<Verdict> {
    maintain(&arguments.maintenance, session, async |maintenance, observed| {
        promote(arguments, maintenance, &observed).await
    })
    .await
}

async fn promote(
    arguments: &PromoteArguments,
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
) -> anyhow::Result<Verdict> {
    let judged = match decide(observed, &arguments.member) {
        Ok(Promotion::Promote { member, .. }) => member,
        Ok(Promotion::Unchanged(member)) => return unchanged(maintenance, observed, member).await,
        Err(refusal) => return maintenance.refuse(observed, NOT_DONE, &refusal),
    };
    let goal = format!(
        "promote member {} to a voter in the etcd of control plane {} (before: {}; after: {})",
        judged.name, maintenance.members.control_plane, judged.quorum.before, judged.quorum.after
    );
    if let Some(verdict) = maintenance.confirm(observed, &goal, NOT_DONE).await? {
        return Ok(verdict);
    }
    if !maintenance.is_dry_run() {
        // The user may have taken a while to confirm.
        let current = maintenance.observe().await?;
        match decide(&current, &arguments.member) {
            Ok(Promotion::Promote { member, through }) if member == judged => {
                if let Err(refusal) = give_vote(maintenance, &current, &through, &member).await? {
                    return maintenance.refuse(&current, NOT_DONE, &refusal);
                }
            }
            Ok(Promotion::Unchanged(member)) if member.id == judged.id => {
                return unchanged(maintenance, &current, member).await;
            }
            Ok(_) => {
                let why = "the members of etcd have changed in the meantime: run the command again";
                return maintenance.refuse(&current, NOT_DONE, &refusal(why.to_owned()));
            }
            Err(refusal) => return maintenance.refuse(&current, NOT_DONE, &refusal),
        }
    }
    let event = ChangeEvent {
        reason: "EtcdMemberPromoted",
        action: "EtcdPromote",
        note_verb: "etcd member promoted",
        detail: format!("{}, id {}", judged.name, hexadecimal(judged.id)),
    };
    let result = result(judged, false);
    maintenance.finish(observed, Some(event), &result).await
}

async fn unchanged(
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
    member: PromotedMember,
) -> anyhow::Result<Verdict> {
    maintenance.finish(observed, None, &result(member, true)).await
}

fn result(member: PromotedMember, was_voter: bool) -> MaintenanceResult {
    MaintenanceResult::Promote {
        member: member.name,
        id: hexadecimal(member.id),
        was_voter,
        votes_before: EtcdVotes::new(member.quorum.before),
        votes_after: EtcdVotes::new(member.quorum.after),
    }
}

/// Promotes the learner, and waits until the members list it as a voter. The inner error says why etcd does not promote it.
async fn give_vote(
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
    through: &QueriedMember,
    member: &PromotedMember,
) -> anyhow::Result<Result<(), Refusal>> {
    let opened = maintenance.open(observed, through, CALL_LIMIT).await?;
    match opened.promote(member.id).await {
        Ok(false) => {
            return Ok(Err(refusal(format!("etcd member {} {NOT_IN_SYNC}", member.name))));
        }
        // The response may be lost. What counts is whether the member is listed as a voter.
        Err(error) => match maintenance.observe().await {
            Ok(current) if is_promoted(&current, member.id) => {}
            Ok(_) | Err(_) => {
                return Err(error).context(format!(
                    "it is unknown whether etcd has promoted member {}; {}",
                    member.name,
                    maintenance.members_hint()
                ));
            }
        },
        Ok(true) => {}
    }
    // The leader responds before the other members have applied the promotion.
    let end = Instant::now() + CALL_LIMIT;
    while !is_promoted(&maintenance.observe().await?, member.id) {
        if Instant::now() >= end {
            return Err(anyhow!(
                "etcd has promoted member {}, but the members still list it as a learner; {}",
                member.name,
                maintenance.members_hint()
            ));
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(Ok(()))
}
