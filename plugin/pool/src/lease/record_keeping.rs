//! Keeping the record of a lease.
//!
//! It is written before the customization's status, so that a lessee who is killed between the two leaves a record and
//! no lease, and one who is killed later leaves a lease that can be told from one that is in use. While it is fresh it
//! keeps other lessees from the same customization. It is taken back after the status.
//!
//! By clocks that differ a fresh record may look old, and be replaced by that of a lessee who then finds the
//! customization taken. It puts back what it has replaced: without it a lease that nobody gives back could not be told
//! from one that is in use.

use std::time::Duration;

use kcp_client::{Created, Error, Written};

use crate::{
    objects::{
        entry::{Entry, Holder},
        record::{LeaseClaim, Record, first},
    },
    store::{Customizations, Records},
};

/// How often a record is written whose answers get lost, or that others change.
const MAX_ATTEMPTS: usize = 5;

/// Before a record is read back whose write was not answered.
const REST: Duration = Duration::from_millis(200);

/// Whose a record is after it was tried to write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It names the holder.
    Ours {
        /// What stood there and named another.
        replaced: Option<Box<Record>>,
    },
    /// Another is about to take the customization.
    Another,
}

/// Says that the holder is about to take an entry that nobody holds. `known` is its record as it was listed. Another's
/// record is old then, and of one who was killed, or of one whose status write has stood still: where the entry has
/// changed since it was read, it is that one's evidence.
///
/// # Errors
/// When the API server cannot be asked, or the record changes faster than it can be written.
pub async fn announce<S: Customizations + Records>(
    store: &S,
    entry: &Entry,
    known: Option<&Record>,
    claim: LeaseClaim<'_>,
) -> Result<Recorded, Error> {
    let gives_way_to = async |record: &Record| {
        if record.names(claim.holder) {
            return Ok(false);
        }
        if record.is_sought_by_another(claim.holder, store.now()) {
            return Ok(true);
        }
        let current = store.get(entry.name()).await?;
        Ok(!current.is_some_and(|current| current.is_unchanged_since(entry)))
    };
    write_unless(store, entry.name(), known, claim, gives_way_to).await
}

/// Says that the holder has a customization that names it, whatever its record says; returns what stood there and named
/// another.
///
/// # Errors
/// When the API server cannot be asked, or the record changes faster than it can be written.
pub async fn renew<S: Customizations + Records>(
    store: &S,
    customization: &str,
    known: Option<&Record>,
    claim: LeaseClaim<'_>,
) -> Result<Option<Box<Record>>, Error> {
    Ok(
        match write_unless(store, customization, known, claim, async |_| Ok(false)).await? {
            Recorded::Ours { replaced } => replaced,
            Recorded::Another => None,
        },
    )
}

async fn write_unless<S: Customizations + Records>(
    store: &S,
    customization: &str,
    known: Option<&Record>,
    claim: LeaseClaim<'_>,
    gives_way_to: impl AsyncFn(&Record) -> Result<bool, Error>,
) -> Result<Recorded, Error> {
    let mut known = known.cloned();
    let mut replaced = None;
    let mut unanswered = None;
    for _ in 0..MAX_ATTEMPTS {
        if let Some(record) = &known
            && gives_way_to(record).await?
        {
            return Ok(Recorded::Another);
        }
        let written = write_once(store, customization, known.as_ref(), claim).await?;
        if let Some(record) = known.filter(|record| !record.names(claim.holder)) {
            replaced = Some(Box::new(record));
        }
        match written {
            Written::Stored => return Ok(Recorded::Ours { replaced }),
            Written::Changed => {}
            Written::Unknown(error) => {
                unanswered = Some(error);
                store.rest(REST).await;
            }
        }
        known = store.record(customization).await?;
    }
    Err(unanswered.unwrap_or_else(|| contended(customization)))
}

/// Says of a holder who has a customization what is claimed, unless anybody has written the record since it was read:
/// then it is `false`.
///
/// # Errors
/// When the API server cannot be asked, or does not tell what became of the write.
pub async fn write_unchanged<S: Customizations + Records>(
    store: &S,
    customization: &str,
    read: Option<&Record>,
    claim: LeaseClaim<'_>,
) -> Result<bool, Error> {
    let begun = store.now().as_microsecond();
    let version = |record: Option<&Record>| record.map(|record| record.metadata.resource_version.clone());
    let is_claimed = |record: &Record| {
        let is_new = record.renewed().is_some_and(|at| at.as_microsecond() >= begun);
        is_new && record.names(claim.holder) && record.is_creating() == claim.is_creating
    };
    let mut unanswered = None;
    for _ in 0..MAX_ATTEMPTS {
        match write_once(store, customization, read, claim).await? {
            Written::Stored => return Ok(true),
            Written::Changed if unanswered.is_none() => return Ok(false),
            Written::Changed => {}
            Written::Unknown(error) => {
                unanswered = Some(error);
                store.rest(REST).await;
            }
        }
        let current = store.record(customization).await?;
        if current.as_ref().is_some_and(is_claimed) {
            return Ok(true);
        }
        if version(current.as_ref()) != version(read) {
            return Ok(false);
        }
    }
    Err(unanswered.unwrap_or_else(|| contended(customization)))
}

/// Writes or makes a record, once.
///
/// # Errors
/// When the API server cannot be asked, or refuses.
pub async fn write_once<S: Customizations + Records>(
    store: &S,
    customization: &str,
    known: Option<&Record>,
    claim: LeaseClaim<'_>,
) -> Result<Written, Error> {
    let now = store.now();
    if let Some(record) = known {
        return store
            .write_record(customization, &record.claimed(claim, now))
            .await;
    }
    Ok(
        match store.create_record(&first(customization, claim, now)).await? {
            Created::Stored => Written::Stored,
            Created::Exists => Written::Changed,
            Created::Unknown(error) => Written::Unknown(error),
        },
    )
}

/// Takes back the record of a lease that there is not, or is no more; another's is left as it is. A record that stays
/// keeps others from the customization for a moment alone.
///
/// # Errors
/// When the API server cannot be asked.
pub async fn withdraw(
    store: &(impl Customizations + Records),
    customization: &str,
    holder: Holder<'_>,
) -> Result<(), Error> {
    undo(store, customization, |record| record.names(holder), None).await
}

/// The same of one that was taken away from its holder, who has not taken the customization anew.
///
/// # Errors
/// When the API server cannot be asked.
pub async fn withdraw_revoked(
    store: &(impl Customizations + Records),
    customization: &str,
    holder: Holder<'_>,
) -> Result<(), Error> {
    let is_revoked = |record: &Record| record.names(holder) && record.is_revoked();
    undo(store, customization, is_revoked, None).await
}

/// Puts back what an announcement of the holder has replaced: the record of who has the customization after all.
///
/// # Errors
/// When the API server cannot be asked.
pub async fn put_back(
    store: &(impl Customizations + Records),
    customization: &str,
    holder: Holder<'_>,
    replaced: &Record,
) -> Result<(), Error> {
    undo(
        store,
        customization,
        |record| record.names(holder),
        Some(replaced),
    )
    .await
}

async fn undo(
    store: &(impl Customizations + Records),
    customization: &str,
    is_meant: impl Fn(&Record) -> bool,
    replaced: Option<&Record>,
) -> Result<(), Error> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(record) = store.record(customization).await?.filter(&is_meant) else {
            return Ok(());
        };
        let written = match replaced {
            Some(replaced) => {
                let patch = replaced.in_place_of(&record);
                store.write_record(customization, &patch).await?
            }
            None => store.delete_record(&record).await?,
        };
        match written {
            Written::Stored => return Ok(()),
            Written::Changed => {}
            Written::Unknown(_) => store.rest(REST).await,
        }
    }
    Ok(())
}

fn contended(customization: &str) -> Error {
    Error::Contended {
        goal: format!("record the lease on {customization}"),
        attempts: MAX_ATTEMPTS,
    }
}

#[cfg(test)]
mod tests;
