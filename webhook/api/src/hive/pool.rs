//! `ClusterPool`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};

#[cfg(feature = "schema")]
use super::schema::HiveCondition;
use super::{Conditions, Inventory, LocalReference};
use crate::{
    decode::null_as_default,
    metadata::{self, Object as _},
    names::{annotation, finalizer},
};

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

impl ClusterPool {
    /// Whether Hive's controller manages the pool, that is, has set its finalizer.
    pub fn is_managed_by_hive(&self) -> bool {
        self.has_finalizer(finalizer::HIVE_CLUSTERS)
    }

    /// Whether the pool asks that its entries are cleaned between two holders. A value other than `true` and `false` counts as
    /// `true`, because an entry that was not cleaned must not be leased by mistake.
    pub fn asks_for_cleaning(&self) -> bool {
        self.annotation(annotation::CLEAN_BEFORE_REUSE)
            .is_some_and(|value| value != "false")
    }

    /// The value with which the pool asks for cleaning, if it is neither `true` nor `false`.
    pub fn unclear_cleaning(&self) -> Option<&str> {
        self.annotation(annotation::CLEAN_BEFORE_REUSE)
            .filter(|value| !matches!(*value, "true" | "false"))
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

/// The desired state of a `ClusterPool`.
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
        doc = "A pool of clusters created in advance.",
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
    /// The platform of the clusters, with the name of the platform as the only key.
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::any_object"))]
    pub platform: Map<String, Value>,
    /// The DNS domain above the names of the clusters.
    pub base_domain: String,
    /// The release from which clusters are installed.
    pub image_set_ref: ClusterImageSetReference,
    /// The desired number of unclaimed clusters.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub size: i32,
    /// The number of unclaimed clusters that do not hibernate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub running_count: Option<i32>,
    /// The maximum number of clusters, including claimed ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i32>,
    /// The maximum number of clusters that are installed or removed at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<i32>,
    /// The Secret with the install-config template for all clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_config_secret_template_ref: Option<LocalReference>,
    /// Whether Hive creates no MachinePool for the workers of each cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_machine_pools: Option<bool>,
    /// What Hive does about clusters that do not resume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernation_config: Option<HibernationConfig>,
    /// A customization for all clusters of the pool; it is never leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customization_ref: Option<LocalReference>,
    /// The customizations for the clusters of the pool; each cluster uses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<InventoryEntry>>"))]
    pub inventory: Option<Inventory>,
}

/// A reference to a `ClusterImageSet`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterImageSetReference {
    /// The name of the `ClusterImageSet`.
    pub name: String,
}

/// What Hive does about clusters that do not resume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HibernationConfig {
    /// How long an unclaimed cluster may take to resume before Hive replaces it, as a Go duration. Zero means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))
    )]
    pub resume_timeout: Option<String>,
}

/// One entry of an inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InventoryEntry {
    /// The kind of the entry; only `ClusterDeploymentCustomization` is supported.
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

/// The observed state of a `ClusterPool`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClusterPoolStatus {
    /// The number of unclaimed clusters.
    // None until Hive's controller has written a status.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub size: Option<i32>,
    /// The number of unclaimed clusters that are installed and not running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standby: Option<i32>,
    /// The number of unclaimed clusters that are installed and running.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub ready: Option<i32>,
    /// The conditions, such as `InventoryValid`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(!default, with = "Option<Vec<HiveCondition>>"))]
    pub conditions: Conditions,
}
