//! Hive's kinds, `hive.openshift.io/v1`.
//!
//! The types of the specs come from the admission rules (`crate::review::hive`). [`conditions`] also keep
//! unknown fields, because a merge patch replaces the whole list. The specs of pools and customizations also
//! keep unknown fields, because the plugin copies the specs to other objects.

pub mod conditions;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use crate::{
    decode::null_as_default,
    metadata::{self, Object as _},
    names::finalizer,
    review::hive::{ClusterClaimSpec, ClusterPoolReference, ClusterPoolSpec, Inventory, LocalReference},
};
pub use conditions::Conditions;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "WirePool")]
pub struct ClusterPool {
    pub metadata: ObjectMeta,
    pub spec: ClusterPoolSpec,
    /// The pool's spec with all its fields. The plugin also copies unknown fields to the pool's
    /// `ClusterDeployments`.
    pub whole_spec: Value,
    pub status: ClusterPoolStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterPoolStatus {
    /// How many of the pool's clusters are unclaimed. None until Hive's controller has written a status.
    pub size: Option<i32>,
    /// How many of the pool's unclaimed clusters are installed and running. None until Hive's controller has written a
    /// status.
    pub ready: Option<i32>,
    pub conditions: Conditions,
}

impl ClusterPool {
    /// Whether Hive's controller manages the pool, that is, has set its finalizer.
    pub fn is_managed_by_hive(&self) -> bool {
        self.has_finalizer(finalizer::HIVE_CLUSTERS)
    }

    /// The names of the customizations in the pool's inventory, without duplicates, in the order of the spec.
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
    #[serde(deserialize_with = "metadata::without_managed_fields")]
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
    #[serde(deserialize_with = "metadata::without_managed_fields")]
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
    /// The `ClusterDeployment` that Hive has assigned to the claim; its namespace has the same name. None while the
    /// claim is pending.
    pub fn cluster_deployment(&self) -> Option<&str> {
        let namespace = self.spec.namespace.as_deref();
        namespace.filter(|name| !name.is_empty())
    }

    /// Why the claim is pending: the message of the condition `Pending`, or its reason if the message is empty. None if
    /// the condition is absent.
    pub fn pending_reason(&self) -> Option<&str> {
        let conditions = &self.status.conditions;
        let message = conditions
            .message("Pending")
            .filter(|message| !message.is_empty());
        message.or_else(|| conditions.reason("Pending"))
    }
}

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

impl ClusterDeployment {
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

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ClusterDeploymentCustomization {
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    /// The customization's spec with all its fields. A copy of the customization must also have the unknown
    /// fields.
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
    /// The name of the `ClusterDeployment` that uses this customization.
    pub fn cluster_deployment(&self) -> Option<&str> {
        name(self.status.cluster_deployment_ref.as_ref())
    }

    pub fn cluster_pool(&self) -> Option<&str> {
        name(self.status.cluster_pool_ref.as_ref())
    }
}

/// The name in a reference. None if the reference is absent or its name is empty.
fn name(reference: Option<&LocalReference>) -> Option<&str> {
    let reference = reference.filter(|reference| reference.is_set());
    reference.map(|reference| reference.name.as_str())
}

#[cfg(test)]
mod tests;
