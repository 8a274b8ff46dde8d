//! The writes that give an entry to a holder: its record first, then its status, each until it is certain what came of it.

use std::time::Duration;

use jiff::SignedDuration;
use kcp_client::{Error, Written};
use serde_json::Value;

use crate::{
    lease::{
        AttemptRequest, LeaseError,
        record_keeping::{Recorded, announce, put_back, renew, withdraw, write_unchanged},
    },
    objects::{
        entry::{Entry, Holder},
        record::{LeaseClaim, Record},
    },
    store::{Customizations, Records},
};

/// A status that was written so long after its record is followed by the record once more: another may have taken us
/// for gone.
const SLOW: SignedDuration = SignedDuration::from_secs(5);

/// How often a write is sent whose answers get lost.
const MAX_SENDS: u32 = 5;

/// Before a write is sent the second time; doubled before each further one, 3 s in all.
const FIRST_REST: Duration = Duration::from_millis(200);

/// Whose an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The holder has it.
    Holder,
    /// It names the holder, but the lease is not complete: no other entry may be taken.
    HolderUnmarked,
    /// It is not the holder's, and no write of ours can make it so any more.
    Another,
}

/// An entry that is to be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken<'t> {
    pub(super) entry: &'t Entry,
    pub(super) record: Option<&'t Record>,
    /// Whether it says so that its patches can be applied.
    pub(super) is_patched: bool,
}

/// Takes one entry, its record first.
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
            // Others, whose writes are not refused, would be kept from the entry for a moment.
            if is_announced {
                drop(match replaced {
                    Some(replaced) => put_back(store, name, holder, &replaced).await,
                    None => withdraw(store, name, holder).await,
                });
            }
            return Err(error.into());
        }
    };
    let owner = current
        .as_ref()
        .map_or(Owner::Holder, |current| owner(current.as_deref(), holder));
    match owner {
        // Another run under the same name was faster: the list says it now.
        Owner::Holder if request.is_new && is_anothers => return Ok(Owner::HolderUnmarked),
        Owner::Holder if store.now().duration_since(started) >= SLOW => {
            if !is_recorded_anew(store, name, claim).await? {
                return Ok(Owner::HolderUnmarked);
            }
        }
        Owner::Another => {
            let current = current.flatten();
            step_back(store, name, holder, replaced, current.as_deref()).await;
        }
        Owner::Holder | Owner::HolderUnmarked => {}
    }
    Ok(owner)
}

/// Writes the record of a lease once more that took long, if the holder has it still: by now it may have ended and be
/// another's. False when somebody else has written the record at the same time.
async fn is_recorded_anew<S: Customizations + Records>(
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

/// Takes back the record of a lease that there is not, or puts back the one that it replaced. Where that fails it keeps
/// others from the entry for a moment alone.
pub(super) async fn step_back<S: Customizations + Records>(
    store: &S,
    name: &str,
    holder: Holder<'_>,
    replaced: Option<Box<Record>>,
    current: Option<&Entry>,
) {
    let of_its_holder = replaced.filter(|record| is_of_holder_of(record, current));
    drop(match of_its_holder {
        Some(replaced) => put_back(store, name, holder, &replaced).await,
        None => withdraw(store, name, holder).await,
    });
}

/// Whether the record is about the holder that the entry names.
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

/// What came of a write that was sent until it was certain.
pub(super) enum Sent {
    Stored,
    /// Nothing is stored any more: the entry is another version by now, this one; or it is gone. Whether the write is
    /// in it, the entry tells.
    Passed {
        current: Option<Box<Entry>>,
        /// Whether what the entry says was certainly written by another: no answer was lost.
        is_anothers: bool,
    },
    /// Nothing is stored, and the same would be said of any other entry.
    Refused(Error),
}

/// Writes an entry's status, and returns when it is certain what came of it. A write whose answer was lost may be stored
/// as long as the entry has the resourceVersion that it asks for: taking another entry meanwhile could take two. So the
/// same write is sent again. Of them all the server stores one at most.
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
