//! ClusterDeployments as leases see them. Pure.

pub use kcp_api::ClusterDeployment;
use kcp_api::{
    metadata::{Object, PartialObjectMetadata},
    names::{finalizer, label},
};
use serde_json::{Value, json};

use crate::objects::Holder;

/// How far the deletion of a cluster is. A deleted cluster uses its hosts until it is deprovisioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Alive,
    /// Deleted, and a finalizer of another controller remains.
    Deprovisioning,
    /// Deleted, and at most our finalizer remains.
    Over,
}

/// A ClusterDeployment and our finalizer on it: it stays until the lease is released.
pub trait Lifetime: Object {
    fn life(&self) -> Life {
        if !self.is_deleting() {
            Life::Alive
        } else if self.finalizers().iter().any(|name| name != finalizer::POOL_LEASE) {
            Life::Deprovisioning
        } else {
            Life::Over
        }
    }

    fn finalizers_of_others(&self) -> Vec<String> {
        let of_others = self
            .finalizers()
            .iter()
            .filter(|name| *name != finalizer::POOL_LEASE);
        of_others.cloned().collect()
    }

    /// Whether a deleted object waits for our finalizer alone.
    fn waits_only_for_us(&self) -> bool {
        self.is_deleting() && matches!(self.finalizers(), [only] if only == finalizer::POOL_LEASE)
    }

    /// A merge patch that removes our finalizer. The server refuses it if the cluster has changed.
    fn without_lease_finalizer(&self) -> Value {
        json!({"metadata": {
            "resourceVersion": self.resource_version(),
            "finalizers": self.finalizers_of_others(),
        }})
    }

    /// The name of the pool that it was created for.
    fn pool(&self) -> Option<&str>;
}

impl Lifetime for ClusterDeployment {
    fn pool(&self) -> Option<&str> {
        Some(&self.spec.cluster_pool_ref.as_ref()?.pool_name)
    }
}

/// The ClusterDeployments of all namespaces, as seen from a pool's namespace.
#[derive(Clone, Debug, Default)]
pub struct Deployments {
    /// The pool's namespace.
    namespace: String,
    all: Vec<ClusterDeployment>,
}

impl Deployments {
    pub fn of(namespace: &str, all: Vec<ClusterDeployment>) -> Self {
        Self {
            namespace: namespace.to_owned(),
            all,
        }
    }

    /// The pools' namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// All of them, whatever their pool.
    pub fn iter(&self) -> impl Iterator<Item = &ClusterDeployment> {
        self.all.iter()
    }

    /// Those of pools in the namespace.
    pub fn of_namespace(&self) -> impl Iterator<Item = &ClusterDeployment> {
        self.all.iter().filter(|cluster| {
            let reference = cluster.spec.cluster_pool_ref.as_ref();
            reference.is_some_and(|reference| reference.namespace == self.namespace)
        })
    }

    /// Those of one pool of the namespace.
    pub fn of_pool<'d>(&'d self, pool: &str) -> impl Iterator<Item = &'d ClusterDeployment> {
        self.all
            .iter()
            .filter(move |cluster| cluster.is_of(&self.namespace, pool))
    }

    /// Those with the holder's name and pool.
    pub fn of_holder<'d>(&'d self, holder: Holder<'_>) -> impl Iterator<Item = &'d ClusterDeployment> {
        self.of_pool(holder.pool)
            .filter(move |cluster| cluster.name() == holder.cluster_deployment)
    }
}

/// The copy of a customization in its cluster's namespace, with our label. Hive's own copies have no such label and
/// are deleted with their namespace.
pub type Copy = PartialObjectMetadata;

/// Where a copy belongs.
pub trait OfPool: Object {
    /// The namespace of the original's pool.
    fn pool_namespace(&self) -> Option<&str> {
        self.label(label::CLUSTER_POOL_NAMESPACE)
    }

    fn pool_name(&self) -> Option<&str> {
        self.label(label::CLUSTER_POOL_NAME)
    }
}

impl<O: Object> OfPool for O {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ClusterDeployment, Life, Lifetime as _};
    use crate::testing::objects::cluster;

    #[test]
    fn how_far_a_cluster_is() {
        const DELETED: &str = "2026-11-21T05:00:00Z";
        for (deleted, finalizers, expected) in [
            (None, json!([]), Life::Alive),
            (None, json!(["kubectl-kcp.dev/pool-lease"]), Life::Alive),
            (Some(DELETED), json!(["kubectl-kcp.dev/pool-lease"]), Life::Over),
            (Some(DELETED), json!([]), Life::Over),
            (
                Some(DELETED),
                json!(["hive.openshift.io/deprovision", "kubectl-kcp.dev/pool-lease"]),
                Life::Deprovisioning,
            ),
            (Some(DELETED), json!(["other"]), Life::Deprovisioning),
        ] {
            let mut object = cluster("a", "p", None);
            object["metadata"]["finalizers"] = finalizers;
            if let Some(time) = deleted {
                object["metadata"]["deletionTimestamp"] = time.into();
            }
            let read: ClusterDeployment = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(read.life(), expected, "{object}");
        }
    }
}
