//! Which missing clusters `--recreate` creates again, and what blocks it. Pure.
//!
//! The design document creates a cluster for each reserved customization that has none. It assumes that only
//! controllers lease; a script may hold a customization without a ClusterDeployment while its cluster runs, and a
//! second cluster on the same hosts would destroy it. So a cluster is created only where one existed: seen and now
//! gone, or not completely created. A cluster that was deleted and is being deprovisioned was meant to go, and a
//! lease that expired was meant to end.

use std::collections::BTreeMap;

use crate::{
    creation::make::{Obstacle, unusable},
    install_config::patches::patched,
    inventory::capacity::Capacity,
    objects::entry::{Entry, Holder},
    repair::{
        finding::{Cause, Finding, Mark, Remedy, about_entry},
        holder::{HolderState, Proof, recorded},
        options::Options,
    },
    snapshot::Snapshot,
};

/// The finding about an entry whose cluster is to be created again; none if it is not.
pub(super) fn missing_cluster(
    snapshot: &Snapshot,
    entry: &Entry,
    state: &HolderState<'_>,
    options: &Options<'_>,
) -> Option<Finding> {
    let install_config = options.install_config?;
    let pool = snapshot.pool(entry.pool()?)?;
    let is_kept = entry.is_reserved() && !entry.is_deleting() && pool.inventory().contains(&entry.name());
    if !is_kept || pool.is_run_by_hive() || pool.is_deleting() {
        return None;
    }
    let cause = cause(snapshot, entry, state, options)?;
    let holder = Holder {
        pool: pool.name(),
        cluster_deployment: entry.cluster_deployment()?,
    };
    let remedy = match (unusable(holder), patched(install_config, &entry.spec)) {
        (Some(why), _) => Remedy::Blocked(why),
        (None, Ok(_)) => Remedy::Recreate,
        (None, Err(why)) => Remedy::Blocked(Obstacle::Unfit(why)),
    };
    Some(about_entry(entry, cause, remedy))
}

fn cause(
    snapshot: &Snapshot,
    entry: &Entry,
    state: &HolderState<'_>,
    options: &Options<'_>,
) -> Option<Cause> {
    let is_broken_off = |is_over: bool| {
        recorded(snapshot, entry).is_some_and(|record| {
            record.is_creating() && (is_over || options.clock.is_past_grace(record.renewed()))
        })
    };
    let (mark, is_in_inventory) = (Mark::Reserved, true);
    match state {
        HolderState::Gone(proof @ Proof::ClusterGone { .. }) => Some(Cause::HolderGone {
            proof: proof.clone(),
            mark,
            is_in_inventory,
        }),
        HolderState::Gone(Proof::Expired { .. }) => is_broken_off(true).then_some(Cause::CreationBrokenOff),
        // The process that creates it does not renew the lease, and takes no longer than the grace period.
        HolderState::Leasing => is_broken_off(false).then_some(Cause::CreationBrokenOff),
        // Its lease had no end before the creation began.
        HolderState::Unverifiable if is_broken_off(false) => Some(Cause::CreationBrokenOff),
        HolderState::Unverifiable => options.names(entry).then_some(Cause::Unverifiable {
            mark,
            is_in_inventory,
        }),
        HolderState::Gone(Proof::Revoked | Proof::ClusterTakenDown { .. })
        | HolderState::Alive(_)
        | HolderState::Recent => None,
    }
}

/// Blocks the clusters for which their pools have no room, in the order of the findings.
pub(super) fn within_capacity(snapshot: &Snapshot, mut found: Vec<Finding>) -> Vec<Finding> {
    let mut left: BTreeMap<String, Capacity> = BTreeMap::new();
    for finding in found
        .iter_mut()
        .filter(|finding| finding.remedy == Remedy::Recreate)
    {
        let Some(pool) = finding.pool.as_deref().and_then(|name| snapshot.pool(name)) else {
            continue;
        };
        let capacity = left
            .entry(pool.name().to_owned())
            .or_insert_with(|| Capacity::of(pool, snapshot.deployments.of_pool(pool.name())));
        match capacity.room() {
            Ok(_) => *capacity = capacity.with_one_more(),
            Err(full) => {
                finding.remedy = Remedy::Blocked(Obstacle::PoolFull {
                    pool: pool.name().to_owned(),
                    full,
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
