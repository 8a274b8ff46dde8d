//! `leader-migration finish`: removes the configuration, after cloud-controller-manager has taken over.

use kcp_rules::{
    api::DecodeError,
    leader_migration::{
        Component, Controller, LeaderMigrationConfiguration,
        steps::{self, MANIFEST_PATH},
    },
};

use super::{
    CloudManifest, Facts, at_path, control_plane,
    gates::{running_cloud_controller_manager, why_not_stopped},
    phase::{Managers, Migration, Phase, configuration},
    record::Record,
    refused, refused_with, watch_the_rollout, write,
};
use crate::{
    change::decision::{ChangeEvent, Decision},
    leader_migration::{self, ObservedManagers, Verdict},
    review::ReviewContext,
    snapshot::change::ChangeSnapshot,
};

#[derive(Clone, Copy, Debug)]
pub struct FinishOptions<'f> {
    /// The static Pod of cloud-controller-manager without leader migration, to install in the same write.
    pub manifest: Option<CloudManifest<'f>>,
    pub facts: Facts<'f>,
}

/// Decides whether to remove the configuration. After the removal, the decision is `Unchanged` only if no
/// controller manager uses leader migration.
pub fn decide(
    snapshot: &ChangeSnapshot,
    options: FinishOptions<'_>,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let migration = match Migration::from_snapshot(snapshot)? {
        Ok(migration) => migration,
        Err(unknown) => return Ok(refused(vec![unknown.to_string()])),
    };
    let observed = options.facts.observed;
    match migration.phase {
        Phase::Off => Ok(off(snapshot, observed)),
        Phase::Enabled => Ok(refused_with(
            vec![
                "kube-controller-manager still uses leader migration, and runs the migrated controllers"
                    .to_owned(),
            ],
            vec![format!(
                "hand the controllers over with: kubectl kcp leader-migration upgrade {} --to VERSION; or end the \
                 migration with: kubectl kcp leader-migration rollback {}",
                control_plane(snapshot),
                control_plane(snapshot)
            )],
        )),
        Phase::Upgrading => Ok(refused_with(
            Migration::machines_behind(snapshot),
            vec![watch_the_rollout(snapshot)],
        )),
        Phase::Settling => settling(snapshot, &migration, options, context),
    }
}

fn off(snapshot: &ChangeSnapshot, observed: &ObservedManagers) -> Decision {
    let mut reasons = why_not_stopped(snapshot, observed);
    match running_cloud_controller_manager(observed) {
        Ok(cloud) => {
            let is_migrating = cloud.is_some_and(|cloud| cloud.migration_lock().is_some());
            reasons.extend(
                is_migrating.then(|| "cloud-controller-manager still uses leader migration".to_owned()),
            );
        }
        Err(why) => reasons.extend(why),
    }
    reasons.dedup();
    if reasons.is_empty() {
        Decision::Unchanged("no controller manager uses leader migration".to_owned())
    } else {
        refused_with(reasons, vec![watch_the_rollout(snapshot)])
    }
}

fn settling(
    snapshot: &ChangeSnapshot,
    migration: &Migration,
    options: FinishOptions<'_>,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let pod_path = migration.managers.cloud_path.as_deref().unwrap_or(MANIFEST_PATH);
    let patch = steps::finish(at_path(options.manifest, pod_path)).patch(&migration.control_plane);
    let observed = options.facts.observed;
    let mut reasons = why_not_stopped(snapshot, observed);
    if reasons.is_empty() {
        reasons.extend(why_not_taken_over(
            observed,
            configuration(&migration.control_plane),
        ));
    }
    if let Some(why) = why_cloud_still_migrates(&migration.managers, observed, options.manifest) {
        reasons.push(why);
    }
    if !reasons.is_empty() {
        return Ok(refused(reasons));
    }
    let event = ChangeEvent {
        reason: "LeaderMigrationFinished",
        action: "FinishLeaderMigration",
        note_verb: "leader migration finished",
        detail: format!("at {}", snapshot.control_plane().spec.version()),
    };
    write(snapshot, Record::add_to_patch(None, patch), event, false, context)
}

/// Why cloud-controller-manager does not run each migrated controller, one line for each controller.
fn why_not_taken_over(observed: &ObservedManagers, configuration: Option<&str>) -> Vec<String> {
    let parsed = configuration.and_then(|text| LeaderMigrationConfiguration::parse(text, None).ok());
    let Some(parsed) = parsed else {
        return vec![
            "the leader migration configuration in spec.kubeadmConfigSpec.files is not valid, so the \
            migrated controllers are unknown"
                .to_owned(),
        ];
    };
    let migrates = |controller: &Controller| {
        let mut names = parsed
            .controller_leaders
            .iter()
            .map(|leader| leader.name.as_str());
        names.any(|name| [controller.canonical, controller.short].contains(&name))
    };
    let decisions = leader_migration::decide(observed);
    let decisions = decisions.iter().filter(|decision| migrates(decision.controller));
    decisions
        .filter_map(|decision| {
            let name = decision.controller.canonical;
            let has_harmless_verdict =
                matches!(decision.verdict(), Verdict::Protected | Verdict::NothingToMigrate);
            let of_kube = observed.managers().iter().find(|manager| {
                manager.component == Component::Kube && decision.runners.contains(&manager.pod)
            });
            // A cloud provider need not have the other controllers.
            let must_run = decision.controller.short == "nodeipam";
            if let Some(kube) = of_kube {
                Some(format!("{} still runs {name}", kube.pod))
            } else if !has_harmless_verdict {
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
fn why_cloud_still_migrates(
    managers: &Managers,
    observed: &ObservedManagers,
    manifest: Option<CloudManifest<'_>>,
) -> Option<String> {
    let fix = "use --ccm-manifest with a manifest that does not set --enable-leader-migration";
    let in_files = match (manifest, &managers.cloud) {
        (Some(manifest), _) => Some(manifest.manager),
        (None, Ok(cloud)) => cloud.as_ref().map(|cloud| &cloud.manager),
        (None, Err(unknown)) => return Some(format!("{unknown}; {fix}")),
    };
    if let Some(manager) = in_files {
        let is_migrating = manager.flags.is_leader_migration_enabled();
        return is_migrating
            .then(|| format!("the static Pod of cloud-controller-manager enables leader migration: {fix}"));
    }
    match running_cloud_controller_manager(observed) {
        Ok(Some(cloud)) if cloud.migration_lock().is_some() => Some(
            "cloud-controller-manager uses leader migration: remove --enable-leader-migration from its DaemonSet first"
                .to_owned(),
        ),
        Ok(Some(_)) => None,
        Ok(None) => Some("no cloud-controller-manager is running".to_owned()),
        Err(why) => why.into_iter().next(),
    }
}
