//! Decodes an `AdmissionReview`, borrowing from the body. The objects in it stay text, because only admission knows their
//! types.

mod uid;

use kcp_rules::api::{Text, json};
use serde::Deserialize;
use serde_json::{Value, json as object, value::RawValue};

use crate::{limits::MAX_QUOTED_CHARS, shorten::shorten};

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
    pub(crate) fn groups(&self) -> Vec<String> {
        let groups = self.groups.map(|groups| serde_json::from_str(groups.get()));
        groups.and_then(Result::ok).unwrap_or_default()
    }

    /// The fields that identify the user in a `SubjectAccessReview`.
    pub(crate) fn as_subject(&self) -> Value {
        let given = |field: Option<&RawValue>| field.and_then(|field| serde_json::from_str(field.get()).ok());
        let mut subject = object!({"user": self.name(), "groups": self.groups()});
        for (name, field) in [("uid", self.uid), ("extra", self.extra)] {
            if let (Some(object), Some(value)) = (subject.as_object_mut(), given(field)) {
                object.insert(name.to_owned(), value);
            }
        }
        subject
    }
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
    decode(body).map_err(|sentence| InvalidReview {
        uid: uid::find(body),
        sentence,
    })
}

fn decode(body: &[u8]) -> Result<Request<'_>, String> {
    // Check UTF-8 once for the whole body, instead of for each string.
    let text = std::str::from_utf8(body).map_err(|error| format!("the body is not UTF-8: {error}"))?;
    let (document, values): (Document<'_>, _) = match json::read(text) {
        Some(document) => (document.root, document.value_count),
        None => (decode_with_serde_json(text)?, usize::MAX),
    };
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
        .map(|request| Request { values, ..request })
        .ok_or_else(|| format!("the {KIND} has no request"))
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
