//! Hive's kinds, `hive.openshift.io/v1`.
//!
//! The types of the specs come from the admission rules (`kcp_rules::api::hive`). Lists of [`conditions`], which a
//! patch replaces, and the specs of pools and customizations, which are copied to other objects, also keep unknown
//! fields.

pub mod conditions;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kcp_rules::api::hive::{
    ClusterClaimSpec, ClusterPoolReference, ClusterPoolSpec, Inventory, LocalReference,
};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use crate::{
    decode::null_as_default,
    metadata::{self, Object as _},
    names::finalizer,
};
pub use conditions::Conditions;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "WirePool")]
pub struct ClusterPool {
    pub metadata: ObjectMeta,
    pub spec: ClusterPoolSpec,
    /// The whole spec. Its unknown fields are also copied to the pool's `ClusterDeployments`.
    pub whole_spec: Value,
    pub status: ClusterPoolStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterPoolStatus {
    /// Number of unclaimed clusters. None until the controller has written a status.
    pub size: Option<i32>,
    /// Number of unclaimed clusters that are installed and running. None until the controller has written a status.
    pub ready: Option<i32>,
    pub conditions: Conditions,
}

impl ClusterPool {
    /// Whether the pool has the finalizer of Hive's controller.
    pub fn is_run_by_hive(&self) -> bool {
        self.has_finalizer(finalizer::HIVE_CLUSTERS)
    }

    /// Names of the customizations in the inventory, without duplicates, in the order of the spec.
    pub fn inventory(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for name in self.spec.inventory.iter().flat_map(Inventory::names) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

#[derive(Deserialize)]
struct WirePool {
    #[serde(deserialize_with = "metadata::slim")]
    metadata: ObjectMeta,
    spec: WirePoolSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: ClusterPoolStatus,
}

struct WirePoolSpec {
    known: ClusterPoolSpec,
    whole: Value,
}

impl<'de> Deserialize<'de> for WirePoolSpec {
    fn deserialize<D: Deserializer<'de>>(spec: D) -> Result<Self, D::Error> {
        let whole = Value::deserialize(spec)?;
        let known = serde_path_to_error::deserialize(&whole).map_err(D::Error::custom)?;
        Ok(Self { known, whole })
    }
}

impl From<WirePool> for ClusterPool {
    fn from(wire: WirePool) -> Self {
        Self {
            metadata: wire.metadata,
            spec: wire.spec.known,
            whole_spec: wire.spec.whole,
            status: wire.status,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClusterClaim {
    #[serde(deserialize_with = "metadata::slim")]
    pub metadata: ObjectMeta,
    pub spec: ClusterClaimSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: ClusterClaimStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterClaimStatus {
    pub conditions: Conditions,
}

impl ClusterClaim {
    /// Namespace and name of the assigned `ClusterDeployment`; none while the claim is pending.
    pub fn cluster_deployment(&self) -> Option<&str> {
        let namespace = self.spec.namespace.as_deref();
        namespace.filter(|name| !name.is_empty())
    }

    /// Why the claim is pending: the condition's message, or its reason if the message is empty.
    pub fn pending(&self) -> Option<&str> {
        let conditions = &self.status.conditions;
        let message = conditions
            .message("Pending")
            .filter(|message| !message.is_empty());
        message.or_else(|| conditions.reason("Pending"))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ClusterDeployment {
    #[serde(deserialize_with = "metadata::slim")]
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
    pub cluster_metadata: Option<ClusterMetadata>,
}

/// The facts that Hive records about an installed cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterMetadata {
    /// The Secret with the cluster's kubeconfig, in the namespace of the ClusterDeployment.
    pub admin_kubeconfig_secret_ref: Option<LocalReference>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterDeploymentStatus {
    pub conditions: Conditions,
    /// `Running`, `Hibernating` or a state in between, as Hive writes it.
    pub power_state: Option<String>,
}

impl ClusterDeployment {
    pub fn claim(&self) -> Option<&str> {
        self.spec.cluster_pool_ref.as_ref()?.claim()
    }

    /// The customization that was applied when the cluster was created.
    pub fn customization(&self) -> Option<&str> {
        self.spec.cluster_pool_ref.as_ref()?.customization()
    }

    /// Whether the `ClusterDeployment` was created for this pool.
    pub fn is_of(&self, namespace: &str, pool: &str) -> bool {
        let reference = self.spec.cluster_pool_ref.as_ref();
        reference.is_some_and(|reference| reference.namespace == namespace && reference.pool_name == pool)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ClusterDeploymentCustomization {
    #[serde(deserialize_with = "metadata::slim")]
    pub metadata: ObjectMeta,
    /// The whole spec. Its unknown fields are also copied.
    #[serde(default)]
    pub spec: Value,
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: ClusterDeploymentCustomizationStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterDeploymentCustomizationStatus {
    pub cluster_deployment_ref: Option<LocalReference>,
    pub cluster_pool_ref: Option<LocalReference>,
    pub conditions: Conditions,
}

impl ClusterDeploymentCustomization {
    /// The `ClusterDeployment` that uses this customization.
    pub fn cluster_deployment(&self) -> Option<&str> {
        name(self.status.cluster_deployment_ref.as_ref())
    }

    pub fn cluster_pool(&self) -> Option<&str> {
        name(self.status.cluster_pool_ref.as_ref())
    }
}

/// Treats an empty name as absent.
fn name(reference: Option<&LocalReference>) -> Option<&str> {
    let reference = reference.filter(|reference| reference.is_set());
    reference.map(|reference| reference.name.as_str())
}

#[cfg(test)]
mod tests;
