//! Who answers a write.

/// Who answers a write at an API server that has this webhook, Cluster API's webhooks and its definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nobody has an objection.
    Admitted,
    /// Our defaults mend it before it is judged: the field at fault is admitted with this value, as JSON.
    Mutation(&'static str),
    /// The definition's schema refuses it before a validating webhook is asked, or the object that it changes, for
    /// these fields, in any order.
    Schema(&'static [&'static str]),
    /// Cluster API's own webhook refuses what we, who may know less than a newer one, warn of.
    ClusterApi,
    /// We warn.
    Warn,
    /// We refuse.
    Deny,
}

impl Answer {
    /// As tables spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Mutation(_) => "mutation",
            Self::Schema(_) => "schema",
            Self::ClusterApi => "cluster-api",
            Self::Warn => "warn",
            Self::Deny => "deny",
        }
    }
}
