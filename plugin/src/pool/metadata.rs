//! An object's metadata, as far as leases go by it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// An object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) creation_timestamp: Option<Timestamp>,
    pub(super) deletion_timestamp: Option<Timestamp>,
    pub(super) finalizers: Vec<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

impl Metadata {
    pub(super) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(super) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }

    /// Whether nothing but this finalizer keeps a deleted object.
    pub(super) fn waits_only_for(&self, finalizer: &str) -> bool {
        self.is_deleting() && matches!(self.finalizers.as_slice(), [only] if only == finalizer)
    }
}
