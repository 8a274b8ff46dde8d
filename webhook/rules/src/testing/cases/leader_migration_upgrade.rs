//! Cases of the rules in [`crate::topics::leader_migration_upgrade`].

use crate::testing::case::{Case, V1BETA2};

const RULE: &str = "leader-migration-handover-unsafe";
const FLAGS: &str = "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs";

/// A control plane at 1.35 that migrates Node IPAM.
const MIGRATING: &str = r#"{"spec":{"version":"v1.35.4","kubeadmConfigSpec":{
    "clusterConfiguration":{"controllerManager":{
        "extraArgs":[{"name":"enable-leader-migration","value":"true"},
            {"name":"leader-migration-config","value":"/etc/kubernetes/pki/leader.yaml"}]}},
    "files":[{"path":"/etc/kubernetes/pki/leader.yaml","content":"apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: ipam-migration\ncontrollerLeaders:\n- {name: node-ipam-controller, component: \"*\"}\n"}]}}}"#;

/// A control plane at 1.35 without leader migration.
const PLAIN: &str = r#"{"spec":{"version":"v1.35.4"}}"#;

/// A control plane at 1.35 whose cloud-controller-manager does not run Node IPAM.
const WITH_CLOUD: &str = r#"{"spec":{"version":"v1.35.4","kubeadmConfigSpec":{"files":[{"path":"/etc/kubernetes/manifests/ccm.yaml",
    "content":"kind: Pod\nspec:\n  containers:\n  - name: ccm\n    image: openstack-cloud-controller-manager:v1.35.0\n    args: [--cloud-provider=openstack]\n"}]}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::update(
        "accepts_node_ipam_with_the_same_lock_on_both_sides",
        MIGRATING,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"controllers","value":"*,-node-ipam-controller"}]}},
            "files":[{"path":"/etc/kubernetes/pki/leader.yaml","content":"apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: ipam-migration\ncontrollerLeaders:\n- {name: node-ipam-controller, component: \"*\"}\n"},
                {"path":"/etc/kubernetes/manifests/ccm.yaml","content":"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: ccm\n    image: openstack-cloud-controller-manager:v1.36.0\n    args: [--allocate-node-cidrs=true, \"--controllers=*,node-ipam-controller\", --enable-leader-migration, --leader-migration-config=/pki/leader.yaml]\n    volumeMounts: [{name: pki, mountPath: /pki}]\n  volumes: [{name: pki, hostPath: {path: /etc/kubernetes/pki}}]\n"}]}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_node_ipam_in_two_controller_managers",
        PLAIN,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"controllers","value":"*,-node-ipam-controller"}]}},
            "files":[{"path":"/etc/kubernetes/manifests/ccm.yaml","content":"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: ccm\n    image: openstack-cloud-controller-manager:v1.36.0\n    args: [--allocate-node-cidrs=true, \"--controllers=*,node-ipam-controller\"]\n"}]}}}"#,
        &[(RULE, FLAGS)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_node_ipam_in_a_second_controller_manager",
        WITH_CLOUD,
        r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/kubernetes/manifests/ccm.yaml",
            "content":"kind: Pod\nspec:\n  containers:\n  - name: ccm\n    image: openstack-cloud-controller-manager:v1.35.0\n    args: [--allocate-node-cidrs=true, \"--controllers=*,node-ipam-controller\"]\n"}]}}}"#,
        &[(RULE, "spec.kubeadmConfigSpec.files[0].content")],
    ),
    Case::update(
        "rejects_two_migration_locks",
        MIGRATING,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"controllers","value":"*,-node-ipam-controller"}]}},
            "files":[{"path":"/etc/kubernetes/pki/leader.yaml","content":"apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: other\ncontrollerLeaders:\n- {name: node-ipam-controller, component: \"*\"}\n"},
                {"path":"/etc/kubernetes/manifests/ccm.yaml","content":"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: ccm\n    image: openstack-cloud-controller-manager:v1.36.0\n    args: [--allocate-node-cidrs=true, \"--controllers=*,node-ipam-controller\", --enable-leader-migration, --leader-migration-config=/pki/leader.yaml]\n    volumeMounts: [{name: pki, mountPath: /pki}]\n  volumes: [{name: pki, hostPath: {path: /etc/kubernetes/pki}}]\n"}]}}}"#,
        &[(RULE, FLAGS)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_an_orphaned_controller",
        MIGRATING,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"controllers","value":"*,-node-ipam-controller"}]}},
            "files":[{"path":"/etc/kubernetes/manifests/ccm.yaml","content":"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: ccm\n    image: openstack-cloud-controller-manager:v1.36.0\n    args: [--cloud-provider=openstack]\n"}]}}}"#,
        &[(RULE, FLAGS)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_a_new_owner_that_cannot_start",
        MIGRATING,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"controllers","value":"*,-node-ipam-controller"}]}},
            "files":[{"path":"/etc/kubernetes/manifests/ccm.yaml","content":"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: ccm\n    image: openstack-cloud-controller-manager:v1.36.0\n    args: [--allocate-node-cidrs=true, \"--controllers=*,node-ipam-controller\", --feature-gates=ControllerManagerLeaderMigration=true]\n"}]}}}"#,
        &[(RULE, FLAGS), (RULE, FLAGS)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_node_ipam_in_two_controller_managers_without_leader_election",
        PLAIN,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"leader-elect","value":"false"}]}},
            "files":[{"path":"/etc/kubernetes/manifests/ccm.yaml","content":"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: ccm\n    image: openstack-cloud-controller-manager:v1.36.0\n    args: [--allocate-node-cidrs=true, \"--controllers=*,node-ipam-controller\"]\n"}]}}}"#,
        &[(RULE, FLAGS)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_upgrade_without_leader_election",
        r#"{"spec":{"version":"v1.35.4","kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"leader-elect","value":"false"}]}}}}}"#,
        r#"{"spec":{"version":"v1.36.3"}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_a_cloud_provider_that_may_have_node_ipam",
        PLAIN,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{
            "files":[{"path":"/etc/kubernetes/manifests/ccm.yaml","content":"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: ccm\n    image: openstack-cloud-controller-manager:v1.36.0\n    args: [--allocate-node-cidrs=true]\n"}]}}}"#,
        &[(RULE, "spec.kubeadmConfigSpec.files[0].content")],
    ),
    Case::update(
        "warns_of_the_end_of_node_ipam_without_cloud_controller_manager",
        MIGRATING,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"controllers","value":"*,-node-ipam-controller"}]}}}}}"#,
        &[(RULE, FLAGS)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_the_end_of_node_ipam_with_a_static_pod_from_a_secret",
        MIGRATING,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":[{"name":"controllers","value":"*,-node-ipam-controller"}]}},
            "files":[{"path":"/etc/kubernetes/manifests/ccm.yaml","contentFrom":{"secret":{"name":"ccm","key":"ccm.yaml"}}}]}}}"#,
        &[(RULE, FLAGS)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_a_cloud_controller_manager_that_leaves_files",
        WITH_CLOUD,
        r#"{"spec":{"kubeadmConfigSpec":{"files":null}}}"#,
        &[(RULE, "spec.kubeadmConfigSpec.files")],
    ),
    Case::update(
        "accepts_node_ipam_that_the_user_switches_off",
        WITH_CLOUD,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"controllers","value":"*,-node-ipam-controller"}]}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_upgrade_without_leader_migration",
        PLAIN,
        r#"{"spec":{"version":"v1.36.3"}}"#,
        &[],
    ),
];
