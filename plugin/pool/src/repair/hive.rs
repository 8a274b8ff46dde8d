//! Finds problems of entries in pools that Hive manages. Hive repairs its own leases, except for these problems. No I/O.

use kcp_api::metadata::Object;

use crate::{
    lease::rule::Rule,
    objects::{
        cluster_deployment::{ClusterDeployment, Deletion as _, DeletionState},
        entry::{APPLY_SUCCEEDED, Entry, EntryStatus as _, INSTALLATION_PENDING, Reservation},
    },
    repair::{
        finding::{Cause, LeaseProblem, ProblemSubject, Remedy},
        options::RepairOptions,
    },
    snapshot::Snapshot,
};

/// The problem of an entry in a pool that Hive manages; `None` if Hive repairs it, or if there is no problem.
pub(super) fn check_hive_entry(
    snapshot: &Snapshot,
    entry: &Entry,
    users: &[&ClusterDeployment],
    options: &RepairOptions<'_>,
) -> Option<LeaseProblem> {
    let finding = |cause, remedy, cluster: Option<&ClusterDeployment>| LeaseProblem {
        subject: ProblemSubject::Entry {
            name: entry.name().to_owned(),
        },
        pool: cluster
            .and_then(ClusterDeployment::pool)
            .or_else(|| entry.status.pool())
            .map(str::to_owned),
        cluster_deployment: cluster
            .map(ClusterDeployment::name)
            .or_else(|| entry.status.holder())
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
    if snapshot.is_unused(entry)
        && let Some(what) = leak(snapshot, entry, options)
    {
        return Some(finding(what, Remedy::Free, None));
    }
    // Hive frees an entry shortly before it deletes the entry's cluster, which is not a problem.
    let [user] = users else { return None };
    if user.deletion_state() != DeletionState::Alive || Some(user.name()) == entry.status.holder() {
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

/// Why Hive never frees this entry, which no cluster uses; `None` if Hive frees it, or if it is free.
fn leak(snapshot: &Snapshot, entry: &Entry, options: &RepairOptions<'_>) -> Option<String> {
    let reserved_for = entry.status.pool();
    if let Some(pool) = reserved_for.filter(|pool| snapshot.pool(pool).is_none()) {
        return Some(format!(
            "the entry is reserved for pool {pool}, which does not exist, so Hive does not free the entry"
        ));
    }
    if entry.status.reservation() != Reservation::Unrecorded {
        return None;
    }
    let holder = entry.status.holder();
    let cluster = holder.map_or("a cluster".to_owned(), |holder| {
        format!("ClusterDeployment {holder}")
    });
    if !entry.status.is_reserved() {
        return Some(format!(
            "the condition Available is True, but the status refers to {cluster}, which does not exist, so Hive \
             cannot create a cluster with the entry"
        ));
    }
    // Hive frees the entries of every pool that lists them, but not while it deletes the pool.
    if snapshot
        .pools_that_list(entry.name())
        .any(|pool| !pool.is_deleting())
    {
        return None;
    }
    // Hive reserves an entry before it creates the cluster, so wait until the grace period ends.
    let grace_ends = entry.since()?.checked_add(options.grace).ok();
    let rule = Rule {
        now: snapshot.now,
        grace: options.grace,
    };
    rule.has_ended(grace_ends).then(|| {
        format!(
            "Hive reserved the entry for {cluster}, which does not exist; Hive does not free the entry, because no pool \
             lists the entry, except for pools that are being deleted"
        )
    })
}
