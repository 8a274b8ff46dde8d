//! `--step upgrade`: changes the version, and hands the migrated controllers over to cloud-controller-manager.

use kcp_rules::{
    leader_migration::{Assignment, CONTROLLERS, Controller, Manager},
    syntax::parse_version,
};
use serde_json::Value;

use super::{
    Change, CloudManifest, at_path, blocked,
    gates::{not_protected, running_cloud_controller_manager, why_not_uniform},
    migration::{Managers, Migration, Phase},
    none,
    record::Record,
    refusals, refused,
};
use crate::leader_migration::{
    problem::MigrationProblem,
    steps::{self, CONFIGURATION_PATH, MANIFEST_PATH},
};

/// The change that upgrades the control plane to `version`; `None` if it has that version.
pub(super) fn change(
    migration: &Migration<'_>,
    version: &str,
    manifest: Option<CloudManifest<'_>>,
) -> Result<Option<Change>, Vec<MigrationProblem>> {
    if !is_due(migration, version)? {
        return Ok(None);
    }
    let minor = minor_after(migration, version)?;
    every_controller_manager_migrates(migration)?;
    let kube = &migration.managers.kube;
    let pod_path = migration.managers.cloud_path.as_deref().unwrap_or(MANIFEST_PATH);
    let step = steps::handover(kube, version, minor, at_path(manifest, pod_path));
    let control_plane = migration.facts.control_plane;
    let after = step.taken(control_plane);
    migration.check(&after, clouds(migration, &after, manifest)?)?;
    let record = Record {
        undo: step.inverse(control_plane),
        earlier: Record::of(control_plane).map(Box::new),
    };
    Ok(Some(Change {
        step,
        record: Some(record),
    }))
}

/// Whether the control plane does not have the version yet.
fn is_due(migration: &Migration<'_>, version: &str) -> Result<bool, Vec<MigrationProblem>> {
    match (migration.phase, migration.version == version) {
        (Phase::Enabled, false) => Ok(true),
        (Phase::Enabled, true) => Err(refused(
            format!("the control plane already has {version}"),
            "use --to with the version after the upgrade",
        )),
        (Phase::Off | Phase::Upgrading | Phase::Settling, true) => Ok(false),
        (Phase::Off, false) => Err(not_enabled(migration, version)),
        (Phase::Upgrading | Phase::Settling, false) => Err(migration.unfinished()),
    }
}

/// The minor version after the upgrade of a kube-controller-manager that the step `start` has configured.
fn minor_after(migration: &Migration<'_>, version: &str) -> Result<u64, Vec<MigrationProblem>> {
    let (kube, name) = (&migration.managers.kube, &migration.name);
    if kube.flags.configuration_path() != Some(CONFIGURATION_PATH) {
        return Err(refused(
            format!(
                "the leader migration configuration of kube-controller-manager is not at {CONFIGURATION_PATH}, where \
                 --step start installs it"
            ),
            format!(
                "install it there: kubectl kcp leader-migration generate {name} --step start --to {version}"
            ),
        ));
    }
    match parse_version(version) {
        Ok(parsed) if parsed.minor >= kube.minor => Ok(parsed.minor),
        _ => Err(refused(
            format!("{version} is lower than the version of the control plane"),
            "use --to with the version after the upgrade",
        )),
    }
}

/// The refusal for a control plane that does not use leader migration.
fn not_enabled(migration: &Migration<'_>, version: &str) -> Vec<MigrationProblem> {
    let (kube, name) = (&migration.managers.kube, &migration.name);
    let runs = |controller| kube.assignment(controller) != Assignment::Absent;
    if !CONTROLLERS.iter().any(runs) {
        return refused(
            format!(
                "nothing to migrate: kube-controller-manager 1.{} runs no controller that cloud-controller-manager can \
                 run",
                kube.minor
            ),
            format!("upgrade with: kubectl kcp upgrade {name} --to {version}"),
        );
    }
    refused(
        "leader migration is not enabled, so a controller could run twice during the upgrade",
        format!(
            "enable leader migration: kubectl kcp leader-migration generate {name} --step start --to {version}; if \
             there is no controller to migrate, upgrade with: kubectl kcp upgrade {name} --to {version}"
        ),
    )
}

/// Refuses the step unless every kube-controller-manager uses leader migration. One without leader migration would run the
/// migrated controllers a second time during the upgrade.
fn every_controller_manager_migrates(migration: &Migration<'_>) -> Result<(), Vec<MigrationProblem>> {
    let lock = migration.managers.kube.migration_lock();
    let lock = lock.as_ref().map(|lock| lock.name.as_str());
    blocked(
        why_not_uniform(migration.facts, lock),
        &migration.watch_the_rollout(),
    )?;
    let kube = &migration.managers.kube;
    let is_migrated = |controller: &Controller| kube.assignment(controller) == Assignment::Migrated;
    none(not_protected(
        migration.facts.observed,
        is_migrated,
        &migration.see_what_runs(),
    ))
}

/// The cloud-controller-managers before and after the upgrade.
fn clouds(
    migration: &Migration<'_>,
    after: &Value,
    manifest: Option<CloudManifest<'_>>,
) -> Result<[Option<Manager>; 2], Vec<MigrationProblem>> {
    let running = running_cloud_controller_manager(migration.facts.observed)
        .map_err(|why| refusals(why, &migration.see_what_runs()))?;
    let now = migration.managers.static_cloud().unwrap_or_default().or(running);
    let after = Managers::of(after)?;
    let then = match (manifest, after.static_cloud()) {
        (Some(manifest), _) => Some(manifest.manager),
        (None, Ok(cloud)) => cloud.or(running),
        (None, Err(unknown)) => Some(running.ok_or_else(|| {
            refused(
                unknown,
                "pass the manifest of cloud-controller-manager with --ccm-manifest",
            )
        })?),
    };
    Ok([now.cloned(), then.cloned()])
}
