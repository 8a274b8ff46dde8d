//! Objects of the management cluster for tests.

use jiff::Timestamp;
use kcp_api::{
    Condition, ConditionStatus, KubeadmControlPlane, KubeadmControlPlaneSpec, Machine, Remediation,
    control_plane::KubeadmControlPlaneStatus,
    machine::{MachineSpec, MachineStatus},
    metadata::{FieldsV1, ManagedFieldsEntry, ObjectMeta, OwnerReference, Time},
    names::{annotation, label},
};

use serde_json::json;

use crate::snapshot::Snapshot;

/// The current time in every example.
pub fn now() -> Timestamp {
    "2026-08-21T12:00:00Z".parse().expect("a time")
}

/// A time some minutes before [`now`].
pub fn minutes_ago(minutes: i64) -> Timestamp {
    now() - jiff::SignedDuration::from_mins(minutes)
}

pub fn condition(kind: &str, status: ConditionStatus, message: &str) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status,
        reason: "Reason".to_owned(),
        message: message.to_owned(),
        last_transition_time: Some(minutes_ago(5)),
        observed_generation: None,
    }
}

/// Sets a condition of an object.
pub fn set(conditions: &mut Vec<Condition>, condition: Condition) {
    conditions.retain(|other| other.type_ != condition.type_);
    conditions.push(condition);
}

/// A healthy Machine.
pub fn machine(name: &str) -> Machine {
    let kinds = [
        "Ready",
        "UpToDate",
        "APIServerPodHealthy",
        "ControllerManagerPodHealthy",
        "SchedulerPodHealthy",
        "EtcdPodHealthy",
        "EtcdMemberHealthy",
        "NodeKubeadmLabelsAndTaintsSet",
    ];
    let owner = OwnerReference {
        api_version: "controlplane.cluster.x-k8s.io/v1beta2".to_owned(),
        kind: "KubeadmControlPlane".to_owned(),
        name: "c1-cp".to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    Machine {
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        metadata: ObjectMeta {
            creation_timestamp: Some(Time(minutes_ago(120))),
            owner_references: Some(vec![owner]),
            ..metadata(name)
        },
        spec: MachineSpec {
            cluster_name: Some("c1".to_owned()),
            version: Some("v1.34.1".to_owned()),
            provider_id: Some(format!("p://{name}")),
            ..MachineSpec::default()
        },
        status: MachineStatus {
            node_name: Some(format!("node-{name}")),
            phase: Some("Running".to_owned()),
            conditions: kinds
                .map(|kind| condition(kind, ConditionStatus::True, ""))
                .to_vec(),
            ..MachineStatus::default()
        },
        ..Machine::default()
    }
}

/// Metadata of an object in the namespace of every example.
fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("d".to_owned()),
        ..ObjectMeta::default()
    }
}

/// Sets an annotation of an object.
pub fn annotate(metadata: &mut ObjectMeta, name: &str, value: &str) {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(name.to_owned(), value.to_owned());
}

/// Pauses an object by its annotation.
pub fn pause(metadata: &mut ObjectMeta) {
    annotate(metadata, annotation::PAUSED, "");
}

/// Records a remediation in an annotation of an object.
pub fn record(metadata: &mut ObjectMeta, name: &str, remediation: &Remediation) {
    let Remediation {
        machine,
        timestamp,
        retry_count,
        is_malformed: _,
    } = remediation;
    let value = json!({"machine": machine, "timestamp": timestamp, "retryCount": retry_count});
    annotate(metadata, name, &value.to_string());
}

/// Sets the time at which a control plane's spec last changed.
pub fn change_spec(metadata: &mut ObjectMeta, time: Timestamp) {
    metadata.managed_fields = Some(vec![ManagedFieldsEntry {
        time: Some(Time(time)),
        fields_v1: Some(FieldsV1(json!({"f:spec": {}}))),
        ..ManagedFieldsEntry::default()
    }]);
}

/// Records a change through the subresource `scale`. The API server writes no time into its entry.
pub fn scale_without_a_time(control_plane: &mut KubeadmControlPlane) {
    control_plane.spec.replicas = Some(control_plane.desired_replicas() + 2);
    let entry = ManagedFieldsEntry {
        subresource: Some("scale".to_owned()),
        fields_v1: Some(FieldsV1(json!({"f:spec": {}}))),
        ..ManagedFieldsEntry::default()
    };
    control_plane
        .metadata
        .managed_fields
        .get_or_insert_default()
        .push(entry);
}

/// Adds a generation of the spec with which the controller has compared the Machines, but which it has not recorded.
pub fn compare_without_record(control_plane: &mut KubeadmControlPlane) {
    let generation = control_plane.metadata.generation.map(|generation| generation + 1);
    control_plane.metadata.generation = generation;
    let healthy = condition("ControlPlaneComponentsHealthy", ConditionStatus::True, "");
    set(
        &mut control_plane.status.conditions,
        Condition {
            observed_generation: generation,
            ..healthy
        },
    );
}

/// Records a later write of the status.
pub fn change_status(metadata: &mut ObjectMeta, time: Timestamp) {
    let entry = ManagedFieldsEntry {
        subresource: Some("status".to_owned()),
        time: Some(Time(time)),
        ..ManagedFieldsEntry::default()
    };
    metadata.managed_fields.get_or_insert_default().push(entry);
}

/// Makes a control plane use an external etcd.
pub fn use_external_etcd(spec: &mut KubeadmControlPlaneSpec) {
    spec.kubeadm_config_spec.fields["clusterConfiguration"]["etcd"] = json!({"external": {}});
}

/// A Machine that was created a minute ago.
pub fn new_machine(name: &str) -> Machine {
    let mut machine = machine(name);
    machine.metadata.creation_timestamp = Some(Time(minutes_ago(1)));
    machine.status = MachineStatus {
        phase: Some("Provisioning".to_owned()),
        conditions: vec![condition(
            "Ready",
            ConditionStatus::False,
            "waiting for infrastructure",
        )],
        ..MachineStatus::default()
    };
    machine
}

/// A healthy control plane with the desired number of Machines.
pub fn healthy(machines: usize) -> Snapshot {
    let kinds = [
        "Available",
        "CertificatesAvailable",
        "EtcdClusterHealthy",
        "ControlPlaneComponentsHealthy",
    ];
    let count = i64::try_from(machines).expect("a small number");
    let control_plane = KubeadmControlPlane {
        api_version: "controlplane.cluster.x-k8s.io/v1beta2".to_owned(),
        metadata: ObjectMeta {
            uid: Some("u1".to_owned()),
            resource_version: Some("12".to_owned()),
            generation: Some(7),
            creation_timestamp: Some(Time(minutes_ago(60 * 24 * 3))),
            labels: Some([(label::CLUSTER_NAME.to_owned(), "c1".to_owned())].into()),
            ..metadata("c1-cp")
        },
        spec: KubeadmControlPlaneSpec {
            replicas: Some(count),
            version: Some("v1.34.1".to_owned()),
            ..KubeadmControlPlaneSpec::default()
        },
        status: KubeadmControlPlaneStatus {
            observed_generation: Some(7),
            replicas: count,
            ready_replicas: count,
            available_replicas: count,
            up_to_date_replicas: count,
            version: Some("v1.34.1".to_owned()),
            initialized: true,
            conditions: kinds
                .map(|kind| condition(kind, ConditionStatus::True, ""))
                .to_vec(),
            ..KubeadmControlPlaneStatus::default()
        },
    };
    Snapshot {
        machines: (1..=machines).map(|n| machine(&format!("c1-cp-m{n}"))).collect(),
        ..Snapshot::from(control_plane)
    }
}
