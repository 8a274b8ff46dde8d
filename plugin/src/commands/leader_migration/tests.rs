//! Screens and documents of `leader-migration check`.

use kcp_rules::{
    leader_migration::{Component, ControllerManagerChange, ControllerManagers, Flags, Manager},
    topics::controller_managers::Unknown,
};

use super::{checked_upgrade::CheckedUpgrade, document::LeaderMigrationCheck, screen::render};
use crate::{
    document::Versioned,
    terminal::{plain, table::Layout},
    testing::{
        assert_every_format,
        schema::{checked_in, conforms},
    },
};

const FILE: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: ipam-migration
controllerLeaders:
- {name: node-ipam-controller, component: \"*\"}
";
const MIGRATE: &str = "--enable-leader-migration --leader-migration-config=f";

fn manager(component: Component, minor: u64, flags: &str) -> Manager {
    let command = format!("--allocate-node-cidrs --service-account-private-key-file=k {flags}");
    Manager::new(
        component,
        minor,
        Flags::from_command(command.split(' ')),
        Some(FILE),
    )
}

fn check(replicas: i64, now: (u64, &str), then: (u64, &str), cloud: Option<&str>) -> CheckedUpgrade {
    let kube = |(minor, flags)| manager(Component::Kube, minor, flags);
    CheckedUpgrade {
        name: "edge".to_owned(),
        namespace: "default".to_owned(),
        replicas: Some(replicas),
        change: ControllerManagerChange {
            before: ControllerManagers {
                kube: kube(now),
                cloud: None,
            },
            after: ControllerManagers {
                kube: kube(then),
                cloud: cloud.map(|flags| manager(Component::Cloud, then.0, flags)),
            },
        },
        unknown_clouds: Vec::new(),
    }
}

/// Upgrades, and whether each has a problem.
fn checks() -> Vec<(&'static str, CheckedUpgrade, bool)> {
    const NO_IPAM: &str = "--controllers=*,-node-ipam-controller";
    /// The cloud provider of GCP has Node IPAM.
    const GCP: &str = "--cloud-provider=gce";
    const GCP_MIGRATES: &str = "--cloud-provider=gce --enable-leader-migration --leader-migration-config=f";
    vec![
        (
            "a protected upgrade",
            check(3, (35, MIGRATE), (36, NO_IPAM), Some(GCP_MIGRATES)),
            false,
        ),
        (
            "1.36 cannot start",
            check(3, (35, MIGRATE), (36, MIGRATE), None),
            true,
        ),
        (
            "one Machine without leader migration",
            check(1, (35, ""), (36, NO_IPAM), Some(GCP)),
            true,
        ),
        ("no new owner", check(3, (35, MIGRATE), (36, NO_IPAM), None), true),
        ("switched off", check(3, (35, ""), (36, NO_IPAM), None), false),
        (
            "a provider that may have Node IPAM",
            CheckedUpgrade {
                unknown_clouds: vec![Unknown::StaticPod(2)],
                ..check(3, (35, ""), (36, ""), Some(""))
            },
            false,
        ),
        ("nothing to migrate", check(3, (35, ""), (36, ""), None), false),
    ]
}

#[test]
fn screens() {
    let layout = Layout {
        width: Some(120),
        ..Layout::default()
    };
    for (name, check, has_problem) in checks() {
        assert_eq!(check.has_problem(), has_problem, "{name}");
        insta::assert_snapshot!(name, plain(&render(&check, layout)));
    }
}

#[test]
fn documents() {
    for (name, check, _) in checks() {
        let document = LeaderMigrationCheck::new(&check);
        conforms(&document);
        assert_every_format(&check);
        let text = serde_json::to_string_pretty(&Versioned(&document)).unwrap();
        insta::assert_snapshot!(format!("JSON of {name}"), text);
    }
}

#[test]
fn the_schema_is_checked_in() {
    checked_in::<LeaderMigrationCheck>("leadermigrationcheck.json");
}
