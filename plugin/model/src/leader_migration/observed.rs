//! The controller managers of a workload cluster and their Leases, as they were at one time.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kcp_rules::leader_migration::{Assignment, Component, Controller, Lock, Manager};

use crate::snapshot::Failure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedManagers {
    /// When the Leases were read, according to the workload cluster's API server.
    pub now: Timestamp,
    /// The Pods of controller managers, or why they could not be read.
    pub managers: Result<Vec<ObservedManager>, Failure>,
    /// The main locks of the components, then the migration locks, then the unused locks.
    pub locks: Vec<ObservedLock>,
}

/// A controller manager that runs, or should run, in a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedManager {
    pub component: Component,
    pub namespace: String,
    /// The name of the controller manager's Pod.
    pub pod: String,
    pub node: String,
    /// The minor version of Kubernetes in the tag of the image. `None` if the tag is not a version.
    pub minor: Option<u64>,
    pub health: Health,
    pub settings: Settings,
}

/// Whether a controller manager runs, and which controllers it has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The controller manager responds. The set contains the names of the controllers that it has started,
    /// and is empty while it waits for its main lock.
    Serves(BTreeSet<String>),
    /// The controller manager does not run: its container has ended, or no process listens on its port. The text says why.
    Down(String),
    /// It is unknown whether the controller manager runs. The text says why.
    Unread(String),
}

/// The settings of a controller manager, and where they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub source: SettingsSource,
    /// The controller manager as its flags and configuration describe it, or why they are unknown.
    pub described: Result<Manager, String>,
    /// Why no better source of the settings could be read. `None` for [`SettingsSource::Configz`].
    pub unverified_reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsSource {
    /// The effective configuration of the process, from `/configz`.
    Configz,
    /// The flags of the process, from `/flagz`. The content of its leader migration configuration comes from another source.
    Flagz,
    /// The flags in the Pod's spec. The process may have been started with other flags.
    Pod,
}

/// A Lease that controller managers use for leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLock {
    pub role: LockRole,
    pub lock: Lock,
    /// The Lease, or why it could not be read. `None` if the Lease does not exist.
    pub lease: Result<Option<ObservedLease>, Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRole {
    /// The lock that one process of the component holds while it runs its controllers.
    Main(Component),
    Migration,
    /// A lock that a controller manager wrote, but that no controller manager uses, such as the lock of an
    /// earlier migration.
    Unused,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedLease {
    /// Who holds the Lease. `None` after the holder has released it.
    pub holder: Option<String>,
    pub transitions: i64,
    pub acquired: Option<Timestamp>,
    /// When the holder last renewed the Lease, according to the holder's clock.
    pub renewed: Option<Timestamp>,
    pub duration: Option<Duration>,
    /// The field manager that wrote `holderIdentity`, according to `managedFields` of the Lease.
    pub writer: Option<String>,
}

impl ObservedManagers {
    pub fn managers(&self) -> &[ObservedManager] {
        self.managers.as_deref().unwrap_or_default()
    }

    pub fn lock(&self, lock: &Lock) -> Option<&ObservedLock> {
        self.locks.iter().find(|observed| observed.lock == *lock)
    }
}

impl ObservedManager {
    /// The controller manager with its settings. `None` if the settings are unknown.
    pub fn known_manager(&self) -> Option<&Manager> {
        self.settings.described.as_ref().ok()
    }

    pub fn assignment(&self, controller: &Controller) -> Option<Assignment> {
        Some(self.known_manager()?.assignment(controller))
    }

    /// Whether the controller manager has started the controller, by either of its names.
    pub fn runs(&self, controller: &Controller) -> bool {
        match &self.health {
            Health::Serves(started) => [controller.canonical, controller.short]
                .iter()
                .any(|name| started.contains(*name)),
            Health::Down(_) | Health::Unread(_) => false,
        }
    }
}

impl Settings {
    /// Unknown settings. `why` says why no source has the settings.
    pub fn unknown(why: &str) -> Self {
        Self {
            source: SettingsSource::Pod,
            described: Err(why.to_owned()),
            unverified_reason: Some(why.to_owned()),
        }
    }
}

impl SettingsSource {
    /// Whether the process itself reports all settings.
    pub const fn is_verified(self) -> bool {
        matches!(self, Self::Configz)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Configz => "/configz",
            Self::Flagz => "/flagz",
            Self::Pod => "the Pod's flags",
        }
    }
}
