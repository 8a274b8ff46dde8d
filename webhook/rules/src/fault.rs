//! Problems of an object, expressed as Kubernetes field errors.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher as _},
};

use crate::{
    action::{Action, DowngradeReason},
    context::Context,
};

/// The type of a problem, as in Kubernetes' field errors (k8s.io/apimachinery, `pkg/util/validation/field/errors.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CauseReason {
    Required,
    Invalid,
    /// The value is not in the set of supported values.
    NotSupported,
    /// The value is valid in general, but not now, or not together with another field.
    Forbidden,
    /// The field refers to something that does not exist.
    NotFound,
    /// The value occurs twice in a list of unique values.
    Duplicate,
    TooLong,
}

impl CauseReason {
    /// The `causes[].reason` of a `Status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
        }
    }

    /// The text with which Kubernetes begins a message of this type.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "Not found",
            Self::Duplicate => "Duplicate value",
            Self::TooLong => "Too long",
        }
    }
}

/// One problem of an object, as a rule reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The path of the field in the API version of the request, such as `spec.inventory[1].name`.
    pub field: Cow<'static, str>,
    pub reason: CauseReason,
    /// The value found, as JSON; `None` if there is no value to show.
    pub value: Option<String>,
    /// A phrase that says what is wrong and why, without a period.
    pub detail: Cow<'static, str>,
    /// A phrase that says what to do, in the imperative, without a period.
    pub remedy: Cow<'static, str>,
}

/// The text that a message shows instead of a string that may be secret. Any string in `kubeadmConfigSpec` or
/// in the patches of a customization may be secret. From these fields, messages show only booleans, numbers,
/// versions, values of enumerations, and plain names of flags, feature gates and labels.
pub const HIDDEN: &str = "a string";

/// Quotes text for a message, and shortens long text. Never call this for text that may be secret: use [`HIDDEN`].
pub fn quote(text: &str) -> String {
    const SHOWN: usize = 64;
    match text.char_indices().nth(SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!(
            "{:?}... ({} bytes)",
            text.get(..end).unwrap_or_default(),
            text.len()
        ),
    }
}

/// A problem that a rule reported, with data that its message does not show.
#[derive(Debug)]
pub struct CollectedFault {
    pub fault: Fault,
    /// The severest action that this problem can have, even if the action of the rule is more severe.
    pub max_action: Action,
    /// Why the action is only to warn although the rule would deny; `None` otherwise.
    pub(crate) downgrade_reason: Option<DowngradeReason>,
    /// The path of the field with names that may be secret; `None` if [`Fault::field`] has all names.
    pub(crate) exact_field: Option<Cow<'static, str>>,
    /// The hash of the values that the problem depends on and that may be secret; 0 if there are none.
    redacted_hash: u64,
}

impl CollectedFault {
    /// A key that is equal if a rule found the same problem in the old and in the new object. It does not
    /// contain the path, because the removal of a list entry shifts the paths of all entries after it.
    pub(crate) fn identity(&self) -> impl Eq + Hash + use<> {
        (
            self.fault.value.clone(),
            self.fault.detail.clone(),
            self.redacted_hash,
        )
    }
}

/// Collects the faults that one rule finds.
#[derive(Debug, Default)]
pub struct Faults {
    found: Vec<CollectedFault>,
    unread: Option<Action>,
}

impl Faults {
    /// Adds a fault with the action of the rule.
    pub fn push(&mut self, fault: Fault) {
        self.push_at_most(Action::Deny, fault);
    }

    /// Records that the verdict depends on an object that is unknown.
    pub fn unread(&mut self) {
        self.unread_at_most(Action::Deny);
    }

    /// Records that an unknown object may have a fault whose action is at most `action`.
    pub fn unread_at_most(&mut self, action: Action) {
        self.unread = self.unread.max(Some(action));
    }

    /// Requests the objects that the rule reads, even if its verdict turns out to be complete without them.
    pub fn request(&mut self) {
        self.unread_at_most(Action::Off);
    }

    /// Whether the rule needs the objects that it reads.
    pub const fn needs_objects(&self) -> bool {
        self.unread.is_some()
    }

    /// The severest action of a fault that an unknown object may have; `None` if no unknown object can have one.
    pub fn unread_action(&self) -> Option<Action> {
        self.unread.filter(|action| *action > Action::Off)
    }

    /// Whether the rule has found no fault.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds a fault whose action is at most `action`, even if the action of the rule is more severe.
    pub fn push_at_most(&mut self, action: Action, fault: Fault) {
        self.found.push(CollectedFault {
            fault,
            max_action: action,
            downgrade_reason: None,
            exact_field: None,
            redacted_hash: 0,
        });
    }

    /// Adds a fault that is only a warning, for a reason that may need a permission.
    pub(crate) fn push_downgraded(&mut self, reason: DowngradeReason, action: Action, fault: Fault) {
        self.found.push(CollectedFault {
            fault,
            max_action: action,
            downgrade_reason: Some(reason),
            exact_field: None,
            redacted_hash: 0,
        });
    }

    /// Adds the use of a field that needs a feature gate of Cluster API. The fault is only a warning if the gates are unknown.
    pub(crate) fn push_gate_off(
        &mut self,
        gate: &str,
        context: &Context<'_>,
        (field, value): (Cow<'static, str>, Option<String>),
        remedy: &'static str,
    ) {
        let is_unknown = context.are_gates_unknown;
        let detail = if is_unknown {
            format!("the field needs Cluster API's feature gate {gate}")
        } else {
            format!("Cluster API's feature gate {gate} is off")
        };
        let fault = Fault {
            field,
            reason: CauseReason::Forbidden,
            value,
            detail: detail.into(),
            remedy: remedy.into(),
        };
        if is_unknown {
            self.push_downgraded(DowngradeReason::GatesUnknown, Action::Deny, fault);
        } else {
            self.push(fault);
        }
    }

    /// Adds a problem that depends on a value that the message must not show, such as a secret. If that value changes,
    /// the problem counts as a different one.
    pub fn push_redacted(&mut self, redacted: impl Hash, fault: Fault) {
        self.collect_redacted(Action::Deny, redacted, None, fault);
    }

    /// Adds a problem with a name that the path in `fault` must not show. `max_action` is the severest action of the rule for
    /// this problem. `exact_field` is the path with the name.
    pub(crate) fn push_unnamed(
        &mut self,
        max_action: Action,
        name: &str,
        exact_field: Cow<'static, str>,
        fault: Fault,
    ) {
        self.collect_redacted(max_action, name, Some(exact_field), fault);
    }

    fn collect_redacted(
        &mut self,
        max_action: Action,
        redacted: impl Hash,
        exact_field: Option<Cow<'static, str>>,
        fault: Fault,
    ) {
        let mut hasher = DefaultHasher::new();
        redacted.hash(&mut hasher);
        self.found.push(CollectedFault {
            fault,
            max_action,
            downgrade_reason: None,
            exact_field,
            redacted_hash: hasher.finish(),
        });
    }

    /// The faults in the order in which the rule reported them.
    pub fn into_vec(self) -> Vec<CollectedFault> {
        self.found
    }
}
