//! The JSON of `leader-migration status`: `kubectl-kcp.dev/v1alpha1`.

use jiff::Timestamp;
use kcp_control_plane::{
    leader_migration::{
        Decision, Health, LockRole, LockState, ObservedLock, ObservedManager, SettingsSource,
    },
    staleness::age,
};
use kcp_rules::leader_migration::{Component, Lock, Manager};
use serde::Serialize;

use super::Status;
use crate::document::{Document, ObjectName};

/// Which controller manager runs each controller that can migrate, and under which lock.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaderMigrationStatus<'s> {
    metadata: ObjectName,
    /// The most severe verdict of all controllers. One of: nothing-to-migrate, protected, unknown, unprotected, stale,
    /// orphaned, runs-twice.
    verdict: &'static str,
    controllers: Vec<ControllerDocument<'s>>,
    controller_managers: Vec<ManagerDocument<'s>>,
    leases: Vec<LeaseDocument<'s>>,
    /// Why the Pods of the controller managers could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<&'s str>,
}

impl Document for LeaderMigrationStatus<'_> {
    const KIND: &'static str = "LeaderMigrationStatus";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ControllerDocument<'s> {
    name: &'static str,
    /// One of: nothing-to-migrate, protected, unknown, unprotected, stale, orphaned, runs-twice.
    verdict: &'static str,
    reason: String,
    /// What to do about the problem of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
    /// The Pods that have started the controller.
    pods: &'s [String],
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ManagerDocument<'s> {
    component: &'static str,
    namespace: &'s str,
    pod: &'s str,
    node: &'s str,
    /// The minor version in the tag of the Pod's image, such as 1.36.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Whether the controller manager runs. Absent if this is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<bool>,
    /// The controllers that the controller manager has started, according to /healthz. Absent if /healthz could not be
    /// read.
    #[serde(skip_serializing_if = "Option::is_none")]
    controllers: Option<Vec<&'s str>>,
    /// Why the controller manager does not run, or why this is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'s str>,
    settings: SettingsDocument<'s>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct SettingsDocument<'s> {
    /// Where the settings come from. One of: configz, flagz, pod.
    source: &'static str,
    /// Whether the source shows the effective configuration of the process.
    verified: bool,
    /// Why no better source of the settings could be read, or why the settings are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'s str>,
    /// Whether leader migration is enabled. Absent if the settings are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader_migration: Option<bool>,
    /// The Lease that the settings name as migration lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    migration_lease: Option<ObjectName>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct LeaseDocument<'s> {
    name: &'s str,
    namespace: &'s str,
    /// Whether this is a migration lock, rather than the main lock of a component.
    migration_lock: bool,
    /// Whether an earlier migration left the Lease behind: no controller manager uses it, and no process renews it.
    left_over: bool,
    /// One of: unread, absent, free, held, expired.
    state: &'static str,
    /// Why the Lease could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'s str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'s str>,
    /// The component whose main lock has the same holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    component_by_holder: Option<&'static str>,
    /// The component whose main lock was written by the same field manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    component_by_field_manager: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field_manager: Option<&'s str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transitions: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acquired: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renewed: Option<Timestamp>,
    /// The time since the last renewal, by the clock of the API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_seconds: Option<u64>,
}

impl<'s> LeaderMigrationStatus<'s> {
    pub(super) fn new(status: &'s Status) -> Self {
        let observed = &status.observed;
        Self {
            metadata: ObjectName {
                name: status.name.clone(),
                namespace: status.namespace.clone(),
            },
            verdict: status.verdict().as_str(),
            controllers: status.decisions.iter().map(ControllerDocument::new).collect(),
            controller_managers: observed.managers().iter().map(ManagerDocument::new).collect(),
            leases: observed
                .locks
                .iter()
                .map(|lock| LeaseDocument::new(status, lock))
                .collect(),
            unread: observed
                .managers
                .as_ref()
                .err()
                .map(|failure| failure.message.as_str()),
        }
    }
}

impl<'s> ControllerDocument<'s> {
    fn new(decision: &'s Decision) -> Self {
        Self {
            name: decision.controller.canonical,
            verdict: decision.verdict().as_str(),
            reason: decision.reason.to_string(),
            fix: decision.reason.fix(),
            pods: &decision.runners,
        }
    }
}

impl<'s> ManagerDocument<'s> {
    fn new(manager: &'s ObservedManager) -> Self {
        let (running, controllers, reason) = match &manager.health {
            Health::Serves(started) => (
                Some(true),
                Some(started.iter().map(String::as_str).collect()),
                None,
            ),
            Health::Down(why) => (Some(false), None, Some(why.as_str())),
            Health::Unread(why) => (None, None, Some(why.as_str())),
        };
        let known = manager.known_manager();
        let migration = known.map(Manager::migration_lock);
        let settings = &manager.settings;
        Self {
            component: manager.component.name(),
            namespace: &manager.namespace,
            pod: &manager.pod,
            node: &manager.node,
            version: manager.minor.map(|minor| format!("1.{minor}")),
            running,
            controllers,
            reason,
            settings: SettingsDocument {
                source: match settings.source {
                    SettingsSource::Configz => "configz",
                    SettingsSource::Flagz => "flagz",
                    SettingsSource::Pod => "pod",
                },
                verified: settings.source.is_verified(),
                reason: match &settings.described {
                    Ok(_) => settings.unverified_reason.as_deref(),
                    Err(why) => Some(why),
                },
                leader_migration: migration.as_ref().map(Option::is_some),
                migration_lease: migration.flatten().map(lease_name),
            },
        }
    }
}

fn lease_name(lock: Lock) -> ObjectName {
    ObjectName {
        name: lock.name,
        namespace: lock.namespace,
    }
}

impl<'s> LeaseDocument<'s> {
    fn new(status: &'s Status, lock: &'s ObservedLock) -> Self {
        let now = status.observed.now;
        let (state, reason) = match lock.state(now) {
            LockState::Unread(failure) => ("unread", Some(failure.message.as_str())),
            LockState::Absent => ("absent", None),
            LockState::Free => ("free", None),
            LockState::Held { .. } => ("held", None),
            LockState::Expired { .. } => ("expired", None),
        };
        let found = lock.lease.as_ref().ok().and_then(Option::as_ref);
        let attribution = status.observed.attribution(lock);
        let renewed = found.and_then(|lease| lease.renewed);
        Self {
            name: &lock.lock.name,
            namespace: &lock.lock.namespace,
            migration_lock: !matches!(lock.role, LockRole::Main(_)),
            left_over: status.observed.leftover_locks().contains(&lock),
            state,
            reason,
            holder: lock.holder(),
            component_by_holder: attribution.by_holder.map(Component::name),
            component_by_field_manager: attribution.by_writer.map(Component::name),
            field_manager: found.and_then(|lease| lease.writer.as_deref()),
            transitions: found.map(|lease| lease.transitions),
            acquired: found.and_then(|lease| lease.acquired),
            renewed,
            age_seconds: renewed.map(|renewed| age(renewed, now).as_secs()),
            duration_seconds: found
                .and_then(|lease| lease.duration)
                .map(|duration| duration.as_secs()),
        }
    }
}
