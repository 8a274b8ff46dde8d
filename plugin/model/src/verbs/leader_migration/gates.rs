//! Why the controller managers of a workload cluster are not ready for a step.

use kcp_rules::leader_migration::{Component, Manager};

use crate::{
    leader_migration::{Health, LockRole, LockState, ObservedLock, ObservedManager, ObservedManagers},
    snapshot::change::ChangeSnapshot,
};

/// Why it is not certain that every kube-controller-manager uses the Lease as its migration lock, one line
/// for each reason. `holders` are the components that may hold the Lease.
pub(super) fn why_not_started(
    snapshot: &ChangeSnapshot,
    observed: &ObservedManagers,
    leader_name: &str,
    holders: &[Component],
) -> Vec<String> {
    let mut reasons = each_kube(snapshot, observed, |manager| {
        let pod = &manager.pod;
        match settings(manager) {
            Err(why) => Some(why),
            Ok(settings) => match settings.migration_lock() {
                None => Some(format!("{pod} runs without leader migration")),
                Some(lock) if lock.name != leader_name => Some(format!(
                    "{pod} uses Lease {} as its migration lock instead of {leader_name}",
                    lock.name
                )),
                Some(_) => None,
            },
        }
    });
    if reasons.is_empty() {
        reasons.extend(why_not_held(observed, leader_name, holders));
    }
    reasons
}

/// Why it is not certain that every kube-controller-manager runs without leader migration, one line for each
/// reason.
pub(super) fn why_not_stopped(snapshot: &ChangeSnapshot, observed: &ObservedManagers) -> Vec<String> {
    each_kube(snapshot, observed, |manager| match settings(manager) {
        Err(why) => Some(why),
        Ok(settings) if settings.migration_lock().is_some() => {
            Some(format!("{} still uses leader migration", manager.pod))
        }
        Ok(_) => None,
    })
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

/// Returns the reason that `why` gives for each kube-controller-manager, if any. Adds a reason if the number
/// of kube-controller-managers differs from the number of Machines.
fn each_kube(
    snapshot: &ChangeSnapshot,
    observed: &ObservedManagers,
    why: impl Fn(&ObservedManager) -> Option<String>,
) -> Vec<String> {
    let kube: Vec<&ObservedManager> = match of_component(observed, Component::Kube) {
        Ok(kube) => kube.collect(),
        Err(why) => return vec![why],
    };
    let mut reasons: Vec<String> = kube.iter().filter_map(|manager| why(manager)).collect();
    let machines = snapshot.observed.machines.len();
    if kube.len() != machines {
        reasons.push(format!(
            "the number of Pods of kube-controller-manager is {}, but the number of control-plane Machines is \
             {machines}",
            kube.len()
        ));
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
pub(super) fn settings(manager: &ObservedManager) -> Result<&Manager, String> {
    let pod = &manager.pod;
    if let Health::Down(why) | Health::Unread(why) = &manager.health {
        return Err(format!("{pod} does not report which controllers it runs: {why}"));
    }
    match (&manager.settings.described, &manager.settings.unverified_reason) {
        (Ok(settings), None) => Ok(settings),
        (Err(why), _) | (Ok(_), Some(why)) => Err(format!("{pod} does not report its settings: {why}")),
    }
}

/// The running cloud-controller-manager. None if no Pod runs it.
///
/// # Errors
/// The settings are unknown, or several Pods have different settings. The error has one line for each reason.
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

/// Why the Lease does not prove that one of these components holds the migration lock.
fn why_not_held(observed: &ObservedManagers, leader_name: &str, holders: &[Component]) -> Option<String> {
    let is_lock = |lock: &&ObservedLock| lock.role == LockRole::Migration && lock.lock.name == leader_name;
    let Some(lock) = observed.locks.iter().find(is_lock) else {
        return Some(format!("Lease {leader_name} was not read"));
    };
    match lock.state(observed.now) {
        LockState::Held { holder } => {
            let component = observed.attribution(lock).component();
            let is_expected = component.is_some_and(|component| holders.contains(&component));
            let expected = holders.iter().map(|component| component.name());
            (!is_expected).then(|| {
                format!(
                    "{holder}, which is not known to be a {}, holds Lease {leader_name}",
                    expected.collect::<Vec<_>>().join(" or a ")
                )
            })
        }
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
