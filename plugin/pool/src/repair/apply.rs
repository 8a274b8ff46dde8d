//! Repairs one entry: reads the entry and the clusters again, checks that the problem still exists, and writes the entry
//! only if it still has the resourceVersion that was read. If the process is killed at any point, the next repair
//! continues.

use kcp_api::metadata::Object as _;
use kcp_client::Error;

use crate::{
    creation::make::CreationObstacle,
    lease::{
        LeaseError,
        write::{WriteResult, write_status},
    },
    objects::{
        Holder,
        entry::{Entry, EntryStatus as _},
        record::LeaseRecord,
    },
    repair::{
        decision::check_entry,
        finding::{LeaseProblem, ProblemSubject, Remedy},
        options::RepairOptions,
    },
    snapshot::Snapshot,
    store::LeaseStore,
};

/// The maximum number of attempts to repair an entry that other clients change at the same time.
const MAX_ATTEMPTS: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairOutcome {
    Repaired,
    /// The problem had disappeared when the entry was read again.
    Settled,
    /// The object cannot be removed before its customization is free.
    WaitsForCustomization,
    /// The missing cluster cannot be created again, for this reason.
    Blocked(CreationObstacle),
    /// Other clients changed the object before each attempt to write it.
    Contended,
}

/// Repairs the entry, if the problem still exists.
pub async fn apply(
    store: &impl LeaseStore,
    snapshot: &mut Snapshot,
    options: &RepairOptions<'_>,
    planned: &LeaseProblem,
) -> Result<RepairOutcome, Error> {
    let ProblemSubject::Entry { name } = &planned.subject else {
        return Ok(RepairOutcome::Settled);
    };
    let mut may_be_written = false;
    for _ in 0..MAX_ATTEMPTS {
        let entry = store.get(name).await?;
        snapshot.clusters = store.clusters().await?;
        snapshot.now = snapshot.clusters.time_of_check(store.now());
        let finding = entry
            .as_ref()
            .and_then(|entry| check_entry(snapshot, entry, options));
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
        match write_status(store, &entry, &patch)
            .await
            .map_err(LeaseError::into_cause)?
        {
            WriteResult::Stored => return Ok(RepairOutcome::Repaired),
            // The next read shows whether the server stored the write.
            WriteResult::Superseded(_) => may_be_written = true,
            WriteResult::Refused(error) => return Err(error),
        }
    }
    Ok(RepairOutcome::Contended)
}

/// Reads an entry and the clusters again, and returns whether the problem still exists. Repeats the reads
/// until the entry stays unchanged while the clusters are listed, because an entry and a list that were read
/// at different times can contradict each other.
pub async fn confirm_finding(
    store: &impl LeaseStore,
    snapshot: &mut Snapshot,
    options: &RepairOptions<'_>,
    finding: &LeaseProblem,
) -> Result<bool, Error> {
    let ProblemSubject::Entry { name } = &finding.subject else {
        return Ok(true);
    };
    let mut before = store.get(name).await?;
    for _ in 0..MAX_ATTEMPTS {
        snapshot.clusters = store.clusters().await?;
        snapshot.now = snapshot.clusters.time_of_check(store.now());
        let after = store.get(name).await?;
        let version = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.resource_version().to_owned());
        if version(&before) == version(&after) {
            let found = after.and_then(|entry| check_entry(snapshot, &entry, options));
            return Ok(found.is_some_and(|found| found.is_same(finding)));
        }
        before = after;
    }
    Ok(true)
}

fn patch(entry: &Entry, finding: &LeaseProblem, store: &impl LeaseStore) -> Option<serde_json::Value> {
    let now = store.now().latest;
    Some(match &finding.remedy {
        Remedy::Free => entry.free(now),
        Remedy::Clean(record) => entry.clean(record, now),
        // The record's patch also corrects the condition `Available`.
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

/// Records in the entry's lease that a cluster uses the entry. One attempt is enough, because the next check finds the
/// cluster again.
pub async fn record_use(
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
