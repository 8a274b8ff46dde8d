//! `ClusterDeploymentCustomization`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[cfg(feature = "schema")]
use super::schema::CustomizationStatus;
use super::{Conditions, LocalReference};
use crate::{
    cleaning_record::{CLEANING, CleaningRecord},
    decode::null_as_default,
    lease_record::{CONDITION, LeaseRecord, Unreadable, has_passed},
    metadata,
};

/// The type of the condition that says whether a customization is free.
pub const AVAILABLE: &str = "Available";

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

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterDeploymentCustomizationStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_deployment_ref: Option<LocalReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_pool_ref: Option<LocalReference>,
    pub conditions: Conditions,
}

/// What the status of a customization says about its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reservation {
    Free,
    Leased(LeaseRecord),
    /// The customization is reserved for a holder, but has no record: Hive or a person reserved it, or a backup was restored.
    Unrecorded,
    /// The last lease of the customization has ended, and the customization must be cleaned before the next one.
    Cleaning(CleaningRecord),
    /// The record cannot be read, so the customization is never free.
    Unreadable(Unreadable),
}

impl Reservation {
    /// When the recorded lease ends; `None` if it never ends.
    pub fn end(&self) -> Option<Timestamp> {
        match self {
            Self::Leased(record) => record.end(),
            Self::Free | Self::Unrecorded | Self::Cleaning(_) | Self::Unreadable(_) => None,
        }
    }

    /// Whether the recorded lease has ended. See [`has_passed`] for an unknown time.
    pub fn has_ended(&self, now: Option<Timestamp>) -> bool {
        self.end().is_some_and(|end| has_passed(end, now))
    }
}

impl ClusterDeploymentCustomizationStatus {
    /// The name of the `ClusterDeployment` that uses the customization.
    pub fn holder(&self) -> Option<&str> {
        self.cluster_deployment_ref
            .as_ref()
            .and_then(LocalReference::name)
    }

    /// The name of the pool for which the customization is leased.
    pub fn pool(&self) -> Option<&str> {
        self.cluster_pool_ref.as_ref().and_then(LocalReference::name)
    }

    /// Whether `Available` is `False`. Like Hive, we treat an absent condition and `Unknown` as available.
    pub fn is_reserved(&self) -> bool {
        self.conditions.status(AVAILABLE) == Some("False")
    }

    /// Whether the customization is reserved, or the status refers to a holder or a pool.
    pub fn is_leased(&self) -> bool {
        self.is_reserved() || self.holder().is_some() || self.pool().is_some()
    }

    /// Whether the customization has no holder, and has the record of a cleaning.
    pub fn must_be_cleaned(&self) -> bool {
        self.holder().is_none() && self.conditions.has(CLEANING)
    }

    pub fn reservation(&self) -> Reservation {
        match self.conditions.message(CONDITION).map(LeaseRecord::parse) {
            Some(Err(why)) => Reservation::Unreadable(why),
            // Compare the holders, because Hive leaves this condition in place when it revokes a lease.
            Some(Ok(record)) if self.holder() == Some(&record.holder) => Reservation::Leased(record),
            _ if self.must_be_cleaned() => self.cleaning(),
            _ if self.is_leased() => Reservation::Unrecorded,
            _ => Reservation::Free,
        }
    }

    /// What the condition `kubectl-kcp.dev/Cleaning` says. It counts even if `Available` is `True`, because only a janitor
    /// removes it. With a holder it does not count, because Hive and people leave it in place when they reserve an entry.
    fn cleaning(&self) -> Reservation {
        let message = self.conditions.message(CLEANING).unwrap_or_default();
        CleaningRecord::parse(message).map_or_else(Reservation::Unreadable, Reservation::Cleaning)
    }
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
        status = "CustomizationStatus"
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
