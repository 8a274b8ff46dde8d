//! One write of an entry's status, sent until its result is certain. A write whose answer was lost can be stored as long
//! as the entry has the resourceVersion that it asks for, and reserving another entry in the meantime could reserve two.
//! So the same write is sent again; the server stores at most one of them.

use std::time::Duration;

use kcp_api::metadata::Object as _;
use kcp_client::{Error, Written};
use serde_json::Value;

use crate::{
    lease::{LeaseError, access::LeaseStore},
    objects::entry::Entry,
};

/// How often a write is sent whose answers get lost.
const MAX_SENDS: u32 = 5;

/// Before a write is sent the second time; doubled each time, 3 s in all.
const FIRST_REST: Duration = Duration::from_millis(200);

/// The result.
#[derive(Debug)]
pub enum Sent {
    Stored,
    /// None of our writes can be stored any more: the entry has another version, or is gone. The entry shows whether
    /// one of them was stored.
    Passed(Option<Box<Entry>>),
    /// Nothing is stored, and every other entry would fail the same way.
    Refused(Error),
}

/// Writes an entry's status until the result is certain.
///
/// # Errors
/// If it stays uncertain.
pub async fn send(store: &impl LeaseStore, entry: &Entry, patch: &Value) -> Result<Sent, LeaseError> {
    let name = entry.name();
    let in_doubt = |source: Error| LeaseError::InDoubt {
        customization: name.to_owned(),
        source: source.into(),
    };
    let mut rest = FIRST_REST;
    let mut sent = 1;
    loop {
        let lost = match store.write_status(name, patch).await {
            Ok(Written::Stored) => return Ok(Sent::Stored),
            Ok(Written::Changed) => None,
            Ok(Written::Unknown(error)) => Some(error),
            Err(error) if sent == 1 => return Ok(Sent::Refused(error)),
            Err(error) => return Err(in_doubt(error)),
        };
        let current = store.get(name).await.map_err(in_doubt)?;
        let may_be_stored_yet = current
            .as_ref()
            .is_some_and(|current| current.resource_version() == entry.resource_version());
        match lost {
            Some(lost) if may_be_stored_yet && sent == MAX_SENDS => return Err(in_doubt(lost)),
            Some(_) if may_be_stored_yet => {}
            _ => return Ok(Sent::Passed(current.map(Box::new))),
        }
        sent += 1;
        store.rest(rest).await;
        rest *= 2;
    }
}
