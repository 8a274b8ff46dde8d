//! Object metadata, reduced to the fields that rules read.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Text;
use crate::syntax::is_dns1123_subdomain;

/// The `metadata` of any object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata<'a> {
    /// `None` before the API server generates it.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The prefix from which the API server generates the name.
    pub generate_name: Option<Text<'a>>,
    /// `None` in a manifest without a namespace.
    pub namespace: Option<Text<'a>>,
    /// The number of changes to `spec`.
    pub generation: Option<i64>,
    /// RFC 3339; set if the object is being deleted.
    pub deletion_timestamp: Option<Text<'a>>,
    /// A label of Cluster API contains the name of the Cluster.
    pub labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
    /// Cluster API's controllers set the Cluster as an owner.
    pub owner_references: Option<Vec<OwnerReference<'a>>>,
    /// An annotation contains the overrides of rules.
    pub annotations: Option<BTreeMap<Text<'a>, Text<'a>>>,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OwnerReference<'a> {
    /// The kind of the owner.
    #[serde(borrow)]
    pub kind: Option<Text<'a>>,
    /// The name of the owner.
    pub name: Option<Text<'a>>,
}

/// The label with the name of the object's Cluster.
const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";

impl Metadata<'_> {
    /// The name of the object's Cluster, from the owner reference or else from the label.
    pub fn cluster_name(&self) -> Option<&str> {
        let owners = self.owner_references.iter().flatten();
        let mut clusters = owners.filter(|owner| owner.kind.as_deref() == Some("Cluster"));
        let labelled = || self.labels.as_ref()?.get(CLUSTER_NAME).map(|name| &**name);
        clusters.find_map(|owner| owner.name.as_deref()).or_else(labelled)
    }

    /// Whether an object of this kind owns it.
    pub fn is_owned_by(&self, kind: &str) -> bool {
        let mut owners = self.owner_references.iter().flatten();
        owners.any(|owner| owner.kind.as_deref() == Some(kind))
    }

    /// Whether the label is present, with any value.
    pub fn has_label(&self, name: &str) -> bool {
        self.labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(name))
    }

    /// The flag ` -n NAMESPACE` for commands in messages; empty if the namespace is unknown.
    pub fn namespace_flag(&self) -> String {
        match self.namespace.as_deref() {
            Some(namespace) if is_dns1123_subdomain(namespace.as_bytes()) => format!(" -n {namespace}"),
            _ => String::new(),
        }
    }

    /// Whether the annotation is present, with any value. Cluster API checks only the presence.
    pub fn has_annotation(&self, name: &str) -> bool {
        self.annotations
            .as_ref()
            .is_some_and(|annotations| annotations.contains_key(name))
    }

    /// Whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}
