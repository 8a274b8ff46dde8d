//! The rounds of an attempt. Each lists the entries, decides, and writes what was decided.

use kcp_api::metadata::Object as _;
use kcp_client::Error;

use super::{
    Attempt, AttemptOutcome, AttemptRequest, MAX_ROUNDS, Progress,
    inventory::{EntriesByName, other_slots, reuse_of, slots},
    rule,
    several::take_several,
    writes::{RoundOutcome, confirm, try_entries},
};
use crate::{
    lease::{
        LeaseError,
        access::LeaseStore,
        choice::{Availability, Inventory, InventorySlot, LeaseChoice, RecordUpdate},
        order::{ahead, offered},
        queue::{Place, Queue},
        usage::Clusters,
    },
    objects::entry::Entry,
};

pub(super) async fn rounds<S: LeaseStore>(
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
        // Everything in a round is judged at one time. Otherwise, a lease could count as held for the choice and as ended for the
        // write: without a list of clusters, whose time bounds that of a check, or when the time becomes certain in between.
        let rule = rule(store, request.clusters);
        let reuse = reuse_of(store, &by_name, request, rule).await?;
        let inventory = Inventory {
            slots: slots(request, &by_name, &reuse, &progress.patch_problems),
            clusters: request.clusters,
            rule,
        };
        let others = Inventory {
            slots: other_slots(request, &by_name, &reuse, &progress.patch_problems),
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
                None => confirm(store, held, request, rule).await?,
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
            LeaseChoice::Several(entries) => take_several(store, &entries, request, rule, progress).await?,
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
