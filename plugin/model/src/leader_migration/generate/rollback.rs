//! `--step rollback`: reverses the last step. This is possible until a Machine with the new version has joined.

use kcp_api::Object as _;

use super::{
    Change, blocked,
    gates::running_cloud_controller_manager,
    migration::{Migration, Phase},
    record::Record,
    refusals, refused,
};
use crate::leader_migration::problem::MigrationProblem;

/// The change that reverses the last step; `None` if no step has been taken.
pub(super) fn change(migration: &Migration<'_>) -> Result<Option<Change>, Vec<MigrationProblem>> {
    if migration.phase == Phase::Off {
        return Ok(None);
    }
    if migration.phase != Phase::Enabled {
        let fix = format!(
            "continue with the rollout, because Kubernetes does not support downgrades: kubectl kcp rollout status {}",
            migration.name
        );
        blocked(joined(migration), &fix)?;
    }
    let control_plane = migration.facts.control_plane;
    let record = Record::of(control_plane).ok_or_else(|| {
        refused(
            "the control plane has no record of its last leader migration step, because another client made the change",
            "use that client to revert the change",
        )
    })?;
    if migration.phase == Phase::Enabled {
        let running = running_cloud_controller_manager(migration.facts.observed);
        let cloud = running.map_err(|why| refusals(why, &migration.see_what_runs()))?;
        let after = record.undo.taken(control_plane);
        migration
            .check(&after, [cloud.cloned(), cloud.cloned()])
            .map_err(|problems| {
                let stop = |problem| MigrationProblem {
                    fix: "stop cloud-controller-manager first".to_owned(),
                    ..problem
                };
                problems.into_iter().map(stop).collect::<Vec<_>>()
            })?;
    }
    Ok(Some(Change {
        step: record.undo,
        record: record.earlier.map(|earlier| *earlier),
    }))
}

/// The Machines with the new version that have joined, one line each.
fn joined(migration: &Migration<'_>) -> Vec<String> {
    let version = migration.version;
    let machines = migration.facts.machines.iter();
    machines
        .filter(|machine| machine.spec.version.as_deref() == Some(version) && machine.has_node())
        .map(|machine| format!("Machine {} has joined with {version}", machine.name()))
        .collect()
}
