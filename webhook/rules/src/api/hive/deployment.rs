//! `ClusterDeployment`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::LocalReference;
use crate::api::Metadata;

/// One cluster, as rules see it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClusterDeployment<'a> {
    /// Object metadata.
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
    /// The desired state.
    #[serde(default)]
    pub spec: Option<PoolMembership>,
}

/// What rules read of a [`ClusterDeploymentSpec`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PoolMembership {
    /// The pool it was made for.
    pub cluster_pool_ref: Option<ClusterPoolReference>,
}

impl ClusterDeployment<'_> {
    /// The pool it was made for.
    pub fn pool(&self) -> Option<&ClusterPoolReference> {
        self.spec.as_ref()?.cluster_pool_ref.as_ref()
    }
}

/// What is asked of a cluster.
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
    /// The DNS domain that the cluster's name is put under.
    pub base_domain: String,
    /// The cluster's name.
    pub cluster_name: String,
    /// Where the cluster is made: one key, the platform's name.
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::any_object"))]
    pub platform: Map<String, Value>,
    /// The pool it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_pool_ref: Option<ClusterPoolReference>,
    /// Whether installation is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<bool>,
}

/// The pool that a cluster was made for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClusterPoolReference {
    /// The pool's namespace.
    pub namespace: String,
    /// The pool's name.
    pub pool_name: String,
    /// The claim that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// When it was claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", extend("format" = "date-time")))]
    pub claimed_timestamp: Option<Timestamp>,
    /// The inventory entry it was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_deployment_customization: Option<LocalReference>,
}

impl ClusterPoolReference {
    /// The claim that has it; an empty name means none.
    pub fn claim(&self) -> Option<&str> {
        self.claim_name.as_deref().filter(|claim| !claim.is_empty())
    }

    /// The inventory entry it was made with; an empty name means none.
    pub fn customization(&self) -> Option<&str> {
        let customization = self.cluster_deployment_customization.as_ref()?;
        customization.is_set().then_some(customization.name.as_str())
    }
}

/// What is known of a cluster: nothing that we read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(extend("x-kubernetes-preserve-unknown-fields" = true))
)]
pub struct ClusterDeploymentStatus {}
