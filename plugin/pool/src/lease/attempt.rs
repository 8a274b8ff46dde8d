//! One attempt to give a holder an entry of an inventory.

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
        entry_write::{Owner, Sent, Taken, owner, record_and_take, send, step_back},
        record_keeping::write_unchanged,
    },
    objects::{
        entry::{Entry, Holder},
        record::{self, Record},
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

#[cfg(test)]
mod tests;
