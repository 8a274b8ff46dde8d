//! Predicts the effects of a change to a pool's spec on the pool's clusters and entries. No I/O. If Hive manages the pool, Hive
//! replaces the unclaimed clusters that have another version or whose entry was dropped, one cluster at a time. Hive also deletes
//! unclaimed clusters if there are more than `size`. Claimed clusters stay.

use std::fmt;

use kcp_api::{ClusterDeployment, ClusterPool, metadata::Object as _};
use kcp_rules::pool_version::have_same_hash;
use serde::Serialize;

use crate::{
    inventory::{
        capacity::Capacity,
        staleness::{PoolVersion, Staleness, is_replaceable},
    },
    objects::entry::Entry,
    snapshot::Snapshot,
    sources::lost_inventory::DROPS,
};

pub mod manifest;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    pub namespace: String,
    pub name: String,
    /// Whether the change creates the pool.
    pub is_new: bool,
    /// Whether Hive manages the pool, and therefore replaces and deletes clusters.
    pub is_managed_by_hive: bool,
    pub version: VersionChange,
    /// The unclaimed clusters that the change makes stale.
    pub stale_clusters: Vec<StaleCluster>,
    /// How many unclaimed clusters Hive deletes because `size` becomes smaller. Hive selects these clusters.
    pub excess: usize,
    pub entries: Vec<EntryChange>,
    /// The problems that the pool has after the change, one sentence each.
    pub problems: Vec<String>,
}

/// The version of the pool's spec before and after the change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct VersionChange {
    /// The version before the change; null if it is unknown, or if the change creates the pool.
    pub before: Option<String>,
    /// The version after the change; null if it is unknown.
    pub after: Option<String>,
    /// Whether the versions differ. This is known even if the versions themselves are unknown.
    #[serde(rename = "changes")]
    pub is_changed: bool,
}

/// An unclaimed cluster that the change makes stale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct StaleCluster {
    pub namespace: String,
    pub name: String,
    #[serde(rename = "reason")]
    pub why: StaleReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StaleReason {
    Version,
    DroppedFromInventory,
}

/// An entry that the change adds to or drops from the inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChange {
    pub name: String,
    pub change: InventoryChange,
    pub effect: EntryEffect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InventoryChange {
    Added,
    Dropped,
}

impl InventoryChange {
    /// The name of the change in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Dropped => "dropped",
        }
    }
}

impl PoolPlan {
    /// Whether the change makes clusters stale, or causes Hive to delete clusters.
    pub fn is_destructive(&self) -> bool {
        !self.stale_clusters.is_empty() || self.excess > 0
    }
}

/// Predicts the effects of changing the pool to `after`.
pub fn plan(snapshot: &Snapshot, after: &ClusterPool) -> PoolPlan {
    let before = snapshot.pool(after.name());
    let deployments = snapshot.cluster_deployments().into_iter();
    let clusters: Vec<&ClusterDeployment> = deployments.flat_map(|all| all.in_pool(after.name())).collect();
    let is_run_by_hive = before.is_some_and(|before| snapshot.hive.manages(before));
    let versions = Versions::new(before, after, is_run_by_hive);
    PoolPlan {
        namespace: snapshot.namespace.clone(),
        name: after.name().to_owned(),
        is_new: before.is_none(),
        is_managed_by_hive: is_run_by_hive,
        version: versions.version(),
        stale_clusters: clusters
            .iter()
            .filter_map(|cluster| versions.newly_stale(cluster))
            .collect(),
        excess: excess(after, &clusters).saturating_sub(before.map_or(0, |before| excess(before, &clusters))),
        entries: entries(snapshot, before, after, &clusters),
        problems: problems(snapshot, before, after, &clusters),
    }
}

/// The number of unclaimed clusters that exceed the pool's size. Hive deletes this number of clusters.
fn excess(pool: &ClusterPool, clusters: &[&ClusterDeployment]) -> usize {
    let capacity = Capacity::count(pool, clusters.iter().copied());
    capacity.unclaimed.saturating_sub(capacity.size)
}

/// The versions of the pool before and after the change, computed once for all clusters.
struct Versions<'p> {
    before: Option<PoolVersion<'p>>,
    after: PoolVersion<'p>,
    is_another: bool,
}

impl<'p> Versions<'p> {
    fn new(before: Option<&'p ClusterPool>, after: &'p ClusterPool, is_run_by_hive: bool) -> Self {
        let version = |pool| PoolVersion::new(pool, is_run_by_hive);
        let (old, new) = (before.map(version), version(after));
        let is_another = match (old.as_ref().and_then(PoolVersion::version), new.version()) {
            (Some(before), Some(after)) => before != after,
            _ => before.is_some_and(|before| !have_same_hash(&before.spec, &after.spec)),
        };
        Self {
            before: old,
            after: new,
            is_another,
        }
    }

    fn version(&self) -> VersionChange {
        let text = |freshness: &PoolVersion<'_>| freshness.version().map(str::to_owned);
        VersionChange {
            before: self.before.as_ref().and_then(text),
            after: text(&self.after),
            is_changed: self.is_another,
        }
    }

    fn newly_stale(&self, cluster: &ClusterDeployment) -> Option<StaleCluster> {
        let is_stale_already = self
            .before
            .as_ref()
            .is_some_and(|before| before.staleness(cluster).is_some());
        // If the version is unknown, compare the fields of the spec that determine it.
        let is_left_behind = self.is_another && self.after.version().is_none() && is_replaceable(cluster);
        let why = match self.after.staleness(cluster) {
            Some(Staleness::Version { .. }) => StaleReason::Version,
            _ if is_left_behind => StaleReason::Version,
            Some(Staleness::DroppedFromInventory { .. }) => StaleReason::DroppedFromInventory,
            None => return None,
        };
        (!is_stale_already).then(|| StaleCluster {
            namespace: cluster.namespace().to_owned(),
            name: cluster.name().to_owned(),
            why,
        })
    }
}

fn entries(
    snapshot: &Snapshot,
    before: Option<&ClusterPool>,
    after: &ClusterPool,
    clusters: &[&ClusterDeployment],
) -> Vec<EntryChange> {
    let old = before.map(ClusterPool::inventory).unwrap_or_default();
    let new = after.inventory();
    let added = new.iter().filter(|name| !old.contains(name));
    let dropped = old.iter().filter(|name| !new.contains(name));
    let added = added.map(|name| EntryChange {
        name: (*name).to_owned(),
        change: InventoryChange::Added,
        effect: effect_of_addition(snapshot, after, name),
    });
    let dropped = dropped.map(|name| EntryChange {
        name: (*name).to_owned(),
        change: InventoryChange::Dropped,
        effect: effect_of_removal(snapshot, after, name, clusters),
    });
    added.chain(dropped).collect()
}

fn effect_of_addition(snapshot: &Snapshot, pool: &ClusterPool, name: &str) -> EntryEffect {
    let others = snapshot
        .pools_that_list(name)
        .filter(|other| other.name() != pool.name());
    let others: Vec<_> = others.map(|other| other.name().to_owned()).collect();
    match snapshot.entry(name) {
        None => EntryEffect::Missing,
        Some(_) if !others.is_empty() => EntryEffect::Shared { with: others },
        Some(entry) => effect_if_held(entry).unwrap_or(EntryEffect::Free),
    }
}

fn effect_of_removal(
    snapshot: &Snapshot,
    pool: &ClusterPool,
    name: &str,
    clusters: &[&ClusterDeployment],
) -> EntryEffect {
    let user = clusters
        .iter()
        .find(|cluster| cluster.customization() == Some(name) && !cluster.is_deleting());
    if let Some(user) = user {
        let cluster = user.name().to_owned();
        return match user.claim() {
            Some(claim) => EntryEffect::ClusterClaimed {
                cluster,
                claim: claim.to_owned(),
            },
            None => EntryEffect::ClusterStale { cluster },
        };
    }
    let entry = snapshot.entry(name);
    let of_pool = entry.filter(|entry| entry.status.pool() == Some(pool.name()));
    of_pool.and_then(effect_if_held).unwrap_or(EntryEffect::Unused)
}

fn effect_if_held(entry: &Entry) -> Option<EntryEffect> {
    let holder = entry.status.holder()?.to_owned();
    Some(EntryEffect::Held { by: holder })
}

fn problems(
    snapshot: &Snapshot,
    before: Option<&ClusterPool>,
    after: &ClusterPool,
    clusters: &[&ClusterDeployment],
) -> Vec<String> {
    let capacity = Capacity::count(after, clusters.iter().copied());
    let mut problems = Vec::new();
    let is_empty = after.spec.inventory.is_some() && after.inventory().is_empty();
    if is_empty {
        problems.push(
            "the next time Hive updates the pool, it drops the empty inventory and creates clusters without customizations"
                .to_owned(),
        );
    } else if let Some(shortage) = capacity.shortage() {
        problems.push(shortage.to_string());
    }
    if after.spec.inventory.is_some() && snapshot.drops_inventory == Some(true) {
        problems.push(DROPS.to_owned());
    }
    if let Some(limit) = capacity.max_size.filter(|limit| capacity.clusters > *limit) {
        problems.push(format!(
            "maxSize is {limit}, but the pool has {} clusters: no cluster is created until some are deleted",
            capacity.clusters
        ));
    }
    if before.is_some_and(ClusterPool::is_deleting) {
        problems.push("the pool is being deleted".to_owned());
    }
    let missing = after
        .inventory()
        .into_iter()
        .filter(|name| snapshot.entry(name).is_none());
    problems.extend(missing.map(|name| format!("customization {name} does not exist")));
    problems
}

/// The effect of the change on an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryEffect {
    /// The added entry is free, so it can be leased.
    Free,
    /// The added customization does not exist yet.
    Missing,
    /// Other pools also list the added entry.
    Shared { with: Vec<String> },
    /// The dropped entry is not in use.
    Unused,
    /// An unclaimed cluster uses the dropped entry, and is stale after the change.
    ClusterStale { cluster: String },
    /// A claimed cluster uses the dropped entry, and stays.
    ClusterClaimed { cluster: String, claim: String },
    /// The dropped entry stays reserved until this ClusterDeployment releases it.
    Held { by: String },
}

impl EntryEffect {
    /// The name of the effect in JSON.
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

impl fmt::Display for EntryEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("can be leased"),
            Self::Missing => f.write_str("the customization does not exist yet"),
            Self::Shared { with } => write!(
                f,
                "also in the inventory of {}: each pool would free the other's leases",
                with.join(", ")
            ),
            Self::Unused => f.write_str("not in use"),
            Self::ClusterStale { cluster } => {
                write!(f, "unclaimed ClusterDeployment {cluster} becomes stale")
            }
            Self::ClusterClaimed { cluster, claim } => {
                write!(f, "ClusterDeployment {cluster} stays: claim {claim} uses it")
            }
            Self::Held { by } => write!(f, "stays reserved until {by} releases it"),
        }
    }
}

#[cfg(test)]
mod tests;
