//! Decides the verdict on each controller that can migrate.

use kcp_rules::leader_migration::{Assignment, CONTROLLERS, Component, Controller, Lock, Manager};

use super::{
    locks::LockState,
    observed::{Health, LockRole, ObservedManager, ObservedManagers},
    reason::{MigrationState, Reason},
};

/// Which controller manager runs a controller, and whether a lock protects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub controller: &'static Controller,
    /// The names of the Pods that have started the controller.
    pub runners: Vec<String>,
    pub reason: Reason,
}

impl Decision {
    pub const fn verdict(&self) -> MigrationState {
        self.reason.verdict()
    }
}

/// Decides about every controller that can migrate.
pub fn decide(observed: &ObservedManagers) -> Vec<Decision> {
    CONTROLLERS
        .iter()
        .map(|controller| {
            let runners = runners(observed, controller);
            Decision {
                controller,
                reason: reason(observed, controller, &runners),
                runners: runners.into_iter().map(|runner| runner.pod.clone()).collect(),
            }
        })
        .collect()
}

/// The most severe verdict among the decisions.
pub fn overall(decisions: &[Decision]) -> MigrationState {
    let verdicts = decisions.iter().map(Decision::verdict);
    verdicts.max().unwrap_or(MigrationState::NothingToMigrate)
}

fn runners<'o>(observed: &'o ObservedManagers, controller: &Controller) -> Vec<&'o ObservedManager> {
    let managers = observed.managers().iter();
    managers.filter(|manager| manager.runs(controller)).collect()
}

fn reason(observed: &ObservedManagers, controller: &Controller, runners: &[&ObservedManager]) -> Reason {
    match runners {
        [] => unread_manager(observed).unwrap_or_else(|| reason_without_runner(observed, controller)),
        [runner] => {
            unread_manager(observed).unwrap_or_else(|| reason_with_runner(observed, controller, runner))
        }
        several => Reason::RunsTwice {
            pods: several.iter().map(|runner| runner.pod.clone()).collect(),
        },
    }
}

/// Returns why a controller manager that could not be read may run the controller. `None` if all were read.
fn unread_manager(observed: &ObservedManagers) -> Option<Reason> {
    let managers = match &observed.managers {
        Ok(managers) => managers,
        Err(failure) => {
            return Some(Reason::PodsUnread {
                object: failure.object.clone(),
                why: failure.message.clone(),
            });
        }
    };
    let unread = managers.iter().find_map(|manager| match &manager.health {
        Health::Unread(why) => Some(Reason::HealthUnread {
            pod: manager.pod.clone(),
            why: why.clone(),
        }),
        Health::Serves(_) | Health::Down(_) => None,
    });
    unread.or_else(|| {
        observed.locks.iter().find_map(|lock| {
            let LockRole::Main(component) = lock.role else {
                return None;
            };
            let is_seen = managers.iter().any(|manager| manager.component == component);
            match lock.state(observed.now) {
                LockState::Held { holder } if !is_seen => Some(Reason::UnknownHolder {
                    lock: lock.lock.clone(),
                    holder: holder.to_owned(),
                    component,
                }),
                _ => None,
            }
        })
    })
}

fn reason_with_runner(
    observed: &ObservedManagers,
    controller: &Controller,
    runner: &ObservedManager,
) -> Reason {
    let pod = runner.pod.clone();
    let manager = match &runner.settings.described {
        Ok(manager) => manager,
        Err(why) => {
            return Reason::SettingsUnread {
                pod,
                why: why.clone(),
            };
        }
    };
    match manager.assignment(controller) {
        Assignment::Absent | Assignment::Unowned => Reason::SettingsDiffer { pod },
        Assignment::NonMigrated if is_left_out_of_migration(observed, controller) => Reason::MainLock {
            lock: manager.main_lock(),
            pod,
        },
        Assignment::NonMigrated => Reason::OneRunner { pod },
        Assignment::Migrated => under_migration_lock(observed, controller, runner, manager),
        Assignment::Unknown => unknown_provider(pod),
    }
}

/// The reason if the flags do not say whether the cloud provider has the controller, so that it is unknown
/// under which lock the controller would run.
fn unknown_provider(pod: String) -> Reason {
    Reason::SettingsUnread {
        pod,
        why: "its flags do not show whether its cloud provider has the controller".to_owned(),
    }
}

/// Whether kube-controller-manager has the controller, and a controller manager migrates other controllers but not this one.
fn is_left_out_of_migration(observed: &ObservedManagers, controller: &Controller) -> bool {
    let managers = || {
        observed
            .managers()
            .iter()
            .filter_map(ObservedManager::known_manager)
    };
    let is_in_kube = managers().any(|manager| {
        manager.component == Component::Kube && manager.assignment(controller) != Assignment::Absent
    });
    let is_left_out = managers().any(|manager| {
        manager.configuration.is_some() && manager.assignment(controller) == Assignment::NonMigrated
    });
    is_in_kube && is_left_out
}

/// The reason for a running controller whose controller manager must hold the migration lock.
fn under_migration_lock(
    observed: &ObservedManagers,
    controller: &Controller,
    runner: &ObservedManager,
    manager: &Manager,
) -> Reason {
    let pod = runner.pod.clone();
    let Some(lock) = manager.migration_lock() else {
        return Reason::SettingsDiffer { pod };
    };
    let Some(lease) = observed.lock(&lock) else {
        let why = "kubectl-kcp did not look for this Lease".to_owned();
        return Reason::LockUnread { lock, why };
    };
    match lease.state(observed.now) {
        LockState::Unread(failure) => Reason::LockUnread {
            why: failure.message.clone(),
            lock,
        },
        LockState::Absent | LockState::Free => Reason::RunsWithoutLock { lock, pod },
        LockState::Expired { holder, age } => Reason::Stale {
            holder: holder.to_owned(),
            age,
            runner: Some(pod),
            lock,
        },
        LockState::Held { holder } => {
            if observed.attribution(lease).component() != Some(runner.component) {
                let holder = holder.to_owned();
                return Reason::HolderUnclear { lock, holder, pod };
            }
            match other_without_lock(observed, controller, &lock, (runner, manager)) {
                Some(Err(unknown)) => unknown,
                Some(Ok(other)) => Reason::OtherWithoutLock { pod, other },
                None => Reason::Protected { lock, pod },
            }
        }
    }
}

/// Returns another controller manager that would run the controller at the same time without this lock, or whose
/// settings are unknown.
fn other_without_lock(
    observed: &ObservedManagers,
    controller: &Controller,
    lock: &Lock,
    (runner, of_runner): (&ObservedManager, &Manager),
) -> Option<Result<String, Reason>> {
    let mut others = observed.managers().iter().filter(|other| other.pod != runner.pod);
    others.find_map(|other| match &other.settings.described {
        Err(why) => Some(Err(Reason::SettingsUnread {
            pod: other.pod.clone(),
            why: why.clone(),
        })),
        Ok(manager) => {
            let shares_main_lock = manager.elects_leader()
                && of_runner.elects_leader()
                && manager.main_lock() == of_runner.main_lock();
            let is_excluded = match manager.assignment(controller) {
                Assignment::Absent | Assignment::Unowned => true,
                Assignment::Migrated => shares_main_lock || manager.migration_lock().as_ref() == Some(lock),
                Assignment::NonMigrated => shares_main_lock,
                Assignment::Unknown if shares_main_lock => true,
                Assignment::Unknown => return Some(Err(unknown_provider(other.pod.clone()))),
            };
            (!is_excluded).then(|| Ok(other.pod.clone()))
        }
    })
}

fn reason_without_runner(observed: &ObservedManagers, controller: &Controller) -> Reason {
    let managers = observed.managers();
    let has = |manager: &&ObservedManager, assignments: &[Assignment]| {
        manager
            .assignment(controller)
            .is_some_and(|assignment| assignments.contains(&assignment))
    };
    let owners: Vec<&ObservedManager> = managers
        .iter()
        .filter(|manager| has(manager, &[Assignment::Migrated, Assignment::NonMigrated]))
        .collect();
    // A running controller manager gives the most specific reason, and a leader gives a more specific one
    // than a follower.
    let owner = owners.into_iter().max_by_key(|owner| match &owner.health {
        Health::Serves(started) => (true, !started.is_empty()),
        Health::Down(_) | Health::Unread(_) => (false, false),
    });
    if let Some(owner) = owner {
        return reason_not_running(observed, controller, owner);
    }
    let unassigned: Vec<String> = managers
        .iter()
        .filter(|manager| has(manager, &[Assignment::Unowned]))
        .map(|manager| manager.pod.clone())
        .collect();
    if !unassigned.is_empty() {
        return Reason::NotAssigned { pods: unassigned };
    }
    let unknown = managers.iter().find_map(|manager| {
        let why = manager.settings.described.as_ref().err()?;
        Some(Reason::SettingsUnread {
            pod: manager.pod.clone(),
            why: why.clone(),
        })
    });
    unknown.unwrap_or(Reason::NoRunner)
}

/// The reason why a controller manager does not run a controller that its settings enable.
fn reason_not_running(
    observed: &ObservedManagers,
    controller: &Controller,
    owner: &ObservedManager,
) -> Reason {
    let pod = owner.pod.clone();
    let lock = owner
        .known_manager()
        .and_then(|manager| match manager.assignment(controller) {
            Assignment::Migrated => manager.migration_lock(),
            _ => Some(manager.main_lock()),
        });
    let Some((lock, lease)) = lock.and_then(|lock| observed.lock(&lock).map(|lease| (lock, lease))) else {
        return Reason::SettingsDiffer { pod };
    };
    let state = lease.state(observed.now);
    match (state, &owner.health) {
        (LockState::Unread(failure), _) => Reason::LockUnread {
            why: failure.message.clone(),
            lock,
        },
        (LockState::Expired { holder, age }, _) => Reason::Stale {
            holder: holder.to_owned(),
            age,
            runner: None,
            lock,
        },
        (_, Health::Down(why)) => Reason::NotRunning {
            pod,
            why: why.clone(),
        },
        (LockState::Held { holder }, _) => {
            let component = observed.attribution(lease).component();
            Reason::HeldWithoutRunner {
                holder: holder.to_owned(),
                is_own: component == Some(owner.component),
                component,
                lock,
                pod,
            }
        }
        (LockState::Absent | LockState::Free, _) => Reason::LockNotTaken { lock, pod },
    }
}

#[cfg(test)]
mod tests;
