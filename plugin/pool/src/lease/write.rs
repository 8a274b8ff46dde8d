//! Writes an entry's status, and repeats the write until its result is certain. After a lost response, the server may still store
//! the write, until the entry gets another resourceVersion. A client that gave up and leased another entry could then hold two
//! entries. So this module sends the same write again; the server stores it at most once.

use std::time::Duration;

use kcp_api::metadata::Object as _;
use kcp_client::{Error, Written};
use serde_json::Value;

use crate::{
    lease::{LeaseError, access::LeaseStore},
    objects::entry::Entry,
};

/// The maximum number of times that the same write is sent if responses are lost.
const MAX_SENDS: u32 = 5;

/// The pause before the write is sent a second time. Each later pause is twice as long; all pauses together take 3 s.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The certain result of a write.
#[derive(Debug)]
pub enum WriteResult {
    Stored,
    /// The server can no longer store the write, because the entry has changed or no longer exists. The current entry shows
    /// whether the write was stored before.
    Superseded(Option<Box<Entry>>),
    /// The server refused the write, and would also refuse writes of all other entries.
    Refused(Error),
}

/// Writes an entry's status, and repeats the write until its result is certain. Fails if the result is still uncertain after the
/// last attempt.
pub async fn write_status(
    store: &impl LeaseStore,
    entry: &Entry,
    patch: &Value,
) -> Result<WriteResult, LeaseError> {
    let name = entry.name();
    let in_doubt = |source: Error| LeaseError::InDoubt {
        customization: name.to_owned(),
        source: source.into(),
    };
    let mut pause = FIRST_RETRY_PAUSE;
    let mut sent = 1;
    loop {
        let lost = match store.write_status(name, patch).await {
            Ok(Written::Stored) => return Ok(WriteResult::Stored),
            Ok(Written::Changed) => None,
            Ok(Written::Unknown(error)) => Some(error),
            Err(error) if sent == 1 => return Ok(WriteResult::Refused(error)),
            Err(error) => return Err(in_doubt(error)),
        };
        let current = store.get(name).await.map_err(in_doubt)?;
        let may_be_stored_yet = current
            .as_ref()
            .is_some_and(|current| current.resource_version() == entry.resource_version());
        match lost {
            Some(lost) if may_be_stored_yet && sent == MAX_SENDS => return Err(in_doubt(lost)),
            Some(_) if may_be_stored_yet => {}
            _ => return Ok(WriteResult::Superseded(current.map(Box::new))),
        }
        sent += 1;
        store.pause(pause).await;
        pause *= 2;
    }
}
