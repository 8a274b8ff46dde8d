//! The controller managers of a workload cluster and their Leases, at one time.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kcp_rules::leader_migration::{Assignment, Component, Controller, Lock, Manager};

use crate::snapshot::Failure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The time of the workload cluster's API server, when the Leases were read.
    pub now: Timestamp,
    /// The Pods of controller managers, or why they could not be read.
    pub managers: Result<Vec<ObservedManager>, Failure>,
    /// The main locks, then the migration locks.
    pub locks: Vec<ObservedLock>,
}

/// A Pod of a controller manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedManager {
    pub component: Component,
    pub namespace: String,
    /// The name of the Pod.
    pub pod: String,
    pub node: String,
    /// The minor version of Kubernetes in the image's tag; none if the tag is not a version.
    pub minor: Option<u64>,
    pub health: Health,
    pub settings: Settings,
}

/// What a controller manager runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It responds. The names of the controllers that it has started; none if it waits for its main lock.
    Serves(BTreeSet<String>),
    /// Why it does not run: its container has ended, or nothing listens on its port.
    Down(String),
    /// Why it is unknown whether it runs.
    Unread(String),
}

/// The settings of a controller manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub source: SettingsSource,
    /// The controller manager with these settings, or why they are unknown.
    pub manager: Result<Manager, String>,
    /// Why no better source could be read; none for [`SettingsSource::Configz`].
    pub unverified: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsSource {
    /// The effective configuration of the process.
    Configz,
    /// The flags of the process. The content of its leader migration configuration comes from another source.
    Flagz,
    /// The flags in the Pod's spec. The process may have been started with others.
    Pod,
}

/// A Lease for leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLock {
    pub role: LockRole,
    pub lock: Lock,
    /// The Lease, none if it does not exist, or why it could not be read.
    pub lease: Result<Option<ObservedLease>, Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRole {
    /// The lock that one process of the component holds.
    Main(Component),
    Migration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedLease {
    /// None after the holder released it.
    pub holder: Option<String>,
    pub transitions: i64,
    pub acquired: Option<Timestamp>,
    /// The last renewal, by the clock of the holder.
    pub renewed: Option<Timestamp>,
    pub duration: Option<Duration>,
    /// The field manager that wrote `holderIdentity`, according to the Lease's managedFields.
    pub writer: Option<String>,
}

impl Observed {
    pub fn managers(&self) -> &[ObservedManager] {
        self.managers.as_deref().unwrap_or_default()
    }

    pub fn lock(&self, lock: &Lock) -> Option<&ObservedLock> {
        self.locks.iter().find(|observed| observed.lock == *lock)
    }
}

impl ObservedManager {
    /// The settings, unless they are unknown.
    pub fn known(&self) -> Option<&Manager> {
        self.settings.manager.as_ref().ok()
    }

    pub fn assignment(&self, controller: &Controller) -> Option<Assignment> {
        Some(self.known()?.assignment(controller))
    }

    /// Whether it has started the controller, by either of its names.
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
    /// Settings that no source has.
    pub fn unknown(why: &str) -> Self {
        Self {
            source: SettingsSource::Pod,
            manager: Err(why.to_owned()),
            unverified: Some(why.to_owned()),
        }
    }
}

impl SettingsSource {
    /// Whether the process itself reports the settings.
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
