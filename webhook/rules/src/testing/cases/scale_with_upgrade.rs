//! Cases of the rules in [`crate::topics::scale_with_upgrade`].

use crate::{
    context::TOPOLOGY_MANAGER,
    testing::case::{Case, V1BETA1, V1BETA2},
    topics::scale_with_upgrade::FIELD,
    trusted_users,
    view::{Cluster, Machine, View},
};

fn paused_cluster() -> View {
    let cluster = Cluster {
        name: "example".to_owned(),
        paused: true,
        ..Cluster::default()
    };
    View {
        cluster: Some(cluster).into(),
        ..View::default()
    }
}

fn machine(has_controller: bool) -> View {
    let machine = Machine {
        name: "one".to_owned(),
        version: Some("v1.34.2".to_owned()),
        created: "2026-05-01T00:00:00Z".parse().ok(),
        has_node: true,
        has_controller,
        ..Machine::default()
    };
    View {
        machines: vec![machine].into(),
        ..View::default()
    }
}

fn adopted() -> View {
    machine(true)
}

fn not_adopted() -> View {
    machine(false)
}

fn no_machines() -> View {
    View {
        machines: Vec::new().into(),
        ..View::default()
    }
}

const THREE: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const THREE_V1BETA1: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"updatedReplicas":3,"version":"v1.34.2"}}"#;
const THREE_OWNED: &str = r#"{"metadata":{"generation":4,"managedFields":[{"manager":"capi-topology","operation":"Apply",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-05-01T00:00:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:replicas":{},"f:version":{}}}}]},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const THREE_LABELLED: &str = r#"{"metadata":{"generation":4,"labels":{"topology.cluster.x-k8s.io/owned":""}},
    "spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const ROLLING: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":4,"upToDateReplicas":1,"version":"v1.34.2"}}"#;
const UPGRADING: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.33.4"}}"#;
/// A control plane whose kubelets report another version than its Machines have.
const VENDOR: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":0,"version":"v1.34.2-x",
    "deprecated":{"v1beta1":{"updatedReplicas":3}},"conditions":[{"type":"RollingOut",
    "status":"True","reason":"RollingOut","message":"","lastTransitionTime":"2026-06-01T11:00:00Z"}]}}"#;
/// A control plane whose spec has changed since the controller last processed it.
const UNOBSERVED: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const UNOBSERVED_PAUSED: &str = r#"{"metadata":{"generation":3,"annotations":{"cluster.x-k8s.io/paused":""}},
    "spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const UNOBSERVED_V1BETA1: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"updatedReplicas":3,"version":"v1.34.2"}}"#;
/// A control plane with Machines that its controller has compared with the last change, before a later step failed.
const COMPARED: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2",
    "deprecated":{"v1beta1":{"updatedReplicas":3}},"conditions":[
    {"type":"ControlPlaneComponentsHealthy","status":"True","reason":"Healthy","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3},
    {"type":"RollingOut","status":"False","reason":"NotRollingOut","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3}]}}"#;
const COMPARED_V1BETA1: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"updatedReplicas":3,"version":"v1.34.2",
    "v1beta2":{"upToDateReplicas":3,"conditions":[
    {"type":"ControlPlaneComponentsHealthy","status":"True","reason":"Healthy","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3}]}}}"#;
/// Only conditions that the controller writes before it compares the Machines include the last change.
const PAUSE_OBSERVED: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2","conditions":[
    {"type":"ControlPlaneComponentsHealthy","status":"True","reason":"Healthy","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":2},
    {"type":"Paused","status":"False","reason":"NotPaused","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3}]}}"#;
/// The controller has written its conditions, but not yet the number of Machines that match the spec.
const COUNTS_OUTDATED: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2",
    "deprecated":{"v1beta1":{"updatedReplicas":3}},"conditions":[
    {"type":"ControlPlaneComponentsHealthy","status":"True","reason":"Healthy","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3},
    {"type":"RollingOut","status":"True","reason":"RollingOut","message":"",
     "lastTransitionTime":"2026-06-01T12:00:00Z","observedGeneration":3}]}}"#;
/// The Machines do not match the last change, and a later step failed.
const COMPARED_OUTDATED: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":2,"version":"v1.34.2",
    "deprecated":{"v1beta1":{"updatedReplicas":2}},"conditions":[
    {"type":"ControlPlaneComponentsHealthy","status":"True","reason":"Healthy","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3}]}}"#;
/// A change that no reconcile has compared with the Machines for an hour.
const IGNORED: &str = r#"{"metadata":{"generation":3,"managedFields":[
    {"manager":"kubectl","operation":"Update","apiVersion":"controlplane.cluster.x-k8s.io/v1beta2",
     "time":"2026-06-01T11:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:version":{}}}},
    {"manager":"annotator","operation":"Update","apiVersion":"controlplane.cluster.x-k8s.io/v1beta2",
     "time":"2026-06-01T11:58:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:a":{}}}}},
    {"manager":"manager","operation":"Update","apiVersion":"controlplane.cluster.x-k8s.io/v1beta2",
     "time":"2026-06-01T11:59:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{}},"subresource":"status"}]},
    "spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const RECENT: &str = r#"{"metadata":{"generation":3,"managedFields":[
    {"manager":"kubectl","operation":"Update","apiVersion":"controlplane.cluster.x-k8s.io/v1beta2",
     "time":"2026-06-01T11:56:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:version":{}}}}]},
    "spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
/// A control plane that no controller has processed, or whose reconciles all failed.
const NEVER_OBSERVED: &str = r#"{"metadata":{"generation":1},"spec":{"replicas":3,"version":"v1.34.2"}}"#;
const NEVER_OBSERVED_WITH_CLUSTER: &str = r#"{"metadata":{"generation":1,
    "labels":{"cluster.x-k8s.io/cluster-name":"example"}},"spec":{"replicas":3,"version":"v1.34.2"}}"#;
const PAUSED_ROLLING: &str = r#"{"metadata":{"generation":4,"annotations":{"cluster.x-k8s.io/paused":""}},
    "spec":{"replicas":3},"status":{"observedGeneration":4,"replicas":4,"upToDateReplicas":1}}"#;
const ROLLING_V1BETA1: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"updatedReplicas":2}}"#;
const FIVE: &str = r#"{"spec":{"replicas":5}}"#;
const FIVE_UPGRADED: &str = r#"{"spec":{"replicas":5,"version":"v1.34.3"}}"#;
/// A control plane that `kubectl scale` has scaled, so that the topology controller does not own the replicas.
const SCALED: &str = r#"{"metadata":{"generation":5,"managedFields":[{"manager":"capi-topology","operation":"Apply",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-05-01T00:00:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:version":{}}}},{"manager":"kubectl","operation":"Update","subresource":"scale",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-06-01T11:59:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:replicas":{}}}}]},"spec":{"replicas":5,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const THREE_AND_OWNED: &str = r#"{"metadata":{"managedFields":[{"manager":"capi-topology","operation":"Apply",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-06-01T00:00:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:replicas":{},"f:version":{}}}}]},"spec":{"replicas":3}}"#;
const FIVE_UPGRADED_AND_OWNED: &str = r#"{"metadata":{"managedFields":[{"manager":"capi-topology","operation":"Apply",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-06-01T00:00:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:replicas":{},"f:version":{}}}}]},"spec":{"replicas":5,"version":"v1.34.3"}}"#;
const WITH: &str = "replicas-with-upgrade";
const DURING: &str = "replicas-during-rollout";
const ADOPTING: &str = "replicas-while-adopting";

pub(super) const CASES: &[Case] = &[
    Case::update(
        "accepts_scale_with_another_api_version_of_the_infrastructure",
        "{}",
        r#"{"spec":{"replicas":5,"machineTemplate":{"infrastructureRef":
            {"apiVersion":"infrastructure.cluster.x-k8s.io/v1alpha4"}}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
    Case::update("accepts_scale_alone", THREE, FIVE, &[]).only_in_version(V1BETA2),
    Case::update(
        "accepts_upgrade_alone",
        THREE,
        r#"{"spec":{"version":"v1.34.3"}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_version",
        THREE,
        FIVE_UPGRADED,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_infrastructure",
        THREE,
        r#"{"spec":{"replicas":5,"machineTemplate":{"spec":{"infrastructureRef":{"name":"other"}}}}}"#,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_kubeadm_configuration",
        THREE,
        r#"{"spec":{"replicas":5,"kubeadmConfigSpec":{"joinConfiguration":{"patches":{"directory":"/a"}}}}}"#,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_the_topology_controller",
        THREE_OWNED,
        FIVE_UPGRADED,
        &[(WITH, FIELD)],
    )
    .with_writer(trusted_users::CLUSTER_API)
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_false_field_manager_of_the_topology_controller",
        THREE_OWNED,
        FIVE_UPGRADED,
        &[(WITH, FIELD), ("version-owned-by-topology", "spec.version")],
    )
    .with_writer("mallory")
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_service_account_of_the_same_name_in_another_namespace",
        THREE_OWNED,
        FIVE_UPGRADED,
        &[(WITH, FIELD), ("version-owned-by-topology", "spec.version")],
    )
    .with_writer("system:serviceaccount:default:capi-manager")
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_label_of_the_topology_controller_without_its_fields",
        THREE_LABELLED,
        FIVE_UPGRADED,
        &[(WITH, FIELD)],
    )
    .with_writer(trusted_users::CLUSTER_API)
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_rollout_now",
        THREE,
        r#"{"spec":{"replicas":5,"rollout":{"after":"2026-06-01T12:00:00Z"}}}"#,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_rollout_now_in_v1beta1",
        THREE_V1BETA1,
        r#"{"spec":{"replicas":5,"rolloutAfter":"2026-06-01T12:00:00Z"}}"#,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA1),
    Case::update(
        "accepts_scale_with_rollout_later",
        THREE,
        r#"{"spec":{"replicas":5,"rollout":{"after":"2026-06-02T12:00:00Z"}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_scale_with_dns_repository",
        THREE,
        r#"{"spec":{"replicas":5,"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageRepository":"a.example/b"}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_dns_repository_and_another_change",
        THREE,
        r#"{"spec":{"replicas":5,"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageRepository":"a.example/b"},
            "imageRepository":"a.example/b"}}}}"#,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_while_machines_are_replaced",
        ROLLING,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_while_a_version_rolls_out",
        UPGRADING,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::scale(
        "rejects_scale_subresource_during_rollout",
        ROLLING,
        5,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_scale_if_only_the_kubelets_report_another_version",
        VENDOR,
        FIVE,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_while_the_last_change_is_unobserved",
        UNOBSERVED,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_while_the_last_change_is_unobserved_in_v1beta1",
        UNOBSERVED_V1BETA1,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA1),
    Case::scale(
        "rejects_scale_subresource_while_the_last_change_is_unobserved",
        UNOBSERVED,
        5,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::scale(
        "warns_of_scale_after_the_machines_were_compared_with_the_last_change",
        COMPARED,
        5,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_scale_after_the_machines_were_compared_in_v1beta1",
        COMPARED_V1BETA1,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA1),
    Case::update(
        "rejects_scale_before_the_machines_are_compared_with_the_last_change",
        PAUSE_OBSERVED,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_before_the_outdated_machines_are_counted",
        COUNTS_OUTDATED,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_if_the_comparison_found_outdated_machines",
        COMPARED_OUTDATED,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::scale(
        "warns_of_scale_after_a_change_was_ignored_for_long",
        IGNORED,
        5,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_after_a_recent_change",
        RECENT,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_version_while_the_last_change_is_unobserved",
        UNOBSERVED,
        FIVE_UPGRADED,
        &[(WITH, FIELD), (DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_corrected_configuration_while_the_last_change_is_unobserved",
        UNOBSERVED,
        r#"{"spec":{"kubeadmConfigSpec":{"preKubeadmCommands":["true"]}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_alone_while_the_last_change_is_unobserved",
        UNOBSERVED,
        r#"{"spec":{"version":"v1.34.3"}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_when_paused_and_the_last_change_is_unobserved",
        UNOBSERVED_PAUSED,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_everything_before_the_first_machine",
        NEVER_OBSERVED,
        FIVE_UPGRADED,
        &[],
    )
    .with_view(no_machines),
    Case::update(
        "rejects_scale_with_version_after_the_first_machine",
        NEVER_OBSERVED_WITH_CLUSTER,
        FIVE_UPGRADED,
        &[(WITH, FIELD), (DURING, FIELD)],
    )
    .with_view(adopted),
    Case::scale(
        "rejects_scale_while_a_machine_is_adopted",
        THREE,
        5,
        &[(ADOPTING, FIELD)],
    )
    .with_view(not_adopted)
    .only_in_version(V1BETA2),
    Case::update("accepts_scale_after_adoption", THREE, FIVE, &[])
        .with_view(adopted)
        .only_in_version(V1BETA2),
    Case::update(
        "warns_when_paused",
        PAUSED_ROLLING,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_when_the_cluster_is_paused",
        ROLLING,
        FIVE,
        &[(DURING, FIELD)],
    )
    .with_view(paused_cluster)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_during_rollout_in_v1beta1",
        ROLLING_V1BETA1,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA1),
    Case::update(
        "warns_the_topology_controller_that_sets_replicas_for_the_first_time",
        THREE,
        FIVE_UPGRADED_AND_OWNED,
        &[(WITH, FIELD)],
    )
    .with_writer(trusted_users::CLUSTER_API)
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
    Case::update(
        "warns_the_topology_controller_that_takes_back_a_scale",
        SCALED,
        THREE_AND_OWNED,
        &[(DURING, FIELD)],
    )
    .with_writer(trusted_users::CLUSTER_API)
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
];
