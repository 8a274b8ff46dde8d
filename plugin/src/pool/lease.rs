//! Taking a lease: one status write at a time, each refused by the server once the entry has changed.

use std::time::Duration;

use anyhow::Context as _;

use super::{
    entry::{Entry, Holder},
    model::{Choice, Inventory, References, Slot, Standing},
    store::Customizations,
};
use crate::cluster::{Error, Written};

/// How often the customizations are listed anew when all that were free have been taken meanwhile. Each time at least
/// one other lessee got one, so that only an inventory that is given back as fast as it is taken reaches this.
const MAX_ROUNDS: usize = 32;

/// How often a write is sent whose answers get lost.
const MAX_SENDS: u32 = 5;

/// Before a write is sent the second time; doubled before each further one, 3 s in all.
const FIRST_REST: Duration = Duration::from_millis(200);

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The holder has this entry.
    Leased {
        customization: String,
        /// It had it before we came.
        already: bool,
    },
    /// No entry is free: how things stand with each.
    Exhausted(Vec<(String, Standing)>),
    /// The holder's cluster was made with an entry that it cannot have.
    Bound {
        customization: String,
        standing: Standing,
    },
}

/// Takes a lease on one of `names`.
///
/// # Errors
/// When the API server cannot be asked, or others change the entries faster than one can be taken. Where it is open
/// whether a lease has been taken the message says so: the same command again finds it.
pub(super) async fn lease(
    customizations: &impl Customizations,
    names: &[&str],
    references: Option<&References>,
    holder: Holder<'_>,
) -> anyhow::Result<Outcome> {
    for _ in 0..MAX_ROUNDS {
        let inventory = Inventory {
            slots: slots(names, customizations.list().await?),
            references: references.cloned(),
        };
        let free = match inventory.choose(holder, customizations.now()) {
            Choice::Held(entry) => return Ok(leased(entry.name(), true)),
            Choice::Bound(name) => return Ok(bound(&inventory, name, holder)),
            Choice::Exhausted => return Ok(exhausted(&inventory, holder)),
            Choice::Free(free) => free,
        };
        if let Some(name) = try_each(customizations, &free, holder).await? {
            return Ok(leased(name, false));
        }
    }
    Err(Error::Contended {
        goal: format!("lease from the inventory of {}", holder.pool),
        attempts: MAX_ROUNDS,
    }
    .into())
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

/// Tries to take one of the entries. None when they have to be listed anew: others have changed them since.
async fn try_each<'e>(
    customizations: &impl Customizations,
    free: &[&'e Entry],
    holder: Holder<'_>,
) -> anyhow::Result<Option<&'e str>> {
    for (index, listed) in free.iter().enumerate() {
        let name = listed.name();
        let owner = if index == 0 {
            take(customizations, listed, holder).await?
        } else {
            // After a refusal the list is known to be old: reading is cheaper than another refused write.
            let current = customizations.get(name).await?;
            match (owner(current.as_ref(), holder), current) {
                (Owner::Another, Some(current)) if is_still_free(&current, listed) => {
                    take(customizations, &current, holder).await?
                }
                (owner, _) => owner,
            }
        };
        match owner {
            Owner::Holder => return Ok(Some(name)),
            Owner::HolderUnmarked => return Ok(None),
            Owner::Another => {}
        }
    }
    Ok(None)
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

fn slots(names: &[&str], customizations: Vec<Entry>) -> Vec<Slot> {
    let mut entries: std::collections::HashMap<_, _> = customizations
        .into_iter()
        .map(|entry| (entry.name().to_owned(), entry))
        .collect();
    names
        .iter()
        .map(|name| Slot {
            name: (*name).to_owned(),
            entry: entries.remove(*name),
        })
        .collect()
}

fn leased(name: &str, already: bool) -> Outcome {
    Outcome::Leased {
        customization: name.to_owned(),
        already,
    }
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
