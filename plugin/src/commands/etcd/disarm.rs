//! `kubectl kcp etcd disarm`: disarms the alarm NOSPACE.

use clap::Args;
use kcp_control_plane::{
    change::decision::ChangeEvent,
    snapshot::Snapshot,
    verbs::etcd::disarm::{DisarmPlan, decide},
};

use crate::{
    commands::etcd::{
        maintenance::{CALL_LIMIT, Maintenance, MaintenanceArguments, maintain},
        report::MaintenanceResult,
    },
    session::Session,
    verdict::Verdict,
};

pub(super) const NOT_DONE: &str = "not disarmed";

/// Disarm the alarm NOSPACE once every database has space again.
#[derive(Debug, Args)]
#[command(
    after_help = "etcd raises NOSPACE when a database reaches its quota, and then rejects writes until the alarm is \
        disarmed. The command never disarms CORRUPT, because etcd would then serve and change data that differs \
        between its members.

Examples:
  kubectl kcp etcd compact edge
  kubectl kcp etcd defrag edge
  kubectl kcp etcd disarm edge"
)]
pub struct DisarmArguments {
    #[command(flatten)]
    pub maintenance: MaintenanceArguments,
}

pub async fn run(arguments: &DisarmArguments, session: &Session) -> anyhow::Result<Verdict> {
    maintain(&arguments.maintenance, session, async |maintenance, observed| {
        disarm(maintenance, &observed).await
    })
    .await
}

async fn disarm(maintenance: &Maintenance<'_>, observed: &Snapshot) -> anyhow::Result<Verdict> {
    let disarmament = match decide(observed) {
        Ok(disarmament) => disarmament,
        Err(refusal) => return maintenance.refuse(observed, NOT_DONE, &refusal),
    };
    if let Some(disarmament) = &disarmament {
        let goal = goal(disarmament, maintenance.members.control_plane);
        if let Some(verdict) = maintenance.confirm(observed, &goal, NOT_DONE).await? {
            return Ok(verdict);
        }
    }
    perform(maintenance, observed, disarmament).await
}

/// What the command is about to do, for its question.
pub(super) fn goal(disarmament: &DisarmPlan, control_plane: &str) -> String {
    format!(
        "disarm the alarm NOSPACE of etcd members {} of control plane {control_plane}",
        disarmament.members.join(", ")
    )
}

/// Disarms the alarms, unless this is a dry run, and prints the result. `None` if no alarm is raised.
pub(super) async fn perform(
    maintenance: &Maintenance<'_>,
    observed: &Snapshot,
    disarmament: Option<DisarmPlan>,
) -> anyhow::Result<Verdict> {
    let Some(disarmament) = disarmament else {
        let members = Vec::new();
        let result = MaintenanceResult::Disarm { members };
        return maintenance.finish(observed, None, &result).await;
    };
    if !maintenance.is_dry_run() {
        let opened = maintenance
            .open(observed, &disarmament.member, CALL_LIMIT)
            .await?;
        for alarm in &disarmament.alarms {
            opened.disarm(*alarm).await?;
        }
    }
    let event = ChangeEvent {
        reason: "EtcdAlarmDisarmed",
        action: "EtcdDisarm",
        note_verb: "etcd alarm NOSPACE disarmed",
        detail: format!("on members {}", disarmament.members.join(", ")),
    };
    let members = disarmament.members;
    let result = MaintenanceResult::Disarm { members };
    maintenance.finish(observed, Some(event), &result).await
}
