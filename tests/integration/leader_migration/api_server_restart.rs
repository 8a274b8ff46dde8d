//! A restart of the API server while one controller manager holds the migration lock and another one waits for it.

use anyhow::Result;
use kcp_rules::leader_migration::Assignment::{Migrated, NonMigrated};
use kcp_tests::controller_manager::{ControllerManager, ControllerManagers, Identity, Locks, Program};
use kcp_tests::management_cluster::ManagementCluster;

use super::{CANONICAL, MIGRATION, configuration, model, predicted};
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "kube-system";

/// Long leases: a busy machine may take a while to start an API server.
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=300s",
    "--leader-elect-renew-deadline=200s",
    "--leader-elect-retry-period=500ms",
];

#[test]
fn the_holder_of_the_migration_lock_survives_a_restart_of_the_api_server() {
    with_management_cluster(async |management| restarted(management).await.unwrap());
}

async fn restarted(management: &ManagementCluster) -> Result<()> {
    let mut api = management.another_api_server("migration-restart").await?;
    let programs = management.controller_managers(&api, "restart")?;
    let locks = Locks::in_namespace(api.client(), NAMESPACE);
    let text = configuration(&CANONICAL);
    let (flags, mut first) = start(&programs, &locks, "first", &text).await?;
    let model = model(Program::Cloud, &flags, Some(&text));
    let all = predicted(Program::Cloud, &model, &[NonMigrated, Migrated]);
    let under_main = predicted(Program::Cloud, &model, &[NonMigrated]);
    first.runs(&all).await?;
    let holder = locks.held(MIGRATION).await?;
    let (_, mut second) = start(&programs, &locks, "second", &text).await?;
    second.runs(&under_main).await?;

    api.kill().await?;
    api.start_again().await?;

    for (lock, expected) in [
        ("first", Some(&holder)),
        (MIGRATION, Some(&holder)),
        ("second", None),
    ] {
        let lease = locks.renewed(lock).await?;
        assert_eq!(lease.lease_transitions.unwrap_or_default(), 0, "{lock}");
        if let Some(holder) = expected {
            assert_eq!(lease.holder_identity.as_ref(), Some(holder), "{lock}");
        }
    }
    assert!(first.is_running() && second.is_running());
    first.runs(&all).await?;
    second.runs(&under_main).await
}

async fn start(
    programs: &ControllerManagers,
    locks: &Locks,
    name: &str,
    text: &str,
) -> Result<(Vec<String>, ControllerManager)> {
    let file = programs.file(&format!("{name}.yaml"), text)?;
    let mut flags = programs.flags(Program::Cloud, Identity::Administrator, locks);
    flags.extend(ELECTION.map(str::to_owned));
    flags.push(format!("--leader-elect-resource-name={name}"));
    flags.push("--enable-leader-migration=true".to_owned());
    flags.push(format!("--leader-migration-config={}", file.display()));
    let manager = programs.start(Program::Cloud, name, &flags).await?;
    Ok((flags, manager))
}
