//! Counts a pool's clusters, compares them with the pool's limits, and builds the pool's conditions about its inventory. No
//! I/O.

use std::{collections::BTreeSet, fmt};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use kcp_api::{ClusterDeployment, ClusterPool, hive::conditions::DesiredCondition, metadata::Object as _};

use crate::objects::entry::{APPLY_SUCCEEDED, BROKEN_BY_CLOUD, BROKEN_BY_SYNTAX, Entry, EntryStatus as _};

/// A pool's limits, and how many clusters count against each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// The desired number of unclaimed clusters, `spec.size`.
    pub size: usize,
    /// The maximum number of clusters; absent if there is no limit. A negative limit allows no cluster, as in Hive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<usize>,
    /// The maximum number of clusters that may be created or deleted at the same time; absent if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<usize>,
    /// The number of entries in the inventory; absent if the pool has no inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory: Option<usize>,
    pub clusters: usize,
    /// The number of unclaimed clusters that are not being deleted.
    pub unclaimed: usize,
    /// The number of unclaimed clusters that are installed and not being deleted.
    #[serde(skip)]
    pub ready: usize,
    pub installing: usize,
    pub deleting: usize,
}

/// The limit of a pool that prevents another cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReached {
    MaxSize { clusters: usize, limit: usize },
    MaxConcurrent { changing: usize, limit: usize },
}

/// An inventory that has fewer entries than the pool's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    size: usize,
    entries: usize,
}

impl Capacity {
    /// Counts the clusters of a pool, and reads its limits.
    pub fn count<'d>(pool: &ClusterPool, clusters: impl Iterator<Item = &'d ClusterDeployment>) -> Self {
        let limit = |given: Option<i32>| given.map(|limit| usize::try_from(limit).unwrap_or(0));
        let mut capacity = Self {
            size: usize::try_from(pool.spec.size).unwrap_or(0),
            max_size: limit(pool.spec.max_size),
            max_concurrent: limit(pool.spec.max_concurrent),
            inventory: pool.spec.inventory.as_ref().map(|_| pool.inventory().len()),
            ..Self::default()
        };
        for cluster in clusters {
            capacity.clusters += 1;
            capacity.unclaimed += usize::from(cluster.claim().is_none() && !cluster.is_deleting());
            // Like Hive, this program counts a cluster that is deleted during its installation only as being deleted.
            if cluster.is_deleting() {
                capacity.deleting += 1;
            } else if !cluster.spec.installed {
                capacity.installing += 1;
            } else if cluster.claim().is_none() {
                capacity.ready += 1;
            }
        }
        capacity
    }

    /// How many more clusters the pool may create now; `None` means no limit.
    pub fn remaining(&self) -> Result<Option<usize>, LimitReached> {
        let of_all = self.max_size.map(|limit| limit.saturating_sub(self.clusters));
        let changing = self.installing + self.deleting;
        let at_once = self.max_concurrent.map(|limit| limit.saturating_sub(changing));
        match (of_all, at_once, self.max_size, self.max_concurrent) {
            (Some(0), _, Some(limit), _) => Err(LimitReached::MaxSize {
                clusters: self.clusters,
                limit,
            }),
            (_, Some(0), _, Some(limit)) => Err(LimitReached::MaxConcurrent { changing, limit }),
            _ => Ok(of_all.into_iter().chain(at_once).min()),
        }
    }

    /// The counts after the creation of one more cluster has begun.
    pub fn with_one_more(self) -> Self {
        Self {
            clusters: self.clusters + 1,
            unclaimed: self.unclaimed + 1,
            installing: self.installing + 1,
            ..self
        }
    }

    /// The shortage, if the inventory has fewer entries than the pool's size. The design document requires a condition for
    /// this.
    pub fn shortage(&self) -> Option<Shortage> {
        let entries = self.inventory.filter(|entries| self.size > *entries)?;
        Some(Shortage {
            size: self.size,
            entries,
        })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, entries } = self;
        let noun = if *entries == 1 { "entry" } else { "entries" };
        write!(f, "size is {size}, but the inventory has {entries} {noun}")
    }
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxSize { clusters, limit } => {
                let noun = if *clusters == 1 { "cluster" } else { "clusters" };
                write!(f, "maxSize is {limit}, and the pool has {clusters} {noun}")
            }
            Self::MaxConcurrent { changing, limit } => write!(
                f,
                "maxConcurrent is {limit}, and {changing} clusters of the pool are being created or deleted"
            ),
        }
    }
}

/// The type of Hive's condition that says whether all entries of the inventory can be used.
const INVENTORY_VALID: &str = "InventoryValid";
/// The type of the condition that says whether the inventory has enough entries for the pool's size. The design document of
/// inventories requires such a condition, but Hive has none, so this program has chosen the name.
const INVENTORY_SUFFICIENT: &str = "InventorySufficient";

/// The facts that determine the conditions about an inventory.
#[derive(Clone, Copy, Debug)]
pub struct InventoryFacts<'f> {
    pub entries: &'f [Entry],
    /// Names of entries whose patches were found to be broken after `entries` was read.
    pub broken_entries: &'f BTreeSet<&'f str>,
}

/// The patch that updates the pool's conditions about its inventory; `None` if they are up to date. The server refuses the
/// patch if the pool has changed since it was read.
pub fn inventory_patch(
    pool: &ClusterPool,
    findings: InventoryFacts<'_>,
    capacity: &Capacity,
    now: Timestamp,
) -> Option<Value> {
    let inventory_problems = inventory_problems(pool, findings);
    let shortage = capacity.shortage().map(|shortage| shortage.to_string());
    let valid = DesiredCondition {
        type_: INVENTORY_VALID,
        status: if inventory_problems.is_some() {
            "False"
        } else {
            "True"
        },
        reason: if inventory_problems.is_some() {
            "Invalid"
        } else {
            "Valid"
        },
        message: inventory_problems.as_deref().unwrap_or_default(),
    };
    let sufficient = DesiredCondition {
        type_: INVENTORY_SUFFICIENT,
        status: if shortage.is_some() { "False" } else { "True" },
        reason: if shortage.is_some() {
            "SizeAboveInventory"
        } else {
            "Sufficient"
        },
        message: shortage.as_deref().unwrap_or_default(),
    };
    let status = &pool.status;
    let says_so = status.conditions.matches(valid) && status.conditions.matches(sufficient);
    if says_so && status.size.is_some() && status.ready.is_some() {
        return None;
    }
    let conditions = status
        .conditions
        .with_condition(valid, now)
        .with_condition(sufficient, now);
    let count = |there: Option<i32>, counted: usize| {
        there.unwrap_or_else(|| i32::try_from(counted).unwrap_or(i32::MAX))
    };
    Some(json!({
        "metadata": { "resourceVersion": pool.resource_version() },
        "status": {
            "conditions": conditions.into_value(),
            "size": count(status.size, capacity.unclaimed),
            "ready": count(status.ready, capacity.ready),
        },
    }))
}

/// The problems of the inventory, in the format of Hive's condition; `None` if there are no problems.
fn inventory_problems(
    pool: &ClusterPool,
    InventoryFacts {
        entries,
        broken_entries: broken,
    }: InventoryFacts<'_>,
) -> Option<String> {
    let inventory = pool.inventory();
    let find = |name: &str| entries.iter().find(|entry| entry.name() == name);
    let named = |is: &dyn Fn(Option<&Entry>) -> bool| {
        let mut names: Vec<_> = inventory.iter().copied().filter(|name| is(find(name))).collect();
        names.sort_unstable();
        names
    };
    let is_broken_since = |entry: &Entry| broken.contains(entry.name());
    let by_cloud = named(&|entry| {
        entry.is_some_and(|entry| is_broken_by(entry, BROKEN_BY_CLOUD) && !is_broken_since(entry))
    });
    let by_syntax = named(&|entry| {
        entry.is_some_and(|entry| is_broken_by(entry, BROKEN_BY_SYNTAX) || is_broken_since(entry))
    });
    let missing = named(&|entry| entry.is_none());
    let is_valid = by_cloud.is_empty() && by_syntax.is_empty() && missing.is_empty();
    (!is_valid).then(|| {
        json!({"BrokenByCloud": by_cloud, "BrokenBySyntax": by_syntax, "Missing": missing}).to_string()
    })
}

fn is_broken_by(entry: &Entry, reason: &str) -> bool {
    let conditions = entry.conditions();
    conditions.status(APPLY_SUCCEEDED) == Some("False") && conditions.reason(APPLY_SUCCEEDED) == Some(reason)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kcp_api::ClusterPool;
    use serde_json::{Value, json};

    use super::{Capacity, InventoryFacts, LimitReached, inventory_patch};
    use crate::{
        objects::entry::Entry,
        testing::objects::{cluster, pool, pool_object},
    };

    /// Four clusters: installed and claimed, installing, claimed and being deleted, ready.
    fn clusters() -> Vec<Value> {
        let mut installed = cluster("a", "pool", None);
        installed["spec"]["installed"] = true.into();
        installed["spec"]["clusterPoolRef"]["claimName"] = "claim".into();
        let mut deleting = cluster("c", "pool", None);
        deleting["metadata"]["deletionTimestamp"] = "2026-11-21T05:00:00Z".into();
        deleting["spec"]["clusterPoolRef"]["claimName"] = "other".into();
        let mut ready = cluster("e", "pool", None);
        ready["spec"]["installed"] = true.into();
        vec![installed, cluster("b", "pool", None), deleting, ready]
    }

    fn capacity(spec: &Value) -> Capacity {
        let clusters: Vec<_> = clusters()
            .into_iter()
            .map(|cluster| serde_json::from_value(cluster).unwrap())
            .collect();
        Capacity::count(&pool(spec), clusters.iter())
    }

    #[test]
    fn counts_the_clusters_of_a_pool() {
        let spec = json!({"size": 4, "maxSize": 9, "maxConcurrent": -1, "inventory": [{"name": "a"}]});
        let expected = Capacity {
            size: 4,
            max_size: Some(9),
            max_concurrent: Some(0),
            inventory: Some(1),
            clusters: 4,
            unclaimed: 2,
            ready: 1,
            installing: 1,
            deleting: 1,
        };
        assert_eq!(capacity(&spec), expected);
        for (spec, shortage) in [
            (spec, Some("size is 4, but the inventory has 1 entry")),
            (json!({"size": 1, "inventory": [{"name": "a"}]}), None),
            (
                json!({"size": 1, "inventory": []}),
                Some("size is 1, but the inventory has 0 entries"),
            ),
            (json!({"size": 4}), None),
        ] {
            let found = capacity(&spec).shortage().map(|shortage| shortage.to_string());
            assert_eq!(found.as_deref(), shortage, "{spec}");
        }
    }

    #[test]
    fn a_deleted_claimed_cluster_does_not_change_the_count_of_ready_clusters() {
        let ready = |names: [usize; 2]| {
            let clusters = clusters();
            let read = names.map(|index| serde_json::from_value(clusters[index].clone()).unwrap());
            Capacity::count(&pool(&json!({})), read.iter()).ready
        };
        assert_eq!(ready([2, 3]), 1);
        assert_eq!(ready([0, 1]), 0);
    }

    #[test]
    fn a_limit_bounds_the_number_of_new_clusters() {
        for (spec, expected) in [
            (json!({}), Ok(None)),
            (json!({"maxSize": 6}), Ok(Some(2))),
            (json!({"maxConcurrent": 3}), Ok(Some(1))),
            (json!({"maxSize": 6, "maxConcurrent": 3}), Ok(Some(1))),
            (json!({"maxSize": 5, "maxConcurrent": 9}), Ok(Some(1))),
            (
                json!({"maxSize": 4}),
                Err(LimitReached::MaxSize {
                    clusters: 4,
                    limit: 4,
                }),
            ),
            (
                json!({"maxSize": 0}),
                Err(LimitReached::MaxSize {
                    clusters: 4,
                    limit: 0,
                }),
            ),
            (
                json!({"maxSize": 9, "maxConcurrent": 2}),
                Err(LimitReached::MaxConcurrent {
                    changing: 2,
                    limit: 2,
                }),
            ),
        ] {
            assert_eq!(capacity(&spec).remaining(), expected, "{spec}");
        }
    }

    #[test]
    fn describes_a_limit_in_a_sentence() {
        let sentences = [
            LimitReached::MaxSize {
                clusters: 3,
                limit: 3,
            }
            .to_string(),
            LimitReached::MaxConcurrent {
                changing: 2,
                limit: 2,
            }
            .to_string(),
        ];
        assert_eq!(
            sentences,
            [
                "maxSize is 3, and the pool has 3 clusters",
                "maxConcurrent is 2, and 2 clusters of the pool are being created or deleted",
            ]
        );
    }

    fn entry(name: &str, reason: Option<&str>) -> Entry {
        let condition =
            reason.map(|reason| json!({"type": "ApplySucceeded", "status": "False", "reason": reason}));
        let conditions: Vec<_> = condition.into_iter().collect();
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {"conditions": conditions}}))
            .unwrap()
    }

    fn sized_pool(size: i32, status: &Value) -> ClusterPool {
        let names: Vec<_> = ["d", "c", "b", "a"].map(|name| json!({ "name": name })).into();
        let mut object = pool_object("pool", &json!({"inventory": names, "size": size}));
        object["status"] = status.clone();
        serde_json::from_value(object).unwrap()
    }

    fn condition_patch(pool: &ClusterPool, entries: &[Entry]) -> Option<Value> {
        condition_patch_after_a_lease(pool, entries, &[])
    }

    /// The patch of the conditions after an attempt to lease that found these entries broken.
    fn condition_patch_after_a_lease(
        pool: &ClusterPool,
        entries: &[Entry],
        broken: &[&str],
    ) -> Option<Value> {
        let capacity = Capacity::count(pool, std::iter::empty());
        let findings = InventoryFacts {
            entries,
            broken_entries: &broken.iter().copied().collect::<BTreeSet<_>>(),
        };
        inventory_patch(pool, findings, &capacity, "2026-11-21T05:00:00Z".parse().unwrap())
    }

    #[test]
    fn conditions_name_problems_in_hives_format() {
        let entries = [
            entry("a", Some("BrokenBySyntax")),
            entry("b", Some("BrokenByCloud")),
            entry("c", Some("InstallationPending")),
        ];
        assert_eq!(
            condition_patch(&sized_pool(5, &json!({})), &entries),
            Some(json!({
                "metadata": {"resourceVersion": "1"},
                "status": {
                    "conditions": [
                        {"type": "InventoryValid", "status": "False", "reason": "Invalid",
                         "message": r#"{"BrokenByCloud":["b"],"BrokenBySyntax":["a"],"Missing":["d"]}"#,
                         "lastTransitionTime": "2026-11-21T05:00:00Z"},
                        {"type": "InventorySufficient", "status": "False", "reason": "SizeAboveInventory",
                         "message": "size is 5, but the inventory has 4 entries",
                         "lastTransitionTime": "2026-11-21T05:00:00Z"},
                    ],
                    "size": 0, "ready": 0,
                },
            }))
        );
    }

    #[test]
    fn conditions_name_entries_that_a_lease_found_broken() {
        let entries = [
            entry("a", None),
            entry("b", Some("BrokenByCloud")),
            entry("c", Some("BrokenBySyntax")),
            entry("d", None),
        ];
        let condition_patch =
            condition_patch_after_a_lease(&sized_pool(4, &json!({})), &entries, &["a", "b", "elsewhere"])
                .unwrap();
        assert_eq!(
            condition_patch["status"]["conditions"][0]["message"],
            r#"{"BrokenByCloud":[],"BrokenBySyntax":["a","b","c"],"Missing":[]}"#
        );
    }

    #[test]
    fn up_to_date_conditions_need_no_patch() {
        let entries = ["a", "b", "c", "d"].map(|name| entry(name, None));
        let mut status =
            condition_patch(&sized_pool(4, &json!({"size": 7})), &entries).unwrap()["status"].clone();
        assert_eq!((&status["size"], &status["ready"]), (&json!(7), &json!(0)));
        assert_eq!(status["conditions"][0]["status"], "True");
        assert_eq!(condition_patch(&sized_pool(4, &status), &entries), None);
        assert!(condition_patch(&sized_pool(5, &status), &entries).is_some());
        assert!(condition_patch(&sized_pool(4, &status), &entries[1..]).is_some());
        status.as_object_mut().unwrap().remove("ready");
        assert!(condition_patch(&sized_pool(4, &status), &entries).is_some());
    }
}
