//! `--step finish`: removes the configuration, after cloud-controller-manager has taken over.

use kcp_rules::leader_migration::{Component, Controller, LeaderMigrationConfiguration};

use super::{
    Change, CloudManifest, at_path, blocked,
    gates::{running_cloud_controller_manager, why_not_uniform},
    migration::{Migration, Phase, configuration},
    refused,
};
use crate::leader_migration::{
    MigrationState, decide,
    problem::MigrationProblem,
    steps::{self, MANIFEST_PATH},
};

/// The change that removes the configuration; `None` if the control plane has none.
pub(super) fn change(
    migration: &Migration<'_>,
    manifest: Option<CloudManifest<'_>>,
) -> Result<Option<Change>, Vec<MigrationProblem>> {
    let name = &migration.name;
    match migration.phase {
        Phase::Off => return Ok(None),
        Phase::Enabled => {
            return Err(refused(
                "kube-controller-manager still uses leader migration, and runs the migrated controllers",
                format!(
                    "hand the controllers over: kubectl kcp leader-migration generate {name} --step upgrade --to \
                     VERSION; or end the migration: kubectl kcp leader-migration generate {name} --step rollback"
                ),
            ));
        }
        Phase::Upgrading => blocked(migration.machines_behind(), &migration.watch_the_rollout())?,
        Phase::Settling => {}
    }
    blocked(
        why_not_uniform(migration.facts, None),
        &migration.watch_the_rollout(),
    )?;
    blocked(why_not_taken_over(migration), &migration.see_what_runs())?;
    blocked(
        why_cloud_still_migrates(migration, manifest),
        "remove --enable-leader-migration from the DaemonSet of cloud-controller-manager; or use --ccm-manifest with a \
         manifest of its static Pod that does not set this flag",
    )?;
    let pod_path = migration.managers.cloud_path.as_deref().unwrap_or(MANIFEST_PATH);
    Ok(Some(Change {
        step: steps::finish(at_path(manifest, pod_path)),
        record: None,
    }))
}

/// Why cloud-controller-manager does not run each migrated controller, one line for each controller.
fn why_not_taken_over(migration: &Migration<'_>) -> Vec<String> {
    let observed = migration.facts.observed;
    let configuration = configuration(migration.facts.control_plane);
    let parsed = configuration.and_then(|text| LeaderMigrationConfiguration::parse(text, None).ok());
    let Some(parsed) = parsed else {
        return vec![
            "the leader migration configuration in spec.kubeadmConfigSpec.files is not valid, so the migrated \
             controllers are unknown"
                .to_owned(),
        ];
    };
    let migrates = |controller: &Controller| {
        let mut leaders = parsed.controller_leaders.iter();
        leaders.any(|leader| [controller.canonical, controller.short].contains(&leader.name.as_str()))
    };
    let decisions = decide(observed).into_iter();
    decisions
        .filter(|decision| migrates(decision.controller))
        .filter_map(|decision| {
            let name = decision.controller.canonical;
            let is_harmless = matches!(
                decision.verdict(),
                MigrationState::Protected | MigrationState::NothingToMigrate
            );
            let of_kube = observed.managers().iter().find(|manager| {
                manager.component == Component::Kube && decision.runners.contains(&manager.pod)
            });
            // A cloud provider need not have the other controllers.
            let must_run = decision.controller.short == "nodeipam";
            if let Some(kube) = of_kube {
                Some(format!("{} still runs {name}", kube.pod))
            } else if !is_harmless {
                Some(format!("{name}: {}", decision.reason))
            } else if decision.runners.is_empty() && must_run {
                Some(format!("no controller manager runs {name}"))
            } else {
                None
            }
        })
        .collect()
}

/// Why the cloud-controller-manager after the step would still need the configuration.
fn why_cloud_still_migrates(migration: &Migration<'_>, manifest: Option<CloudManifest<'_>>) -> Vec<String> {
    let in_files = match (manifest, migration.managers.static_cloud()) {
        (Some(manifest), _) => Some(manifest.manager),
        (None, Ok(cloud)) => cloud,
        (None, Err(unknown)) => return vec![unknown],
    };
    let why = if let Some(manager) = in_files {
        let is_migrating = manager.flags.is_leader_migration_enabled();
        is_migrating.then_some("the static Pod of cloud-controller-manager enables leader migration")
    } else {
        match running_cloud_controller_manager(migration.facts.observed) {
            Ok(Some(cloud)) => {
                let is_migrating = cloud.migration_lock().is_some();
                is_migrating.then_some("cloud-controller-manager uses leader migration")
            }
            Ok(None) => Some("no cloud-controller-manager is running"),
            Err(why) => return why,
        }
    };
    why.map(str::to_owned).into_iter().collect()
}
