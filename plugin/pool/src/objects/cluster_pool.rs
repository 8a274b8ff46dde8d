//! ClusterPools and ClusterClaims.

use kcp_rules::api::hive::{ClusterClaimSpec, ClusterPoolSpec, Inventory};
use serde::Deserialize;
use serde_json::Value;

use crate::objects::metadata::{Conditions, Metadata};

/// Hive's finalizer on each pool that it runs.
const HIVE_FINALIZER: &str = "hive.openshift.io/clusters";

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "WirePool")]
pub struct Pool {
    pub metadata: Metadata,
    /// The known fields.
    pub spec: ClusterPoolSpec,
    /// All fields: the objects of a new cluster keep fields that this crate does not know.
    pub whole_spec: Value,
    pub status: PoolStatus,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolName {
    pub namespace: String,
    pub name: String,
}

impl PoolName {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// The CRD requires `status.size` and `status.ready`; both are absent before the first status write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PoolStatus {
    pub size: Option<i32>,
    pub ready: Option<i32>,
    pub conditions: Conditions,
}

#[derive(Deserialize)]
struct WirePool {
    metadata: Metadata,
    spec: Value,
    #[serde(default)]
    status: PoolStatus,
}

impl TryFrom<WirePool> for Pool {
    type Error = serde_json::Error;

    fn try_from(pool: WirePool) -> Result<Self, Self::Error> {
        Ok(Self {
            metadata: pool.metadata,
            spec: ClusterPoolSpec::deserialize(&pool.spec)?,
            whole_spec: pool.spec,
            status: pool.status,
        })
    }
}

impl Pool {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    pub fn is_run_by_hive(&self) -> bool {
        self.metadata.has_finalizer(HIVE_FINALIZER)
    }

    pub fn is_deleting(&self) -> bool {
        self.metadata.is_deleting()
    }

    /// The customizations of the inventory, each once, in the pool's order.
    pub fn inventory(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for name in self.spec.inventory.iter().flat_map(Inventory::names) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// The condition that says why a claim waits.
const PENDING: &str = "Pending";

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Claim {
    pub metadata: Metadata,
    pub spec: ClusterClaimSpec,
    #[serde(default)]
    pub status: ClaimStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimStatus {
    pub conditions: Conditions,
}

impl Claim {
    /// Why it waits, as Hive says.
    pub fn pending(&self) -> &str {
        let conditions = &self.status.conditions;
        let message = conditions.message(PENDING).filter(|message| !message.is_empty());
        message
            .or_else(|| conditions.reason(PENDING))
            .unwrap_or("Hive has not processed it yet")
    }

    /// The namespace, and the name, of the ClusterDeployment that it got; none while it waits.
    pub fn cluster(&self) -> Option<&str> {
        self.spec.namespace.as_deref().filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Claim, Pool};
    use crate::testing::objects::{pool, pool_object};

    #[test]
    fn an_inventory_names_each_customization_once() {
        let pool = pool(&json!({"inventory": [{"name": "b"}, {"name": ""}, {"name": "a"}, {"name": "b"}]}));
        assert_eq!(pool.inventory(), ["b", "a"]);
    }

    #[test]
    fn no_inventory_and_an_empty_one_name_nothing() {
        for spec in [json!({}), json!({"inventory": null}), json!({"inventory": []})] {
            assert!(pool(&spec).inventory().is_empty(), "{spec}");
        }
    }

    #[test]
    fn hive_marks_the_pools_that_it_runs() {
        for (finalizers, expected) in [
            (json!([]), false),
            (json!(["kubectl-kcp.dev/other"]), false),
            (json!(["hive.openshift.io/clusters"]), true),
        ] {
            let mut object = pool_object("pool", &json!({}));
            object["metadata"]["finalizers"] = finalizers;
            let pool: Pool = serde_json::from_value(object).unwrap();
            assert_eq!(pool.is_run_by_hive(), expected);
        }
    }

    #[test]
    fn fields_that_we_do_not_know_stay() {
        let pool = pool(&json!({"hibernateAfter": "8h"}));
        assert_eq!(pool.whole_spec["hibernateAfter"], "8h");
    }

    #[test]
    fn what_a_claim_says() {
        let pending = |reason: &str, message: &str| json!({"conditions": [{"type": "Pending", "status": "True", "reason": reason, "message": message}]});
        for (namespace, status, cluster, why) in [
            ("", json!({}), None, "Hive has not processed it yet"),
            ("", pending("NoClusters", ""), None, "NoClusters"),
            (
                "",
                pending("NoClusters", "No clusters in pool"),
                None,
                "No clusters in pool",
            ),
            (
                "hosts-x",
                json!({}),
                Some("hosts-x"),
                "Hive has not processed it yet",
            ),
        ] {
            let spec = json!({"clusterPoolName": "hosts", "namespace": namespace});
            let claim = json!({"metadata": {"name": "a"}, "spec": spec, "status": status});
            let claim: Claim = serde_json::from_value(claim).unwrap();
            assert_eq!((claim.cluster(), claim.pending()), (cluster, why));
        }
    }
}
