//! Objects as the API server sends them. The fields of v1beta1 and v1beta2 stand side by side: each object has one or
//! the other.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kcp_rules::view::Cluster;
use serde::Deserialize;

use crate::control_plane::{Condition, ControlPlane, Machine, PAUSED_ANNOTATION, label};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    generation: i64,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
    #[serde(default)]
    managed_fields: Vec<ManagedFields>,
}

#[derive(Deserialize)]
struct ManagedFields {
    time: Option<Timestamp>,
    subresource: Option<String>,
}

#[derive(Deserialize)]
struct OwnerReference {
    kind: String,
    name: String,
}

impl Metadata {
    fn owner(&self, kind: &str) -> Option<String> {
        let owner = self.owner_references.iter().find(|owner| owner.kind == kind);
        owner.map(|owner| owner.name.clone())
    }

    /// The last change that was not one of a subresource: no earlier than that of the spec.
    fn spec_changed(&self) -> Option<Timestamp> {
        let of_object = self
            .managed_fields
            .iter()
            .filter(|fields| fields.subresource.is_none());
        of_object.filter_map(|fields| fields.time).max()
    }
}

#[derive(Deserialize)]
pub struct WireControlPlane {
    metadata: Metadata,
    spec: ControlPlaneSpec,
    #[serde(default)]
    status: ControlPlaneStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ControlPlaneSpec {
    replicas: Option<i64>,
    version: Option<String>,
    kubeadm_config_spec: Option<KubeadmConfigSpec>,
    /// v1beta2.
    rollout: Option<Rollout>,
    /// v1beta1.
    rollout_after: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Rollout {
    after: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KubeadmConfigSpec {
    cluster_configuration: Option<ClusterConfiguration>,
}

#[derive(Deserialize)]
struct ClusterConfiguration {
    etcd: Option<Etcd>,
}

#[derive(Deserialize)]
struct Etcd {
    external: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ControlPlaneStatus {
    observed_generation: Option<i64>,
    replicas: Option<i64>,
    ready_replicas: Option<i64>,
    version: Option<String>,
    conditions: Option<Vec<Condition>>,
    // v1beta2
    available_replicas: Option<i64>,
    up_to_date_replicas: Option<i64>,
    initialization: Option<Initialization>,
    deprecated: Option<Deprecated>,
    // v1beta1
    updated_replicas: Option<i64>,
    unavailable_replicas: Option<i64>,
    initialized: Option<bool>,
    failure_reason: Option<String>,
    failure_message: Option<String>,
    v1beta2: Option<Later>,
}

/// What an object served as v1beta1 already has of v1beta2.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Later {
    conditions: Option<Vec<Condition>>,
    ready_replicas: Option<i64>,
    available_replicas: Option<i64>,
    up_to_date_replicas: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialization {
    control_plane_initialized: Option<bool>,
}

/// What an object served as v1beta2 still has of v1beta1.
#[derive(Deserialize)]
struct Deprecated {
    v1beta1: Option<Earlier>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Earlier {
    failure_reason: Option<String>,
    failure_message: Option<String>,
}

impl From<WireControlPlane> for ControlPlane {
    fn from(
        WireControlPlane {
            metadata,
            spec,
            status,
        }: WireControlPlane,
    ) -> Self {
        let cluster = metadata.labels.get(label::CLUSTER_NAME).cloned();
        let later = status.v1beta2.unwrap_or_default();
        let replicas = status.replicas.unwrap_or(0);
        let earlier = status.deprecated.and_then(|deprecated| deprecated.v1beta1);
        let (reason, message) = earlier.map_or((None, None), |earlier| {
            (earlier.failure_reason, earlier.failure_message)
        });
        let failure = [
            status.failure_reason.or(reason),
            status.failure_message.or(message),
        ];
        let failure: Vec<String> = failure.into_iter().flatten().collect();
        Self {
            cluster: cluster.or_else(|| metadata.owner("Cluster")),
            spec_changed: metadata.spec_changed(),
            paused: metadata.annotations.contains_key(PAUSED_ANNOTATION),
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            observed_generation: status.observed_generation,
            created: metadata.creation_timestamp,
            deleting_since: metadata.deletion_timestamp,
            external_etcd: spec
                .kubeadm_config_spec
                .and_then(|config| config.cluster_configuration?.etcd?.external)
                .is_some(),
            desired_replicas: spec.replicas,
            desired_version: spec.version,
            rollout_after: spec
                .rollout_after
                .or(spec.rollout.and_then(|rollout| rollout.after)),
            replicas,
            ready_replicas: later.ready_replicas.or(status.ready_replicas).unwrap_or(0),
            available_replicas: status
                .available_replicas
                .or(later.available_replicas)
                .or(status
                    .unavailable_replicas
                    .map(|unavailable| replicas - unavailable))
                .unwrap_or(0),
            up_to_date_replicas: status
                .up_to_date_replicas
                .or(later.up_to_date_replicas)
                .or(status.updated_replicas)
                .unwrap_or(0),
            version: status.version,
            initialized: status
                .initialization
                .and_then(|initialization| initialization.control_plane_initialized)
                .or(status.initialized)
                .unwrap_or(false),
            failure: (!failure.is_empty()).then(|| failure.join(": ")),
            conditions: later.conditions.or(status.conditions).unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
pub struct WireMachine {
    metadata: Metadata,
    spec: MachineSpec,
    #[serde(default)]
    status: MachineStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineSpec {
    cluster_name: Option<String>,
    version: Option<String>,
    failure_domain: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineStatus {
    node_ref: Option<NodeReference>,
    phase: Option<String>,
    conditions: Option<Vec<Condition>>,
    /// v1beta1.
    v1beta2: Option<Later>,
}

#[derive(Deserialize)]
struct NodeReference {
    name: String,
}

impl From<WireMachine> for Machine {
    fn from(
        WireMachine {
            metadata,
            spec,
            status,
        }: WireMachine,
    ) -> Self {
        let later = status.v1beta2.and_then(|later| later.conditions);
        Self {
            owner: metadata.owner("KubeadmControlPlane"),
            name: metadata.name,
            namespace: metadata.namespace,
            cluster: spec.cluster_name,
            created: metadata.creation_timestamp,
            deleting_since: metadata.deletion_timestamp,
            version: spec.version,
            failure_domain: spec.failure_domain.filter(|domain| !domain.is_empty()),
            node: status.node_ref.map(|node| node.name),
            phase: status.phase,
            conditions: later.or(status.conditions).unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
pub struct WireCluster {
    metadata: Metadata,
    #[serde(default)]
    spec: ClusterSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterSpec {
    #[serde(default)]
    paused: bool,
    control_plane_ref: Option<ControlPlaneReference>,
}

#[derive(Deserialize)]
struct ControlPlaneReference {
    name: Option<String>,
}

impl From<WireCluster> for Cluster {
    fn from(WireCluster { metadata, spec }: WireCluster) -> Self {
        Self {
            name: metadata.name,
            paused: spec.paused,
            deleting: metadata.deletion_timestamp.is_some(),
            control_plane: spec.control_plane_ref.and_then(|reference| reference.name),
        }
    }
}

/// What rules see of a Cluster, given as the server wrote it.
///
/// # Errors
/// When it does not have its kind's types.
pub fn cluster_of(object: &str) -> serde_json::Result<Cluster> {
    serde_json::from_str::<WireCluster>(object).map(Cluster::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Cluster, ControlPlane, Machine, WireCluster, WireControlPlane, WireMachine};

    #[test]
    fn a_cluster_is_what_rules_see() {
        let decode = |value| serde_json::from_value::<WireCluster>(value).map(Cluster::from);
        let cluster = json!({
            "metadata": {"name": "c1", "deletionTimestamp": "2026-08-21T10:00:00Z"},
            "spec": {"paused": true, "controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "c1-cp"}}
        });
        let seen = Cluster {
            name: "c1".to_owned(),
            paused: true,
            deleting: true,
            control_plane: Some("c1-cp".to_owned()),
        };
        assert_eq!(decode(cluster).expect("a Cluster"), seen);
        let bare = Cluster {
            name: "c1".to_owned(),
            ..Cluster::default()
        };
        assert_eq!(
            decode(json!({"metadata": {"name": "c1"}})).expect("a Cluster"),
            bare
        );
    }

    #[test]
    fn both_versions_of_a_control_plane_say_the_same() {
        let condition = json!({"type": "Available", "status": "True", "reason": "Available",
            "lastTransitionTime": "2026-08-21T10:00:00Z"});
        let metadata = json!({"name": "c1-cp", "namespace": "d", "generation": 7, "resourceVersion": "12",
            "labels": {"cluster.x-k8s.io/cluster-name": "c1"},
            "annotations": {"cluster.x-k8s.io/paused": "false"}});
        let config = json!({"clusterConfiguration": {"etcd": {"external": {"endpoints": []}}}});
        let v1beta2 = json!({
            "metadata": metadata,
            "spec": {"replicas": 3, "version": "v1.34.1", "kubeadmConfigSpec": config,
                "rollout": {"after": "2026-08-21T09:00:00Z"}},
            "status": {"observedGeneration": 7, "replicas": 4, "readyReplicas": 3, "availableReplicas": 3,
                "upToDateReplicas": 1, "version": "v1.33.4",
                "initialization": {"controlPlaneInitialized": true}, "conditions": [condition],
                "deprecated": {"v1beta1": {"failureReason": "R", "failureMessage": "M"}}}
        });
        let v1beta1 = json!({
            "metadata": metadata,
            "spec": {"replicas": 3, "version": "v1.34.1", "kubeadmConfigSpec": config,
                "rolloutAfter": "2026-08-21T09:00:00Z"},
            "status": {"observedGeneration": 7, "replicas": 4, "readyReplicas": 4, "unavailableReplicas": 2,
                "updatedReplicas": 2, "version": "v1.33.4", "initialized": true,
                "failureReason": "R", "failureMessage": "M",
                "conditions": [{"type": "Ready", "status": "False"}],
                "v1beta2": {"conditions": [condition], "readyReplicas": 3, "availableReplicas": 3,
                    "upToDateReplicas": 1}}
        });
        let decode = |value| serde_json::from_value::<WireControlPlane>(value).map(ControlPlane::from);
        let later = decode(v1beta2).expect("v1beta2");
        assert_eq!(later, decode(v1beta1).expect("v1beta1"));
        assert_eq!(later.cluster.as_deref(), Some("c1"));
        assert!(later.paused && later.initialized && later.external_etcd && later.is("Available"));
        assert_eq!(later.failure.as_deref(), Some("R: M"));
        assert_eq!((later.available_replicas, later.up_to_date_replicas), (3, 1));
    }

    #[test]
    fn an_object_that_no_controller_has_seen_decodes() {
        let control_plane = json!({"metadata": {"name": "c1-cp"}, "spec": {}});
        let control_plane: WireControlPlane = serde_json::from_value(control_plane).expect("decodes");
        let control_plane = ControlPlane::from(control_plane);
        assert_eq!(control_plane.observed_generation, None);
        assert!(!control_plane.is_observed());

        let machine = json!({"metadata": {"name": "m", "ownerReferences": [
            {"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "name": "c1-cp"}]},
            "spec": {"clusterName": "c1", "failureDomain": ""}});
        let machine = Machine::from(serde_json::from_value::<WireMachine>(machine).expect("decodes"));
        assert_eq!((machine.ready(), machine.failure_domain.clone()), (None, None));
        assert!(control_plane.has(&machine));
    }
}
