//! Writes the response to a review: an `AdmissionReview` with only a `response`.
//! This does not use kube's types, which write a patch as an array of numbers instead of base64.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use kcp_rules::Action;
use serde::Serialize;

use crate::{
    decision::{Cause, Decision, Invalid, Refusal, Verdict},
    limits::{CAUSE_CHARS, CAUSES, WARNING_CHARS, WARNINGS_BYTES},
    review::{API_VERSION, KIND},
    shorten::shorten,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: AdmissionResponse<'a>,
}

/// k8s.io/api, `admission/v1/types.go`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// The JSON patch in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// k8s.io/apimachinery, `pkg/apis/meta/v1/types.go`.
#[derive(Serialize)]
struct Status<'a> {
    #[serde(rename = "status")]
    outcome: &'static str,
    code: u16,
    reason: &'static str,
    message: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details<'a>>,
}

#[derive(Serialize)]
struct Details<'a> {
    group: &'static str,
    kind: &'static str,
    name: &'a str,
    causes: Vec<StatusCause<'a>>,
}

#[derive(Serialize)]
struct StatusCause<'a> {
    reason: &'static str,
    message: Cow<'a, str>,
    field: &'a str,
}

/// The response to the review `uid`.
pub(crate) fn write(uid: &str, decision: &Decision) -> serde_json::Result<Vec<u8>> {
    let status = match &decision.verdict {
        Verdict::Allowed => None,
        Verdict::Invalid(invalid) => Some(invalid_status(invalid)),
        Verdict::Refused(refusal) => Some(refusal_status(refusal)),
    };
    let patch = if decision.patch.is_empty() {
        None
    } else {
        Some(STANDARD.encode(serde_json::to_vec(&decision.patch)?))
    };
    serde_json::to_vec(&AdmissionReview {
        api_version: API_VERSION,
        kind: KIND,
        response: AdmissionResponse {
            uid,
            allowed: status.is_none(),
            status,
            // Set the type only with a patch, because an API server rejects one without the other.
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch,
            audit_annotations: audit_annotations(decision),
            warnings: warnings(decision),
        },
    })
}

/// The same status that `NewInvalid` (k8s.io/apimachinery, `pkg/api/errors`) creates. kubectl prints the causes, not the
/// message.
fn invalid_status(invalid: &Invalid) -> Status<'_> {
    let Invalid {
        group,
        kind,
        name,
        causes,
    } = invalid;
    let mut causes: Vec<_> = causes.iter().map(StatusCause::from).collect();
    let beyond = causes.len().saturating_sub(CAUSES);
    if beyond > 0 {
        causes.truncate(CAUSES);
        causes.push(StatusCause {
            reason: "FieldValueInvalid",
            message: format!("{beyond} more problems; correct the ones above first").into(),
            field: "",
        });
    }
    let lines: Vec<String> = causes
        .iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    let all = match lines.as_slice() {
        [only] => only.clone(),
        lines => format!("[{}]", lines.join(", ")),
    };
    Status {
        outcome: "Failure",
        code: 422,
        reason: "Invalid",
        message: format!("{kind}.{group} {name:?} is invalid: {all}").into(),
        details: Some(Details {
            group,
            kind,
            name,
            causes,
        }),
    }
}

fn refusal_status(refusal: &Refusal) -> Status<'_> {
    Status {
        outcome: "Failure",
        code: refusal.kind.code(),
        reason: refusal.kind.reason(),
        message: Cow::Borrowed(&refusal.message),
        details: None,
    }
}

impl<'a> From<&'a Cause> for StatusCause<'a> {
    fn from(cause: &'a Cause) -> Self {
        Self {
            reason: cause.reason,
            message: shorten(&cause.message, CAUSE_CHARS, &tail(cause)),
            field: &cause.field,
        }
    }
}

/// The end of a cause's message, which is not removed when the message is shortened.
fn tail(cause: &Cause) -> String {
    format!(" ({})", cause.rule)
}

/// The ids of the rules that denied or warned or whose findings are only recorded, and of the rules that an annotation on the
/// object overrides. The API server writes them to its audit log, under the webhook's name.
fn audit_annotations(decision: &Decision) -> BTreeMap<&'static str, String> {
    let rules = |by: Action| {
        let ids: BTreeSet<&str> = decision
            .causes()
            .filter(|(_, action)| *action == by)
            .map(|(cause, _)| cause.rule)
            .collect();
        Vec::from_iter(ids).join(",")
    };
    let overridden: BTreeSet<&str> = decision.overridden().map(|(rule, _)| rule).collect();
    [
        ("overridden-by", Vec::from_iter(overridden).join(",")),
        ("denied-by", rules(Action::Deny)),
        ("warned-by", rules(Action::Warn)),
        ("audited-by", rules(Action::Audit)),
    ]
    .into_iter()
    .filter(|(_, rules)| !rules.is_empty())
    .collect()
}

/// The warnings that fit within the limit (about thirty): first the notes, then the findings of rules.
fn warnings(decision: &Decision) -> Vec<String> {
    let by_rules = decision.warned.iter().map(|cause| {
        let text = format!("{}: {}", cause.field, cause.message);
        one_line(&shorten(&text, WARNING_CHARS, &tail(cause)))
    });
    let notes = decision
        .notes
        .iter()
        .map(|note| one_line(&shorten(note, WARNING_CHARS, "")));
    let mut room = WARNINGS_BYTES;
    let mut omitted = 0_usize;
    let mut warnings: Vec<String> = notes
        .chain(by_rules)
        .filter(|warning| {
            // Leave room for the line with the number of omitted warnings.
            match room.checked_sub(warning.len()) {
                Some(rest) if omitted == 0 && rest >= WARNING_CHARS => {
                    room = rest;
                    true
                }
                _ => {
                    omitted += 1;
                    false
                }
            }
        })
        .collect();
    if omitted > 0 {
        warnings.push(format!(
            "{omitted} more warnings; run kubectl kcp lint -f FILE to see them"
        ));
    }
    warnings
}

/// Replaces control characters: the API server sends a warning as an HTTP header, and drops a warning that has one.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests;
