//! The input of a rule.

use crate::context::Context;

/// The operation of an admission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Create,
    /// The change of an existing object, by update, patch or apply.
    Update,
    Delete,
}

impl Operation {
    /// The value of `request.operation` in an admission request.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// The subresource that a request writes instead of the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subresource {
    /// The subresource `scale`. The request contains only a number of replicas.
    Scale,
}

/// A change to one object, as rules see it.
#[derive(Debug)]
pub struct Change<'c, T> {
    pub operation: Operation,
    /// The subresource that the request writes; `None` for the object itself. `new` is always the whole object.
    pub subresource: Option<Subresource>,
    /// The object after the change. For a deletion, the object to delete.
    pub new: &'c T,
    /// The object before the change; `None` for a creation.
    pub old: Option<&'c T>,
    /// The writer, the time and the other objects.
    pub context: Context<'c>,
}

// Derived implementations would require `T: Clone`, although `T` is only borrowed.
impl<T> Clone for Change<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Change<'_, T> {}

impl<'c, T> Change<'c, T> {
    /// Returns the creation of `new`.
    pub const fn create(new: &'c T) -> Self {
        Self {
            operation: Operation::Create,
            subresource: None,
            new,
            old: None,
            context: Context::UNKNOWN,
        }
    }

    /// Returns an update of the object itself, not of a subresource.
    pub const fn update(old: &'c T, new: &'c T) -> Self {
        Self {
            operation: Operation::Update,
            subresource: None,
            new,
            old: Some(old),
            context: Context::UNKNOWN,
        }
    }

    /// Returns an update through the scale subresource.
    pub const fn scale(old: &'c T, new: &'c T) -> Self {
        Self {
            operation: Operation::Update,
            subresource: Some(Subresource::Scale),
            new,
            old: Some(old),
            context: Context::UNKNOWN,
        }
    }

    /// Returns the deletion of `object`.
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

    #[must_use]
    pub const fn with_context(mut self, context: Context<'c>) -> Self {
        self.context = context;
        self
    }

    /// This change, reduced to a part of the new object and of the old object.
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

    /// An update whose new object is this change's old object, to find the problems that existed before this
    /// change.
    pub(crate) fn unchanged_old(&self) -> Option<Self> {
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
