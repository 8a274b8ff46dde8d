//! `leader-migration upgrade`: changes the version, and hands the migrated controllers over to cloud-controller-manager.

use kcp_rules::{
    api::DecodeError,
    leader_migration::{
        Component, ControllerManagerChange, ControllerManagers, Manager,
        generate::UNSUPPORTED_SINCE,
        steps::{self, CONFIGURATION_PATH, MANIFEST_PATH},
    },
    syntax::parse_version,
};

use super::{
    CloudManifest, Facts, at_path, control_plane,
    gates::{running_cloud_controller_manager, why_not_started},
    nothing_to_migrate,
    phase::{Managers, Migration, Phase},
    record::Record,
    refused, refused_with, stop_then_start, watch_the_rollout,
};
use crate::{
    change::decision::{ChangeEvent, Decision},
    leader_migration::problem::problems,
    merge_patch,
    plan::options::with_leading_v,
    review::ReviewContext,
    snapshot::change::ChangeSnapshot,
    verbs::upgrade::{UpgradeOptions, decide_patch},
};

#[derive(Clone, Copy, Debug)]
pub struct HandoverOptions<'u> {
    /// The version, and the workers that it must support.
    pub upgrade: UpgradeOptions<'u>,
    /// The static Pod of cloud-controller-manager to install in the same write.
    pub manifest: Option<CloudManifest<'u>>,
    pub facts: Facts<'u>,
}

/// Decides whether to write the upgrade. After the write, the decision is `Unchanged` only if every Machine
/// has the new version.
pub fn decide(
    snapshot: &ChangeSnapshot,
    options: HandoverOptions<'_>,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let migration = match Migration::from_snapshot(snapshot)? {
        Ok(migration) => migration,
        Err(unknown) => return Ok(refused(vec![unknown.to_string()])),
    };
    let version = with_leading_v(options.upgrade.version);
    let current = snapshot.control_plane().spec.version();
    let is_current = current == version;
    Ok(match migration.phase {
        Phase::Off if is_current => Decision::Unchanged(format!("the version is already {version}")),
        Phase::Off => off(snapshot, &migration.managers.kube),
        Phase::Enabled if is_current => refused(vec![format!(
            "the control plane already has {version}: --to must be the version after the upgrade"
        )]),
        Phase::Enabled => return enabled(snapshot, &migration, &version, options, context),
        Phase::Upgrading if is_current => refused_with(
            Migration::machines_behind(snapshot),
            vec![watch_the_rollout(snapshot)],
        ),
        Phase::Settling if is_current => Decision::Unchanged(format!("every Machine has {version}")),
        Phase::Upgrading | Phase::Settling => refused_with(
            vec![format!(
                "the leader migration for the upgrade to {current} is not finished"
            )],
            vec![format!(
                "finish it with: kubectl kcp leader-migration finish {}",
                control_plane(snapshot)
            )],
        ),
    })
}

/// Decides about a control plane that does not use leader migration.
fn off(snapshot: &ChangeSnapshot, kube: &Manager) -> Decision {
    if let Some(nothing) = nothing_to_migrate(kube) {
        return Decision::Unchanged(nothing);
    }
    if kube.minor >= UNSUPPORTED_SINCE {
        let why = format!(
            "kube-controller-manager 1.{} exits if leader migration is enabled, so it cannot hand a controller over",
            kube.minor
        );
        return stop_then_start(snapshot, kube, why);
    }
    let control_plane = control_plane(snapshot);
    let next = kube.minor + 1;
    refused_with(
        vec![
            "leader migration is not enabled, so a controller could run twice during the upgrade".to_owned(),
        ],
        vec![
            format!(
                "enable leader migration (for Node IPAM, add --node-ipam): kubectl kcp leader-migration start \
                 {control_plane} --to 1.{next}"
            ),
            format!(
                "if there is no controller to migrate, upgrade with: kubectl kcp upgrade {control_plane} --version \
                 VERSION"
            ),
        ],
    )
}

fn enabled(
    snapshot: &ChangeSnapshot,
    migration: &Migration,
    version: &str,
    options: HandoverOptions<'_>,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let kube = &migration.managers.kube;
    let minor = match parse_version(version) {
        Ok(parsed) if parsed.minor >= kube.minor => parsed.minor,
        Ok(_) => {
            return Ok(refused(vec![format!(
                "{version} is lower than the version of the control plane"
            )]));
        }
        Err(error) => {
            return Ok(refused(vec![format!(
                "{version:?} is not a Kubernetes version: {error}"
            )]));
        }
    };
    if kube.flags.configuration_path() != Some(CONFIGURATION_PATH) {
        return Ok(refused(vec![format!(
            "the leader migration configuration of kube-controller-manager is not at {CONFIGURATION_PATH}, where `leader-migration \
             start` installs it"
        )]));
    }
    let pod_path = migration.managers.cloud_path.as_deref().unwrap_or(MANIFEST_PATH);
    let step = steps::handover(kube, version, minor, at_path(options.manifest, pod_path));
    let patch = step.patch(&migration.control_plane);
    let mut object = migration.control_plane.clone();
    merge_patch::apply(&mut object, &patch);
    let after = match Managers::from_control_plane(&object)? {
        Ok(after) => after,
        Err(unknown) => return Ok(refused(vec![unknown.to_string()])),
    };
    let reasons = why_not_ready(snapshot, &migration.managers, &after, options);
    if !reasons.is_empty() {
        return Ok(refused_with(reasons, remedies(snapshot, kube, options)));
    }
    let record = Record {
        undo: step.inverse(&migration.control_plane),
        earlier: Record::from_control_plane(snapshot.control_plane()).map(Box::new),
    };
    let patch = Record::add_to_patch(Some(&record), patch);
    let mut decision = decide_patch(snapshot, options.upgrade, patch, context)?.decision;
    if let Decision::Write(proposal) = &mut decision {
        proposal.event = ChangeEvent {
            reason: "LeaderMigrationHandover",
            action: "HandOverControllers",
            ..proposal.event.clone()
        };
        proposal.outcome += ", with the handover to cloud-controller-manager";
    }
    Ok(decision)
}

/// Why the handover would not be safe, one line for each reason.
fn why_not_ready(
    snapshot: &ChangeSnapshot,
    before: &Managers,
    after: &Managers,
    options: HandoverOptions<'_>,
) -> Vec<String> {
    let Facts {
        observed,
        missing_permissions,
    } = options.facts;
    let lock = before.kube.migration_lock();
    let leader_name = lock.as_ref().map(|lock| lock.name.as_str()).unwrap_or_default();
    // A cloud-controller-manager that runs already may have taken the lock after a kube-controller-manager restarted.
    let holders = [Component::Kube, Component::Cloud];
    let mut reasons = why_not_started(snapshot, observed, leader_name, &holders);
    reasons.extend_from_slice(missing_permissions);
    let running = match running_cloud_controller_manager(observed) {
        Ok(running) => running,
        Err(why) => {
            reasons.extend(
                why.into_iter()
                    .filter(|why| !reasons.contains(why))
                    .collect::<Vec<_>>(),
            );
            return reasons;
        }
    };
    let in_files = |managers: &Managers| {
        let cloud = managers.cloud.as_ref();
        cloud
            .map(|cloud| cloud.as_ref().map(|cloud| cloud.manager.clone()))
            .map_err(ToString::to_string)
    };
    let now = match in_files(before) {
        Ok(cloud) => cloud.or_else(|| running.cloned()),
        Err(_) => running.cloned(),
    };
    let then = match (options.manifest, in_files(after)) {
        (Some(manifest), _) => Some(manifest.manager.clone()),
        (None, Ok(cloud)) => cloud.or_else(|| running.cloned()),
        (None, Err(unknown)) => {
            let Some(running) = running else {
                reasons.push(unknown);
                return reasons;
            };
            Some(running.clone())
        }
    };
    if then.is_none() {
        reasons.push("no cloud-controller-manager is running, and --ccm-manifest is not set".to_owned());
        return reasons;
    }
    let pair = ControllerManagerChange {
        before: ControllerManagers {
            kube: before.kube.clone(),
            cloud: now,
        },
        after: ControllerManagers {
            kube: after.kube.clone(),
            cloud: then,
        },
    };
    let harmful = problems(&pair, &[])
        .into_iter()
        .filter(|problem| problem.is_harmful);
    reasons.extend(harmful.map(|problem| format!("{}: {}", problem.message, problem.fix)));
    reasons
}

fn remedies(snapshot: &ChangeSnapshot, kube: &Manager, options: HandoverOptions<'_>) -> Vec<String> {
    let mut remedies = Vec::new();
    if !options.facts.missing_permissions.is_empty() {
        let lock = kube.migration_lock().map(|lock| lock.name).unwrap_or_default();
        remedies.push(format!(
            "grant the permissions with: kubectl kcp leader-migration rbac {} --leader-name {lock} --apply",
            control_plane(snapshot)
        ));
    }
    if options.manifest.is_none() {
        remedies.push(
            "install the DaemonSet of cloud-controller-manager with the same leader migration configuration, \
             or pass the manifest of a static Pod with --ccm-manifest"
                .to_owned(),
        );
    }
    remedies
}
