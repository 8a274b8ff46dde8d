//! Decodes an `AdmissionReview`, borrowing from the body. Control planes are decoded in the same pass. Other objects stay
//! text, because only admission knows their types.

mod uid;

use std::collections::BTreeMap;

use kcp_rules::api::{KubeadmControlPlane, Text, WithText, json};
use memchr::memmem;
use serde::Deserialize;
use serde_json::{Value, json as object, value::RawValue};

use crate::{
    cluster::ReadLimits,
    limits::{MAX_ENVELOPE, MAX_QUOTED_CHARS, MAX_UID, MAX_VALUES},
    shorten::shorten,
};

/// The only review version that the webhook configurations list.
pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";
pub(crate) const KIND: &str = "AdmissionReview";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a, New = &'a RawValue, Old = &'a RawValue> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    request: Option<Request<'a, New, Old>>,
}

/// The control planes in a review, whose old object is decoded only beside the new one.
type NewControlPlane<'a> = WithText<'a, Box<KubeadmControlPlane<'a>>>;
type OldControlPlane<'a> = WithText<'a, Box<KubeadmControlPlane<'a, &'a RawValue>>>;

/// The fields of an `AdmissionReview`'s `request` that this program reads (k8s.io/api, `admission/v1/types.go`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request<'a, New = &'a RawValue, Old = &'a RawValue> {
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
    /// The new object; `None` for a deletion.
    pub(crate) object: Option<New>,
    /// The stored object; `None` for a creation.
    pub(crate) old_object: Option<Old>,
    /// An upper bound of the number of values in the review, and so in each of its objects.
    #[serde(skip)]
    pub(crate) values: usize,
    #[serde(skip)]
    pub(crate) read_limits: ReadLimits,
    /// The decoded objects, if the API server creates or updates a control plane; `None` if they are only text.
    #[serde(skip)]
    pub(crate) control_planes: Option<ControlPlanes<'a>>,
}

/// The new control plane, and the stored one of an update.
#[derive(Debug)]
pub(crate) struct ControlPlanes<'a> {
    pub(crate) new: Box<KubeadmControlPlane<'a>>,
    pub(crate) old: Option<Box<KubeadmControlPlane<'a>>>,
}

impl Request<'_> {
    /// Whether the API server stores nothing, so that the review must have no side effects. Any value but `false` counts, so
    /// that a wrong type causes none, and needs no error.
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

/// A body that is not a review, or not one of a version that this webhook supports.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidReview {
    /// The review's uid; `None` if it cannot be read.
    pub(crate) uid: Option<String>,
    /// What is wrong with the body, in one sentence.
    pub(crate) sentence: String,
}

/// Decodes a review.
///
/// If decoding fails, the body is read again only for its uid: an API server accepts a response only with the uid
/// that it sent.
pub(crate) fn decode_review(body: &[u8]) -> Result<Request<'_>, InvalidReview> {
    let decoded = decode(body).and_then(|request| bounded(body, request));
    decoded
        .map(named_by_its_object)
        .map_err(|sentence| InvalidReview {
            uid: uid::find(body).filter(|uid| uid.len() <= MAX_UID),
            sentence,
        })
}

/// Refuses a review whose text beside its two objects is large: what is decoded from it takes many times its size.
fn bounded<'a>(body: &[u8], request: Request<'a>) -> Result<Request<'a>, String> {
    let objects = [request.object, request.old_object].into_iter().flatten();
    let objects: usize = objects.map(|object| object.get().len()).sum();
    let envelope = body.len().saturating_sub(objects);
    if envelope > MAX_ENVELOPE {
        return Err(format!(
            "the review has {envelope} bytes beside its objects, and at most {MAX_ENVELOPE} are accepted"
        ));
    }
    if request.uid.len() > MAX_UID {
        return Err(format!(
            "the uid has {} bytes, and at most {MAX_UID} are accepted",
            request.uid.len()
        ));
    }
    Ok(request)
}

/// Takes the name from the object if an object of a collection is deleted: the API server then leaves the review's name empty
/// (k8s.io/apiserver, `pkg/registry/rest/delete.go`).
fn named_by_its_object(mut request: Request<'_>) -> Request<'_> {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        metadata: Name<'a>,
    }
    #[derive(Deserialize)]
    struct Name<'a> {
        #[serde(borrow)]
        name: Text<'a>,
    }
    if let (Operation::Delete, "", Some(object)) = (request.operation, &*request.name, request.old_object)
        && let Ok(named) = serde_json::from_str::<Named<'_>>(object.get())
    {
        request.name = named.metadata.name;
    }
    request
}

fn decode(body: &[u8]) -> Result<Request<'_>, String> {
    // Check UTF-8 once for the whole body, instead of for each string.
    let text = std::str::from_utf8(body).map_err(|error| format!("the body is not UTF-8: {error}"))?;
    if let Some(request) = decode_with_control_planes(text) {
        return Ok(request);
    }
    let (document, values): (Document<'_>, _) = match json::read(text) {
        Some(document) => (document.root, document.value_count),
        None => (decode_with_serde_json(text)?, usize::MAX),
    };
    if !document.is_review() {
        let given = (document.api_version.as_deref(), document.kind.as_deref());
        let (version, kind) = (given.0.unwrap_or_default(), given.1.unwrap_or_default());
        return Err(format!(
            "expected apiVersion {API_VERSION} and kind {KIND}, found {:?} and {:?}",
            shorten(version, MAX_QUOTED_CHARS, ""),
            shorten(kind, MAX_QUOTED_CHARS, ""),
        ));
    }
    document
        .request
        .map(|request| Request { values, ..request })
        .ok_or_else(|| format!("the {KIND} has no request"))
}

/// Decodes a review and the control planes in it in one pass. Returns `None` for any other review, and for one that cannot be
/// decoded or that is too large; [`decode`] then keeps the objects as text.
fn decode_with_control_planes(text: &str) -> Option<Request<'_>> {
    /// The API server writes `request.kind` before the object.
    const REQUEST_KIND: &[u8] = br#""kind":"KubeadmControlPlane""#;
    /// The `uid` and the largest group and version fit into this many bytes.
    const MAX_BEFORE_KIND: usize = 512;

    let start = text.as_bytes();
    memmem::find(start.get(..MAX_BEFORE_KIND).unwrap_or(start), REQUEST_KIND)?;
    let document: json::Document<Document<'_, NewControlPlane<'_>, OldControlPlane<'_>>> =
        json::read_bounded(text, MAX_VALUES)?;
    if !document.root.is_review() {
        return None;
    }
    document.root.request?.with_control_planes(document.value_count)
}

impl<New, Old> Document<'_, New, Old> {
    fn is_review(&self) -> bool {
        (self.api_version.as_deref(), self.kind.as_deref()) == (Some(API_VERSION), Some(KIND))
    }
}

impl<'a> Request<'a, NewControlPlane<'a>, OldControlPlane<'a>> {
    /// The request with its objects as text, and decoded. `None` if the old object cannot be decoded.
    fn with_control_planes(self, values: usize) -> Option<Request<'a>> {
        let object = self.object.as_ref().map(|new| new.text);
        let old_object = self.old_object.as_ref().map(|old| old.text);
        // A write to a subresource reads no decoded control plane.
        let control_planes = match (self.operation, &*self.sub_resource, self.object, self.old_object) {
            (Operation::Create, "", Some(new), _) => Some(ControlPlanes {
                new: new.value,
                old: None,
            }),
            (Operation::Update, "", Some(new), Some(old)) => Some(ControlPlanes {
                old: Some(Box::new(old.value.decode_config(&new.value).ok()?)),
                new: new.value,
            }),
            _ => None,
        };
        Some(Request {
            uid: self.uid,
            resource: self.resource,
            sub_resource: self.sub_resource,
            name: self.name,
            namespace: self.namespace,
            operation: self.operation,
            user_info: self.user_info,
            dry_run: self.dry_run,
            options: self.options,
            object,
            old_object,
            values,
            read_limits: self.read_limits,
            control_planes,
        })
    }
}

fn decode_with_serde_json(text: &str) -> Result<Document<'_>, String> {
    serde_json::from_str(text).map_err(|error| {
        let error = error.to_string();
        format!(
            "the body is not an {KIND}: {}",
            shorten(&error, MAX_QUOTED_CHARS, "")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing;

    /// Decodes a review, and returns whether its control planes are decoded.
    fn has_control_planes(review: &Value) -> bool {
        let text = review.to_string();
        let request = decode_review(text.as_bytes()).unwrap();
        // The objects stay available as text.
        for (object, field) in [(request.object, "object"), (request.old_object, "oldObject")] {
            let expected = &review["request"][field];
            let expected = (!expected.is_null()).then(|| expected.to_string());
            assert_eq!(object.map(RawValue::get), expected.as_deref(), "{field}");
        }
        request.control_planes.is_some()
    }

    #[test]
    fn control_planes_are_decoded_with_the_review() {
        let (object, null) = (testing::control_plane(), Value::Null);
        let mut wrong = object.clone();
        wrong["spec"]["kubeadmConfigSpec"]["files"] = json!(3);
        for (operation, new, old, decoded) in [
            ("CREATE", &object, &null, true),
            ("CREATE", &wrong, &null, false),
            ("CREATE", &null, &null, false),
            ("UPDATE", &object, &object, true),
            ("UPDATE", &object, &wrong, false),
            ("UPDATE", &wrong, &object, false),
            ("UPDATE", &object, &null, false),
            ("DELETE", &null, &object, false),
        ] {
            let review = testing::review(operation, new, old);
            assert_eq!(has_control_planes(&review), decoded, "{operation}: {review}");
        }
        assert!(!has_control_planes(&testing::scale_review(3)));
        let mut status = testing::review("UPDATE", &object, &object);
        status["request"]["subResource"] = json!("status");
        assert!(!has_control_planes(&status));
    }

    #[test]
    fn the_old_control_plane_has_its_own_configuration() {
        let new = testing::control_plane();
        let mut old = new.clone();
        old["spec"]["kubeadmConfigSpec"]["files"] = json!([{"path": "/old", "content": ""}]);
        let text = testing::review("UPDATE", &new, &old).to_string();
        let control_planes = decode_review(text.as_bytes()).unwrap().control_planes.unwrap();
        let (new, old) = (new.to_string(), old.to_string());
        let decode = |text| kcp_rules::api::decode::<KubeadmControlPlane<'_>>(text).unwrap();
        // Compare the Debug text, because `==` ignores differences such as default values.
        assert_eq!(format!("{:?}", control_planes.new), format!("{:?}", decode(&new)));
        assert_eq!(
            format!("{:?}", control_planes.old.unwrap()),
            format!("{:?}", decode(&old))
        );
    }

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
    fn what_surrounds_the_objects_is_bounded() {
        let mut large = testing::control_plane();
        large["metadata"]["annotations"] = json!({"a": "x".repeat(2 * MAX_ENVELOPE)});
        let review = testing::review("CREATE", &large, &Value::Null);
        assert!(decode_review(review.to_string().as_bytes()).is_ok());
        for (field, value) in [
            ("uid", json!("x".repeat(MAX_UID + 1))),
            (
                "userInfo",
                json!({"extra": {"a": vec![json!([0]); MAX_ENVELOPE / 4]}}),
            ),
            ("userInfo", json!({"groups": vec!["a"; MAX_ENVELOPE / 4]})),
            ("requestKind", json!({"kind": "x".repeat(MAX_ENVELOPE)})),
        ] {
            let mut review = testing::review("CREATE", &testing::control_plane(), &Value::Null);
            review["request"][field] = value;
            let invalid = decode_review(review.to_string().as_bytes()).unwrap_err();
            let is_limit = invalid.sentence.ends_with(" are accepted");
            assert!(
                is_limit && invalid.uid.is_none_or(|uid| uid.len() <= MAX_UID),
                "{field}"
            );
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
                &*decode_review(text.as_bytes()).unwrap().name,
                expected,
                "{operation} {given}"
            );
        }
    }

    #[test]
    fn control_planes_with_too_many_values_stay_text() {
        let mut object = testing::control_plane();
        object["spec"]["kubeadmConfigSpec"]["files"] = vec![json!({}); MAX_VALUES / 2 + 1].into();
        assert!(!has_control_planes(&testing::review(
            "CREATE",
            &object,
            &Value::Null
        )));
    }
}
