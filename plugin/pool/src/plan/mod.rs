//! What a change of a pool makes of its clusters and entries. Pure. What Hive does by itself follows its controller: it
//! replaces unclaimed clusters of another version or of a dropped entry, one at a time, and deletes unclaimed ones above
//! the size; claimed ones stay as they are.

use std::fmt;

use kcp_rules::pool_version::hashes_the_same;

use crate::{
    inventory::{
        capacity::Capacity,
        staleness::{Freshness, Stale, is_replaceable},
    },
    objects::{cluster_deployment::ClusterDeployment, cluster_pool::Pool, entry::Entry},
    snapshot::Snapshot,
};

pub mod manifest;

/// What a change of a pool comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    pub namespace: String,
    pub name: String,
    /// Whether there is no such pool yet.
    pub is_new: bool,
    /// Whether Hive does by itself what follows.
    pub is_run_by_hive: bool,
    pub version: Version,
    /// Unclaimed clusters that the change makes stale.
    pub stale: Vec<StaleCluster>,
    /// How many unclaimed clusters are deleted because the size is smaller: which ones is for Hive to choose.
    pub excess: usize,
    pub entries: Vec<EntryChange>,
    /// What the change leaves wrong.
    pub problems: Vec<String>,
}

/// The version before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// None where it cannot be told, or there was no pool.
    pub before: Option<String>,
    /// None where it cannot be told.
    pub after: Option<String>,
    /// Whether they differ: that can be told of every platform.
    pub changes: bool,
}

/// A cluster that the change makes stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleCluster {
    pub namespace: String,
    pub name: String,
    pub why: WhyStale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyStale {
    Version,
    DroppedFromInventory,
}

/// An entry that the change adds or drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChange {
    pub name: String,
    pub change: Change,
    /// What comes of it.
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added,
    Dropped,
}

impl Change {
    /// In JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Dropped => "dropped",
        }
    }
}

impl PoolPlan {
    /// Whether clusters become stale or are deleted.
    pub fn is_destructive(&self) -> bool {
        !self.stale.is_empty() || self.excess > 0
    }
}

/// What comes of it when `after` takes the place of the pool of its name.
pub fn plan(snapshot: &Snapshot, after: &Pool) -> PoolPlan {
    let before = snapshot.pool(after.name());
    let clusters: Vec<&ClusterDeployment> = snapshot.deployments.of_pool(after.name()).collect();
    let versions = Versions::of(before, after);
    PoolPlan {
        namespace: snapshot.namespace.clone(),
        name: after.name().to_owned(),
        is_new: before.is_none(),
        is_run_by_hive: before.is_some_and(Pool::is_run_by_hive),
        version: versions.told(),
        stale: clusters
            .iter()
            .filter_map(|cluster| versions.newly_stale(cluster))
            .collect(),
        excess: excess(after, &clusters).saturating_sub(before.map_or(0, |before| excess(before, &clusters))),
        entries: entries(snapshot, before, after, &clusters),
        problems: problems(snapshot, before, after, &clusters),
    }
}

/// Unclaimed clusters above the size.
fn excess(pool: &Pool, clusters: &[&ClusterDeployment]) -> usize {
    let capacity = Capacity::of(pool, clusters.iter().copied());
    let going = clusters
        .iter()
        .filter(|cluster| cluster.claim().is_none() && cluster.metadata.is_deleting());
    capacity
        .unclaimed
        .saturating_sub(going.count())
        .saturating_sub(capacity.size)
}

/// The versions before and after, worked out once for all clusters.
struct Versions<'p> {
    before: Option<Freshness<'p>>,
    after: Freshness<'p>,
    is_another: bool,
}

impl<'p> Versions<'p> {
    fn of(before: Option<&'p Pool>, after: &'p Pool) -> Self {
        let (old, new) = (before.map(Freshness::of), Freshness::of(after));
        let is_another = match (old.as_ref().and_then(Freshness::version), new.version()) {
            (Some(before), Some(after)) => before != after,
            _ => before.is_some_and(|before| !hashes_the_same(&before.spec, &after.spec)),
        };
        Self {
            before: old,
            after: new,
            is_another,
        }
    }

    fn told(&self) -> Version {
        let told = |freshness: &Freshness<'_>| freshness.version().map(str::to_owned);
        Version {
            before: self.before.as_ref().and_then(told),
            after: told(&self.after),
            changes: self.is_another,
        }
    }

    fn newly_stale(&self, cluster: &ClusterDeployment) -> Option<StaleCluster> {
        let is_stale_already = self
            .before
            .as_ref()
            .is_some_and(|before| before.stale(cluster).is_some());
        // Where the version cannot be told, what goes into it can be compared.
        let is_left_behind = self.is_another && self.after.version().is_none() && is_replaceable(cluster);
        let why = match self.after.stale(cluster) {
            Some(Stale::Version { .. }) => WhyStale::Version,
            _ if is_left_behind => WhyStale::Version,
            Some(Stale::DroppedFromInventory { .. }) => WhyStale::DroppedFromInventory,
            None => return None,
        };
        (!is_stale_already).then(|| StaleCluster {
            namespace: cluster.metadata.namespace.clone(),
            name: cluster.name().to_owned(),
            why,
        })
    }
}

fn entries(
    snapshot: &Snapshot,
    before: Option<&Pool>,
    after: &Pool,
    clusters: &[&ClusterDeployment],
) -> Vec<EntryChange> {
    let old = before.map(Pool::inventory).unwrap_or_default();
    let new = after.inventory();
    let added = new.iter().filter(|name| !old.contains(name));
    let dropped = old.iter().filter(|name| !new.contains(name));
    let added = added.map(|name| EntryChange {
        name: (*name).to_owned(),
        change: Change::Added,
        effect: of_added(snapshot, after, name),
    });
    let dropped = dropped.map(|name| EntryChange {
        name: (*name).to_owned(),
        change: Change::Dropped,
        effect: of_dropped(snapshot, after, name, clusters),
    });
    added.chain(dropped).collect()
}

fn of_added(snapshot: &Snapshot, pool: &Pool, name: &str) -> Effect {
    let others = snapshot
        .pools_naming(name)
        .filter(|other| other.name() != pool.name());
    let with: Vec<_> = others.map(|other| other.name().to_owned()).collect();
    match snapshot.entry(name) {
        None => Effect::Missing,
        Some(_) if !with.is_empty() => Effect::Shared { with },
        Some(entry) => held(entry).unwrap_or(Effect::Free),
    }
}

fn of_dropped(snapshot: &Snapshot, pool: &Pool, name: &str, clusters: &[&ClusterDeployment]) -> Effect {
    let user = clusters
        .iter()
        .find(|cluster| cluster.customization() == Some(name) && !cluster.metadata.is_deleting());
    if let Some(user) = user {
        let cluster = user.name().to_owned();
        return match user.claim() {
            Some(claim) => Effect::ClusterClaimed {
                cluster,
                claim: claim.to_owned(),
            },
            None => Effect::ClusterStale { cluster },
        };
    }
    let entry = snapshot.entry(name);
    let of_pool = entry.filter(|entry| entry.pool() == Some(pool.name()));
    of_pool.and_then(held).unwrap_or(Effect::Unused)
}

fn held(entry: &Entry) -> Option<Effect> {
    let by = entry.cluster_deployment()?.to_owned();
    Some(Effect::Held { by })
}

fn problems(
    snapshot: &Snapshot,
    before: Option<&Pool>,
    after: &Pool,
    clusters: &[&ClusterDeployment],
) -> Vec<String> {
    let capacity = Capacity::of(after, clusters.iter().copied());
    let mut problems = Vec::new();
    let is_empty = after.spec.inventory.is_some() && after.inventory().is_empty();
    if is_empty {
        problems.push(
            "an empty inventory is none to Hive's next update, which then makes clusters without customizations"
                .to_owned(),
        );
    } else if let Some(shortage) = capacity.shortage() {
        problems.push(shortage.to_string());
    }
    if let Some(limit) = capacity.max_size.filter(|limit| capacity.clusters > *limit) {
        problems.push(format!(
            "maxSize is {limit}, and there are {} clusters: no cluster is made until some are gone",
            capacity.clusters
        ));
    }
    if before.is_some_and(Pool::is_deleting) {
        problems.push("the pool is being deleted".to_owned());
    }
    let missing = after
        .inventory()
        .into_iter()
        .filter(|name| snapshot.entry(name).is_none());
    problems.extend(missing.map(|name| format!("there is no customization {name}")));
    problems
}

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

#[cfg(test)]
mod tests;
