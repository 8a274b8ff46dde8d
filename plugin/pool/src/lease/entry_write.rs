//! The writes that reserve an entry: its record first, then its status. Each write ends only when its result is
//! certain.

use std::time::Duration;

use jiff::SignedDuration;
use kcp_client::{Error, Written};
use serde_json::Value;

use crate::{
    lease::{
        AttemptRequest, LeaseError,
        record_keeping::{Recorded, announce, delete_ours, renew, restore, write_unchanged},
    },
    objects::{
        entry::{Entry, Holder},
        record::{LeaseClaim, Record},
    },
    store::{Customizations, Records},
};

/// If the status write takes longer than this, the record is written again: another client may have assumed that we
/// were killed.
const SLOW: SignedDuration = SignedDuration::from_secs(5);

/// How often a write is sent whose answers get lost.
const MAX_SENDS: u32 = 5;

/// Before a write is sent the second time; doubled each time, 3 s in all.
const FIRST_REST: Duration = Duration::from_millis(200);

/// Who has an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Holder,
    /// It names the holder, but the lease is incomplete: no other entry may be reserved.
    HolderUnmarked,
    /// Not the holder, and no write of ours can still change that.
    Another,
}

/// An entry to reserve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken<'t> {
    pub(super) entry: &'t Entry,
    pub(super) record: Option<&'t Record>,
    /// Whether to report that its patches apply.
    pub(super) is_patched: bool,
}

/// Reserves one entry, its record first.
pub(super) async fn record_and_take<S: Customizations + Records>(
    store: &S,
    taken: Taken<'_>,
    request: AttemptRequest<'_>,
) -> Result<Owner, LeaseError> {
    let claim = request.claim;
    let Taken { entry, record, .. } = taken;
    let (name, holder) = (entry.name(), claim.holder);
    let started = store.now();
    let is_announced = !entry.names(holder);
    let replaced = if is_announced {
        match announce(store, entry, record, claim).await? {
            Recorded::Ours { replaced } => replaced,
            Recorded::Another => return Ok(Owner::Another),
        }
    } else {
        renew(store, name, record, claim).await?
    };
    let patch = if taken.is_patched {
        entry.reserve_patched(holder, store.now())
    } else {
        entry.reserve(holder, store.now())
    };
    let (current, is_anothers) = match send(store, entry, &patch).await? {
        Sent::Stored => (None, false),
        Sent::Passed { current, is_anothers } => (Some(current), is_anothers),
        Sent::Refused(error) => {
            // The record would keep other clients, whose writes are not refused, from the entry for a moment.
            if is_announced {
                drop(match replaced {
                    Some(replaced) => restore(store, name, holder, &replaced).await,
                    None => delete_ours(store, name, holder).await,
                });
            }
            return Err(error.into());
        }
    };
    let owner = current
        .as_ref()
        .map_or(Owner::Holder, |current| owner(current.as_deref(), holder));
    match owner {
        // Another process under the same name was faster: the next list has it.
        Owner::Holder if request.is_new && is_anothers => return Ok(Owner::HolderUnmarked),
        Owner::Holder if store.now().duration_since(started) >= SLOW => {
            if !is_recorded_again(store, name, claim).await? {
                return Ok(Owner::HolderUnmarked);
            }
        }
        Owner::Another => {
            let current = current.flatten();
            undo_record(store, name, holder, replaced, current.as_deref()).await;
        }
        Owner::Holder | Owner::HolderUnmarked => {}
    }
    Ok(owner)
}

/// Writes the record again after a slow status write, if the holder still has the entry: the lease may have expired
/// and be another's by now. False if another client wrote the record at the same time.
async fn is_recorded_again<S: Customizations + Records>(
    store: &S,
    name: &str,
    claim: LeaseClaim<'_>,
) -> Result<bool, Error> {
    let record = store.record(name).await?;
    let is_held = store
        .get(name)
        .await?
        .is_some_and(|entry| entry.is_held_by(claim.holder));
    Ok(is_held && write_unchanged(store, name, record.as_ref(), claim).await?)
}

/// Deletes the record of a lease that failed, or restores the record that it replaced. If that fails too, the record
/// keeps other clients from the entry for a moment only.
pub(super) async fn undo_record<S: Customizations + Records>(
    store: &S,
    name: &str,
    holder: Holder<'_>,
    replaced: Option<Box<Record>>,
    current: Option<&Entry>,
) {
    let of_its_holder = replaced.filter(|record| is_of_holder_of(record, current));
    drop(match of_its_holder {
        Some(replaced) => restore(store, name, holder, &replaced).await,
        None => delete_ours(store, name, holder).await,
    });
}

/// Whether the record names the entry's holder.
fn is_of_holder_of(record: &Record, entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| {
        entry.pool().is_some_and(|pool| {
            entry.cluster_deployment().is_some_and(|cluster_deployment| {
                record.names(Holder {
                    pool,
                    cluster_deployment,
                })
            })
        })
    })
}

/// The result of a write that was sent until it was certain.
pub(super) enum Sent {
    Stored,
    /// None of our writes can be stored any more: the entry has another version, or is gone. The entry shows whether
    /// one of them was stored.
    Passed {
        current: Option<Box<Entry>>,
        /// Whether another client certainly wrote what the entry has now: no answer was lost.
        is_anothers: bool,
    },
    /// Nothing is stored, and every other entry would fail the same way.
    Refused(Error),
}

/// Writes an entry's status until the result is certain. A write whose answer was lost can be stored as long as the
/// entry has the resourceVersion that it asks for, and reserving another entry in the meantime could reserve two. So
/// the same write is sent again; the server stores at most one of them.
pub(super) async fn send(
    customizations: &impl Customizations,
    entry: &Entry,
    patch: &Value,
) -> Result<Sent, LeaseError> {
    let name = entry.name();
    let in_doubt = |source: Error| LeaseError::InDoubt {
        customization: name.to_owned(),
        source: source.into(),
    };
    let mut rest = FIRST_REST;
    let mut sent = 1;
    loop {
        let lost = match customizations.write_status(name, patch).await {
            Ok(Written::Stored) => return Ok(Sent::Stored),
            Ok(Written::Changed) => None,
            Ok(Written::Unknown(error)) => Some(error),
            Err(error) if sent == 1 => return Ok(Sent::Refused(error)),
            Err(error) => return Err(in_doubt(error)),
        };
        let current = customizations.get(name).await.map_err(in_doubt)?;
        let may_be_stored_yet = current
            .as_ref()
            .is_some_and(|current| current.is_unchanged_since(entry));
        match lost {
            Some(lost) if may_be_stored_yet && sent == MAX_SENDS => return Err(in_doubt(lost)),
            Some(_) if may_be_stored_yet => {}
            lost => {
                return Ok(Sent::Passed {
                    current: current.map(Box::new),
                    is_anothers: sent == 1 && lost.is_none(),
                });
            }
        }
        sent += 1;
        customizations.rest(rest).await;
        rest *= 2;
    }
}

pub(super) fn owner(entry: Option<&Entry>, holder: Holder<'_>) -> Owner {
    match entry {
        Some(entry) if entry.is_held_by(holder) => Owner::Holder,
        Some(entry) if entry.names(holder) => Owner::HolderUnmarked,
        _ => Owner::Another,
    }
}
