//! The start of a controller manager: whether it runs or exits, and what our model says about the same flags.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kcp_rules::leader_migration::{Flags, Manager};
use kcp_tests::assets::Assets;
use kcp_tests::controller_manager::{ControllerManagers, Identity, Locks, Program};
use kcp_tests::management_cluster::ManagementCluster;

use super::source_rows::BY_SOURCE;
use super::start_rows::{Expected, ROWS, Row};
use super::{MINOR, model_at};
use crate::shared::with_management_cluster;

/// Each start takes a second of one core.
const AT_ONCE: usize = 4;

/// A row, and the program that it is about.
pub(super) struct Start {
    pub(super) minor: u64,
    pub(super) program: PathBuf,
    pub(super) row: Row,
}

#[test]
fn controller_managers_start_or_exit_as_the_model_says() {
    with_management_cluster(async |management| started(management).await.unwrap());
}

async fn started(management: &ManagementCluster) -> Result<()> {
    let assets = Assets::locate()?;
    let starts: Vec<Start> = ROWS
        .iter()
        .map(|row| Start {
            minor: MINOR,
            program: assets.program(row.program.name()),
            row: *row,
        })
        .collect();
    let differences = all_started(management, "start", &starts).await?;
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

/// Starts programs. Returns how they or the model differ from their rows. `name` names files and namespaces.
pub(super) async fn all_started(
    management: &ManagementCluster,
    name: &str,
    starts: &[Start],
) -> Result<Vec<String>> {
    let programs = management.controller_managers(management.api(), name)?;
    let programs = &programs;
    let rows = starts.iter().enumerate();
    let rows = rows.map(|(index, start)| async move {
        let started = row_started(management, programs, &format!("{name}-{index}"), start).await;
        let row = &start.row;
        started.with_context(|| format!("{} 1.{} {}", row.program.name(), start.minor, row.name))
    });
    stream::iter(rows)
        .buffer_unordered(AT_ONCE)
        .try_filter_map(|difference| async { Ok(difference) })
        .try_collect()
        .await
}

/// How the program or the model differs from the row.
async fn row_started(
    management: &ManagementCluster,
    programs: &ControllerManagers,
    name: &str,
    start: &Start,
) -> Result<Option<String>> {
    let Start { minor, program, row } = start;
    management.create_namespace(name).await?;
    let locks = Locks::in_namespace(management.client(), name);
    let mut flags = programs.flags(row.program, Identity::Administrator, &locks);
    flags.retain(|flag| row.without.is_empty() || !flag.starts_with(row.without));
    flags.extend(row.flags.split_whitespace().map(str::to_owned));
    if let Some(text) = row.file {
        let file = programs.file(&format!("{name}.yaml"), text)?;
        flags.push(format!("--leader-migration-config={}", file.display()));
    }
    let mut manager = programs.start_program(program, name, &flags).await?;
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
                    "{:?} 1.{minor} {}: code {}: {errors}",
                    row.program, row.name, end.code
                )));
            }
            false
        }
    };
    let model = model_at(*minor, row.program, &flags, row.file);
    let agrees = model.starts() == starts;
    let differs = (agrees != row.differs.is_empty()).then(|| {
        format!(
            "{:?} 1.{minor} {}: the model: {:?}",
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
    let count = |program: Program| ROWS.iter().filter(|row| row.program == program).count();
    let counts = (count(Program::Kube), count(Program::Cloud), BY_SOURCE.len());
    assert_eq!(counts, (39, 21, 19));
}
