//! `ClusterPool`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{HiveCondition, Inventory, LocalReference};
use crate::api::Metadata;

/// A pool of clusters made ahead of their use, as rules see it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClusterPool<'a> {
    /// Object metadata.
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
    /// The desired state.
    pub spec: ClusterPoolSpec,
}

/// What is asked of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(clippy::duplicated_attributes, reason = "each printer column has its type")]
#[cfg_attr(
    feature = "schema",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "hive.openshift.io",
        version = "v1",
        kind = "ClusterPool",
        root = "ClusterPoolResource",
        doc = "A pool of clusters made ahead of their use.",
        shortname = "cp",
        namespaced,
        status = "ClusterPoolStatus",
        scale(spec_replicas_path = ".spec.size", status_replicas_path = ".status.size"),
        printcolumn(name = "Size", type_ = "string", json_path = ".spec.size"),
        printcolumn(name = "Standby", type_ = "string", json_path = ".status.standby"),
        printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
        printcolumn(name = "BaseDomain", type_ = "string", json_path = ".spec.baseDomain"),
        printcolumn(name = "ImageSet", type_ = "string", json_path = ".spec.imageSetRef.name")
    ),
    schemars(extend("x-kubernetes-preserve-unknown-fields" = true))
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPoolSpec {
    /// Where clusters are made: one key, the platform's name.
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::any_object"))]
    pub platform: Map<String, Value>,
    /// The DNS domain that clusters' names are put under.
    pub base_domain: String,
    /// The release that clusters are installed from.
    pub image_set_ref: ClusterImageSetReference,
    /// How many unclaimed clusters the pool keeps.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub size: i32,
    /// How many of them are kept running.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub running_count: Option<i32>,
    /// How many clusters the pool has at most, claimed ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i32>,
    /// How many clusters are installed or removed at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<i32>,
    /// The Secret with the install-config that every cluster starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_config_secret_template_ref: Option<LocalReference>,
    /// A customization for every cluster of the pool; never leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customization_ref: Option<LocalReference>,
    /// The customizations that clusters of this pool take, one each.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<InventoryEntry>>"))]
    pub inventory: Option<Inventory>,
}

/// The name of a `ClusterImageSet`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterImageSetReference {
    /// The name.
    pub name: String,
}

/// One entry of an inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InventoryEntry {
    /// `ClusterDeploymentCustomization`, the only kind there is.
    #[serde(default = "InventoryEntry::only_kind")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["", "ClusterDeploymentCustomization"])))]
    pub kind: String,
    /// The name of a customization in the pool's namespace.
    pub name: String,
}

impl InventoryEntry {
    fn only_kind() -> String {
        "ClusterDeploymentCustomization".to_owned()
    }
}

/// What a pool holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClusterPoolStatus {
    /// Unclaimed clusters.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(!default))]
    pub size: i32,
    /// Unclaimed clusters that are installed and not running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standby: Option<i32>,
    /// Unclaimed clusters that are installed and running.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(!default))]
    pub ready: i32,
    /// `InventoryValid` and others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<HiveCondition>>,
}
