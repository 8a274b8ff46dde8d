//! Computes the state of a pool: its entries, clusters, waiting claims, and problems.

mod claims;
mod clusters;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kcp_api::{ClusterPool, metadata::Object, names::annotation::CLEAN_BEFORE_REUSE};
use kcp_client::{Connection, Error, ServerTime};
use serde::Serialize;

use crate::{
    hive::{HiveConclusion, HiveMode},
    inventory::{capacity::Capacity, staleness::PoolVersion},
    lease::{
        queue::Place,
        reuse::Reuse,
        rule::{DEFAULT_GRACE, Rule},
        usage::Usage,
    },
    objects::{
        CleaningRecord,
        entry::{APPLY_SUCCEEDED, Entry, EntryStatus, Reservation},
        record::{LeaseRecord, LeaseState},
    },
    repair::{
        decision::findings,
        finding::{Cause, LeaseProblem, ProblemSubject},
        options::RepairOptions,
    },
    snapshot::Snapshot,
    sources::{lost_inventory::LostInventory, secrets::HIVE_WORKERS},
    store::Store,
};
pub use claims::ClaimUse;
use claims::claim_uses;
use clusters::cluster_use;
pub use clusters::{ClusterUse, ClusterUseState, Delay};

/// The field manager for [`Store`], which requires one although `status` writes nothing.
const FIELD_MANAGER: &str = "kubectl-kcp";

/// How long an entry waits for a janitor before `pool status` reports a problem.
const CLEANING_DELAY: SignedDuration = SignedDuration::from_hours(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolState {
    pub namespace: String,
    pub name: String,
    pub hive: HiveConclusion,
    pub is_deleting: bool,
    /// The version of the pool's spec; `None` if this program cannot compute it.
    pub version: Option<String>,
    pub capacity: Capacity,
    /// The entries of the inventory in its order, followed by entries that are held, but no longer in the inventory.
    pub entries: Vec<EntryUse>,
    /// `None` if the clusters could not be listed. The states of entries then leave out which clusters use them.
    pub clusters: Option<Vec<ClusterUse>>,
    /// The ClusterClaims of the pool, oldest first; `None` if they could not be read.
    pub claims: Option<Vec<ClaimUse>>,
    /// The lessees that wait for an entry, in order; `None` if the queue could not be read.
    pub queue: Option<Vec<Place>>,
    /// The findings of `pool repair` about objects other than entries.
    pub leftovers: Vec<LeaseProblem>,
    /// The value of the pool's annotation `kubectl-kcp.dev/clean-before-reuse`, if it is neither `true` nor `false`.
    pub unclear_cleaning: Option<String>,
    /// Why the pool cannot create clusters, from the conditions that Hive writes.
    pub creation_obstacles: Vec<String>,
    /// What is known about the inventory, if the pool has none.
    pub lost_inventory: LostInventory,
    /// The number of workers in the install-config template; `None` unless Hive gives each cluster a different number after
    /// its installation.
    pub template_workers: Option<i64>,
    /// One sentence for each kind of object, and for each Secret, that could not be read.
    pub unread_kinds: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryUse {
    pub name: String,
    pub state: EntryUseState,
    pub is_in_inventory: bool,
    /// The name of the ClusterDeployment that holds the entry.
    pub holder: Option<String>,
    /// The name of the pool for which the entry is leased.
    pub leased_for_pool: Option<String>,
    /// When the entry was last reserved or freed.
    pub changed_at: Option<Timestamp>,
    /// The record of the entry's lease, if it has one.
    pub lease: Option<LeaseRecord>,
    /// The record of the entry's cleaning, if it must be cleaned.
    pub cleaning: Option<CleaningRecord>,
    /// What is wrong with the cleaning, in one sentence.
    pub cleaning_problem: Option<String>,
    /// Why the entry is cordoned; `None` if it is not cordoned.
    pub cordon_reason: Option<String>,
    pub last_use: Option<LastUse>,
    /// The names of other pools that also list the entry.
    pub shared_with: Vec<String>,
    /// What `pool repair` reports about the entry, if it has a problem.
    pub finding: Option<LeaseProblem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryUseState {
    Free,
    /// The entry is leased, and no cluster uses it.
    Held,
    /// A cluster uses the entry.
    InUse,
    /// The holder's cluster no longer exists, and the entry stays reserved until the lease ends.
    ClusterGone,
    /// The lease has ended. The next lease or repair frees the entry.
    Expired,
    /// The entry must be cleaned before the next lease.
    Cleaning,
    /// Hive or a person has reserved the entry, without a record.
    Reserved,
    /// The record of the lease cannot be read.
    Unreadable,
    Deleting,
    Missing,
}

/// How the last use of an entry ended, from its condition `ApplySucceeded`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct LastUse {
    /// The status of the condition: `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PoolProblem {
    /// The kind of the problem: missing, broken, shared, leaked, left, short, lost, workers, stuck, failed, stale, dirty (not cleaned)
    /// or unclear (an annotation of the pool).
    pub kind: &'static str,
    /// The object with the problem: `cdc/NAME`, or the pool.
    pub object: String,
    pub message: String,
}

impl EntryUseState {
    pub const ALL: [Self; 10] = [
        Self::Free,
        Self::Held,
        Self::InUse,
        Self::ClusterGone,
        Self::Expired,
        Self::Cleaning,
        Self::Reserved,
        Self::Unreadable,
        Self::Deleting,
        Self::Missing,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::InUse => "in-use",
            Self::ClusterGone => "gone",
            Self::Expired => "expired",
            Self::Cleaning => "cleaning",
            Self::Reserved => "reserved",
            Self::Unreadable => "unreadable",
            Self::Deleting => "deleting",
            Self::Missing => "missing",
        }
    }
}

impl LastUse {
    /// Whether the last use failed with one of Hive's reasons that begin with `Broken`.
    pub fn is_broken(&self) -> bool {
        self.status == "False" && self.reason.starts_with("Broken")
    }
}

/// Which pools to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolSelection<'s> {
    pub includes_all_namespaces: bool,
    /// The name of the only pool to read; `None` for all pools.
    pub pool: Option<&'s str>,
    /// A label selector that pools must match; `None` for all pools.
    pub labels: Option<&'s str>,
    pub hive: HiveMode,
}

/// The names of the pools in the selected namespaces, by namespace. If one namespace is selected, it is among them.
pub async fn pool_names(
    connection: &Connection,
    selection: PoolSelection<'_>,
) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
    let namespace = (!selection.includes_all_namespaces).then_some(connection.namespace.as_str());
    let store = Store::new(connection, FIELD_MANAGER);
    let mut names = store.pool_names(namespace, selection.labels).await?;
    if let Some(namespace) = namespace {
        names.entry(namespace.to_owned()).or_default();
    }
    Ok(names)
}

/// Reads the selected pools and computes the state of each.
pub async fn pool_states(
    connection: &Connection,
    selection: PoolSelection<'_>,
) -> Result<Vec<PoolState>, Error> {
    let names = if selection.includes_all_namespaces || selection.labels.is_some() {
        pool_names(connection, selection).await?
    } else {
        BTreeMap::from([(connection.namespace.clone(), BTreeSet::new())])
    };
    let mut states = Vec::new();
    for (namespace, labelled) in names {
        let found = pool_states_in(connection, namespace, selection)
            .await?
            .into_iter();
        states.extend(found.filter(|pool| selection.labels.is_none() || labelled.contains(&pool.name)));
    }
    Ok(states)
}

/// Reads the pools of one namespace, whatever their labels. The state of an entry depends on all pools of its namespace.
pub async fn pool_states_in(
    connection: &Connection,
    namespace: String,
    selection: PoolSelection<'_>,
) -> Result<Vec<PoolState>, Error> {
    let mut connection = connection.clone();
    connection.namespace = namespace;
    let store = Store::new(&connection, FIELD_MANAGER);
    let snapshot = store.snapshot(selection.hive, selection.pool).await?;
    if let Some(pool) = selection.pool
        && snapshot.pool(pool).is_none()
    {
        // Report the server's error if the pool does not exist.
        store.read_pool(pool).await?;
    }
    if snapshot.pools.is_empty() {
        store.check_namespace_exists().await?;
    }
    let is_selected = |pool: &&ClusterPool| selection.pool.is_none_or(|name| name == pool.name());
    let pools = snapshot.pools.iter().filter(is_selected);
    Ok(pools.map(|pool| pool_state(&snapshot, pool)).collect())
}

/// Computes the state of one pool.
pub fn pool_state(snapshot: &Snapshot, pool: &ClusterPool) -> PoolState {
    let options = RepairOptions {
        pool: Some(pool.name()),
        grace: DEFAULT_GRACE,
        forced: &[],
        recreate: false,
    };
    let found = findings(snapshot, &options);
    let hive = snapshot.hive.conclude(pool);
    let freshness = PoolVersion::new(pool, hive.is_managed);
    let clusters = || {
        snapshot
            .cluster_deployments()
            .into_iter()
            .flat_map(|all| all.in_pool(pool.name()))
    };
    let inventory = pool.inventory();
    let held = snapshot.entries.iter().filter(|entry| {
        let is_of_pool = entry.status.pool() == Some(pool.name());
        is_of_pool && !inventory.contains(&entry.name())
    });
    let names = inventory.iter().copied();
    let names = names.chain(held.map(Object::name));
    PoolState {
        namespace: snapshot.namespace.clone(),
        name: pool.name().to_owned(),
        hive,
        is_deleting: pool.is_deleting(),
        version: freshness.version().map(str::to_owned),
        capacity: Capacity::count(pool, clusters()),
        entries: names
            .map(|name| entry_use(snapshot, pool, name, &found))
            .collect(),
        clusters: snapshot.cluster_deployments().map(|_| {
            let uses = clusters().map(|cluster| cluster_use(snapshot, pool, cluster, &freshness));
            uses.collect()
        }),
        claims: claim_uses(snapshot, pool),
        queue: snapshot
            .queue(pool.name())
            .map(|queue| queue.waiting(pool.name(), &snapshot.entries, snapshot.now)),
        leftovers: found
            .iter()
            .filter(|finding| !matches!(finding.subject, ProblemSubject::Entry { .. }))
            .cloned()
            .collect(),
        unclear_cleaning: pool
            .unclear_cleaning()
            .filter(|_| !hive.is_managed)
            .map(str::to_owned),
        creation_obstacles: creation_problems(pool),
        lost_inventory: snapshot.lost_inventory(pool),
        template_workers: snapshot
            .secrets
            .get(pool.name())
            .and_then(|facts| facts.changed_workers),
        unread_kinds: snapshot.unread_kinds.clone(),
    }
}

/// Why Hive cannot create clusters for the pool, from the conditions that Hive writes.
fn creation_problems(pool: &ClusterPool) -> Vec<String> {
    let conditions = &pool.status.conditions;
    let is_wrong = |(condition, wrong): &(&str, &str)| conditions.status(condition) == Some(wrong);
    let wrong = [("MissingDependencies", "True"), ("CapacityAvailable", "False")]
        .into_iter()
        .filter(is_wrong);
    wrong
        .map(|(condition, status)| {
            let message = conditions.message(condition).unwrap_or_default();
            format!("{condition} is {status}: {message}")
        })
        .collect()
}

fn entry_use(snapshot: &Snapshot, pool: &ClusterPool, name: &str, found: &[LeaseProblem]) -> EntryUse {
    let entry = snapshot.entry(name);
    let seen = entry.map_or(Usage::Unknown, |entry| snapshot.clusters.usage(entry));
    let of_user = match seen {
        Usage::Used(user) => Some(user.name()),
        Usage::Unused | Usage::Unknown => None,
    };
    let is_it = |finding: &&LeaseProblem| matches!(&finding.subject, ProblemSubject::Entry { name: entry } if entry == name);
    let others = snapshot
        .pools_that_list(name)
        .filter(|other| other.name() != pool.name());
    let reservation = entry.map(|entry| entry.status.reservation());
    let state = state(snapshot, entry, reservation.as_ref(), seen);
    let (lease, cleaning) = match reservation {
        Some(Reservation::Leased(record)) => (Some(record), None),
        Some(Reservation::Cleaning(record)) => (None, Some(record)),
        _ => (None, None),
    };
    EntryUse {
        name: name.to_owned(),
        state,
        is_in_inventory: pool.inventory().contains(&name),
        holder: entry
            .and_then(|entry| entry.status.holder())
            .or(of_user)
            .map(str::to_owned),
        leased_for_pool: entry.and_then(|entry| entry.status.pool()).map(str::to_owned),
        changed_at: match &cleaning {
            Some(record) => Some(record.since),
            None => entry.and_then(EntryStatus::since),
        },
        cleaning_problem: entry
            .zip(cleaning.as_ref())
            .filter(|(entry, _)| !snapshot.hive.manages(pool) && snapshot.deleted_pool(entry).is_none())
            .and_then(|(entry, record)| cleaning_problem(record, entry.cordoned(), snapshot.now)),
        cleaning,
        lease,
        cordon_reason: entry.and_then(|entry| entry.cordoned()).map(str::to_owned),
        last_use: entry.and_then(last_use),
        shared_with: others.map(|other| other.name().to_owned()).collect(),
        finding: found.iter().find(is_it).cloned(),
    }
}

fn state(
    snapshot: &Snapshot,
    entry: Option<&Entry>,
    reservation: Option<&Reservation>,
    seen: Usage<'_>,
) -> EntryUseState {
    let (Some(entry), Some(reservation)) = (entry, reservation) else {
        return EntryUseState::Missing;
    };
    let rule = Rule {
        now: snapshot.now,
        grace: DEFAULT_GRACE,
        reuse: Reuse::Free,
    };
    match (reservation, seen) {
        (Reservation::Unreadable(_), _) => EntryUseState::Unreadable,
        (_, Usage::Used(_)) => EntryUseState::InUse,
        (Reservation::Leased(record), Usage::Unknown) if matches!(record.state, LeaseState::InUse { .. }) => {
            EntryUseState::InUse
        }
        (Reservation::Leased(record), _) if matches!(record.state, LeaseState::InUse { .. }) => {
            EntryUseState::ClusterGone
        }
        (Reservation::Leased(record), _) if rule.has_ended(record.deadline) => EntryUseState::Expired,
        (Reservation::Leased(record), _) if record.state == LeaseState::ClusterGone => {
            EntryUseState::ClusterGone
        }
        (Reservation::Leased(_), _) => EntryUseState::Held,
        (Reservation::Cleaning(_), _) => EntryUseState::Cleaning,
        (Reservation::Unrecorded, _) => EntryUseState::Reserved,
        (Reservation::Free, _) if entry.is_deleting() => EntryUseState::Deleting,
        (Reservation::Free, _) => EntryUseState::Free,
    }
}

/// What is wrong with the cleaning of an entry, in one sentence; `None` if nothing is wrong.
fn cleaning_problem(record: &CleaningRecord, cordoned: Option<&str>, now: ServerTime) -> Option<String> {
    let rule = Rule {
        now,
        grace: DEFAULT_GRACE,
        reuse: Reuse::Free,
    };
    if record.failures > 0 {
        let times = if record.failures == 1 { "time" } else { "times" };
        let what_next = if cordoned.is_some() {
            "no janitor tries again until the entry is uncordoned"
        } else {
            "the next janitor tries again"
        };
        return Some(format!(
            "cleaning failed {} {times}; {what_next}",
            record.failures
        ));
    }
    let running = record.janitor.as_ref();
    let is_running = running.is_some_and(|janitor| !rule.has_ended(Some(janitor.deadline)));
    let is_old = now.earliest.duration_since(record.since) >= CLEANING_DELAY;
    (is_old && !is_running).then(|| {
        let since = record.since.strftime("%Y-%m-%dT%H:%M:%SZ");
        format!("the entry has waited for a janitor since {since}; run pool exec --clean")
    })
}

fn last_use(entry: &Entry) -> Option<LastUse> {
    let conditions = entry.conditions();
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    Some(LastUse {
        status: conditions.status(APPLY_SUCCEEDED)?.to_owned(),
        reason: text(conditions.reason(APPLY_SUCCEEDED)),
        message: text(conditions.message(APPLY_SUCCEEDED)),
        at: conditions.last_transition_time(APPLY_SUCCEEDED),
    })
}

impl PoolState {
    pub fn count(&self, state: EntryUseState) -> usize {
        let entries = self.entries.iter().filter(|entry| entry.is_in_inventory);
        entries.filter(|entry| entry.state == state).count()
    }

    /// The claims that wait for a cluster, oldest first.
    pub fn waiting_claims(&self) -> impl Iterator<Item = &ClaimUse> {
        self.claims.iter().flatten().filter(|claim| claim.is_waiting())
    }

    pub fn count_stale_clusters(&self) -> usize {
        let clusters = self.clusters.iter().flatten();
        clusters.filter(|cluster| cluster.staleness.is_some()).count()
    }

    /// All problems: first those of the pool and its claims, then those of its entries in the inventory's order, then those of its
    /// clusters, then those of other objects.
    pub fn problems(&self) -> Vec<PoolProblem> {
        let of_entries = self.entries.iter().flat_map(EntryUse::problems);
        let left = self.leftovers.iter().map(|finding| PoolProblem {
            kind: match finding.cause {
                Cause::OldSecret { .. } => "stale",
                _ => "left",
            },
            object: finding.subject.short_name(),
            message: finding.sentence(),
        });
        let short = self.capacity.shortage();
        let short = short.map(|shortage| self.problem("short", shortage.to_string()));
        let stuck = self.creation_obstacles.iter();
        let stuck = stuck.map(|why| self.problem("stuck", why.clone()));
        let claims = self.claims.iter().flatten();
        let claims = claims.filter_map(ClaimUse::problem);
        let lost = self
            .lost_inventory
            .problem()
            .map(|message| self.problem("lost", message));
        let workers = self.template_workers.map(|workers| {
            let message = format!(
                "the install-config template has {workers} workers, but Hive changes the workers of each cluster to {HIVE_WORKERS} after \
                 the installation; set spec.skipMachinePools to true to keep the workers of the template"
            );
            self.problem("workers", message)
        });
        let unclear = self.unclear_cleaning.iter().map(|value| {
            let message = format!(
                "annotation {CLEAN_BEFORE_REUSE} is {value:?}, which counts as true; set it to true or false"
            );
            self.problem("unclear", message)
        });
        let of_pool = short
            .into_iter()
            .chain(unclear)
            .chain(lost)
            .chain(workers)
            .chain(stuck)
            .chain(claims);
        let clusters = || self.clusters.iter().flatten();
        let of_clusters = clusters().filter_map(ClusterUse::failure);
        let of_clusters = of_clusters.chain(clusters().filter_map(|cluster| cluster.delay_problem(self)));
        of_pool.chain(of_entries).chain(of_clusters).chain(left).collect()
    }
}

impl PoolState {
    /// A problem of the pool itself.
    fn problem(&self, kind: &'static str, message: String) -> PoolProblem {
        PoolProblem {
            kind,
            object: format!("clusterpool/{}", self.name),
            message,
        }
    }
}

impl EntryUse {
    fn problems(&self) -> Vec<PoolProblem> {
        let problem = |kind, message| PoolProblem {
            kind,
            object: format!("cdc/{}", self.name),
            message,
        };
        let mut problems = Vec::new();
        if self.state == EntryUseState::Missing {
            problems.push(problem(
                "missing",
                "the inventory lists this customization, but the customization does not exist".to_owned(),
            ));
        }
        if let Some(last) = self.last_use.as_ref().filter(|last| last.is_broken()) {
            problems.push(problem("broken", format!("{}: {}", last.reason, last.message)));
        }
        if !self.shared_with.is_empty() {
            let others = self.shared_with.join(", ");
            problems.push(problem("shared", format!("also in the inventory of {others}")));
        }
        if let Some(problem_of_cleaning) = &self.cleaning_problem {
            problems.push(problem("dirty", problem_of_cleaning.clone()));
        }
        if let Some(leak) = &self.finding {
            problems.push(problem("leaked", leak.sentence()));
        }
        problems
    }
}

#[cfg(test)]
mod tests;
