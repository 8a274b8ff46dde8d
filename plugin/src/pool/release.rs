//! Giving back what a holder has.

use anyhow::bail;

use super::{
    entry::Holder,
    store::{Customizations, Written},
};

/// How often the entries are read anew after others have changed them.
const MAX_ROUNDS: usize = 8;

/// Gives back every entry that the holder has, whether the pool still names it or not, and returns their names.
/// Another's are not touched.
///
/// # Errors
/// When the API server cannot be asked, or an entry changes faster than it can be written.
pub(super) async fn release(
    customizations: &impl Customizations,
    holder: Holder<'_>,
) -> anyhow::Result<Vec<String>> {
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
                Written::Refused => settled = false,
                // Read again, it is either free, then it was this write, or still ours.
                Written::Unknown => {
                    released.push(entry.name().to_owned());
                    settled = false;
                }
            }
        }
        released.sort();
        released.dedup();
        if settled {
            return Ok(released);
        }
    }
    bail!(
        "cannot release: the customizations of {} keep changing",
        holder.cluster_deployment
    )
}

#[cfg(test)]
mod tests;
