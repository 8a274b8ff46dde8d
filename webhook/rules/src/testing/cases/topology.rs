//! Cases of the rules in [`crate::topics::topology`].

use crate::{
    context::TOPOLOGY_MANAGER,
    testing::case::{Case, V1BETA2},
    trusted_users,
};

const VERSION: &str = "spec.topology.version";
const LOWERED: &str = "topology-version-lowered";
const ROLLOUT: &str = "topology-rollout-unsupported";
const RAISED: &str = "version-owned-by-topology";
const REVERTED: &str = "field-owned-by-topology";
const AT: &str = r#"{"spec":{"version":"v1.34.2+b.2"}}"#;
const OWNED: &str = r#"{"metadata":{"generation":4,"labels":{"topology.cluster.x-k8s.io/owned":"","cluster.x-k8s.io/cluster-name":"edge"},
    "managedFields":[{"manager":"capi-topology","operation":"Apply","apiVersion":"controlplane.cluster.x-k8s.io/v1beta2",
    "time":"2026-05-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{},"f:version":{},
    "f:kubeadmConfigSpec":{"f:clusterConfiguration":{}}}}}]},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const UNLABELLED: &str = r#"{"metadata":{"generation":4,"labels":{"cluster.x-k8s.io/cluster-name":"edge"},
    "managedFields":[{"manager":"capi-topology","operation":"Apply","apiVersion":"controlplane.cluster.x-k8s.io/v1beta2",
    "time":"2026-05-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{},"f:version":{}}}}]},
    "spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const APPLIED_IN_V1BETA1: &str = r#"{"metadata":{"labels":{"cluster.x-k8s.io/cluster-name":"edge"},"managedFields":[{"manager":"capi-topology","operation":"Apply",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:version":{}}}}]}}"#;
const RAISE: &str = r#"{"spec":{"version":"v1.34.3"}}"#;

pub(super) const CASES: &[Case] = &[
    Case::update(
        "accepts_higher_build_in_topology",
        AT,
        r#"{"spec":{"version":"v1.34.2+b.10"}}"#,
        &[],
    )
    .in_topology(),
    Case::update(
        "rejects_lower_build_in_topology",
        AT,
        r#"{"spec":{"version":"v1.34.2+b.1"}}"#,
        &[(LOWERED, VERSION)],
    )
    .in_topology(),
    Case::update(
        "rejects_pre_release_in_topology",
        AT,
        r#"{"spec":{"version":"v1.34.2-rc.1"}}"#,
        &[(LOWERED, VERSION)],
    )
    .in_topology(),
    Case::update(
        "rejects_lower_minor_in_topology",
        AT,
        r#"{"spec":{"version":"v1.33.9"}}"#,
        &[(LOWERED, VERSION)],
    )
    .in_topology(),
    Case::update(
        "rejects_rollout_of_a_topology_in_v1beta1",
        APPLIED_IN_V1BETA1,
        r#"{"spec":{"rollout":{"after":"2026-06-02T00:00:00Z"}}}"#,
        &[(ROLLOUT, "spec.topology.controlPlane.rollout.after")],
    )
    .in_topology()
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_rollout_of_a_topology_in_v1beta2",
        OWNED,
        r#"{"spec":{"rollout":{"after":"2026-06-02T00:00:00Z"}}}"#,
        &[],
    )
    .in_topology()
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_version_raised_beside_its_topology",
        OWNED,
        RAISE,
        &[(RAISED, "spec.version")],
    )
    .only_in_version(V1BETA2),
    // Without the label, the topology controller fails, but it still owns the version.
    Case::update(
        "rejects_version_raised_after_the_label_was_removed",
        UNLABELLED,
        RAISE,
        &[(RAISED, "spec.version")],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_version_raised_with_the_removal_of_the_label",
        OWNED,
        r#"{"metadata":{"labels":{"topology.cluster.x-k8s.io/owned":null}},"spec":{"version":"v1.34.3"}}"#,
        &[(RAISED, "spec.version")],
    )
    .only_in_version(V1BETA2),
    // The users of Cluster API's controllers may have other names than those in `trustedUsers`.
    Case::update(
        "warns_an_untrusted_topology_controller_that_raises_the_version",
        OWNED,
        RAISE,
        &[(RAISED, "spec.version")],
    )
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_raised_by_the_topology_controller",
        OWNED,
        RAISE,
        &[],
    )
    .with_writer(trusted_users::CLUSTER_API)
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_replicas_changed_beside_the_topology",
        OWNED,
        r#"{"spec":{"replicas":5}}"#,
        &[(REVERTED, "spec.replicas")],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_configuration_changed_beside_the_topology",
        OWNED,
        r#"{"spec":{"kubeadmConfigSpec":{"preKubeadmCommands":["true"]}}}"#,
        &[(REVERTED, "spec.kubeadmConfigSpec")],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_scale_of_the_topology_controller",
        OWNED,
        r#"{"spec":{"replicas":5}}"#,
        &[],
    )
    .with_writer(trusted_users::CLUSTER_API)
    .only_in_version(V1BETA2),
];
