//! Hive's kinds with the fields that rules read.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Metadata;
use crate::hive::{
    ClusterDeploymentCustomizationSpec, ClusterDeploymentCustomizationStatus, ClusterPoolReference,
    ClusterPoolSpec,
};

/// A `ClusterPool`, which creates clusters in advance, with the fields that rules read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClusterPool<'a> {
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
    pub spec: ClusterPoolSpec,
}

/// A `ClusterDeployment`, which stands for one cluster, with the fields that rules read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClusterDeployment<'a> {
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
    #[serde(default)]
    pub spec: Option<PoolMembership>,
}

/// The fields of `spec` that rules read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PoolMembership {
    pub cluster_pool_ref: Option<ClusterPoolReference>,
}

impl ClusterDeployment<'_> {
    /// The reference to the pool of the cluster; `None` if the cluster belongs to no pool.
    pub fn pool(&self) -> Option<&ClusterPoolReference> {
        self.spec.as_ref()?.cluster_pool_ref.as_ref()
    }
}

/// A `ClusterDeploymentCustomization` with the fields that rules read. It contains patches for one cluster of
/// a pool at a time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClusterDeploymentCustomization<'a> {
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
    #[serde(default)]
    pub spec: ClusterDeploymentCustomizationSpec,
    /// The status, which contains the lease; empty if it is absent or cannot be decoded.
    #[serde(default, deserialize_with = "decode_status_or_default")]
    pub status: ClusterDeploymentCustomizationStatus,
}

/// Treats a status that cannot be decoded as empty, because users do not write the status, and the sample in the
/// design document has a different structure.
fn decode_status_or_default<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ClusterDeploymentCustomizationStatus, D::Error> {
    let text = <&RawValue>::deserialize(deserializer)?.get();
    Ok(serde_json::from_str(text).unwrap_or_default())
}
