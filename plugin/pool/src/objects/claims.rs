//! `ClusterClaim`s: what is asked of a pool that Hive runs.

use kcp_rules::api::hive::ClusterClaimSpec;
use serde::Deserialize;

use crate::objects::{conditions::Conditions, metadata::Metadata};

/// The condition that says why a claim waits.
const PENDING: &str = "Pending";

/// A `ClusterClaim`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Claim {
    pub metadata: Metadata,
    pub spec: ClusterClaimSpec,
    #[serde(default)]
    pub status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Status {
    pub conditions: Conditions,
}

impl Claim {
    /// Why it waits, in Hive's words.
    pub fn pending(&self) -> &str {
        let conditions = &self.status.conditions;
        let message = conditions.message(PENDING).filter(|message| !message.is_empty());
        message
            .or_else(|| conditions.reason(PENDING))
            .unwrap_or("Hive has not looked at it")
    }

    /// The namespace, and the name, of the `ClusterDeployment` that it got; none while it waits.
    pub fn cluster(&self) -> Option<&str> {
        self.spec.namespace.as_deref().filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Claim;

    #[test]
    fn what_a_claim_says() {
        let pending = |reason: &str, message: &str| json!({"conditions": [{"type": "Pending", "status": "True", "reason": reason, "message": message}]});
        for (namespace, status, cluster, why) in [
            ("", json!({}), None, "Hive has not looked at it"),
            ("", pending("NoClusters", ""), None, "NoClusters"),
            (
                "",
                pending("NoClusters", "No clusters in pool"),
                None,
                "No clusters in pool",
            ),
            ("hosts-x", json!({}), Some("hosts-x"), "Hive has not looked at it"),
        ] {
            let spec = json!({"clusterPoolName": "hosts", "namespace": namespace});
            let claim = json!({"metadata": {"name": "a"}, "spec": spec, "status": status});
            let claim: Claim = serde_json::from_value(claim).unwrap();
            assert_eq!((claim.cluster(), claim.pending()), (cluster, why));
        }
    }
}
