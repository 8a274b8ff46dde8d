//! `kubectl kcp etcd disarm`: disarms the alarm NOSPACE.

use std::time::Duration;

use clap::Args;
use kcp_client::reader::Reader;
use kcp_control_plane::{change::decision::ChangeEvent, verbs::etcd::disarm::decide};

use crate::{
    commands::etcd::{
        maintenance::{Maintenance, MaintenanceArguments},
        report::MaintenanceResult,
    },
    session::Session,
    verdict::Verdict,
};

/// The time limit of the call, which is Cluster API's for etcd.
const LIMIT: Duration = Duration::from_secs(15);

const NOT_DONE: &str = "not disarmed";

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

/// Runs `etcd disarm`.
///
/// # Errors
/// The control plane cannot be read, or the member fails.
pub async fn run(arguments: &DisarmArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect_within(arguments.maintenance.timeout).await?;
    let reader = Reader::discover(&connection).await?;
    let maintenance = Maintenance {
        arguments: &arguments.maintenance,
        terminal: &session.terminal,
        reader: &reader,
    };
    let observed = maintenance.observe().await?;
    let disarmament = match decide(&observed) {
        Ok(Some(disarmament)) => disarmament,
        Ok(None) => {
            let members = Vec::new();
            maintenance.report(&observed, &MaintenanceResult::Disarm { members })?;
            return Ok(Verdict::Met);
        }
        Err(refusal) => return maintenance.refuse(&observed, NOT_DONE, &refusal),
    };
    let goal = format!(
        "disarm the alarm NOSPACE of etcd members {} of control plane {}",
        disarmament.members.join(", "),
        arguments.maintenance.name
    );
    if let Some(verdict) = maintenance.confirm(&observed, &goal, NOT_DONE).await? {
        return Ok(verdict);
    }
    if !maintenance.is_dry_run() {
        let opened = maintenance.open(&observed, &disarmament.through, LIMIT).await?;
        for alarm in &disarmament.alarms {
            opened.disarm(*alarm).await?;
        }
        let event = ChangeEvent {
            reason: "EtcdAlarmDisarmed",
            action: "EtcdDisarm",
            done: "etcd alarm NOSPACE disarmed",
            detail: format!("on members {}", disarmament.members.join(", ")),
        };
        maintenance.record(&observed, event).await;
    }
    let members = disarmament.members;
    maintenance.report(&observed, &MaintenanceResult::Disarm { members })?;
    Ok(Verdict::Met)
}
