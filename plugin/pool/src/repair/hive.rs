//! Finds problems of entries in pools that Hive manages. Hive repairs its own leases, except for these problems. No I/O.

use jiff::Timestamp;
use kcp_api::{ClusterPool, metadata::Object};

use crate::{
    lease::{reuse::Reuse, rule::Rule},
    objects::{
        Holder,
        cluster_deployment::{ClusterDeployment, Deletion as _, DeletionState},
        entry::{
            APPLY_SUCCEEDED, BROKEN_BY_CLOUD, Entry, EntryStatus as _, INSTALLATION_PENDING, Reservation,
            SUCCEEDED,
        },
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
        && let Some((what, remedy)) = leak(snapshot, entry, options)
    {
        return Some(finding(what, remedy, None));
    }
    // Hive frees an entry shortly before it removes the entry's cluster, which is not a problem.
    let mut alive = users
        .iter()
        .copied()
        .filter(|user| user.deletion_state() == DeletionState::Alive);
    let user = alive.next()?;
    if alive.next().is_some() || is_held_by_another(snapshot, entry, user) {
        return Some(LeaseProblem::contested(entry, users));
    }
    if let Some(what) = moved(snapshot, entry, user) {
        return Some(finding(what, Remedy::None, Some(user)));
    }
    let what = lost_reservation(snapshot, entry, user, options)?;
    let remedy = Remedy::Reserve {
        pool: user.pool()?.to_owned(),
        cluster_deployment: user.name().to_owned(),
    };
    Some(finding(what, remedy, Some(user)))
}

/// Whether the status refers to another cluster, which exists.
fn is_held_by_another(snapshot: &Snapshot, entry: &Entry, user: &ClusterDeployment) -> bool {
    let (Some(holder), Some(pool)) = (entry.status.holder(), entry.status.pool()) else {
        return false;
    };
    let holder = Holder {
        pool,
        cluster_deployment: holder,
    };
    let clusters = snapshot.cluster_deployments().into_iter();
    holder.cluster_deployment != user.name()
        && clusters.flat_map(|all| all.for_holder(holder)).next().is_some()
}

/// Why Hive frees the entry although this cluster uses it: only another pool lists the entry.
fn moved(snapshot: &Snapshot, entry: &Entry, user: &ClusterDeployment) -> Option<String> {
    let pool = synchronized_by(snapshot, entry)?.name();
    let of_user = user.pool().filter(|of_user| *of_user != pool)?;
    Some(format!(
        "ClusterDeployment {} of pool {of_user} uses this entry, but only pool {pool} lists it, so Hive frees the entry for \
         pool {pool}; remove the entry from the inventory of pool {pool} until the ClusterDeployment is deleted",
        user.name()
    ))
}

/// Why the status does not refer to the only cluster that uses the entry; `None` if it refers to the cluster, or if Hive is
/// about to change this.
fn lost_reservation(
    snapshot: &Snapshot,
    entry: &Entry,
    user: &ClusterDeployment,
    options: &RepairOptions<'_>,
) -> Option<String> {
    if Some(user.name()) == entry.status.holder() {
        return None;
    }
    let is_synced = synchronized_by(snapshot, entry).is_some();
    // Hive sets the references only together with a new value of this condition (openshift/hive, `collections.go`, `Reserve`).
    if is_synced && entry.conditions().reason(APPLY_SUCCEEDED) == Some(last_result(user)) {
        return Some(
            "a bug in Hive: another program freed the entry, or the last cluster of the entry never finished installing, so \
             Hive frees and reserves the entry several times a second"
                .to_owned(),
        );
    }
    // Hive neither frees such an entry nor sets its references, and frees it once the cluster is deprovisioned.
    if entry.status.is_reserved() && !is_synced {
        return None;
    }
    let changed = [
        entry.since(),
        entry.creation_timestamp(),
        user.creation_timestamp(),
    ];
    has_grace_ended(snapshot, changed.into_iter().max().flatten()?, options).then(|| {
        format!(
            "the status of the entry does not refer to ClusterDeployment {}, which uses the entry; check that Hive runs",
            user.name()
        )
    })
}

/// The reason that Hive writes to `ApplySucceeded` when it reserves the entry again for this cluster.
fn last_result(user: &ClusterDeployment) -> &'static str {
    if user.spec.installed {
        SUCCEEDED
    } else if user.status.conditions.status("ProvisionStopped") == Some("True") {
        BROKEN_BY_CLOUD
    } else {
        INSTALLATION_PENDING
    }
}

/// The pool for which Hive synchronizes the entry: a pool that lists the entry and is not being deleted.
fn synchronized_by<'s>(snapshot: &'s Snapshot, entry: &'s Entry) -> Option<&'s ClusterPool> {
    snapshot
        .pools_that_list(entry.name())
        .find(|pool| !pool.is_deleting())
}

/// Whether Hive has had the grace period to go on since this time.
fn has_grace_ended(snapshot: &Snapshot, since: Timestamp, options: &RepairOptions<'_>) -> bool {
    let rule = Rule {
        now: snapshot.now,
        grace: options.grace,
        reuse: Reuse::Free,
    };
    rule.has_ended(since.checked_add(options.grace).ok())
}

/// Why Hive has not freed this entry, which no cluster uses, and the remedy; `None` if Hive frees it, or if it is free.
fn leak(snapshot: &Snapshot, entry: &Entry, options: &RepairOptions<'_>) -> Option<(String, Remedy)> {
    let is_synced = synchronized_by(snapshot, entry).is_some();
    let reserved_for = entry.status.pool();
    if let Some(pool) = reserved_for.filter(|pool| !is_synced && snapshot.pool(pool).is_none()) {
        let what = format!(
            "the entry is reserved for pool {pool}, which does not exist, so Hive does not free the entry"
        );
        return Some((what, Remedy::Free));
    }
    let reservation = entry.status.reservation();
    if matches!(reservation, Reservation::Cleaning(_)) {
        let what =
            "the entry waits for a janitor, but no janitor cleans the entries of a pool that Hive manages";
        return Some((what.to_owned(), Remedy::Free));
    }
    if reservation != Reservation::Unrecorded {
        return None;
    }
    let holder = entry.status.holder();
    let cluster = holder.map_or("a cluster".to_owned(), |holder| {
        format!("ClusterDeployment {holder}")
    });
    if !entry.status.is_reserved() {
        let what = format!(
            "the condition Available is True, but the status refers to {cluster}, which does not exist, so Hive \
             cannot create a cluster with the entry"
        );
        return Some((what, Remedy::Free));
    }
    // Hive reserves an entry before it creates the cluster, so wait until the grace period ends. With `--force`, another finding
    // says why the entry is not freed, and how to free it.
    let is_explained = is_synced && options.is_forced(entry);
    if is_explained || !has_grace_ended(snapshot, entry.since()?, options) {
        return None;
    }
    let reserved = format!("Hive reserved the entry for {cluster}, which does not exist");
    Some(if is_synced {
        let what = format!("{reserved}, and has not freed the entry since; check that Hive runs");
        (what, Remedy::None)
    } else {
        let what = format!(
            "{reserved}; Hive does not free the entry, because no pool lists the entry, except for pools that are being \
             deleted"
        );
        (what, Remedy::Free)
    })
}
