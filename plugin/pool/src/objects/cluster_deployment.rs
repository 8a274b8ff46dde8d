//! Reads the facts about ClusterDeployments on which leases depend: the pool and the deletion. No I/O.

use jiff::Timestamp;
pub use kcp_api::{ClusterDeployment, hive::DeletionState};
use kcp_api::{
    metadata::{Object, PartialObjectMetadata},
    names::{finalizer, label},
};
use serde_json::{Value, json};

use crate::objects::Holder;

/// This program's finalizer keeps a deleted ClusterDeployment until its lease is released.
pub trait Deletion: Object {
    fn finalizers_of_others(&self) -> Vec<String> {
        let of_others = self
            .finalizers()
            .iter()
            .filter(|name| *name != finalizer::POOL_LEASE);
        of_others.cloned().collect()
    }

    /// Whether the cluster is deprovisioned, and only this program's finalizer keeps the object.
    fn is_kept_only_by_lease_finalizer(&self) -> bool {
        self.is_deleting() && matches!(self.finalizers(), [only] if only == finalizer::POOL_LEASE)
    }

    /// A merge patch that removes this program's finalizer. The server refuses the patch if the cluster has changed since
    /// it was read.
    fn without_lease_finalizer(&self) -> Value {
        json!({"metadata": {
            "resourceVersion": self.resource_version(),
            "finalizers": self.finalizers_of_others(),
        }})
    }

    /// The name of the pool for which the cluster was created.
    fn pool(&self) -> Option<&str>;
}

impl Deletion for ClusterDeployment {
    fn pool(&self) -> Option<&str> {
        Some(&self.spec.cluster_pool_ref.as_ref()?.pool_name)
    }
}

/// The ClusterDeployments of all namespaces, with the namespace of the pool in question.
#[derive(Clone, Debug, Default)]
pub struct ClusterDeployments {
    namespace: String,
    all: Vec<ClusterDeployment>,
    /// The server's time when the list was requested. The list contains every cluster that was created before that
    /// time. `None` if the list counts as current.
    as_of: Option<Timestamp>,
}

impl ClusterDeployments {
    pub fn new(namespace: &str, all: Vec<ClusterDeployment>) -> Self {
        Self {
            namespace: namespace.to_owned(),
            all,
            as_of: None,
        }
    }

    /// Records the server's time at which this list was requested.
    pub fn with_request_time(self, time: Timestamp) -> Self {
        Self {
            as_of: Some(time),
            ..self
        }
    }

    pub const fn request_time(&self) -> Option<Timestamp> {
        self.as_of
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// All ClusterDeployments, including those that belong to no pool.
    pub fn iter(&self) -> impl Iterator<Item = &ClusterDeployment> {
        self.all.iter()
    }

    /// The clusters that belong to pools in this namespace.
    pub fn in_namespace(&self) -> impl Iterator<Item = &ClusterDeployment> {
        self.all.iter().filter(|cluster| {
            let reference = cluster.spec.cluster_pool_ref.as_ref();
            reference.is_some_and(|reference| reference.namespace == self.namespace)
        })
    }

    /// The clusters that belong to this pool.
    pub fn in_pool<'d>(&'d self, pool: &str) -> impl Iterator<Item = &'d ClusterDeployment> {
        self.all
            .iter()
            .filter(move |cluster| cluster.belongs_to_pool(&self.namespace, pool))
    }

    /// The clusters that have the holder's name and belong to the holder's pool.
    pub fn for_holder<'d>(&'d self, holder: Holder<'_>) -> impl Iterator<Item = &'d ClusterDeployment> {
        self.in_pool(holder.pool)
            .filter(move |cluster| cluster.name() == holder.cluster_deployment)
    }
}

/// The copy of a customization that this program creates in a cluster's namespace, with a label of this program.
/// Hive's copies do not have this label, and are deleted with their namespace.
pub type CustomizationCopy = PartialObjectMetadata;

/// Reads the pool that an object belongs to, from the object's labels.
pub trait BelongsToPool: Object {
    /// The namespace of the pool, which is also the namespace of the original customization.
    fn pool_namespace(&self) -> Option<&str> {
        self.label(label::CLUSTER_POOL_NAMESPACE)
    }

    fn pool_name(&self) -> Option<&str> {
        self.label(label::CLUSTER_POOL_NAME)
    }
}

impl<O: Object> BelongsToPool for O {}
