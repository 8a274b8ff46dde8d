//! What is wrong with an object, in the terms of Kubernetes' field errors.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher as _},
};

use crate::action::Action;

/// The kind of a fault, exactly Kubernetes' field error types
/// (k8s.io/apimachinery, `pkg/util/validation/field/errors.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CauseReason {
    /// A field must be there and is not.
    Required,
    /// A field must not have this value.
    Invalid,
    /// A field takes one of a few values, and this is none of them.
    NotSupported,
    /// A field may have this value, but not now or not together with another.
    Forbidden,
    /// A field names something that does not exist.
    NotFound,
    /// A value stands twice in a list that must not repeat.
    Duplicate,
    /// A value is longer than it may be.
    TooLong,
}

impl CauseReason {
    /// `causes[].reason` of a Status.
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

    /// How Kubernetes begins the message.
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

/// One fault of an object, as a rule reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The path of the field, in the version that was written: `spec.inventory[1].name`.
    pub field: Cow<'static, str>,
    /// The kind of the fault.
    pub reason: CauseReason,
    /// The value found, as JSON; none where there is no value to show.
    pub value: Option<String>,
    /// What is wrong, without a full stop.
    pub detail: Cow<'static, str>,
    /// What to do about it, in the imperative, without a full stop.
    pub remedy: Cow<'static, str>,
}

/// A text found, as a message shows it: quoted, and no more of it than a person reads.
pub fn quoted(text: &str) -> String {
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

/// A fault, and what is not part of its text.
#[derive(Debug)]
pub struct Found {
    /// The fault.
    pub fault: Fault,
    /// The most that follows from it, whatever the rule's own action is.
    pub at_most: Action,
    /// Of what the fault rests on and does not show.
    unshown: u64,
}

impl Found {
    /// Two faults of one rule are the same when nothing of this differs. Paths do not count: an entry that is removed
    /// from a list moves the faults behind it.
    pub(crate) fn identity(&self) -> impl Eq + Hash + use<> {
        (self.fault.value.clone(), self.fault.detail.clone(), self.unshown)
    }
}

/// Collects the faults that one rule finds.
#[derive(Debug, Default)]
pub struct Faults(Vec<Found>);

impl Faults {
    /// Adds one, from which the rule's own action follows.
    pub fn push(&mut self, fault: Fault) {
        self.push_at_most(Action::Deny, fault);
    }

    /// Adds one from which no more than `action` follows, whatever the rule's own is.
    pub fn push_at_most(&mut self, action: Action, fault: Fault) {
        self.0.push(Found {
            fault,
            at_most: action,
            unshown: 0,
        });
    }

    /// Adds one that rests on something that its text does not show, a secret for one: when that changes, it is another
    /// fault.
    pub fn push_unshown(&mut self, unshown: impl Hash, fault: Fault) {
        let mut hasher = DefaultHasher::new();
        unshown.hash(&mut hasher);
        self.0.push(Found {
            fault,
            at_most: Action::Deny,
            unshown: hasher.finish(),
        });
    }

    /// All of them, in the order found.
    pub fn into_vec(self) -> Vec<Found> {
        self.0
    }
}
