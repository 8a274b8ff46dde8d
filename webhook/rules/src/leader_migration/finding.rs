//! Settings of controller managers whose effect differs from what their name suggests.

use std::fmt;

use super::{
    Assignment, CONTROLLERS, Component, ConfigurationProblem, Controller, Lock, Manager,
    flags::CONFIGURATION_FLAG,
};
use crate::components::controller_name;

/// A setting whose effect differs from what its name suggests. Names come from the configuration. Messages
/// show only the names of controllers and Leases, because any other text in a flag or a file may be secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caveat {
    /// No controller manager has a controller of this name.
    UnknownName(Component, String),
    /// Only kube-controller-manager has this controller, so the controller stops while another component
    /// holds the migration lock.
    NotShared(Component, String),
    /// The name is another spelling of a controller's name, and aliases do not match.
    Alias {
        /// The component with the configuration.
        component: Component,
        /// The minor version of the component.
        minor: u64,
        /// The name in the configuration.
        entry: String,
        /// The name of the controller at this version.
        name: &'static str,
    },
    /// More than one entry of the configuration has this name. The last one counts.
    Repeated(Component, String),
    /// `--leader-migration-config` is set, but `--enable-leader-migration` is not.
    ConfigurationIgnored(Component),
    /// `--enable-leader-migration` is set, but `--leader-elect` is false.
    EnableIgnored(Component),
    /// Leader migration is on, but selects no controller that the controller manager runs.
    SelectsNothing(Component, u64),
    /// Two controller managers have different migration locks.
    DifferentLocks(Lock, Lock),
    /// No Lease can have the name of the migration lock.
    LeaderNameInvalid(Component),
    /// The migration lock is the main lock of a controller manager, or the Lease of another component.
    LeaderNameInUse(Component, String),
}

impl Caveat {
    /// Whether the user must correct the setting. Entries with unknown or repeated names are harmless.
    pub fn is_problem(&self) -> bool {
        !matches!(self, Self::UnknownName(..) | Self::Repeated(..))
    }

    /// What the user must change.
    pub fn fix(&self) -> String {
        match self {
            Self::UnknownName(..) => "correct or remove the entry".to_owned(),
            Self::NotShared(_, name) => {
                format!(
                    "remove the entry {name}; kube-controller-manager then runs {name} under the main lock"
                )
            }
            Self::Alias { name, .. } => format!("add an entry for {name}, and keep the existing entry"),
            Self::Repeated(_, name) => match controller_name(name) {
                Some(name) => format!("keep one entry for {name}"),
                None => "keep one of the entries with the same name".to_owned(),
            },
            Self::ConfigurationIgnored(component) => {
                format!("set --enable-leader-migration on {component}, or remove --{CONFIGURATION_FLAG}")
            }
            Self::EnableIgnored(component) => {
                format!("remove --leader-elect=false or --enable-leader-migration from {component}")
            }
            Self::SelectsNothing(component, _) => format!(
                "add a controller that {component} runs, such as node-ipam-controller, to controllerLeaders, or remove \
                 --enable-leader-migration"
            ),
            Self::DifferentLocks(..) => {
                "set the same leaderName and the same --leader-elect-resource-namespace on both controller \
                 managers"
                    .to_owned()
            }
            Self::LeaderNameInvalid(..) => {
                "set leaderName to a valid Lease name, which contains only lower-case letters, digits, '-' \
                 and '.'"
                    .to_owned()
            }
            Self::LeaderNameInUse(..) => "set leaderName to a name that no other Lease has".to_owned(),
        }
    }
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName(component, _) => write!(
                f,
                "the configuration of {component} names a controller that does not exist"
            ),
            Self::NotShared(component, name) => write!(
                f,
                "the configuration of {component} names {name}, which only kube-controller-manager has, so {name} \
                 stops while cloud-controller-manager holds the migration lock"
            ),
            Self::Alias {
                component,
                minor,
                entry,
                name,
            } => write!(
                f,
                "the configuration of {component} names {entry}, which is called {name} in version \
                 1.{minor}; leader migration does not resolve aliases, so {name} runs under the main lock"
            ),
            Self::Repeated(component, name) => write!(
                f,
                "the configuration of {component} names {} more than once, and only the last entry counts",
                controller_name(name).unwrap_or("a controller")
            ),
            Self::ConfigurationIgnored(component) => write!(
                f,
                "{component} ignores --{CONFIGURATION_FLAG}, because --enable-leader-migration is not set"
            ),
            Self::EnableIgnored(component) => write!(
                f,
                "{component} ignores --enable-leader-migration, because --leader-elect is false"
            ),
            Self::SelectsNothing(component, minor) => write!(
                f,
                "{component} 1.{minor} runs no controller that its leader migration configuration selects"
            ),
            Self::DifferentLocks(first, second) => write!(
                f,
                "the controller managers have different migration locks, {}/{} and {}/{}, so each of them \
                 runs the migrated controllers",
                first.namespace, first.name, second.namespace, second.name
            ),
            Self::LeaderNameInvalid(component) => write!(
                f,
                "leaderName of {component} is not a valid name of a Lease, so the migrated controllers never \
                 run"
            ),
            Self::LeaderNameInUse(component, name) => write!(
                f,
                "leaderName of {component} is {name}, which is already the Lease of another component or a main lock"
            ),
        }
    }
}

/// Leases of other components in `kube-system`.
const OTHER_LEASES: [&str; 1] = ["kube-scheduler"];

/// The findings about controller managers, without duplicates.
pub(super) fn findings<'m>(managers: impl Iterator<Item = &'m Manager>) -> Vec<Caveat> {
    let mut managers: Vec<&Manager> = managers.collect();
    managers.dedup_by(|later, earlier| later == earlier);
    let mut findings = Vec::new();
    for manager in &managers {
        flags(manager, &mut findings);
        names(manager, &mut findings);
        leader_name(manager, &managers, &mut findings);
    }
    let locks: Vec<Lock> = managers
        .iter()
        .filter_map(|manager| manager.migration_lock())
        .collect();
    if let Some((first, other)) = locks
        .first()
        .and_then(|first| Some((first, locks.iter().find(|lock| *lock != first)?)))
    {
        findings.push(Caveat::DifferentLocks(first.clone(), other.clone()));
    }
    let mut unique: Vec<Caveat> = Vec::new();
    for finding in findings {
        if !unique.contains(&finding) {
            unique.push(finding);
        }
    }
    unique
}

fn flags(manager: &Manager, findings: &mut Vec<Caveat>) {
    let component = manager.component;
    let enables = manager.flags.boolean("enable-leader-migration", false) == Ok(true);
    if enables && !manager.elects_leader() {
        findings.push(Caveat::EnableIgnored(component));
    }
    if manager.flags.text(CONFIGURATION_FLAG).is_some() && manager.flags.configuration_path().is_none() {
        findings.push(Caveat::ConfigurationIgnored(component));
    }
}

fn names(manager: &Manager, findings: &mut Vec<Caveat>) {
    let Some(configuration) = &manager.configuration else {
        return;
    };
    let component = manager.component;
    let selects = |controller: &Controller| {
        matches!(
            manager.assignment(controller),
            Assignment::Migrated | Assignment::Unowned | Assignment::Unknown
        )
    };
    if !CONTROLLERS.iter().any(selects) {
        findings.push(Caveat::SelectsNothing(component, manager.minor));
    }
    // Only a configuration that the user wrote can have wrong names; here, the default configuration applies.
    if manager.flags.configuration_path().is_none() {
        return;
    }
    for (index, leader) in configuration.controller_leaders.iter().enumerate() {
        let name = leader.name.clone();
        let earlier = configuration.controller_leaders.iter().take(index);
        if earlier.into_iter().any(|earlier| earlier.name == leader.name) {
            findings.push(Caveat::Repeated(component, name));
            continue;
        }
        match Controller::find(&name) {
            Some(controller) => {
                let right = controller.name_at(manager.minor);
                let is_missed = name != right
                    && !configuration.selects(right)
                    && manager.assignment(controller) == Assignment::NonMigrated;
                if is_missed {
                    findings.push(Caveat::Alias {
                        component,
                        minor: manager.minor,
                        entry: name,
                        name: right,
                    });
                }
            }
            None if controller_name(&name).is_some() => findings.push(Caveat::NotShared(component, name)),
            // A cloud-controller-manager can have controllers of its own.
            None if component == Component::Kube => findings.push(Caveat::UnknownName(component, name)),
            None => {}
        }
    }
}

fn leader_name(manager: &Manager, managers: &[&Manager], findings: &mut Vec<Caveat>) {
    let Some(lock) = manager.migration_lock() else {
        return;
    };
    let component = manager.component;
    let is_in_use = manager
        .problems
        .iter()
        .any(|problem| matches!(problem, ConfigurationProblem::LeaderNameInUse(_)))
        || OTHER_LEASES.contains(&lock.name.as_str())
        || managers.iter().any(|other| other.main_lock() == lock);
    if !manager.can_hold_migration_lock() {
        findings.push(Caveat::LeaderNameInvalid(component));
    } else if is_in_use {
        findings.push(Caveat::LeaderNameInUse(component, lock.name));
    }
}
