//! Decodes an `AdmissionReview`, borrowing from the body. The objects stay text: admission knows their types.

mod uid;

use kcp_rules::api::{Text, json};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{limits::QUOTED_CHARS, shorten::shorten};

/// The only version that we register for, and take.
pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";
/// The only kind.
pub(crate) const KIND: &str = "AdmissionReview";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    request: Option<Request<'a>>,
}

/// `request` of an `AdmissionReview`
/// (k8s.io/api, `admission/v1/types.go`), as far as we read it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request<'a> {
    /// To be echoed.
    #[serde(borrow)]
    pub(crate) uid: Text<'a>,
    /// In the version that the webhook is registered for, whatever version was written.
    pub(crate) resource: Resource<'a>,
    /// Empty for the object itself.
    #[serde(default)]
    pub(crate) sub_resource: Text<'a>,
    /// Empty on a creation whose name the server generates.
    #[serde(default)]
    pub(crate) name: Text<'a>,
    #[serde(default)]
    pub(crate) namespace: Text<'a>,
    pub(crate) operation: Operation,
    /// Who writes.
    #[serde(default)]
    pub(crate) user_info: UserInfo<'a>,
    /// How it is written.
    #[serde(default)]
    pub(crate) options: Option<WriteOptions<'a>>,
    /// As it would become.
    pub(crate) object: Option<&'a RawValue>,
    /// As it is.
    pub(crate) old_object: Option<&'a RawValue>,
    /// At most as many values the review has, and each object in it.
    #[serde(skip)]
    pub(crate) values: usize,
}

/// Who writes, as the API server authenticated them.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct UserInfo<'a> {
    #[serde(borrow)]
    pub(crate) username: Option<Text<'a>>,
}

/// `CreateOptions`, `UpdateOptions` and `PatchOptions`, as far as we read them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WriteOptions<'a> {
    #[serde(borrow)]
    pub(crate) field_manager: Option<Text<'a>>,
}

/// A group, a version and a resource.
#[derive(Debug, Deserialize)]
pub(crate) struct Resource<'a> {
    #[serde(borrow, default)]
    pub(crate) group: Text<'a>,
    pub(crate) version: Text<'a>,
    #[serde(rename = "resource")]
    pub(crate) plural: Text<'a>,
}

/// What is asked of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// A body that is no review of ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The review's uid, if at least that can be read.
    pub(crate) uid: Option<String>,
    /// What is wrong, in one sentence.
    pub(crate) sentence: String,
}

/// Decodes a review.
///
/// A body that does not decode is read a second time for its uid alone: an API server takes an answer only with the
/// uid that it sent.
pub(crate) fn read(body: &[u8]) -> Result<Request<'_>, Unreadable> {
    decode(body).map_err(|sentence| Unreadable {
        uid: uid::find(body),
        sentence,
    })
}

fn decode(body: &[u8]) -> Result<Request<'_>, String> {
    // UTF-8 is checked once for the whole body and not string by string.
    let text = std::str::from_utf8(body).map_err(|error| format!("the body is not UTF-8: {error}"))?;
    let (document, values): (Document<'_>, _) = match json::read(text) {
        Some(document) => (document.root, document.values),
        None => (by_serde_json(text)?, usize::MAX),
    };
    let given = (document.api_version.as_deref(), document.kind.as_deref());
    if given != (Some(API_VERSION), Some(KIND)) {
        let (version, kind) = (given.0.unwrap_or_default(), given.1.unwrap_or_default());
        return Err(format!(
            "this webhook takes {API_VERSION} {KIND} alone, and was sent {:?} {:?}",
            shorten(version, QUOTED_CHARS, ""),
            shorten(kind, QUOTED_CHARS, ""),
        ));
    }
    document
        .request
        .map(|request| Request { values, ..request })
        .ok_or_else(|| format!("the {KIND} has no request"))
}

fn by_serde_json(text: &str) -> Result<Document<'_>, String> {
    serde_json::from_str(text).map_err(|error| {
        let error = error.to_string();
        format!("the body is no {KIND}: {}", shorten(&error, QUOTED_CHARS, ""))
    })
}
