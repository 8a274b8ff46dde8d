//! One attempt to lease an entry of an inventory for a holder.
//!
//! A lease is one write. It is reported only after the entry has changed since the command listed it, even if the holder
//! already had it: otherwise a release that was decided earlier could still be stored. After the write the clusters are
//! listed once more, and the entry goes to a cluster that uses it by then.

use std::collections::{BTreeMap, BTreeSet};

use kcp_api::metadata::Object as _;
use kcp_client::Error;

use crate::{
    install_config::{
        InstallConfig,
        patches::{Patched, Unfit, patched},
    },
    lease::{
        DEFAULT_TTL, LeaseError, Ttl,
        access::LeaseStore,
        choice::{Choice, Inventory, Move, Slot, Standing, Unusable},
        generated_name::lease_id,
        rule::{GRACE, Rule},
        usage::{Clusters, Seen, is_own, users, uses},
        write::{Sent, send},
    },
    objects::{
        ClusterName, Holder,
        cluster_deployment::ClusterDeployment,
        entry::{Entry, Reservation, Reserved as _},
        record::{LeaseRecord, State},
    },
};

/// How often the entries are listed again after all free ones were reserved by other clients. Each time at least one
/// client got an entry, so only an inventory whose entries are released as fast as they are leased reaches this.
const MAX_ROUNDS: usize = 32;

/// One attempt's input.
#[derive(Clone, Copy, Debug)]
pub struct AttemptRequest<'r> {
    /// The inventory.
    pub names: &'r [&'r str],
    pub clusters: &'r Clusters,
    pub holder: Holder<'r>,
    /// None: a new lease has the default, and a lease that exists keeps its end.
    pub ttl: Option<Ttl>,
    /// Where the holder's cluster will be. None: it creates none.
    pub cluster: Option<&'r ClusterName>,
    pub user: Option<&'r str>,
    /// The install-config that the entry's patches have to apply to; none if the caller has none.
    pub install_config: Option<&'r InstallConfig>,
    /// Whether a lease under this name that exists already belongs to another process.
    pub is_new: bool,
}

#[derive(Clone, Debug)]
pub struct Attempt {
    pub outcome: AttemptOutcome,
    /// All entries, as they were last listed.
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    Leased(Box<Leased>),
    /// No entry is free. The state of each.
    Exhausted(Vec<(String, Standing)>),
    /// The holder is bound to an entry that it cannot have.
    Bound {
        customization: String,
        standing: Standing,
    },
    /// The holder already has this entry, and the request is for a new lease.
    HeldBefore {
        customization: String,
    },
    /// The holder has this entry, but its patches cannot be applied.
    HeldUnfit {
        customization: String,
        why: Unfit,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    pub customization: String,
    pub record: LeaseRecord,
    /// Whether the holder had it before the request.
    pub already: bool,
    /// The patched install-config.
    pub patched: Option<Patched>,
    /// Entries that were skipped, and why.
    pub unfit: Unfits,
}

pub type Unfits = BTreeMap<String, Unfit>;

impl AttemptOutcome {
    /// The entries that this attempt found to have patches that Hive cannot apply either.
    pub fn broken(&self) -> BTreeSet<&str> {
        let is_broken = |why: &Unfit| matches!(why, Unfit::Broken(_));
        let is_standing_broken = |standing: &Standing| match standing {
            Standing::Unusable(Unusable::Unfit(why)) => is_broken(why),
            _ => false,
        };
        match self {
            Self::Leased(leased) => {
                let unfit = leased.unfit.iter().filter(|(_, why)| is_broken(why));
                unfit.map(|(name, _)| name.as_str()).collect()
            }
            Self::Exhausted(standings) => {
                let broken = standings
                    .iter()
                    .filter(|(_, standing)| is_standing_broken(standing));
                broken.map(|(name, _)| name.as_str()).collect()
            }
            Self::HeldUnfit { customization, why } if is_broken(why) => {
                BTreeSet::from([customization.as_str()])
            }
            Self::Bound {
                customization,
                standing,
            } if is_standing_broken(standing) => BTreeSet::from([customization.as_str()]),
            Self::Bound { .. } | Self::HeldBefore { .. } | Self::HeldUnfit { .. } => BTreeSet::new(),
        }
    }
}

/// Leases an entry, or confirms the lease that the holder already has.
///
/// # Errors
/// If the API server cannot be asked, or other clients change the entries faster than one can be reserved. If it is
/// unknown whether an entry was reserved, the message says so; the same command finds it.
pub async fn attempt<S: LeaseStore>(store: &S, request: AttemptRequest<'_>) -> Result<Attempt, LeaseError> {
    let mut unfit = Unfits::new();
    // The clusters, if they were listed again since the request.
    let mut listed: Option<Clusters> = None;
    for _ in 0..MAX_ROUNDS {
        let request = AttemptRequest {
            clusters: listed.as_ref().unwrap_or(request.clusters),
            ..request
        };
        let entries = store.list().await?;
        let inventory = Inventory {
            slots: slots(request, &entries, &unfit),
            clusters: request.clusters,
            rule: rule(store),
        };
        let outcome = match inventory.choose(request.holder) {
            Choice::Held(held) if request.is_new => Some(AttemptOutcome::HeldBefore {
                customization: held.name().to_owned(),
            }),
            Choice::Held(held) => confirm(store, held, request).await?,
            Choice::Bound { name, standing } => Some(AttemptOutcome::Bound {
                customization: name.to_owned(),
                standing,
            }),
            Choice::Exhausted { standings, steps } => {
                for Move { entry, pool, record } in steps {
                    // If the entry has changed, the next look decides.
                    let patch = entry.lease(&pool, &record, store.now().latest);
                    store.write_status(entry.name(), &patch).await?;
                }
                let standings = standings.into_iter();
                let standings = standings.map(|(name, standing)| (name.to_owned(), standing));
                Some(AttemptOutcome::Exhausted(standings.collect()))
            }
            Choice::Free(free) => match try_each(store, &free, request, &mut unfit).await? {
                Try::Taken(mut leased) => {
                    leased.unfit = std::mem::take(&mut unfit);
                    Some(AttemptOutcome::Leased(leased))
                }
                Try::Again => None,
                Try::Withdrawn(clusters) => {
                    listed = Some(clusters);
                    None
                }
            },
        };
        if let Some(outcome) = outcome {
            return Ok(Attempt { outcome, entries });
        }
    }
    Err(Error::Contended {
        goal: format!("lease from the inventory of {}", request.holder.pool),
        attempts: MAX_ROUNDS,
    }
    .into())
}

fn rule(store: &impl LeaseStore) -> Rule {
    Rule {
        now: store.now(),
        grace: GRACE,
    }
}

/// The record of a new lease.
fn first(store: &impl LeaseStore, entry: &Entry, request: AttemptRequest<'_>) -> LeaseRecord {
    let now = store.now();
    let ttl = request.ttl.unwrap_or(Ttl::For(DEFAULT_TTL));
    let state = match request.clusters.seen(entry) {
        Seen::Used(cluster) => State::InUse {
            uid: cluster.uid().to_owned(),
        },
        Seen::Unused | Seen::Unknown => State::Held,
    };
    LeaseRecord {
        state,
        holder: request.holder.cluster_deployment.to_owned(),
        id: lease_id(),
        renewals: 0,
        acquired: LeaseRecord::whole_second(now.latest),
        deadline: ttl.deadline(now),
        cluster: request.cluster.cloned(),
        user: request.user.map(str::to_owned),
    }
}

/// The record of a lease that the holder has, after it leases again. A lease that has ended gets a new id: what still
/// runs under the old one has lost it.
fn again(store: &impl LeaseStore, entry: &Entry, request: AttemptRequest<'_>) -> LeaseRecord {
    let Reservation::Leased(before) = entry.reservation() else {
        return first(store, entry, request);
    };
    let is_used = matches!(before.state, State::InUse { .. });
    if rule(store).has_ended(before.deadline) && !is_used {
        return first(store, entry, request);
    }
    LeaseRecord {
        state: if is_used {
            before.state.clone()
        } else {
            State::Held
        },
        deadline: request
            .ttl
            .map_or(before.deadline, |ttl| ttl.deadline(store.now())),
        cluster: request.cluster.cloned(),
        ..before.confirmed()
    }
}

/// Writes again the lease that the holder has. None if other clients have changed it and it has to be listed again.
async fn confirm(
    store: &impl LeaseStore,
    held: &Entry,
    request: AttemptRequest<'_>,
) -> Result<Option<AttemptOutcome>, LeaseError> {
    let customization = held.name().to_owned();
    let patched = match fit(store, held, request).await? {
        Ok(patched) => patched,
        Err(why) => return Ok(Some(AttemptOutcome::HeldUnfit { customization, why })),
    };
    let record = again(store, held, request);
    let patch = held.lease(request.holder.pool, &record, store.now().latest);
    let is_ours = match send(store, held, &patch).await? {
        Sent::Stored => true,
        Sent::Passed(current) => has(current.as_deref(), &record),
        Sent::Refused(error) => return Err(error.into()),
    };
    Ok(is_ours.then(|| {
        AttemptOutcome::Leased(Box::new(Leased {
            customization,
            record,
            already: true,
            patched,
            unfit: Unfits::new(),
        }))
    }))
}

fn has(entry: Option<&Entry>, record: &LeaseRecord) -> bool {
    entry.is_some_and(|entry| match entry.reservation() {
        Reservation::Leased(found) => found.id == record.id && found.renewals == record.renewals,
        _ => false,
    })
}

/// Applies the entry's patches to the install-config, if there is one. A patch that cannot be applied at all is
/// reported in the entry's status.
async fn fit(
    store: &impl LeaseStore,
    entry: &Entry,
    request: AttemptRequest<'_>,
) -> Result<Result<Option<Patched>, Unfit>, Error> {
    let Some(install_config) = request.install_config else {
        return Ok(Ok(None));
    };
    let outcome = patched(install_config, &entry.spec);
    if let Err(Unfit::Broken(why)) = &outcome
        && !entry.says_broken(why)
    {
        // The entry may have been corrected since, and the next client finds the same: the result of this write does
        // not matter.
        store
            .write_status(entry.name(), &entry.broken(why, store.now().latest))
            .await?;
    }
    Ok(outcome.map(Some))
}

/// What became of the free entries.
enum Try {
    Taken(Box<Leased>),
    /// They have to be listed again: other clients have changed them, or their patches do not apply.
    Again,
    /// The same, because another's cluster uses the one that was taken: the clusters as they are now.
    Withdrawn(Clusters),
}

/// Tries to lease one of the entries.
async fn try_each(
    store: &impl LeaseStore,
    free: &[&Entry],
    request: AttemptRequest<'_>,
    unfit: &mut Unfits,
) -> Result<Try, LeaseError> {
    for (index, listed) in free.iter().enumerate() {
        let name = listed.name();
        let current = if index == 0 {
            Some((*listed).clone())
        } else {
            // After a conflict the list is outdated: reading is cheaper than another conflict.
            store.get(name).await?
        };
        let Some(current) = current.filter(|current| is_unchanged(current, listed)) else {
            continue;
        };
        let patched = match fit(store, &current, request).await? {
            Ok(patched) => patched,
            Err(why) => {
                unfit.insert(name.to_owned(), why);
                continue;
            }
        };
        let record = first(store, &current, request);
        let now = store.now().latest;
        let pool = request.holder.pool;
        let patch = if patched.is_some() {
            current.lease_patched(pool, &record, now)
        } else {
            current.lease(pool, &record, now)
        };
        let is_ours = match send(store, &current, &patch).await? {
            Sent::Stored => true,
            Sent::Passed(after) => {
                let is_ours = has(after.as_deref(), &record);
                if !is_ours && after.is_some_and(|after| after.names(request.holder)) {
                    // Another process for the same holder was faster: the next list has it.
                    return Ok(Try::Again);
                }
                is_ours
            }
            Sent::Refused(error) => return Err(error.into()),
        };
        if is_ours {
            return Ok(match withdrawn(store, name, &record, request).await? {
                Some(clusters) => Try::Withdrawn(clusters),
                None => Try::Taken(Box::new(Leased {
                    customization: name.to_owned(),
                    record,
                    already: false,
                    patched,
                    unfit: Unfits::new(),
                })),
            });
        }
    }
    Ok(Try::Again)
}

/// Whether what made the entry free when it was listed is unchanged. Its resourceVersion may differ.
fn is_unchanged(current: &Entry, listed: &Entry) -> bool {
    fn lease(entry: &Entry) -> (bool, bool, Option<&str>, Option<&str>, Reservation) {
        let names = (entry.cluster_deployment(), entry.cluster_pool());
        (
            entry.is_reserved(),
            entry.is_deleting(),
            names.0,
            names.1,
            entry.reservation(),
        )
    }
    lease(current) == lease(listed)
}

/// Lists the clusters after the entry was leased, and gives it to another's cluster that uses it by now. Returns the
/// clusters if so.
async fn withdrawn(
    store: &impl LeaseStore,
    name: &str,
    record: &LeaseRecord,
    request: AttemptRequest<'_>,
) -> Result<Option<Clusters>, LeaseError> {
    if request.clusters.known().is_none() {
        return Ok(None);
    }
    let clusters = store.clusters().await?;
    let Some(deployments) = clusters.known() else {
        return Ok(None);
    };
    let namespace = deployments.namespace();
    let is_others = |cluster: &&ClusterDeployment| {
        uses(cluster, namespace, name, Some(record)) && !is_own(cluster, namespace, request.holder)
    };
    let Some(other) = deployments.iter().find(is_others) else {
        return Ok(None);
    };
    let reference = other.spec.cluster_pool_ref.as_ref();
    let pool = reference.map_or(request.holder.pool, |reference| &reference.pool_name);
    while let Some(entry) = store.get(name).await?.filter(|entry| has(Some(entry), record)) {
        let patch = match rule(store).adopted(None, Seen::Used(other), lease_id()) {
            Some(others) => entry.lease(pool, &others, store.now().latest),
            None => entry.free(store.now().latest),
        };
        match send(store, &entry, &patch).await? {
            Sent::Stored => break,
            Sent::Passed(_) => {}
            Sent::Refused(error) => return Err(error.into()),
        }
    }
    Ok(Some(clusters))
}

/// The entries of the inventory, followed by entries that the holder or its cluster has and the pool does not list.
fn slots<'l>(request: AttemptRequest<'l>, entries: &'l [Entry], unfit: &Unfits) -> Vec<Slot<'l>> {
    let holder = request.holder;
    let by_name: BTreeMap<_, _> = entries.iter().map(|entry| (entry.name(), entry)).collect();
    let named: BTreeSet<&str> = request.names.iter().copied().collect();
    let slot = |name: &'l str, is_named| Slot {
        name,
        is_named,
        entry: by_name.get(name).copied(),
        unfit: unfit.get(name).cloned(),
    };
    let is_of_holder = |entry: &&Entry| {
        let deployments = request.clusters.known();
        let is_used = deployments.is_some_and(|deployments| {
            users(deployments, entry).any(|cluster| is_own(cluster, deployments.namespace(), holder))
        });
        !named.contains(entry.name()) && (entry.names(holder) || is_used)
    };
    let unnamed = entries.iter().filter(is_of_holder);
    let inventory = request.names.iter().map(|name| slot(name, true));
    inventory
        .chain(unnamed.map(|entry| slot(entry.name(), false)))
        .collect()
}

#[cfg(test)]
mod tests;
