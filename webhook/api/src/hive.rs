//! Hive's kinds, group `hive.openshift.io/v1`, with the fields that we read and write.
//!
//! [`conditions`] also keep unknown fields, because a merge patch replaces the whole list. The specs of pools and customizations
//! also keep unknown fields, because the plugin copies the specs to other objects.
//!
//! With the feature `schema`, each kind is also a `CustomResource`, for clients and for generating the CRDs in
//! `manifests/dev/crds`, which are for clusters without Hive.

mod claim;
pub mod conditions;
mod customization;
mod deployment;
mod inventory;
mod pool;
#[cfg(feature = "schema")]
pub mod schema;

pub use claim::*;
pub use conditions::Conditions;
pub use customization::*;
pub use deployment::*;
pub use inventory::*;
pub use pool::*;

use serde::{Deserialize, Serialize};

/// The schema of an object with arbitrary fields.
#[cfg(feature = "schema")]
pub fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A reference by name; the field implies the kind and the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LocalReference {
    /// The name of the object; an empty name means that the reference is unset.
    #[serde(default)]
    pub name: String,
}

impl LocalReference {
    /// The name; `None` if it is empty.
    pub fn name(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests;
