//! The effect of a change to a pool on its existing clusters.

use std::collections::HashSet;

use crate::{
    action::Action,
    api::{ClusterPool, hive::ClusterPoolSpec},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    pool_version::pool_version,
    rule::{Check, ON_UPDATE, Rule, Scope},
    topics::Topic,
    view::{ClusterDeployment, Part},
};

pub(super) const TOPIC: Topic = Topic {
    name: "pool-change",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "pool-version-changed",
        summary: "Hive replaces the unclaimed clusters if settings for new clusters change",
        why: "Hive replaces unclaimed clusters that were created with other settings. Creating clusters takes time \
              and resources, and claims wait in the meantime.",
        operations: ON_UPDATE,
        action: Action::Warn,
        scope: Scope::Cluster(&[Part::ClusterDeployments]),
        source: "Hive design document \"ClusterPool inventory\", sections \"Pool Version\", \"Adding An \
                 Inventory\" and \"Deleting The Inventory\"",
        check: Check::ClusterPool(version_changed),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    Rule {
        id: "inventory-entry-removed",
        summary: "removing an inventory entry deletes the unclaimed cluster that uses it",
        why: "Hive deletes an unclaimed cluster if its customization is no longer in the inventory.",
        operations: ON_UPDATE,
        action: Action::Warn,
        scope: Scope::Cluster(&[Part::ClusterDeployments]),
        source: "Hive design document \"ClusterPool inventory\", section \"Removing An Entry from the Inventory\"",
        check: Check::ClusterPool(entry_removed),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
];

fn version_changed(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let Some(old) = change.old else { return };
    let changed = changed_version_fields(&old.spec, &change.new.spec);
    let Some(first) = changed.first() else { return };
    let stale = match unclaimed_clusters(change, faults).map(Iterator::count) {
        Some(0) => return,
        Some(1) => "this change makes 1 unclaimed cluster stale, so Hive replaces it".to_owned(),
        Some(count) => format!("this change makes {count} unclaimed clusters stale, so Hive replaces them"),
        None => "this change makes unclaimed clusters stale, so Hive replaces them".to_owned(),
    };
    faults.push(Fault {
        field: format!("spec.{first}").into(),
        reason: CauseReason::Forbidden,
        value: None,
        detail: stale.into(),
        remedy: format!(
            "do not change {}, unless Hive should replace the clusters",
            changed.join(", ")
        )
        .into(),
    });
}

/// The paths of the changed fields that are part of the pool version. For the inventory, only its presence matters.
fn changed_version_fields(old: &ClusterPoolSpec, new: &ClusterPoolSpec) -> Vec<&'static str> {
    if let (Some(old), Some(new)) = (pool_version(old), pool_version(new))
        && old == new
    {
        return Vec::new();
    }
    [
        ("platform", old.platform != new.platform),
        ("baseDomain", old.base_domain != new.base_domain),
        ("imageSetRef", old.image_set_ref != new.image_set_ref),
        (
            "installConfigSecretTemplateRef",
            old.install_config_secret_template_ref != new.install_config_secret_template_ref,
        ),
        ("customizationRef", old.customization_ref != new.customization_ref),
        ("inventory", old.inventory.is_some() != new.inventory.is_some()),
    ]
    .into_iter()
    .filter_map(|(field, differs)| differs.then_some(field))
    .collect()
}

/// The unclaimed clusters of the pool that are not being deleted.
fn unclaimed_clusters<'c>(
    change: &Change<'c, ClusterPool<'_>>,
    faults: &mut Faults,
) -> Option<impl Iterator<Item = &'c ClusterDeployment>> {
    let Some(clusters) = change
        .context
        .view
        .and_then(|view| view.cluster_deployments.as_ref())
    else {
        faults.request();
        return None;
    };
    let pool = change.new.metadata.name.as_deref();
    Some(clusters.iter().filter(move |cluster| {
        Some(cluster.pool.as_str()) == pool && cluster.claim.is_none() && !cluster.is_deleting
    }))
}

fn entry_removed(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    const SHOWN: usize = 3;
    // Another rule covers the removal of the whole inventory.
    let (Some(old), Some(new)) = (
        change.old.and_then(|old| old.spec.inventory.as_ref()),
        &change.new.spec.inventory,
    ) else {
        return;
    };
    let names: HashSet<_> = new.names().collect();
    let removed: HashSet<_> = old.names().filter(|name| !names.contains(name)).collect();
    if removed.is_empty() {
        return;
    }
    let detail = match unclaimed_clusters(change, faults) {
        None => "this change removes inventory entries, so Hive deletes the unclaimed clusters that use them"
            .to_owned(),
        Some(unclaimed) => {
            let uses_removed_entry = |cluster: &&ClusterDeployment| {
                cluster
                    .customization
                    .as_deref()
                    .is_some_and(|entry| removed.contains(entry))
            };
            let clusters: Vec<_> = unclaimed
                .filter(uses_removed_entry)
                .map(|cluster| cluster.name.as_str())
                .collect();
            let shown = clusters
                .iter()
                .take(SHOWN)
                .copied()
                .collect::<Vec<_>>()
                .join(", ");
            match clusters.len() {
                0 => return,
                count @ 1..=SHOWN => {
                    format!(
                        "this change removes inventory entries in use, so Hive deletes unclaimed {} {shown}",
                        cluster_or_clusters(count)
                    )
                }
                count => {
                    format!(
                        "this change removes inventory entries in use, so Hive deletes {count} unclaimed clusters, including \
                         {shown}"
                    )
                }
            }
        }
    };
    faults.push(Fault {
        field: "spec.inventory".into(),
        reason: CauseReason::Forbidden,
        value: None,
        detail: detail.into(),
        remedy: "keep the entries of unclaimed clusters".into(),
    });
}

const fn cluster_or_clusters(count: usize) -> &'static str {
    if count == 1 { "cluster" } else { "clusters" }
}
