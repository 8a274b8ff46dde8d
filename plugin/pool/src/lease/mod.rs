//! Taking a lease: first the record, which keeps others from the entry for a moment, then the status, one write at a
//! time, each refused by the server once the entry has changed. The status decides.
//!
//! A lease is told only after the entry has changed since the command listed it, also that of a holder who has it
//! already. Otherwise a release or a repair that was decided before could be stored after it: its write asks for the
//! version that the entry had, and may be late by any time. One that is decided on the version that the lease has made
//! reads the record after that (repair lists entries before records), and the record was written before.
//!
//! - [`record_keeping`]: the record
//! - [`hold`], [`renewal`], [`heartbeat`]: renews a lease, once or until it is lost
//! - [`generated_name`]: a name for a holder that has none

pub mod generated_name;
pub mod heartbeat;
pub mod hold;
pub mod record_keeping;
pub mod renewal;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kcp_client::{Error, Written};
use serde_json::Value;

use crate::{
    install_config::{
        InstallConfig,
        patching::{Patched, Unfit, patched},
    },
    inventory::model::{Candidate, Choice, Inventory, Slot, Standing},
    lease::record_keeping::{Recorded, announce, put_back, renew, withdraw, write_unchanged},
    objects::{
        deployments::References,
        entry::{Entry, Holder},
        record::{self, LeaseClaim, Record},
    },
    store::{Customizations, Records},
};

/// How often the customizations are listed anew when all that were free have been taken meanwhile. Each time at least
/// one other lessee got one, so that only an inventory that is given back as fast as it is taken reaches this.
const MAX_ROUNDS: usize = 32;

/// How often the customizations are listed anew while others are about to take all that are free: until their records
/// no longer keep us from them, and as long again.
const MAX_WAITS: usize = 80;

/// Between two of those. They need two requests.
const WAIT: Duration = Duration::from_millis(250);

/// A status that was written so long after its record is followed by the record once more: another may have taken us
/// for gone.
const SLOW: SignedDuration = SignedDuration::from_secs(5);

/// How often a write is sent whose answers get lost.
const MAX_SENDS: u32 = 5;

/// Before a write is sent the second time; doubled before each further one, 3 s in all.
const FIRST_REST: Duration = Duration::from_millis(200);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct AttemptRequest<'r> {
    /// The inventory.
    pub names: &'r [&'r str],
    /// None where the clusters could not be read.
    pub references: Option<&'r References>,
    pub claim: LeaseClaim<'r>,
    /// What the patches have to apply to; none where nobody wants to know.
    pub install_config: Option<&'r InstallConfig>,
    /// Whether a lease that the holder has already is somebody else's.
    pub is_new: bool,
    /// Whether Hive says what becomes of the patches.
    pub is_run_by_hive: bool,
}

/// What came of it, and what there was.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub outcome: AttemptOutcome,
    /// All customizations, as they were last listed.
    pub entries: Vec<Entry>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The holder has this entry.
    Leased(Leased),
    /// No entry is free: how things stand with each.
    Exhausted(Vec<(String, Standing)>),
    /// The holder's cluster was made with an entry that it cannot have.
    Bound {
        customization: String,
        standing: Standing,
    },
    /// The holder has this entry, and is not the one who asks.
    HeldBefore { customization: String },
    /// The holder has this entry, but its patches cannot be applied.
    HeldUnfit { customization: String, why: Unfit },
}

/// A lease that the holder has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    pub customization: String,
    /// It had it before we came.
    pub already: bool,
    /// What it makes of the install-config.
    pub patched: Option<Patched>,
    /// Entries that were passed over, and why.
    pub unfit: Unfits,
}

/// Entries that cannot be taken.
pub type Unfits = BTreeMap<String, Unfit>;

/// A lease could not be asked for, or it is open what came of it.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error(transparent)]
    Api(#[from] Error),
    #[error("cannot tell whether {customization} is leased; ask again to find out")]
    InDoubt {
        customization: String,
        source: Box<Error>,
    },
    #[error("{}", unfinished(customization, cluster_deployment))]
    Unfinished {
        customization: String,
        cluster_deployment: String,
        source: Box<Error>,
    },
}

impl LeaseError {
    /// The API server's part in it.
    pub fn cause(&self) -> &Error {
        match self {
            Self::Api(cause) => cause,
            Self::InDoubt { source, .. } | Self::Unfinished { source, .. } => source,
        }
    }

    /// With its cause, in one line.
    pub fn in_full(&self) -> String {
        match self {
            Self::Api(cause) => cause.to_string(),
            Self::InDoubt { source, .. } | Self::Unfinished { source, .. } => format!("{self}: {source}"),
        }
    }
}

/// Of a lease that was taken for a cluster that is not made.
pub fn unfinished(customization: &str, cluster_deployment: &str) -> String {
    format!(
        "{customization} is leased, and the cluster {cluster_deployment} is not made; the same command again goes on"
    )
}

/// Takes a lease.
///
/// # Errors
/// When the API server cannot be asked, or others change the entries faster than one can be taken. Where it is open
/// whether a lease has been taken the message says so: the same command again finds it.
pub async fn attempt<S: Customizations + Records>(
    store: &S,
    request: AttemptRequest<'_>,
) -> Result<Attempt, LeaseError> {
    let holder = request.claim.holder;
    let mut unfit = unrecordable(request.names);
    let (mut rounds, mut waits) = (0, 0);
    while rounds < MAX_ROUNDS && waits < MAX_WAITS {
        let (entries, records) = (store.list().await?, store.records().await?);
        let inventory = Inventory {
            slots: slots(request, &entries, &records, &unfit),
            references: request.references,
        };
        let outcome = match inventory.choose(holder, store.now()) {
            Choice::Held(held) if request.is_new => Some(AttemptOutcome::HeldBefore {
                customization: held.name().to_owned(),
            }),
            // Whoever is about to take it has seen it freed since it was listed.
            Choice::Held(held) if is_sought(held, holder, store.now()) => {
                waits += 1;
                store.rest(WAIT).await;
                None
            }
            Choice::Held(held) => {
                rounds += 1;
                take_anew(store, held, request).await?
            }
            Choice::Bound { name, standing } => Some(AttemptOutcome::Bound {
                customization: name.to_owned(),
                standing,
            }),
            Choice::Exhausted(standings) => Some(exhausted(standings)),
            Choice::Sought => {
                waits += 1;
                store.rest(WAIT).await;
                None
            }
            Choice::Free(free) => {
                rounds += 1;
                let taken = try_each(store, &free, request, &mut unfit).await?;
                taken.map(|(name, patched)| {
                    AttemptOutcome::Leased(Leased {
                        customization: name.to_owned(),
                        already: false,
                        patched,
                        unfit: std::mem::take(&mut unfit),
                    })
                })
            }
        };
        if let Some(outcome) = outcome {
            return Ok(Attempt { outcome, entries });
        }
    }
    Err(Error::Contended {
        goal: format!("lease from the inventory of {}", holder.pool),
        attempts: rounds + waits,
    }
    .into())
}

fn is_sought(held: Candidate<'_>, holder: Holder<'_>, now: Timestamp) -> bool {
    let mut record = held.record.into_iter();
    record.any(|record| record.is_sought_by_another(holder, now))
}

/// Takes what the holder has. None when it has to be listed anew: others have changed it since.
async fn take_anew<S: Customizations + Records>(
    store: &S,
    held: Candidate<'_>,
    request: AttemptRequest<'_>,
) -> Result<Option<AttemptOutcome>, LeaseError> {
    let (name, claim) = (held.name(), request.claim);
    // Whoever has written the record since may have the customization by now.
    if !write_unchanged(store, name, held.record, claim).await? {
        return Ok(None);
    }
    let anothers = held.record.filter(|record| !record.names(claim.holder));
    let replaced = anothers.cloned().map(Box::new);
    let customization = name.to_owned();
    let patched = match fit(store, held.entry, request).await? {
        Ok(patched) => patched,
        Err(why) => return Ok(Some(AttemptOutcome::HeldUnfit { customization, why })),
    };
    let patch = held.entry.reserve_anew(claim.holder, store.now());
    match send(store, held.entry, &patch).await? {
        Sent::Stored => Ok(Some(AttemptOutcome::Leased(Leased {
            customization,
            already: true,
            patched,
            unfit: Unfits::new(),
        }))),
        Sent::Passed { current, .. } => {
            if owner(current.as_deref(), claim.holder) == Owner::Another {
                step_back(store, name, claim.holder, replaced, current.as_deref()).await;
            }
            Ok(None)
        }
        Sent::Refused(error) => Err(error.into()),
    }
}

/// What the entry makes of the install-config, if there is one. That it cannot be applied is written down, where nobody
/// could apply it.
async fn fit(
    store: &impl Customizations,
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
        // Whoever has changed the entry meanwhile may have mended it; and who comes next finds the same.
        store
            .write_status(entry.name(), &entry.broken(why, store.now()))
            .await?;
    }
    Ok(outcome.map(Some))
}

/// Whose an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The holder has it.
    Holder,
    /// It names the holder, but the lease is not complete: no other entry may be taken.
    HolderUnmarked,
    /// It is not the holder's, and no write of ours can make it so any more.
    Another,
}

/// Tries to take one of the entries. None when they have to be listed anew: others have changed them since, or they do
/// not fit.
async fn try_each<'e, S: Customizations + Records>(
    store: &S,
    free: &[Candidate<'e>],
    request: AttemptRequest<'_>,
    unfit: &mut Unfits,
) -> Result<Option<(&'e str, Option<Patched>)>, LeaseError> {
    let holder = request.claim.holder;
    for (index, candidate) in free.iter().enumerate() {
        let (listed, name) = (candidate.entry, candidate.entry.name());
        let current = if index == 0 {
            Some(listed.clone())
        } else {
            // After a refusal the list is known to be old: reading is cheaper than another refused write.
            store.get(name).await?
        };
        let mut made = None;
        let owner = match (owner(current.as_ref(), holder), current) {
            (Owner::Another | Owner::HolderUnmarked, Some(current)) if is_still_free(&current, listed) => {
                match fit(store, &current, request).await? {
                    Err(why) => {
                        unfit.insert(name.to_owned(), why);
                        continue;
                    }
                    Ok(patched) => made = patched,
                }
                let is_patched = made.is_some() && !request.is_run_by_hive;
                let taken = Taken {
                    entry: &current,
                    record: candidate.record,
                    is_patched,
                };
                record_and_take(store, taken, request).await?
            }
            // Another run for the same holder: the list says it now.
            (Owner::Holder, _) => return Ok(None),
            (owner, _) => owner,
        };
        match owner {
            Owner::Holder => return Ok(Some((name, made))),
            Owner::HolderUnmarked => return Ok(None),
            Owner::Another => {}
        }
    }
    Ok(None)
}

/// An entry that is to be taken.
#[derive(Clone, Copy, Debug)]
struct Taken<'t> {
    entry: &'t Entry,
    record: Option<&'t Record>,
    /// Whether it says so that its patches can be applied.
    is_patched: bool,
}

/// Takes one entry, its record first.
async fn record_and_take<S: Customizations + Records>(
    store: &S,
    taken: Taken<'_>,
    request: AttemptRequest<'_>,
) -> Result<Owner, LeaseError> {
    let claim = request.claim;
    let Taken { entry, record, .. } = taken;
    let (name, holder) = (entry.name(), claim.holder);
    let started = store.now();
    let is_announced = !entry.names(holder);
    let replaced = if is_announced {
        match announce(store, entry, record, claim).await? {
            Recorded::Ours { replaced } => replaced,
            Recorded::Another => return Ok(Owner::Another),
        }
    } else {
        renew(store, name, record, claim).await?
    };
    let patch = if taken.is_patched {
        entry.reserve_patched(holder, store.now())
    } else {
        entry.reserve(holder, store.now())
    };
    let (current, is_anothers) = match send(store, entry, &patch).await? {
        Sent::Stored => (None, false),
        Sent::Passed { current, is_anothers } => (Some(current), is_anothers),
        Sent::Refused(error) => {
            // Others, whose writes are not refused, would be kept from the entry for a moment.
            if is_announced {
                drop(match replaced {
                    Some(replaced) => put_back(store, name, holder, &replaced).await,
                    None => withdraw(store, name, holder).await,
                });
            }
            return Err(error.into());
        }
    };
    let owner = current
        .as_ref()
        .map_or(Owner::Holder, |current| owner(current.as_deref(), holder));
    match owner {
        // Another run under the same name was faster: the list says it now.
        Owner::Holder if request.is_new && is_anothers => return Ok(Owner::HolderUnmarked),
        Owner::Holder if store.now().duration_since(started) >= SLOW => {
            if !is_recorded_anew(store, name, claim).await? {
                return Ok(Owner::HolderUnmarked);
            }
        }
        Owner::Another => {
            let current = current.flatten();
            step_back(store, name, holder, replaced, current.as_deref()).await;
        }
        Owner::Holder | Owner::HolderUnmarked => {}
    }
    Ok(owner)
}

/// Writes the record of a lease once more that took long, if the holder has it still: by now it may have ended and be
/// another's. False when somebody else has written the record at the same time.
async fn is_recorded_anew<S: Customizations + Records>(
    store: &S,
    name: &str,
    claim: LeaseClaim<'_>,
) -> Result<bool, Error> {
    let record = store.record(name).await?;
    let is_held = store
        .get(name)
        .await?
        .is_some_and(|entry| entry.is_held_by(claim.holder));
    Ok(is_held && write_unchanged(store, name, record.as_ref(), claim).await?)
}

/// Takes back the record of a lease that there is not, or puts back the one that it replaced. Where that fails it keeps
/// others from the entry for a moment alone.
async fn step_back<S: Customizations + Records>(
    store: &S,
    name: &str,
    holder: Holder<'_>,
    replaced: Option<Box<Record>>,
    current: Option<&Entry>,
) {
    let of_its_holder = replaced.filter(|record| is_of_holder_of(record, current));
    drop(match of_its_holder {
        Some(replaced) => put_back(store, name, holder, &replaced).await,
        None => withdraw(store, name, holder).await,
    });
}

/// Whether the record is about the holder that the entry names.
fn is_of_holder_of(record: &Record, entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| {
        entry.pool().is_some_and(|pool| {
            entry.cluster_deployment().is_some_and(|cluster_deployment| {
                record.names(Holder {
                    pool,
                    cluster_deployment,
                })
            })
        })
    })
}

/// What came of a write that was sent until it was certain.
enum Sent {
    Stored,
    /// Nothing is stored any more: the entry is another version by now, this one; or it is gone. Whether the write is
    /// in it, the entry tells.
    Passed {
        current: Option<Box<Entry>>,
        /// Whether what the entry says was certainly written by another: no answer was lost.
        is_anothers: bool,
    },
    /// Nothing is stored, and the same would be said of any other entry.
    Refused(Error),
}

/// Writes an entry's status, and returns when it is certain what came of it. A write whose answer was lost may be stored
/// as long as the entry has the resourceVersion that it asks for: taking another entry meanwhile could take two. So the
/// same write is sent again. Of them all the server stores one at most.
async fn send(
    customizations: &impl Customizations,
    entry: &Entry,
    patch: &Value,
) -> Result<Sent, LeaseError> {
    let name = entry.name();
    let in_doubt = |source: Error| LeaseError::InDoubt {
        customization: name.to_owned(),
        source: source.into(),
    };
    let mut rest = FIRST_REST;
    let mut sent = 1;
    loop {
        let lost = match customizations.write_status(name, patch).await {
            Ok(Written::Stored) => return Ok(Sent::Stored),
            Ok(Written::Changed) => None,
            Ok(Written::Unknown(error)) => Some(error),
            Err(error) if sent == 1 => return Ok(Sent::Refused(error)),
            Err(error) => return Err(in_doubt(error)),
        };
        let current = customizations.get(name).await.map_err(in_doubt)?;
        let may_be_stored_yet = current
            .as_ref()
            .is_some_and(|current| current.is_unchanged_since(entry));
        match lost {
            Some(lost) if may_be_stored_yet && sent == MAX_SENDS => return Err(in_doubt(lost)),
            Some(_) if may_be_stored_yet => {}
            lost => {
                return Ok(Sent::Passed {
                    current: current.map(Box::new),
                    is_anothers: sent == 1 && lost.is_none(),
                });
            }
        }
        sent += 1;
        customizations.rest(rest).await;
        rest *= 2;
    }
}

fn owner(entry: Option<&Entry>, holder: Holder<'_>) -> Owner {
    match entry {
        Some(entry) if entry.is_held_by(holder) => Owner::Holder,
        Some(entry) if entry.names(holder) => Owner::HolderUnmarked,
        _ => Owner::Another,
    }
}

/// What made it free when it was listed has not changed: only its resourceVersion may have.
fn is_still_free(current: &Entry, listed: &Entry) -> bool {
    fn lease(entry: &Entry) -> (bool, bool, Option<&str>, Option<&str>) {
        let names = (entry.cluster_deployment(), entry.pool());
        (entry.is_reserved(), entry.is_deleting(), names.0, names.1)
    }
    lease(current) == lease(listed)
}

/// What the pool names, and then what it does not name, or no more, while the holder or its cluster has it.
fn slots<'l>(
    request: AttemptRequest<'l>,
    entries: &'l [Entry],
    records: &'l [Record],
    unfit: &Unfits,
) -> Vec<Slot<'l>> {
    let holder = request.claim.holder;
    let entries: BTreeMap<_, _> = entries.iter().map(|entry| (entry.name(), entry)).collect();
    let records: BTreeMap<_, _> = records
        .iter()
        .filter_map(|record| Some((record.customization()?, record)))
        .collect();
    let named: BTreeSet<&str> = request.names.iter().copied().collect();
    let held = entries.values().filter(|entry| entry.names(holder));
    let used = request.references.into_iter().flatten();
    let used = used.filter(|(_, deployments)| deployments.iter().any(|deployment| deployment.is(holder)));
    let unnamed: BTreeSet<&str> = held
        .map(|entry| entry.name())
        .chain(used.map(|(name, _)| name.as_str()))
        .filter(|name| !named.contains(name))
        .collect();
    let slot = |name: &'l str, is_named| Slot {
        name,
        is_named,
        entry: entries.get(name).copied(),
        record: records.get(name).copied(),
        unfit: unfit.get(name).cloned(),
    };
    let inventory = request.names.iter().map(|name| slot(name, true));
    inventory
        .chain(unnamed.iter().map(|name| slot(name, false)))
        .collect()
}

/// Those of whom nobody could say who holds them.
fn unrecordable(names: &[&str]) -> Unfits {
    let names = names.iter().filter(|name| !record::can_be_made(name));
    names
        .map(|name| ((*name).to_owned(), Unfit::Unrecordable))
        .collect()
}

fn exhausted(standings: Vec<(&str, Standing)>) -> AttemptOutcome {
    let standings = standings.into_iter();
    AttemptOutcome::Exhausted(
        standings
            .map(|(name, standing)| (name.to_owned(), standing))
            .collect(),
    )
}

impl AttemptOutcome {
    /// The entries whose patches Hive cannot apply either, as far as this attempt has found any.
    pub fn broken(&self) -> BTreeSet<&str> {
        let is_broken = |why: &Unfit| matches!(why, Unfit::Broken(_));
        match self {
            Self::Leased(leased) => {
                let unfit = leased.unfit.iter().filter(|(_, why)| is_broken(why));
                unfit.map(|(name, _)| name.as_str()).collect()
            }
            Self::Exhausted(standings) => {
                let is_broken =
                    |standing: &Standing| matches!(standing, Standing::Unfit(why) if is_broken(why));
                let broken = standings.iter().filter(|(_, standing)| is_broken(standing));
                broken.map(|(name, _)| name.as_str()).collect()
            }
            Self::HeldUnfit { customization, why } if is_broken(why) => {
                BTreeSet::from([customization.as_str()])
            }
            Self::Bound {
                customization,
                standing: Standing::Unfit(why),
            } if is_broken(why) => BTreeSet::from([customization.as_str()]),
            Self::Bound { .. } | Self::HeldBefore { .. } | Self::HeldUnfit { .. } => BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests;
