//! One attempt to reserve an entry of an inventory for a holder.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use kcp_client::Error;

use crate::{
    install_config::patches::{Patched, Unfit, patched},
    inventory::choice::{Candidate, Choice, Inventory, Slot, Standing},
    lease::{
        Attempt, AttemptOutcome, AttemptRequest, LeaseError, Leased, Unfits,
        entry_write::{Owner, Sent, Taken, owner, record_and_take, send, undo_record},
        record_keeping::write_unchanged,
    },
    objects::{
        entry::{Entry, Holder},
        record::{self, Record},
    },
    store::{Customizations, Records},
};

/// How often the entries are listed again after all free ones were reserved by other clients. Each time at least one
/// client got an entry, so only an inventory whose entries are released as fast as they are leased reaches this.
const MAX_ROUNDS: usize = 32;

/// How often the entries are listed again while other clients are about to reserve all free ones: until their records
/// are too old to block us, and as long again.
const MAX_WAITS: usize = 80;

/// Between two of those. A reservation takes two requests.
const WAIT: Duration = Duration::from_millis(250);

/// Reserves an entry, or writes again the lease that the holder already has.
///
/// # Errors
/// If the API server cannot be asked, or other clients change the entries faster than one can be reserved. If it is
/// unknown whether an entry was reserved, the message says so; the same command finds it.
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
            // The entry was freed since it was listed, and another client has seen that.
            Choice::Held(held) if is_being_reserved(held, holder, store.now()) => {
                waits += 1;
                store.rest(WAIT).await;
                None
            }
            Choice::Held(held) => {
                rounds += 1;
                lease_again(store, held, request).await?
            }
            Choice::Bound { name, standing } => Some(AttemptOutcome::Bound {
                customization: name.to_owned(),
                standing,
            }),
            Choice::Exhausted(standings) => Some(exhausted(standings)),
            Choice::BeingReserved => {
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

fn is_being_reserved(held: Candidate<'_>, holder: Holder<'_>, now: Timestamp) -> bool {
    let mut record = held.record.into_iter();
    record.any(|record| record.is_being_reserved_by_another(holder, now))
}

/// Writes again the lease that the holder has. None if other clients have changed it and it has to be listed again.
async fn lease_again<S: Customizations + Records>(
    store: &S,
    held: Candidate<'_>,
    request: AttemptRequest<'_>,
) -> Result<Option<AttemptOutcome>, LeaseError> {
    let (name, claim) = (held.name(), request.claim);
    // The client that has written the record since may have the entry now.
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
    let patch = held.entry.reserve_again(claim.holder, store.now());
    match send(store, held.entry, &patch).await? {
        Sent::Stored => Ok(Some(AttemptOutcome::Leased(Leased {
            customization,
            already: true,
            patched,
            unfit: Unfits::new(),
        }))),
        Sent::Passed { current, .. } => {
            if owner(current.as_deref(), claim.holder) == Owner::Another {
                undo_record(store, name, claim.holder, replaced, current.as_deref()).await;
            }
            Ok(None)
        }
        Sent::Refused(error) => Err(error.into()),
    }
}

/// Applies the entry's patches to the install-config, if there is one. A patch that cannot be applied at all is
/// reported in the entry's status.
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
        // The entry may have been corrected since, and the next client finds the same: the result of this write does
        // not matter.
        store
            .write_status(entry.name(), &entry.broken(why, store.now()))
            .await?;
    }
    Ok(outcome.map(Some))
}

/// Tries to reserve one of the entries. None if they have to be listed again: other clients have changed them, or
/// their patches do not apply.
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
            // After a conflict the list is outdated: reading is cheaper than another conflict.
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
            // Another process for the same holder reserved it: the next list has it.
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

/// Whether what made the entry free when it was listed is unchanged. Its resourceVersion may differ.
fn is_still_free(current: &Entry, listed: &Entry) -> bool {
    fn lease(entry: &Entry) -> (bool, bool, Option<&str>, Option<&str>) {
        let names = (entry.cluster_deployment(), entry.pool());
        (entry.is_reserved(), entry.is_deleting(), names.0, names.1)
    }
    lease(current) == lease(listed)
}

/// The entries of the inventory, followed by entries that the holder or its cluster has and the pool does not list.
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

/// Entries that cannot have a record.
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

#[cfg(test)]
mod tests;
