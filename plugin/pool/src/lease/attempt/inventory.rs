//! The entries of an inventory as one round of an attempt sees them.

use std::collections::{BTreeMap, BTreeSet};

use kcp_api::metadata::Object as _;
use kcp_client::Error;

use super::{AttemptRequest, PatchProblems};
use crate::{
    lease::{
        access::LeaseStore,
        choice::InventorySlot,
        reuse::Reuse,
        rule::Rule,
        usage::{belongs_to_holder, clusters_using},
    },
    objects::{
        entry::{Entry, EntryStatus as _, Reservation},
        record::LeaseState,
    },
};

pub(super) type EntriesByName<'l> = BTreeMap<&'l str, &'l Entry>;
pub(super) type ReuseByName<'l> = BTreeMap<&'l str, Reuse>;

/// Reads what becomes of the entries whose leases have ended, if they are not free. If two pools list an entry, it may be
/// leased for the other pool, which may require something else than the pool of the request.
pub(super) async fn reuse_of<'l>(
    store: &impl LeaseStore,
    by_name: &EntriesByName<'l>,
    request: AttemptRequest<'l>,
    rule: Rule,
) -> Result<ReuseByName<'l>, Error> {
    let mut reuse = ReuseByName::new();
    for name in request.names.iter().chain(request.unselected) {
        let Some(entry) = by_name.get(name) else { continue };
        let Reservation::Leased(record) = entry.status.reservation() else {
            continue;
        };
        if rule.has_ended(record.deadline) && !matches!(record.state, LeaseState::InUse { .. }) {
            let found = if entry.status.pool() == Some(request.holder.pool) {
                request.reuse
            } else {
                store.reuse(entry).await?
            };
            reuse.insert(name, found);
        }
    }
    Ok(reuse)
}

/// The entries of the inventory in its order, followed by entries that the holder holds although the pool does not list
/// them.
pub(super) fn slots<'l>(
    request: AttemptRequest<'l>,
    by_name: &EntriesByName<'l>,
    reuse: &ReuseByName<'l>,
    patch_problems: &PatchProblems,
) -> Vec<InventorySlot<'l>> {
    let holder = request.holder;
    let named: BTreeSet<&str> = request.names.iter().copied().collect();
    let is_of_holder = |entry: &&Entry| {
        let deployments = request.clusters.cluster_deployments();
        let is_used = deployments.is_some_and(|deployments| {
            clusters_using(deployments, entry)
                .any(|cluster| belongs_to_holder(cluster, deployments.namespace(), holder))
        });
        !named.contains(entry.name()) && (entry.refers_to(holder) || is_used)
    };
    let unnamed = by_name.values().copied().filter(is_of_holder);
    let inventory = request.names.iter().map(|name| InventorySlot {
        patch_problem: patch_problems.get(*name).cloned(),
        ..slot(by_name, reuse, name)
    });
    let unnamed = unnamed.map(|entry| InventorySlot {
        is_in_inventory: false,
        ..slot(by_name, reuse, entry.name())
    });
    inventory.chain(unnamed).collect()
}

/// The entries of the inventory that the request does not accept, as others see them.
pub(super) fn other_slots<'l>(
    request: AttemptRequest<'l>,
    by_name: &EntriesByName<'l>,
    reuse: &ReuseByName<'l>,
    patch_problems: &PatchProblems,
) -> Vec<InventorySlot<'l>> {
    let is_unfit = |name: &&&str| patch_problems.contains_key(**name);
    let unfit = request.names.iter().filter(is_unfit);
    let names = request.unselected.iter().chain(unfit);
    names.map(|name| slot(by_name, reuse, name)).collect()
}

fn slot<'l>(by_name: &EntriesByName<'l>, reuse: &ReuseByName<'l>, name: &'l str) -> InventorySlot<'l> {
    InventorySlot {
        name,
        is_in_inventory: true,
        entry: by_name.get(name).copied(),
        patch_problem: None,
        reuse: reuse.get(name).copied().unwrap_or_default(),
    }
}
