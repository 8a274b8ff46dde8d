//! The kinds that are watched, and what is kept of an object of each.
//!
//! Those are what ordinary writes are judged by: the Cluster is asked for by every write to a control plane, the control
//! plane by every scale, pools and customizations by every change of an inventory. All else is read live, when it is
//! asked for:
//!
//! - Machines, for a change of version alone: a Machine that joins meanwhile turns the verdict either way, and to
//!   watch them would mean to be told of each Machine's every heartbeat
//! - Machines of workers, `MachinePool`s and `ClusterDeployment`s, for a deletion alone, which must not go by what was
//! - Namespaces and Leases, which nobody but their owners should watch

use std::{collections::BTreeMap, sync::Arc};

use kcp_rules::view::{
    self,
    object::{ClusterObject, PoolObject},
};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{
    Projection,
    cache::{Cache, Kept, State},
    versions::{CLUSTER_API, CONTROL_PLANES, HIVE},
};

/// A kind that is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    /// How much of each object is sent.
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

/// What is known without asking. Without API access nothing is, for ever.
#[derive(Default)]
pub(crate) struct Caches {
    pub(super) control_planes: Arc<Cache<KeptControlPlane>>,
    pub(super) clusters: Arc<Cache<view::Cluster>>,
    pub(super) pools: Arc<Cache<view::Pool>>,
    pub(super) customizations: Arc<Cache<Name>>,
}

impl Caches {
    /// How far each is, and how many objects it holds, by the kind's plural.
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
    /// As if these objects had been listed.
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
fn fill<T: Kept>(cache: &Cache<T>, version: &str, kind: &str, objects: &[serde_json::Value]) {
    cache.clear(version);
    for object in objects.iter().filter(|object| object["kind"] == kind) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap();
        cache.put(text("namespace"), text("name"), &object.to_string());
    }
    cache.set(State::Synced);
}

impl Kept for view::Cluster {
    fn read(object: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<ClusterObject>(object).map(Self::from)
    }
}

impl Kept for view::Pool {
    fn read(object: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<PoolObject>(object).map(Self::from)
    }

    fn bytes(&self) -> usize {
        let entries = self.inventory.iter();
        entries.map(|name| size_of::<String>() + name.len()).sum()
    }
}

/// The name alone, by which a cache keeps every object anyway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name;

impl Kept for Name {
    fn read(object: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<IgnoredAny>(object).map(|_| Self)
    }
}

/// A control plane as it was at one moment.
///
/// Rules judge it whole when it is scaled, and so its spec is kept as it was sent; what no rule reads of its metadata and
/// status is most of the rest.
#[derive(Clone, Debug)]
pub(super) struct KeptControlPlane {
    pub(super) resource_version: Box<str>,
    /// JSON.
    pub(super) text: Arc<str>,
}

/// A copy of all that an apply wrote.
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

/// What [`kcp_rules::api::Metadata`] has.
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

/// What [`kcp_rules::api::KubeadmControlPlaneStatus`] has.
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
    #[serde(borrow, skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<PrunedCondition<'o>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    v1beta2: Option<Box<PrunedStatus<'o>>>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct PrunedCondition<'o> {
    #[serde(borrow, rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'o RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    status: Option<&'o RawValue>,
}

impl Kept for KeptControlPlane {
    fn read(object: &str) -> serde_json::Result<Self> {
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
