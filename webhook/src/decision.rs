//! What admission says.

use std::borrow::Cow;

use kcp_rules::{
    Action, Finding, Judgement,
    api::DecodeError,
    defaulting::{Defaulted, PatchOperation},
};

/// The rule id of a cause that no rule found: the object's fields do not have the types of its kind.
pub(crate) const UNDECODABLE: &str = "object-undecodable";

/// What admission says of one review.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) outcome: Outcome,
    /// Findings that only warn: first those of rules that deny otherwise.
    pub(crate) warned: Vec<Cause>,
    /// Findings of rules that only record.
    pub(crate) audited: Vec<Cause>,
    /// Warnings that no rule found.
    pub(crate) notes: Vec<String>,
    /// What to change. Only of a mutating webhook that allows.
    pub(crate) patch: Vec<PatchOperation>,
}

/// Whether the write may go on.
#[derive(Debug, Default)]
pub(crate) enum Outcome {
    /// It may.
    #[default]
    Allowed,
    /// It may not, for rules say so: the object must change.
    Invalid(Invalid),
    /// It may not, for it cannot be judged.
    Refused(Refusal),
}

/// An object that rules deny, as Kubernetes' own validation says it: 422 and `Invalid`, with causes.
#[derive(Debug)]
pub(crate) struct Invalid {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) causes: Vec<Cause>,
}

/// One cause of a denial, or of a warning.
#[derive(Debug)]
pub(crate) struct Cause {
    /// The rule's id; ends the message too.
    pub(crate) rule: &'static str,
    /// Kubernetes' name for the kind of fault: `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    pub(crate) field: Cow<'static, str>,
    pub(crate) message: String,
}

/// A review that cannot be judged.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// The review is not one that we take: the webhook's configuration is wrong, or the sender is no API server.
    BadRequest,
    /// What the review is about is not there.
    NotFound,
    /// The object is larger than what is judged.
    TooLarge,
    /// What is needed cannot be had now.
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
    /// Allowed, with nothing to say.
    pub(crate) fn allowed() -> Self {
        Self::default()
    }

    /// Allowed, with changes.
    pub(crate) fn completed(defaulted: Defaulted) -> Self {
        Self {
            patch: defaulted.operations,
            notes: defaulted.repairs.iter().map(ToString::to_string).collect(),
            ..Self::default()
        }
    }

    /// Not judged.
    pub(crate) fn refused(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Refused(Refusal {
                kind,
                message: message.into(),
            }),
            ..Self::default()
        }
    }

    /// Denied if there is a cause, else allowed.
    pub(crate) fn of(
        group: &'static str,
        kind: &'static str,
        name: impl FnOnce() -> String,
        judgement: Judgement,
    ) -> Self {
        let by = |action| {
            judgement
                .findings
                .iter()
                .filter(move |finding| finding.action == action)
                .map(Cause::from)
                .collect::<Vec<_>>()
        };
        let causes = by(Action::Deny);
        let would_deny = |finding: &&Finding| finding.softened.is_some();
        let warnings = || {
            judgement
                .findings
                .iter()
                .filter(|finding| finding.action == Action::Warn)
        };
        let warned = warnings()
            .filter(would_deny)
            .chain(warnings().filter(|finding| !would_deny(finding)));
        Self {
            outcome: if causes.is_empty() {
                Outcome::Allowed
            } else {
                Outcome::Invalid(Invalid {
                    group,
                    kind,
                    name: name(),
                    causes,
                })
            },
            warned: warned.map(Cause::from).collect(),
            audited: by(Action::Audit),
            notes: judgement.ignored_overrides,
            ..Self::default()
        }
    }

    /// Denied, for the object's fields do not have the types of its kind.
    pub(crate) fn undecodable(
        group: &'static str,
        kind: &'static str,
        name: String,
        error: DecodeError,
    ) -> Self {
        Self {
            outcome: Outcome::Invalid(Invalid {
                group,
                kind,
                name,
                causes: vec![Cause {
                    rule: UNDECODABLE,
                    reason: "FieldValueInvalid",
                    message: format!(
                        "Invalid value: {}; write the field as `kubectl explain` says ({UNDECODABLE})",
                        error.fault
                    ),
                    field: error.field.into(),
                }],
            }),
            ..Self::default()
        }
    }

    /// Itself, warnings and all, if rules deny.
    pub(crate) fn denial(self) -> Option<Self> {
        matches!(self.outcome, Outcome::Invalid(_)).then_some(self)
    }

    /// All causes, with what followed from each.
    pub(crate) fn causes(&self) -> impl Iterator<Item = (&Cause, Action)> {
        let denied = match &self.outcome {
            Outcome::Invalid(invalid) => invalid.causes.as_slice(),
            Outcome::Allowed | Outcome::Refused(_) => &[],
        };
        let denied = denied.iter().map(|cause| (cause, Action::Deny));
        let warned = self.warned.iter().map(|cause| (cause, Action::Warn));
        let audited = self.audited.iter().map(|cause| (cause, Action::Audit));
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
        }
    }
}
