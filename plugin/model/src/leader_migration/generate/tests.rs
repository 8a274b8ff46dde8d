//! What each step decides in each phase, and a whole migration from its start to its end.

use kcp_rules::leader_migration::{Component, Flags, Lock, Manager};
use serde_json::{Value, json};

use super::{
    CloudManifest, Generated, StepRequest, generate,
    start::StartOptions,
    testing::{LEADER, Scene, cloud, handed_over, kube, migrating, observed, three, waiting},
};
use crate::{
    leader_migration::{Health, ObservedManager, ObservedManagers, problem::MigrationProblem},
    snapshot::Failure,
};

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: ccm}, spec: {containers: [{name: ccm, image: \
    openstack-cloud-controller-manager:v1.36.0, args: [--allocate-node-cidrs=true, \
    \"--controllers=*,node-ipam-controller\", --enable-leader-migration=MIGRATES, \
    --leader-migration-config=/etc/kubernetes/leader-migration.yaml], volumeMounts: [{name: m, mountPath: \
    /etc/kubernetes}]}], volumes: [{name: m, hostPath: {path: /etc/kubernetes}}]}}";

const CONFIGURATION: &str = "{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, leaderName: \
    m, controllerLeaders: [{name: node-ipam-controller, component: \"*\"}]}";

const OLD: &str = "v1.35.4";

const NEW: &str = "v1.36.0";

const MIGRATING: &str = "--enable-leader-migration --leader-migration-config=f";

#[derive(Clone, Copy, Debug)]
enum TestedStep {
    Start,
    Upgrade,
    /// The upgrade with the manifest of a static Pod.
    UpgradeWith,
    Finish,
    FinishWith,
    Rollback,
}

fn taken(
    step: TestedStep,
    scene: &Scene,
    observed: &ObservedManagers,
) -> Result<Generated, Vec<MigrationProblem>> {
    let migrates = matches!(step, TestedStep::UpgradeWith);
    let text = POD.replace("MIGRATES", &migrates.to_string());
    let flags = format!(
        "--allocate-node-cidrs=true --controllers=*,node-ipam-controller --enable-leader-migration={migrates} \
         --leader-migration-config=f"
    );
    let flags = Flags::from_command(flags.split(' '));
    let manager = Manager::new(Component::Cloud, 36, flags, Some(CONFIGURATION));
    let manifest =
        matches!(step, TestedStep::UpgradeWith | TestedStep::FinishWith).then_some(CloudManifest {
            content: &text,
            manager: &manager,
        });
    let request = match step {
        TestedStep::Start => StepRequest::Start(StartOptions {
            to: 36,
            migrates_node_ipam: true,
            leader_name: LEADER,
        }),
        TestedStep::Upgrade | TestedStep::UpgradeWith => StepRequest::Upgrade {
            version: NEW,
            manifest,
        },
        TestedStep::Finish | TestedStep::FinishWith => StepRequest::Finish { manifest },
        TestedStep::Rollback => StepRequest::Rollback,
    };
    generate(request, scene.facts(observed))
}

fn after(scene: Scene, step: TestedStep, observed: &ObservedManagers) -> Scene {
    let generated = taken(step, &scene, observed).expect("not refused");
    scene.patched(&generated)
}

/// What a step decides: the messages of the refusal, or whether the patch changes something.
fn shown(result: &Result<Generated, Vec<MigrationProblem>>) -> String {
    match result {
        Err(problems) => {
            let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
            format!("refused: {}", messages.join("; "))
        }
        Ok(generated) => {
            let mut operations = generated.patch.iter();
            let changes = operations.any(|operation| operation["op"] != "test");
            if changes { "changes" } else { "already taken" }.to_owned()
        }
    }
}

fn no_managers() -> ObservedManagers {
    observed(Vec::new(), None)
}

fn started() -> ObservedManagers {
    observed(three(), Some("k_1"))
}

fn enabled() -> Scene {
    after(Scene::at(OLD), TestedStep::Start, &no_managers())
}

fn upgrading() -> Scene {
    after(enabled(), TestedStep::UpgradeWith, &started())
}

/// After the handover: this cloud-controller-manager runs, and the kube-controller-managers no longer run the
/// migrated controllers.
fn taken_over(flags: &str) -> ObservedManagers {
    let mut managers = handed_over();
    managers.push(cloud("c1", flags));
    observed(managers, Some("c_1"))
}

#[test]
fn every_step_decides_in_every_phase() {
    let settling = || upgrading().replaced(3, NEW);
    let behind = "refused: Machine m1 has v1.35.4, not yet v1.36.0; Machine m2 has v1.35.4, not yet v1.36.0; Machine \
        m3 has v1.35.4, not yet v1.36.0";
    let unsupported = "refused: kube-controller-manager 1.36 exits if leader migration is enabled, so it cannot hand \
        over controllers; disable the cloud controllers with --controllers, then start cloud-controller-manager";
    for (phase, scene, observed, expected) in [
        (
            "before",
            Scene::at(OLD),
            observed(handed_over(), None),
            [
                "changes",
                "refused: leader migration is not enabled, so a controller could run twice during the upgrade",
                "already taken",
                "already taken",
            ],
        ),
        (
            "enabled",
            enabled(),
            started(),
            [
                "already taken",
                "changes",
                "refused: kube-controller-manager still uses leader migration, and runs the migrated controllers",
                "changes",
            ],
        ),
        (
            "upgrading",
            upgrading(),
            started(),
            [unsupported, "already taken", behind, "changes"],
        ),
        (
            "settling",
            settling(),
            taken_over(MIGRATING),
            [
                unsupported,
                "already taken",
                "changes",
                "refused: Machine m1 has joined with v1.36.0; Machine m2 has joined with v1.36.0; Machine m3 has joined \
                 with v1.36.0",
            ],
        ),
        (
            "finished",
            after(settling(), TestedStep::FinishWith, &taken_over(MIGRATING)),
            taken_over("--v=2"),
            [unsupported, "already taken", "already taken", "already taken"],
        ),
    ] {
        let steps = [
            TestedStep::Start,
            TestedStep::UpgradeWith,
            TestedStep::FinishWith,
            TestedStep::Rollback,
        ];
        for (step, expected) in steps.into_iter().zip(expected) {
            assert_eq!(
                shown(&taken(step, &scene, &observed)),
                expected,
                "{phase} {step:?}"
            );
        }
    }
}

#[test]
fn the_patch_is_for_the_control_plane_that_was_judged() {
    let mut scene = Scene::at(OLD);
    scene.control_plane["metadata"]["uid"] = json!("u");
    scene.control_plane["metadata"]["resourceVersion"] = json!("7");
    let generated = taken(TestedStep::Start, &scene, &no_managers()).unwrap();
    assert_eq!(
        generated.patch[..3],
        [
            json!({"op": "test", "path": "/apiVersion", "value": "controlplane.cluster.x-k8s.io/v1beta2"}),
            json!({"op": "test", "path": "/metadata/uid", "value": "u"}),
            json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}),
        ]
    );
    assert_eq!(
        generated.lock,
        Some(Lock {
            namespace: "kube-system".to_owned(),
            name: LEADER.to_owned()
        })
    );
    let enabled = scene.patched(&generated);
    let text = taken(TestedStep::Start, &enabled, &no_managers())
        .unwrap()
        .configuration;
    assert_eq!(text, generated.configuration);
    assert!(text.unwrap().contains("\nleaderName: m\n"));
}

#[test]
fn rollback_restores_the_control_plane_exactly() {
    let (before, enabled, upgrading) = (Scene::at(OLD), enabled(), upgrading());
    assert_eq!(upgrading.control_plane["spec"]["version"], NEW);
    let back = after(upgrading, TestedStep::Rollback, &started());
    assert_eq!(back.control_plane, enabled.control_plane);
    let back = after(back, TestedStep::Rollback, &started());
    assert_eq!(back.control_plane, before.control_plane);
}

#[test]
fn rollback_is_possible_until_a_machine_with_the_new_version_has_joined() {
    let rollback =
        |scene: &Scene, observed: &ObservedManagers| shown(&taken(TestedStep::Rollback, scene, observed));
    let mut created = upgrading().replaced(1, NEW);
    assert_eq!(
        rollback(&created, &started()),
        "refused: Machine m1 has joined with v1.36.0"
    );
    created.machines[0].status.node_name = None;
    assert_eq!(rollback(&created, &started()), "changes");

    let mut foreign = enabled();
    foreign.control_plane["metadata"]["annotations"] = Value::Null;
    assert_eq!(
        rollback(&foreign, &started()),
        "refused: the control plane has no record of its last leader migration step, because another client made the \
         change"
    );
    // Without leader migration, kube-controller-manager would run Node IPAM beside this one.
    let mut managers = three();
    managers.push(cloud("c1", MIGRATING));
    assert_eq!(
        rollback(&enabled(), &observed(managers, Some("k_1"))),
        "refused: node-ipam-controller runs in two controller managers at the same time while Machines of both versions \
         run"
    );
}

#[test]
fn start_needs_a_controller_that_can_migrate() {
    for (version, to, migrates_node_ipam, expected) in [
        (
            OLD,
            36,
            false,
            "refused: nothing to migrate, because kube-controller-manager 1.35 runs no cloud controllers; to migrate \
             Node IPAM, use --node-ipam",
        ),
        (
            OLD,
            34,
            true,
            "refused: the version after the upgrade, 1.34, is lower than the version before it, 1.35",
        ),
        (
            "v1",
            36,
            true,
            "refused: the control plane has no Kubernetes version",
        ),
    ] {
        let request = StepRequest::Start(StartOptions {
            to,
            migrates_node_ipam,
            leader_name: LEADER,
        });
        let result = shown(&generate(request, Scene::at(version).facts(&no_managers())));
        assert!(result.starts_with(expected), "{version} {to}: {result}");
    }
}

#[test]
fn start_is_refused_while_the_migration_before_it_has_not_settled() {
    let append = |last: ObservedManager| [handed_over(), vec![last]].concat();
    for (managers, holder, expected) in [
        (handed_over(), None, "changes"),
        (append(cloud("c1", "--v=2")), None, "changes"),
        (
            vec![
                handed_over().remove(0),
                kube("k2", MIGRATING, "other"),
                migrating("k3"),
            ],
            Some("k_1"),
            "refused: k2 still uses Lease other as its migration lock; k3 still uses Lease m as its migration lock",
        ),
        (
            append(cloud("c1", MIGRATING)),
            Some("c_1"),
            "refused: c1 still uses Lease m as its migration lock",
        ),
        (handed_over(), Some("k_0"), "refused: k_0 still holds Lease m"),
    ] {
        let result = taken(TestedStep::Start, &Scene::at(OLD), &observed(managers, holder));
        assert_eq!(shown(&result), expected);
    }
    let mut unfinished = enabled();
    unfinished.control_plane["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["controllerManager"] =
        Value::Null;
    assert_eq!(
        shown(&taken(TestedStep::Start, &unfinished, &no_managers())),
        "refused: the leader migration for the upgrade to v1.35.4 is not finished"
    );
}

#[test]
fn upgrade_needs_a_higher_version() {
    for (version, expected) in [
        (OLD, "refused: the control plane already has v1.35.4"),
        (
            "v1.34.0",
            "refused: v1.34.0 is lower than the version of the control plane",
        ),
        (
            "v1.35.5",
            "refused: no controller manager runs node-ipam-controller after the upgrade",
        ),
    ] {
        let manifest = None;
        let request = StepRequest::Upgrade { version, manifest };
        let result = generate(request, enabled().facts(&started()));
        assert_eq!(shown(&result), expected);
    }
}

#[test]
fn upgrade_waits_for_every_controller_manager() {
    let append = |last: ObservedManager| vec![migrating("k1"), waiting("k2"), last];
    let add_cloud = |cloud: ObservedManager| [three(), vec![cloud]].concat();
    let idle = |cloud: ObservedManager| ObservedManager {
        health: Health::Serves(std::collections::BTreeSet::new()),
        ..cloud
    };
    let down = ObservedManager {
        health: Health::Down("connection refused".to_owned()),
        ..migrating("k3")
    };
    let mut unverified = waiting("k3");
    unverified.settings.unverified_reason = Some("forbidden".to_owned());
    for (step, managers, holder, expected) in [
        (TestedStep::UpgradeWith, three(), Some("k_1"), "changes"),
        (
            TestedStep::UpgradeWith,
            append(kube("k3", "--v=2", LEADER)),
            Some("k_1"),
            "refused: k3 runs without leader migration",
        ),
        (
            TestedStep::UpgradeWith,
            append(kube("k3", MIGRATING, "other")),
            Some("k_1"),
            "refused: k3 uses Lease other as its migration lock instead of m",
        ),
        (
            TestedStep::UpgradeWith,
            append(down),
            Some("k_1"),
            "refused: k3 does not report which controllers it runs: connection refused",
        ),
        (
            TestedStep::UpgradeWith,
            append(unverified),
            Some("k_1"),
            "refused: k3 does not report its settings: forbidden",
        ),
        (
            TestedStep::UpgradeWith,
            vec![migrating("k1"), waiting("k2")],
            Some("k_1"),
            "refused: the number of Pods of kube-controller-manager is 2, but the number of control-plane Machines is 3",
        ),
        (
            TestedStep::UpgradeWith,
            three(),
            None,
            "refused: node-ipam-controller: k1 runs the controller, but Lease m has no holder",
        ),
        (
            TestedStep::UpgradeWith,
            three(),
            Some("stranger"),
            "refused: node-ipam-controller: k1 runs the controller, but Lease m seems to be held by another process: stranger \
             holds it, but does not hold k1's main lock",
        ),
        (
            TestedStep::Upgrade,
            three(),
            Some("k_1"),
            "refused: no controller manager runs node-ipam-controller after the upgrade",
        ),
        (
            TestedStep::Upgrade,
            add_cloud(idle(cloud("c1", MIGRATING))),
            Some("k_1"),
            "changes",
        ),
        (
            TestedStep::Upgrade,
            add_cloud(idle(cloud("c1", "--v=2"))),
            Some("k_1"),
            "refused: node-ipam-controller: k1 runs the controller under the migration lock, but c1 would run the \
             controller without that lock",
        ),
    ] {
        let result = taken(step, &enabled(), &observed(managers, holder));
        assert_eq!(shown(&result), expected, "{step:?}");
    }
    let unread = ObservedManagers {
        managers: Err(Failure {
            object: "Pod".to_owned(),
            message: "forbidden".to_owned(),
            ..Failure::default()
        }),
        ..no_managers()
    };
    assert_eq!(
        shown(&taken(TestedStep::UpgradeWith, &enabled(), &unread)),
        "refused: could not read Pod: forbidden"
    );
}

#[test]
fn finish_waits_until_cloud_controller_manager_has_taken_over() {
    let settling = upgrading().replaced(3, NEW);
    let [first, second, _] = <[ObservedManager; 3]>::try_from(handed_over()).unwrap();
    let mut idle = handed_over();
    idle.push(ObservedManager {
        health: Health::Serves(std::collections::BTreeSet::new()),
        ..cloud("c1", MIGRATING)
    });
    for (step, observed, expected) in [
        (
            TestedStep::Finish,
            taken_over(MIGRATING),
            "refused: the static Pod of cloud-controller-manager enables leader migration",
        ),
        (
            TestedStep::FinishWith,
            observed(vec![first, second, migrating("k3")], Some("k_1")),
            "refused: k3 still uses leader migration",
        ),
        (
            TestedStep::FinishWith,
            observed(handed_over(), None),
            "refused: no controller manager runs node-ipam-controller",
        ),
        (
            TestedStep::FinishWith,
            observed(idle, Some("c_1")),
            "refused: node-ipam-controller: cloud-controller-manager renews Lease m, but c1 has not started the controller",
        ),
    ] {
        assert_eq!(shown(&taken(step, &settling, &observed)), expected, "{step:?}");
    }
}
