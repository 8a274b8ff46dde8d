//! Giving back what a holder has.
//!
//! - [`needs`]: what keeps it; [`give_back`]: all that is read and written

pub mod give_back;
pub mod in_use;

use std::time::Duration;

use kcp_client::{Error, Written};

use crate::{
    lease::record_keeping::withdraw,
    objects::entry::Holder,
    release::in_use::Needs,
    store::{Customizations, Records},
};

/// How often the entries are read anew after others have changed them.
const MAX_ROUNDS: usize = 8;

/// Before the entries are read anew after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// What came of it. Names, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Given back.
    pub released: Vec<String>,
    /// Kept: a cluster needs it.
    pub needed: Vec<String>,
}

/// Gives back every entry that the holder has and no cluster needs, whether the pool still names it or not;
/// or `only` this one. Another's are not touched. Their records go last.
///
/// # Errors
/// When the API server cannot be asked, or an entry changes faster than it can be written.
pub async fn release<S: Customizations + Records>(
    customizations: &S,
    needs: &Needs,
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
        let (needed, held): (Vec<_>, Vec<_>) = held.partition(|entry| needs.contains_key(entry.name()));
        let mut settled = true;
        for entry in held {
            let patch = entry.release(customizations.now());
            match customizations.write_status(entry.name(), &patch).await? {
                Written::Stored => released.push(entry.name().to_owned()),
                Written::Changed => settled = false,
                // Read again, it is either free, then it was this write, or still ours: then the next write settles it,
                // because only one of the two can be stored.
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
            let mut needed: Vec<_> = needed.iter().map(|entry| entry.name().to_owned()).collect();
            needed.sort();
            // Also those of a release that was killed before it came to them.
            for record in customizations.records().await? {
                let leased = record.customization().filter(|_| record.names(holder));
                let Some(name) = leased.filter(|name| is_meant(name)) else {
                    continue;
                };
                if !needed.iter().any(|needed| needed == name) {
                    withdraw(customizations, name, holder).await?;
                }
            }
            return Ok(Released { released, needed });
        }
    }
    Err(Error::Contended {
        goal: format!("release the customizations of {}", holder.cluster_deployment),
        attempts: MAX_ROUNDS,
    })
}

#[cfg(test)]
mod tests;
