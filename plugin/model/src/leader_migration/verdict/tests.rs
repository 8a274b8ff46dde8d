//! The verdict on Node IPAM, for controller managers and Leases.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kcp_rules::leader_migration::{
    Component::{Cloud, Kube},
    Flags,
};

use super::*;
use crate::{
    leader_migration::observed::{ObservedLease, ObservedLock, Settings, SettingsSource},
    leader_migration::{locks, served},
    snapshot::Failure,
};

const IPAM: &str = "node-ipam-controller";
const NO_IPAM: &str = "--controllers=cloud-node-controller";
const MIGRATE: &str = "--enable-leader-migration --leader-migration-config=f";

fn now() -> Timestamp {
    "2026-11-22T12:00:00Z".parse().unwrap()
}

/// A configuration that gives Node IPAM to a component.
fn configuration(name: &str, component: &str) -> String {
    format!(
        "{{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, leaderName: m, \
         controllerLeaders: [{{name: {name}, component: \"{component}\"}}]}}"
    )
}

fn started(names: &[&str]) -> Health {
    Health::Serves(names.iter().map(|name| (*name).to_owned()).collect())
}

fn down() -> Health {
    Health::Down("connection refused".to_owned())
}

/// A controller manager in the Pod `kcm` or `ccm`, with the file of its leader migration configuration.
fn manager(component: Component, minor: u64, flags: &str, file: &str, health: Health) -> ObservedManager {
    let mut command = format!("--allocate-node-cidrs {flags}");
    if component == Cloud && !flags.contains("--controllers") {
        // Without the cloud loops, which would have verdicts of their own.
        command.push_str(" --controllers=node-ipam-controller");
    }
    let manager = served::manager(
        component,
        Some(minor),
        Flags::from_command(command.split(' ')),
        Some(file),
    );
    ObservedManager {
        component,
        namespace: "kube-system".to_owned(),
        pod: if component == Kube { "kcm" } else { "ccm" }.to_owned(),
        node: "n1".to_owned(),
        minor: Some(minor),
        health,
        settings: Settings {
            source: SettingsSource::Configz,
            described: Ok(manager),
            unverified_reason: None,
        },
    }
}

fn kube(flags: &str, health: Health) -> ObservedManager {
    manager(Kube, 36, flags, &configuration(IPAM, "*"), health)
}

fn cloud(flags: &str, health: Health) -> ObservedManager {
    manager(Cloud, 36, flags, &configuration(IPAM, "*"), health)
}

/// A Lease with this holder that was renewed this number of seconds ago.
#[expect(
    clippy::unnecessary_wraps,
    reason = "a Lease may not exist, and every case needs the same type"
)]
fn lease(holder: &str, seconds: i64) -> Option<ObservedLease> {
    Some(ObservedLease {
        holder: Some(holder.to_owned()),
        renewed: now().checked_sub(SignedDuration::from_secs(seconds)).ok(),
        duration: Some(Duration::from_secs(15)),
        ..ObservedLease::default()
    })
}

/// The main Leases are renewed by each manager that serves; `migration` is the Lease of the migration lock.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a case is easier to read without references"
)]
fn observed(managers: Vec<ObservedManager>, migration: Option<ObservedLease>) -> ObservedManagers {
    let locks = locks(&managers).into_iter().map(|(role, lock)| {
        let serves = |component| {
            let mut candidates = managers
                .iter()
                .filter(|manager: &&ObservedManager| manager.component == component);
            candidates.any(|manager| matches!(manager.health, Health::Serves(_)))
        };
        let found = match role {
            LockRole::Main(component) if serves(component) => {
                lease(if component == Kube { "kube_1" } else { "cloud_2" }, 2)
            }
            LockRole::Main(_) => None,
            LockRole::Migration | LockRole::Unused => migration.clone(),
        };
        ObservedLock {
            role,
            lock,
            lease: Ok(found),
        }
    });
    ObservedManagers {
        now: now(),
        locks: locks.collect(),
        managers: Ok(managers),
    }
}

fn node_ipam(observed: &ObservedManagers) -> Decision {
    let decisions = decide(observed);
    let found = decisions
        .into_iter()
        .find(|decision| decision.controller.canonical == IPAM);
    found.unwrap()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn evidence_from_both_managers_and_all_leases_decides() {
    let of_kube = configuration(IPAM, "kube-controller-manager");
    let short = configuration("nodeipam", "*");
    let cases: Vec<(&str, ObservedManagers, MigrationState, &str)> = vec![
        (
            "the holder of the migration lock runs it",
            observed(
                vec![kube(NO_IPAM, started(&[])), cloud(MIGRATE, started(&[IPAM]))],
                lease("cloud_2", 2),
            ),
            MigrationState::Protected,
            "ccm runs the controller and holds Lease m",
        ),
        (
            "its short name in an old version",
            observed(
                vec![manager(Kube, 27, MIGRATE, &short, started(&["nodeipam"]))],
                lease("kube_1", 2),
            ),
            MigrationState::Protected,
            "kcm runs the controller and holds Lease m",
        ),
        (
            "no leader migration",
            observed(vec![kube("", started(&[IPAM]))], None),
            MigrationState::NothingToMigrate,
            "kcm runs the controller, and no other controller manager can run it",
        ),
        (
            "a migrating kube-controller-manager and a configuration that does not name it",
            observed(
                vec![
                    manager(Kube, 35, MIGRATE, &short, started(&[IPAM])),
                    cloud(&format!("{MIGRATE} {NO_IPAM}"), started(&[])),
                ],
                lease("cloud_2", 2),
            ),
            MigrationState::Unprotected,
            "kcm runs the controller under its main lock, Lease kube-controller-manager, although leader \
             migration is enabled",
        ),
        (
            "the other one would run it when it starts",
            observed(
                vec![kube("", down()), cloud(MIGRATE, started(&[IPAM]))],
                lease("cloud_2", 2),
            ),
            MigrationState::Unprotected,
            "ccm runs the controller under the migration lock, but kcm would run the controller without that lock",
        ),
        (
            "a migration Lease without holder",
            observed(
                vec![kube(NO_IPAM, started(&[])), cloud(MIGRATE, started(&[IPAM]))],
                None,
            ),
            MigrationState::Unprotected,
            "ccm runs the controller, but Lease m has no holder",
        ),
        (
            "both run it",
            observed(
                vec![kube("", started(&[IPAM])), cloud(MIGRATE, started(&[IPAM]))],
                lease("cloud_2", 2),
            ),
            MigrationState::RunsTwice,
            "kcm and ccm run the controller at the same time",
        ),
        (
            "a fresh Lease, and a configuration that assigns it to the other one",
            observed(
                vec![
                    kube(NO_IPAM, started(&[])),
                    manager(Cloud, 36, MIGRATE, &of_kube, started(&["cloud-node-controller"])),
                ],
                lease("cloud_2", 2),
            ),
            MigrationState::Orphaned,
            "the configuration of ccm assigns the controller to another component",
        ),
        (
            "a lock that cannot be taken",
            observed(
                vec![kube(NO_IPAM, started(&[])), cloud(MIGRATE, started(&[]))],
                None,
            ),
            MigrationState::Orphaned,
            "ccm is healthy, but has not acquired Lease m, which has no holder",
        ),
        (
            "a lock with another holder",
            observed(
                vec![kube(NO_IPAM, started(&[])), cloud(MIGRATE, started(&[]))],
                lease("stranger_3", 2),
            ),
            MigrationState::Orphaned,
            "stranger_3 renews Lease m and is not a controller manager of this cluster; ccm waits for that Lease",
        ),
        (
            "a lock that the other component holds",
            observed(
                vec![
                    kube(&format!("{MIGRATE} {NO_IPAM}"), started(&[])),
                    cloud(MIGRATE, started(&[])),
                ],
                lease("kube_1", 2),
            ),
            MigrationState::Orphaned,
            "kube-controller-manager renews Lease m but does not run the controller; ccm would run the controller if \
             it held that Lease",
        ),
        (
            "the holder has not started it",
            observed(
                vec![kube(NO_IPAM, started(&[])), cloud(MIGRATE, started(&[]))],
                lease("cloud_2", 2),
            ),
            MigrationState::Orphaned,
            "cloud-controller-manager renews Lease m, but ccm has not started the controller",
        ),
        (
            "a holder that has just ended",
            observed(
                vec![kube(NO_IPAM, started(&[])), cloud(MIGRATE, down())],
                lease("cloud_2", 10),
            ),
            MigrationState::Orphaned,
            "ccm does not run: connection refused",
        ),
        (
            "a holder that ended",
            observed(
                vec![kube(NO_IPAM, started(&[])), cloud(MIGRATE, down())],
                lease("cloud_2", 60),
            ),
            MigrationState::Stale,
            "cloud_2 has not renewed Lease m for 1m, and no controller manager runs the controller",
        ),
        (
            "a holder that runs it and does not renew",
            observed(
                vec![kube(NO_IPAM, started(&[])), cloud(MIGRATE, started(&[IPAM]))],
                lease("cloud_2", 60),
            ),
            MigrationState::Stale,
            "cloud_2 has not renewed Lease m for 1m, but ccm runs the controller",
        ),
        (
            "no controller manager has this controller",
            observed(vec![kube(NO_IPAM, started(&[]))], None),
            MigrationState::NothingToMigrate,
            "no controller manager has this controller",
        ),
    ];
    for (case, observed, verdict, reason) in cases {
        let decision = node_ipam(&observed);
        assert_eq!(decision.reason.to_string(), reason, "{case}");
        assert_eq!(decision.verdict(), verdict, "{case}");
        assert_eq!(overall(&decide(&observed)), verdict, "{case}");
    }
}

#[test]
fn a_source_that_was_not_read_never_leads_to_success() {
    let failure = || Failure {
        object: "Pod".to_owned(),
        message: "cannot list pods".to_owned(),
        hint: None,
        ..Failure::default()
    };
    let protected = || {
        observed(
            vec![kube(NO_IPAM, started(&[])), cloud(MIGRATE, started(&[IPAM]))],
            lease("cloud_2", 2),
        )
    };
    let changed = |change: fn(&mut ObservedManagers)| {
        let mut observed = protected();
        change(&mut observed);
        observed
    };
    let manager = |observed: &mut ObservedManagers, index: usize, change: fn(&mut ObservedManager)| {
        change(&mut observed.managers.as_mut().unwrap()[index]);
    };
    let mut no_health = protected();
    manager(&mut no_health, 0, |kube| {
        kube.health = Health::Unread("timed out".to_owned());
    });
    let mut no_settings = protected();
    manager(&mut no_settings, 1, |cloud| {
        cloud.settings.described = Err("forbidden".to_owned());
    });
    let mut no_settings_of_other = protected();
    manager(&mut no_settings_of_other, 0, |kube| {
        kube.settings.described = Err("forbidden".to_owned());
    });
    let mut no_pods = protected();
    no_pods.managers = Err(failure());
    let mut no_lease = protected();
    no_lease.locks.last_mut().unwrap().lease = Err(failure());
    for (observed, reason) in [
        (no_health, "could not read which controllers kcm runs: timed out"),
        (no_settings, "could not read the settings of ccm: forbidden"),
        (
            no_settings_of_other,
            "could not read the settings of kcm: forbidden",
        ),
        (no_pods, "could not read Pod: cannot list pods"),
        (no_lease, "could not read Lease m: cannot list pods"),
        (
            changed(|observed| drop(observed.managers.as_mut().unwrap().pop())),
            "cloud_2 renews Lease cloud-controller-manager, but no Pod of cloud-controller-manager was found",
        ),
        (
            changed(|observed| observed.locks.last_mut().unwrap().lease = Ok(lease("stranger_3", 1))),
            "ccm runs the controller, but Lease m seems to be held by another process: stranger_3 holds it, but does not hold \
             ccm's main lock",
        ),
        (
            // The field manager that wrote the holder contradicts the holder's identity.
            changed(|observed| {
                for (index, writer) in ["kcm", "ccm", "kcm"].into_iter().enumerate() {
                    let lease = observed.locks[index].lease.as_mut().unwrap();
                    lease.as_mut().unwrap().writer = Some(writer.to_owned());
                }
            }),
            "ccm runs the controller, but Lease m seems to be held by another process: cloud_2 holds it, but does not hold ccm's \
             main lock",
        ),
    ] {
        let decision = node_ipam(&observed);
        assert_eq!(decision.reason.to_string(), reason);
        assert_eq!(decision.verdict(), MigrationState::Unknown, "{reason}");
        assert!(overall(&decide(&observed)) >= MigrationState::Unknown, "{reason}");
    }
}
