//! The schemas of Cluster API's kinds, as an API server reads them from Cluster API's definitions.
//!
//! `make object-schemas` derives `cluster-api.json` from the definitions. The file keeps every constraint except CEL expressions.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    sync::{LazyLock, OnceLock},
};

use kube::core::Version;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

static SCHEMAS: LazyLock<Schemas> =
    LazyLock::new(|| serde_json::from_str(include_str!("cluster-api.json")).unwrap_or_default());

#[derive(Debug, Default, Deserialize)]
struct Schemas {
    definitions: BTreeMap<String, Schema>,
    /// The schemas of the kinds, by `GROUP/VERSION/KIND`.
    kinds: BTreeMap<String, Schema>,
}

/// What an API server requires of a value.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Schema {
    /// The name of the definition with the actual schema.
    #[serde(rename = "$ref")]
    reference: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<Type>,
    pub(super) properties: BTreeMap<String, Self>,
    pub(super) required: Vec<String>,
    pub(super) items: Option<Box<Self>>,
    pub(super) additional_properties: Option<Box<Self>>,
    #[serde(rename = "enum")]
    pub(super) allowed: Vec<Value>,
    pub(super) format: Option<Format>,
    pub(super) pattern: Option<Pattern>,
    pub(super) min_items: Option<usize>,
    pub(super) max_items: Option<usize>,
    pub(super) min_length: Option<usize>,
    pub(super) max_length: Option<usize>,
    pub(super) min_properties: Option<usize>,
    pub(super) minimum: Option<f64>,
    pub(super) maximum: Option<f64>,
    #[serde(rename = "x-kubernetes-int-or-string")]
    pub(super) int_or_string: bool,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    pub(super) keeps_unknown_fields: bool,
    #[serde(rename = "x-kubernetes-list-type")]
    pub(super) list_type: Option<ListType>,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    pub(super) list_keys: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Format {
    Byte,
    DateTime,
    /// Not in Cluster API's definitions: the field of v1beta1 is a string, which the conversion to v1beta2 reads as a duration.
    Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ListType {
    Map,
    Set,
}

/// A regular expression, which is compiled when the first value is compared with it.
#[derive(Debug, Deserialize)]
#[serde(from = "String")]
pub(super) struct Pattern {
    pub(super) text: String,
    compiled: OnceLock<Option<Regex>>,
}

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        Self {
            text,
            compiled: OnceLock::new(),
        }
    }
}

impl Pattern {
    pub(super) fn matches(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| Regex::new(&self.text).ok());
        compiled.as_ref().is_none_or(|pattern| pattern.is_match(text))
    }
}

impl Type {
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
            Value::Number(number) if number.is_i64() || number.is_u64() => Self::Integer,
            Value::Number(_) => Self::Number,
        }
    }

    /// The type with its article.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "a list",
            Self::String => "a string",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Boolean => "true or false",
            Self::Null => "null",
        }
    }
}

impl Schema {
    /// The schema of a kind; `None` if Cluster API does not serve the kind in this `apiVersion`.
    pub(super) fn of_kind(api_version: &str, kind: &str) -> Option<&'static Self> {
        SCHEMAS.kinds.get(&format!("{api_version}/{kind}"))
    }

    /// The schema of the metadata of every object.
    pub(super) fn of_metadata() -> Option<&'static Self> {
        SCHEMAS.definitions.get("metadata")
    }

    /// Follows the reference to a definition.
    pub(super) fn resolved(&'static self) -> &'static Self {
        let name = self.reference.as_ref();
        name.and_then(|name| SCHEMAS.definitions.get(name))
            .unwrap_or(self)
    }

    /// The schema of the field at a path such as `spec.files[0].path`.
    pub(super) fn at(&'static self, path: &str) -> Option<&'static Self> {
        let mut found = self.resolved();
        for step in path.split(['.', '[']) {
            found = if step.ends_with(']') {
                found.items.as_ref().or(found.additional_properties.as_ref())?
            } else {
                found.properties.get(step)?
            }
            .resolved();
        }
        Some(found)
    }

    pub(super) fn accepts(&self, given: Type) -> bool {
        match self.kind {
            Some(Type::Number) => matches!(given, Type::Integer | Type::Number),
            Some(kind) => given == kind,
            None if self.int_or_string => matches!(given, Type::Integer | Type::String),
            None => true,
        }
    }

    /// The type that the schema requires, with its article.
    pub(super) fn type_name(&self) -> &'static str {
        match self.kind {
            _ if self.format == Some(Format::Duration) => "a duration such as 5m",
            Some(kind) => kind.name(),
            None => "an integer or a string",
        }
    }
}

/// The `apiVersion`s in which Cluster API serves a kind, the preferred one first. Empty for a kind without a schema.
pub(in crate::commands::lint) fn served_versions(kind: &str) -> Vec<&'static str> {
    let names = SCHEMAS.kinds.keys().filter_map(|name| name.rsplit_once('/'));
    let of_kind = names.filter(|(_, known)| *known == kind);
    let mut served: Vec<_> = of_kind.map(|(api_version, _)| api_version).collect();
    newest_first(&mut served);
    served
}

fn newest_first(api_versions: &mut [&str]) {
    let version = |api_version: &str| Version::parse(api_version.rsplit('/').next().unwrap_or_default());
    api_versions.sort_by_key(|api_version| Reverse(version(api_version).priority()));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{SCHEMAS, Schema, Schemas, newest_first, served_versions};

    fn walk(schema: &'static Schema, visit: &mut dyn FnMut(&'static Schema)) {
        visit(schema);
        let inner = schema.items.iter().chain(&schema.additional_properties);
        for part in inner.map(AsRef::as_ref).chain(schema.properties.values()) {
            walk(part, visit);
        }
    }

    #[test]
    fn the_data_is_complete() {
        let parsed: Schemas = serde_json::from_str(include_str!("cluster-api.json")).unwrap();
        assert_eq!(parsed.kinds.len(), 14);
        let mut used = BTreeSet::new();
        for schema in SCHEMAS.kinds.values().chain(SCHEMAS.definitions.values()) {
            walk(schema, &mut |schema| {
                used.extend(schema.reference.as_ref());
                if let Some(pattern) = &schema.pattern {
                    assert!(regex::Regex::new(&pattern.text).is_ok(), "{}", pattern.text);
                }
            });
        }
        assert!(used.iter().all(|name| SCHEMAS.definitions.contains_key(*name)));
        assert_eq!(used.len(), SCHEMAS.definitions.len());
    }

    #[test]
    fn the_preferred_version_is_first() {
        assert_eq!(
            served_versions("KubeadmConfig"),
            [
                "bootstrap.cluster.x-k8s.io/v1beta2",
                "bootstrap.cluster.x-k8s.io/v1beta1"
            ]
        );
        assert_eq!(served_versions("Machine"), [""; 0]);
    }

    #[test]
    fn versions_are_ordered_as_in_kubernetes() {
        let mut versions = ["g/v1alpha4", "g/v1beta2", "g/v2", "g/v1beta10", "g/v1", "g/v10"];
        newest_first(&mut versions);
        assert_eq!(
            versions,
            ["g/v10", "g/v2", "g/v1", "g/v1beta10", "g/v1beta2", "g/v1alpha4"]
        );
    }

    #[test]
    fn finds_the_schema_of_a_path() {
        let schema = Schema::of_kind("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane").unwrap();
        for (path, is_known) in [
            ("spec.replicas", true),
            ("spec.kubeadmConfigSpec.files[3].path", true),
            ("spec.machineTemplate.metadata.labels[a]", true),
            ("spec.rolloutStrategy", false),
            ("spec.replicas[0]", false),
        ] {
            assert_eq!(schema.at(path).is_some(), is_known, "{path}");
        }
    }
}
