//! What a rule sees.

use crate::context::Context;

/// What is asked of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an object, by update, patch or apply.
    Update,
    /// An object's deletion.
    Delete,
}

impl Operation {
    /// As an admission request spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// The part of an object that is written, where it is not the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subresource {
    /// `/scale`: the write names a number of replicas and nothing else.
    Scale,
}

/// A change as put to the rules.
#[derive(Debug)]
pub struct Change<'c, T> {
    /// What is asked.
    pub operation: Operation,
    /// Set when not the object itself is written; `new` is then the object as it would become.
    pub subresource: Option<Subresource>,
    /// The object as it would become; on a deletion, the object that would go.
    pub new: &'c T,
    /// The object as it is, on an update.
    pub old: Option<&'c T>,
    /// Who writes, when, and to which cluster.
    pub context: Context<'c>,
}

// Derived, these would ask the same of `T`, which is only borrowed.
impl<T> Clone for Change<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Change<'_, T> {}

impl<'c, T> Change<'c, T> {
    /// A creation.
    pub const fn create(new: &'c T) -> Self {
        Self {
            operation: Operation::Create,
            subresource: None,
            new,
            old: None,
            context: Context::UNKNOWN,
        }
    }

    /// An update of the object itself.
    pub const fn update(old: &'c T, new: &'c T) -> Self {
        Self {
            operation: Operation::Update,
            subresource: None,
            new,
            old: Some(old),
            context: Context::UNKNOWN,
        }
    }

    /// An update through the scale subresource.
    pub const fn scale(old: &'c T, new: &'c T) -> Self {
        Self {
            operation: Operation::Update,
            subresource: Some(Subresource::Scale),
            new,
            old: Some(old),
            context: Context::UNKNOWN,
        }
    }

    /// A deletion.
    pub const fn delete(object: &'c T) -> Self {
        let context = Context::UNKNOWN;
        Self {
            operation: Operation::Delete,
            subresource: None,
            new: object,
            old: Some(object),
            context,
        }
    }

    /// The same change in a known context.
    #[must_use]
    pub const fn within(mut self, context: Context<'c>) -> Self {
        self.context = context;
        self
    }

    /// The same change, seen as one of a part that both objects have.
    pub(crate) fn part<'p, U>(&self, new: &'p U, old: Option<&'p U>) -> Change<'p, U>
    where
        'c: 'p,
    {
        Change {
            operation: self.operation,
            subresource: self.subresource,
            new,
            old,
            context: self.context,
        }
    }

    /// The old object as if it were created now: what an object rule said of it before this change.
    pub(crate) fn before(&self) -> Option<Self> {
        let old = self.old.filter(|_| self.operation == Operation::Update)?;
        Some(Self {
            operation: Operation::Update,
            subresource: None,
            new: old,
            old: None,
            context: self.context,
        })
    }
}
