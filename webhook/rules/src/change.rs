//! What a rule sees.

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
#[derive(Clone, Copy, Debug)]
pub struct Change<'c, T> {
    /// What is asked.
    pub operation: Operation,
    /// Set when not the object itself is written; `new` is then the object as it would become.
    pub subresource: Option<Subresource>,
    /// The object as it would become; on a deletion, the object that would go.
    pub new: &'c T,
    /// The object as it is, on an update.
    pub old: Option<&'c T>,
}

impl<'c, T> Change<'c, T> {
    /// A creation.
    pub const fn create(new: &'c T) -> Self {
        Self {
            operation: Operation::Create,
            subresource: None,
            new,
            old: None,
        }
    }

    /// An update of the object itself.
    pub const fn update(old: &'c T, new: &'c T) -> Self {
        Self {
            operation: Operation::Update,
            subresource: None,
            new,
            old: Some(old),
        }
    }

    /// An update through the scale subresource.
    pub const fn scale(old: &'c T, new: &'c T) -> Self {
        Self {
            operation: Operation::Update,
            subresource: Some(Subresource::Scale),
            new,
            old: Some(old),
        }
    }
}
