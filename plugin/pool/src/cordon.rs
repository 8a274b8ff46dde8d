//! Cordons an entry: excludes it from new leases with an annotation. Hive ignores this annotation.

use std::time::Duration;

use kcp_api::{metadata::Object as _, names::annotation::CORDONED};
use kcp_client::{Error, Written};
use serde_json::json;

use crate::{
    objects::entry::EntryStatus as _,
    store::{LeaseStore as _, Store},
};

/// The maximum number of attempts to annotate an entry that other clients change at the same time.
const MAX_ATTEMPTS: usize = 8;

/// The pause before this program reads the entry again, after the response to a write is lost.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CordonResult {
    Changed,
    /// The entry already had the requested state: cordoned for this reason, or not cordoned.
    Unchanged,
    NoSuchEntry,
}

/// Cordons an entry if there is a reason, and uncordons it if `reason` is `None`.
///
/// # Errors
/// The API server cannot be reached, or refuses a request.
pub async fn set_cordon(store: &Store<'_>, entry: &str, reason: Option<&str>) -> Result<CordonResult, Error> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(found) = store.get(entry).await? else {
            return Ok(CordonResult::NoSuchEntry);
        };
        if found.cordoned() == reason {
            return Ok(CordonResult::Unchanged);
        }
        let patch = json!({"metadata": {
            "resourceVersion": found.resource_version(),
            "annotations": {CORDONED: reason},
        }});
        match store.write_entry(entry, &patch).await? {
            Written::Stored => return Ok(CordonResult::Changed),
            Written::Changed => {}
            Written::Unknown(_) => store.pause(RETRY_PAUSE).await,
        }
    }
    Err(Error::Contended {
        goal: format!("cordon customization {entry}"),
        attempts: MAX_ATTEMPTS,
    })
}
