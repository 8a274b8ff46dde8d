//! Decodes `Machine` from v1beta1 and v1beta2 of Cluster API.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use crate::{
    Condition, KubeadmConfigSpec, Reference, Remediation,
    condition::{self, V1Beta2Status},
    decode::{null_as_default, timestamp},
    kind::KUBEADM_CONTROL_PLANE,
    metadata::{self, Object as _},
    names::annotation,
};

/// The name of the hook for in-place updates in [`annotation::PENDING_HOOKS`].
const UPDATE_MACHINE_HOOK: &str = "UpdateMachine";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Machine {
    pub api_version: String,
    pub metadata: ObjectMeta,
    pub spec: MachineSpec,
    pub status: MachineStatus,
    /// The facts from the infrastructure machine to which `spec.infrastructureRef` refers.
    /// [`Infrastructure::Missing`] until a separate request has read the object.
    pub infrastructure: Infrastructure,
    /// The `KubeadmConfig` that `spec.bootstrap.configRef` refers to. [`Bootstrap::Missing`] until a separate request
    /// has read the object.
    pub bootstrap: Bootstrap,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Infrastructure {
    /// The infrastructure machine does not exist or was not read.
    #[default]
    Missing,
    /// The infrastructure machine has no annotations that name its template.
    Unannotated,
    ClonedFrom(Reference),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Bootstrap {
    /// The `KubeadmConfig` does not exist or was not read.
    #[default]
    Missing,
    /// The Machine has no `configRef`.
    Unreferenced,
    Config(KubeadmConfigSpec),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineSpec {
    pub cluster_name: Option<String>,
    /// The Machine's Kubernetes version, with a leading `v`.
    pub version: Option<String>,
    /// `spec.failureDomain`: where the infrastructure provider creates the Machine. `None` if unset or empty.
    pub failure_domain: Option<String>,
    /// `spec.bootstrap.configRef`: the `KubeadmConfig` of the Machine. `None` if absent.
    pub bootstrap_config_ref: Option<Reference>,
    /// Whether `spec.bootstrap.dataSecretName` is unset: the bootstrap provider has not written the Machine's bootstrap data
    /// yet, so kubeadm cannot run.
    pub awaits_bootstrap_data: bool,
    pub infrastructure_ref: Option<Reference>,
    /// `spec.providerID`, which equals `spec.providerID` of the Machine's Node. `None` until the infrastructure
    /// provider has set it.
    pub provider_id: Option<String>,
    /// `spec.deletion.nodeDrainTimeoutSeconds` (`spec.nodeDrainTimeout` in v1beta1): how long Cluster API
    /// drains the Node before it deletes the Machine anyway. `None` if unset or zero, which means no limit.
    pub node_drain_timeout: Option<SignedDuration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineStatus {
    /// `status.nodeRef.name`. `None` until the Machine's Node has joined the workload cluster.
    pub node_name: Option<String>,
    /// `status.addresses[].address`: the addresses and host names of the Machine's host. Empty if the infrastructure
    /// provider reports none.
    pub addresses: Vec<String>,
    /// The phase of the Machine, such as `Pending`, `Provisioning`, `Running` or `Deleting`.
    pub phase: Option<String>,
    /// When the phase last changed.
    pub last_updated: Option<Timestamp>,
    /// When the certificate of the Machine's API server expires, as the controller reports it.
    pub certificates_expiry_date: Option<Timestamp>,
    /// The address of the Machine's host: the first internal IP address, or else the first address of any type.
    pub host_address: Option<String>,
    pub conditions: Vec<Condition>,
}

impl Machine {
    /// The name of the `KubeadmControlPlane` that owns the Machine. `None` if the Machine has another owner or none.
    pub fn control_plane(&self) -> Option<&str> {
        self.owner(KUBEADM_CONTROL_PLANE.kind)
    }

    /// The name of the Machine's Node. `None` until the Node has joined the workload cluster.
    pub fn node(&self) -> Option<&str> {
        self.status.node_name.as_deref()
    }

    pub const fn has_node(&self) -> bool {
        self.status.node_name.is_some()
    }

    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        condition::find(&self.status.conditions, type_)
    }

    /// Whether the Machine has this condition with the status True.
    pub fn is_condition_true(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(Condition::is_true)
    }

    /// Whether the Machine has this condition with the status False.
    pub fn is_condition_false(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(Condition::is_false)
    }

    /// Whether the condition `Ready` is True. `None` if the condition is absent.
    pub fn ready(&self) -> Option<bool> {
        self.condition("Ready").map(Condition::is_true)
    }

    /// Whether the condition `UpToDate` is True. `None` if the condition is absent.
    pub fn up_to_date(&self) -> Option<bool> {
        self.condition("UpToDate").map(Condition::is_true)
    }

    /// Whether a `MachineHealthCheck` has found that the Machine is unhealthy.
    pub fn failed_health_check(&self) -> bool {
        self.is_condition_false("HealthCheckSucceeded")
    }

    /// Whether a `MachineHealthCheck` has asked the control plane to replace the Machine.
    pub fn awaits_remediation(&self) -> bool {
        self.failed_health_check() && self.is_condition_false("OwnerRemediated")
    }

    /// Whether a scale down deletes this Machine first, because of the annotation `delete-machine`.
    pub fn is_deleted_first(&self) -> bool {
        self.has_annotation(annotation::DELETE_MACHINE)
    }

    /// Whether the annotation `remediate-machine` marks the Machine as unhealthy.
    pub fn is_marked_unhealthy(&self) -> bool {
        self.has_annotation(annotation::REMEDIATE_MACHINE)
    }

    pub fn is_updating_in_place(&self) -> bool {
        let hooks = self.annotation(annotation::PENDING_HOOKS).unwrap_or_default();
        self.has_annotation(annotation::UPDATE_IN_PROGRESS)
            || hooks.split(',').any(|hook| hook == UPDATE_MACHINE_HOOK)
    }

    pub fn remediation_for(&self) -> Option<Remediation> {
        let value = self.annotation(annotation::REMEDIATION_FOR)?;
        Some(Remediation::from_annotation(value))
    }

    /// The names of the annotations that block the Machine's deletion until their owners remove them.
    pub fn deletion_hooks(&self) -> impl Iterator<Item = &str> {
        let annotations = self.metadata.annotations.iter().flatten();
        let is_hook = |name: &&str| {
            [
                annotation::PRE_DRAIN_HOOK_PREFIX,
                annotation::PRE_TERMINATE_HOOK_PREFIX,
            ]
            .iter()
            .any(|hook| name.starts_with(hook))
        };
        annotations.map(|(name, _)| name.as_str()).filter(is_hook)
    }

    /// The deletion hooks that programs other than the control plane controller have set.
    pub fn foreign_deletion_hooks(&self) -> impl Iterator<Item = &str> {
        self.deletion_hooks()
            .filter(|hook| *hook != annotation::KCP_CLEANUP_HOOK)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default)]
    api_version: String,
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    cluster_name: Option<String>,
    version: Option<String>,
    failure_domain: Option<String>,
    bootstrap: Option<WireBootstrap>,
    infrastructure_ref: Option<Reference>,
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    // v1beta2
    #[serde(default, deserialize_with = "null_as_default")]
    deletion: WireDeletion,
    // v1beta1
    node_drain_timeout: Option<SignedDuration>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireDeletion {
    node_drain_timeout_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireBootstrap {
    config_ref: Option<Reference>,
    data_secret_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    node_ref: Option<Reference>,
    #[serde(default, deserialize_with = "null_as_default")]
    addresses: Vec<WireAddress>,
    phase: Option<String>,
    #[serde(default, deserialize_with = "timestamp")]
    last_updated: Option<Timestamp>,
    #[serde(default, deserialize_with = "timestamp")]
    certificates_expiry_date: Option<Timestamp>,
    conditions: Option<Vec<Condition>>,
    v1beta2: Option<V1Beta2Status>,
}

#[derive(Deserialize)]
struct WireAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

fn host_address(addresses: &[WireAddress]) -> Option<String> {
    let internal = addresses.iter().find(|address| address.kind == "InternalIP");
    internal.or(addresses.first()).map(|found| found.address.clone())
}

impl From<Wire> for Machine {
    fn from(wire: Wire) -> Self {
        let Wire {
            api_version,
            metadata,
            spec,
            status,
        } = wire;
        let drain_seconds = spec.deletion.node_drain_timeout_seconds;
        let drain_timeout = drain_seconds.map(SignedDuration::from_secs);
        Self {
            api_version,
            metadata,
            spec: MachineSpec {
                cluster_name: spec.cluster_name,
                version: spec.version,
                failure_domain: spec.failure_domain.filter(|domain| !domain.is_empty()),
                awaits_bootstrap_data: spec
                    .bootstrap
                    .as_ref()
                    .is_some_and(|bootstrap| bootstrap.data_secret_name.is_none()),
                bootstrap_config_ref: spec.bootstrap.and_then(|bootstrap| bootstrap.config_ref),
                infrastructure_ref: spec.infrastructure_ref,
                provider_id: spec.provider_id.filter(|id| !id.is_empty()),
                node_drain_timeout: drain_timeout
                    .or(spec.node_drain_timeout)
                    .filter(SignedDuration::is_positive),
            },
            status: MachineStatus {
                node_name: status.node_ref.map(|node| node.name),
                host_address: host_address(&status.addresses),
                addresses: status.addresses.into_iter().map(|entry| entry.address).collect(),
                phase: status.phase,
                last_updated: status.last_updated,
                certificates_expiry_date: status.certificates_expiry_date,
                conditions: condition::conditions_of(status.conditions, status.v1beta2),
            },
            infrastructure: Infrastructure::default(),
            bootstrap: Bootstrap::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use serde_json::{Value, json};

    use super::Machine;
    use crate::{Reference, Remediation, decode, metadata::Object as _};

    fn machine(object: &Value) -> Machine {
        decode(&object.to_string()).expect("decodes")
    }

    fn annotated(annotations: &Value) -> Machine {
        machine(&json!({"metadata": {"name": "m1", "annotations": annotations}, "spec": {}}))
    }

    #[test]
    fn both_versions_decode_to_the_same() {
        let metadata = json!({"name": "m1", "namespace": "d", "ownerReferences": [
            {"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "name": "c1-cp",
                "uid": "u", "controller": true}]});
        let conditions = json!([
            {"type": "Ready", "status": "False", "reason": "NotReady", "message": "", "lastTransitionTime": "2026-08-21T10:00:00Z"},
            {"type": "HealthCheckSucceeded", "status": "False"}, {"type": "OwnerRemediated", "status": "False"},
            {"type": "UpToDate", "status": "True"},
        ]);
        let v1beta2 = machine(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata,
            "spec": {
                "clusterName": "c1", "version": "v1.34.1", "failureDomain": "a", "providerID": "p://m1",
                "deletion": {"nodeDrainTimeoutSeconds": 600},
                "bootstrap": {"dataSecretName": "s", "configRef":
                    {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": "m1-config"}},
                "infrastructureRef":
                    {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerMachine", "name": "m1-infra"},
            },
            "status": {"nodeRef": {"name": "n1"}, "phase": "Running", "lastUpdated": "2026-08-21T09:05:00Z",
                "conditions": conditions,
                "certificatesExpiryDate": "2027-08-21T09:00:00Z",
                "deprecated": {"v1beta1": {"conditions": [{"type": "Ready", "status": "True"}]}}},
        }));
        let v1beta1 = machine(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": metadata,
            "spec": {
                "clusterName": "c1", "version": "v1.34.1", "failureDomain": "a", "providerID": "p://m1",
                "nodeDrainTimeout": "10m0s",
                "bootstrap": {"dataSecretName": "s", "configRef":
                    {"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "KubeadmConfig", "name": "m1-config"}},
                "infrastructureRef":
                    {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "DockerMachine", "name": "m1-infra"},
            },
            "status": {"nodeRef": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}, "phase": "Running",
                "lastUpdated": "2026-08-21T09:05:00Z", "certificatesExpiryDate": "2027-08-21T09:00:00Z",
                "conditions": [{"type": "Ready", "status": "True"}], "v1beta2": {"conditions": conditions}},
        }));
        assert_eq!(v1beta1.api_version, "cluster.x-k8s.io/v1beta1");
        let same = Machine {
            api_version: v1beta2.api_version.clone(),
            ..v1beta1
        };
        assert_eq!(v1beta2, same);

        assert_eq!(
            (v1beta2.control_plane(), v1beta2.node()),
            (Some("c1-cp"), Some("n1"))
        );
        assert_eq!((v1beta2.ready(), v1beta2.up_to_date()), (Some(false), Some(true)));
        assert!(v1beta2.awaits_remediation() && v1beta2.has_node());
        assert_eq!(
            v1beta2.status.certificates_expiry_date,
            "2027-08-21T09:00:00Z".parse().ok()
        );
        assert_eq!(
            v1beta2.spec.infrastructure_ref,
            Some(Reference {
                group: "infrastructure.cluster.x-k8s.io".to_owned(),
                kind: "DockerMachine".to_owned(),
                name: "m1-infra".to_owned(),
            })
        );
        assert_eq!(v1beta2.spec.provider_id.as_deref(), Some("p://m1"));
        assert_eq!(
            v1beta2.spec.node_drain_timeout,
            Some(SignedDuration::from_mins(10))
        );
        let config = v1beta2.spec.bootstrap_config_ref.as_ref();
        assert_eq!(config.map(|config| config.name.as_str()), Some("m1-config"));
    }

    #[test]
    fn a_time_that_means_never_decodes() {
        let never = "9999-12-31T23:59:59Z";
        let read = |time: &str| {
            let status = json!({
                "certificatesExpiryDate": time,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}],
            });
            let object = json!({"kind": "Machine", "metadata": {"name": "m1"}, "spec": {}, "status": status});
            decode::<Machine>(&object.to_string())
        };
        let status = read(never).expect("decodes").status;
        assert_eq!(status.certificates_expiry_date, Some(Timestamp::MAX));
        assert_eq!(status.conditions[0].last_transition_time, Some(Timestamp::MAX));
        let error = read("9998-02-30T00:00:00Z").expect_err("no such day").to_string();
        assert!(
            error.starts_with("Machine m1: status.certificatesExpiryDate: "),
            "{error}"
        );
    }

    #[test]
    fn a_machine_without_status_decodes() {
        for status in [
            json!({}),
            json!({"status": null}),
            json!({"status": {}}),
            json!({"status": {"nodeRef": null}}),
        ] {
            let mut object =
                json!({"metadata": {"name": "m1"}, "spec": {"clusterName": "c1", "failureDomain": ""}});
            object
                .as_object_mut()
                .expect("an object")
                .extend(status.as_object().expect("an object").clone());
            let machine = machine(&object);
            assert_eq!(
                (machine.name(), machine.node(), machine.ready()),
                ("m1", None, None)
            );
            assert_eq!(machine.spec.failure_domain, None);
            assert!(!machine.failed_health_check() && machine.control_plane().is_none());
        }
    }

    #[test]
    fn the_presence_of_an_annotation_counts() {
        let none = annotated(&json!({}));
        assert!(!none.is_deleted_first() && !none.is_marked_unhealthy() && !none.is_updating_in_place());
        assert_eq!(none.remediation_for(), None);
        let marked = annotated(&json!({
            "cluster.x-k8s.io/delete-machine": "", "cluster.x-k8s.io/remediate-machine": "false",
            "controlplane.cluster.x-k8s.io/remediation-for": r#"{"machine":"m0","retryCount":1}"#,
        }));
        assert!(marked.is_deleted_first() && marked.is_marked_unhealthy() && !marked.is_updating_in_place());
        let remediation = Remediation {
            machine: "m0".to_owned(),
            timestamp: None,
            retry_count: 1,
            is_malformed: false,
        };
        assert_eq!(marked.remediation_for(), Some(remediation));
    }

    #[test]
    fn two_annotations_show_an_update_in_place() {
        for (annotations, expected) in [
            (
                json!({"in-place-updates.internal.cluster.x-k8s.io/update-in-progress": ""}),
                true,
            ),
            (
                json!({"runtime.cluster.x-k8s.io/pending-hooks": "Other,UpdateMachine"}),
                true,
            ),
            (
                json!({"runtime.cluster.x-k8s.io/pending-hooks": "UpdateMachineSet"}),
                false,
            ),
        ] {
            assert_eq!(
                annotated(&annotations).is_updating_in_place(),
                expected,
                "{annotations}"
            );
        }
    }

    #[test]
    fn deletion_hooks_are_annotations() {
        let machine = annotated(&json!({
            "a": "b", "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup": "",
            "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup": "",
        }));
        let hooks: Vec<&str> = machine.deletion_hooks().collect();
        assert_eq!(
            hooks,
            [
                "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup",
                "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup",
            ]
        );
    }
}
