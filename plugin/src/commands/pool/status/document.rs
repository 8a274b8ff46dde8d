//! Describes the state of pools as JSON and YAML. `plugin/schema` contains the schemas.

use jiff::Timestamp;
use kcp_pool::{
    inventory::{capacity::Capacity, staleness::Staleness},
    lease::queue::Place,
    objects::CleaningRecord,
    status::{ClaimUse, ClusterUse, EntryUse, LastUse, PoolProblem, PoolState},
};
use serde::Serialize;

use crate::{
    commands::pool::PoolDocumentName,
    document::{Document, Versioned},
};

/// The status of several pools.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolStatusList {
    items: Vec<Versioned<PoolStatus>>,
}

impl Document for PoolStatusList {
    const KIND: &'static str = "PoolStatusList";
}

/// The status of one pool.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolStatus {
    metadata: PoolDocumentName,
    /// Whether Hive manages the pool. Also true if this is unknown; `concludedFrom` then says why.
    run_by_hive: bool,
    /// The evidence for the value of `runByHive`.
    concluded_from: String,
    deleting: bool,
    /// The version of the pool's spec; null if it cannot be computed, because the platform has a field that only a newer
    /// Hive knows.
    version: Option<String>,
    capacity: CapacityDocument,
    /// Whether the server drops an inventory, because its ClusterPool CRD has no field `spec.inventory`. Absent if the
    /// pool has an inventory, or if this is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    drops_inventory: Option<bool>,
    entries: Vec<EntryDocument>,
    clusters: Vec<ClusterDocument>,
    /// The ClusterClaims that have a cluster, oldest first.
    claims: Vec<ClaimDocument>,
    /// The ClusterClaims that wait for a cluster, oldest first.
    waiting: Vec<WaitingDocument>,
    /// The lessees that wait for an entry, in the order in which they get one. Absent if the queue could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<Vec<PlaceDocument>>,
    problems: Vec<PoolProblem>,
    /// One sentence for each kind of object that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unseen: Vec<String>,
}

impl Document for PoolStatus {
    const KIND: &'static str = "PoolStatus";
}

/// A pool's limits, and how many clusters count against each.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CapacityDocument {
    #[serde(flatten)]
    capacity: Capacity,
    stale: usize,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct EntryDocument {
    name: String,
    /// One of: free, held, in-use (by a cluster), gone (the cluster has been deleted, but the entry is still
    /// reserved), expired, cleaning (must be cleaned before the next lease), reserved (without a record), unreadable, deleting,
    /// missing.
    state: &'static str,
    /// Whether the inventory lists the entry. False for an entry that was removed from the inventory while a
    /// ClusterDeployment held it.
    in_inventory: bool,
    /// The `ClusterDeployment` that holds the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    /// The pool for which the entry is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// When the entry was last reserved or freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// When the lease ends unless it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_id: Option<String>,
    /// The user who leased the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// The cleaning of the entry; absent if the entry need not be cleaned.
    #[serde(skip_serializing_if = "Option::is_none")]
    cleaning: Option<CleaningDocument>,
    /// Why the entry is cordoned; absent if it is not cordoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    cordoned: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_result: Option<LastUse>,
    /// The other pools that also list the entry.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shared_with: Vec<String>,
    /// The cause of the entry's problem, as `pool repair` names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    leak: Option<&'static str>,
}

/// The cleaning of an entry between two holders.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct CleaningDocument {
    /// The `ClusterDeployment` that held the entry last; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_holder: Option<String>,
    /// When the last lease was released or ended.
    since: Timestamp,
    /// The id of the janitor that cleans the entry; absent if the entry waits for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    janitor: Option<String>,
    /// When another janitor may take the entry unless this one renews its hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    janitor_until: Option<Timestamp>,
    /// How many times a janitor has failed to clean the entry.
    failures: u32,
    /// The user who acquired the last lease; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ClusterDocument {
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    customization: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    /// One of: installing, failed, installed, deleting.
    state: &'static str,
    /// `Running`, `Hibernating` or a state in between, as Hive reports it. Hive assigns only running clusters to claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    power_state: Option<String>,
    /// Why Hive replaces the cluster. One of: other-version, no-version, dropped-from-inventory. Absent if the cluster is
    /// not stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    stale: Option<&'static str>,
    /// Whether it is unknown if the cluster was created from the pool's current version.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    version_unknown: bool,
    /// The version from which a stale cluster was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_from: Option<String>,
}

/// A ClusterClaim that has a cluster.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ClaimDocument {
    name: String,
    /// The ClusterDeployment that Hive assigned.
    cluster_deployment: String,
    /// The id of the claim; absent if another program created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_id: Option<String>,
    /// The user who created the claim; absent if another program created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// When Hive deletes the claim and its cluster; absent if the claim has no lifetime.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<Timestamp>,
    deleting: bool,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct WaitingDocument {
    claim: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
}

/// A lessee that waits for entries.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct PlaceDocument {
    /// The name of the ClusterDeployment that will hold the entry.
    holder: String,
    since: Timestamp,
    /// When the place in the queue ends unless the lessee renews it.
    ends: Timestamp,
    /// How many entries the lessee wants at once; absent for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
}

impl PoolStatusList {
    pub(crate) fn new(pools: &[PoolState]) -> Self {
        Self {
            items: pools
                .iter()
                .map(|pool| Versioned(PoolStatus::new(pool)))
                .collect(),
        }
    }
}

impl PoolStatus {
    pub(crate) fn new(pool: &PoolState) -> Self {
        Self {
            metadata: PoolDocumentName {
                namespace: pool.namespace.clone(),
                name: pool.name.clone(),
            },
            run_by_hive: pool.hive.is_managed,
            concluded_from: pool.hive.evidence.to_string(),
            deleting: pool.is_deleting,
            version: pool.version.clone(),
            capacity: CapacityDocument {
                capacity: pool.capacity,
                stale: pool.count_stale_clusters(),
            },
            drops_inventory: pool.lost_inventory.is_dropped,
            entries: pool.entries.iter().map(EntryDocument::new).collect(),
            clusters: pool.clusters.iter().flatten().map(ClusterDocument::new).collect(),
            claims: pool
                .claims
                .iter()
                .flatten()
                .filter_map(ClaimDocument::new)
                .collect(),
            waiting: pool.waiting_claims().map(WaitingDocument::new).collect(),
            queue: pool
                .queue
                .as_ref()
                .map(|queue| queue.iter().map(PlaceDocument::new).collect()),
            problems: pool.problems(),
            unseen: pool.unread_kinds.clone(),
        }
    }
}

impl EntryDocument {
    fn new(entry: &EntryUse) -> Self {
        Self {
            name: entry.name.clone(),
            state: entry.state.as_str(),
            in_inventory: entry.is_in_inventory,
            holder: entry.holder.clone(),
            pool: entry.leased_for_pool.clone(),
            since: entry.changed_at,
            expires: entry.lease.as_ref().and_then(|lease| lease.deadline),
            lease_id: entry.lease.as_ref().map(|lease| lease.id.clone()),
            user: entry.lease.as_ref().and_then(|lease| lease.user.clone()),
            cleaning: entry.cleaning.as_ref().map(CleaningDocument::new),
            cordoned: entry.cordon_reason.clone(),
            last_result: entry.last_use.clone(),
            shared_with: entry.shared_with.clone(),
            leak: entry.finding.as_ref().map(|leak| leak.cause.as_str()),
        }
    }
}

impl CleaningDocument {
    fn new(record: &CleaningRecord) -> Self {
        let janitor = record.janitor.as_ref();
        Self {
            last_holder: record.holder.clone(),
            since: record.since,
            janitor: janitor.map(|janitor| janitor.id.clone()),
            janitor_until: janitor.map(|janitor| janitor.deadline),
            failures: record.failures,
            user: record.user.clone(),
        }
    }
}

impl ClusterDocument {
    fn new(cluster: &ClusterUse) -> Self {
        let (stale, made_from) = match &cluster.staleness {
            None => (None, None),
            Some(Staleness::Version { made_from: None }) => (Some("no-version"), None),
            Some(Staleness::Version { made_from }) => (Some("other-version"), made_from.clone()),
            Some(Staleness::DroppedFromInventory { .. }) => (Some("dropped-from-inventory"), None),
        };
        Self {
            namespace: cluster.namespace.clone(),
            name: cluster.name.clone(),
            customization: cluster.customization.clone(),
            claim: cluster.claim.clone(),
            state: cluster.state.as_str(),
            power_state: cluster.power.clone(),
            stale,
            version_unknown: cluster.has_unknown_version,
            made_from,
        }
    }
}

impl ClaimDocument {
    /// `None` if the claim waits for a cluster.
    fn new(claim: &ClaimUse) -> Option<Self> {
        Some(Self {
            name: claim.name.clone(),
            cluster_deployment: claim.cluster.clone()?,
            lease_id: claim.id.clone(),
            user: claim.user.clone(),
            ends: claim.ends,
            deleting: claim.is_deleting,
        })
    }
}

impl PlaceDocument {
    fn new(place: &Place) -> Self {
        Self {
            holder: place.holder.clone(),
            since: place.since,
            ends: place.until,
            count: (place.count > 1).then_some(place.count),
        }
    }
}

impl WaitingDocument {
    fn new(claim: &ClaimUse) -> Self {
        Self {
            claim: claim.name.clone(),
            since: claim.created,
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_pool::testing::states::states;

    use super::{PoolStatus, PoolStatusList};
    use crate::document::Versioned;
    use crate::testing::schema::{checked_in, faults, of};

    #[test]
    fn documents() {
        let schema = serde_json::to_value(of::<PoolStatus>()).unwrap();
        for (name, state) in states() {
            let document = serde_json::to_value(Versioned(PoolStatus::new(&state))).unwrap();
            assert_eq!(faults(&schema, &document), Vec::<String>::new(), "{name}");
            insta::with_settings!({snapshot_path => "../snapshots"}, {
                insta::assert_snapshot!(name, serde_json::to_string_pretty(&document).unwrap());
            });
        }
        let states: Vec<_> = states().into_iter().map(|(_, state)| state).collect();
        let list = serde_json::to_value(Versioned(PoolStatusList::new(&states))).unwrap();
        let schema = serde_json::to_value(of::<PoolStatusList>()).unwrap();
        assert_eq!(faults(&schema, &list), Vec::<String>::new());
    }

    #[test]
    fn the_schemas_are_checked_in() {
        checked_in::<PoolStatus>("poolstatus.json");
        checked_in::<PoolStatusList>("poolstatuslist.json");
    }
}
