//! An object's metadata, as far as leases go by it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// An object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub finalizers: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Metadata {
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }

    /// Whether nothing but this finalizer keeps a deleted object.
    pub fn waits_only_for(&self, finalizer: &str) -> bool {
        self.is_deleting() && matches!(self.finalizers.as_slice(), [only] if only == finalizer)
    }
}
