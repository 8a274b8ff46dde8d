//! What comes of an entry that a change adds or drops, and how it is told.

use std::fmt;

/// What comes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It can be leased.
    Free,
    /// It has no customization yet.
    Missing,
    /// Another pool names it too.
    Shared { with: Vec<String> },
    /// Nobody has it.
    Unused,
    /// Its unclaimed cluster is stale then, if it is not already.
    ClusterStale { cluster: String },
    /// Its claimed cluster stays as it is.
    ClusterClaimed { cluster: String, claim: String },
    /// It stays reserved until this one gives it back.
    Held { by: String },
}

impl Effect {
    /// In JSON.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Missing => "missing",
            Self::Shared { .. } => "shared",
            Self::Unused => "unused",
            Self::ClusterStale { .. } => "cluster-stale",
            Self::ClusterClaimed { .. } => "cluster-claimed",
            Self::Held { .. } => "held",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("can be leased"),
            Self::Missing => f.write_str("there is no such customization yet"),
            Self::Shared { with } => write!(
                f,
                "{} names it too, and they would take it from each other",
                with.join(", ")
            ),
            Self::Unused => f.write_str("nobody has it"),
            Self::ClusterStale { cluster } => {
                write!(f, "unclaimed ClusterDeployment {cluster} is stale then")
            }
            Self::ClusterClaimed { cluster, claim } => {
                write!(f, "ClusterDeployment {cluster} stays, claim {claim} has it")
            }
            Self::Held { by } => write!(f, "stays reserved for {by} until that is over"),
        }
    }
}
