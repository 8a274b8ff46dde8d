//! The decision on one review, before it is written as an `AdmissionReview`.

use std::borrow::Cow;

use kcp_api::Kind;
use kcp_rules::{
    Action, DowngradeReason, Finding, Judgement,
    api::DecodeError,
    defaulting::{Defaulted, PatchOperation},
};

/// The rule id of a denial that comes from no rule: a field of the object does not have the type that its kind
/// requires.
pub(crate) const UNDECODABLE: &str = "object-undecodable";

#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) verdict: ReviewResult,
    /// Findings that only warn. The findings of rules that normally deny come first.
    pub(crate) warning_causes: Vec<Cause>,
    /// Findings that are only recorded in the audit log.
    pub(crate) audit_causes: Vec<Cause>,
    /// Warnings that do not come from a rule, such as warnings about objects that could not be read.
    pub(crate) other_warnings: Vec<String>,
    /// The ids of the rules that were skipped, because objects could not be read.
    pub(crate) skipped_rules: Vec<&'static str>,
    /// Whether a user writes as Cluster API's topology controller, but is not one of the trusted users.
    pub(crate) is_controller_untrusted: bool,
    /// Whether the write is the manager's test whether the API server reaches this webhook.
    pub(crate) is_canary: bool,
    /// The patch of the object; empty unless the mutating webhook allows the write.
    pub(crate) patch: Vec<PatchOperation>,
}

#[derive(Debug, Default)]
pub(crate) enum ReviewResult {
    #[default]
    Allowed,
    /// Rules deny the write: the object must change.
    Invalid(Invalid),
    /// The webhook cannot review the write.
    Refused(Refusal),
}

/// A denial in the form of Kubernetes' own validation: 422 `Invalid`, with causes.
#[derive(Debug)]
pub(crate) struct Invalid {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) causes: Vec<Cause>,
}

/// One problem that a denial, a warning or the audit log reports.
#[derive(Debug)]
pub(crate) struct Cause {
    /// The rule's id, which also ends the message.
    pub(crate) rule: &'static str,
    /// Kubernetes' name for the cause's type, such as `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    pub(crate) field: Cow<'static, str>,
    pub(crate) message: String,
    /// Why the denial is overridden; `None` if it is not.
    pub(crate) overridden: Option<DowngradeReason>,
}

/// Why the webhook cannot review a write.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// The webhook does not handle this review: the webhook configuration is wrong, or the client is not an
    /// API server.
    BadRequest,
    /// The object under review does not exist.
    NotFound,
    /// The object has more values than the webhook checks.
    TooLarge,
    /// The API server does not return the objects that the review needs.
    ServiceUnavailable,
}

impl RefusalKind {
    pub(crate) const fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::NotFound => 404,
            Self::TooLarge => 413,
            Self::ServiceUnavailable => 503,
        }
    }

    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::NotFound => "NotFound",
            Self::TooLarge => "RequestEntityTooLarge",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }
}

impl Decision {
    /// Allows the write, without warnings.
    pub(crate) fn allowed() -> Self {
        Self::default()
    }

    /// Allows the write, and sets defaults.
    pub(crate) fn defaulted(defaulted: Defaulted) -> Self {
        Self {
            patch: defaulted.operations,
            other_warnings: defaulted.corrections.iter().map(ToString::to_string).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn refused(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            verdict: ReviewResult::Refused(Refusal {
                kind,
                message: message.into(),
            }),
            ..Self::default()
        }
    }

    /// Refuses a review that lacks a field of its request.
    pub(crate) fn missing_field(field: &str) -> Self {
        Self::refused(
            RefusalKind::BadRequest,
            format!("the review has no request.{field}"),
        )
    }

    /// Denies the write if a rule denies it, and allows it otherwise.
    pub(crate) fn from_judgement(kind: Kind, name: impl FnOnce() -> String, judgement: Judgement) -> Self {
        let select = |action| {
            judgement
                .findings
                .iter()
                .filter(move |finding| finding.action == action)
                .map(Cause::from)
                .collect::<Vec<_>>()
        };
        let causes = select(Action::Deny);
        let softened = |finding: &&Finding| finding.downgrade_reason.is_some();
        let warnings = || {
            judgement
                .findings
                .iter()
                .filter(|finding| finding.action == Action::Warn)
        };
        let warned = warnings()
            .filter(softened)
            .chain(warnings().filter(|finding| !softened(finding)));
        Self {
            verdict: if causes.is_empty() {
                ReviewResult::Allowed
            } else {
                ReviewResult::Invalid(Invalid {
                    group: kind.group,
                    kind: kind.kind,
                    name: name(),
                    causes,
                })
            },
            warning_causes: warned
                .map(|finding| Cause {
                    overridden: finding.overridden_by(judgement.is_authorized),
                    ..Cause::from(finding)
                })
                .collect(),
            audit_causes: select(Action::Audit),
            skipped_rules: judgement.skipped.iter().map(|rule| rule.id).collect(),
            is_controller_untrusted: judgement.is_controller_untrusted,
            other_warnings: judgement.ignored_overrides,
            ..Self::default()
        }
    }

    /// Denies an object with a field that does not have the type that its kind requires.
    pub(crate) fn undecodable(kind: Kind, name: String, error: DecodeError) -> Self {
        Self {
            verdict: ReviewResult::Invalid(Invalid {
                group: kind.group,
                kind: kind.kind,
                name,
                causes: vec![Cause {
                    rule: UNDECODABLE,
                    reason: "FieldValueInvalid",
                    message: format!(
                        "Invalid value: {}; see the field's type with `kubectl explain` ({UNDECODABLE})",
                        error.fault
                    ),
                    field: error.field.into(),
                    overridden: None,
                }],
            }),
            ..Self::default()
        }
    }

    /// This decision, including its warnings, if rules deny the write; otherwise `None`.
    pub(crate) fn denial(self) -> Option<Self> {
        matches!(self.verdict, ReviewResult::Invalid(_)).then_some(self)
    }

    /// The rules that are overridden, each with the reason.
    pub(crate) fn overridden_rules(&self) -> impl Iterator<Item = (&'static str, DowngradeReason)> {
        self.warning_causes
            .iter()
            .filter_map(|cause| Some((cause.rule, cause.overridden?)))
    }

    /// All problems that rules found, each with the action that its rule took.
    pub(crate) fn causes(&self) -> impl Iterator<Item = (&Cause, Action)> {
        let denied = match &self.verdict {
            ReviewResult::Invalid(invalid) => invalid.causes.as_slice(),
            ReviewResult::Allowed | ReviewResult::Refused(_) => &[],
        };
        let denied = denied.iter().map(|cause| (cause, Action::Deny));
        let warned = self.warning_causes.iter().map(|cause| (cause, Action::Warn));
        let audited = self.audit_causes.iter().map(|cause| (cause, Action::Audit));
        denied.chain(warned).chain(audited)
    }
}

impl From<&Finding> for Cause {
    fn from(finding: &Finding) -> Self {
        Self {
            rule: finding.rule.id,
            reason: finding.fault.reason.as_str(),
            field: finding.fault.field.clone(),
            message: finding.message().to_string(),
            overridden: None,
        }
    }
}
