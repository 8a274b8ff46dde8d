//! Hive's kinds, `hive.openshift.io/v1`.
//!
//! The specs are those of the admission rules (`kcp_rules::api::hive`). What a patch replaces as a whole, or what is copied
//! to another object, is kept whole too: a list of [`conditions`], the spec of a pool and of a customization.

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
    /// All fields of the spec: a `ClusterDeployment` of the pool gets the fields that we do not know, too.
    pub whole_spec: Value,
    pub status: ClusterPoolStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterPoolStatus {
    /// Unclaimed clusters; none before the controller has written a status.
    pub size: Option<i32>,
    /// Unclaimed clusters that are installed and running; none before the controller has written a status.
    pub ready: Option<i32>,
    pub conditions: Conditions,
}

impl ClusterPool {
    /// Whether Hive's controller runs the pool.
    pub fn is_run_by_hive(&self) -> bool {
        self.has_finalizer(finalizer::HIVE_CLUSTERS)
    }

    /// The customizations of the inventory, each once, in the order of the pool.
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
    /// The namespace and the name of the `ClusterDeployment` that it got; none while it is pending.
    pub fn cluster_deployment(&self) -> Option<&str> {
        let namespace = self.spec.namespace.as_deref();
        namespace.filter(|name| !name.is_empty())
    }

    /// Hive's message about why it is pending, or else its reason.
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
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterDeploymentStatus {
    pub conditions: Conditions,
}

impl ClusterDeployment {
    pub fn claim(&self) -> Option<&str> {
        self.spec.cluster_pool_ref.as_ref()?.claim()
    }

    /// The customization that it was created with.
    pub fn customization(&self) -> Option<&str> {
        self.spec.cluster_pool_ref.as_ref()?.customization()
    }

    /// Whether it was created for a pool.
    pub fn is_of(&self, namespace: &str, pool: &str) -> bool {
        let reference = self.spec.cluster_pool_ref.as_ref();
        reference.is_some_and(|reference| reference.namespace == namespace && reference.pool_name == pool)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ClusterDeploymentCustomization {
    #[serde(deserialize_with = "metadata::slim")]
    pub metadata: ObjectMeta,
    /// All fields: a copy gets the fields that we do not know, too.
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
    /// The `ClusterDeployment` that holds it.
    pub fn cluster_deployment(&self) -> Option<&str> {
        name(self.status.cluster_deployment_ref.as_ref())
    }

    pub fn cluster_pool(&self) -> Option<&str> {
        name(self.status.cluster_pool_ref.as_ref())
    }
}

/// An empty name is none.
fn name(reference: Option<&LocalReference>) -> Option<&str> {
    let reference = reference.filter(|reference| reference.is_set());
    reference.map(|reference| reference.name.as_str())
}

#[cfg(test)]
mod tests;
