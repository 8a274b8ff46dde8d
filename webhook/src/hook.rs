//! The two webhooks, their paths and their configurations.

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

    /// The kind of the webhook's configuration.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Mutate => "MutatingWebhookConfiguration",
            Self::Validate => "ValidatingWebhookConfiguration",
        }
    }

    /// The resource of the webhook's configuration.
    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::Mutate => "mutatingwebhookconfigurations",
            Self::Validate => "validatingwebhookconfigurations",
        }
    }

    /// The shipped configuration, in YAML.
    pub(crate) const fn manifest(self) -> &'static str {
        match self {
            Self::Mutate => {
                include_str!("../../manifests/registration/mutatingwebhookconfiguration.yaml")
            }
            Self::Validate => {
                include_str!("../../manifests/registration/validatingwebhookconfiguration.yaml")
            }
        }
    }
}
