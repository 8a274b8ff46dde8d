//! `leader-migration rollback`: reverses the last step. This is possible until a Machine with the new version
//! has joined.

use kcp_api::Object as _;
use kcp_rules::{
    api::DecodeError,
    leader_migration::{ControllerManagerChange, ControllerManagers},
};

use super::{
    Facts,
    gates::running_cloud_controller_manager,
    phase::{Managers, Migration, Phase},
    record::Record,
    refused, write,
};
use crate::{
    change::decision::{ChangeEvent, Decision},
    leader_migration::problem::problems,
    merge_patch,
    review::ReviewContext,
    snapshot::change::ChangeSnapshot,
};

/// Decides whether to reverse the last step.
pub fn decide(
    snapshot: &ChangeSnapshot,
    facts: Facts<'_>,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let migration = match Migration::from_snapshot(snapshot)? {
        Ok(migration) => migration,
        Err(unknown) => return Ok(refused(vec![unknown.to_string()])),
    };
    if migration.phase == Phase::Off {
        return Ok(Decision::Unchanged(
            "the control plane does not use leader migration".to_owned(),
        ));
    }
    if migration.phase != Phase::Enabled {
        let joined = joined(snapshot);
        if !joined.is_empty() {
            return Ok(refused(joined));
        }
    }
    let Some(record) = Record::from_control_plane(snapshot.control_plane()) else {
        return Ok(refused(vec![
            "the control plane has no record of its last leader migration step, because another client made \
             the change; use that client to revert it"
                .to_owned(),
        ]));
    };
    let patch = record.undo.patch(&migration.control_plane);
    let mut object = migration.control_plane.clone();
    merge_patch::apply(&mut object, &patch);
    let after = match Managers::from_control_plane(&object)? {
        Ok(after) => after,
        Err(unknown) => return Ok(refused(vec![unknown.to_string()])),
    };
    if migration.phase == Phase::Enabled {
        let reasons = why_unprotected(&migration.managers, &after, facts);
        if !reasons.is_empty() {
            return Ok(refused(reasons));
        }
    }
    let (reason, detail) = if migration.phase == Phase::Enabled {
        (
            "LeaderMigrationDisabled",
            "to the state before leader migration".to_owned(),
        )
    } else {
        let version = record.undo.version.clone().unwrap_or_default();
        (
            "LeaderMigrationHandoverReverted",
            format!("to {version} with leader migration"),
        )
    };
    let event = ChangeEvent {
        reason,
        action: "RollBackLeaderMigration",
        note_verb: "rolled back",
        detail,
    };
    let patch = Record::add_to_patch(record.earlier.as_deref(), patch);
    // A rollout that cannot continue is a reason to roll back.
    write(snapshot, patch, event, true, context)
}

/// The Machines with the new version that have joined, one line each.
fn joined(snapshot: &ChangeSnapshot) -> Vec<String> {
    let version = snapshot.control_plane().spec.version();
    let machines = snapshot.observed.machines.iter();
    machines
        .filter(|machine| machine.spec.version.as_deref() == Some(version) && machine.has_node())
        .map(|machine| {
            format!(
                "Machine {} has joined with {version}, and Kubernetes does not support downgrades: continue with the \
                 rollout",
                machine.name()
            )
        })
        .collect()
}

/// Why a controller would run twice without leader migration, while cloud-controller-manager is running.
fn why_unprotected(before: &Managers, after: &Managers, facts: Facts<'_>) -> Vec<String> {
    let cloud = match running_cloud_controller_manager(facts.observed) {
        Ok(cloud) => cloud,
        Err(why) => return why,
    };
    let with = |managers: &Managers| ControllerManagers {
        kube: managers.kube.clone(),
        cloud: cloud.cloned(),
    };
    let pair = ControllerManagerChange {
        before: with(before),
        after: with(after),
    };
    let harmful = problems(&pair, &[])
        .into_iter()
        .filter(|problem| problem.is_harmful);
    harmful
        .map(|problem| format!("{}; stop cloud-controller-manager first", problem.message))
        .collect()
}
