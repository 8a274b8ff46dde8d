//! Keeps an entry from new holders. Hive does not know of it.

use std::time::Duration;

use kcp_api::{metadata::Object as _, names::annotation::CORDONED};
use kcp_client::{Error, Written};
use serde_json::json;

use crate::{
    objects::entry::Reserved as _,
    store::{LeaseStore as _, Store},
};

/// How often an entry is read again that other clients change.
const MAX_ATTEMPTS: usize = 8;

/// Before it is read again after a write without an answer.
const REST: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cordoned {
    Changed,
    /// It was so before.
    Unchanged,
    NoSuchEntry,
}

/// Cordons an entry for a reason, or uncordons it.
///
/// # Errors
/// If the API server cannot be asked, or refuses.
pub async fn cordon(store: &Store<'_>, entry: &str, reason: Option<&str>) -> Result<Cordoned, Error> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(found) = store.get(entry).await? else {
            return Ok(Cordoned::NoSuchEntry);
        };
        if found.cordoned() == reason {
            return Ok(Cordoned::Unchanged);
        }
        let patch = json!({"metadata": {
            "resourceVersion": found.resource_version(),
            "annotations": {CORDONED: reason},
        }});
        match store.write_entry(entry, &patch).await? {
            Written::Stored => return Ok(Cordoned::Changed),
            Written::Changed => {}
            Written::Unknown(_) => store.rest(REST).await,
        }
    }
    Err(Error::Contended {
        goal: format!("cordon customization {entry}"),
        attempts: MAX_ATTEMPTS,
    })
}
