//! `ClusterDeployment`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{Conditions, LocalReference};
use crate::{
    decode::null_as_default,
    metadata::{self, Object as _},
    names::finalizer,
};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ClusterDeployment {
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: ClusterDeploymentSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: ClusterDeploymentStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterDeploymentSpec {
    pub cluster_pool_ref: Option<ClusterPoolReference>,
    pub installed: bool,
    /// The power state that the cluster should have: `Running` or `Hibernating`.
    pub power_state: Option<String>,
    pub cluster_metadata: Option<ClusterMetadata>,
}

/// What Hive records about an installed cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterMetadata {
    /// The Secret with the cluster's admin kubeconfig, in the namespace of the `ClusterDeployment`.
    pub admin_kubeconfig_secret_ref: Option<LocalReference>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterDeploymentStatus {
    pub conditions: Conditions,
    /// The cluster's power state as Hive writes it: `Running`, `Hibernating` or a state in between.
    pub power_state: Option<String>,
}

/// How far the deletion of a cluster has progressed. A deleted cluster uses its hosts until it is deprovisioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionState {
    Alive,
    /// The cluster is being deleted, and other controllers still have finalizers on it.
    Deprovisioning,
    /// The cluster is deprovisioned, and no finalizer remains, except that of `kubectl kcp pool`.
    Deprovisioned,
}

impl ClusterDeployment {
    pub fn deletion_state(&self) -> DeletionState {
        if !self.is_deleting() {
            DeletionState::Alive
        } else if self.finalizers().iter().any(|name| name != finalizer::POOL_LEASE) {
            DeletionState::Deprovisioning
        } else {
            DeletionState::Deprovisioned
        }
    }

    pub fn claim(&self) -> Option<&str> {
        self.spec.cluster_pool_ref.as_ref()?.claim()
    }

    /// The name of the customization that was applied when the cluster was created.
    pub fn customization(&self) -> Option<&str> {
        self.spec.cluster_pool_ref.as_ref()?.customization()
    }

    /// Whether the `ClusterDeployment` was created for this pool.
    pub fn belongs_to_pool(&self, namespace: &str, pool: &str) -> bool {
        let reference = self.spec.cluster_pool_ref.as_ref();
        reference.is_some_and(|reference| reference.namespace == namespace && reference.pool_name == pool)
    }
}

/// The pool for which a cluster was created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClusterPoolReference {
    /// The namespace of the pool.
    pub namespace: String,
    /// The name of the pool.
    pub pool_name: String,
    /// The name of the claim that holds the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// When the cluster was claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_timestamp: Option<Timestamp>,
    /// The customization that the cluster uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_deployment_customization: Option<LocalReference>,
}

impl ClusterPoolReference {
    /// The name of the claim that holds the cluster; `None` if it is unset or empty.
    pub fn claim(&self) -> Option<&str> {
        self.claim_name.as_deref().filter(|claim| !claim.is_empty())
    }

    /// The name of the customization that the cluster uses; `None` if it is unset or empty.
    pub fn customization(&self) -> Option<&str> {
        self.cluster_deployment_customization.as_ref()?.name()
    }
}
