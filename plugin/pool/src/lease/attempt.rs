//! One attempt to lease entries of an inventory for a holder: mostly one, or several with [`several`].
//!
//! One write of an entry acquires a lease. If the holder already has a lease, this module writes the lease again before it
//! reports the lease. The write changes the entry's resourceVersion, so that the server rejects a release by a client that read
//! the entry earlier. After it has written a lease, this module lists the clusters again. If a cluster of another holder uses the
//! entry, this module gives the lease to that holder.

mod several;

use std::collections::{BTreeMap, BTreeSet};

use kcp_api::metadata::Object as _;
use kcp_client::Error;

use crate::{
    install_config::{
        InstallConfig,
        patches::{PatchProblem, PatchedInstallConfig, patch_install_config},
    },
    lease::{
        DEFAULT_TTL, LeaseError, Ttl,
        access::LeaseStore,
        choice::{Availability, Inventory, InventorySlot, LeaseChoice, RecordUpdate, UnusableReason},
        generated_name::generate_lease_id,
        order::{ahead, offered},
        queue::{Place, Queue},
        reuse::Reuse,
        rule::{DEFAULT_GRACE, Rule},
        usage::{Clusters, Usage, belongs_to_holder, belongs_to_lease, clusters_using, uses},
        write::{WriteResult, write_status},
    },
    objects::{
        ClusterName, Holder,
        cluster_deployment::ClusterDeployment,
        entry::{Entry, EntryStatus as _, Reservation},
        record::{LeaseRecord, LeaseState},
    },
};
use several::{give_back, take_several};

/// How many times at most to list the entries again, if other clients have leased every free entry in the meantime. In each round
/// at least one client gets an entry, so the limit is reached only if entries are released as fast as they are leased.
const MAX_ROUNDS: usize = 32;

/// The holder, the pool, and the conditions of one attempt to lease entries.
#[derive(Clone, Copy, Debug)]
pub struct AttemptRequest<'r> {
    /// The names of the entries in the pool's inventory that the request selects.
    pub names: &'r [&'r str],
    /// The other names in the pool's inventory.
    pub unselected: &'r [&'r str],
    pub clusters: &'r Clusters,
    pub holder: Holder<'r>,
    /// How many entries the holder wants.
    pub count: usize,
    /// How long the lease lasts. If `None`, a new lease gets the default, and an existing lease keeps its end.
    pub ttl: Option<Ttl>,
    /// The cluster that the holder will create; `None` if the holder creates no cluster.
    pub cluster: Option<&'r ClusterName>,
    pub user: Option<&'r str>,
    /// The install-config to which the entry's patches must be applicable; `None` to leave the patches unchecked.
    pub install_config: Option<&'r InstallConfig>,
    /// Whether to refuse if the holder already has a lease, because another process may use it.
    pub must_be_new: bool,
    /// The only entry that the request accepts; `None` accepts every entry in `names`.
    pub only_entry: Option<&'r str>,
    /// The lessees in the queue that the request may overtake.
    pub overtaken: &'r [Place],
    /// What becomes of the pool's entries when their leases end.
    pub reuse: Reuse,
}

#[derive(Debug)]
pub struct Attempt {
    pub outcome: AttemptOutcome,
    /// All entries of the namespace, as they were last listed.
    pub entries: Vec<Entry>,
    /// The entries of the inventory that the request does not accept, because it does not select them or their patches cannot be
    /// applied, and their states for others.
    pub others: Vec<(String, Availability)>,
    /// Why the queue could not be read. The request may then have overtaken lessees that wait.
    pub queue_error: Option<Error>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    Leased(Box<LeasedEntry>),
    /// The holder wanted several entries, and has exactly these.
    LeasedSet(LeasedSet),
    /// No entry of the inventory is free, or others have waited longer for the free ones. Contains each entry's name and
    /// state.
    Exhausted(Vec<(String, Availability)>),
    /// The holder must get this entry again, because its cluster or an earlier lease refers to it. But the entry is not
    /// available.
    BoundButUnavailable {
        customization: String,
        availability: Availability,
    },
    /// The holder already holds this entry, but the request is for a new lease.
    AlreadyHeld {
        customization: String,
    },
    /// The holder already has this entry, and the request is for another one.
    HeldInstead {
        customization: String,
        requested: String,
    },
    /// The holder already has these entries, or its cluster uses them: more than the request is for.
    HeldMore {
        customizations: Vec<String>,
    },
    /// The holder has this entry, but its patches cannot be applied.
    HeldWithPatchProblem {
        customization: String,
        why: PatchProblem,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedEntry {
    pub customization: String,
    pub record: LeaseRecord,
    /// Whether the holder already held the entry before the request.
    pub was_already_held: bool,
    /// The install-config with the entry's patches applied; `None` if the request had no install-config.
    pub patched_install_config: Option<PatchedInstallConfig>,
    /// Entries that were skipped, because their patches cannot be applied to the install-config.
    pub patch_problems: PatchProblems,
}

/// Several entries of one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedSet {
    /// Sorted by name.
    pub entries: Vec<LeasedEntry>,
    /// Entries that were skipped, because their patches cannot be applied to the install-config.
    pub patch_problems: PatchProblems,
}

pub type PatchProblems = BTreeMap<String, PatchProblem>;

type EntriesByName<'l> = BTreeMap<&'l str, &'l Entry>;

impl AttemptOutcome {
    /// The entries that the holder has; empty if it got none.
    pub fn leased(&self) -> &[LeasedEntry] {
        match self {
            Self::Leased(leased) => std::slice::from_ref(leased),
            Self::LeasedSet(set) => &set.entries,
            _ => &[],
        }
    }

    /// The names of the entries whose patches neither this program nor Hive can apply.
    pub fn broken_entries(&self) -> BTreeSet<&str> {
        let is_unusable_by_patch = |availability: &Availability| match availability {
            Availability::Unusable(UnusableReason::Patches(why)) => is_broken(why),
            _ => false,
        };
        match self {
            Self::Leased(leased) => names_of_broken(&leased.patch_problems),
            Self::LeasedSet(set) => names_of_broken(&set.patch_problems),
            Self::Exhausted(availabilities) => {
                let broken = availabilities
                    .iter()
                    .filter(|(_, availability)| is_unusable_by_patch(availability));
                broken.map(|(name, _)| name.as_str()).collect()
            }
            Self::HeldWithPatchProblem { customization, why } if is_broken(why) => {
                BTreeSet::from([customization.as_str()])
            }
            Self::BoundButUnavailable {
                customization,
                availability,
            } if is_unusable_by_patch(availability) => BTreeSet::from([customization.as_str()]),
            Self::BoundButUnavailable { .. }
            | Self::AlreadyHeld { .. }
            | Self::HeldInstead { .. }
            | Self::HeldMore { .. }
            | Self::HeldWithPatchProblem { .. } => BTreeSet::new(),
        }
    }
}

const fn is_broken(why: &PatchProblem) -> bool {
    matches!(why, PatchProblem::Broken(_))
}

fn names_of_broken(problems: &PatchProblems) -> BTreeSet<&str> {
    let broken = problems.iter().filter(|(_, why)| is_broken(why));
    broken.map(|(name, _)| name.as_str()).collect()
}

/// What the rounds of an attempt have found and done so far.
#[derive(Debug, Default)]
struct Progress {
    patch_problems: PatchProblems,
    /// Of several entries, those that this attempt has leased and nobody has been told of.
    taken: Vec<LeasedEntry>,
}

/// Leases the entries, or confirms the leases that the holder already has. Fails if the API server cannot be reached or refuses a
/// request, or other clients lease every free entry first. If it is unknown whether an entry was leased, the error says so, and
/// the user can run the same command again to find out.
pub async fn attempt<S: LeaseStore>(store: &S, request: AttemptRequest<'_>) -> Result<Attempt, LeaseError> {
    let mut progress = Progress::default();
    let attempted = rounds(store, request, &mut progress).await;
    if let Ok(Attempt {
        outcome: AttemptOutcome::LeasedSet(_),
        ..
    }) = attempted
    {
        return attempted;
    }
    let (given_back, error) = give_back(store, &progress.taken).await;
    let mut attempt = attempted?;
    if let Some(error) = error {
        return Err(error);
    }
    if let AttemptOutcome::Exhausted(states) = &mut attempt.outcome {
        let given_back = |(name, _): &&mut (String, Availability)| given_back.contains(&name.as_str());
        for (_, state) in states.iter_mut().filter(given_back) {
            *state = Availability::Free;
        }
    }
    Ok(attempt)
}

async fn rounds<S: LeaseStore>(
    store: &S,
    request: AttemptRequest<'_>,
    progress: &mut Progress,
) -> Result<Attempt, LeaseError> {
    // The clusters, once this attempt has listed them itself.
    let mut listed: Option<Clusters> = None;
    let mut queue_error = None;
    for _ in 0..MAX_ROUNDS {
        let request = AttemptRequest {
            clusters: listed.as_ref().unwrap_or(request.clusters),
            ..request
        };
        let entries = store.list().await?;
        let by_name: EntriesByName<'_> = entries.iter().map(|entry| (entry.name(), entry)).collect();
        let reuse = reuse_of(store, &by_name, request).await?;
        let inventory = Inventory {
            slots: with_reuse(slots(request, &by_name, &progress.patch_problems), &reuse),
            clusters: request.clusters,
            rule: rule(store, request.clusters),
        };
        let others = Inventory {
            slots: with_reuse(other_slots(request, &by_name, &progress.patch_problems), &reuse),
            ..inventory
        };
        let others = others.availabilities(request.holder);
        let mut choice = inventory.choose(request.holder, request.count);
        if let Some((free, wanted)) = choice.candidates() {
            let queue = read_queue(store, request.holder.pool, &mut queue_error).await?;
            let waiting = queue.waiting(request.holder.pool, &entries, store.now());
            *free = left_by_others(free, wanted, &others, &waiting, request);
            if free.is_empty() {
                choice = inventory.exhausted(request.holder);
            }
        }
        let round = match choice {
            LeaseChoice::Held(held) if request.must_be_new => {
                RoundOutcome::Ended(AttemptOutcome::AlreadyHeld {
                    customization: held.name().to_owned(),
                })
            }
            LeaseChoice::Held(held) => match request.only_entry.filter(|only| *only != held.name()) {
                Some(only) => RoundOutcome::Ended(AttemptOutcome::HeldInstead {
                    customization: held.name().to_owned(),
                    requested: only.to_owned(),
                }),
                None => confirm(store, held, request).await?,
            },
            LeaseChoice::BoundButUnavailable { name, availability } => {
                RoundOutcome::Ended(AttemptOutcome::BoundButUnavailable {
                    customization: name.to_owned(),
                    availability,
                })
            }
            LeaseChoice::Exhausted {
                availabilities,
                record_updates,
            } => {
                for RecordUpdate {
                    entry,
                    pool,
                    transition,
                } in record_updates
                {
                    // One attempt to write the record is enough: if another client has changed the entry, the next check
                    // decides again.
                    if let Some(patch) = transition.patch(entry, &pool, store.now().latest) {
                        store.write_status(entry.name(), &patch).await?;
                    }
                }
                RoundOutcome::Ended(AttemptOutcome::Exhausted(owned(availabilities)))
            }
            LeaseChoice::Own(own) => {
                try_entries(store, &[own], request, &mut progress.patch_problems).await?
            }
            LeaseChoice::Free(free) => {
                try_entries(store, &free, request, &mut progress.patch_problems).await?
            }
            LeaseChoice::Several(entries) => take_several(store, &entries, request, progress).await?,
            LeaseChoice::HeldMore(held) => RoundOutcome::Ended(AttemptOutcome::HeldMore {
                customizations: held.iter().map(|entry| entry.name().to_owned()).collect(),
            }),
        };
        match round {
            RoundOutcome::Ended(outcome) => {
                let others = others.into_iter();
                return Ok(Attempt {
                    outcome,
                    others: owned(others.map(|(slot, availability)| (slot.name, availability))),
                    entries,
                    queue_error,
                });
            }
            RoundOutcome::ListAgain => {}
            RoundOutcome::Withdrawn(clusters) => listed = Some(clusters),
        }
    }
    Err(Error::Contended {
        goal: format!(
            "lease an entry from the inventory of pool {}",
            request.holder.pool
        ),
        attempts: MAX_ROUNDS,
    }
    .into())
}

/// Reads the queue of the pool. Without permission, continues with an empty queue, and keeps the error.
async fn read_queue(
    store: &impl LeaseStore,
    pool: &str,
    forbidden: &mut Option<Error>,
) -> Result<Queue, Error> {
    match store.queue(pool).await {
        Err(error @ Error::Forbidden { .. }) => {
            *forbidden = Some(error);
            Ok(Queue::default())
        }
        queue => queue,
    }
}

/// Of the free entries, those that are left if the lessees ahead get theirs. Empty if fewer than `wanted` are left.
fn left_by_others<'e>(
    free: &[&'e Entry],
    wanted: usize,
    others: &[(&InventorySlot<'_>, Availability)],
    waiting: &[Place],
    request: AttemptRequest<'_>,
) -> Vec<&'e Entry> {
    let mut ahead = ahead(waiting, request.holder.cluster_deployment);
    ahead.retain(|place| !request.overtaken.iter().any(|overtaken| place.is_of(overtaken)));
    let free_others = others
        .iter()
        .filter(|(_, availability)| *availability == Availability::Free);
    let free_others: Vec<_> = free_others.filter_map(|(slot, _)| slot.entry).collect();
    offered(free, &free_others, &ahead, wanted)
}

fn owned<'n>(states: impl IntoIterator<Item = (&'n str, Availability)>) -> Vec<(String, Availability)> {
    let states = states.into_iter();
    states.map(|(name, state)| (name.to_owned(), state)).collect()
}

fn rule(store: &impl LeaseStore, clusters: &Clusters) -> Rule {
    Rule {
        now: clusters.time_of_check(store.now()),
        grace: DEFAULT_GRACE,
        reuse: Reuse::Free,
    }
}

/// What becomes of the entries whose leases have ended, by name, if they are not free. Another pool, for which an entry is leased
/// that both pools list, may ask for something else than the pool of the request.
async fn reuse_of(
    store: &impl LeaseStore,
    by_name: &EntriesByName<'_>,
    request: AttemptRequest<'_>,
) -> Result<BTreeMap<String, Reuse>, Error> {
    let rule = rule(store, request.clusters);
    let mut reuse = BTreeMap::new();
    for name in request.names.iter().chain(request.unselected) {
        let Some(entry) = by_name.get(name) else { continue };
        let Reservation::Leased(record) = entry.status.reservation() else {
            continue;
        };
        if rule.has_ended(record.deadline) && !matches!(record.state, LeaseState::InUse { .. }) {
            let is_of_pool = entry.status.pool() == Some(request.holder.pool);
            let found = if is_of_pool {
                request.reuse
            } else {
                store.reuse(entry).await?
            };
            reuse.insert((*name).to_owned(), found);
        }
    }
    Ok(reuse)
}

/// The record of a new lease of the entry by the requesting holder.
fn new_record(store: &impl LeaseStore, entry: &Entry, request: AttemptRequest<'_>) -> LeaseRecord {
    let now = store.now();
    let ttl = request.ttl.unwrap_or(Ttl::For(DEFAULT_TTL));
    let state = match request.clusters.usage(entry) {
        Usage::Used(cluster) => LeaseState::InUse {
            uid: cluster.uid().to_owned(),
        },
        Usage::Unused | Usage::Unknown => LeaseState::Held,
    };
    LeaseRecord {
        state,
        holder: request.holder.cluster_deployment.to_owned(),
        id: generate_lease_id(),
        renewals: 0,
        acquired: LeaseRecord::round_up_to_second(now.latest),
        deadline: ttl.deadline(now),
        cluster: request.cluster.cloned(),
        user: request.user.map(str::to_owned),
    }
}

/// The record that confirms a lease that the holder already has. If that lease has ended, the record gets a new id, because
/// a process that uses the old id has lost the lease.
fn record_again(store: &impl LeaseStore, entry: &Entry, request: AttemptRequest<'_>) -> LeaseRecord {
    let Reservation::Leased(before) = entry.status.reservation() else {
        return new_record(store, entry, request);
    };
    let is_used = matches!(before.state, LeaseState::InUse { .. });
    if rule(store, request.clusters).has_ended(before.deadline) && !is_used {
        return new_record(store, entry, request);
    }
    LeaseRecord {
        state: if is_used {
            before.state.clone()
        } else {
            LeaseState::Held
        },
        deadline: request
            .ttl
            .map_or(before.deadline, |ttl| ttl.deadline(store.now())),
        cluster: request.cluster.cloned(),
        ..before.after_confirmation()
    }
}

/// Writes the holder's existing lease again.
async fn confirm(
    store: &impl LeaseStore,
    held: &Entry,
    request: AttemptRequest<'_>,
) -> Result<RoundOutcome, LeaseError> {
    let customization = held.name().to_owned();
    let patched = match apply_patches(store, held, request).await? {
        Ok(patched) => patched,
        Err(why) => {
            let outcome = AttemptOutcome::HeldWithPatchProblem { customization, why };
            return Ok(RoundOutcome::Ended(outcome));
        }
    };
    let record = record_again(store, held, request);
    let patch = held.lease(request.holder.pool, &record, store.now().latest);
    let is_ours = match write_status(store, held, &patch).await? {
        WriteResult::Stored => true,
        WriteResult::Superseded(current) => has_record(current.as_deref(), &record),
        WriteResult::Refused(error) => return Err(error.into()),
    };
    if !is_ours {
        return Ok(RoundOutcome::ListAgain);
    }
    if record.state == LeaseState::Held
        && let Some(clusters) = withdraw(store, &customization, &record, request).await?
    {
        return Ok(RoundOutcome::Withdrawn(clusters));
    }
    Ok(RoundOutcome::Ended(AttemptOutcome::Leased(Box::new(
        LeasedEntry {
            customization,
            record,
            was_already_held: true,
            patched_install_config: patched,
            patch_problems: PatchProblems::new(),
        },
    ))))
}

fn has_record(entry: Option<&Entry>, record: &LeaseRecord) -> bool {
    entry.is_some_and(|entry| match entry.status.reservation() {
        Reservation::Leased(found) => found.id == record.id && found.renewals == record.renewals,
        _ => false,
    })
}

/// Applies the entry's patches to the request's install-config, if there is one. If Hive cannot apply the
/// patches either, writes this problem to the entry's status.
async fn apply_patches(
    store: &impl LeaseStore,
    entry: &Entry,
    request: AttemptRequest<'_>,
) -> Result<Result<Option<PatchedInstallConfig>, PatchProblem>, Error> {
    let Some(install_config) = request.install_config else {
        return Ok(Ok(None));
    };
    let outcome = patch_install_config(install_config, &entry.spec);
    if let Err(PatchProblem::Broken(why)) = &outcome
        && !entry.already_reports_broken(why)
    {
        // Ignore errors: the next client reports the same problem, unless the patches were corrected.
        store
            .write_status(entry.name(), &entry.broken(why, store.now().latest))
            .await?;
    }
    Ok(outcome.map(Some))
}

/// What happened in one round of an attempt, which lists the entries once.
enum RoundOutcome {
    Ended(AttemptOutcome),
    /// The entries must be listed again, because other clients have changed them, or their patches cannot be applied.
    ListAgain,
    /// The entries must be listed again: this client leased one, but another holder's cluster uses it. Contains the
    /// clusters that were listed after the lease was written.
    Withdrawn(Clusters),
}

/// Tries to lease these entries, one after the other, until one write succeeds.
async fn try_entries(
    store: &impl LeaseStore,
    free: &[&Entry],
    request: AttemptRequest<'_>,
    patch_problems: &mut PatchProblems,
) -> Result<RoundOutcome, LeaseError> {
    for listed in free {
        let name = listed.name();
        // Read the entry first. Among hundreds of clients the list is out of date once it is parsed, and a read is cheaper
        // than a conflict.
        let Some(current) = store.get(name).await? else {
            continue;
        };
        if !is_unchanged(&current, listed) {
            continue;
        }
        let patched = match apply_patches(store, &current, request).await? {
            Ok(patched) => patched,
            Err(why) => {
                patch_problems.insert(name.to_owned(), why);
                continue;
            }
        };
        let record = new_record(store, &current, request);
        let now = store.now().latest;
        let pool = request.holder.pool;
        let patch = if patched.is_some() {
            current.lease_patched(pool, &record, now)
        } else {
            current.lease(pool, &record, now)
        };
        let is_ours = match write_status(store, &current, &patch).await? {
            WriteResult::Stored => true,
            WriteResult::Superseded(after) => {
                let is_ours = has_record(after.as_deref(), &record);
                if !is_ours && after.is_some_and(|after| after.refers_to(request.holder)) {
                    // Another process has leased the entry for the same holder. The next list of entries shows this lease.
                    return Ok(RoundOutcome::ListAgain);
                }
                is_ours
            }
            WriteResult::Refused(error) => return Err(error.into()),
        };
        if is_ours {
            return Ok(match withdraw(store, name, &record, request).await? {
                Some(clusters) => RoundOutcome::Withdrawn(clusters),
                None => RoundOutcome::Ended(AttemptOutcome::Leased(Box::new(LeasedEntry {
                    customization: name.to_owned(),
                    record,
                    was_already_held: false,
                    patched_install_config: patched,
                    patch_problems: std::mem::take(patch_problems),
                }))),
            });
        }
    }
    Ok(RoundOutcome::ListAgain)
}

/// Whether the entry's lease is the same as when the entries were listed. Other fields may have changed.
fn is_unchanged(current: &Entry, listed: &Entry) -> bool {
    fn lease(entry: &Entry) -> (bool, bool, Option<&str>, Option<&str>, Reservation) {
        let names = (entry.status.holder(), entry.status.pool());
        (
            entry.status.is_reserved(),
            entry.is_deleting(),
            names.0,
            names.1,
            entry.status.reservation(),
        )
    }
    lease(current) == lease(listed)
}

/// Lists the clusters after this client has leased the entry or confirmed its lease. If another holder's cluster uses
/// the entry, gives the lease to that holder and returns the clusters.
async fn withdraw(
    store: &impl LeaseStore,
    name: &str,
    record: &LeaseRecord,
    request: AttemptRequest<'_>,
) -> Result<Option<Clusters>, LeaseError> {
    if request.clusters.cluster_deployments().is_none() {
        return Ok(None);
    }
    let clusters = store.clusters().await?;
    let Some(deployments) = clusters.cluster_deployments() else {
        return Ok(None);
    };
    let namespace = deployments.namespace();
    let is_others = |cluster: &&ClusterDeployment| {
        uses(cluster, namespace, name, Some(record))
            && !belongs_to_holder(cluster, namespace, request.holder)
            && !belongs_to_lease(cluster, record)
    };
    let Some(other) = deployments.iter().find(is_others) else {
        return Ok(None);
    };
    let reference = other.spec.cluster_pool_ref.as_ref();
    let pool = reference.map_or(request.holder.pool, |reference| &reference.pool_name);
    while let Some(entry) = store
        .get(name)
        .await?
        .filter(|entry| has_record(Some(entry), record))
    {
        let patch = match rule(store, &clusters).new_record(None, Usage::Used(other), generate_lease_id()) {
            Some(others) => entry.lease(pool, &others, store.now().latest),
            None => entry.free(store.now().latest),
        };
        match write_status(store, &entry, &patch).await? {
            WriteResult::Stored => break,
            WriteResult::Superseded(_) => {}
            WriteResult::Refused(error) => return Err(error.into()),
        }
    }
    Ok(Some(clusters))
}

fn with_reuse<'l>(
    mut slots: Vec<InventorySlot<'l>>,
    reuse: &BTreeMap<String, Reuse>,
) -> Vec<InventorySlot<'l>> {
    for slot in &mut slots {
        slot.reuse = reuse.get(slot.name).copied().unwrap_or_default();
    }
    slots
}

/// The entries of the inventory in its order, followed by entries that the holder holds although the pool does not list
/// them.
fn slots<'l>(
    request: AttemptRequest<'l>,
    by_name: &EntriesByName<'l>,
    patch_problems: &PatchProblems,
) -> Vec<InventorySlot<'l>> {
    let holder = request.holder;
    let named: BTreeSet<&str> = request.names.iter().copied().collect();
    let is_of_holder = |entry: &&Entry| {
        let deployments = request.clusters.cluster_deployments();
        let is_used = deployments.is_some_and(|deployments| {
            clusters_using(deployments, entry)
                .any(|cluster| belongs_to_holder(cluster, deployments.namespace(), holder))
        });
        !named.contains(entry.name()) && (entry.refers_to(holder) || is_used)
    };
    let unnamed = by_name.values().copied().filter(is_of_holder);
    let inventory = request.names.iter().map(|name| InventorySlot {
        patch_problem: patch_problems.get(*name).cloned(),
        ..slot(by_name, name)
    });
    let unnamed = unnamed.map(|entry| InventorySlot {
        is_in_inventory: false,
        ..slot(by_name, entry.name())
    });
    inventory.chain(unnamed).collect()
}

/// The entries of the inventory that the request does not accept, as others see them.
fn other_slots<'l>(
    request: AttemptRequest<'l>,
    by_name: &EntriesByName<'l>,
    patch_problems: &PatchProblems,
) -> Vec<InventorySlot<'l>> {
    let is_unfit = |name: &&&str| patch_problems.contains_key(**name);
    let unfit = request.names.iter().filter(is_unfit);
    let names = request.unselected.iter().chain(unfit);
    names.map(|name| slot(by_name, name)).collect()
}

fn slot<'l>(by_name: &EntriesByName<'l>, name: &'l str) -> InventorySlot<'l> {
    InventorySlot {
        name,
        is_in_inventory: true,
        entry: by_name.get(name).copied(),
        patch_problem: None,
        reuse: Reuse::Free,
    }
}

#[cfg(test)]
mod tests;
