//! Screens, documents and watch lines of `leader-migration status`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kcp_control_plane::{
    leader_migration::{
        Health, LockRole, ObservedLease, ObservedLock, ObservedManager, Settings, SettingsSource, locks,
        served,
    },
    snapshot::Failure,
};
use kcp_rules::leader_migration::{
    Component::{self, Cloud, Kube},
    Flags,
};

use super::{ObservedManagers, Status, Verdict, document::LeaderMigrationStatus};
use crate::{
    document::Versioned,
    output::Report as _,
    terminal::{plain, table::Layout},
    testing::{
        assert_every_format,
        schema::{checked_in, conforms},
    },
    watch::Observation as _,
};

const FILE: &str = "{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, \
                    leaderName: ipam-migration, controllerLeaders: [{name: node-ipam-controller, component: \"*\"}]}";

fn now() -> Timestamp {
    "2026-11-22T12:00:00Z".parse().unwrap()
}

fn manager(component: Component, flags: &str, started: &[&str], source: SettingsSource) -> ObservedManager {
    let (pod, unverified) = match component {
        Kube => ("kube-controller-manager-edge-x7k2p", None),
        Cloud => (
            "cloud-controller-manager-9hq2t",
            Some("GET /configz: not served".to_owned()),
        ),
    };
    ObservedManager {
        component,
        namespace: "kube-system".to_owned(),
        pod: pod.to_owned(),
        node: "edge-x7k2p".to_owned(),
        minor: Some(36),
        health: Health::Serves(started.iter().map(|name| (*name).to_owned()).collect()),
        settings: Settings {
            source,
            described: Ok(served::manager(
                component,
                Some(36),
                Flags::from_command(flags.split(' ')),
                Some(FILE),
            )),
            unverified_reason: unverified,
        },
    }
}

/// After an upgrade, cloud-controller-manager allocates Node CIDRs. `renewed` is the age of the migration Lease in seconds.
fn migrated(renewed: i64, started: &[&str]) -> Status {
    let managers = vec![
        manager(
            Kube,
            "--allocate-node-cidrs --controllers=*,-nodeipam",
            &["serviceaccount-token-controller", "ttl-controller"],
            SettingsSource::Configz,
        ),
        manager(
            Cloud,
            "--allocate-node-cidrs --controllers=nodeipam --enable-leader-migration --leader-migration-config=f",
            started,
            SettingsSource::Pod,
        ),
    ];
    let leases = locks(&managers).into_iter().map(|(role, lock)| {
        let (holder, writer, seconds) = match role {
            LockRole::Main(Kube) => ("edge-x7k2p_11", "kube-controller-manager", 1),
            LockRole::Main(Cloud) => ("edge-x7k2p_22", "cloud-controller-manager", 2),
            LockRole::Migration | LockRole::Unused => ("edge-x7k2p_22", "cloud-controller-manager", renewed),
        };
        let lease = ObservedLease {
            holder: Some(holder.to_owned()),
            writer: Some(writer.to_owned()),
            transitions: 3,
            acquired: "2026-11-22T11:00:00Z".parse().ok(),
            renewed: now().checked_sub(SignedDuration::from_secs(seconds)).ok(),
            duration: Some(Duration::from_secs(15)),
        };
        ObservedLock {
            role,
            lock,
            lease: Ok(Some(lease)),
        }
    });
    let observed = ObservedManagers {
        now: now(),
        locks: leases.collect(),
        managers: Ok(managers),
    };
    Status::new("default", "edge", observed)
}

fn protected() -> Status {
    migrated(2, &["node-ipam-controller"])
}

/// After `finish`, the migration Lease still exists.
fn finished() -> Status {
    let mut observed = migrated(3600, &["node-ipam-controller"]).observed;
    if let Some(lock) = observed.locks.last_mut() {
        lock.role = LockRole::Unused;
    }
    if let Ok(managers) = &mut observed.managers
        && let Some(cloud) = managers.last_mut()
    {
        let flags = "--allocate-node-cidrs --controllers=nodeipam";
        *cloud = manager(Cloud, flags, &["node-ipam-controller"], SettingsSource::Pod);
    }
    Status::new("default", "edge", observed)
}

fn unread() -> Status {
    let failure = Failure {
        object: "Secret/edge-kubeconfig".to_owned(),
        message: "not found in namespace default".to_owned(),
        hint: Some("list Secrets with: kubectl get secrets".to_owned()),
        ..Failure::default()
    };
    let observed = ObservedManagers {
        now: now(),
        managers: Err(failure),
        locks: Vec::new(),
    };
    Status::new("default", "edge", observed)
}

fn statuses() -> [(&'static str, Status, Verdict); 5] {
    [
        ("protected", protected(), Verdict::Met),
        ("orphaned", migrated(2, &[]), Verdict::Negative),
        (
            "stale",
            migrated(60, &["node-ipam-controller"]),
            Verdict::Negative,
        ),
        ("finished", finished(), Verdict::Met),
        ("unread", unread(), Verdict::Undecided),
    ]
}

#[test]
fn screens() {
    let layout = Layout {
        width: Some(140),
        ..Layout::default()
    };
    for (name, status, outcome) in statuses() {
        assert_eq!(status.outcome(), outcome, "{name}");
        insta::assert_snapshot!(name, plain(&status.table(layout)));
    }
}

#[test]
fn documents() {
    for (name, status, _) in statuses() {
        let document = LeaderMigrationStatus::new(&status);
        conforms(&document);
        assert_every_format(&status);
        let text = serde_json::to_string_pretty(&Versioned(&document)).unwrap();
        insta::assert_snapshot!(format!("JSON of {name}"), text);
    }
}

#[test]
fn the_schema_is_checked_in() {
    checked_in::<LeaderMigrationStatus<'_>>("leadermigrationstatus.json");
}

#[test]
fn a_watch_prints_what_changes() {
    let first = Status::changes(None, &protected());
    assert_eq!(first.first().map(String::as_str), Some("protected"));
    assert_eq!(
        Status::changes(Some(&protected()), &migrated(5, &["node-ipam-controller"])),
        Vec::<String>::new()
    );
    assert_eq!(
        Status::changes(Some(&protected()), &migrated(60, &[])),
        [
            "protected -> stale",
            "node-ipam-controller: stale, run by no Pod",
            "Lease ipam-migration: expired, edge-x7k2p_22",
        ]
    );
}
