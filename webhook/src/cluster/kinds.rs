//! The watched kinds, and the part of each object that is cached.
//!
//! Watched are the kinds that rules need for ordinary writes: every write to a control plane needs its Cluster, every scale
//! its control plane, and every change to an inventory the pools and customizations. Everything else is read live:
//!
//! - Machines, which rules need only when the version changes. A Machine that joins in the meantime can turn the verdict
//!   either way, and a watch would deliver every status update of every Machine.
//! - Worker Machines, `MachinePool`s and `ClusterDeployment`s, which rules need only for deletions. A deletion must not
//!   depend on a stale object.
//! - Namespaces, which no webhook should watch: clusters have many.

use std::{collections::BTreeMap, sync::Arc};

use kcp_rules::view::{
    self,
    object::{ClusterObject, PoolObject},
};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{
    cache::{Cache, Cached, State},
    live_reads::Projection,
    versions::{CLUSTER_API, CONTROL_PLANES, HIVE},
};

/// A watched kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    pub(super) projection: Projection,
}

pub(super) const CONTROL_PLANE: Kind = Kind {
    group: CONTROL_PLANES,
    plural: "kubeadmcontrolplanes",
    projection: Projection::Whole,
};

pub(super) const CLUSTER: Kind = Kind {
    group: CLUSTER_API,
    plural: "clusters",
    projection: Projection::Whole,
};

pub(super) const POOL: Kind = Kind {
    group: HIVE,
    plural: "clusterpools",
    projection: Projection::Whole,
};

pub(super) const CUSTOMIZATION: Kind = Kind {
    group: HIVE,
    plural: "clusterdeploymentcustomizations",
    projection: Projection::Metadata,
};

/// The caches of all watched kinds. Without API access they stay empty and never answer.
#[derive(Default)]
pub(crate) struct Caches {
    pub(super) control_planes: Arc<Cache<CachedControlPlane>>,
    pub(super) clusters: Arc<Cache<view::Cluster>>,
    pub(super) pools: Arc<Cache<view::Pool>>,
    pub(super) customizations: Arc<Cache<NameOnly>>,
}

impl Caches {
    /// The state of each cache and the number of objects in it, by the kind's plural.
    pub(crate) fn states(&self) -> [(&'static str, State, usize); 4] {
        let of = |kind: Kind, (state, objects)| (kind.plural, state, objects);
        [
            of(CONTROL_PLANE, self.control_planes.state()),
            of(CLUSTER, self.clusters.state()),
            of(POOL, self.pools.state()),
            of(CUSTOMIZATION, self.customizations.state()),
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
    }
}

#[cfg(test)]
fn fill<T: Cached>(cache: &Cache<T>, version: &str, kind: &str, objects: &[serde_json::Value]) {
    cache.clear(version);
    for object in objects.iter().filter(|object| object["kind"] == kind) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap();
        cache.put(text("namespace"), text("name"), &object.to_string());
    }
    cache.set(State::Synced);
}

impl Cached for view::Cluster {
    fn decode(object: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<ClusterObject>(object).map(Self::from)
    }
}

impl Cached for view::Pool {
    fn decode(object: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<PoolObject>(object).map(Self::from)
    }

    fn bytes(&self) -> usize {
        let entries = self.inventory.iter();
        entries.map(|name| size_of::<String>() + name.len()).sum()
    }
}

/// Nothing beyond the name, which a cache has for every object.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameOnly;

impl Cached for NameOnly {
    fn decode(object: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<IgnoredAny>(object).map(|_| Self)
    }
}

/// A control plane at one resource version.
///
/// Rules check the whole object when it is scaled, so its spec is cached as sent. Of its metadata and status only the
/// fields that rules read are cached, which is a small part of them.
#[derive(Clone, Debug)]
pub(super) struct CachedControlPlane {
    pub(super) resource_version: Box<str>,
    /// The pruned object as JSON.
    pub(super) text: Arc<str>,
}

/// Written by client-side apply: a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pruned<'o> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    api_version: Option<&'o RawValue>,
    #[serde(borrow, default)]
    metadata: PrunedMetadata<'o>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    spec: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    status: Option<PrunedStatus<'o>>,
}

/// The fields of [`kcp_rules::api::Metadata`], except for `managedFields`: they are long, and rules read them only for
/// writes of the topology controller, which does not write Scales.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct PrunedMetadata<'o> {
    #[serde(skip_serializing)]
    resource_version: String,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    name: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    namespace: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    generation: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    labels: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    owner_references: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, &'o RawValue>,
}

/// The fields of [`kcp_rules::api::KubeadmControlPlaneStatus`].
#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct PrunedStatus<'o> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    observed_generation: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    replicas: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    up_to_date_replicas: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    updated_replicas: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    version: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    deprecated: Option<PrunedDeprecated<'o>>,
    #[serde(borrow, skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<PrunedCondition<'o>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    v1beta2: Option<Box<PrunedStatus<'o>>>,
}

/// The fields of [`kcp_rules::api::control_plane::DeprecatedStatus`].
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct PrunedDeprecated<'o> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    v1beta1: Option<PrunedDeprecatedV1Beta1<'o>>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct PrunedDeprecatedV1Beta1<'o> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    updated_replicas: Option<&'o RawValue>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct PrunedCondition<'o> {
    #[serde(borrow, rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    status: Option<&'o RawValue>,
}

impl Cached for CachedControlPlane {
    fn decode(object: &str) -> serde_json::Result<Self> {
        let mut pruned: Pruned<'_> = serde_json::from_str(object)?;
        pruned.metadata.annotations.remove(LAST_APPLIED);
        Ok(Self {
            resource_version: pruned.metadata.resource_version.as_str().into(),
            text: serde_json::to_string(&pruned)?.into(),
        })
    }

    fn bytes(&self) -> usize {
        self.text.len()
    }
}

#[cfg(test)]
mod tests;
