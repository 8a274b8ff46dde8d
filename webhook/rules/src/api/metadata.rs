//! Object metadata, as far as rules read it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Text;

/// `metadata` of any object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata<'a> {
    /// Absent while the server has yet to generate it.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The prefix of a generated name.
    pub generate_name: Option<Text<'a>>,
    /// Absent in a manifest that leaves it to the client.
    pub namespace: Option<Text<'a>>,
    /// Counts the changes of `spec`.
    pub generation: Option<i64>,
    /// RFC 3339; present once the object is being deleted.
    pub deletion_timestamp: Option<Text<'a>>,
    /// Our overrides are read from here.
    pub annotations: Option<BTreeMap<Text<'a>, Text<'a>>>,
}

impl Metadata<'_> {
    /// Whether an annotation is set. For Cluster API its presence counts, whatever its value.
    pub fn has_annotation(&self, name: &str) -> bool {
        self.annotations
            .as_ref()
            .is_some_and(|annotations| annotations.contains_key(name))
    }

    /// Whether the object is being deleted: a controller must always be able to finish that.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}
