//! Decodes an `AdmissionReview`, borrowing from the body.
//!
//! The objects stay text, because only admission knows their types. Control planes are an exception. They are decoded together
//! with the review, because finding the end of their text first would take half as long again.

mod uid;
mod values;

use std::collections::BTreeMap;

use kcp_api::names::group;
use kcp_rules::api::{KubeadmControlPlane, Text};
use serde::Deserialize;
use serde_json::{Value, json as object, value::RawValue};

use crate::{
    cluster::ReadLimits,
    limits::{MAX_QUOTED_CHARS, MAX_UID, MAX_USER_INFO, MAX_VALUES, shorten},
};

pub(crate) use values::count_values;

/// The only review version that the webhook configurations list.
pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";
pub(crate) const KIND: &str = "AdmissionReview";

pub(crate) const CONTROL_PLANES: &str = "kubeadmcontrolplanes";

/// A review whose new object is decoded as `N`, and the stored one as `O`.
#[derive(Deserialize)]
#[serde(
    rename_all = "camelCase",
    bound(deserialize = "N: Deserialize<'de>, O: Deserialize<'de>")
)]
struct Document<'a, N, O> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    request: Option<Request<'a, N, O>>,
}

/// A decoded review.
#[derive(Debug)]
pub(crate) struct Review<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) objects: Objects<'a>,
    /// An upper bound of the number of values in the review, and so in each of its objects.
    pub(crate) values: usize,
    text: &'a str,
}

/// The objects of a review.
#[derive(Debug)]
pub(crate) enum Objects<'a> {
    /// A control plane that is created or updated, and the stored one.
    ControlPlane {
        new: Box<KubeadmControlPlane<'a>>,
        stored: Option<Box<KubeadmControlPlane<'a>>>,
    },
    Texts(ObjectTexts<'a>),
}

impl Default for Objects<'_> {
    fn default() -> Self {
        Self::Texts(ObjectTexts::default())
    }
}

/// The JSON text of a review's objects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ObjectTexts<'a> {
    /// The new object; `None` for a deletion.
    pub(crate) new: Option<&'a RawValue>,
    /// The stored object; `None` for a creation.
    pub(crate) stored: Option<&'a RawValue>,
}

/// The fields of an `AdmissionReview`'s `request` that this program reads (k8s.io/api, `admission/v1/types.go`). [`Review`] has
/// the objects.
#[derive(Debug, Deserialize)]
#[serde(
    rename_all = "camelCase",
    bound(deserialize = "N: Deserialize<'de>, O: Deserialize<'de>")
)]
pub(crate) struct Request<'a, N = (), O = ()> {
    /// The uid of the review, which the response must repeat.
    #[serde(borrow)]
    pub(crate) uid: Text<'a>,
    /// The resource in the API version that the webhook configurations list, which can differ from the version that the
    /// client wrote.
    pub(crate) resource: Resource<'a>,
    /// The subresource; empty for a write to the object itself.
    #[serde(default)]
    pub(crate) sub_resource: Text<'a>,
    /// The name of the object; empty if the API server generates the name of a new object.
    #[serde(default)]
    pub(crate) name: Text<'a>,
    #[serde(default)]
    pub(crate) namespace: Text<'a>,
    pub(crate) operation: Operation,
    #[serde(default)]
    pub(crate) user_info: UserInfo<'a>,
    dry_run: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) options: Option<WriteOptions<'a>>,
    object: Option<N>,
    old_object: Option<O>,
    #[serde(skip)]
    pub(crate) read_limits: ReadLimits,
}

impl<'a, N, O> Request<'a, N, O> {
    /// Separates the request from the new and the stored object.
    fn split(self) -> (Request<'a>, Option<N>, Option<O>) {
        let request = Request {
            uid: self.uid,
            resource: self.resource,
            sub_resource: self.sub_resource,
            name: self.name,
            namespace: self.namespace,
            operation: self.operation,
            user_info: self.user_info,
            dry_run: self.dry_run,
            options: self.options,
            object: None,
            old_object: None,
            read_limits: self.read_limits,
        };
        (request, self.object, self.old_object)
    }
}

impl Request<'_> {
    /// Whether the API server stores nothing, so that the review must have no side effects. Every value but `false` counts as a
    /// dry run, so that a value of a wrong type is safe and needs no error.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run.is_some_and(|value| value.get() != "false")
    }
}

/// The user who writes the object, as the API server authenticated them.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct UserInfo<'a> {
    #[serde(borrow)]
    pub(crate) username: Option<Text<'a>>,
    /// The user's groups: a list of names that is decoded only if it is needed.
    pub(crate) groups: Option<&'a RawValue>,
    uid: Option<&'a RawValue>,
    extra: Option<&'a RawValue>,
}

impl UserInfo<'_> {
    pub(crate) fn name(&self) -> &str {
        self.username.as_deref().unwrap_or_default()
    }

    /// The names of the user's groups; empty if the review does not have a list of names.
    pub(crate) fn groups(&self) -> Vec<Text<'_>> {
        decoded(self.groups).unwrap_or_default()
    }

    /// The fields that identify the user in a `SubjectAccessReview`. A field of the wrong type is absent.
    pub(crate) fn as_subject(&self) -> Value {
        let groups = self.groups();
        let uid: Option<&str> = decoded(self.uid);
        let extra: Option<BTreeMap<String, Option<Vec<String>>>> = decoded(self.extra);
        object!({
            "user": self.name(), "groups": groups.iter().map(|group| &**group).collect::<Vec<&str>>(),
            "uid": uid, "extra": extra
        })
    }
}

fn decoded<'a, T: Deserialize<'a>>(field: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(field?.get()).ok()
}

/// The fields of `CreateOptions`, `UpdateOptions` and `PatchOptions` that this program reads.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WriteOptions<'a> {
    #[serde(borrow)]
    pub(crate) field_manager: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Resource<'a> {
    #[serde(borrow, default)]
    pub(crate) group: Text<'a>,
    pub(crate) version: Text<'a>,
    #[serde(rename = "resource")]
    pub(crate) plural: Text<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// A body that is not a review, or a review of a version that this webhook does not support.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidReview {
    /// The review's uid; `None` if it cannot be read.
    pub(crate) uid: Option<String>,
    /// What is wrong with the body, in one sentence.
    pub(crate) sentence: String,
}

/// Decodes a review. `values` is an upper bound of the number of its values.
///
/// If decoding fails, the body is read again only for its uid: an API server accepts a response only with the uid
/// that it sent.
pub(crate) fn decode_review(body: &[u8], values: usize) -> Result<Review<'_>, InvalidReview> {
    decode(body, values)
        .and_then(bounded)
        .map_err(|sentence| InvalidReview {
            uid: uid::find(body).filter(|uid| uid.len() <= MAX_UID),
            sentence,
        })
}

/// Refuses a review whose uid is long, or whose user has large groups and extra fields: what is decoded from them takes many
/// times the size of their text.
fn bounded(review: Review<'_>) -> Result<Review<'_>, String> {
    let Request { uid, user_info, .. } = &review.request;
    let fields = [user_info.groups, user_info.extra].into_iter().flatten();
    let user: usize = fields.map(|field| field.get().len()).sum();
    for (parts_have, bytes, limit) in [
        ("the user's groups and extra fields have", user, MAX_USER_INFO),
        ("the uid has", uid.len(), MAX_UID),
    ] {
        if bytes > limit {
            return Err(format!(
                "{parts_have} {bytes} bytes, and at most {limit} are accepted"
            ));
        }
    }
    Ok(review)
}

fn decode(body: &[u8], values: usize) -> Result<Review<'_>, String> {
    // Check UTF-8 once for the whole body, instead of for each string.
    let text = std::str::from_utf8(body).map_err(|error| format!("the body is not UTF-8: {error}"))?;
    // The API server writes the resource before the objects, so the name is found early.
    if values <= MAX_VALUES
        && text.contains(CONTROL_PLANES)
        && let Some(review) = control_plane_review(text, values)
    {
        return Ok(review);
    }
    let (request, new, stored) = request::<&RawValue, &RawValue>(text)?.split();
    let review = Review {
        request,
        objects: Objects::Texts(ObjectTexts { new, stored }),
        values,
        text,
    };
    Ok(review.named_by_its_object())
}

/// Decodes a review together with its control planes. `None` if the objects must be decoded separately: to find the field with
/// the wrong type, or because they are not control planes.
fn control_plane_review(text: &str, values: usize) -> Option<Review<'_>> {
    type Stored<'a> = KubeadmControlPlane<'a, &'a RawValue>;
    let (request, new, stored) = request::<Box<KubeadmControlPlane<'_>>, Stored<'_>>(text)
        .ok()?
        .split();
    let Resource { group, plural, .. } = &request.resource;
    let is_write = matches!(
        (request.operation, &stored),
        (Operation::Create, None) | (Operation::Update, Some(_))
    );
    if (&**group, &**plural, &*request.sub_resource) != (group::CONTROL_PLANE, CONTROL_PLANES, "")
        || !is_write
    {
        return None;
    }
    let new = new?;
    let stored = stored.map(|stored| stored.decode_config(&new)).transpose().ok()?;
    Some(Review {
        request,
        objects: Objects::ControlPlane {
            new,
            stored: stored.map(Box::new),
        },
        values,
        text,
    })
}

fn request<'a, N: Deserialize<'a>, O: Deserialize<'a>>(text: &'a str) -> Result<Request<'a, N, O>, String> {
    let document: Document<'_, N, O> = serde_json::from_str(text).map_err(|error| {
        let error = error.to_string();
        format!(
            "the body is not an {KIND}: {}",
            shorten(&error, MAX_QUOTED_CHARS, "")
        )
    })?;
    let given = (document.api_version.as_deref(), document.kind.as_deref());
    if given != (Some(API_VERSION), Some(KIND)) {
        let (version, kind) = (given.0.unwrap_or_default(), given.1.unwrap_or_default());
        return Err(format!(
            "expected apiVersion {API_VERSION} and kind {KIND}, found {:?} and {:?}",
            shorten(version, MAX_QUOTED_CHARS, ""),
            shorten(kind, MAX_QUOTED_CHARS, ""),
        ));
    }
    document
        .request
        .ok_or_else(|| format!("the {KIND} has no request"))
}

/// The part of an object's metadata that identifies the object and its version.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Identity<'a> {
    #[serde(borrow)]
    pub(crate) name: Option<Text<'a>>,
    pub(crate) uid: Option<Text<'a>>,
    pub(crate) resource_version: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Identified<'a> {
    #[serde(borrow, default)]
    metadata: Identity<'a>,
}

impl<'a> Review<'a> {
    /// The identities of the new and the stored object. Reads the review again, because only denials need them.
    pub(crate) fn identities(&self) -> [Option<Identity<'a>>; 2] {
        let Ok(request) = request::<Identified<'_>, Identified<'_>>(self.text) else {
            return [None, None];
        };
        [request.object, request.old_object].map(|object| object.map(|object| object.metadata))
    }

    /// Takes the name from the object if an object of a collection is deleted: the API server then leaves the review's name
    /// empty (k8s.io/apiserver, `pkg/registry/rest/delete.go`).
    fn named_by_its_object(mut self) -> Self {
        if let (Operation::Delete, "") = (self.request.operation, &*self.request.name)
            && let [_, Some(Identity { name: Some(name), .. })] = self.identities()
        {
            self.request.name = name;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use kcp_rules::testing::case::{Base, V1BETA2};
    use serde_json::{Value, json};

    use super::*;
    use crate::testing;

    #[test]
    fn the_subject_has_only_fields_of_the_right_type() {
        for (user, expected) in [
            (
                json!({"username": "a", "groups": ["b\\c"], "uid": "d", "extra": {"e": ["f"], "g": null}}),
                json!({"user": "a", "groups": ["b\\c"], "uid": "d", "extra": {"e": ["f"], "g": null}}),
            ),
            (
                json!({"groups": {}, "uid": 7, "extra": {"e": [[0]]}}),
                json!({"user": "", "groups": [], "uid": null, "extra": null}),
            ),
        ] {
            let text = user.to_string();
            let user: UserInfo<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(user.as_subject(), expected);
        }
    }

    #[test]
    fn uid_and_user_are_bounded() {
        let mut large = testing::control_plane();
        large["metadata"]["annotations"] = json!({"a": "x".repeat(2 * MAX_USER_INFO)});
        let review = testing::review("CREATE", &large, &Value::Null);
        assert!(decode_text(&review.to_string()).is_ok());
        for (field, value) in [
            ("uid", json!("x".repeat(MAX_UID + 1))),
            (
                "userInfo",
                json!({"extra": {"a": vec![json!([0]); MAX_USER_INFO / 4]}}),
            ),
            ("userInfo", json!({"groups": vec!["a"; MAX_USER_INFO / 4]})),
        ] {
            let mut review = testing::review("CREATE", &testing::control_plane(), &Value::Null);
            review["request"][field] = value;
            let invalid = decode_text(&review.to_string()).unwrap_err();
            let is_limit = invalid.sentence.ends_with(" are accepted");
            assert!(
                is_limit && invalid.uid.is_none_or(|uid| uid.len() <= MAX_UID),
                "{field}"
            );
        }
    }

    fn decode_text(text: &str) -> Result<Review<'_>, InvalidReview> {
        decode_review(text.as_bytes(), count_values(text.as_bytes()))
    }

    #[test]
    fn only_written_control_planes_are_decoded_with_the_review() {
        let written = testing::control_plane();
        let wrong = json!({"apiVersion": "a/v1", "metadata": {}, "spec": {"replicas": "three"}});
        let mut large = written.clone();
        large["spec"]["kubeadmConfigSpec"]["files"] = json!(vec![json!({}); MAX_VALUES]);
        let mut template = Base::Template(V1BETA2).object();
        template["metadata"]["annotations"] = json!({"a": CONTROL_PLANES});
        let templates = json!({"group": group::CONTROL_PLANE, "version": "v1beta2", "resource": "kubeadmcontrolplanetemplates"});
        let none = Value::Null;
        for (operation, new, stored, field, value, is_decoded) in [
            ("CREATE", &written, &none, "name", json!("a"), true),
            ("UPDATE", &written, &written, "name", json!("a"), true),
            ("UPDATE", &written, &wrong, "name", json!("a"), false),
            ("UPDATE", &wrong, &written, "name", json!("a"), false),
            ("UPDATE", &written, &none, "name", json!("a"), false),
            ("UPDATE", &written, &large, "name", json!("a"), false),
            (
                "UPDATE",
                &written,
                &written,
                "subResource",
                json!("status"),
                false,
            ),
            ("DELETE", &none, &written, "name", json!("a"), false),
            ("CREATE", &template, &none, "resource", templates, false),
            (
                "UPDATE",
                &written,
                &written,
                "resource",
                json!({"group": "g", "version": "v1", "resource": CONTROL_PLANES}),
                false,
            ),
        ] {
            let mut review = testing::review(operation, new, stored);
            review["request"][field] = value;
            let text = review.to_string();
            let Review { objects, .. } = testing::decoded(&text);
            let found = match objects {
                Objects::ControlPlane { stored: old, .. } => {
                    assert_eq!(old.is_some(), stored != &none, "{operation} {field}");
                    true
                }
                Objects::Texts(texts) => {
                    let are_given = [texts.new, texts.stored].map(|text| text.is_some());
                    assert_eq!(
                        are_given,
                        [new, stored].map(|object| object != &none),
                        "{operation} {field}"
                    );
                    false
                }
            };
            assert_eq!(found, is_decoded, "{operation} {field}");
        }
    }

    #[test]
    fn a_deleted_object_of_a_collection_has_its_own_name() {
        let object = testing::control_plane();
        for (operation, given, expected) in [
            ("DELETE", "", object["metadata"]["name"].as_str().unwrap()),
            ("DELETE", "given", "given"),
            ("CREATE", "", ""),
        ] {
            let (new, old) = if operation == "DELETE" {
                (&Value::Null, &object)
            } else {
                (&object, &Value::Null)
            };
            let mut review = testing::review(operation, new, old);
            review["request"]["name"] = json!(given);
            let text = review.to_string();
            assert_eq!(
                &*testing::decoded(&text).request.name,
                expected,
                "{operation} {given}"
            );
        }
    }
}
