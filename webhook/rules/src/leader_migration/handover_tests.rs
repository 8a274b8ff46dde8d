//! Which changes orphan a controller, and which only switch it off; and what messages show.

use super::{
    tests::{CLOUD, FILE, IPAM, NO_IPAM, cloud, kube, manager, pair},
    *,
};
use crate::leader_migration::Flags;

/// The rule is on `Pair::is_handover`.
#[test]
fn only_a_handover_orphans_a_controller_that_is_disabled() {
    use Phase::After;
    use UpgradeEffect::{NothingToMigrate, Orphaned, SwitchedOff};
    const MIGRATES: &str = "m node-ipam-controller";
    let plain = |flags: &[&str]| kube(35, flags, MIGRATES);
    let without_ipam = || cloud(35, &[], "");
    let with_ipam = || cloud(35, &[IPAM], "");
    for (case, now, then, expected) in [
        (
            "disabled before and after",
            (plain(&[IPAM, NO_IPAM]), None),
            (kube(36, &[IPAM, NO_IPAM], ""), None),
            NothingToMigrate,
        ),
        (
            "newly disabled, without a cloud",
            (plain(&[IPAM]), None),
            (plain(&[IPAM, NO_IPAM]), None),
            SwitchedOff,
        ),
        (
            "newly disabled by its own flag",
            (plain(&[IPAM]), None),
            (plain(&[]), None),
            SwitchedOff,
        ),
        (
            "newly disabled, beside a cloud-controller-manager that never had it",
            (plain(&[IPAM]), without_ipam()),
            (plain(&[IPAM, NO_IPAM]), without_ipam()),
            SwitchedOff,
        ),
        (
            "newly disabled in the cloud-controller-manager that runs it",
            (plain(&[IPAM, NO_IPAM]), with_ipam()),
            (plain(&[IPAM, NO_IPAM]), cloud(35, &[IPAM, NO_IPAM], "")),
            SwitchedOff,
        ),
        (
            "newly disabled, and leader migration ends",
            (plain(&[IPAM, FILE]), None),
            (plain(&[IPAM, NO_IPAM]), None),
            Orphaned(After),
        ),
        (
            "newly disabled, and a cloud-controller-manager comes without it",
            (plain(&[IPAM]), None),
            (plain(&[IPAM, NO_IPAM]), without_ipam()),
            Orphaned(After),
        ),
        (
            "newly disabled, and the cloud provider becomes external",
            (kube(30, &[IPAM, CLOUD], ""), None),
            (kube(30, &[IPAM, NO_IPAM, "--cloud-provider=external"], ""), None),
            Orphaned(After),
        ),
        (
            "the cloud-controller-manager that runs it goes",
            (plain(&[IPAM, NO_IPAM]), with_ipam()),
            (plain(&[IPAM, NO_IPAM]), None),
            Orphaned(After),
        ),
    ] {
        let rows = pair(now, then).rows();
        let verdict = rows.iter().find(|row| row.controller.short == "nodeipam");
        assert_eq!(verdict.map(|row| row.verdict), Some(expected), "{case}");
    }
}

/// Without leader election, a component runs on every Machine, before and after any change.
#[test]
fn a_change_of_a_component_without_leader_election_runs_nothing_twice() {
    const NONE: &str = "--leader-elect=false";
    let ipam = |now, then| pair(now, then).rows().last().map(|row| row.verdict);
    for (case, now, then, expected) in [
        (
            "no change",
            (kube(35, &[IPAM, NONE], ""), None),
            (kube(35, &[IPAM, NONE], ""), None),
            UpgradeEffect::NothingToMigrate,
        ),
        (
            "an upgrade",
            (kube(35, &[IPAM, NONE], ""), None),
            (kube(36, &[IPAM, NONE], ""), None),
            UpgradeEffect::NothingToMigrate,
        ),
        (
            "leader election starts",
            (kube(35, &[IPAM, NONE], ""), None),
            (kube(35, &[IPAM], ""), None),
            UpgradeEffect::NothingToMigrate,
        ),
        (
            "the other component starts",
            (kube(35, &[IPAM, NONE], ""), None),
            (kube(35, &[IPAM, NONE], ""), cloud(35, &[IPAM], "")),
            UpgradeEffect::RunsTwice(Phase::Rollout),
        ),
    ] {
        assert_eq!(ipam(now, then), Some(expected), "{case}");
    }
}

#[test]
fn a_cloud_provider_without_known_controllers_gives_no_certain_verdict() {
    let other = |flags: &[&str]| {
        let flags = [&["--cloud-provider=other"], flags].concat();
        Some(manager(Component::Cloud, 36, &flags, "m node-ipam-controller"))
    };
    let verdict = |now, then| pair(now, then).rows().last().map(|row| row.verdict);
    for (case, now, then, expected) in [
        (
            "it may run Node IPAM, too",
            (kube(35, &[IPAM], ""), None),
            (kube(36, &[IPAM], ""), other(&[IPAM])),
            UpgradeEffect::Unknown,
        ),
        (
            "it may be the new owner",
            (kube(35, &[IPAM, FILE], "m node-ipam-controller"), None),
            (kube(36, &[IPAM, NO_IPAM], ""), other(&[IPAM, FILE])),
            UpgradeEffect::Unknown,
        ),
        (
            "its flags name the controller",
            (kube(35, &[IPAM, FILE], "m node-ipam-controller"), None),
            (
                kube(36, &[IPAM, NO_IPAM], ""),
                other(&[IPAM, FILE, "--controllers=*,node-ipam-controller"]),
            ),
            UpgradeEffect::Protected,
        ),
        (
            "it allocates no addresses",
            (kube(35, &[IPAM], ""), None),
            (kube(36, &[IPAM], ""), other(&[])),
            UpgradeEffect::NothingToMigrate,
        ),
    ] {
        assert_eq!(verdict(now, then), Some(expected), "{case}");
    }
}

/// Flags and files are text of the user, which may be secret.
#[test]
fn messages_show_names_of_controllers_and_leases_alone() {
    const SECRET: &str = "s3cr3t";
    let configuration = format!(
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: {SECRET}_\n\
         controllerLeaders: [{{name: {SECRET}, component: \"*\"}}, {{name: {SECRET}, component: {SECRET}}}, {{name: nodeipam, \
         component: {SECRET}}}]"
    );
    let wrong_types =
        format!("apiVersion: {SECRET}\nkind: [{SECRET}]\nleaderName: {{{SECRET}: 1}}\n{SECRET}: {SECRET}");
    let mut shown = Vec::new();
    for (flags, file) in [
        (vec![("controllers", "*,-s3cr3t,-route")], None),
        (
            vec![("leader-elect", SECRET), ("enable-leader-migration", SECRET)],
            None,
        ),
        (
            vec![("cloud-provider", SECRET), ("feature-gates", "s3cr3t=true")],
            None,
        ),
        (
            vec![
                ("leader-elect-resource-lock", SECRET),
                ("leader-elect-lease-duration", SECRET),
            ],
            None,
        ),
        (
            vec![
                ("enable-leader-migration", "true"),
                ("leader-migration-config", SECRET),
            ],
            None,
        ),
        (vec![("leader-migration-config", SECRET)], None),
        (
            vec![
                ("enable-leader-migration", "true"),
                ("leader-migration-config", SECRET),
            ],
            Some(&configuration),
        ),
        (
            vec![
                ("enable-leader-migration", "true"),
                ("leader-migration-config", SECRET),
            ],
            Some(&wrong_types),
        ),
    ] {
        for component in [Component::Kube, Component::Cloud] {
            let mut flags = flags.clone();
            flags.push(("allocate-node-cidrs", "true"));
            let manager = Manager::new(component, 37, Flags::from_pairs(flags), file.map(String::as_str));
            let old = Manager {
                minor: 35,
                startup_errors: Vec::new(),
                ..manager.clone()
            };
            shown.extend(
                manager
                    .startup_errors
                    .iter()
                    .flat_map(|error| [error.to_string(), error.fix()]),
            );
            let findings = finding::findings([&old, &manager].into_iter());
            shown.extend(
                findings
                    .iter()
                    .flat_map(|finding| [finding.to_string(), finding.fix()]),
            );
        }
    }
    let secret: Vec<_> = shown.iter().filter(|text| text.contains(SECRET)).collect();
    assert_eq!(secret, Vec::<&String>::new());
    // Every kind of message was there.
    for text in [
        "not a boolean",
        "route in --controllers",
        "names nodeipam",
        "not a valid name",
        "names a controller more",
    ] {
        assert!(
            shown.iter().any(|shown| shown.contains(text)),
            "{text}: {shown:#?}"
        );
    }
}
