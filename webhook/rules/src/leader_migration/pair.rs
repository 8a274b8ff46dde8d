//! An upgrade from one pair of controller managers to the next: who runs each controller before, during and after it.

use super::{
    Assignment, CONTROLLERS, Component, Controller, Lock, Manager, StartupError,
    election::{RunnerCount, count_runners},
    finding::{self, Caveat},
    handover::{Gap, Timing, gap},
};

/// The controller managers of a control plane, one version of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerManagers {
    /// kube-controller-manager.
    pub kube: Manager,
    /// cloud-controller-manager, if there is one.
    pub cloud: Option<Manager>,
}

impl ControllerManagers {
    fn managers(&self) -> impl Iterator<Item = &Manager> {
        std::iter::once(&self.kube).chain(&self.cloud)
    }

    /// The controller managers that run a controller.
    fn owners(&self, controller: &Controller) -> Vec<Runner> {
        self.managers()
            .filter(|manager| manager.starts())
            .filter_map(|manager| {
                let (lock, is_migration_lock) = match manager.assignment(controller) {
                    Assignment::Migrated => (manager.migration_lock()?, true),
                    Assignment::NonMigrated => (manager.main_lock(), false),
                    Assignment::Absent | Assignment::Unowned | Assignment::Unknown => return None,
                };
                Some(Runner {
                    component: manager.component,
                    lock,
                    is_migration_lock,
                })
            })
            .collect()
    }
}

/// A control plane before and after an upgrade or another change of its Machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerManagerChange {
    /// Before.
    pub before: ControllerManagers,
    /// After.
    pub after: ControllerManagers,
}

/// A part of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before the upgrade.
    Before,
    /// While Machines of both versions run.
    Rollout,
    /// After the upgrade.
    After,
}

/// A controller manager that runs a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// The component.
    pub component: Component,
    /// The lock that the controller manager must hold to run the controller.
    pub lock: Lock,
    /// Whether `lock` is the migration lock.
    pub is_migration_lock: bool,
}

/// What happens to a controller in an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeEffect {
    /// The migration lock lets only one controller manager run the controller at a time.
    Protected,
    /// Leader migration is on, but the controller runs under a main lock.
    Unprotected,
    /// No controller manager runs the controller, or the controller stops while a controller manager without it holds the
    /// migration lock. A controller that the user disables counts as orphaned only in a handover; see
    /// [`ControllerManagerChange::is_handover`].
    Orphaned(Phase),
    /// The user switches the controller off: it ran before, no controller manager has it after the change,
    /// and the change is not a handover.
    SwitchedOff,
    /// Two controller managers run the controller at the same time.
    RunsTwice(Phase),
    /// No controller manager runs the controller, because the one that is configured to run it exits at
    /// startup.
    CannotStart(Component, Phase),
    /// The controller stays where it is, or no controller manager ran it before.
    NothingToMigrate,
    /// The verdict depends on whether the cloud provider has the controller. Neither the flags nor the name
    /// of the provider show this.
    Unknown,
}

impl UpgradeEffect {
    /// Whether the upgrade would harm the cluster.
    pub fn is_problem(self) -> bool {
        matches!(
            self,
            Self::Orphaned(_) | Self::RunsTwice(_) | Self::CannotStart(..)
        )
    }
}

/// One controller in an upgrade, with the controller managers that run it before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The controller.
    pub controller: &'static Controller,
    /// The controller managers that run the controller before the upgrade. There are several if they share
    /// the migration lock, or if the controller runs twice.
    pub runners_before: Vec<Runner>,
    /// The controller managers that run the controller after the upgrade.
    pub runners_after: Vec<Runner>,
    /// What happens to the controller.
    pub verdict: UpgradeEffect,
}

/// How long no controller manager runs a controller during the handover. Such gaps occur even in an upgrade without problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// Between the old and the new kube-controller-manager, for controllers under the main lock.
    pub main: Gap,
    /// Between the old and the new kube-controller-manager, for controllers under the migration lock.
    pub migration: Option<Gap>,
    /// Between the old kube-controller-manager and a cloud-controller-manager that waits for the migration
    /// lock.
    pub to_cloud: Option<Gap>,
}

impl ControllerManagerChange {
    /// Each controller that can migrate, with the verdict on it.
    pub fn rows(&self) -> Vec<Row> {
        CONTROLLERS
            .iter()
            .map(|controller| Row {
                controller,
                runners_before: self.before.owners(controller),
                runners_after: self.after.owners(controller),
                verdict: self.verdict(controller),
            })
            .collect()
    }

    /// Why controller managers exit at startup. A controller manager that does not change is listed once.
    pub fn startup_errors(&self) -> Vec<(Phase, Component, &StartupError)> {
        let now = self.before.managers().map(|manager| (Phase::Before, manager));
        let then = self
            .after
            .managers()
            .filter(|manager| !self.before.managers().any(|known| known == *manager))
            .map(|manager| (Phase::After, manager));
        now.chain(then)
            .flat_map(|(phase, manager)| {
                let startup_errors = manager.startup_errors.iter();
                startup_errors.map(move |error| (phase, manager.component, error))
            })
            .collect()
    }

    /// Settings whose effect differs from what their name suggests.
    pub fn findings(&self) -> Vec<Caveat> {
        finding::findings(self.before.managers().chain(self.after.managers()))
    }

    /// Whether the upgrade would harm the cluster, a controller manager exits at startup, or the user must correct a setting.
    pub fn has_problem(&self) -> bool {
        !self.startup_errors().is_empty()
            || self.rows().iter().any(|row| row.verdict.is_problem())
            || self.findings().iter().any(Caveat::is_problem)
    }

    /// The expected gaps.
    pub fn gaps(&self) -> Gaps {
        let [now, then] =
            [&self.before.kube, &self.after.kube].map(|manager| Timing::from_flags(&manager.flags));
        let is_migrating = |manager: &Manager| manager.configuration.is_some();
        let cloud = self.after.cloud.as_ref().filter(|cloud| is_migrating(cloud));
        let cloud = cloud.filter(|_| is_migrating(&self.before.kube));
        Gaps {
            main: gap(now, then, 1),
            migration: is_migrating(&self.before.kube).then(|| gap(now, then, 2)),
            to_cloud: cloud.map(|cloud| gap(now, Timing::from_flags(&cloud.flags), 1)),
        }
    }

    /// Whether the change hands controllers over from one component to the other, rather than only switching
    /// some off. This is the case if kube-controller-manager enables leader migration before or after the
    /// change, if its cloud provider changes, or if the change adds or removes a cloud-controller-manager.
    ///
    /// A controller that stops everywhere counts as orphaned only in a handover. In any other change, the user disables it in
    /// `--controllers` on purpose, for example because a network plugin allocates the addresses of Pods.
    pub fn is_handover(&self) -> bool {
        let [now, then] = [&self.before, &self.after];
        let provider = |managers: &ControllerManagers| {
            let provider = managers.kube.flags.get("cloud-provider");
            provider.unwrap_or_default().to_owned()
        };
        now.kube.configuration.is_some()
            || then.kube.configuration.is_some()
            || provider(now) != provider(then)
            || now.cloud.is_some() != then.cloud.is_some()
    }

    /// Whether every controller manager, before and after the change, runs controllers only while it holds a lock.
    pub fn elects_leaders(&self) -> bool {
        self.before
            .managers()
            .chain(self.after.managers())
            .all(Manager::elects_leader)
    }

    /// The controller managers that run in a phase. A controller manager that does not change is listed once.
    fn running(&self, phase: Phase) -> Vec<&Manager> {
        let now = (phase != Phase::After).then_some(&self.before);
        let then = (phase != Phase::Before).then_some(&self.after);
        let mut running: Vec<&Manager> = Vec::new();
        for manager in now.into_iter().chain(then).flat_map(ControllerManagers::managers) {
            if !running.contains(&manager) {
                running.push(manager);
            }
        }
        running
    }

    /// Returns the same change, under the assumption that the cloud provider has the controller (`is_there`)
    /// or does not have it.
    fn assuming(&self, controller: &Controller, is_there: bool) -> Self {
        let assuming = |managers: &ControllerManagers| ControllerManagers {
            kube: managers.kube.clone(),
            cloud: managers
                .cloud
                .as_ref()
                .map(|cloud| cloud.with_assumed_controller(controller, is_there)),
        };
        Self {
            before: assuming(&self.before),
            after: assuming(&self.after),
        }
    }

    fn verdict(&self, controller: &Controller) -> UpgradeEffect {
        let mut managers = self.before.managers().chain(self.after.managers());
        if !managers.any(|manager| manager.assignment(controller) == Assignment::Unknown) {
            return self.certain_verdict(controller);
        }
        let [present, absent] =
            [true, false].map(|is_there| self.assuming(controller, is_there).certain_verdict(controller));
        if present == absent {
            present
        } else {
            UpgradeEffect::Unknown
        }
    }

    /// The verdict if every assignment of the controller is known.
    fn certain_verdict(&self, controller: &Controller) -> UpgradeEffect {
        const PHASES: [Phase; 3] = [Phase::Before, Phase::Rollout, Phase::After];
        let counts = PHASES.map(|phase| (phase, count_runners(&self.running(phase), controller)));
        let ran_before = |phase: Phase| {
            counts
                .iter()
                .any(|(earlier, count)| *earlier < phase && count.max > 0)
        };
        let is_stopped = |(phase, count): &(Phase, RunnerCount)| {
            count.min == 0 && (self.must_run(*phase, controller) || ran_before(*phase))
        };
        if let Some((phase, _)) = counts.iter().find(|(_, count)| count.max > 1) {
            return UpgradeEffect::RunsTwice(*phase);
        }
        // A controller that stops during the rollout and does not start again is reported as stopped after it.
        let [now, rollout, then] = &counts;
        if let Some((phase, _)) = [now, then, rollout]
            .into_iter()
            .find(|stopped| is_stopped(stopped))
        {
            return match self.exited_owner(*phase, controller) {
                Some(component) => UpgradeEffect::CannotStart(component, *phase),
                None if *phase != Phase::Before && self.switches_off(controller) => {
                    UpgradeEffect::SwitchedOff
                }
                None => UpgradeEffect::Orphaned(*phase),
            };
        }
        self.safe_verdict(controller)
    }

    /// Whether a controller manager of this phase is configured to run the controller. During the rollout,
    /// only controllers that ran before count, because the others start when the rollout ends.
    fn must_run(&self, phase: Phase, controller: &Controller) -> bool {
        phase != Phase::Rollout
            && self
                .running(phase)
                .iter()
                .any(|manager| manager.assignment(controller) != Assignment::Absent)
    }

    /// Whether no controller manager has the controller after a change that is not a handover.
    fn switches_off(&self, controller: &Controller) -> bool {
        let mut then = self.after.managers();
        !self.is_handover() && then.all(|manager| manager.assignment(controller) == Assignment::Absent)
    }

    /// The component that would run the controller, if it did not exit at startup.
    fn exited_owner(&self, phase: Phase, controller: &Controller) -> Option<Component> {
        let running = self.running(phase);
        let exited = running.iter().find(|manager| {
            let assignment = manager.assignment(controller);
            !manager.starts() && matches!(assignment, Assignment::Migrated | Assignment::NonMigrated)
        });
        exited.map(|manager| manager.component)
    }

    /// The verdict on a controller that never stops and never runs twice.
    fn safe_verdict(&self, controller: &Controller) -> UpgradeEffect {
        let managers = || {
            let all = self.before.managers().chain(self.after.managers());
            all.filter(|manager| manager.starts())
        };
        let has = |assignment| managers().any(|manager| manager.assignment(controller) == assignment);
        let is_under_main_lock = |manager: &Manager| {
            manager.configuration.is_some() && manager.assignment(controller) == Assignment::NonMigrated
        };
        let is_in_kube = [&self.before.kube, &self.after.kube]
            .into_iter()
            .any(|kube| kube.assignment(controller) != Assignment::Absent);
        if has(Assignment::Migrated) {
            UpgradeEffect::Protected
        } else if is_in_kube && managers().any(is_under_main_lock) {
            UpgradeEffect::Unprotected
        } else {
            UpgradeEffect::NothingToMigrate
        }
    }
}

#[cfg(test)]
#[path = "handover_tests.rs"]
mod handover_tests;
#[cfg(test)]
#[path = "pair_tests.rs"]
mod tests;
