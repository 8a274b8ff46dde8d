//! Decides which Leases are locks of controller managers, whether each lock is held, and by which component.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kcp_rules::leader_migration::{Component, LeaderMigrationConfiguration, Lock, Manager};

use super::observed::{LockRole, ObservedLease, ObservedLock, ObservedManager, ObservedManagers};
use crate::{snapshot::Failure, staleness::age};

/// The namespace of the Leases, unless a flag names another namespace.
const DEFAULT_NAMESPACE: &str = "kube-system";

const COMPONENTS: [Component; 2] = [Component::Kube, Component::Cloud];

/// Whether a lock of a controller manager is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockState<'l> {
    Unread(&'l Failure),
    /// The Lease of the lock does not exist.
    Absent,
    /// The Lease of the lock has no holder.
    Free,
    Held {
        holder: &'l str,
    },
    /// The holder has not renewed the Lease within its duration.
    Expired {
        holder: &'l str,
        /// The time since the holder last renewed the Lease. `None` if the Lease does not contain the time.
        age: Option<Duration>,
    },
}

/// The component that holds a lock, according to two sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The component whose main lock has the same holder, because a controller manager uses one identity for all its locks.
    pub by_holder: Option<Component>,
    /// The component whose main lock was written by the same field manager.
    pub by_writer: Option<Component>,
}

/// Returns the locks of controller managers: the main lock of each component, even if the component has no
/// Pod, and the migration locks. If no controller manager uses leader migration, the migration lock is the
/// lock of the default configuration, which an earlier migration may have left behind.
pub fn locks(managers: &[ObservedManager]) -> Vec<(LockRole, Lock)> {
    let component_managers = |component| {
        let of_component = managers
            .iter()
            .filter(move |manager| manager.component == component);
        of_component.filter_map(ObservedManager::known_manager)
    };
    let mut found: Vec<(LockRole, Lock)> = Vec::new();
    let mut add = |role, lock| {
        if !found.iter().any(|(_, known)| *known == lock) {
            found.push((role, lock));
        }
    };
    for component in COMPONENTS {
        let mut main: Vec<Lock> = component_managers(component).map(Manager::main_lock).collect();
        if main.is_empty() {
            main.push(lock_named(component.name()));
        }
        for lock in main {
            add(LockRole::Main(component), lock);
        }
    }
    let mut migration: Vec<Lock> = COMPONENTS
        .into_iter()
        .flat_map(component_managers)
        .filter_map(Manager::migration_lock)
        .collect();
    if migration.is_empty() {
        let default = LeaderMigrationConfiguration::default_at(0).leader_name;
        migration.push(lock_named(&default));
    }
    for lock in migration {
        add(LockRole::Migration, lock);
    }
    found
}

/// Returns the Leases that controller managers wrote, except the Leases of `locks`. A field manager counts as
/// a controller manager if it wrote a main lock, or if it has the name of a component.
pub fn unused_locks(
    locks: &[ObservedLock],
    leases: impl IntoIterator<Item = (Lock, ObservedLease)>,
) -> Vec<ObservedLock> {
    let main = locks.iter().filter(|lock| matches!(lock.role, LockRole::Main(_)));
    let mut writers: BTreeSet<&str> = main.filter_map(ObservedLock::writer).collect();
    writers.extend(COMPONENTS.map(Component::name));
    let leases = leases.into_iter().filter(|(lock, lease)| {
        let is_written = lease
            .writer
            .as_deref()
            .is_some_and(|writer| writers.contains(writer));
        is_written && !locks.iter().any(|known| known.lock == *lock)
    });
    let unused = leases.map(|(lock, lease)| ObservedLock {
        role: LockRole::Unused,
        lock,
        lease: Ok(Some(lease)),
    });
    unused.collect()
}

fn lock_named(name: &str) -> Lock {
    Lock {
        namespace: DEFAULT_NAMESPACE.to_owned(),
        name: name.to_owned(),
    }
}

impl ObservedLock {
    pub fn state(&self, now: Timestamp) -> LockState<'_> {
        let lease = match &self.lease {
            Err(failure) => return LockState::Unread(failure),
            Ok(None) => return LockState::Absent,
            Ok(Some(lease)) => lease,
        };
        let Some(holder) = lease.holder.as_deref() else {
            return LockState::Free;
        };
        let age = lease.renewed.map(|renewed| age(renewed, now));
        match (age, lease.duration) {
            (Some(age), Some(duration)) if age <= duration => LockState::Held { holder },
            _ => LockState::Expired { holder, age },
        }
    }

    pub fn holder(&self) -> Option<&str> {
        self.lease.as_ref().ok()?.as_ref()?.holder.as_deref()
    }

    fn writer(&self) -> Option<&str> {
        self.lease.as_ref().ok()?.as_ref()?.writer.as_deref()
    }
}

impl ObservedManagers {
    /// The Leases that an earlier migration left behind: no controller manager uses them, and no process renews them. `None` if
    /// the settings of a controller manager are unknown.
    pub fn leftover_locks(&self) -> Vec<&ObservedLock> {
        let managers: Option<Vec<&Manager>> = self
            .managers()
            .iter()
            .map(ObservedManager::known_manager)
            .collect();
        let Some(managers) = managers.filter(|managers| !managers.is_empty()) else {
            return Vec::new();
        };
        let is_used = |lock: &Lock| {
            let mut used = managers.iter().filter_map(|manager| manager.migration_lock());
            used.any(|used| used == *lock)
        };
        let locks = self.locks.iter().filter(|lock| {
            let state = lock.state(self.now);
            let is_stale = matches!(state, LockState::Expired { .. } | LockState::Free);
            !matches!(lock.role, LockRole::Main(_)) && is_stale && !is_used(&lock.lock)
        });
        locks.collect()
    }

    /// Finds out which component holds a lock.
    pub fn attribution(&self, lock: &ObservedLock) -> Attribution {
        Attribution {
            by_holder: self.only_component_with(lock.holder(), ObservedLock::holder),
            by_writer: self.only_component_with(lock.writer(), ObservedLock::writer),
        }
    }

    /// The component whose main lock has this value. `None` unless exactly one component has it.
    fn only_component_with(
        &self,
        value: Option<&str>,
        of: impl Fn(&ObservedLock) -> Option<&str>,
    ) -> Option<Component> {
        let value = value?;
        let mut found = self.locks.iter().filter_map(|lock| match lock.role {
            LockRole::Main(component) => (of(lock) == Some(value)).then_some(component),
            LockRole::Migration | LockRole::Unused => None,
        });
        let first = found.next()?;
        found.all(|other| other == first).then_some(first)
    }
}

impl Attribution {
    /// The component that holds the lock. `None` if the two sources contradict each other. If the Lease
    /// does not say which field manager wrote it, the holder alone decides.
    pub fn component(self) -> Option<Component> {
        match (self.by_holder, self.by_writer) {
            (Some(holder), Some(writer)) if holder != writer => None,
            (holder, _) => holder,
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_rules::leader_migration::{
        Component::{Cloud, Kube},
        Flags,
    };

    use super::*;
    use crate::leader_migration::{
        observed::{Health, Settings, SettingsSource},
        served,
    };

    fn now() -> Timestamp {
        "2026-11-22T12:00:00Z".parse().unwrap()
    }

    fn lock(role: LockRole, holder: &str, writer: &str, seconds: i64) -> ObservedLock {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ObservedLock {
            role,
            lock: lock_named("any"),
            lease: Ok(Some(ObservedLease {
                holder: text(holder),
                writer: text(writer),
                renewed: now().checked_sub(jiff::SignedDuration::from_secs(seconds)).ok(),
                duration: Some(Duration::from_secs(15)),
                ..ObservedLease::default()
            })),
        }
    }

    #[test]
    fn a_lock_expires_after_its_duration() {
        let state = |seconds| {
            let lock = lock(LockRole::Migration, "a_1", "", seconds);
            format!("{:?}", lock.state(now()))
        };
        assert_eq!(state(15), "Held { holder: \"a_1\" }");
        assert_eq!(state(16), "Expired { holder: \"a_1\", age: Some(16s) }");
        // The clock of the holder is ahead.
        assert_eq!(state(-5), "Held { holder: \"a_1\" }");
        assert_eq!(lock(LockRole::Migration, "", "", 1).state(now()), LockState::Free);
        let absent = ObservedLock {
            lease: Ok(None),
            ..lock(LockRole::Migration, "", "", 0)
        };
        assert_eq!(absent.state(now()), LockState::Absent);
    }

    #[test]
    fn the_holder_and_the_field_manager_name_the_component() {
        for (holder, writer, by_holder, by_writer, component) in [
            ("a_1", "kcm", Some(Kube), Some(Kube), Some(Kube)),
            ("b_2", "ccm", Some(Cloud), Some(Cloud), Some(Cloud)),
            ("b_2", "", Some(Cloud), None, Some(Cloud)),
            ("b_2", "kcm", Some(Cloud), Some(Kube), None),
            ("c_3", "ccm", None, Some(Cloud), None),
            ("", "", None, None, None),
        ] {
            let observed = ObservedManagers {
                now: now(),
                managers: Ok(Vec::new()),
                locks: vec![
                    lock(LockRole::Main(Kube), "a_1", "kcm", 1),
                    lock(LockRole::Main(Cloud), "b_2", "ccm", 1),
                ],
            };
            let found = observed.attribution(&lock(LockRole::Migration, holder, writer, 1));
            assert_eq!(found, Attribution { by_holder, by_writer }, "{holder} {writer}");
            assert_eq!(found.component(), component, "{holder} {writer}");
        }
    }

    #[test]
    fn a_lease_that_a_controller_manager_wrote_is_a_lock() {
        let named_lease = |name: &str, writer: &str| {
            let lease = lock(LockRole::Unused, "a_1", writer, 60).lease.unwrap().unwrap();
            (lock_named(name), lease)
        };
        let locks = [
            lock(LockRole::Main(Kube), "a_1", "kcm", 1),
            lock(LockRole::Migration, "a_1", "migrating", 1),
        ];
        let leases = [
            named_lease("any", "kcm"),
            named_lease("by-kcm", "kcm"),
            named_lease("by-name", "cloud-controller-manager"),
            named_lease("by-another", "migrating"),
            named_lease("by-nothing", ""),
        ];
        let found = unused_locks(&locks, leases).into_iter();
        let found: Vec<_> = found.map(|lock| (lock.role, lock.lock.name)).collect();
        let expected = ["by-kcm", "by-name"].map(|name| (LockRole::Unused, name.to_owned()));
        assert_eq!(found, expected);
    }

    fn cloud(settings: Settings) -> ObservedManager {
        ObservedManager {
            component: Cloud,
            namespace: DEFAULT_NAMESPACE.to_owned(),
            pod: "ccm".to_owned(),
            node: "n1".to_owned(),
            minor: Some(36),
            health: Health::Down("CrashLoopBackOff".to_owned()),
            settings,
        }
    }

    #[test]
    fn a_lease_is_left_over_if_nothing_uses_and_renews_it() {
        let known = |flags: &str| {
            let flags = Flags::from_command(flags.split(' '));
            let file = "{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, leaderName: any, \
                        controllerLeaders: []}";
            cloud(Settings {
                source: SettingsSource::Configz,
                described: Ok(served::manager(Cloud, Some(36), flags, Some(file))),
                unverified_reason: None,
            })
        };
        let off = || known("--controllers=*");
        let migrating = || known("--enable-leader-migration --leader-migration-config=f");
        for (role, managers, seconds, expected) in [
            (LockRole::Unused, vec![off()], 16, true),
            (LockRole::Migration, vec![off()], 16, true),
            (LockRole::Unused, vec![off()], 15, false),
            (LockRole::Main(Cloud), vec![off()], 16, false),
            (LockRole::Unused, vec![off(), migrating()], 16, false),
            (
                LockRole::Unused,
                vec![off(), cloud(Settings::unknown("no response"))],
                16,
                false,
            ),
            (LockRole::Unused, vec![], 16, false),
        ] {
            let case = format!("{role:?} {seconds} {managers:?}");
            let observed = ObservedManagers {
                now: now(),
                managers: Ok(managers),
                locks: vec![lock(role, "a_1", "ccm", seconds)],
            };
            assert_eq!(!observed.leftover_locks().is_empty(), expected, "{case}");
        }
    }

    #[test]
    fn without_managers_the_default_locks_matter() {
        let found: Vec<_> = locks(&[]).into_iter().map(|(_, lock)| lock.name).collect();
        assert_eq!(
            found,
            [
                "kube-controller-manager",
                "cloud-controller-manager",
                "cloud-provider-extraction-migration"
            ]
        );
    }
}
