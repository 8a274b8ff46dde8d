//! `ClusterDeploymentCustomization`.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{Condition, LocalReference};
use crate::api::Metadata;

/// Patches that make one cluster of a pool differ from the next, as rules see them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClusterDeploymentCustomization<'a> {
    /// Object metadata.
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
    /// The desired state.
    #[serde(default)]
    pub spec: ClusterDeploymentCustomizationSpec,
    /// The lease on it.
    #[serde(default, deserialize_with = "readable")]
    pub status: Option<ClusterDeploymentCustomizationStatus>,
}

/// A status that cannot be read counts as none: nobody writes it with the object, and the design document's own
/// sample has another shape.
fn readable<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ClusterDeploymentCustomizationStatus>, D::Error> {
    let text = <&RawValue>::deserialize(deserializer)?.get();
    Ok(serde_json::from_str(text).ok())
}

/// The patches that make one cluster of a pool differ from the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "hive.openshift.io",
        version = "v1",
        kind = "ClusterDeploymentCustomization",
        root = "ClusterDeploymentCustomizationResource",
        doc = "Patches for the install-config of one cluster of a pool, and the lease on them.",
        shortname = "cdc",
        namespaced,
        status = "ClusterDeploymentCustomizationStatus"
    ),
    schemars(extend("x-kubernetes-preserve-unknown-fields" = true))
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDeploymentCustomizationSpec {
    /// Applied to the install-config, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_config_patches: Option<Vec<PatchEntity>>,
    /// Applied to the manifests that the installer writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installer_manifest_patches: Option<Vec<InstallerManifestPatch>>,
}

/// One RFC 6902 operation as Hive spells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PatchEntity {
    /// `add`, `remove`, `replace`, `move`, `copy` or `test`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["add", "remove", "replace", "move", "copy", "test"])))]
    pub op: String,
    /// A JSON pointer (RFC 6901).
    pub path: String,
    /// A JSON pointer; `move` and `copy` need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// A string; absent means the empty string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Any JSON value, as text; wins over `value`.
    #[serde(rename = "valueJSON", skip_serializing_if = "Option::is_none")]
    pub value_json: Option<String>,
}

/// Patches for those manifests whose file name matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InstallerManifestPatch {
    /// Which manifests.
    pub manifest_selector: ManifestSelector,
    /// Applied in order.
    pub patches: Vec<PatchEntity>,
}

/// Names manifests by their file names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ManifestSelector {
    /// A glob, relative to the installer's folder.
    pub glob: String,
}

/// The lease on a customization, and how it last went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClusterDeploymentCustomizationStatus {
    /// The `ClusterDeployment` that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_deployment_ref: Option<LocalReference>,
    /// The pool that it was taken for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_pool_ref: Option<LocalReference>,
    /// `Available` and `ApplySucceeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// The install-config that was last made with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_configuration: Option<String>,
}

impl ClusterDeploymentCustomizationStatus {
    /// Whether it is leased: marked so, or with a reference.
    pub fn is_leased(&self) -> bool {
        let reserved = |condition: &Condition| condition.kind == "Available" && condition.status == "False";
        self.conditions.iter().flatten().any(reserved)
            || self.holder().is_some()
            || self.cluster_pool_ref.as_ref().is_some_and(LocalReference::is_set)
    }

    /// The `ClusterDeployment` that it says holds the lease.
    pub fn holder(&self) -> Option<&str> {
        let holder = self.cluster_deployment_ref.as_ref()?;
        holder.is_set().then_some(holder.name.as_str())
    }
}
