//! Upgrades that leave a controller without a controller manager, or run it in two (KEP-2436). No text of a flag or a file
//! is shown, because it may be secret.

use std::fmt::Write as _;

use crate::{
    action::Action,
    api::{ControlPlaneSpec, KubeadmControlPlane},
    case::{Case, V1BETA2},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    leader_migration::{Pair, Row, Verdict, pair::Owner},
    rule::{Check, ON_UPDATE, Rule, Scope},
    topics::{Topic, controller_managers::side, extra_args::controller_manager},
};

pub(super) const TOPIC: Topic = Topic {
    name: "leader-migration-upgrade",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[Rule {
    id: "leader-migration-handover-unsafe",
    summary: "each controller should run in one controller manager during and after an upgrade",
    why: "During an upgrade, old and new controller managers run at the same time. If no lock separates them, both change \
          the same objects; if neither names a controller, nothing runs it.",
    operations: ON_UPDATE,
    // A warning: files may hold only a part of the control plane's manifests, and a controller can be switched off on purpose.
    action: Action::Warn,
    scope: Scope::Transition,
    overridable: false,
    source: "KEP-2436, Rollout, Upgrade and Rollback Planning: controllers run in no component, or in several",
    check: Check::ControlPlane(handover_unsafe),
    cel: Cel::None(NoCel::Grammar),
}];

fn handover_unsafe(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(old) = change.old else { return };
    let (old, new) = (old.common_spec(), change.new.common_spec());
    // The Cluster decides whether there is a Pod network. Almost every Cluster has one.
    let (Ok(now), Ok(then)) = (side(&old, true), side(&new, true)) else {
        return;
    };
    if now == then {
        return;
    }
    let pair = Pair { now, then };
    let rows = pair.rows();
    let harmed: Vec<&Row> = rows.iter().filter(|row| is_new_harm(row)).collect();
    if harmed.is_empty() {
        return;
    }
    let knows_cloud = pair.now.cloud.is_some() || pair.then.cloud.is_some();
    if knows_cloud {
        faults.push(with_owners(&new, &pair, &harmed));
    } else if pair.now.kube.configuration.is_some() {
        faults.push(without_cloud_controller_manager(&new, &harmed));
    }
}

/// Whether the update harms a controller. What already went wrong before the update, and a controller manager that exits at
/// start, are for other rules.
fn is_new_harm(row: &Row) -> bool {
    use crate::leader_migration::Phase::Now;
    match row.verdict {
        Verdict::Orphaned(phase) | Verdict::RunsTwice(phase) => phase != Now,
        _ => false,
    }
}

fn with_owners(new: &ControlPlaneSpec<'_>, pair: &Pair, harmed: &[&Row]) -> Fault {
    let mut detail = String::from("a controller would run twice or not at all: ");
    for (index, row) in harmed.iter().enumerate() {
        let what = match row.verdict {
            Verdict::RunsTwice(_) => "runs twice",
            _ => "does not run",
        };
        let separator = if index > 0 { "; " } else { "" };
        let (now, then) = (owners(&row.now), owners(&row.then));
        // Writing to a String cannot fail.
        let _ = write!(
            detail,
            "{separator}{} {what}: now {now}, then {then}",
            row.controller.canonical
        );
    }
    Fault {
        field: new.kubeadm_path(controller_manager(new).path),
        reason: CauseReason::Forbidden,
        value: None,
        detail: detail.into(),
        remedy: format!(
            "check with: kubectl kcp leader-migration check NAME --to v1.{}.0",
            pair.then.kube.minor
        )
        .into(),
    }
}

fn without_cloud_controller_manager(new: &ControlPlaneSpec<'_>, harmed: &[&Row]) -> Fault {
    let names: Vec<&str> = harmed.iter().map(|row| row.controller.canonical).collect();
    Fault {
        field: new.kubeadm_path(controller_manager(new).path),
        reason: CauseReason::Forbidden,
        value: None,
        detail: format!(
            "after this update kube-controller-manager does not run {}, and files has no cloud-controller-manager that does",
            names.join(", ")
        )
        .into(),
        remedy: "check with: kubectl kcp leader-migration check NAME".into(),
    }
}

fn owners(owners: &[Owner]) -> String {
    if owners.is_empty() {
        return "none".to_owned();
    }
    let owners = owners.iter().map(|owner| {
        let lock = if owner.is_migration_lock {
            "migration"
        } else {
            "main"
        };
        format!("{} ({lock} lock)", owner.component)
    });
    owners.collect::<Vec<_>>().join(" and ")
}

const RULE: &str = "leader-migration-handover-unsafe";
const FIELD: &str = "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs";

/// A control plane at 1.35 that migrates Node IPAM.
const MIGRATING: &str = r#"{"spec":{"version":"v1.35.4","kubeadmConfigSpec":{
    "clusterConfiguration":{"controllerManager":{
        "extraArgs":[{"name":"enable-leader-migration","value":"true"},
            {"name":"leader-migration-config","value":"/etc/kubernetes/pki/leader.yaml"}]}},
    "files":[{"path":"/etc/kubernetes/pki/leader.yaml","content":"apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: ipam-migration\ncontrollerLeaders:\n- {name: node-ipam-controller, component: \"*\"}\n"}]}}}"#;

/// A control plane at 1.35 without leader migration.
const PLAIN: &str = r#"{"spec":{"version":"v1.35.4"}}"#;

const CASES: &[Case] = &[
    Case::update(
        "accepts_node_ipam_with_the_same_lock_on_both_sides",
        MIGRATING,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"controllers","value":"*,-node-ipam-controller"}]}},
            "files":[{"path":"/etc/kubernetes/pki/leader.yaml","content":"apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: ipam-migration\ncontrollerLeaders:\n- {name: node-ipam-controller, component: \"*\"}\n"},
                {"path":"/etc/kubernetes/manifests/ccm.yaml","content":"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: ccm\n    image: example.com/cloud-controller-manager:v1.36.0\n    args: [--allocate-node-cidrs=true, --enable-leader-migration, --leader-migration-config=/pki/leader.yaml]\n    volumeMounts: [{name: pki, mountPath: /pki}]\n  volumes: [{name: pki, hostPath: {path: /etc/kubernetes/pki}}]\n"}]}}}"#,
        &[],
    )
    .only_in(V1BETA2),
    Case::update(
        "warns_of_node_ipam_in_two_controller_managers",
        PLAIN,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"controllers","value":"*,-node-ipam-controller"}]}},
            "files":[{"path":"/etc/kubernetes/manifests/ccm.yaml","content":"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: ccm\n    image: example.com/cloud-controller-manager:v1.36.0\n    args: [--allocate-node-cidrs=true]\n"}]}}}"#,
        &[(RULE, FIELD)],
    )
    .only_in(V1BETA2),
    Case::update(
        "warns_of_the_end_of_node_ipam_without_cloud_controller_manager",
        MIGRATING,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"controllers","value":"*,-node-ipam-controller"}]}}}}}"#,
        &[(RULE, FIELD)],
    )
    .only_in(V1BETA2),
    Case::update(
        "accepts_upgrade_without_leader_migration",
        PLAIN,
        r#"{"spec":{"version":"v1.36.3"}}"#,
        &[],
    ),
];
