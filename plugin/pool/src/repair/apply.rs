//! Applies the remedy of an entry's finding: the entry and the clusters are read and decided again, and the entry is
//! written under the resourceVersion that was read. If the process is killed at any point, the next repair finds the
//! rest.

use kcp_api::metadata::Object as _;
use kcp_client::Error;

use crate::{
    creation::make::Obstacle,
    lease::{
        LeaseError,
        write::{Sent, send},
    },
    objects::{
        Holder,
        entry::{Entry, Reserved as _},
        record::LeaseRecord,
    },
    repair::{
        decision::of_entry,
        finding::{Finding, Remedy, Subject},
        options::Options,
    },
    snapshot::Snapshot,
    store::LeaseStore,
};

/// How often an entry is read and decided again that other clients change.
const MAX_ATTEMPTS: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairOutcome {
    Repaired,
    /// When it was read again, the fault was gone: another client was faster.
    Settled,
    /// Its customization is not free yet.
    Waits,
    /// Its cluster cannot be created.
    Blocked(Obstacle),
    /// Other clients change it faster than it can be written.
    Contended,
}

/// Repairs the finding of an entry, if it still exists.
///
/// # Errors
/// If the API server cannot be asked, or refuses.
pub async fn apply(
    store: &impl LeaseStore,
    snapshot: &mut Snapshot,
    options: &Options<'_>,
    planned: &Finding,
) -> Result<RepairOutcome, Error> {
    let Subject::Entry { name } = &planned.subject else {
        return Ok(RepairOutcome::Settled);
    };
    let mut may_be_written = false;
    for _ in 0..MAX_ATTEMPTS {
        let entry = store.get(name).await?;
        snapshot.clusters = store.clusters().await?;
        snapshot.now = store.now();
        let finding = entry
            .as_ref()
            .and_then(|entry| of_entry(snapshot, entry, options));
        let (Some(entry), Some(finding)) = (entry, finding.filter(|finding| finding.is_same(planned))) else {
            return Ok(if may_be_written {
                RepairOutcome::Repaired
            } else {
                RepairOutcome::Settled
            });
        };
        let Some(patch) = patch(&entry, &finding, store) else {
            return Ok(RepairOutcome::Settled);
        };
        match send(store, &entry, &patch)
            .await
            .map_err(LeaseError::into_cause)?
        {
            Sent::Stored => return Ok(RepairOutcome::Repaired),
            // The next look shows whether the fault is gone.
            Sent::Passed(_) => may_be_written = true,
            Sent::Refused(error) => return Err(error),
        }
    }
    Ok(RepairOutcome::Contended)
}

fn patch(entry: &Entry, finding: &Finding, store: &impl LeaseStore) -> Option<serde_json::Value> {
    let now = store.now().latest;
    Some(match &finding.remedy {
        Remedy::Free => entry.free(now),
        // A condition that is written twice in the same second is a change too: the lost mark is set.
        Remedy::Record { pool, record } => entry.lease(pool, record, now),
        Remedy::Reserve {
            pool,
            cluster_deployment,
        } => entry.reserve(
            Holder {
                pool,
                cluster_deployment,
            },
            now,
        ),
        Remedy::Recreate | Remedy::Remove | Remedy::Force | Remedy::None => return None,
    })
}

/// Records that a cluster uses an entry. Tried once: the next look sees it again.
///
/// # Errors
/// If the API server cannot be asked, or refuses.
pub async fn record(
    store: &impl LeaseStore,
    entry: &Entry,
    pool: &str,
    record: &LeaseRecord,
) -> Result<(), Error> {
    let patch = entry.lease(pool, record, store.now().latest);
    store.write_status(entry.name(), &patch).await.map(drop)
}

#[cfg(test)]
mod tests;
