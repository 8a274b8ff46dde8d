//! Hive's kinds, group `hive.openshift.io/v1`, reduced to the fields that we read and write.
//!
//! With the feature `schema`, each kind is also a `CustomResource`, for clients and for generating the CRDs in
//! `manifests/dev/crds`, which are for clusters without Hive.

mod claim;
mod condition;
#[cfg(feature = "schema")]
mod crds;
mod customization;
mod deployment;
mod inventory;
mod lease;
mod pool;

pub use claim::*;
pub use condition::*;
#[cfg(feature = "schema")]
pub use crds::custom_resource_definitions;
pub use customization::*;
pub use deployment::*;
pub use inventory::*;
pub use lease::*;
pub use pool::*;

use serde::{Deserialize, Serialize};

/// The schema of an object with arbitrary fields.
#[cfg(feature = "schema")]
fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
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
    /// Whether the name is set.
    pub fn is_set(&self) -> bool {
        !self.name.is_empty()
    }
}
