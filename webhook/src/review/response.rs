//! Writes the response to a review: an `AdmissionReview` with only a `response`.
//!
//! This module does not use kube's types, which write a patch as an array of numbers instead of base64.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use kcp_rules::Action;
use serde::Serialize;

use super::decode::{API_VERSION, KIND};
use crate::{
    decision::{Cause, Decision, Invalid, Refusal, ReviewResult},
    limits::{MAX_CAUSE_CHARS, MAX_CAUSES, MAX_WARNING_CHARS, MAX_WARNINGS_BYTES, shorten},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: AdmissionResponse<'a>,
}

/// The `response` of an `AdmissionReview` (k8s.io/api, `admission/v1/types.go`).
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

/// A Kubernetes `Status` (k8s.io/apimachinery, `pkg/apis/meta/v1/types.go`).
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
    field: Cow<'a, str>,
}

/// Writes the response to the review with this uid.
pub(crate) fn write(uid: &str, decision: &Decision) -> serde_json::Result<Vec<u8>> {
    let status = match &decision.verdict {
        ReviewResult::Allowed => None,
        ReviewResult::Invalid(invalid) => Some(invalid_status(invalid)),
        ReviewResult::Refused(refusal) => Some(refusal_status(refusal)),
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

/// Returns the same `Status` as `NewInvalid` (k8s.io/apimachinery, `pkg/api/errors`). kubectl prints its causes, not
/// its message.
fn invalid_status(invalid: &Invalid) -> Status<'_> {
    let Invalid {
        group,
        kind,
        name,
        causes,
    } = invalid;
    let mut causes: Vec<_> = causes.iter().map(StatusCause::from).collect();
    let excess = causes.len().saturating_sub(MAX_CAUSES);
    if excess > 0 {
        causes.truncate(MAX_CAUSES);
        causes.push(StatusCause {
            reason: "FieldValueInvalid",
            message: format!(
                "number of problems that are not listed: {excess}; correct the listed problems \
                first"
            )
            .into(),
            field: Cow::Borrowed(""),
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
            message: shorten(&cause.message, MAX_CAUSE_CHARS, &rule_suffix(cause)),
            // A field can contain a key of the object.
            field: shorten(&cause.field, MAX_CAUSE_CHARS, ""),
        }
    }
}

/// The rule id at the end of a cause's message. A shortened message keeps it.
fn rule_suffix(cause: &Cause) -> String {
    format!(" ({})", cause.rule)
}

/// Returns the audit annotations. Each of them lists the ids of rules: the rules that denied, that warned, that only recorded a
/// finding, or that an annotation on the object overrides. The API server writes them to its audit log, under the webhook's name.
fn audit_annotations(decision: &Decision) -> BTreeMap<&'static str, String> {
    let rules = |wanted: Action| {
        let ids: BTreeSet<&str> = decision
            .causes()
            .filter(|(_, action)| *action == wanted)
            .map(|(cause, _)| cause.rule)
            .collect();
        Vec::from_iter(ids).join(",")
    };
    let overridden: BTreeSet<&str> = decision.overridden_rules().map(|(rule, _)| rule).collect();
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

/// The warnings that fit within the limit (about thirty): first those that do not come from a rule, then the findings
/// of rules.
fn warnings(decision: &Decision) -> Vec<String> {
    let by_rules = decision.warning_causes.iter().map(|cause| {
        let field = shorten(&cause.field, MAX_WARNING_CHARS, "");
        let text = format!("{field}: {}", cause.message);
        one_line(&shorten(&text, MAX_WARNING_CHARS, &rule_suffix(cause)))
    });
    let notes = decision
        .other_warnings
        .iter()
        .map(|note| one_line(&shorten(note, MAX_WARNING_CHARS, "")));
    let mut room = MAX_WARNINGS_BYTES;
    let mut omitted = 0_usize;
    let mut warnings: Vec<String> = notes
        .chain(by_rules)
        .filter(|warning| {
            // Leave room for the line with the number of omitted warnings.
            match room.checked_sub(warning.len()) {
                Some(rest) if omitted == 0 && rest >= MAX_WARNING_CHARS => {
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
            "{omitted} more warnings are not listed; to see them, run: kubectl kcp lint -f FILE"
        ));
    }
    warnings
}

/// Replaces control characters in a warning. The API server sends a warning as an HTTP header, and drops one with a
/// control character.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests;
