//! `ClusterClaim`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::Conditions;
#[cfg(feature = "schema")]
use super::schema::HiveCondition;
use crate::{decode::null_as_default, metadata};

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClusterClaim {
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    pub spec: ClusterClaimSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: ClusterClaimStatus,
}

impl ClusterClaim {
    /// The `ClusterDeployment` that Hive has assigned to the claim; its namespace has the same name. `None` while the
    /// claim is pending.
    pub fn cluster_deployment(&self) -> Option<&str> {
        let namespace = self.spec.namespace.as_deref();
        namespace.filter(|name| !name.is_empty())
    }

    /// Why the claim is pending: the message of the condition `Pending`, or its reason if the message is empty. `None` if
    /// the condition is absent.
    pub fn pending_reason(&self) -> Option<&str> {
        let conditions = &self.status.conditions;
        let message = conditions
            .message("Pending")
            .filter(|message| !message.is_empty());
        message.or_else(|| conditions.reason("Pending"))
    }
}

/// The desired state of a `ClusterClaim`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::duplicated_attributes, reason = "each printer column has its type")]
#[cfg_attr(
    feature = "schema",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "hive.openshift.io",
        version = "v1",
        kind = "ClusterClaim",
        root = "ClusterClaimResource",
        doc = "A request for one cluster of a pool.",
        namespaced,
        status = "ClusterClaimStatus",
        printcolumn(name = "Pool", type_ = "string", json_path = ".spec.clusterPoolName"),
        printcolumn(
            name = "Pending",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Pending')].reason"
        ),
        printcolumn(name = "ClusterNamespace", type_ = "string", json_path = ".spec.namespace"),
        printcolumn(
            name = "ClusterRunning",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='ClusterRunning')].reason"
        ),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
    ),
    schemars(extend("x-kubernetes-preserve-unknown-fields" = true))
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterClaimSpec {
    /// The name of the pool.
    pub cluster_pool_name: String,
    /// The namespace and name of the assigned `ClusterDeployment`; set by Hive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// How long Hive keeps the claim after it has assigned a cluster, as a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))
    )]
    pub lifetime: Option<String>,
}

/// The observed state of a `ClusterClaim`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterClaimStatus {
    /// The conditions, such as `Pending` and `ClusterRunning`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(!default, with = "Option<Vec<HiveCondition>>"))]
    pub conditions: Conditions,
    /// The lifetime of the claim. When it ends, Hive deletes the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<String>,
}
