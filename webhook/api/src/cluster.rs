//! Decodes `Cluster` from v1beta1 and v1beta2 of Cluster API.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

use crate::{
    Condition, Reference,
    condition::{self, V1Beta2Status},
    decode::null_as_default,
    kind::KUBEADM_CONTROL_PLANE,
    metadata::{self, Object as _},
    names::annotation,
};

const REMOTE_CONNECTION_PROBE: &str = "RemoteConnectionProbe";

const TOPOLOGY_RECONCILED: &str = "TopologyReconciled";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Cluster {
    /// The metadata. Its `managedFields` contain only the managers of `spec.paused`.
    pub metadata: ObjectMeta,
    pub spec: ClusterSpec,
    pub status: ClusterStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub paused: bool,
    pub control_plane_ref: Option<Reference>,
    pub control_plane_endpoint: Option<Endpoint>,
    /// `spec.topology`. `None` if the Cluster has no managed topology.
    pub topology: Option<Topology>,
}

/// Host and port of the workload cluster's API server. In v1beta1, the host is empty and the port is 0 until the
/// endpoint is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    pub host: String,
    pub port: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Topology {
    /// The name of the `ClusterClass` in v1beta1; empty in v1beta2. [`Self::class`] reads both.
    pub class: String,
    pub class_namespace: Option<String>,
    pub class_ref: Option<ClassReference>,
    pub version: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub control_plane: TopologyControlPlane,
    #[serde(deserialize_with = "null_as_default")]
    pub workers: TopologyWorkers,
}

/// The workers of a topology. The topology controller upgrades them in the order of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TopologyWorkers {
    #[serde(deserialize_with = "null_as_default")]
    pub machine_deployments: Vec<TopologyWorker>,
    #[serde(deserialize_with = "null_as_default")]
    pub machine_pools: Vec<TopologyWorker>,
}

/// A `MachineDeployment` or `MachinePool` of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TopologyWorker {
    /// The name in the topology, which is not the name of the object.
    pub name: String,
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: TopologyMetadata,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TopologyMetadata {
    #[serde(deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ClassReference {
    pub name: String,
    /// `None` if the class is in the namespace of the Cluster.
    #[serde(default)]
    pub namespace: Option<String>,
}

impl Topology {
    /// Returns the reference to the `ClusterClass` in either API version. `None` if there is none.
    pub fn class(&self) -> Option<ClassReference> {
        let v1beta1 = || {
            (!self.class.is_empty()).then(|| ClassReference {
                name: self.class.clone(),
                namespace: self.class_namespace.clone(),
            })
        };
        self.class_ref.clone().or_else(v1beta1)
    }
}

/// The fields of `spec.topology.controlPlane` that the topology controller writes to the control plane if they are set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TopologyControlPlane {
    pub replicas: Option<i64>,
    #[serde(deserialize_with = "null_as_default")]
    pub rollout: TopologyRollout,
}

/// `spec.topology.controlPlane.rollout`, in Cluster API 1.13 and later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TopologyRollout {
    pub after: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    pub failure_domains: Vec<FailureDomain>,
    /// `status.initialization.infrastructureProvisioned`, or `status.infrastructureReady` in v1beta1. False if absent.
    pub infrastructure_provisioned: bool,
    /// The condition `RemoteConnectionProbe`, which says whether Cluster API's controllers reach the workload cluster's
    /// API server. Decoding drops conditions without a field here, because a list of all Clusters would keep them in
    /// memory.
    pub remote_connection: Option<Condition>,
    /// When the condition `ControlPlaneInitialized` became True. `None` if it is not True.
    pub initialized_since: Option<Timestamp>,
    /// When the condition `InfrastructureReady` became True. `None` if it is not True.
    pub infrastructure_ready_since: Option<Timestamp>,
    /// The condition `TopologyReconciled`, which says whether the objects of the Cluster match its topology. `None` if the
    /// Cluster has no topology.
    pub topology_reconciled: Option<Condition>,
    /// The versions through which the topology controller still has to upgrade the control plane. Only Cluster API 1.14 and later
    /// reports them, in v1beta2.
    pub control_plane_upgrades: Vec<String>,
    /// Like [`Self::control_plane_upgrades`], but for the workers, which can skip versions that the control plane does not skip.
    pub worker_upgrades: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FailureDomain {
    /// The name of the failure domain. In v1beta1, it is the key of a map.
    pub name: String,
    /// Whether Cluster API may create control plane Machines in this failure domain.
    pub control_plane: bool,
}

impl fmt::Display for Endpoint {
    /// Writes `host:port`, with brackets around an IPv6 address.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(formatter, "[{host}]:{port}")
        } else {
            write!(formatter, "{host}:{port}")
        }
    }
}

impl Cluster {
    /// The name of the Cluster's `KubeadmControlPlane`. `None` if `spec.controlPlaneRef` is absent or refers to another kind.
    pub fn control_plane(&self) -> Option<&str> {
        let reference = self.spec.control_plane_ref.as_ref()?;
        (reference.kind == KUBEADM_CONTROL_PLANE.kind).then_some(&reference.name)
    }

    /// Whether `spec.controlPlaneEndpoint` has a host and a port.
    pub fn has_endpoint(&self) -> bool {
        let endpoint = self.spec.control_plane_endpoint.as_ref();
        endpoint.is_some_and(|endpoint| !endpoint.host.is_empty() && endpoint.port != 0)
    }

    /// The names of the failure domains in which Cluster API may create control plane Machines.
    pub fn control_plane_failure_domains(&self) -> impl Iterator<Item = &str> {
        let domains = self.status.failure_domains.iter();
        domains
            .filter(|domain| domain.control_plane)
            .map(|domain| domain.name.as_str())
    }

    /// Who last wrote `spec.paused` of a paused Cluster: the field manager and the time. `None` if the Cluster is not paused,
    /// or if the client did not name itself: the API server then records `unknown`.
    pub fn paused_by(&self) -> Option<(&str, Option<Timestamp>)> {
        let entries = self.metadata.managed_fields.iter().flatten();
        let latest = entries
            .filter(|_| self.spec.paused)
            .max_by_key(|entry| entry.time.as_ref())?;
        let manager = latest
            .manager
            .as_deref()
            .filter(|manager| *manager != "unknown")?;
        Some((manager, latest.time.as_ref().map(|time| time.0)))
    }

    /// The condition that reports why the topology controller cannot change the objects of the Cluster. `None` if it reports no
    /// error. The error reasons are those that Cluster API's summary, the condition `Available`, treats as errors
    /// (`api/core/v1beta2/cluster_types.go` in Cluster API v1.14).
    pub fn topology_error(&self) -> Option<&Condition> {
        let condition = self.status.topology_reconciled.as_ref()?;
        let is_error = matches!(
            condition.reason.as_str(),
            "ReconcileFailed" | "ClusterClassNotReconciled"
        );
        (condition.is_false() && is_error).then_some(condition)
    }

    /// Whether the topology controller has seen the latest change of the Cluster. Also true if the condition does not report
    /// this, as in v1beta1.
    pub fn is_topology_seen(&self) -> bool {
        let condition = self.status.topology_reconciled.as_ref();
        condition
            .and_then(|condition| condition.observed_generation)
            .is_none_or(|seen| Some(seen) >= self.metadata.generation)
    }

    /// The annotations that keep the upgrade of a managed topology from beginning.
    pub fn before_upgrade_hooks(&self) -> impl Iterator<Item = &str> {
        let annotations = self.metadata.annotations.iter().flatten();
        annotations
            .map(|(key, _)| key.as_str())
            .filter(|key| key.starts_with(annotation::BEFORE_UPGRADE_HOOK_PREFIX))
    }

    /// The lifecycle hooks that Cluster API has not completed yet, such as `AfterClusterUpgrade`.
    pub fn pending_hooks(&self) -> impl Iterator<Item = &str> {
        let pending = self.annotation(annotation::PENDING_HOOKS).unwrap_or_default();
        pending.split(',').map(str::trim).filter(|hook| !hook.is_empty())
    }

    /// The Kubernetes version of the current step while a managed topology upgrades across several minor versions. `None`
    /// at other times.
    pub fn topology_upgrade_step(&self) -> Option<&str> {
        self.annotation(annotation::TOPOLOGY_UPGRADE_STEP)
    }
}

#[derive(Deserialize)]
struct Wire {
    #[serde(deserialize_with = "metadata::with_managers_of_pause")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: ClusterSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    failure_domains: Option<FailureDomains>,
    initialization: Option<WireInitialization>,
    infrastructure_ready: Option<bool>,
    conditions: Option<Vec<Condition>>,
    v1beta2: Option<V1Beta2Status>,
    #[serde(default, deserialize_with = "null_as_default")]
    control_plane: WireUpgrades,
    #[serde(default, deserialize_with = "null_as_default")]
    workers: WireUpgrades,
}

/// The part of `status.controlPlane` and `status.workers` that is read.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireUpgrades {
    #[serde(deserialize_with = "null_as_default")]
    upgrade_plan: Vec<WireVersion>,
}

#[derive(Deserialize)]
struct WireVersion {
    version: String,
}

impl WireUpgrades {
    fn versions(self) -> Vec<String> {
        let versions = self.upgrade_plan.into_iter();
        versions.map(|planned| planned.version).collect()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireInitialization {
    infrastructure_provisioned: Option<bool>,
}

/// `status.failureDomains`, which is a list in v1beta2 and a map from names to failure domains in v1beta1.
struct FailureDomains(Vec<FailureDomain>);

impl<'de> Deserialize<'de> for FailureDomains {
    fn deserialize<D: Deserializer<'de>>(domains: D) -> Result<Self, D::Error> {
        struct DomainsVisitor;

        impl<'de> Visitor<'de> for DomainsVisitor {
            type Value = FailureDomains;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list or an object")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FailureDomains, A::Error> {
                let mut domains = Vec::new();
                while let Some(domain) = list.next_element()? {
                    domains.push(domain);
                }
                Ok(FailureDomains(domains))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FailureDomains, A::Error> {
                let mut domains = Vec::new();
                while let Some(name) = map.next_key()? {
                    let domain: FailureDomain = map.next_value()?;
                    domains.push(FailureDomain { name, ..domain });
                }
                Ok(FailureDomains(domains))
            }
        }

        domains.deserialize_any(DomainsVisitor)
    }
}

impl From<Wire> for Cluster {
    fn from(wire: Wire) -> Self {
        let initialization = wire.status.initialization;
        let provisioned = initialization.and_then(|initialization| initialization.infrastructure_provisioned);
        let mut failure_domains = wire
            .status
            .failure_domains
            .map_or_else(Vec::new, |domains| domains.0);
        failure_domains.sort_by(|a, b| a.name.cmp(&b.name));
        let conditions = condition::conditions_of(wire.status.conditions, wire.status.v1beta2);
        let true_since = |kind: &str| {
            let found = condition::find(&conditions, kind).filter(|condition| condition.is_true());
            found.and_then(|condition| condition.last_transition_time)
        };
        let find = |kind| condition::find(&conditions, kind).cloned();
        Self {
            metadata: wire.metadata,
            spec: wire.spec,
            status: ClusterStatus {
                failure_domains,
                infrastructure_provisioned: provisioned.or(wire.status.infrastructure_ready).unwrap_or(false),
                remote_connection: find(REMOTE_CONNECTION_PROBE),
                initialized_since: true_since("ControlPlaneInitialized"),
                infrastructure_ready_since: true_since("InfrastructureReady"),
                topology_reconciled: find(TOPOLOGY_RECONCILED),
                control_plane_upgrades: wire.status.control_plane.versions(),
                worker_upgrades: wire.status.workers.versions(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Cluster, Condition, Endpoint};
    use crate::{decode, metadata::Object as _};

    fn cluster(object: &Value) -> Cluster {
        decode(&object.to_string()).expect("decodes")
    }

    #[test]
    fn both_versions_decode_to_the_same() {
        let metadata = json!({"name": "c1", "namespace": "d", "annotations": {
            "topology.internal.cluster.x-k8s.io/upgrade-step": "v1.34.1"}});
        let object = |reference: Value, status: Value| {
            cluster(&json!({"metadata": metadata, "status": status, "spec": {
                "paused": true, "controlPlaneEndpoint": {"host": "h", "port": 6443}, "controlPlaneRef": reference,
                "topology": {"version": "v1.35.0", "class": "x", "classRef": {"name": "x"}}}}))
        };
        let probe = json!([{"type": "Ready", "status": "True"}, {"type": "RemoteConnectionProbe", "status": "False"}]);
        let v1beta2 = object(
            json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "c1-cp"}),
            json!({"initialization": {"infrastructureProvisioned": true}, "conditions": probe, "failureDomains": [
                {"name": "c", "controlPlane": true}, {"name": "a", "controlPlane": true}, {"name": "b"}]}),
        );
        let v1beta1 = object(
            json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "KubeadmControlPlane", "name": "c1-cp"}),
            json!({"infrastructureReady": true, "v1beta2": {"conditions": probe}, "failureDomains": {
                "a": {"controlPlane": true}, "b": {"controlPlane": false}, "c": {"controlPlane": true, "attributes": {}}}}),
        );
        assert_eq!(v1beta2, v1beta1);

        assert_eq!((v1beta2.name(), v1beta2.control_plane()), ("c1", Some("c1-cp")));
        let probe = v1beta2.status.remote_connection.as_ref();
        assert!(probe.is_some_and(Condition::is_false));
        assert!(v1beta2.spec.paused && v1beta2.status.infrastructure_provisioned && v1beta2.has_endpoint());
        assert_eq!(
            v1beta2.control_plane_failure_domains().collect::<Vec<_>>(),
            ["a", "c"]
        );
        assert_eq!(v1beta2.topology_upgrade_step(), Some("v1.34.1"));
        let topology = v1beta2.spec.topology.expect("a managed topology");
        assert_eq!(topology.version.as_deref(), Some("v1.35.0"));
    }

    #[test]
    fn what_the_topology_controller_reports() {
        let read = cluster(&json!({
            "metadata": {"name": "c1", "generation": 4, "annotations": {
                "runtime.cluster.x-k8s.io/pending-hooks": "AfterClusterUpgrade, AfterWorkersUpgrade",
                "before-upgrade.hook.cluster.cluster.x-k8s.io/backup": ""}},
            "spec": {"topology": {"version": "v1.35.0", "workers": {"machineDeployments": [
                {"name": "md-0", "class": "w", "metadata": {"annotations": {"a": ""}}}, {"name": "md-1", "metadata": null}],
                "machinePools": null}}},
            "status": {
                "controlPlane": {"replicas": 3, "upgradePlan": [{"version": "v1.34.2"}, {"version": "v1.35.0"}]},
                "workers": {"upgradePlan": [{"version": "v1.35.0"}]},
                "conditions": [{"type": "TopologyReconciled", "status": "False", "observedGeneration": 3}]},
        }));
        let workers = &read.spec.topology.as_ref().expect("a managed topology").workers;
        let annotated = workers.machine_deployments.iter();
        let annotated: Vec<_> = annotated
            .map(|worker| (worker.name.as_str(), worker.metadata.annotations.len()))
            .collect();
        assert_eq!(annotated, [("md-0", 1), ("md-1", 0)]);
        assert_eq!(read.status.control_plane_upgrades, ["v1.34.2", "v1.35.0"]);
        assert_eq!(read.status.worker_upgrades, ["v1.35.0"]);
        assert_eq!(
            read.pending_hooks().collect::<Vec<_>>(),
            ["AfterClusterUpgrade", "AfterWorkersUpgrade"]
        );
        assert_eq!(
            read.before_upgrade_hooks().collect::<Vec<_>>(),
            ["before-upgrade.hook.cluster.cluster.x-k8s.io/backup"]
        );
        assert!(!read.is_topology_seen());
    }

    #[test]
    fn a_new_cluster_decodes() {
        for rest in [
            json!({}),
            json!({"spec": {}, "status": null}),
            json!({"spec": {"controlPlaneEndpoint": {"host": "", "port": 0}}, "status": {"failureDomains": null}}),
            json!({"spec": {"controlPlaneRef": {"kind": "RKE2ControlPlane", "name": "c1"}}}),
        ] {
            let mut object = json!({"metadata": {"name": "c1"}});
            object
                .as_object_mut()
                .expect("an object")
                .extend(rest.as_object().expect("an object").clone());
            let cluster = cluster(&object);
            assert!(
                !cluster.spec.paused && !cluster.has_endpoint() && !cluster.status.infrastructure_provisioned
            );
            assert_eq!(cluster.control_plane(), None);
            assert!(cluster.is_topology_seen() && cluster.pending_hooks().next().is_none());
            assert_eq!(cluster.control_plane_failure_domains().count(), 0);
        }
    }

    #[test]
    fn the_last_writer_of_the_pause_paused_the_cluster() {
        let wrote = |manager: &str, minute: u8, spec: Value| {
            json!({"manager": manager, "operation": "Update", "time": format!("2026-08-21T10:{minute:02}:00Z"),
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": spec, "f:metadata": {"f:labels": {}}}})
        };
        let paused = || json!({".": {}, "f:paused": {}});
        for (paused_now, entries, expected) in [
            (true, json!([]), None),
            (
                true,
                json!([wrote("kubectl-create", 1, json!({"f:topology": {}}))]),
                None,
            ),
            (
                true,
                json!([
                    wrote("clusterctl", 7, paused()),
                    wrote("helm", 2, paused()),
                    wrote("manager", 9, json!({"f:controlPlaneEndpoint": {}})),
                ]),
                Some(("clusterctl", "2026-08-21T10:07:00Z".parse().ok())),
            ),
            (false, json!([wrote("clusterctl", 7, paused())]), None),
            (true, json!([wrote("unknown", 7, paused())]), None),
            (
                true,
                json!([{"manager": "velero", "fieldsV1": {"f:spec": {"f:paused": {}}}}, {"manager": "m"}]),
                Some(("velero", None)),
            ),
        ] {
            let read = cluster(&json!({
                "metadata": {"name": "c1", "managedFields": entries}, "spec": {"paused": paused_now},
            }));
            assert_eq!(read.paused_by(), expected, "{entries}");
        }
    }

    #[test]
    fn an_endpoint_is_shown_as_in_a_url() {
        for (host, shown) in [("10.0.0.1", "10.0.0.1:6443"), ("fd00::1", "[fd00::1]:6443")] {
            let endpoint = Endpoint {
                host: host.to_owned(),
                port: 6443,
            };
            assert_eq!(endpoint.to_string(), shown);
        }
    }
}
