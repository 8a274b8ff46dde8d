//! Taking a lease: one status write at a time, each refused by the server once the entry has changed.

use anyhow::Context as _;

use super::{
    entry::{Entry, Holder},
    model::{Choice, Inventory, References, Slot, Standing},
    store::{Customizations, Written},
};

/// How often the customizations are listed anew when all that were free have been taken meanwhile. Each time at least
/// one other lessee got one, so that only an inventory that is given back as fast as it is taken reaches this.
const MAX_ROUNDS: usize = 32;

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
/// When the API server cannot be asked. Whether a lease has been taken is then open, and the message says so: the same
/// command again finds it.
pub(super) async fn lease(
    customizations: &impl Customizations,
    names: &[&str],
    references: Option<&References>,
    holder: Holder<'_>,
) -> anyhow::Result<Outcome> {
    let mut inventory = Inventory::default();
    for _ in 0..MAX_ROUNDS {
        inventory = Inventory {
            slots: slots(names, customizations.list().await?),
            references: references.cloned(),
        };
        let free = match inventory.choose(holder, customizations.now()) {
            Choice::Held(entry) => return Ok(leased(entry.name(), true)),
            Choice::Bound(name) => return Ok(bound(&inventory, name, holder)),
            Choice::Exhausted => break,
            Choice::Free(free) => free,
        };
        if let Some(name) = try_each(customizations, &free, holder).await? {
            return Ok(leased(name, false));
        }
    }
    let standings = inventory.standings(holder);
    Ok(Outcome::Exhausted(
        standings
            .map(|(name, standing)| (name.to_owned(), standing))
            .collect(),
    ))
}

/// Tries to take one of the entries. None when others have changed them all since they were read.
async fn try_each<'e>(
    customizations: &impl Customizations,
    free: &[&'e Entry],
    holder: Holder<'_>,
) -> anyhow::Result<Option<&'e str>> {
    for (index, listed) in free.iter().enumerate() {
        let name = listed.name();
        // After a refusal the list is known to be old: reading is cheaper than another refused write.
        let entry = match index {
            0 => (*listed).clone(),
            _ => match customizations.get(name).await? {
                Some(current) if current.is_held_by(holder) => return Ok(Some(name)),
                Some(current) if is_still_free(&current, listed) => current,
                _ => continue,
            },
        };
        let patch = entry.reserve(holder, customizations.now());
        match customizations.write_status(name, &patch).await? {
            Written::Stored => return Ok(Some(name)),
            // Another run for the same holder may have been faster, or the write has been stored after all.
            Written::Refused => {
                if is_ours(customizations, name, holder).await? {
                    return Ok(Some(name));
                }
            }
            Written::Unknown => {
                let ours = is_ours(customizations, name, holder).await;
                if ours
                    .with_context(|| format!("cannot tell whether {name} is leased; ask again to find out"))?
                {
                    return Ok(Some(name));
                }
            }
        }
    }
    Ok(None)
}

async fn is_ours(
    customizations: &impl Customizations,
    name: &str,
    holder: Holder<'_>,
) -> anyhow::Result<bool> {
    Ok(customizations
        .get(name)
        .await?
        .is_some_and(|entry| entry.is_held_by(holder)))
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
