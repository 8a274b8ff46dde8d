//! The state of a pool: its entries, its clusters, waiting claims, and what is wrong.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kcp_client::{Connection, Error};

use crate::{
    inventory::{
        capacity::Capacity,
        staleness::{Freshness, Stale},
    },
    objects::{
        cluster_deployment::{ClusterDeployment, Life},
        cluster_pool::{Claim, Pool},
        entry::{APPLY_SUCCEEDED, Entry},
        record::Record,
    },
    repair::{
        decision::findings,
        finding::{Finding, Subject},
        options::{Clock, GRACE, Options},
    },
    snapshot::Snapshot,
    store::Store,
};

/// A field manager that writes nothing.
const READER: &str = "kubectl-kcp";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolState {
    pub namespace: String,
    pub name: String,
    pub is_run_by_hive: bool,
    pub is_deleting: bool,
    /// None if it is unknown.
    pub version: Option<String>,
    pub capacity: Capacity,
    /// The entries of the inventory in its order, then those that left it and are still held.
    pub entries: Vec<EntryUse>,
    pub clusters: Vec<ClusterUse>,
    /// Claims without a cluster, the oldest first.
    pub waiting: Vec<Waiting>,
    /// What repair would report about other objects than entries.
    pub left: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryUse {
    pub name: String,
    pub state: EntryUseState,
    pub is_in_inventory: bool,
    /// The ClusterDeployment that has it.
    pub holder: Option<String>,
    /// The pool that it is leased for.
    pub taken_for: Option<String>,
    pub since: Option<Timestamp>,
    /// When its lease ends unless it is renewed.
    pub expires: Option<Timestamp>,
    pub last_result: Option<LastUse>,
    /// Other pools that list it too.
    pub shared_with: Vec<String>,
    /// What repair would report about it.
    pub leak: Option<Finding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryUseState {
    Free,
    Reserved,
    /// Marked available, but a cluster uses it, or its references name one.
    Used,
    Deleting,
    Missing,
}

/// How the last use of an entry went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastUse {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    pub at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterUse {
    pub namespace: String,
    pub name: String,
    pub customization: Option<String>,
    pub claim: Option<String>,
    pub state: ClusterUseState,
    pub created: Option<Timestamp>,
    pub stale: Option<Stale>,
    /// Whether it is unknown if it was created from the pool's current version.
    pub has_unknown_version: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterUseState {
    Installing,
    Installed,
    Deleting,
}

/// A claim without a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub name: String,
    pub since: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// In one word: missing, broken, shared, leaked, left, short.
    pub kind: &'static str,
    /// `cdc/NAME`, or the pool.
    pub object: String,
    pub message: String,
}

impl EntryUseState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Reserved => "reserved",
            Self::Used => "used",
            Self::Deleting => "deleting",
            Self::Missing => "missing",
        }
    }
}

impl ClusterUseState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Installing => "installing",
            Self::Installed => "installed",
            Self::Deleting => "deleting",
        }
    }
}

impl LastUse {
    /// Hive's reasons for an entry that cannot be used begin so.
    pub fn is_broken(&self) -> bool {
        self.status == "False" && self.reason.starts_with("Broken")
    }
}

/// Which pools are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolSelection<'s> {
    pub is_of_all_namespaces: bool,
    /// The only one.
    pub pool: Option<&'s str>,
    /// A label selector, as the API server takes it.
    pub labels: Option<&'s str>,
}

/// The state of the selected pools.
///
/// # Errors
/// If the API server cannot be asked, or there is no such pool.
pub async fn pool_states(
    connection: &Connection,
    selection: PoolSelection<'_>,
) -> Result<Vec<PoolState>, Error> {
    let store = Store::new(connection, READER);
    let namespace = (!selection.is_of_all_namespaces).then_some(connection.namespace.as_str());
    // An entry is judged by all pools of its namespace: those without the labels are read too, and not shown.
    let labelled: Option<BTreeSet<(String, String)>> = match selection.labels {
        Some(labels) => {
            let pools = store.pools(namespace, Some(labels)).await?.into_iter();
            let key = |pool: Pool| (pool.metadata.namespace, pool.metadata.name);
            Some(pools.map(key).collect())
        }
        None => None,
    };
    let namespaces: BTreeSet<String> = match (&labelled, namespace) {
        (Some(labelled), _) => labelled.iter().map(|(namespace, _)| namespace.clone()).collect(),
        (None, Some(namespace)) => BTreeSet::from([namespace.to_owned()]),
        (None, None) => {
            let pools = store.pools(None, None).await?;
            pools.into_iter().map(|pool| pool.metadata.namespace).collect()
        }
    };
    let mut states = Vec::new();
    for namespace in namespaces {
        let mut connection = connection.clone();
        connection.namespace = namespace;
        let store = Store::new(&connection, READER);
        let snapshot = store.snapshot().await?;
        let claims = store.claims().await?;
        let clock = Clock {
            now: Timestamp::now(),
            grace: GRACE,
        };
        if let Some(pool) = selection.pool
            && snapshot.pool(pool).is_none()
        {
            // The server's own error says that there is none.
            store.pool(pool).await?;
        }
        let is_selected = |pool: &&Pool| {
            let key = (pool.metadata.namespace.clone(), pool.metadata.name.clone());
            selection.pool.is_none_or(|name| name == pool.name())
                && labelled.as_ref().is_none_or(|labelled| labelled.contains(&key))
        };
        let pools = snapshot.pools.iter().filter(is_selected);
        states.extend(pools.map(|pool| pool_state(&snapshot, &claims, pool, clock)));
    }
    Ok(states)
}

/// The state of one pool.
pub fn pool_state(snapshot: &Snapshot, claims: &[Claim], pool: &Pool, clock: Clock) -> PoolState {
    let options = Options {
        pool: Some(pool.name()),
        clock,
        forced: &[],
        install_config: None,
    };
    let found = findings(snapshot, &options);
    let freshness = Freshness::of(pool);
    let clusters = || snapshot.deployments.of_pool(pool.name());
    let inventory = pool.inventory();
    let held = snapshot.entries.iter().filter(|entry| {
        let is_of_pool = entry.pool() == Some(pool.name());
        is_of_pool && !inventory.contains(&entry.name())
    });
    let names = inventory.iter().copied();
    let names = names.chain(held.map(Entry::name));
    let mut waiting: Vec<_> = claims
        .iter()
        .filter(|claim| claim.spec.cluster_pool_name == pool.name() && claim.cluster().is_none())
        .map(|claim| Waiting {
            name: claim.metadata.name.clone(),
            since: claim.metadata.creation_timestamp,
        })
        .collect();
    waiting.sort_by(|a, b| (a.since, &a.name).cmp(&(b.since, &b.name)));
    PoolState {
        namespace: snapshot.namespace.clone(),
        name: pool.name().to_owned(),
        is_run_by_hive: pool.is_run_by_hive(),
        is_deleting: pool.is_deleting(),
        version: freshness.version().map(str::to_owned),
        capacity: Capacity::of(pool, clusters()),
        entries: names
            .map(|name| entry_use(snapshot, pool, name, &found))
            .collect(),
        clusters: clusters()
            .map(|cluster| cluster_use(cluster, &freshness))
            .collect(),
        waiting,
        left: found
            .iter()
            .filter(|finding| !matches!(finding.subject, Subject::Entry { .. }))
            .cloned()
            .collect(),
    }
}

fn entry_use(snapshot: &Snapshot, pool: &Pool, name: &str, found: &[Finding]) -> EntryUse {
    let entry = snapshot.entry(name);
    let user = snapshot
        .deployments
        .of_namespace()
        .find(|cluster| cluster.customization() == Some(name) && cluster.life() != Life::Over);
    let of_user = || user.map(ClusterDeployment::name);
    let is_it = |finding: &&Finding| matches!(&finding.subject, Subject::Entry { name: of } if of == name);
    let others = snapshot
        .pools_naming(name)
        .filter(|other| other.name() != pool.name());
    EntryUse {
        name: name.to_owned(),
        state: state(entry, user),
        is_in_inventory: pool.inventory().contains(&name),
        holder: entry
            .and_then(Entry::cluster_deployment)
            .or_else(of_user)
            .map(str::to_owned),
        taken_for: entry.and_then(Entry::pool).map(str::to_owned),
        since: entry.and_then(Entry::since),
        expires: entry.and_then(|entry| lease(snapshot, entry)?.expires()),
        last_result: entry.and_then(last_use),
        shared_with: others.map(|other| other.name().to_owned()).collect(),
        leak: found.iter().find(is_it).cloned(),
    }
}

fn state(entry: Option<&Entry>, user: Option<&ClusterDeployment>) -> EntryUseState {
    let Some(entry) = entry else {
        return EntryUseState::Missing;
    };
    if entry.is_reserved() {
        EntryUseState::Reserved
    } else if user.is_some() || entry.cluster_deployment().is_some() || entry.pool().is_some() {
        EntryUseState::Used
    } else if entry.is_deleting() {
        EntryUseState::Deleting
    } else {
        EntryUseState::Free
    }
}

/// The entry's record, if it names the entry's holder.
fn lease<'s>(snapshot: &'s Snapshot, entry: &Entry) -> Option<&'s Record> {
    let record = snapshot.record(entry.name())?;
    (record.cluster_deployment() == entry.cluster_deployment() && record.pool() == entry.pool())
        .then_some(record)
}

fn last_use(entry: &Entry) -> Option<LastUse> {
    let conditions = entry.conditions();
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    Some(LastUse {
        status: conditions.status(APPLY_SUCCEEDED)?.to_owned(),
        reason: text(conditions.reason(APPLY_SUCCEEDED)),
        message: text(conditions.message(APPLY_SUCCEEDED)),
        at: conditions.since(APPLY_SUCCEEDED),
    })
}

fn cluster_use(cluster: &ClusterDeployment, freshness: &Freshness<'_>) -> ClusterUse {
    ClusterUse {
        namespace: cluster.metadata.namespace.clone(),
        name: cluster.name().to_owned(),
        customization: cluster.customization().map(str::to_owned),
        claim: cluster.claim().map(str::to_owned),
        state: match cluster.is_installed {
            _ if cluster.metadata.is_deleting() => ClusterUseState::Deleting,
            true => ClusterUseState::Installed,
            false => ClusterUseState::Installing,
        },
        created: cluster.metadata.creation_timestamp,
        stale: freshness.stale(cluster),
        has_unknown_version: freshness.is_unknown(cluster),
    }
}

impl PoolState {
    pub fn count(&self, state: EntryUseState) -> usize {
        let entries = self.entries.iter().filter(|entry| entry.is_in_inventory);
        entries.filter(|entry| entry.state == state).count()
    }

    pub fn stale(&self) -> usize {
        self.clusters
            .iter()
            .filter(|cluster| cluster.stale.is_some())
            .count()
    }

    /// Everything that is wrong, in the order of the entries.
    pub fn problems(&self) -> Vec<Problem> {
        let of_entries = self.entries.iter().flat_map(EntryUse::problems);
        let left = self.left.iter().map(|finding| Problem {
            kind: "left",
            object: finding.subject.short_name(),
            message: finding.sentence(),
        });
        let short = self.capacity.shortage().map(|shortage| Problem {
            kind: "short",
            object: format!("clusterpool/{}", self.name),
            message: shortage.to_string(),
        });
        short.into_iter().chain(of_entries).chain(left).collect()
    }
}

impl EntryUse {
    fn problems(&self) -> Vec<Problem> {
        let problem = |kind, message| Problem {
            kind,
            object: format!("cdc/{}", self.name),
            message,
        };
        let mut problems = Vec::new();
        if self.state == EntryUseState::Missing {
            problems.push(problem(
                "missing",
                "in the inventory, but does not exist".to_owned(),
            ));
        }
        if let Some(last) = self.last_result.as_ref().filter(|last| last.is_broken()) {
            problems.push(problem("broken", format!("{}: {}", last.reason, last.message)));
        }
        if !self.shared_with.is_empty() {
            let others = self.shared_with.join(", ");
            problems.push(problem("shared", format!("also in the inventory of {others}")));
        }
        if let Some(leak) = &self.leak {
            problems.push(problem("leaked", leak.sentence()));
        }
        problems
    }
}

#[cfg(test)]
mod tests;
