//! The two webhooks, and the path of each.

/// Which of the two webhooks is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Fills in defaults, and refuses what they do not mend.
    Mutate,
    /// Judges.
    Validate,
}

impl Hook {
    pub(crate) const ALL: [Self; 2] = [Self::Mutate, Self::Validate];

    /// The path that it is served at.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Mutate => "/mutate",
            Self::Validate => "/validate",
        }
    }

    /// The webhook that is served at a path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.path() == path)
    }
}
