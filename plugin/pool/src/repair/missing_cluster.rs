//! Which missing clusters are made anew when that is asked for, and what is in the way. Pure.
//!
//! The design document has a customization that is reserved, and whose cluster is not there, get that cluster. It knows
//! controllers alone: a script may hold a customization without a `ClusterDeployment` while its cluster runs, and a
//! second one on the same hosts would be its end. So a cluster is made only where one was: seen and gone, or broken off
//! while it was made. One that was deleted and is taken down was meant to go, and a lease that has ended was meant to end.

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

/// An entry whose holder's cluster is made anew, or would be; none where it is not, whatever else is done.
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
        // Whoever makes it renews nothing meanwhile, and takes no longer than the grace time.
        HolderState::Leasing => is_broken_off(false).then_some(Cause::CreationBrokenOff),
        // Its lease had no end before its cluster was to be made.
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

/// Of the clusters to be made, those for which their pools have room, in this order; the others are blocked.
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
