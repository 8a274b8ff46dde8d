use super::*;
use crate::leader_migration::Flags;

const KEY: &str = "--service-account-private-key-file=k";
const DEFAULT: &str = "--enable-leader-migration";
pub(super) const FILE: &str = "--enable-leader-migration --leader-migration-config=f";
pub(super) const IPAM: &str = "--allocate-node-cidrs";
pub(super) const NO_IPAM: &str = "--controllers=*,-node-ipam-controller";
pub(super) const CLOUD: &str = "--cloud-provider=demo";

/// `name=component` for each entry, after the name of the lock.
fn configuration(text: &str) -> String {
    let (leader_name, entries) = text.split_once(' ').unwrap_or((text, ""));
    let entries = entries.split_whitespace().map(|entry| {
        let (name, component) = entry.split_once('=').unwrap_or((entry, "*"));
        format!("- {{name: {name}, component: \"{component}\"}}\n")
    });
    format!(
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: \
         {leader_name}\ncontrollerLeaders:\n{}",
        entries.collect::<String>()
    )
}

pub(super) fn manager(component: Component, minor: u64, flags: &[&str], file: &str) -> Manager {
    let command = flags.join(" ");
    let flags = Flags::from_command(command.split(' ').chain([KEY]));
    Manager::new(component, minor, flags, Some(&configuration(file)))
}

pub(super) fn kube(minor: u64, flags: &[&str], file: &str) -> Manager {
    manager(Component::Kube, minor, flags, file)
}

#[expect(clippy::unnecessary_wraps, reason = "a control plane can have none")]
pub(super) fn cloud(minor: u64, flags: &[&str], file: &str) -> Option<Manager> {
    // This provider has Node IPAM.
    let flags = [&["--cloud-provider=gce"], flags].concat();
    Some(manager(Component::Cloud, minor, &flags, file))
}

pub(super) fn pair(
    now: (Manager, Option<Manager>),
    then: (Manager, Option<Manager>),
) -> ControllerManagerChange {
    let managers = |(kube, cloud)| ControllerManagers { kube, cloud };
    ControllerManagerChange {
        before: managers(now),
        after: managers(then),
    }
}

/// In the order of `CONTROLLERS`: route, service, cloud-node-lifecycle, Node IPAM.
fn verdicts(pair: &ControllerManagerChange) -> Vec<UpgradeEffect> {
    pair.rows().iter().map(|row| row.verdict).collect()
}

const BOTH: &str = "m route service cloud-node-lifecycle nodeipam node-route-controller service-lb-controller \
                    cloud-node-lifecycle-controller node-ipam-controller";

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn verdicts_on_upgrades_are_what_real_controller_managers_did() {
    use Phase::{After, Before, Rollout};
    use UpgradeEffect::{
        CannotStart, NothingToMigrate, Orphaned, Protected, RunsTwice, SwitchedOff, Unprotected,
    };
    const ALL: &[&str] = &[IPAM, CLOUD, FILE];
    let idle = [NothingToMigrate; 3];
    let ipam_only = |verdict| [idle.as_slice(), &[verdict]].concat();
    for (case, now, then, expected) in [
        (
            "fact 1: 1.36 exits with leader migration on",
            (kube(35, &[IPAM, FILE], "m node-ipam-controller"), None),
            (kube(36, &[IPAM, FILE], "m node-ipam-controller"), None),
            ipam_only(CannotStart(Component::Kube, After)),
        ),
        (
            "fact 13: Node IPAM from 1.35 to a cloud-controller-manager",
            (kube(35, &[IPAM, FILE], "m node-ipam-controller"), None),
            (
                kube(36, &[IPAM, NO_IPAM], ""),
                cloud(36, &[IPAM, FILE], "m node-ipam-controller"),
            ),
            ipam_only(Protected),
        ),
        (
            "fact 8: the default configuration protects one of four",
            (kube(30, &[IPAM, CLOUD, DEFAULT], ""), None),
            (kube(31, &[IPAM, NO_IPAM], ""), cloud(31, &[IPAM, DEFAULT], "")),
            vec![
                RunsTwice(Rollout),
                RunsTwice(Rollout),
                Protected,
                RunsTwice(Rollout),
            ],
        ),
        (
            "fact 8: both spellings protect all",
            (kube(30, ALL, BOTH), None),
            (kube(31, &[IPAM, NO_IPAM], ""), cloud(31, &[IPAM, FILE], BOTH)),
            vec![Protected; 4],
        ),
        (
            "fact 8: short names protect none at 1.28 and later",
            (
                kube(30, ALL, "m route service cloud-node-lifecycle nodeipam"),
                None,
            ),
            (
                kube(31, &[IPAM, NO_IPAM], ""),
                cloud(31, &[IPAM, FILE], "m route service cloud-node-lifecycle nodeipam"),
            ),
            vec![RunsTwice(Rollout); 4],
        ),
        (
            "names changed with 1.28: both spellings",
            (kube(27, ALL, BOTH), None),
            (kube(28, &[IPAM, NO_IPAM], ""), cloud(28, &[IPAM, FILE], BOTH)),
            vec![Protected; 4],
        ),
        (
            "fact 12: each configuration assigns to the other component",
            (
                kube(30, ALL, "m service-lb-controller=cloud-controller-manager"),
                None,
            ),
            (
                kube(31, &[IPAM], ""),
                cloud(31, &[FILE], "m service-lb-controller=kube-controller-manager"),
            ),
            vec![
                RunsTwice(Rollout),
                Orphaned(Before),
                RunsTwice(Rollout),
                Unprotected,
            ],
        ),
        (
            "the components of the KEP: first the one, then the other",
            (
                kube(
                    35,
                    &[IPAM, FILE],
                    "m node-ipam-controller=kube-controller-manager",
                ),
                None,
            ),
            (
                kube(36, &[NO_IPAM], ""),
                cloud(
                    36,
                    &[IPAM, FILE],
                    "m node-ipam-controller=cloud-controller-manager",
                ),
            ),
            ipam_only(Protected),
        ),
        (
            "fact 12: kube-controller-manager without the flag",
            (kube(30, &[IPAM, CLOUD], ""), cloud(31, &[IPAM, FILE], BOTH)),
            (kube(31, &[IPAM, NO_IPAM], ""), cloud(31, &[IPAM, FILE], BOTH)),
            vec![RunsTwice(Before); 4],
        ),
        (
            "fact 7: a name that no Lease can have",
            (kube(35, &[IPAM, FILE], "Bad_Name node-ipam-controller"), None),
            (kube(35, &[IPAM, FILE], "Bad_Name node-ipam-controller"), None),
            ipam_only(Orphaned(Before)),
        ),
        (
            "the cloud-controller-manager does not have the controller",
            (kube(35, &[IPAM, FILE], "m node-ipam-controller"), None),
            (
                kube(35, &[IPAM, FILE], "m node-ipam-controller"),
                cloud(36, &[FILE], "m node-ipam-controller"),
            ),
            ipam_only(Orphaned(After)),
        ),
        (
            "nothing starts a new owner, and nothing migrates",
            (kube(35, &[IPAM], ""), None),
            (kube(36, &[IPAM, NO_IPAM], ""), None),
            ipam_only(SwitchedOff),
        ),
        (
            "two leader names",
            (kube(35, &[IPAM, FILE], "m node-ipam-controller"), None),
            (
                kube(36, &[NO_IPAM], ""),
                cloud(36, &[IPAM, FILE], "other node-ipam-controller"),
            ),
            ipam_only(RunsTwice(Rollout)),
        ),
        (
            "an upgrade without migration",
            (kube(35, &[IPAM], ""), None),
            (kube(36, &[IPAM], ""), None),
            ipam_only(NothingToMigrate),
        ),
        (
            "leader migration starts",
            (kube(35, &[IPAM], ""), None),
            (kube(35, &[IPAM, FILE], "m node-ipam-controller"), None),
            ipam_only(Protected),
        ),
        (
            "the default configuration, without a cloud",
            (kube(35, &[IPAM, DEFAULT], ""), None),
            (kube(35, &[IPAM, DEFAULT], ""), None),
            ipam_only(Unprotected),
        ),
        (
            "a flag that 1.37 does not know",
            (kube(36, &[IPAM, "--controllers=*,-route"], ""), None),
            (kube(37, &[IPAM, "--controllers=*,-route"], ""), None),
            ipam_only(CannotStart(Component::Kube, After)),
        ),
    ] {
        assert_eq!(verdicts(&pair(now, then)), expected, "{case}");
    }
}

#[test]
fn owners_are_listed_with_their_locks() {
    let file = "m node-ipam-controller";
    let pair = pair(
        (kube(35, &[IPAM, FILE], file), None),
        (kube(36, &[IPAM, NO_IPAM], ""), cloud(36, &[IPAM, FILE], file)),
    );
    let owner = |component, name: &str, is_migration_lock| Runner {
        component,
        lock: Lock {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
        },
        is_migration_lock,
    };
    let rows = pair.rows();
    let shown: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row.controller.short,
                row.runners_before.clone(),
                row.runners_after.clone(),
            )
        })
        .collect();
    let main = || vec![owner(Component::Cloud, "cloud-controller-manager", false)];
    assert_eq!(
        shown,
        [
            ("route", vec![], main()),
            ("service", vec![], main()),
            ("cloud-node-lifecycle", vec![], main()),
            (
                "nodeipam",
                vec![owner(Component::Kube, "m", true)],
                vec![owner(Component::Cloud, "m", true)]
            ),
        ]
    );
}

#[test]
fn gaps_follow_from_the_locks_that_are_taken() {
    let seconds = |gap: Gap| (gap.min.as_secs_f64(), gap.max.as_secs_f64());
    let file = "m node-ipam-controller";
    let migrating = pair(
        (kube(35, &[IPAM, FILE], file), None),
        (kube(36, &[IPAM, NO_IPAM], ""), cloud(36, &[IPAM, FILE], file)),
    )
    .gaps();
    assert_eq!(seconds(migrating.main), (13.0, 21.4));
    assert_eq!(migrating.migration.map(seconds), Some((28.0, 40.8)));
    assert_eq!(migrating.to_cloud.map(seconds), Some((13.0, 21.4)));
    let plain = pair((kube(35, &[], ""), None), (kube(36, &[], ""), None)).gaps();
    assert_eq!((plain.migration, plain.to_cloud), (None, None));
}

#[test]
fn settings_without_the_expected_effect_are_found() {
    use Component::{Cloud, Kube};
    let findings = |now: Manager, cloud: Option<Manager>| pair((now.clone(), None), (now, cloud)).findings();
    let kube35 = |flags: &[&str], file| kube(35, &[&[IPAM], flags].concat(), file);
    let lock = |namespace: &str, name: &str| Lock {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    for (manager, cloud, expected) in [
        (kube35(&[FILE], "m node-ipam-controller"), None, vec![]),
        (
            kube35(&[FILE], "m node-ipam-controller nodeipam route typo deployment"),
            None,
            vec![
                Caveat::UnknownName(Kube, "typo".to_owned()),
                Caveat::NotShared(Kube, "deployment".to_owned()),
            ],
        ),
        (
            kube35(&[FILE], "m nodeipam"),
            None,
            vec![
                Caveat::SelectsNothing(Kube, 35),
                Caveat::Alias {
                    component: Kube,
                    minor: 35,
                    entry: "nodeipam".to_owned(),
                    name: "node-ipam-controller",
                },
            ],
        ),
        (
            kube35(
                &[FILE],
                "m node-ipam-controller node-ipam-controller=cloud-controller-manager",
            ),
            None,
            vec![Caveat::Repeated(Kube, "node-ipam-controller".to_owned())],
        ),
        (
            kube35(&[DEFAULT], ""),
            None,
            vec![Caveat::SelectsNothing(Kube, 35)],
        ),
        (
            kube35(&["--leader-migration-config=f"], "m"),
            None,
            vec![Caveat::ConfigurationIgnored(Kube)],
        ),
        (
            kube35(&[DEFAULT, "--leader-elect=false"], ""),
            None,
            vec![Caveat::EnableIgnored(Kube)],
        ),
        (
            kube35(&[FILE], "m node-ipam-controller"),
            cloud(36, &[IPAM, FILE], "other node-ipam-controller"),
            vec![Caveat::DifferentLocks(
                lock("kube-system", "m"),
                lock("kube-system", "other"),
            )],
        ),
        (
            kube35(&[FILE], "m node-ipam-controller"),
            cloud(
                36,
                &[IPAM, FILE, "--leader-elect-resource-namespace=other"],
                "m node-ipam-controller",
            ),
            vec![Caveat::DifferentLocks(
                lock("kube-system", "m"),
                lock("other", "m"),
            )],
        ),
        (
            kube35(&[FILE], "Bad_Name node-ipam-controller"),
            None,
            vec![Caveat::LeaderNameInvalid(Kube)],
        ),
        (
            kube35(&[FILE], "kube-scheduler node-ipam-controller"),
            None,
            vec![Caveat::LeaderNameInUse(Kube, "kube-scheduler".to_owned())],
        ),
        (
            kube35(&[FILE], "provider node-ipam-controller"),
            cloud(
                36,
                &[IPAM, FILE, "--leader-elect-resource-name=provider"],
                "provider node-ipam-controller",
            ),
            vec![
                Caveat::LeaderNameInUse(Kube, "provider".to_owned()),
                Caveat::LeaderNameInUse(Cloud, "provider".to_owned()),
            ],
        ),
    ] {
        assert_eq!(findings(manager, cloud), expected);
    }
}
