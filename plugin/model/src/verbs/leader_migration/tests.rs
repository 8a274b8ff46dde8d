//! What each verb decides in each phase, and a whole migration from its start to its end.

use kcp_rules::leader_migration::{Component, Flags, Manager};
use serde_json::Value;

use super::{
    CloudManifest, Facts,
    finish::{self, FinishOptions},
    rollback,
    start::{self, StartOptions},
    testing::{LEADER, cloud, handed_over, kube, migrating, observed, replace, snapshot, take, three},
    upgrade::{self, HandoverOptions},
};
use crate::{
    change::decision::Decision,
    kubelet_skew::Workers,
    leader_migration::{ObservedManager, ObservedManagers},
    review::ReviewContext,
    snapshot::change::ChangeSnapshot,
    testing::objects::now,
    verbs::upgrade::UpgradeOptions,
};

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: ccm}, spec: {containers: [{name: ccm, image: \
    openstack-cloud-controller-manager:v1.36.0, args: [--allocate-node-cidrs=true, \
    \"--controllers=*,node-ipam-controller\", --enable-leader-migration=MIGRATES, \
    --leader-migration-config=/etc/kubernetes/leader-migration.yaml], volumeMounts: [{name: m, mountPath: \
    /etc/kubernetes}]}], volumes: [{name: m, hostPath: {path: /etc/kubernetes}}]}}";

const CONFIGURATION: &str = "{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, leaderName: \
    m, controllerLeaders: [{name: node-ipam-controller, component: \"*\"}]}";

#[derive(Clone, Copy, Debug)]
enum Verb {
    Start,
    Upgrade,
    /// `upgrade` with the manifest of a static Pod.
    UpgradeWith,
    Finish,
    FinishWith,
    Rollback,
}

fn decide(verb: Verb, snapshot: &ChangeSnapshot, observed: &ObservedManagers) -> Decision {
    decide_with(verb, snapshot, observed, &[])
}

fn decide_with(
    verb: Verb,
    snapshot: &ChangeSnapshot,
    observed: &ObservedManagers,
    missing: &[String],
) -> Decision {
    let view = snapshot.view();
    let context = ReviewContext {
        now: now(),
        field_manager: "kubectl-kcp",
        view: &view,
        configuration: None,
    };
    let facts = Facts {
        observed,
        missing_permissions: missing,
    };
    let migrates = matches!(verb, Verb::UpgradeWith);
    let text = POD.replace("MIGRATES", &migrates.to_string());
    let flags = format!(
        "--allocate-node-cidrs=true --controllers=*,node-ipam-controller --enable-leader-migration={migrates} \
         --leader-migration-config=f"
    );
    let flags = Flags::from_command(flags.split(' '));
    let manager = Manager::new(Component::Cloud, 36, flags, Some(CONFIGURATION));
    let manifest = matches!(verb, Verb::UpgradeWith | Verb::FinishWith).then_some(CloudManifest {
        content: &text,
        manager: &manager,
    });
    let decided = match verb {
        Verb::Start => {
            let options = StartOptions {
                to: 36,
                migrates_node_ipam: true,
                leader_name: LEADER,
                facts,
            };
            start::decide(snapshot, options, context)
        }
        Verb::Upgrade | Verb::UpgradeWith => {
            let options = HandoverOptions {
                upgrade: UpgradeOptions {
                    version: "v1.36.0",
                    force: false,
                    workers: &Workers::default(),
                },
                manifest,
                facts,
            };
            upgrade::decide(snapshot, options, context)
        }
        Verb::Finish | Verb::FinishWith => {
            finish::decide(snapshot, FinishOptions { manifest, facts }, context)
        }
        Verb::Rollback => rollback::decide(snapshot, facts, context),
    };
    decided.expect("decodes")
}

fn shown(decision: &Decision) -> String {
    match decision {
        Decision::Unchanged(why) => format!("done: {why}"),
        Decision::Refused(refusal) => format!("refused: {}", refusal.why.join("; ")),
        Decision::Write(proposal) => format!("writes: {}", proposal.outcome),
    }
}

fn spec(snapshot: &ChangeSnapshot) -> Value {
    let object: Value = serde_json::from_str(&snapshot.json).expect("JSON");
    object["spec"].clone()
}

fn annotations(snapshot: &ChangeSnapshot) -> Value {
    let object: Value = serde_json::from_str(&snapshot.json).expect("JSON");
    object["metadata"]["annotations"].clone()
}

const OLD: &str = "v1.35.4";
const NEW: &str = "v1.36.0";

fn enabled() -> ChangeSnapshot {
    let before = snapshot(OLD);
    let written = decide(Verb::Start, &before, &observed(Vec::new(), None));
    take(before, &written)
}

fn upgrading() -> ChangeSnapshot {
    let before = enabled();
    let written = decide(Verb::UpgradeWith, &before, &observed(three(), Some("k_1")));
    take(before, &written)
}

/// After the handover: this cloud-controller-manager runs, and the kube-controller-managers no longer run the
/// migrated controllers.
fn taken_over(flags: &str) -> ObservedManagers {
    let mut managers = handed_over();
    managers.push(cloud("c1", flags));
    observed(managers, Some("c_1"))
}

const MIGRATING: &str = "--enable-leader-migration --leader-migration-config=f";

#[test]
#[expect(clippy::large_stack_arrays, reason = "each row of the table has a snapshot")]
fn every_verb_decides_in_every_phase() {
    let settling = || replace(upgrading(), 3, NEW);
    let off = || {
        let before = settling();
        let written = decide(Verb::FinishWith, &before, &taken_over(MIGRATING));
        take(before, &written)
    };
    let behind = "refused: Machine m1 has v1.35.4, not yet v1.36.0; Machine m2 has v1.35.4, not yet v1.36.0; Machine \
        m3 has v1.35.4, not yet v1.36.0";
    let gone = "done: nothing to migrate: kube-controller-manager 1.36 runs no controller that cloud-controller-manager can run";
    let started = "done: every kube-controller-manager uses leader migration with Lease m";
    for (phase, snapshot, observed, expected) in [
        (
            "before",
            snapshot(OLD),
            observed(handed_over(), None),
            [
                "writes: leader migration enabled with Lease m",
                "refused: leader migration is not enabled, so a controller could run twice during the upgrade",
                "done: no controller manager uses leader migration",
                "done: the control plane does not use leader migration",
            ],
        ),
        (
            "enabled",
            enabled(),
            observed(three(), Some("k_1")),
            [
                started,
                "writes: upgraded from v1.35.4 to v1.36.0, with the handover to cloud-controller-manager",
                "refused: kube-controller-manager still uses leader migration, and runs the migrated controllers",
                "writes: rolled back to the state before leader migration",
            ],
        ),
        (
            "upgrading",
            upgrading(),
            observed(three(), Some("k_1")),
            [
                gone,
                behind,
                behind,
                "writes: rolled back to v1.35.4 with leader migration",
            ],
        ),
        (
            "settling",
            settling(),
            taken_over(MIGRATING),
            [
                gone,
                "done: every Machine has v1.36.0",
                "writes: leader migration finished at v1.36.0",
                "refused: Machine m1 has joined with v1.36.0, and Kubernetes does not support downgrades: continue \
                 with the rollout; Machine m2 has joined with v1.36.0, and Kubernetes does not support downgrades: \
                 continue with the rollout; Machine m3 has joined with v1.36.0, and Kubernetes does not support \
                 downgrades: continue with the rollout",
            ],
        ),
        (
            "finished",
            off(),
            taken_over("--v=2"),
            [
                gone,
                "done: the version is already v1.36.0",
                "done: no controller manager uses leader migration",
                "done: the control plane does not use leader migration",
            ],
        ),
        (
            "finished, before the rollout",
            off(),
            taken_over(MIGRATING),
            [
                gone,
                "done: the version is already v1.36.0",
                "refused: cloud-controller-manager still uses leader migration",
                "done: the control plane does not use leader migration",
            ],
        ),
    ] {
        let verbs = [Verb::Start, Verb::UpgradeWith, Verb::FinishWith, Verb::Rollback];
        for (verb, expected) in verbs.into_iter().zip(expected) {
            assert_eq!(
                shown(&decide(verb, &snapshot, &observed)),
                expected,
                "{phase} {verb:?}"
            );
        }
    }
}

#[test]
fn rollback_restores_the_control_plane_exactly() {
    let before = snapshot(OLD);
    let enabled = enabled();
    let upgrading = upgrading();
    let observed = observed(three(), Some("k_1"));
    assert_eq!(spec(&upgrading)["version"], NEW);
    let back = decide(Verb::Rollback, &upgrading, &observed);
    let back = take(upgrading, &back);
    assert_eq!(spec(&back), spec(&enabled));
    assert_eq!(annotations(&back), annotations(&enabled));
    let back = decide(Verb::Rollback, &enabled, &observed);
    let back = take(enabled, &back);
    assert_eq!(spec(&back), spec(&before));
    assert!(
        annotations(&back)
            .get("kubectl-kcp.dev/leader-migration")
            .is_none()
    );
}

#[test]
fn rollback_is_possible_until_a_machine_with_the_new_version_has_joined() {
    let mut created = replace(upgrading(), 1, NEW);
    let observed = observed(three(), Some("k_1"));
    assert!(
        shown(&decide(Verb::Rollback, &created, &observed)).starts_with("refused: Machine m1 has joined")
    );
    created.observed.machines[0].status.node_name = None;
    assert_eq!(
        shown(&decide(Verb::Rollback, &created, &observed)),
        "writes: rolled back to v1.35.4 with leader migration"
    );
    // The member of the second Machine may already vote.
    created.observed.machines.truncate(2);
    assert!(
        shown(&decide(Verb::Rollback, &created, &observed)).starts_with(
            "refused: spec.version: Forbidden: Machine m1 has no Node yet, but may already vote"
        )
    );

    let mut foreign = enabled();
    foreign.observed.control_plane.metadata.annotations = None;
    assert!(
        shown(&decide(Verb::Rollback, &foreign, &observed))
            .starts_with("refused: the control plane has no record of its last leader migration step")
    );
    // Without leader migration, kube-controller-manager would run Node IPAM beside this one.
    let mut managers = three();
    managers.push(cloud("c1", MIGRATING));
    let beside = super::testing::observed(managers, Some("k_1"));
    assert_eq!(
        shown(&decide(Verb::Rollback, &enabled(), &beside)),
        "refused: node-ipam-controller runs in two controller managers at the same time while Machines of both versions run; \
         stop cloud-controller-manager first"
    );
}

#[test]
fn upgrade_waits_for_every_controller_manager() {
    let enabled = enabled();
    let with = |managers: Vec<ObservedManager>| observed(managers, Some("k_1"));
    let beside = |cloud: ObservedManager| {
        let mut managers = three();
        managers.push(cloud);
        with(managers)
    };
    let mut unlike = vec![migrating("k1"), migrating("k2")];
    unlike.push(kube("k3", "--v=2", LEADER));
    for (verb, observed, missing, expected) in [
        (
            Verb::UpgradeWith,
            with(unlike),
            "",
            "refused: k3 runs without leader migration",
        ),
        (
            Verb::UpgradeWith,
            with(three()),
            "the user may not update Lease m",
            "refused: the user may not update Lease m",
        ),
        (
            Verb::Upgrade,
            with(three()),
            "",
            "refused: no cloud-controller-manager is running, and --ccm-manifest is not set",
        ),
        (
            Verb::Upgrade,
            beside(cloud("c1", MIGRATING)),
            "",
            "writes: upgraded from v1.35.4 to v1.36.0, with the handover to cloud-controller-manager",
        ),
        (
            Verb::Upgrade,
            beside(cloud("c1", "--v=2")),
            "",
            "refused: node-ipam-controller runs in two controller managers at the same time before the upgrade",
        ),
    ] {
        let missing: Vec<String> = Some(missing.to_owned())
            .filter(|line| !line.is_empty())
            .into_iter()
            .collect();
        let decision = shown(&decide_with(verb, &enabled, &observed, &missing));
        assert!(decision.starts_with(expected), "{decision}");
    }
}

#[test]
fn finish_waits_until_cloud_controller_manager_has_taken_over() {
    let settling = replace(upgrading(), 3, NEW);
    let without_cloud = observed(handed_over(), None);
    let mut one_migrates = handed_over();
    one_migrates.pop();
    one_migrates.push(migrating("k3"));
    let mut idle = handed_over();
    let mut cloud = cloud("c1", MIGRATING);
    cloud.health = crate::leader_migration::Health::Serves(std::collections::BTreeSet::new());
    idle.push(cloud);
    for (verb, observed, expected) in [
        (
            Verb::Finish,
            taken_over(MIGRATING),
            "refused: the static Pod of cloud-controller-manager enables leader migration: use \
             --ccm-manifest with a manifest that does not set --enable-leader-migration",
        ),
        (
            Verb::FinishWith,
            observed(one_migrates, Some("k_1")),
            "refused: k3 still uses leader migration",
        ),
        (Verb::FinishWith, without_cloud, "refused: node-ipam-controller: "),
        (
            Verb::FinishWith,
            observed(idle, Some("c_1")),
            "refused: node-ipam-controller: ",
        ),
    ] {
        let decision = shown(&decide(verb, &settling, &observed));
        assert!(decision.starts_with(expected), "{verb:?}: {decision}");
    }
}

#[test]
fn versions_that_cannot_migrate_name_what_to_stop_and_start() {
    let decision = decide(Verb::Upgrade, &snapshot("v1.36.0"), &observed(Vec::new(), None));
    assert_eq!(shown(&decision), "done: the version is already v1.36.0");
    let Decision::Refused(refusal) = decide(Verb::Upgrade, &snapshot("v1.36.1"), &observed(Vec::new(), None))
    else {
        panic!("not refused");
    };
    assert_eq!(
        refusal.remedies,
        [
            "to stop node-ipam-controller in kube-controller-manager, set controllers to \
             *,bootstrapsigner,tokencleaner,-node-ipam-controller in \
             spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs, and wait for the \
             rollout: kubectl kcp rollout status example -n default",
            "then start cloud-controller-manager with node-ipam-controller; no controller manager runs \
             node-ipam-controller from the end of the rollout until cloud-controller-manager acquires its \
             main lock; cloud-controller-manager acquires its main lock at startup, or 13 to 21 s later if \
             an earlier holder did not release the Lease",
        ]
    );
}
