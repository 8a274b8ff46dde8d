//! The metadata of an object, reduced to the fields that rules read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Text;
use crate::{
    names::{self, label},
    syntax::is_dns1123_subdomain,
};

/// The `metadata` of any object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata<'a> {
    /// The name of the object; `None` before the API server generates it.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The prefix from which the API server generates the name of the object.
    pub generate_name: Option<Text<'a>>,
    /// The namespace of the object; `None` in a manifest without a namespace.
    pub namespace: Option<Text<'a>>,
    /// The generation of the object, which the API server increments with each change to `spec`; `None` in a manifest.
    pub generation: Option<i64>,
    /// When the deletion of the object was requested, in RFC 3339; `None` if the object is not being deleted.
    pub deletion_timestamp: Option<Text<'a>>,
    /// The labels of the object. A label of Cluster API contains the name of the Cluster.
    pub labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
    /// The owners of the object. Cluster API's controllers set the Cluster as an owner.
    pub owner_references: Option<Vec<OwnerReference<'a>>>,
    /// The annotations of the object. One of them contains the overrides of rules.
    pub annotations: Option<BTreeMap<Text<'a>, Text<'a>>>,
    /// Which client has written which field of the object. The value is long, and only a few rules read it.
    pub managed_fields: Option<ManagedFields<'a>>,
}

/// The JSON text of `managedFields`, which is decoded when a rule reads it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(transparent)]
pub struct ManagedFields<'a>(#[serde(borrow)] &'a RawValue);

impl PartialEq for ManagedFields<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

/// An entry of `managedFields`.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow, default)]
    manager: Option<Text<'a>>,
    #[serde(default)]
    operation: Option<Text<'a>>,
    #[serde(rename = "apiVersion", default)]
    api_version: Option<Text<'a>>,
    #[serde(default)]
    time: Option<Text<'a>>,
    #[serde(default)]
    subresource: Option<Text<'a>>,
    #[serde(rename = "fieldsV1", default)]
    fields: Fields<'a>,
}

#[derive(Default, Deserialize)]
struct Fields<'a> {
    #[serde(borrow, rename = "f:spec", default)]
    spec: Option<BTreeMap<Text<'a>, &'a RawValue>>,
}

impl<'a> ManagedFields<'a> {
    fn entries(&self) -> Vec<Entry<'a>> {
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }

    /// When a client that owns a field of the spec last wrote the object. Entries of the subresource `scale` have no time.
    fn last_write_of_spec(&self) -> Option<Timestamp> {
        let entries = self.entries();
        let of_spec = entries
            .iter()
            .filter(|entry| entry.subresource.as_deref() != Some("status") && entry.fields.spec.is_some());
        of_spec
            .filter_map(|entry| entry.time.as_ref()?.parse().ok())
            .max()
    }

    /// What a field manager has applied. The API server keeps one entry for each manager and subresource.
    fn applied_by(&self, manager: &str) -> Option<Entry<'a>> {
        self.entries().into_iter().find(|entry| {
            entry.manager.as_deref() == Some(manager)
                && entry.operation.as_deref() == Some("Apply")
                && entry.subresource.is_none()
        })
    }
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OwnerReference<'a> {
    /// The API group and version of the owner.
    #[serde(borrow, rename = "apiVersion")]
    pub api_version: Option<Text<'a>>,
    pub kind: Option<Text<'a>>,
    pub name: Option<Text<'a>>,
    pub uid: Option<Text<'a>>,
}

impl OwnerReference<'_> {
    /// Whether the owner is a `Cluster` in Cluster API's core group. Other groups can have a kind with the same name.
    fn is_cluster(&self) -> bool {
        let group = self
            .api_version
            .as_deref()
            .and_then(|version| version.split_once('/'));
        self.kind.as_deref() == Some("Cluster")
            && group.is_some_and(|(group, _)| group == names::group::CLUSTER)
    }
}

impl Metadata<'_> {
    /// The name of the object's Cluster, from the owner reference or else from the label; `None` if it has neither.
    pub fn cluster_name(&self) -> Option<&str> {
        let labelled = || self.labels.as_ref()?.get(label::CLUSTER_NAME).map(|name| &**name);
        let owner = self.cluster_owner().and_then(|owner| owner.name.as_deref());
        owner.or_else(labelled)
    }

    /// The Cluster that owns the object; `None` if no Cluster owns it.
    pub fn cluster_owner(&self) -> Option<&OwnerReference<'_>> {
        let mut owners = self.owner_references.iter().flatten();
        owners.find(|owner| owner.is_cluster() && owner.name.is_some())
    }

    /// Whether the API server has recorded that a field manager applied a field of `spec`.
    pub fn has_applied(&self, manager: &str, field: &str) -> bool {
        let applied = self
            .managed_fields
            .and_then(|managed| managed.applied_by(manager));
        let spec = applied.and_then(|entry| entry.fields.spec);
        spec.is_some_and(|spec| spec.contains_key(field))
    }

    /// The API version in which a field manager applies the object; `None` if it has not applied the object.
    pub fn applied_version(&self, manager: &str) -> Option<Text<'_>> {
        self.managed_fields?.applied_by(manager)?.api_version
    }

    /// When a client that owns a field of the spec last wrote the object; `None` if the API server has not recorded it.
    pub fn last_write_of_spec(&self) -> Option<Timestamp> {
        self.managed_fields?.last_write_of_spec()
    }

    /// The flag ` -n NAMESPACE` for commands in messages; empty if the namespace is unknown.
    pub fn namespace_flag(&self) -> String {
        match self.namespace.as_deref() {
            Some(namespace) if is_dns1123_subdomain(namespace.as_bytes()) => format!(" -n {namespace}"),
            _ => String::new(),
        }
    }

    /// The value of an annotation; `None` if the object does not have it.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(name).map(|value| &**value)
    }

    /// Whether the object has the annotation, with any value. Cluster API checks only the presence.
    pub fn has_annotation(&self, name: &str) -> bool {
        self.annotation(name).is_some()
    }

    /// Whether Cluster API's topology controller manages the object.
    pub fn is_owned_by_topology(&self) -> bool {
        let labels = self.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(label::TOPOLOGY_OWNED))
    }

    /// Whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}
