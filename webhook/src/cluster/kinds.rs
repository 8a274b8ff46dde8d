//! The watched kinds, and the cached part of each object.
//!
//! The watched kinds are those that rules need for ordinary writes: every write to a control plane needs its Cluster,
//! every scale needs its control plane, and every change to an inventory needs the pools and customizations.
//! `ClusterDeployment`s are watched because only their specs refer to the customizations that they use: a selector
//! cannot find them, and without a watch each deletion of a customization would list all of them. Other kinds are read
//! live:
//!
//! - Machines, which rules need only when the version changes. The verdict then depends on Machines that have just joined,
//!   and a watch would deliver every status update of every Machine.
//! - `KubeadmConfig`s, which rules need only when leader migration starts. Each has the bootstrap data of a Machine, so a cache
//!   would be large and secret. A review keeps only the name of the migration lock and of its controllers.
//! - Worker Machines and `MachinePool`s, which rules need only for deletions. A deletion must not depend on a stale object.
//! - Namespaces, because a cluster can have very many.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use kcp_api::{
    Cluster, ClusterDeployment, ClusterDeploymentCustomization, Object as _,
    hive::Reservation,
    kind::{self, Kind},
    lease_record::{LeaseState, Unreadable},
    names::annotation,
    snapshot_record::SnapshotRecord,
};
use kcp_rules::view::{self, object::PoolFragment};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::cache::{Cache, CacheState, Cached};

/// The caches of all watched kinds. Without API access, they stay empty and are not used.
#[derive(Default)]
pub(crate) struct Caches {
    pub(super) control_planes: Arc<Cache<CachedControlPlane>>,
    pub(super) clusters: Arc<Cache<view::Cluster>>,
    pub(super) pools: Arc<Cache<view::Pool>>,
    pub(super) customizations: Arc<Cache<CachedCustomization>>,
    pub(super) cluster_deployments: Arc<Cache<view::ClusterDeployment>>,
}

impl Caches {
    /// The plural of each cached kind, the state of its cache, and the number of objects in it.
    pub(crate) fn states(&self) -> [(&'static str, CacheState, usize); 5] {
        let row = |kind: Kind, (state, objects)| (kind.plural, state, objects);
        [
            row(kind::KUBEADM_CONTROL_PLANE, self.control_planes.state()),
            row(kind::CLUSTER, self.clusters.state()),
            row(kind::CLUSTER_POOL, self.pools.state()),
            row(
                kind::CLUSTER_DEPLOYMENT_CUSTOMIZATION,
                self.customizations.state(),
            ),
            row(kind::CLUSTER_DEPLOYMENT, self.cluster_deployments.state()),
        ]
    }
}

#[cfg(test)]
impl Caches {
    /// Fills the caches as if these objects had been listed.
    pub(crate) fn fill(&self, objects: &[serde_json::Value]) {
        fill(&self.control_planes, "v1beta2", "KubeadmControlPlane", objects);
        fill(&self.clusters, "v1beta2", "Cluster", objects);
        fill(&self.pools, "v1", "ClusterPool", objects);
        fill(
            &self.customizations,
            "v1",
            "ClusterDeploymentCustomization",
            objects,
        );
        fill(&self.cluster_deployments, "v1", "ClusterDeployment", objects);
    }
}

#[cfg(test)]
fn fill<T: Cached>(cache: &Cache<T>, version: &str, kind: &str, objects: &[serde_json::Value]) {
    cache.clear(version);
    for object in objects.iter().filter(|object| object["kind"] == kind) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap();
        cache.put(text("namespace"), text("name"), &object.to_string());
    }
    cache.set(CacheState::Synced);
}

impl Cached for view::Cluster {
    fn decode(object: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<Cluster>(object).map(|object| Self::from(&object))
    }
}

impl Cached for view::Pool {
    fn decode(object: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<PoolFragment>(object).map(Self::from)
    }

    fn bytes(&self) -> usize {
        let entries = self.inventory.iter();
        entries.map(|name| size_of::<String>() + name.len()).sum()
    }
}

/// The cached part of a customization: its lease, and whether it is cordoned.
#[derive(Clone, Debug)]
pub(super) struct CachedCustomization {
    pub(super) lease: Option<CachedLease>,
    /// The pool for which the customization is leased.
    pub(super) pool: Option<String>,
    /// Whether `kubectl kcp pool cordon` excludes the customization from new leases.
    pub(super) cordoned: bool,
}

/// The part of a lease that metrics count.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedLease {
    /// When the lease ends; `None` if it never ends.
    pub(super) end: Option<Timestamp>,
    pub(super) state: CountedState,
}

/// What metrics count an entry as, unless its lease has an end that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedState {
    Held,
    ClusterGone,
    /// The lease has ended, and the customization must be cleaned.
    Cleaning,
}

impl CachedLease {
    /// `None` if the customization has no record of a lease.
    fn new(reservation: &Reservation) -> Option<Self> {
        let state = match reservation {
            Reservation::Free | Reservation::Unrecorded => return None,
            Reservation::Leased(record) if record.state == LeaseState::ClusterGone => {
                CountedState::ClusterGone
            }
            Reservation::Cleaning(_) | Reservation::Unreadable(Unreadable::Cleaning) => {
                CountedState::Cleaning
            }
            Reservation::Leased(_) | Reservation::Unreadable(_) => CountedState::Held,
        };
        Some(Self {
            end: reservation.end(),
            state,
        })
    }
}

impl Cached for CachedCustomization {
    fn decode(object: &str) -> serde_json::Result<Self> {
        let object: ClusterDeploymentCustomization = serde_json::from_str(object)?;
        let lease = CachedLease::new(&object.status.reservation());
        let pool = object.status.cluster_pool_ref.as_ref();
        Ok(Self {
            pool: pool.filter(|_| lease.is_some()).map(|pool| pool.name.clone()),
            lease,
            cordoned: object.has_annotation(annotation::CORDONED),
        })
    }

    fn bytes(&self) -> usize {
        self.pool.as_ref().map_or(0, String::len)
    }
}

impl Cached for view::ClusterDeployment {
    fn decode(object: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<ClusterDeployment>(object).map(|object| Self::from(&object))
    }

    fn bytes(&self) -> usize {
        let Self {
            namespace,
            name,
            pool_namespace,
            pool,
            claim,
            customization,
            is_deleting: _,
        } = self;
        let optional = [pool_namespace, claim, customization];
        let texts = optional.into_iter().flatten().chain([namespace, name, pool]);
        texts.map(String::len).sum()
    }
}

/// A control plane at one resource version.
///
/// When a control plane is scaled, rules check the whole object, so its spec is cached unchanged. From its metadata and
/// status, only the fields that rules read are cached, which are a small part.
#[derive(Clone, Debug)]
pub(super) struct CachedControlPlane {
    pub(super) resource_version: Box<str>,
    /// The control plane as JSON, without the fields that no rule reads.
    pub(super) text: Arc<str>,
    /// When the last recorded snapshot of etcd was complete, for a metric. `None` if none is recorded.
    pub(super) snapshot: Option<Timestamp>,
    pub(super) created: Option<Timestamp>,
}

/// The fields of the metadata and of the status that rules read. `managedFields` is long, so each of its entries keeps only the
/// time, the subresource, and whether it has fields of the spec. Rules read the rest of an entry only for writes of the topology
/// controller, which does not write Scales, and for writes of Clusters, for which the webhook reads the whole control plane.
static KEPT: LazyLock<[Value; 2]> = LazyLock::new(|| {
    let managed_fields = json!({"time": {}, "subresource": {}, "fieldsV1": {"f:spec": {}}});
    let metadata = json!({
        "name": null, "namespace": null, "generation": null, "deletionTimestamp": null, "labels": null,
        "ownerReferences": null, "annotations": null, "managedFields": managed_fields,
    });
    let deprecated = json!({"v1beta1": {"updatedReplicas": null}});
    let status = |v1beta2: Value| {
        json!({
            "observedGeneration": null, "replicas": null, "upToDateReplicas": null, "updatedReplicas": null,
            "version": null, "deprecated": deprecated, "v1beta2": v1beta2,
            "conditions": {"type": null, "status": null, "observedGeneration": null},
        })
    };
    [metadata, status(status(json!({})))]
});

/// Removes the fields that `kept` does not have. Null in `kept` keeps a field with all that is in it.
fn prune(value: &mut Value, kept: &Value) {
    match (value, kept) {
        (Value::Array(items), kept) => items.iter_mut().for_each(|item| prune(item, kept)),
        (Value::Object(fields), Value::Object(kept)) => fields.retain(|name, value| {
            let entry = kept.get(name);
            entry.is_some_and(|entry| {
                prune(value, entry);
                true
            })
        }),
        _ => {}
    }
}

/// The annotation [`annotation::ETCD_SNAPSHOT`] in the metadata.
const SNAPSHOT: &str = "/annotations/kubectl-kcp.dev~1etcd-snapshot";

/// A control plane whose spec stays text.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct PrunedControlPlane<'o> {
    #[serde(borrow)]
    api_version: Option<&'o RawValue>,
    #[serde(default)]
    metadata: Value,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    spec: Option<&'o RawValue>,
    #[serde(default)]
    status: Value,
}

impl Cached for CachedControlPlane {
    fn decode(object: &str) -> serde_json::Result<Self> {
        let mut pruned: PrunedControlPlane<'_> = serde_json::from_str(object)?;
        let resource_version = pruned.metadata.get("resourceVersion").and_then(Value::as_str);
        let resource_version = resource_version.unwrap_or_default().into();
        let text = |pointer: &str| pruned.metadata.pointer(pointer).and_then(Value::as_str);
        let created = text("/creationTimestamp").and_then(|time| time.parse().ok());
        let uid = text("/uid").unwrap_or_default();
        let snapshot = text(SNAPSHOT).and_then(|record| SnapshotRecord::parse(record, uid));
        let snapshot = snapshot.map(|record| record.completed);
        let annotations = pruned
            .metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut);
        annotations.and_then(|annotations| annotations.remove(annotation::LAST_APPLIED));
        let [metadata, status] = &*KEPT;
        prune(&mut pruned.metadata, metadata);
        prune(&mut pruned.status, status);
        Ok(Self {
            resource_version,
            text: serde_json::to_string(&pruned)?.into(),
            snapshot,
            created,
        })
    }

    fn bytes(&self) -> usize {
        self.text.len()
    }
}

#[cfg(test)]
mod tests;
