//! The two webhooks and their paths.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Sets defaults, and denies objects that are still invalid with these defaults.
    Mutate,
    /// Evaluates all rules.
    Validate,
}

impl Hook {
    pub(crate) const ALL: [Self; 2] = [Self::Mutate, Self::Validate];

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Mutate => "/mutate",
            Self::Validate => "/validate",
        }
    }

    pub(crate) fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.path() == path)
    }
}
