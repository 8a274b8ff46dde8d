//! `ClusterClaim`s: what is asked of a pool that Hive runs.

use kcp_rules::api::hive::ClusterClaimSpec;
use serde::Deserialize;

use super::{conditions::Conditions, metadata::Metadata};

/// A `ClusterClaim`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Claim {
    pub(super) metadata: Metadata,
    pub(super) spec: ClusterClaimSpec,
    #[serde(default)]
    pub(super) status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) conditions: Conditions,
}

impl Claim {
    /// The namespace, and the name, of the `ClusterDeployment` that it got; none while it waits.
    pub(super) fn cluster(&self) -> Option<&str> {
        self.spec.namespace.as_deref().filter(|name| !name.is_empty())
    }
}
