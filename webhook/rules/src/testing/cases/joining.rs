//! Cases of the rules in [`crate::topics::joining`].

use crate::{
    testing::case::{Answer, Case, V1BETA1, V1BETA2},
    topics::joining::ID,
    trusted_users,
    view::{Cluster, Machine, View},
};

fn machine(name: &str, has_node: bool) -> Machine {
    Machine {
        name: name.to_owned(),
        version: Some(if has_node { "v1.34.2" } else { "v1.34.3" }.to_owned()),
        created: "2026-05-01T00:00:00Z".parse().ok(),
        has_node,
        has_controller: true,
        ..Machine::default()
    }
}

fn view(machines: Vec<Machine>) -> View {
    View {
        machines: machines.into(),
        ..View::default()
    }
}

fn first_joins() -> View {
    view(vec![machine("new", false)])
}

fn second_joins() -> View {
    view(vec![machine("old", true), machine("new", false)])
}

fn second_has_joined() -> View {
    view(vec![machine("old", true), machine("new", true)])
}

fn third_joins() -> View {
    view(vec![
        machine("one", true),
        machine("two", true),
        machine("new", false),
    ])
}

fn second_joins_while_another_leaves() -> View {
    let leaving = Machine {
        is_deleting: true,
        ..machine("two", true)
    };
    view(vec![machine("one", true), leaving, machine("new", false)])
}

fn second_is_deleted() -> View {
    let deleted = Machine {
        is_deleting: true,
        ..machine("new", false)
    };
    view(vec![machine("old", true), deleted])
}

fn second_awaits_bootstrap_data() -> View {
    let waiting = Machine {
        awaits_bootstrap_data: true,
        ..machine("new", false)
    };
    view(vec![machine("old", true), waiting])
}

fn second_joins_while_the_cluster_is_paused() -> View {
    let cluster = Cluster {
        name: "example".to_owned(),
        paused: true,
        ..Cluster::default()
    };
    View {
        cluster: Some(cluster).into(),
        ..second_joins()
    }
}

const UPGRADING: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":1,"version":"v1.34.3"},
    "status":{"observedGeneration":4,"replicas":2,"upToDateReplicas":1,"version":"v1.34.2"}}"#;
const UPGRADING_V1BETA1: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":1,"version":"v1.34.3"},
    "status":{"observedGeneration":4,"replicas":2,"updatedReplicas":1,"version":"v1.34.2"}}"#;
const REVERTED: &str = r#"{"metadata":{"generation":5},"spec":{"replicas":1,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":2,"upToDateReplicas":1,"version":"v1.34.2"}}"#;
const UPGRADING_OWNED: &str = r#"{"metadata":{"generation":4,"managedFields":[{"manager":"capi-topology","operation":"Apply",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-05-01T00:00:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:replicas":{},"f:version":{}}}}]},"spec":{"replicas":1,"version":"v1.34.3"},
    "status":{"observedGeneration":4,"replicas":2,"upToDateReplicas":1,"version":"v1.34.2"}}"#;
const UPGRADING_EXTERNAL: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":1,"version":"v1.34.3",
    "kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"external":{"endpoints":["https://192.0.2.1:2379"],
    "caFile":"/a","certFile":"/b","keyFile":"/c"}}}}}}"#;
const NEXT: &str = r#"{"spec":{"version":"v1.34.4"}}"#;
const CERT_SANS: &str =
    r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"certSANs":["a.example"]}}}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::update(
        "rejects_version_while_the_second_machine_joins",
        UPGRADING,
        NEXT,
        &[(ID, "spec.version")],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_kubeadm_configuration_while_the_second_machine_joins",
        UPGRADING,
        CERT_SANS,
        &[(ID, "spec.kubeadmConfigSpec")],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_infrastructure_while_the_second_machine_joins",
        UPGRADING,
        r#"{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"name":"other"}}}}}"#,
        &[(ID, "spec.machineTemplate.spec.infrastructureRef")],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_rollout_now_while_the_second_machine_joins",
        UPGRADING,
        r#"{"spec":{"rollout":{"after":"2026-06-01T12:00:00Z"}}}"#,
        &[(ID, "spec.rollout.after")],
    )
    // A real API server creates the Machines now, so they are younger than the time.
    .answered_by(Answer::Admitted)
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_rollout_now_while_the_second_machine_joins_in_v1beta1",
        UPGRADING_V1BETA1,
        r#"{"spec":{"rolloutAfter":"2026-06-01T12:00:00Z"}}"#,
        &[(ID, "spec.rolloutAfter")],
    )
    // A real API server creates the Machines now, so they are younger than the time.
    .answered_by(Answer::Admitted)
    .with_view(second_joins)
    .only_in_version(V1BETA1),
    Case::update(
        "rejects_version_while_the_second_machine_joins_and_another_leaves",
        UPGRADING,
        NEXT,
        &[(ID, "spec.version")],
    )
    .with_view(second_joins_while_another_leaves)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_the_topology_controller_while_the_second_machine_joins",
        UPGRADING_OWNED,
        NEXT,
        &[(ID, "spec.version")],
    )
    .with_view(second_joins)
    .with_writer(trusted_users::CLUSTER_API)
    .with_field_manager("capi-topology")
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_version_while_the_second_machine_joins_and_the_cluster_is_paused",
        UPGRADING,
        NEXT,
        &[(ID, "spec.version")],
    )
    .with_view(second_joins_while_the_cluster_is_paused)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_the_version_of_the_joining_machine",
        REVERTED,
        r#"{"spec":{"version":"v1.34.3"}}"#,
        &[],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_the_version_of_the_joining_machine_with_another_change",
        REVERTED,
        r#"{"spec":{"version":"v1.34.3",
            "kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"certSANs":["a.example"]}}}}}"#,
        &[(ID, "spec.version")],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_dns_version_while_the_second_machine_joins",
        UPGRADING,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.13.1"}}}}}"#,
        &[(
            "coredns-version-unknown",
            "spec.kubeadmConfigSpec.clusterConfiguration.dns.imageTag",
        )],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_while_the_first_machine_joins",
        UPGRADING,
        NEXT,
        &[],
    )
    .with_view(first_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_once_the_second_machine_has_joined",
        UPGRADING,
        NEXT,
        &[],
    )
    .with_view(second_has_joined)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_while_the_third_machine_joins",
        UPGRADING,
        NEXT,
        &[],
    )
    .with_view(third_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_while_the_second_machine_is_deleted",
        UPGRADING,
        NEXT,
        &[],
    )
    .with_view(second_is_deleted)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_corrected_configuration_before_the_second_machine_has_bootstrap_data",
        UPGRADING,
        CERT_SANS,
        &[],
    )
    .with_view(second_awaits_bootstrap_data)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_with_external_etcd_while_the_second_machine_joins",
        UPGRADING_EXTERNAL,
        NEXT,
        &[],
    )
    .with_view(second_joins),
];
