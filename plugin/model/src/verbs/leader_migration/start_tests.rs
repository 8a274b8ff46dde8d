//! What `start` decides about control planes, depending on the reports of their controller managers.

use kcp_rules::view::View;

use super::*;
use crate::{
    leader_migration::{Health, ObservedManager, ObservedManagers},
    snapshot::Failure,
    testing::objects::now,
    verbs::leader_migration::testing::{
        LEADER, cloud, handed_over, kube, migrating, observed, snapshot, take, three,
    },
};

/// The same control plane after the configuration was installed.
fn installed() -> ChangeSnapshot {
    let snapshot = snapshot("v1.35.4");
    let written = decision(&snapshot, &observed(Vec::new(), None), &[]);
    take(snapshot, &written)
}

fn decision(snapshot: &ChangeSnapshot, observed: &ObservedManagers, missing: &[String]) -> Decision {
    let options = StartOptions {
        to: 36,
        migrates_node_ipam: true,
        leader_name: LEADER,
        facts: Facts {
            observed,
            missing_permissions: missing,
        },
    };
    decided(snapshot, options)
}

fn decided(snapshot: &ChangeSnapshot, options: StartOptions<'_>) -> Decision {
    let context = ReviewContext {
        now: now(),
        field_manager: "kubectl-kcp",
        view: &View::default(),
        configuration: None,
    };
    decide(snapshot, options, context).expect("decodes")
}

fn why(decision: Decision) -> Vec<String> {
    match decision {
        Decision::Refused(refusal) => refusal.why,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn versions_decide_whether_there_is_anything_to_migrate() {
    let no_managers = observed(Vec::new(), None);
    for (version, to, node_ipam, expected) in [
        (
            "v1.35.4",
            36,
            false,
            Ok(
                "nothing to migrate, because kube-controller-manager 1.35 runs no cloud controllers; \
                 to migrate Node IPAM, use --node-ipam",
            ),
        ),
        (
            "v1.36.0",
            37,
            true,
            Err(
                "kube-controller-manager 1.36 exits if leader migration is enabled, so it cannot hand over \
                 controllers; disable the cloud controllers with --controllers, then start cloud-controller-manager",
            ),
        ),
        (
            "v1.35.4",
            34,
            true,
            Err("the version after the upgrade, 1.34, is lower than the version before it, 1.35"),
        ),
    ] {
        let options = StartOptions {
            to,
            migrates_node_ipam: node_ipam,
            leader_name: LEADER,
            facts: Facts {
                observed: &no_managers,
                missing_permissions: &[],
            },
        };
        match (decided(&snapshot(version), options), expected) {
            (Decision::Unchanged(why), Ok(expected)) => assert_eq!(why, expected, "{version}"),
            (decision, Err(expected)) => assert_eq!(why(decision), [expected], "{version}"),
            (decision, Ok(_)) => panic!("{version}: {decision:?}"),
        }
    }
}

#[test]
fn the_configuration_is_installed_once_and_only_with_permissions() {
    let no_managers = observed(Vec::new(), None);
    let Decision::Write(proposal) = decision(&snapshot("v1.35.4"), &no_managers, &[]) else {
        panic!("not written");
    };
    assert_eq!(proposal.outcome, "leader migration enabled with Lease m");
    assert_eq!(
        proposal.event.note("alice"),
        "leader migration enabled by alice with Lease m"
    );
    let flags = "/spec/kubeadmConfigSpec/clusterConfiguration/controllerManager/extraArgs/0";
    assert_eq!(
        proposal.write.fields().pointer(flags),
        Some(&json!({"name": "enable-leader-migration", "value": "true"}))
    );
    assert!(matches!(
        decision(&installed(), &no_managers, &[]),
        Decision::Refused(_)
    ));

    let missing = ["the user may not update Lease m".to_owned()];
    let Decision::Refused(refusal) = decision(&snapshot("v1.35.4"), &no_managers, &missing) else {
        panic!("not refused");
    };
    assert_eq!(
        (refusal.why.as_slice(), refusal.remedies),
        (
            missing.as_slice(),
            vec![format!(
                "grant the permissions with: kubectl kcp leader-migration rbac {} --leader-name m --apply",
                kcp_api::Object::name(snapshot("v1.35.4").control_plane())
            )]
        )
    );
}

#[test]
fn start_refuses_while_the_migration_before_it_has_not_settled() {
    let flags = "--enable-leader-migration --leader-migration-config=f";
    let with = |last: ObservedManager| [handed_over(), vec![last]].concat();
    for (managers, holder, expected) in [
        (handed_over(), None, None),
        (with(cloud("c1", "--v=2")), None, None),
        (
            vec![
                handed_over().remove(0),
                kube("k2", flags, "other"),
                migrating("k3"),
            ],
            Some("k_1"),
            Some(vec![
                "k2 still uses Lease other as its migration lock",
                "k3 still uses Lease m as its migration lock",
            ]),
        ),
        (
            with(cloud("c1", flags)),
            Some("c_1"),
            Some(vec!["c1 still uses Lease m as its migration lock"]),
        ),
        (handed_over(), Some("k_0"), Some(vec!["k_0 still holds Lease m"])),
    ] {
        let decision = decision(&snapshot("v1.35.4"), &observed(managers, holder), &[]);
        match expected {
            Some(expected) => assert_eq!(why(decision), expected),
            None => assert!(matches!(decision, Decision::Write(_)), "{decision:?}"),
        }
    }
}

#[test]
fn start_refuses_until_the_migration_before_it_is_finished() {
    let mut snapshot = installed();
    let flags = json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"controllerManager": {"extraArgs": null}}}}});
    let object = crate::plan::options::apply_patch(&snapshot.json, &flags).expect("JSON");
    snapshot.json = object;
    assert_eq!(
        why(decision(&snapshot, &observed(handed_over(), None), &[])),
        ["the leader migration for the upgrade to v1.35.4 is not finished"]
    );
}

#[test]
fn start_passes_only_if_every_old_controller_manager_migrates() {
    let installed = installed();
    let started = "every kube-controller-manager uses leader migration with Lease m";
    assert_eq!(
        decision(&installed, &observed(three(), Some("k_1")), &[]),
        Decision::Unchanged(started.to_owned())
    );
    let with = |last: ObservedManager| vec![migrating("k1"), migrating("k2"), last];
    let down = ObservedManager {
        health: Health::Down("connection refused".to_owned()),
        ..migrating("k3")
    };
    let mut unverified = migrating("k3");
    unverified.settings.unverified_reason = Some("forbidden".to_owned());
    for (managers, holder, expected) in [
        (
            with(kube("k3", "--v=2", LEADER)),
            Some("k_1"),
            "k3 runs without leader migration",
        ),
        (
            with(kube(
                "k3",
                "--enable-leader-migration --leader-migration-config=f",
                "other",
            )),
            Some("k_1"),
            "k3 uses Lease other as its migration lock instead of m",
        ),
        (
            with(down),
            Some("k_1"),
            "k3 does not report which controllers it runs: connection refused",
        ),
        (
            with(unverified),
            Some("k_1"),
            "k3 does not report its settings: forbidden",
        ),
        (
            vec![migrating("k1"), migrating("k2")],
            Some("k_1"),
            "the number of Pods of kube-controller-manager is 2, but the number of control-plane Machines is 3",
        ),
        (three(), None, "no controller manager holds Lease m"),
        (
            three(),
            Some("stranger"),
            "stranger, which is not known to be a kube-controller-manager, holds Lease m",
        ),
    ] {
        let observed = observed(managers, holder);
        assert_eq!(why(decision(&installed, &observed, &[])), [expected]);
    }
    let unread = ObservedManagers {
        managers: Err(Failure {
            object: "Pod".to_owned(),
            message: "forbidden".to_owned(),
            hint: None,
            ..Failure::default()
        }),
        ..observed(Vec::new(), None)
    };
    assert_eq!(
        why(decision(&installed, &unread, &[])),
        ["could not read Pod: forbidden"]
    );
}
