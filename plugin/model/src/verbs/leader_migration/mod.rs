//! `leader-migration start`, `upgrade`, `finish` and `rollback`: a migration in steps, with one write for
//! each step.
//!
//! - [`phase`]: how far a migration has come, according to the control plane and its Machines
//! - [`gates`]: why the controller managers are not ready for a step
//! - [`record`]: how the last step is reversed
//! - [`start`], [`upgrade`], [`finish`], [`rollback`]: the decision of each verb
//!
//! Each decision also says whether its step is complete, so that a verb can be run again after an interruption.

pub mod finish;
mod gates;
pub mod phase;
pub mod record;
pub mod rollback;
pub mod start;
pub mod upgrade;

use kcp_rules::{
    api::DecodeError,
    leader_migration::{
        Assignment, CONTROLLERS, Controller, Manager,
        handover::{Gap, Timing, gap},
        steps::{Manifest, disable_controllers},
    },
};
use serde_json::Value;

use crate::{
    change::{
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        preflight::preflight,
    },
    leader_migration::ObservedManagers,
    review::ReviewContext,
    snapshot::change::ChangeSnapshot,
};

/// What was read from the workload cluster.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'f> {
    pub observed: &'f ObservedManagers,
    /// The permissions on the migration lock that controller managers lack, one line for each permission.
    pub missing_permissions: &'f [String],
}

/// A manifest of cloud-controller-manager that a step installs as a static Pod.
#[derive(Clone, Copy, Debug)]
pub struct CloudManifest<'m> {
    /// The text of the manifest.
    pub content: &'m str,
    /// The cloud-controller-manager that the manifest starts.
    pub manager: &'m Manager,
}

fn refused(why: Vec<String>) -> Decision {
    Decision::Refused(Refusal::new(RefusedBy::Command, why))
}

fn refused_with(why: Vec<String>, remedies: Vec<String>) -> Decision {
    let mut refusal = Refusal::new(RefusedBy::Command, why);
    refusal.remedies = remedies;
    Decision::Refused(refusal)
}

/// Writes a patch, unless the preflight refuses it. With `force`, writes it even if the controller cannot
/// start the rollout now.
fn write(
    snapshot: &ChangeSnapshot,
    patch: Value,
    event: ChangeEvent,
    force: bool,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let preflight = preflight(snapshot, &patch, force, context)?;
    let consequences = preflight.consequences();
    if let Some(refusal) = preflight.refusal {
        return Ok(Decision::Refused(refusal));
    }
    Ok(Decision::Write(Proposal {
        write: ObjectWrite::patch(patch),
        outcome: format!("{} {}", event.note_verb, event.detail),
        warnings: preflight.warnings,
        consequences,
        event,
    }))
}

/// The name of the control plane with its namespace, for commands.
fn control_plane(snapshot: &ChangeSnapshot) -> String {
    let control_plane = snapshot.control_plane();
    format!(
        "{} -n {}",
        kcp_api::Object::name(control_plane),
        kcp_api::Object::namespace(control_plane)
    )
}

fn watch_the_rollout(snapshot: &ChangeSnapshot) -> String {
    format!(
        "run the command again after the rollout; watch the rollout with: kubectl kcp rollout status {}",
        control_plane(snapshot)
    )
}

/// The controllers of a kube-controller-manager that cloud-controller-manager can run.
fn run_by(kube: &Manager) -> Vec<&'static Controller> {
    let runs = |controller: &&Controller| kube.assignment(controller) != Assignment::Absent;
    CONTROLLERS.iter().filter(runs).collect()
}

/// The message that kube-controller-manager runs none of these controllers. None if it runs one.
fn nothing_to_migrate(kube: &Manager) -> Option<String> {
    run_by(kube).is_empty().then(|| {
        format!(
            "nothing to migrate: kube-controller-manager 1.{} runs no controller that cloud-controller-manager can run",
            kube.minor
        )
    })
}

/// What to do if kube-controller-manager does not support leader migration: first stop its controllers, then
/// start cloud-controller-manager with these controllers.
fn stop_then_start(snapshot: &ChangeSnapshot, kube: &Manager, why: String) -> Decision {
    if let Some(nothing) = nothing_to_migrate(kube) {
        return Decision::Unchanged(nothing);
    }
    let controllers = run_by(kube);
    let names: Vec<&str> = controllers
        .iter()
        .map(|controller| controller.canonical)
        .collect();
    let names = names.join(", ");
    let timing = Timing::from_flags(&kube.flags);
    let Gap { min, max } = gap(timing, timing, 1);
    refused_with(
        vec![why],
        vec![
            format!(
                "to stop {names} in kube-controller-manager, set controllers to {} in \
                 spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs, and wait for the \
                 rollout: kubectl kcp rollout status {}",
                disable_controllers(&kube.flags, &controllers, kube.minor),
                control_plane(snapshot)
            ),
            format!(
                "then start cloud-controller-manager with {names}; no controller manager runs {names} from \
                 the end of the rollout until cloud-controller-manager acquires its main lock; \
                 cloud-controller-manager acquires its main lock at startup, or {:.0} to {:.0} s later if \
                 an earlier holder did not release the Lease",
                min.as_secs_f64(),
                max.as_secs_f64()
            ),
        ],
    )
}

/// Where the manifest goes: in place of the static Pod in `files`, or at the default path.
fn at_path<'m>(manifest: Option<CloudManifest<'m>>, path: &'m str) -> Option<Manifest<'m>> {
    manifest.map(|manifest| Manifest {
        path,
        content: manifest.content,
    })
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
