//! Releases what a holder has.
//!
//! - [`in_use`]: which customizations clusters still use; [`target`]: all reads and writes of a release

pub mod in_use;
pub mod target;

use std::time::Duration;

use kcp_client::{Error, Written};

use crate::{
    lease::record_keeping::delete_ours,
    objects::entry::Holder,
    release::in_use::Users,
    store::{Customizations, Records},
};

/// How often the entries are read again after other clients have changed them.
const MAX_ROUNDS: usize = 8;

/// Before the entries are read again after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// Names, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    pub released: Vec<String>,
    /// Not released: a cluster uses it.
    pub in_use: Vec<String>,
}

/// Releases the entries that the holder has and no cluster uses, in the inventory or not; with `only` that one.
/// Entries of other holders are not changed. Records are deleted last.
///
/// # Errors
/// If the API server cannot be asked, or an entry changes faster than it can be written.
pub async fn release_entries<S: Customizations + Records>(
    customizations: &S,
    users: &Users,
    holder: Holder<'_>,
    only: Option<&str>,
) -> Result<Released, Error> {
    let is_meant = |name: &str| only.is_none_or(|only| only == name);
    let mut released = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let entries = customizations.list().await?;
        let held = entries
            .iter()
            .filter(|entry| entry.names(holder) && is_meant(entry.name()));
        let (in_use, held): (Vec<_>, Vec<_>) = held.partition(|entry| users.contains_key(entry.name()));
        let mut settled = true;
        for entry in held {
            let patch = entry.release(customizations.now());
            match customizations.write_status(entry.name(), &patch).await? {
                Written::Stored => released.push(entry.name().to_owned()),
                Written::Changed => settled = false,
                // When it is read again, it is either free by this write, or still ours: then the next write decides,
                // because the server stores only one of the two.
                Written::Unknown(_) => {
                    released.push(entry.name().to_owned());
                    settled = false;
                    customizations.rest(REST).await;
                }
            }
        }
        released.sort();
        released.dedup();
        if settled {
            let mut in_use: Vec<_> = in_use.iter().map(|entry| entry.name().to_owned()).collect();
            in_use.sort();
            // Also records that an interrupted release has left.
            for record in customizations.records().await? {
                let leased = record.customization().filter(|_| record.names(holder));
                let Some(name) = leased.filter(|name| is_meant(name)) else {
                    continue;
                };
                if !in_use.iter().any(|in_use| in_use == name) {
                    delete_ours(customizations, name, holder).await?;
                }
            }
            return Ok(Released { released, in_use });
        }
    }
    Err(Error::Contended {
        goal: format!("release the customizations of {}", holder.cluster_deployment),
        attempts: MAX_ROUNDS,
    })
}

#[cfg(test)]
mod tests;
