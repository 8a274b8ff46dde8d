//! What is wrong with entries of pools that Hive runs. Pure. Hive repairs its own leases; these are its own faults.

use kcp_api::metadata::Object;

use crate::{
    objects::{
        cluster_deployment::{ClusterDeployment, Life, Lifetime as _},
        entry::{APPLY_SUCCEEDED, Entry, INSTALLATION_PENDING, Reserved as _},
    },
    repair::finding::{Cause, Finding, Remedy, Subject},
    snapshot::Snapshot,
};

/// What is wrong with an entry of Hive's.
pub(super) fn of_hive(snapshot: &Snapshot, entry: &Entry, users: &[&ClusterDeployment]) -> Option<Finding> {
    let finding = |cause, remedy, by: Option<&ClusterDeployment>| Finding {
        subject: Subject::Entry {
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
    let pools: Vec<_> = snapshot.pools_naming(entry.name()).map(Object::name).collect();
    if let [_, _, ..] = pools.as_slice() {
        let what = format!(
            "in the inventories of {}: Hive's pools free each other's leases; list it in one pool",
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
        let what = format!("reserved for pool {pool}, which does not exist: nothing frees it");
        return Some(finding(what, Remedy::Free, None));
    }
    // Hive frees an entry shortly before its cluster is gone; this is not a fault.
    let [user] = users else { return None };
    if user.life() != Life::Alive || Some(user.name()) == entry.cluster_deployment() {
        return None;
    }
    let is_pending = entry.conditions().reason(APPLY_SUCCEEDED) == Some(INSTALLATION_PENDING);
    let what = if is_pending {
        "a bug of Hive: its last cluster never finished installing, so Hive marks it available and reserves it several \
         times a second"
    } else {
        "marked available, but a ClusterDeployment of Hive's uses it"
    };
    let remedy = Remedy::Reserve {
        pool: user.pool()?.to_owned(),
        cluster_deployment: user.name().to_owned(),
    };
    Some(finding(what.to_owned(), remedy, Some(user)))
}
