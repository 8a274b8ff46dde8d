//! Finds problems of entries in pools that Hive manages. Hive repairs its own leases, except for these problems. No I/O.

use kcp_api::metadata::Object;

use crate::{
    objects::{
        cluster_deployment::{ClusterDeployment, Deletion as _, DeletionState},
        entry::{APPLY_SUCCEEDED, Entry, EntryStatus as _, INSTALLATION_PENDING},
    },
    repair::finding::{Cause, Finding, FindingSubject, Remedy},
    snapshot::Snapshot,
};

/// The problem of an entry in a pool that Hive manages; `None` if Hive repairs it, or if there is no problem.
pub(super) fn check_hive_entry(
    snapshot: &Snapshot,
    entry: &Entry,
    users: &[&ClusterDeployment],
) -> Option<Finding> {
    let finding = |cause, remedy, by: Option<&ClusterDeployment>| Finding {
        subject: FindingSubject::Entry {
            name: entry.name().to_owned(),
        },
        pool: by
            .and_then(ClusterDeployment::pool)
            .or_else(|| entry.cluster_pool())
            .map(str::to_owned),
        cluster_deployment: by
            .map(ClusterDeployment::name)
            .or_else(|| entry.cluster_deployment())
            .map(str::to_owned),
        cause: Cause::Hive { what: cause },
        remedy,
    };
    let pools: Vec<_> = snapshot.pools_that_list(entry.name()).map(Object::name).collect();
    if let [_, _, ..] = pools.as_slice() {
        let what = format!(
            "pools {} list this entry, and Hive manages them, so each pool frees the leases of the others; \
             list the entry in only one pool",
            pools.join(", ")
        );
        return Some(finding(what, Remedy::None, None));
    }
    if entry
        .cluster_pool()
        .is_some_and(|pool| snapshot.pool(pool).is_none())
        && users.is_empty()
    {
        let pool = entry.cluster_pool().unwrap_or_default();
        let what = format!(
            "the entry is reserved for pool {pool}, which does not exist, so Hive does not \
            free the entry"
        );
        return Some(finding(what, Remedy::Free, None));
    }
    // Hive frees an entry shortly before it deletes the entry's cluster, which is not a problem.
    let [user] = users else { return None };
    if user.deletion_state() != DeletionState::Alive || Some(user.name()) == entry.cluster_deployment() {
        return None;
    }
    let is_pending = entry.conditions().reason(APPLY_SUCCEEDED) == Some(INSTALLATION_PENDING);
    let what = if is_pending {
        "a bug in Hive: the last cluster of the entry never finished installing, so Hive frees and reserves the entry \
         several times a second"
    } else {
        "the condition Available is True, but a ClusterDeployment that Hive created uses the entry"
    };
    let remedy = Remedy::Reserve {
        pool: user.pool()?.to_owned(),
        cluster_deployment: user.name().to_owned(),
    };
    Some(finding(what.to_owned(), remedy, Some(user)))
}
