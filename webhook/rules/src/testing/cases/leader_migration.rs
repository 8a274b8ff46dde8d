//! Cases of the rules in [`crate::topics::leader_migration`].

use crate::testing::case::{Case, V1BETA1, V1BETA2};

const UNSUPPORTED: &str = "leader-migration-unsupported";
const IGNORED: &str = "leader-migration-ignored";
const MISSING: &str = "leader-migration-file-missing";
const INVALID: &str = "leader-migration-configuration-invalid";
const UNCHECKED: &str = "leader-migration-configuration-unchecked";
/// A rule of the topic `leader_migration_change`.
pub(super) const CHANGED: &str = "leader-migration-changed";
const UNPROTECTED: &str = "leader-migration-unprotected";

const FIRST: &str = "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value";
const SECOND: &str = "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[1].value";
pub(super) const CONTENT: &str = "spec.kubeadmConfigSpec.files[0].content";

/// A control plane at 1.35 that migrates Node IPAM.
pub(super) const WITH_NODE_IPAM: &str = r#"{"spec":{"version":"v1.35.4","kubeadmConfigSpec":{
    "clusterConfiguration":{"controllerManager":{
        "extraArgs":[{"name":"enable-leader-migration","value":"true"},
            {"name":"leader-migration-config","value":"/etc/migration/leader.yaml"}],
        "extraVolumes":[{"name":"migration","hostPath":"/etc/kubernetes/migration","mountPath":"/etc/migration"}]}},
    "files":[{"path":"/etc/kubernetes/migration/leader.yaml","content":"apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: ipam-migration\ncontrollerLeaders:\n- name: node-ipam-controller\n  component: \"*\"\n"}]}}}"#;

const ENABLED: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
    "extraArgs":[{"name":"enable-leader-migration","value":"true"}]}}}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::create("accepts_node_ipam", WITH_NODE_IPAM, &[]).only_in_version(V1BETA2),
    Case::create(
        "accepts_a_file_in_the_certificate_folder",
        r#"{"spec":{"version":"v1.35.4","kubeadmConfigSpec":{
            "clusterConfiguration":{"controllerManager":{"extraArgs":{"enable-leader-migration":"true",
                "leader-migration-config":"/etc/kubernetes/pki/leader.yaml"}}},
            "files":[{"path":"/etc/kubernetes/pki/leader.yaml","content":"apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: ipam-migration\ncontrollerLeaders:\n- {name: nodeipam, component: \"*\"}\n- {name: node-ipam-controller, component: \"*\"}\n"}]}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_leader_migration_at_1_36",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"enable-leader-migration","value":"true"}]}}}}}"#,
        &[(UNSUPPORTED, FIRST)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_leader_migration_at_1_36_in_v1beta1",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":{"enable-leader-migration":"true"}}}}}}"#,
        &[(
            UNSUPPORTED,
            "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[enable-leader-migration]",
        )],
    )
    .only_in_version(V1BETA1),
    Case::update(
        "rejects_upgrade_to_1_36_with_leader_migration",
        WITH_NODE_IPAM,
        r#"{"spec":{"version":"v1.36.3"}}"#,
        &[(UNSUPPORTED, FIRST)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_upgrade_to_1_36_that_ends_leader_migration",
        WITH_NODE_IPAM,
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"controllers","value":"*"}]}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "warns_of_leader_migration_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"enable-leader-migration","value":"true"}]}}}}}}}"#,
        &[(
            UNSUPPORTED,
            "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value",
        )],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "rejects_configuration_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"enable-leader-migration","value":"true"},
                {"name":"leader-migration-config","value":"/etc/migration/leader.yaml"}]}}}}}}}"#,
        &[
            (
                UNSUPPORTED,
                "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value",
            ),
            (
                MISSING,
                "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[1].value",
            ),
        ],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "rejects_configuration_without_enable_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"leader-migration-config","value":"/etc/migration/leader.yaml"}]}}}}}}}"#,
        &[(
            IGNORED,
            "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value",
        )],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "warns_of_files_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"enable-leader-migration","value":"true"},
                {"name":"leader-migration-config","value":"/etc/kubernetes/pki/leader.yaml"}]}},
            "files":[{"path":"/etc/kubernetes/pki/leader.yaml","content":"{}"}]}}}}}"#,
        &[
            (
                UNSUPPORTED,
                "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value",
            ),
            (INVALID, "spec.template.spec.kubeadmConfigSpec.files[0].content"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "warns_of_encoded_file_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"enable-leader-migration","value":"true"},
                {"name":"leader-migration-config","value":"/etc/kubernetes/pki/leader.yaml"}]}},
            "files":[{"path":"/etc/kubernetes/pki/leader.yaml","encoding":"base64","content":"e30="}]}}}}}"#,
        &[
            (
                UNSUPPORTED,
                "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value",
            ),
            (UNCHECKED, "spec.template.spec.kubeadmConfigSpec.files[0].encoding"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_configuration_without_enable",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"enable-leader-migration","value":"false"},
                {"name":"leader-migration-config","value":"/etc/kubernetes/pki/leader.yaml"}]}}}}}"#,
        &[(IGNORED, SECOND)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_enable_without_leader_election",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{
            "extraArgs":[{"name":"enable-leader-migration","value":"true"},
                {"name":"leader-elect","value":"false"}]}}}}}"#,
        &[(IGNORED, SECOND)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_path_that_no_volume_contains",
        WITH_NODE_IPAM,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"controllerManager":{"extraVolumes":[
            {"name":"migration","hostPath":"/etc/kubernetes/migration","mountPath":"/etc/migration/leader"}]}}}}}"#,
        &[(MISSING, SECOND)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_path_that_no_file_writes",
        WITH_NODE_IPAM,
        r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/migration/leader.yaml","content":"x"}]}}}"#,
        &[(MISSING, SECOND)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_resource_lock_in_v1",
        WITH_NODE_IPAM,
        r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/kubernetes/migration/leader.yaml","content":"apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: ipam-migration\nresourceLock: leases\ncontrollerLeaders: []\n"}]}}}"#,
        &[(INVALID, CONTENT)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_configuration_from_a_secret",
        WITH_NODE_IPAM,
        r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/kubernetes/migration/leader.yaml",
            "contentFrom":{"secret":{"name":"migration","key":"leader.yaml"}}}]}}}"#,
        &[(UNCHECKED, "spec.kubeadmConfigSpec.files[0].contentFrom")],
    )
    .only_in_version(V1BETA2),
    Case::create("warns_of_default_without_effect", ENABLED, &[(UNPROTECTED, FIRST)]).only_in_version(V1BETA2),
    Case::update(
        "warns_of_short_name",
        WITH_NODE_IPAM,
        r#"{"spec":{"version":"v1.35.4","kubeadmConfigSpec":{"files":[{"path":"/etc/kubernetes/migration/leader.yaml","content":"apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: ipam-migration\ncontrollerLeaders:\n- {name: nodeipam, component: \"*\"}\n"}]}}}"#,
        &[(UNPROTECTED, CONTENT), (UNPROTECTED, CONTENT), (CHANGED, CONTENT)],
    )
    .only_in_version(V1BETA2),
];
