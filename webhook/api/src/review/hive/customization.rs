//! `ClusterDeploymentCustomization`.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{Condition, LocalReference};
use crate::review::Metadata;

/// A `ClusterDeploymentCustomization` with the fields that rules read. It contains patches for one cluster of
/// a pool at a time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClusterDeploymentCustomization<'a> {
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
    #[serde(default)]
    pub spec: ClusterDeploymentCustomizationSpec,
    /// The status, which contains the lease; `None` if it is absent or cannot be decoded.
    #[serde(default, deserialize_with = "decode_status_or_none")]
    pub status: Option<ClusterDeploymentCustomizationStatus>,
}

/// Treats a status that cannot be decoded as missing, because users do not write the status, and the sample in the
/// design document has a different structure.
fn decode_status_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ClusterDeploymentCustomizationStatus>, D::Error> {
    let text = <&RawValue>::deserialize(deserializer)?.get();
    Ok(serde_json::from_str(text).ok())
}

/// The patches for one cluster of a pool at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "hive.openshift.io",
        version = "v1",
        kind = "ClusterDeploymentCustomization",
        root = "ClusterDeploymentCustomizationResource",
        doc = "Install-config patches for one cluster of a pool, and the lease that reserves them.",
        shortname = "cdc",
        namespaced,
        status = "ClusterDeploymentCustomizationStatus"
    ),
    schemars(extend("x-kubernetes-preserve-unknown-fields" = true))
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDeploymentCustomizationSpec {
    /// The patches for the install-config, applied in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_config_patches: Option<Vec<PatchEntity>>,
    /// The patches for the manifests that the installer generates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installer_manifest_patches: Option<Vec<InstallerManifestPatch>>,
}

/// One RFC 6902 operation in the format of Hive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PatchEntity {
    /// `add`, `remove`, `replace`, `move`, `copy` or `test`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["add", "remove", "replace", "move", "copy", "test"])))]
    pub op: String,
    /// A JSON pointer (RFC 6901) to the field to patch.
    pub path: String,
    /// A JSON pointer to the source field; required for `move` and `copy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The value of the operation as a string; unset means the empty string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The value of the operation as JSON text, which takes precedence over `value`.
    #[serde(rename = "valueJSON", skip_serializing_if = "Option::is_none")]
    pub value_json: Option<String>,
}

/// Patches for the manifests whose file names match a glob.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InstallerManifestPatch {
    /// Selects the manifests to patch.
    pub manifest_selector: ManifestSelector,
    /// The patches, which Hive applies in order.
    pub patches: Vec<PatchEntity>,
}

/// Selects manifests by their file names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ManifestSelector {
    /// A glob, relative to the installer's directory.
    pub glob: String,
}

/// The lease on a customization, and the result of its last use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClusterDeploymentCustomizationStatus {
    /// The `ClusterDeployment` that holds the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_deployment_ref: Option<LocalReference>,
    /// The pool for which the customization is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_pool_ref: Option<LocalReference>,
    /// The conditions, such as `Available` and `ApplySucceeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// The install-config that was last generated with the patches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_configuration: Option<String>,
}

impl ClusterDeploymentCustomizationStatus {
    /// Whether the customization is leased: the condition `Available` is `False`, or the status refers to a holder or a
    /// pool.
    pub fn is_leased(&self) -> bool {
        let reserved = |condition: &Condition| condition.kind == "Available" && condition.status == "False";
        self.conditions.iter().flatten().any(reserved)
            || self.holder().is_some()
            || self.cluster_pool_ref.as_ref().is_some_and(LocalReference::is_set)
    }

    /// The name of the `ClusterDeployment` that holds the lease, according to the status; `None` if it is unset.
    pub fn holder(&self) -> Option<&str> {
        let holder = self.cluster_deployment_ref.as_ref()?;
        holder.is_set().then_some(holder.name.as_str())
    }
}
