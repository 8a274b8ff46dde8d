//! `kubectl kcp etcd remove-member`: removes a member that Cluster API does not remove.

use anyhow::Context as _;
use clap::Args;
use kcp_control_plane::{
    change::decision::ChangeEvent,
    snapshot::Snapshot,
    verbs::etcd::{
        members::refusal,
        remove_member::{RemovableMember, decide, is_removed},
    },
};

use crate::{
    commands::etcd::{
        maintenance::{CALL_LIMIT, Maintenance, MaintenanceArguments, maintain},
        report::MaintenanceResult,
    },
    session::Session,
    verdict::Verdict,
};

const NOT_DONE: &str = "member not removed";

/// Remove a member that Cluster API does not remove.
#[derive(Debug, Args)]
#[command(
    after_help = "Cluster API removes the member of each Machine that it deletes. This command removes other members: a \
        member of no Machine, such as a member that never started; the member of a Machine that is being deleted; and a dead \
        member that keeps etcd from removing the member of such a Machine. A quorum of healthy members must remain.

Examples:
  kubectl kcp etcd remove-member edge 8e9e05c52164694d
  kubectl kcp etcd remove-member edge edge-9hng4 --dry-run"
)]
pub struct RemoveMemberArguments {
    #[command(flatten)]
    pub maintenance: MaintenanceArguments,

    /// Member to remove, by its name, its id as etcdctl prints it, or the name of its Machine
    #[arg(value_name = "MEMBER")]
    pub member: String,
}

pub async fn run(arguments: &RemoveMemberArguments, session: &Session) -> anyhow::Result<Verdict> {
    maintain(&arguments.maintenance, session, async |maintenance, observed| {
        remove_member(arguments, maintenance, &observed).await
    })
    .await
}

pub(super) async fn remove_member(
    arguments: &RemoveMemberArguments,
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
) -> anyhow::Result<Verdict> {
    let now = || maintenance.connection().now();
    let judged = match decide(observed, &arguments.member, now()) {
        Ok(judged) => judged,
        Err(refusal) => return maintenance.refuse(observed, NOT_DONE, &refusal),
    };
    let goal = format!(
        "remove member {} from the etcd of control plane {}",
        judged.name, maintenance.members.control_plane
    );
    if let Some(verdict) = maintenance.confirm(observed, &goal, NOT_DONE).await? {
        return Ok(verdict);
    }
    if !maintenance.is_dry_run() {
        // The user may have taken a while to confirm.
        let current = maintenance.observe().await?;
        match decide(&current, &arguments.member, now()) {
            Ok(removable) if is_same(&removable, &judged) => {
                remove(maintenance, &current, &removable).await?;
            }
            Ok(_) => {
                let why = "the member or its Machine has changed in the meantime: run the command again";
                return maintenance.refuse(observed, NOT_DONE, &refusal(why.to_owned()));
            }
            Err(refusal) => return maintenance.refuse(observed, NOT_DONE, &refusal),
        }
    }
    report(maintenance, observed, judged).await
}

/// Whether both describe the same member, and its removal has the same effect in both.
fn is_same(one: &RemovableMember, other: &RemovableMember) -> bool {
    (one.id, &one.left_machine) == (other.id, &other.left_machine)
}

async fn remove(
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
    removable: &RemovableMember,
) -> anyhow::Result<()> {
    if let Some((leader, successor)) = &removable.leader {
        let opened = maintenance.open(observed, leader, CALL_LIMIT).await?;
        opened.move_leader(*successor).await?;
    }
    let opened = maintenance.open(observed, &removable.through, CALL_LIMIT).await?;
    if let Err(error) = opened.remove_member(removable.id).await {
        // The response may be lost. What counts is whether the member is listed.
        let current = maintenance.observe().await;
        if !current.is_ok_and(|current| is_removed(&current, removable.id)) {
            return Err(error).context(format!(
                "it is unknown whether etcd has removed member {}; {}",
                removable.name,
                maintenance.members_hint()
            ));
        }
    }
    Ok(())
}

async fn report(
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
    removable: RemovableMember,
) -> anyhow::Result<Verdict> {
    let RemovableMember {
        id,
        name,
        left_machine,
        waiting_machine,
        ..
    } = removable;
    let event = ChangeEvent {
        reason: "EtcdMemberRemoved",
        action: "EtcdRemoveMember",
        note_verb: "etcd member removed",
        detail: format!("{name}, id {id:x}"),
    };
    let result = MaintenanceResult::RemoveMember {
        member: name,
        id: format!("{id:x}"),
        left_machine: left_machine.clone(),
    };
    let verdict = maintenance.finish(observed, Some(event), &result).await?;
    if maintenance.is_dry_run() {
        return Ok(verdict);
    }
    let namespace = &maintenance.connection().namespace;
    if let Some(machine) = waiting_machine {
        maintenance.terminal.hint(&format!(
            "the controller tries again to delete Machine {machine} within ten minutes; to make it try again now: kubectl kcp \
             reconcile machine/{machine} -n {namespace}"
        ));
    }
    if let Some(machine) = left_machine {
        maintenance.terminal.hint(&format!(
            "then replace Machine {machine}, which has no etcd member: kubectl kcp machine replace {machine} -n {namespace}"
        ));
    }
    Ok(verdict)
}
