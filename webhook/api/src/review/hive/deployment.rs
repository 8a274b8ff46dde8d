//! `ClusterDeployment`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::LocalReference;
use crate::review::Metadata;

/// A `ClusterDeployment`, which stands for one cluster, with the fields that rules read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClusterDeployment<'a> {
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
    #[serde(default)]
    pub spec: Option<PoolMembership>,
}

/// The fields of a [`ClusterDeploymentSpec`] that rules read.
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

/// The desired state of a `ClusterDeployment`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "hive.openshift.io",
        version = "v1",
        kind = "ClusterDeployment",
        root = "ClusterDeploymentResource",
        doc = "One cluster.",
        shortname = "cd",
        namespaced,
        status = "ClusterDeploymentStatus"
    ),
    schemars(extend("x-kubernetes-preserve-unknown-fields" = true))
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDeploymentSpec {
    /// The DNS domain above the name of the cluster.
    pub base_domain: String,
    /// The name of the cluster.
    pub cluster_name: String,
    /// The platform of the cluster, with the name of the platform as the only key.
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::any_object"))]
    pub platform: Map<String, Value>,
    /// The pool of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_pool_ref: Option<ClusterPoolReference>,
    /// Whether the installation of the cluster is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<bool>,
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
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", extend("format" = "date-time")))]
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
        let customization = self.cluster_deployment_customization.as_ref()?;
        customization.is_set().then_some(customization.name.as_str())
    }
}

/// The observed state of a `ClusterDeployment`. Rules read none of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(extend("x-kubernetes-preserve-unknown-fields" = true))
)]
pub struct ClusterDeploymentStatus {}
