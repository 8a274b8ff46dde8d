//! Decodes objects and lists from JSON. An error names the object and the field.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, IgnoredAny, Visitor},
};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::field_error;

const ROOT_PATH: &str = ".";

/// An object cannot be decoded, because a field has the wrong type.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{}{fault}", self.place())]
pub struct DecodeError {
    /// Kind, namespace and name of the object, such as `Machine default/edge-1`. `None` if the JSON contains no name.
    pub object: Option<String>,
    /// The path of the field with the wrong type. `.` stands for the object itself.
    pub field: String,
    /// Which type the field has, and which type is expected.
    pub fault: String,
}

impl DecodeError {
    fn place(&self) -> String {
        let field = Some(&self.field).filter(|field| *field != ROOT_PATH);
        let mut place = String::new();
        for part in self.object.iter().chain(field) {
            place.push_str(part);
            place.push_str(": ");
        }
        place
    }
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self {
            object: None,
            field: ROOT_PATH.to_owned(),
            fault: error.to_string(),
        }
    }
}

impl From<DecodeError> for field_error::DecodeError {
    /// Drops the object's name, because the caller's error already names the object.
    fn from(DecodeError { field, fault, .. }: DecodeError) -> Self {
        Self { field, fault }
    }
}

/// Parses a time. A time that is later than [`Timestamp::MAX`] becomes `Timestamp::MAX`, because X.509 writes
/// "never expires" as 9999-12-31T23:59:59Z (RFC 5280, 4.1.2.5), which is a day later.
pub fn parse_time(text: &str) -> Result<Timestamp, jiff::Error> {
    match text.parse() {
        Err(_) if text.starts_with("9999-12-3") => Ok(Timestamp::MAX),
        parsed => parsed,
    }
}

/// Decodes a time like [`parse_time`], for `#[serde(deserialize_with)]`.
pub(crate) fn timestamp<'de, D: Deserializer<'de>>(time: D) -> Result<Option<Timestamp>, D::Error> {
    struct Time(Timestamp);

    impl<'de> Deserialize<'de> for Time {
        fn deserialize<D: Deserializer<'de>>(time: D) -> Result<Self, D::Error> {
            time.deserialize_str(TimeVisitor)
        }
    }

    struct TimeVisitor;

    impl Visitor<'_> for TimeVisitor {
        type Value = Time;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a time in RFC 3339 format")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
            parse_time(text).map(Time).map_err(E::custom)
        }
    }

    let time: Option<Time> = Option::deserialize(time)?;
    Ok(time.map(|Time(time)| time))
}

/// Decodes one object.
pub fn decode<T: DeserializeOwned>(json: &str) -> Result<T, DecodeError> {
    serde_json::from_str(json).map_err(|_| locate_error::<T>(json))
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub struct List<T> {
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects in the list. The API server may write an empty list as null. A document without this field is not a list.
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<T>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMeta {
    /// The token that requests the next page. Null or empty on the last page.
    #[serde(rename = "continue")]
    pub continue_: Option<String>,
    pub resource_version: Option<String>,
    /// How many objects the later pages have. `None` if the API server does not report it.
    pub remaining_item_count: Option<usize>,
}

impl<T> List<T> {
    /// The number of objects on this page and all later pages, if the API server reports it.
    pub fn total(&self) -> Option<usize> {
        let is_last = self.metadata.continue_.as_deref().unwrap_or_default().is_empty();
        let remaining = self.metadata.remaining_item_count.or(is_last.then_some(0));
        Some(self.items.len() + remaining?)
    }
}

/// Decodes a page of a list.
pub fn decode_list<T: DeserializeOwned>(json: &str) -> Result<List<T>, DecodeError> {
    serde_json::from_str(json).map_err(|_| {
        let raw: Option<List<Box<RawValue>>> = serde_json::from_str(json).ok();
        let mut items = raw.iter().flat_map(|list| &list.items).map(|item| item.get());
        items
            .find(|item| serde_json::from_str::<T>(item).is_err())
            .map_or_else(|| locate_error::<List<T>>(json), locate_error::<T>)
    })
}

/// A list item that cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub struct Undecodable {
    pub api_version: String,
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// `spec.clusterName`; none if it is absent or not a string.
    pub cluster_name: Option<String>,
    /// The field that has the wrong type.
    pub error: DecodeError,
}

impl Undecodable {
    /// Fails with `error` if the metadata cannot be decoded either.
    fn new(json: &str, error: DecodeError) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            #[serde(default)]
            api_version: String,
            metadata: WireMetadata,
            #[serde(borrow)]
            spec: Option<&'a RawValue>,
        }

        #[derive(Deserialize)]
        struct WireMetadata {
            namespace: String,
            name: String,
            #[serde(default, deserialize_with = "null_as_default")]
            labels: BTreeMap<String, String>,
        }

        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct WireSpec {
            cluster_name: Option<String>,
        }

        let Ok(wire) = serde_json::from_str::<Wire<'_>>(json) else {
            return Err(error);
        };
        let spec: Option<WireSpec> = wire.spec.and_then(|spec| serde_json::from_str(spec.get()).ok());
        Ok(Self {
            api_version: wire.api_version,
            namespace: wire.metadata.namespace,
            name: wire.metadata.name,
            labels: wire.metadata.labels,
            cluster_name: spec.and_then(|spec| spec.cluster_name),
            error,
        })
    }
}

/// Like [`decode_list`], but if a field of an object has the wrong type, still returns the other objects. Fails if the document
/// is not a list, or the metadata of an item cannot be decoded.
pub fn decode_each<T: DeserializeOwned>(
    json: &str,
) -> Result<List<Result<T, Box<Undecodable>>>, DecodeError> {
    if let Ok(List { metadata, items }) = serde_json::from_str::<List<T>>(json) {
        let items = items.into_iter().map(Ok).collect();
        return Ok(List { metadata, items });
    }
    let list: Result<List<Box<RawValue>>, _> = serde_json::from_str(json);
    let List { metadata, items } = list.map_err(|_| locate_error::<List<T>>(json))?;
    let items = items.iter().map(|item| match decode(item.get()) {
        Ok(object) => Ok(Ok(object)),
        Err(error) => Undecodable::new(item.get(), error).map(|object| Err(Box::new(object))),
    });
    let items = items.collect::<Result<_, DecodeError>>()?;
    Ok(List { metadata, items })
}

/// Decodes the JSON a second time and records paths, to find the field that `T` rejects.
fn locate_error<T: DeserializeOwned>(json: &str) -> DecodeError {
    let (field, fault) = match field_error::decode::<T>(json) {
        Err(error) => (error.field, error.fault),
        Ok(_) => (
            ROOT_PATH.to_owned(),
            "cannot tell which field has the wrong type".to_owned(),
        ),
    };
    DecodeError {
        object: serde_json::from_str(json).ok().and_then(ObjectName::with_kind),
        field,
        fault,
    }
}

#[derive(Deserialize)]
struct ObjectName {
    kind: Option<String>,
    metadata: Option<ObjectNameMetadata>,
    items: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct ObjectNameMetadata {
    name: Option<String>,
    namespace: Option<String>,
}

impl ObjectName {
    fn with_kind(self) -> Option<String> {
        let metadata = self.metadata.filter(|_| self.items.is_none())?;
        let name = match (metadata.namespace, metadata.name?) {
            (Some(namespace), name) if !namespace.is_empty() => format!("{namespace}/{name}"),
            (_, name) => name,
        };
        Some(match self.kind {
            Some(kind) => format!("{kind} {name}"),
            None => name,
        })
    }
}

/// Decodes null, like an absent field, as the type's default.
pub(crate) fn null_as_default<'de, D, T>(field: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(field).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{List, decode, decode_each, decode_list};
    use crate::{Cluster, KubeadmControlPlane, Machine, MachineHealthCheck, metadata::Object as _};

    fn fault<T: serde::de::DeserializeOwned + std::fmt::Debug>(object: &Value) -> String {
        decode::<T>(&object.to_string())
            .expect_err("a wrong type")
            .to_string()
    }

    #[test]
    fn a_wrong_type_names_the_object_and_the_field() {
        let metadata = json!({"namespace": "d", "name": "m1"});
        let wrong_status = json!({"kind": "Machine", "metadata": metadata,
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "A", "status": 3}]}});
        assert_eq!(
            fault::<Machine>(&wrong_status),
            "Machine d/m1: status.conditions[1].status: found integer 3, expected a string"
        );
        let wrong_replicas =
            json!({"kind": "KubeadmControlPlane", "metadata": metadata, "spec": {"replicas": "3"}});
        assert_eq!(
            fault::<KubeadmControlPlane>(&wrong_replicas),
            "KubeadmControlPlane d/m1: spec.replicas: found string \"3\", expected an integer"
        );
        let wrong_label = json!({"metadata": {"name": "m1", "labels": {"tier": 1}}, "spec": {}});
        assert_eq!(
            fault::<Machine>(&wrong_label),
            "m1: metadata.labels.tier: found integer 1, expected a string"
        );
        let wrong_annotation = json!({"metadata": {"name": "m1", "annotations": {"a": true}}});
        assert_eq!(
            fault::<Machine>(&wrong_annotation),
            "m1: metadata.annotations.a: found boolean true, expected a string"
        );
        let wrong_domain = json!({"kind": "Cluster", "metadata": metadata,
            "status": {"failureDomains": [{"name": "a"}, {"name": 2}]}});
        assert_eq!(
            fault::<Cluster>(&wrong_domain),
            "Cluster d/m1: status.failureDomains[1].name: found integer 2, expected a string"
        );
        let wrong_selector = json!({"metadata": metadata, "spec": {"selector": {"matchLabels": []}}});
        assert_eq!(
            fault::<MachineHealthCheck>(&wrong_selector),
            "d/m1: spec.selector.matchLabels: found a list, expected an object"
        );
        assert_eq!(fault::<Machine>(&json!({})), "metadata: the field is missing");
        assert_eq!(fault::<Machine>(&json!(3)), "found integer 3, expected an object");
    }

    #[test]
    fn a_list_names_the_item_that_is_wrong() {
        let list = json!({"kind": "MachineList", "metadata": {"resourceVersion": "7"}, "items": [
            {"kind": "Machine", "metadata": {"namespace": "d", "name": "m1"}},
            {"kind": "Machine", "metadata": {"namespace": "d", "name": "m2"}, "spec": {"version": 1.35}},
        ]});
        let error = decode_list::<Machine>(&list.to_string()).expect_err("a wrong type");
        assert_eq!(
            error.to_string(),
            "Machine d/m2: spec.version: found number 1.35, expected a string"
        );
    }

    #[test]
    fn an_object_that_cannot_be_decoded_does_not_hide_the_others() {
        let list = json!({"metadata": {"continue": "more"}, "items": [
            {"apiVersion": "g/v1", "kind": "Machine", "metadata": {"namespace": "d", "name": "m1", "labels": {"a": "b"}},
                "spec": {"clusterName": "c1", "version": 1.35}},
            {"kind": "Machine", "metadata": {"namespace": "e", "name": "m2"}, "spec": {"clusterName": "c2"}},
            {"kind": "Machine", "metadata": {"namespace": "e", "name": "m3"}, "spec": {"clusterName": 3}},
        ]});
        let page = decode_each::<Machine>(&list.to_string()).expect("a list");
        assert_eq!(page.metadata.continue_.as_deref(), Some("more"));
        let items: Vec<_> = page
            .items
            .iter()
            .map(|item| match item {
                Ok(machine) => Ok(machine.name()),
                Err(object) => Err((
                    object.namespace.as_str(),
                    object.cluster_name.as_deref(),
                    object.error.to_string(),
                )),
            })
            .collect();
        let wrong_version = "Machine d/m1: spec.version: found number 1.35, expected a string".to_owned();
        let wrong_cluster = "Machine e/m3: spec.clusterName: found integer 3, expected a string".to_owned();
        assert_eq!(
            items,
            [
                Err(("d", Some("c1"), wrong_version)),
                Ok("m2"),
                Err(("e", None, wrong_cluster))
            ]
        );
        let without_namespace = json!({"items": [{"metadata": {"name": "m1"}, "spec": 1}]});
        let error = decode_each::<Machine>(&without_namespace.to_string()).expect_err("no namespace");
        assert_eq!(error.to_string(), "m1: spec: found integer 1, expected an object");
    }

    #[test]
    fn an_empty_list_may_be_null_and_must_be_there() {
        let list = |page: Value| decode_list::<Machine>(&page.to_string());
        let none: List<Machine> =
            list(json!({"items": null, "metadata": {"continue": "more"}})).expect("a list");
        assert!(none.items.is_empty());
        assert_eq!(none.metadata.continue_.as_deref(), Some("more"));
        let one = list(json!({"items": [{"metadata": {"name": "m1"}}]})).expect("a list");
        let names: Vec<&str> = one.items.iter().map(Machine::name).collect();
        assert_eq!(names, ["m1"]);
        let error = list(json!({"kind": "Status", "metadata": {}})).expect_err("no list");
        assert_eq!(error.to_string(), "items: the field is missing");
    }
}
