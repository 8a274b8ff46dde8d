//! Which controllers run under which lock, for every spelling of their names.
//!
//! The migration lock has a foreign holder at first. What starts nevertheless runs under the main lock; what starts when the
//! foreign holder's Lease is deleted runs under the migration lock.

use anyhow::Result;
use futures_util::future::try_join_all;
use kcp_rules::leader_migration::Assignment::{Migrated, NonMigrated};
use kcp_tests::controller_manager::{ControllerManagers, Identity, Locks, Program};
use kcp_tests::management_cluster::ManagementCluster;

use super::{CANONICAL, MIGRATION, configuration, model, predicted};
use crate::shared::with_management_cluster;

/// The names up to 1.27.
const SHORT: [&str; 4] = ["route", "service", "cloud-node-lifecycle", "nodeipam"];

/// The migration lock of the configuration that controller managers contain.
const DEFAULT_MIGRATION: &str = "cloud-provider-extraction-migration";

#[test]
fn controllers_run_under_the_lock_that_the_model_says() {
    with_management_cluster(async |management| spelled(management).await.unwrap());
}

async fn spelled(management: &ManagementCluster) -> Result<()> {
    let programs = management.controller_managers(management.api(), "names")?;
    let both = [CANONICAL, SHORT].concat();
    let spellings: [(&str, Option<&[&str]>, usize); 4] = [
        // How many of the four controllers that can migrate run under the migration lock.
        ("default", None, 1),
        ("canonical", Some(&CANONICAL), 4),
        ("short", Some(&SHORT), 0),
        ("both", Some(&both), 4),
    ];
    let rows = spellings.map(|(name, names, protected)| cloud(management, &programs, name, names, protected));
    try_join_all(rows).await?;
    let rows = spellings.map(|(name, names, _)| kube(management, &programs, name, names));
    try_join_all(rows).await?;
    Ok(())
}

/// The namespace of the locks of one row, whose migration lock has a foreign holder.
async fn locks(management: &ManagementCluster, row: &str, migration: &str) -> Result<Locks> {
    let namespace = format!("names-{row}");
    management.create_namespace(&namespace).await?;
    let locks = Locks::in_namespace(management.client(), &namespace);
    locks.occupy(migration).await?;
    Ok(locks)
}

async fn cloud(
    management: &ManagementCluster,
    programs: &ControllerManagers,
    spelling: &str,
    names: Option<&[&str]>,
    protected: usize,
) -> Result<()> {
    let row = format!("cloud-{spelling}");
    let migration = names.map_or(DEFAULT_MIGRATION, |_| MIGRATION);
    let locks = locks(management, &row, migration).await?;
    let (flags, file) = flags(programs, Program::Cloud, &locks, &row, names)?;
    let model = model(Program::Cloud, &flags, file.as_deref());
    let under_main = predicted(Program::Cloud, &model, &[NonMigrated]);
    let all = predicted(Program::Cloud, &model, &[NonMigrated, Migrated]);
    assert_eq!(all.len() - under_main.len(), protected, "{row}");
    assert_eq!(all.len(), 5, "{row}");

    let mut manager = programs.start(Program::Cloud, &row, &flags).await?;
    let holder = locks.held(Program::Cloud.name()).await?;
    manager.runs(&under_main).await?;
    locks.vacate(migration).await?;
    assert_eq!(locks.held(migration).await?, holder, "{row}");
    manager.runs(&all).await
}

/// kube-controller-manager 1.36 runs with leader migration as long as it cannot take the migration lock.
async fn kube(
    management: &ManagementCluster,
    programs: &ControllerManagers,
    spelling: &str,
    names: Option<&[&str]>,
) -> Result<()> {
    let row = format!("kube-{spelling}");
    let migration = names.map_or(DEFAULT_MIGRATION, |_| MIGRATION);
    let locks = locks(management, &row, migration).await?;
    let (flags, file) = flags(programs, Program::Kube, &locks, &row, names)?;
    let model = model(Program::Kube, &flags, file.as_deref());
    let under_main = predicted(Program::Kube, &model, &[NonMigrated]);

    let mut manager = programs.start(Program::Kube, &row, &flags).await?;
    locks.held(Program::Kube.name()).await?;
    manager.runs(&under_main).await?;
    locks.vacate(migration).await?;
    let end = manager.end().await?;
    assert_eq!(end.code, 1, "{row}: {:?}", end.errors());
    assert!(
        end.log.contains("is already registered"),
        "{row}: {:?}",
        end.errors()
    );
    assert!(!model.starts(), "{row}");
    Ok(())
}

/// The flags, and the configuration file that they name.
fn flags(
    programs: &ControllerManagers,
    program: Program,
    locks: &Locks,
    row: &str,
    names: Option<&[&str]>,
) -> Result<(Vec<String>, Option<String>)> {
    let mut flags = programs.flags(program, Identity::Administrator, locks);
    flags.push("--enable-leader-migration=true".to_owned());
    let file = names.map(configuration);
    if let Some(text) = &file {
        let path = programs.file(&format!("{row}.yaml"), text)?;
        flags.push(format!("--leader-migration-config={}", path.display()));
    }
    Ok((flags, file))
}
