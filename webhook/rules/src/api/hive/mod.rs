//! Hive's kinds, group `hive.openshift.io/v1`, as far as we read and write them.
//!
//! With the feature `schema` each is a `CustomResource` too: for clients, and for the CRDs that
//! `manifests/dev/crds` offers to clusters without Hive.

mod claim;
mod condition;
#[cfg(feature = "schema")]
mod crds;
mod customization;
mod deployment;
mod inventory;
mod pool;

pub use claim::*;
pub use condition::*;
#[cfg(feature = "schema")]
pub use crds::custom_resource_definitions;
pub use customization::*;
pub use deployment::*;
pub use inventory::*;
pub use pool::*;

use serde::{Deserialize, Serialize};

/// The schema of an object whose fields we do not know.
#[cfg(feature = "schema")]
fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// The name of an object whose kind and namespace the field implies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LocalReference {
    /// The name; empty means none.
    #[serde(default)]
    pub name: String,
}

impl LocalReference {
    /// Whether it names an object.
    pub fn is_set(&self) -> bool {
        !self.name.is_empty()
    }
}
