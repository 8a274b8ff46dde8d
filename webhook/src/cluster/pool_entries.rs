//! Counts the entries of pools by the state of their leases.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use kcp_api::lease_record::has_passed;

use super::kinds::{CachedCustomization, CachedLease, Caches, CountedState};
use crate::metrics::{OTHER_POOLS, PoolEntries, PoolName};

/// The maximum number of pools that are counted separately. Each has a time series for each state.
const POOLS: usize = 500;

fn count_entry(entries: &mut PoolEntries, entry: &CachedCustomization, now: Timestamp) {
    if let Some(lease) = &entry.lease {
        let has_ended = lease.end.is_some_and(|end| has_passed(end, Some(now)));
        let count = match lease {
            _ if has_ended => &mut entries.expired,
            CachedLease { state, .. } => match state {
                CountedState::Held => &mut entries.held,
                CountedState::ClusterGone => &mut entries.cluster_gone,
                CountedState::Cleaning => &mut entries.cleaning,
            },
        };
        *count += 1;
    }
    entries.cordoned += u32::from(entry.cordoned);
}

impl Caches {
    /// The entries of each pool; empty while the caches are not synced.
    pub(super) fn count_pool_entries(&self, now: Timestamp) -> BTreeMap<PoolName, PoolEntries> {
        let mut pools: BTreeMap<PoolName, PoolEntries> = BTreeMap::new();
        // Maps the namespace and name of an entry to the pools that list it.
        let mut listed: HashMap<(String, String), BTreeSet<String>> = HashMap::new();
        self.pools.for_each(|namespace, name, pool| {
            pools.insert((namespace.to_owned(), name.to_owned()), PoolEntries::default());
            for entry in &pool.inventory {
                let entry = (namespace.to_owned(), entry.clone());
                listed.entry(entry).or_default().insert(name.to_owned());
            }
        });
        self.customizations.for_each(|namespace, name, entry| {
            let mut count_in = |pool: &str| {
                let pool = (namespace.to_owned(), pool.to_owned());
                count_entry(pools.entry(pool).or_default(), entry, now);
            };
            if let Some(pool) = &entry.pool {
                return count_in(pool);
            }
            let listing = listed.get(&(namespace.to_owned(), name.to_owned()));
            listing.into_iter().flatten().for_each(|pool| count_in(pool));
        });
        merge_beyond_limit(pools)
    }
}

/// Replaces the pools beyond the limit with the sum of their entries.
fn merge_beyond_limit(mut pools: BTreeMap<PoolName, PoolEntries>) -> BTreeMap<PoolName, PoolEntries> {
    let Some(first) = pools.keys().nth(POOLS).cloned() else {
        return pools;
    };
    let mut others = PoolEntries::default();
    for entries in pools.split_off(&first).into_values() {
        others.merge(entries);
    }
    pools.insert((OTHER_POOLS.to_owned(), OTHER_POOLS.to_owned()), others);
    pools
}

#[cfg(test)]
mod tests {
    use kcp_rules::testing::case::NOW;
    use serde_json::{Value, json};

    use super::{Caches, OTHER_POOLS, POOLS, PoolEntries, PoolName};

    fn pool(name: &str, inventory: &[&str]) -> Value {
        let inventory: Vec<_> = inventory.iter().map(|name| json!({"name": name})).collect();
        json!({
            "kind": "ClusterPool", "metadata": {"name": name, "namespace": "prod"}, "spec": {"inventory": inventory}
        })
    }

    fn entry(name: &str, cordoned: bool, lease: Option<(&str, &str, &str)>) -> Value {
        let mut object = json!({
            "kind": "ClusterDeploymentCustomization", "metadata": {"name": name, "namespace": "prod"}, "spec": {}
        });
        if cordoned {
            object["metadata"]["annotations"] = json!({"kubectl-kcp.dev/cordoned": "fan"});
        }
        if let Some((pool, state, deadline)) = lease {
            let uid = if state == "in-use" { "u" } else { "-" };
            object["status"] = json!({
                "clusterDeploymentRef": {"name": "us"},
                "clusterPoolRef": {"name": pool},
                "conditions": [{
                    "type": "kubectl-kcp.dev/Lease", "status": "True", "reason": "Held",
                    "lastTransitionTime": "2026-05-01T00:00:00Z",
                    "message": format!(
                        "v1 state={state} uid={uid} holder=us id=a renewals=0 acquired=2026-05-01T00:00:00Z \
                         deadline={deadline} cluster=us/us user=jane"
                    )
                }]
            });
        }
        object
    }

    fn counted(objects: &[Value]) -> Vec<(PoolName, PoolEntries)> {
        let caches = Caches::default();
        caches.fill(objects);
        caches
            .count_pool_entries(NOW.parse().unwrap())
            .into_iter()
            .collect()
    }

    fn named(namespace: &str, name: &str) -> PoolName {
        (namespace.to_owned(), name.to_owned())
    }

    #[test]
    fn counts_entries_by_their_records() {
        let (past, future) = ("2026-06-01T11:00:00Z", "2026-06-01T13:00:00Z");
        let mut cleaned = entry("9", false, None);
        cleaned["status"] = json!({
            "clusterPoolRef": {"name": "b"},
            "conditions": [{
                "type": "kubectl-kcp.dev/Cleaning", "status": "True", "reason": "Waiting",
                "lastTransitionTime": "2026-05-01T00:00:00Z",
                "message": "v1 holder=us since=2026-05-01T00:00:00Z janitor=- deadline=- failures=0 user=jane",
            }],
        });
        let entries = counted(&[
            pool("a", &["1", "2", "3", "4", "5", "6"]),
            pool("b", &["6"]),
            entry("1", false, Some(("a", "held", future))),
            entry("2", true, Some(("a", "in-use", past))),
            entry("3", false, Some(("a", "gone", future))),
            entry("4", false, Some(("a", "gone", past))),
            entry("5", false, Some(("a", "held", past))),
            // Both pools list this entry.
            entry("6", true, None),
            // The pool of this entry no longer lists it.
            entry("7", false, Some(("b", "held", "-"))),
            // No pool lists it.
            entry("8", true, None),
            cleaned,
        ]);
        let a = PoolEntries {
            held: 2,
            cluster_gone: 1,
            expired: 2,
            cleaning: 0,
            cordoned: 2,
        };
        let b = PoolEntries {
            held: 1,
            cleaning: 1,
            cordoned: 1,
            ..PoolEntries::default()
        };
        assert_eq!(entries, [(named("prod", "a"), a), (named("prod", "b"), b)]);
    }

    #[test]
    fn counts_pools_beyond_the_limit_together() {
        let names: Vec<_> = (0..POOLS + 2).map(|number| format!("pool-{number:04}")).collect();
        let mut objects: Vec<_> = names.iter().map(|name| pool(name, &[])).collect();
        objects.extend(
            names
                .iter()
                .map(|name| entry(name, false, Some((name, "held", "-")))),
        );
        let entries = counted(&objects);
        assert_eq!(entries.len(), POOLS + 1);
        let (_, others) = entries
            .iter()
            .find(|(name, _)| *name == named(OTHER_POOLS, OTHER_POOLS))
            .unwrap();
        assert_eq!(others.held, 2);
    }
}
