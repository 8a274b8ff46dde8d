//! `leader-migration start`: enables leader migration on kube-controller-manager, before the upgrade.

use kcp_rules::{
    api::{DecodeError, decode},
    leader_migration::{
        Component,
        generate::{self, Request},
    },
    syntax::parse_version,
};
use serde_json::Value;

use crate::{
    change::{
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        preflight::preflight,
    },
    leader_migration::{Health, LockRole, LockState, Observed, ObservedLock, ObservedManager},
    plan::options::patched,
    review::ReviewContext,
    snapshot::change::ChangeSnapshot,
};

/// The API version whose lists the patch extends. In v1beta1, extraArgs is a map.
const API_VERSION: &str = "controlplane.cluster.x-k8s.io/v1beta2";

#[derive(Clone, Copy, Debug)]
pub struct StartOptions<'s> {
    /// The minor version of cloud-controller-manager after the upgrade.
    pub to: u64,
    pub node_ipam: bool,
    /// The name of the Lease that is the migration lock.
    pub leader_name: &'s str,
    /// The controller managers of the workload cluster.
    pub observed: &'s Observed,
    /// Why kube-controller-manager may not use the Lease, one line for each reason.
    pub missing_permissions: &'s [String],
}

/// Decides whether to install the leader migration configuration. After that, the decision is `Unchanged` only if every
/// kube-controller-manager uses it: one that does not would run the controllers a second time during the upgrade.
pub fn decide(
    snapshot: &ChangeSnapshot,
    options: StartOptions<'_>,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let object: Value = decode(&snapshot.object)?;
    let version = snapshot.control_plane().spec.version();
    let Ok(from) = parse_version(version) else {
        return Ok(refused(vec![format!(
            "spec.version is not a version: {version:?}"
        )]));
    };
    let StartOptions {
        to,
        node_ipam,
        leader_name,
        ..
    } = options;
    let request = Request {
        from: from.minor,
        to,
        node_ipam,
        leader_name: leader_name.to_owned(),
    };
    let configuration = match generate::configuration(&request) {
        Ok(configuration) => configuration,
        Err(nothing @ generate::Refusal::Nothing(_)) => return Ok(Decision::Unchanged(nothing.to_string())),
        Err(refusal) => return Ok(refused(vec![refusal.to_string()])),
    };
    if object.get("apiVersion").and_then(Value::as_str) != Some(API_VERSION) {
        return Ok(refused(vec![format!(
            "the management cluster does not serve {API_VERSION}"
        )]));
    }
    let patch = generate::patch(&object, &configuration);
    let installed: Value = decode(&patched(&snapshot.object, &patch)?)?;
    if installed == object {
        return Ok(started(snapshot, options));
    }
    if !options.missing_permissions.is_empty() {
        let name = kcp_api::Object::name(snapshot.control_plane());
        let mut refusal = Refusal::new(RefusedBy::Command, options.missing_permissions.to_vec());
        refusal.remedies.push(format!(
            "grant the permissions with: kubectl kcp leader-migration rbac {name} --leader-name {leader_name} --apply"
        ));
        return Ok(Decision::Refused(refusal));
    }
    let preflight = preflight(snapshot, &patch, false, context)?;
    let consequences = preflight.consequences();
    if let Some(refusal) = preflight.refusal {
        return Ok(Decision::Refused(refusal));
    }
    let lock = format!("with Lease {leader_name}");
    Ok(Decision::Write(Proposal {
        write: ObjectWrite::patch(patch),
        done: format!("leader migration enabled {lock}"),
        warnings: preflight.warnings,
        consequences,
        event: ChangeEvent {
            reason: "LeaderMigrationEnabled",
            action: "EnableLeaderMigration",
            done: "leader migration enabled",
            detail: lock,
        },
    }))
}

fn refused(why: Vec<String>) -> Decision {
    Decision::Refused(Refusal::new(RefusedBy::Command, why))
}

/// The decision after the configuration is installed.
fn started(snapshot: &ChangeSnapshot, options: StartOptions<'_>) -> Decision {
    let reasons = why_not_started(snapshot, options);
    if reasons.is_empty() {
        return Decision::Unchanged(format!(
            "every kube-controller-manager uses leader migration with Lease {}",
            options.leader_name
        ));
    }
    let control_plane = snapshot.control_plane();
    let mut refusal = Refusal::new(RefusedBy::Command, reasons);
    refusal.remedies.push(format!(
        "run the command again after the rollout; watch it with: kubectl kcp rollout status {} -n {} --watch",
        kcp_api::Object::name(control_plane),
        kcp_api::Object::namespace(control_plane),
    ));
    Decision::Refused(refusal)
}

/// Why not every kube-controller-manager is known to use leader migration, one line for each reason.
fn why_not_started(snapshot: &ChangeSnapshot, options: StartOptions<'_>) -> Vec<String> {
    let StartOptions {
        observed,
        leader_name,
        ..
    } = options;
    let managers = match &observed.managers {
        Ok(managers) => managers,
        Err(failure) => return vec![format!("could not read {}: {}", failure.object, failure.message)],
    };
    let of_kube = managers
        .iter()
        .filter(|manager| manager.component == Component::Kube);
    let kube: Vec<&ObservedManager> = of_kube.collect();
    let mut reasons: Vec<String> = kube
        .iter()
        .filter_map(|manager| why_not_migrating(manager, leader_name))
        .collect();
    let machines = snapshot.observed.machines.len();
    if kube.len() != machines {
        reasons.push(format!(
            "the number of Pods of kube-controller-manager is {}, and the number of control-plane Machines is {machines}",
            kube.len()
        ));
    }
    if reasons.is_empty() {
        reasons.extend(why_not_held(observed, leader_name));
    }
    reasons
}

fn why_not_migrating(manager: &ObservedManager, leader_name: &str) -> Option<String> {
    let pod = &manager.pod;
    if let Health::Down(why) | Health::Unread(why) = &manager.health {
        return Some(format!("{pod} does not report what it runs: {why}"));
    }
    let settings = match (&manager.settings.manager, &manager.settings.unverified) {
        (Ok(settings), None) => settings,
        (Err(why), _) | (Ok(_), Some(why)) => {
            return Some(format!("{pod} does not report its settings: {why}"));
        }
    };
    match settings.migration_lock() {
        None => Some(format!("{pod} runs without leader migration")),
        Some(lock) if lock.name != leader_name => Some(format!(
            "{pod} uses Lease {} as its migration lock instead of {leader_name}",
            lock.name
        )),
        Some(_) => None,
    }
}

/// Why the Lease does not prove that a kube-controller-manager has the migration lock.
fn why_not_held(observed: &Observed, leader_name: &str) -> Option<String> {
    let is_lock = |lock: &&ObservedLock| lock.role == LockRole::Migration && lock.lock.name == leader_name;
    let Some(lock) = observed.locks.iter().find(is_lock) else {
        return Some(format!("Lease {leader_name} was not read"));
    };
    match lock.state(observed.now) {
        LockState::Held { .. } if observed.attribution(lock).component() == Some(Component::Kube) => None,
        LockState::Held { holder } => Some(format!(
            "{holder}, which is not known to be a kube-controller-manager, holds Lease {leader_name}"
        )),
        LockState::Expired { holder, .. } => {
            Some(format!("{holder} has not renewed Lease {leader_name} in time"))
        }
        LockState::Absent | LockState::Free => {
            Some(format!("no controller manager holds Lease {leader_name}"))
        }
        LockState::Unread(failure) => {
            Some(format!("could not read Lease {leader_name}: {}", failure.message))
        }
    }
}

#[cfg(test)]
mod tests;
