//! An object's metadata, as far as leases go by it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// An object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::pool) struct Metadata {
    pub(in crate::pool) name: String,
    pub(in crate::pool) namespace: String,
    pub(in crate::pool) uid: String,
    pub(in crate::pool) resource_version: String,
    pub(in crate::pool) creation_timestamp: Option<Timestamp>,
    pub(in crate::pool) deletion_timestamp: Option<Timestamp>,
    pub(in crate::pool) finalizers: Vec<String>,
    pub(in crate::pool) labels: BTreeMap<String, String>,
    pub(in crate::pool) annotations: BTreeMap<String, String>,
}

impl Metadata {
    pub(in crate::pool) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(in crate::pool) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }

    /// Whether nothing but this finalizer keeps a deleted object.
    pub(in crate::pool) fn waits_only_for(&self, finalizer: &str) -> bool {
        self.is_deleting() && matches!(self.finalizers.as_slice(), [only] if only == finalizer)
    }
}
