//! Cases of the rules in [`crate::topics::leader_migration_change`].

use super::leader_migration::{CHANGED, CONTENT, WITH_NODE_IPAM};
use crate::{
    testing::case::{Case, V1BETA2},
    view::{Migration, View},
};

const DURING_ROLLOUT: &str = "leader-migration-changed-during-rollout";

/// A Machine that migrates with another lock.
fn another_lock() -> View {
    machines(&[("earlier", Some(&["node-ipam-controller"]))])
}

/// A Machine that migrates other controllers with the same lock.
fn other_controllers() -> View {
    machines(&[("ipam-migration", Some(&["node-ipam-controller", "nodeipam"]))])
}

/// A Machine that migrates with the same lock and controllers.
fn the_same() -> View {
    machines(&[("ipam-migration", Some(&["node-ipam-controller"]))])
}

fn machines(migrations: &[(&str, Option<&[&str]>)]) -> View {
    let migrations = migrations.iter().map(|(leader_name, controllers)| Migration {
        leader_name: (*leader_name).to_owned(),
        controllers: controllers.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
    });
    View {
        migrations: migrations.collect::<Vec<_>>().into(),
        ..View::default()
    }
}

/// A control plane at the version of [`WITH_NODE_IPAM`], without leader migration.
const OFF: &str = r#"{"spec":{"version":"v1.35.4"}}"#;

pub(super) const CASES: &[Case] = &[
    Case::update(
        "rejects_another_leader_name_during_migration",
        WITH_NODE_IPAM,
        r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/kubernetes/migration/leader.yaml","content":"apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: other\ncontrollerLeaders:\n- name: node-ipam-controller\n  component: \"*\"\n"}]}}}"#,
        &[(CHANGED, CONTENT)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_another_component_during_migration",
        WITH_NODE_IPAM,
        r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/kubernetes/migration/leader.yaml","content":"apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: ipam-migration\ncontrollerLeaders:\n- name: node-ipam-controller\n  component: kube-controller-manager\n"}]}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_the_end_of_a_migration",
        WITH_NODE_IPAM,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":null}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update("rejects_a_new_migration_with_another_lock_than_machines", OFF, WITH_NODE_IPAM, &[(DURING_ROLLOUT, CONTENT)])
        .only_in_version(V1BETA2)
        .with_view(another_lock),
    Case::update(
        "rejects_a_new_migration_with_other_controllers_than_machines",
        OFF,
        WITH_NODE_IPAM,
        &[(DURING_ROLLOUT, CONTENT)],
    )
    .only_in_version(V1BETA2)
    .with_view(other_controllers),
    Case::update("accepts_a_new_migration_with_the_lock_of_machines", OFF, WITH_NODE_IPAM, &[])
        .only_in_version(V1BETA2)
        .with_view(the_same),
    Case::update("accepts_a_new_migration_of_machines_that_do_not_migrate", OFF, WITH_NODE_IPAM, &[])
        .only_in_version(V1BETA2)
        .with_view(|| machines(&[])),
];
