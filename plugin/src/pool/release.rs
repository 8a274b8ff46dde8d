//! Giving back what a holder has.

use std::time::Duration;

use super::{entry::Holder, store::Customizations};
use crate::cluster::{Error, Written};

/// How often the entries are read anew after others have changed them.
const MAX_ROUNDS: usize = 8;

/// Before the entries are read anew after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// Gives back every entry that the holder has, whether the pool still names it or not, and returns their names.
/// Another's are not touched.
///
/// # Errors
/// When the API server cannot be asked, or an entry changes faster than it can be written.
pub(super) async fn release(
    customizations: &impl Customizations,
    holder: Holder<'_>,
) -> Result<Vec<String>, Error> {
    let mut released = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let entries = customizations.list().await?;
        let held: Vec<_> = entries.iter().filter(|entry| entry.names(holder)).collect();
        if held.is_empty() {
            return Ok(released);
        }
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
            return Ok(released);
        }
    }
    Err(Error::Contended {
        goal: format!("release the customizations of {}", holder.cluster_deployment),
        attempts: MAX_ROUNDS,
    })
}

#[cfg(test)]
mod tests;
