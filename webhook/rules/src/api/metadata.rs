//! Object metadata, as far as rules read it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Text;
use crate::syntax::is_dns1123_subdomain;

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
    /// Cluster API's label names the Cluster.
    pub labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
    /// Cluster API's controllers make the Cluster an owner.
    pub owner_references: Option<Vec<OwnerReference<'a>>>,
    /// Our overrides are read from here.
    pub annotations: Option<BTreeMap<Text<'a>, Text<'a>>>,
}

/// One owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OwnerReference<'a> {
    /// Its kind.
    #[serde(borrow)]
    pub kind: Option<Text<'a>>,
    /// Its name.
    pub name: Option<Text<'a>>,
}

/// The label that names the Cluster an object belongs to.
const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";

impl Metadata<'_> {
    /// The name of the Cluster that the object belongs to: the owner's, else the label's.
    pub fn cluster_name(&self) -> Option<&str> {
        let owners = self.owner_references.iter().flatten();
        let mut clusters = owners.filter(|owner| owner.kind.as_deref() == Some("Cluster"));
        let labelled = || self.labels.as_ref()?.get(CLUSTER_NAME).map(|name| &**name);
        clusters.find_map(|owner| owner.name.as_deref()).or_else(labelled)
    }

    /// Whether an object of a kind owns it.
    pub fn is_owned_by(&self, kind: &str) -> bool {
        let mut owners = self.owner_references.iter().flatten();
        owners.any(|owner| owner.kind.as_deref() == Some(kind))
    }

    /// Whether a label is set, to whatever value.
    pub fn has_label(&self, name: &str) -> bool {
        self.labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(name))
    }

    /// What a command needs to be about the namespace of this object: nothing while that is unknown.
    pub fn namespace_flag(&self) -> String {
        match self.namespace.as_deref() {
            Some(namespace) if is_dns1123_subdomain(namespace.as_bytes()) => format!(" -n {namespace}"),
            _ => String::new(),
        }
    }

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
