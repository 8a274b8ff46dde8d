//! Why the controller managers of a workload cluster are not ready for a step.

use kcp_rules::leader_migration::{Component, Controller, Manager};

use super::Facts;
use crate::leader_migration::{
    Health, LockRole, LockState, MigrationState, ObservedManager, ObservedManagers, decide,
    problem::MigrationProblem,
};

/// Why a kube-controller-manager may not use the Lease `lock` as its migration lock. If `lock` is `None`: why one may still use
/// leader migration. One line for each reason.
pub(super) fn why_not_uniform(facts: Facts<'_>, lock: Option<&str>) -> Vec<String> {
    let kube: Vec<&ObservedManager> = match of_component(facts.observed, Component::Kube) {
        Ok(kube) => kube.collect(),
        Err(why) => return vec![why],
    };
    let mut reasons: Vec<String> = kube
        .iter()
        .filter_map(|manager| why_not_under(manager, lock))
        .collect();
    let machines = facts.machines.len();
    if kube.len() != machines {
        reasons.push(format!(
            "the number of Pods of kube-controller-manager is {}, but the number of control-plane Machines is \
             {machines}",
            kube.len()
        ));
    }
    reasons
}

fn why_not_under(manager: &ObservedManager, lock: Option<&str>) -> Option<String> {
    let pod = &manager.pod;
    let found = match settings(manager) {
        Err(why) => return Some(why),
        Ok(settings) => settings.migration_lock().map(|lock| lock.name),
    };
    match (found.as_deref(), lock) {
        (found, lock) if found == lock => None,
        (None, _) => Some(format!("{pod} runs without leader migration")),
        (Some(found), Some(lock)) => Some(format!(
            "{pod} uses Lease {found} as its migration lock instead of {lock}"
        )),
        (Some(_), None) => Some(format!("{pod} still uses leader migration")),
    }
}

/// Why `leader-migration status` does not call each of these controllers protected. `fix` is for reasons without a fix of
/// their own.
pub(super) fn not_protected(
    observed: &ObservedManagers,
    is_migrated: impl Fn(&Controller) -> bool,
    fix: &str,
) -> Vec<MigrationProblem> {
    let decisions = decide(observed).into_iter();
    decisions
        .filter(|decision| {
            is_migrated(decision.controller) && decision.verdict() != MigrationState::Protected
        })
        .map(|decision| MigrationProblem {
            message: format!("{}: {}", decision.controller.canonical, decision.reason),
            fix: decision.reason.fix().unwrap_or_else(|| fix.to_owned()),
            is_harmful: true,
        })
        .collect()
}

/// Why an earlier migration has not ended, one line for each reason: the control plane does not use leader
/// migration, but a controller manager that started earlier still uses a Lease. If the new migration used a
/// different Lease, a controller could run twice. If it used the same Lease, kube-controller-manager could
/// not acquire the Lease, and no program would run the controllers.
pub(super) fn why_not_settled(observed: &ObservedManagers) -> Vec<String> {
    let used = observed.managers().iter().filter_map(|manager| {
        let lock = manager.settings.described.as_ref().ok()?.migration_lock()?;
        Some(format!(
            "{} still uses Lease {} as its migration lock",
            manager.pod, lock.name
        ))
    });
    let mut reasons: Vec<String> = used.collect();
    if reasons.is_empty() {
        let migration = observed
            .locks
            .iter()
            .filter(|lock| !matches!(lock.role, LockRole::Main(_)));
        reasons.extend(migration.filter_map(|lock| match lock.state(observed.now) {
            LockState::Held { holder } => Some(format!("{holder} still holds Lease {}", lock.lock.name)),
            _ => None,
        }));
    }
    reasons
}

/// The Pods of a component, or why the Pods could not be read.
fn of_component(
    observed: &ObservedManagers,
    component: Component,
) -> Result<impl Iterator<Item = &ObservedManager>, String> {
    match &observed.managers {
        Ok(managers) => Ok(managers
            .iter()
            .filter(move |manager| manager.component == component)),
        Err(failure) => Err(format!("could not read {}: {}", failure.object, failure.message)),
    }
}

/// The settings that a controller manager itself reports, or why it does not report them.
fn settings(manager: &ObservedManager) -> Result<&Manager, String> {
    let pod = &manager.pod;
    if let Health::Down(why) | Health::Unread(why) = &manager.health {
        return Err(format!("{pod} does not report which controllers it runs: {why}"));
    }
    match (&manager.settings.described, &manager.settings.unverified_reason) {
        (Ok(settings), None) => Ok(settings),
        (Err(why), _) | (Ok(_), Some(why)) => Err(format!("{pod} does not report its settings: {why}")),
    }
}

/// The running cloud-controller-manager. `None` if no Pod runs it. Fails if the settings are unknown, or several Pods have
/// different settings. The error has one line for each reason.
pub(super) fn running_cloud_controller_manager(
    observed: &ObservedManagers,
) -> Result<Option<&Manager>, Vec<String>> {
    let managers = of_component(observed, Component::Cloud).map_err(|why| vec![why])?;
    let mut found: Option<&Manager> = None;
    let mut reasons = Vec::new();
    for manager in managers {
        match settings(manager) {
            Err(why) => reasons.push(why),
            Ok(settings) if found.is_some_and(|found| found != settings) => reasons.push(format!(
                "the settings of {} differ from those of another cloud-controller-manager; wait for the rollout of \
                 cloud-controller-manager",
                manager.pod
            )),
            Ok(settings) => found = Some(settings),
        }
    }
    if reasons.is_empty() {
        Ok(found)
    } else {
        Err(reasons)
    }
}
