//! Taking a lease: first the record, which keeps others from the entry for a moment, then the status, one write at a
//! time, each refused by the server once the entry has changed. The status decides.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use anyhow::Context as _;
use jiff::SignedDuration;

use super::{
    entry::{Entry, Holder},
    install_config::InstallConfig,
    model::{Candidate, Choice, Inventory, References, Slot, Standing},
    patching::{Patched, Unfit, patched},
    record::{self, LeaseClaim, Record},
    record_keeping::{Recorded, announce, renew, withdraw},
    store::{Customizations, Records},
};
use crate::cluster::{Error, Written};

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
pub(super) struct Request<'r> {
    /// The inventory.
    pub(super) names: &'r [&'r str],
    /// None where the clusters could not be read.
    pub(super) references: Option<&'r References>,
    pub(super) claim: LeaseClaim<'r>,
    /// What the patches have to apply to; none where nobody wants to know.
    pub(super) install_config: Option<&'r InstallConfig>,
    /// Whether a lease that the holder has already is somebody else's.
    pub(super) is_new: bool,
}

/// What came of it, and what there was.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) outcome: Outcome,
    /// All customizations, as they were last listed.
    pub(super) entries: Vec<Entry>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
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
pub(super) struct Leased {
    pub(super) customization: String,
    /// It had it before we came.
    pub(super) already: bool,
    /// What it makes of the install-config.
    pub(super) patched: Option<Patched>,
    /// Entries that were passed over, and why.
    pub(super) unfit: Unfits,
}

/// Entries that cannot be taken.
pub(super) type Unfits = BTreeMap<String, Unfit>;

/// Takes a lease.
///
/// # Errors
/// When the API server cannot be asked, or others change the entries faster than one can be taken. Where it is open
/// whether a lease has been taken the message says so: the same command again finds it.
pub(super) async fn lease<S: Customizations + Records>(
    store: &S,
    request: Request<'_>,
) -> anyhow::Result<Attempt> {
    let mut entries = Vec::new();
    let outcome = lease_listing(store, request, &mut entries).await?;
    Ok(Attempt { outcome, entries })
}

async fn lease_listing<S: Customizations + Records>(
    store: &S,
    request: Request<'_>,
    listed: &mut Vec<Entry>,
) -> anyhow::Result<Outcome> {
    let holder = request.claim.holder;
    let mut unfit = unrecordable(request.names);
    let (mut rounds, mut waits) = (0, 0);
    while rounds < MAX_ROUNDS && waits < MAX_WAITS {
        let (entries, records) = (store.list().await?, store.records().await?);
        listed.clone_from(&entries);
        let inventory = Inventory {
            slots: slots(request.names, entries, records, &unfit),
            references: request.references.cloned(),
        };
        let free = match inventory.choose(holder, store.now()) {
            Choice::Held(held) if request.is_new => {
                return Ok(Outcome::HeldBefore {
                    customization: held.name().to_owned(),
                });
            }
            Choice::Held(held) => return already_held(store, held, request).await,
            Choice::Bound(name) => return Ok(bound(&inventory, name, holder)),
            Choice::Exhausted => return Ok(exhausted(&inventory, holder)),
            Choice::Sought => {
                waits += 1;
                store.rest(WAIT).await;
                continue;
            }
            Choice::Free(free) => free,
        };
        rounds += 1;
        if let Some((name, patched)) = try_each(store, &free, request, &mut unfit).await? {
            return Ok(Outcome::Leased(Leased {
                customization: name.to_owned(),
                already: false,
                patched,
                unfit,
            }));
        }
    }
    Err(Error::Contended {
        goal: format!("lease from the inventory of {}", holder.pool),
        attempts: rounds + waits,
    }
    .into())
}

async fn already_held<S: Customizations + Records>(
    store: &S,
    held: Candidate<'_>,
    request: Request<'_>,
) -> anyhow::Result<Outcome> {
    renew(store, held.name(), held.record, request.claim).await?;
    let customization = held.name().to_owned();
    Ok(match fit(store, held.entry, request).await? {
        Ok(patched) => Outcome::Leased(Leased {
            customization,
            already: true,
            patched,
            unfit: Unfits::new(),
        }),
        Err(why) => Outcome::HeldUnfit { customization, why },
    })
}

/// What the entry makes of the install-config, if there is one. That it cannot be applied is written down, where nobody
/// could apply it.
async fn fit(
    store: &impl Customizations,
    entry: &Entry,
    request: Request<'_>,
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
    request: Request<'_>,
    unfit: &mut Unfits,
) -> anyhow::Result<Option<(&'e str, Option<Patched>)>> {
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
                record_and_take(store, &current, candidate.record, request.claim).await?
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

/// Takes one entry, its record first.
async fn record_and_take<S: Customizations + Records>(
    store: &S,
    entry: &Entry,
    record: Option<&Record>,
    claim: LeaseClaim<'_>,
) -> anyhow::Result<Owner> {
    let name = entry.name();
    let announced = store.now();
    if entry.names(claim.holder) {
        renew(store, name, record, claim).await?;
    } else if announce(store, name, record, claim).await? == Recorded::Another {
        return Ok(Owner::Another);
    }
    let owner = take(store, entry, claim.holder).await?;
    match owner {
        Owner::Holder if store.now().duration_since(announced) >= SLOW => {
            let record = store.record(name).await?;
            renew(store, name, record.as_ref(), claim).await?;
        }
        // The record of a lease that there is not keeps others from the entry for a moment alone.
        Owner::Another => drop(withdraw(store, name, claim.holder).await),
        Owner::Holder | Owner::HolderUnmarked => {}
    }
    Ok(owner)
}

/// Takes one entry, and returns when it is certain whose it is. A write whose answer was lost may be stored as long as
/// the entry has the resourceVersion that it asks for: taking another entry meanwhile could take two. So the same write
/// is sent again. Of them all the server stores one at most.
async fn take(
    customizations: &impl Customizations,
    entry: &Entry,
    holder: Holder<'_>,
) -> anyhow::Result<Owner> {
    let name = entry.name();
    let in_doubt = || format!("cannot tell whether {name} is leased; ask again to find out");
    let patch = entry.reserve(holder, customizations.now());
    let mut rest = FIRST_REST;
    let mut sent = 1;
    loop {
        let written = customizations.write_status(name, &patch).await;
        let lost = match written {
            Ok(Written::Stored) => return Ok(Owner::Holder),
            Ok(Written::Changed) => None,
            Ok(Written::Unknown(error)) => Some(error),
            Err(error) if sent == 1 => return Err(error.into()),
            Err(error) => return Err(error).with_context(in_doubt),
        };
        let current = customizations.get(name).await.with_context(in_doubt)?;
        let owner = owner(current.as_ref(), holder);
        let Some(lost) = lost else { return Ok(owner) };
        let may_be_stored_yet = current.is_some_and(|current| current.is_unchanged_since(entry));
        if owner == Owner::Holder || !may_be_stored_yet {
            return Ok(owner);
        }
        if sent == MAX_SENDS {
            return Err(lost).with_context(in_doubt);
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
    let lease = |entry: &Entry| {
        let of = |name: Option<&str>| name.map(str::to_owned);
        (
            entry.is_reserved(),
            entry.is_deleting(),
            of(entry.cluster_deployment()),
            of(entry.pool()),
        )
    };
    lease(current) == lease(listed)
}

fn slots(names: &[&str], customizations: Vec<Entry>, records: Vec<Record>, unfit: &Unfits) -> Vec<Slot> {
    let mut entries: HashMap<_, _> = customizations
        .into_iter()
        .map(|entry| (entry.name().to_owned(), entry))
        .collect();
    let mut records: HashMap<_, _> = records
        .into_iter()
        .filter_map(|record| Some((record.customization()?.to_owned(), record)))
        .collect();
    names
        .iter()
        .map(|name| Slot {
            name: (*name).to_owned(),
            entry: entries.remove(*name),
            record: records.remove(*name),
            unfit: unfit.get(*name).cloned(),
        })
        .collect()
}

/// Those of whom nobody could say who holds them.
fn unrecordable(names: &[&str]) -> Unfits {
    let names = names.iter().filter(|name| !record::can_be_made(name));
    names
        .map(|name| ((*name).to_owned(), Unfit::Unrecordable))
        .collect()
}

fn exhausted(inventory: &Inventory, holder: Holder<'_>) -> Outcome {
    let standings = inventory.standings(holder);
    Outcome::Exhausted(
        standings
            .map(|(name, standing)| (name.to_owned(), standing))
            .collect(),
    )
}

fn bound(inventory: &Inventory, name: &str, holder: Holder<'_>) -> Outcome {
    let standing = inventory
        .standings(holder)
        .find_map(|(slot, standing)| (slot == name).then_some(standing));
    Outcome::Bound {
        customization: name.to_owned(),
        standing: standing.unwrap_or(Standing::Missing),
    }
}

#[cfg(test)]
mod tests;
