//! Writes the records of leases.
//!
//! A record is written before the entry's status, so that a client that is killed between the two writes leaves a
//! record without a lease, and a client that is killed later leaves a lease that a repair can tell from one in use.
//! While the record is new, it keeps other clients from the entry. It is deleted after the status is written.
//!
//! If clocks differ, a new record can look old, and another client replaces it and then finds the entry reserved.
//! That client restores the record that it replaced: without it, a repair could not tell an abandoned lease from one
//! in use.

use std::time::Duration;

use kcp_client::{Created, Error, Written};

use crate::{
    objects::{
        entry::{Entry, Holder},
        record::{LeaseClaim, Record, first},
    },
    store::{Customizations, Records},
};

/// How often a record is written whose answers get lost, or that other clients change.
const MAX_ATTEMPTS: usize = 5;

/// Before a record is read back after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// The result of writing a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It names the holder.
    Ours {
        /// The record of another holder that it replaced.
        replaced: Option<Box<Record>>,
    },
    /// Another client is about to reserve the entry.
    Another,
}

/// Records that the holder is about to reserve a free entry. `known` is the entry's record as it was listed. If that
/// names another holder, it is old: its client was killed, or its status write is delayed. If the entry has changed
/// since it was read, the record belongs to that change and stays.
///
/// # Errors
/// If the API server cannot be asked, or the record changes faster than it can be written.
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
        if record.is_being_reserved_by_another(claim.holder, store.now()) {
            return Ok(true);
        }
        let current = store.get(entry.name()).await?;
        Ok(!current.is_some_and(|current| current.is_unchanged_since(entry)))
    };
    write_unless(store, entry.name(), known, claim, gives_way_to).await
}

/// Records the holder of an entry that names it, whatever its record says. Returns the record of another holder that
/// it replaced.
///
/// # Errors
/// If the API server cannot be asked, or the record changes faster than it can be written.
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

/// Writes the record of an entry that the holder has. False if another client has written the record since it was
/// read.
///
/// # Errors
/// If the API server cannot be asked, or the result of the write is unknown.
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

/// Changes or creates a record, once.
///
/// # Errors
/// If the API server cannot be asked, or refuses.
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

/// Deletes our lease record after a failed or ended lease. The record of another holder stays. A record that cannot
/// be deleted keeps other clients from the entry for a moment only.
///
/// # Errors
/// If the API server cannot be asked.
pub async fn delete_ours(
    store: &(impl Customizations + Records),
    customization: &str,
    holder: Holder<'_>,
) -> Result<(), Error> {
    undo(store, customization, |record| record.names(holder), None).await
}

/// Deletes a record that was revoked, unless its holder has leased the entry again.
///
/// # Errors
/// If the API server cannot be asked.
pub async fn delete_revoked(
    store: &(impl Customizations + Records),
    customization: &str,
    holder: Holder<'_>,
) -> Result<(), Error> {
    let is_revoked = |record: &Record| record.names(holder) && record.is_revoked();
    undo(store, customization, is_revoked, None).await
}

/// Restores the record that an announcement of the holder replaced: its holder has the entry after all.
///
/// # Errors
/// If the API server cannot be asked.
pub async fn restore(
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
