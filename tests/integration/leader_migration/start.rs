//! The start of a controller manager: whether it runs or exits, and what our model says about the same flags.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kcp_rules::leader_migration::{Flags, Manager};
use kcp_tests::controller_manager::{ControllerManagers, Identity, Locks, Program};
use kcp_tests::management_cluster::ManagementCluster;

use super::model;
use super::source_rows::BY_SOURCE;
use super::start_rows::{Expected, ROWS, Row};
use crate::shared::with_management_cluster;

/// Each start takes a second of one core.
const AT_ONCE: usize = 4;

#[test]
fn controller_managers_start_or_exit_as_the_model_says() {
    with_management_cluster(async |management| started(management).await.unwrap());
}

async fn started(management: &ManagementCluster) -> Result<()> {
    let programs = management.controller_managers(management.api(), "start")?;
    let programs = &programs;
    let rows = ROWS.iter().enumerate();
    let rows = rows.map(|(index, row)| async move {
        let started = row_started(management, programs, index, row).await;
        started.with_context(|| format!("{} {}", row.program.name(), row.name))
    });
    let differences: Vec<String> = stream::iter(rows)
        .buffer_unordered(AT_ONCE)
        .try_filter_map(|difference| async { Ok(difference) })
        .try_collect()
        .await?;
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

/// How the program or the model differs from the row.
async fn row_started(
    management: &ManagementCluster,
    programs: &ControllerManagers,
    index: usize,
    row: &Row,
) -> Result<Option<String>> {
    let namespace = format!("start-{index}");
    management.create_namespace(&namespace).await?;
    let locks = Locks::in_namespace(management.client(), &namespace);
    let mut flags = programs.flags(row.program, Identity::Administrator, &locks);
    flags.retain(|flag| row.without.is_empty() || !flag.starts_with(row.without));
    flags.extend(row.flags.split_whitespace().map(str::to_owned));
    if let Some(text) = row.file {
        let file = programs.file(&format!("{index}.yaml"), text)?;
        flags.push(format!("--leader-migration-config={}", file.display()));
    }
    let mut manager = programs.start(row.program, &index.to_string(), &flags).await?;
    let starts = match row.expected {
        Expected::Runs(controllers) => {
            let controllers: BTreeSet<String> = controllers.iter().map(|name| (*name).to_owned()).collect();
            manager.runs(&controllers).await?;
            true
        }
        Expected::Exits(code, message) => {
            let end = manager.end().await?;
            let errors = end.errors();
            if end.code != code || !end.log.contains(message) {
                let errors = errors.join("\n");
                return Ok(Some(format!(
                    "{:?} {}: code {}: {errors}",
                    row.program, row.name, end.code
                )));
            }
            false
        }
    };
    let model = model(row.program, &flags, row.file);
    let agrees = model.starts() == starts;
    let differs = (agrees != row.differs.is_empty()).then(|| {
        format!(
            "{:?} {}: the model: {:?}",
            row.program, row.name, model.startup_errors
        )
    });
    Ok(differs)
}

/// Versions that cannot be built, and versions that `make test` does not build.
#[test]
fn the_model_agrees_with_the_sources_of_versions_that_are_not_built() {
    for row in BY_SOURCE {
        for minor in row.minors.clone() {
            let flags = Flags::from_command(row.flags.split_whitespace());
            let model = Manager::new(row.component, minor, flags, row.file);
            let case = format!("{} 1.{minor} {} ({})", row.component, row.flags, row.source);
            assert_eq!(model.starts(), row.starts, "{case}: {:?}", model.startup_errors);
        }
    }
}

#[test]
fn rows_are_counted() {
    let of = |program: Program| ROWS.iter().filter(|row| row.program == program).count();
    let counts = (of(Program::Kube), of(Program::Cloud), BY_SOURCE.len());
    assert_eq!(counts, (38, 21, 20));
}
