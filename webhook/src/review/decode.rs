//! Decodes an `AdmissionReview`, borrowing from the body. Its objects stay text, because only admission knows their types.

mod uid;
mod values;

use std::collections::BTreeMap;

use kcp_rules::api::Text;
use serde::Deserialize;
use serde_json::{Value, json as object, value::RawValue};

use crate::{
    cluster::ReadLimits,
    limits::{MAX_ENVELOPE, MAX_QUOTED_CHARS, MAX_UID, shorten},
};

pub(crate) use values::count_values;

/// The only review version that the webhook configurations list.
pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";
pub(crate) const KIND: &str = "AdmissionReview";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    request: Option<Request<'a>>,
}

/// The fields of an `AdmissionReview`'s `request` that this program reads (k8s.io/api, `admission/v1/types.go`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request<'a> {
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
    pub(crate) object: Option<&'a RawValue>,
    /// The stored object; `None` for a creation.
    pub(crate) old_object: Option<&'a RawValue>,
    /// An upper bound of the number of values in the review, and so in each of its objects.
    #[serde(skip)]
    pub(crate) values: usize,
    #[serde(skip)]
    pub(crate) read_limits: ReadLimits,
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
    let document: Document<'_> = serde_json::from_str(text).map_err(|error| {
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
    let values = count_values(text);
    document
        .request
        .map(|request| Request { values, ..request })
        .ok_or_else(|| format!("the {KIND} has no request"))
}

#[cfg(test)]
mod tests {
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
}
