//! Plans for changes to pools.

use serde_json::json;

use crate::{
    plan::{EntryChange, EntryEffect, InventoryChange, StaleCluster, StaleReason, plan},
    testing::{
        objects::{pool, pool_object},
        plans::{objects, planned, plans, spec},
    },
};

fn stale(name: &str, why: StaleReason) -> StaleCluster {
    StaleCluster {
        namespace: name.to_owned(),
        name: name.to_owned(),
        why,
    }
}

#[test]
fn which_clusters_become_stale_or_are_deleted() {
    let found: Vec<_> = plans()
        .into_iter()
        .map(|(name, plan)| (name, plan.stale_clusters, plan.excess, plan.problems.len()))
        .collect();
    let both = || {
        vec![
            stale("paris", StaleReason::Version),
            stale("bern", StaleReason::Version),
        ]
    };
    assert_eq!(
        found,
        [
            ("nothing", vec![], 0, 0),
            (
                "entries",
                vec![stale("paris", StaleReason::DroppedFromInventory)],
                0,
                1
            ),
            ("version", both(), 0, 0),
            ("smaller", vec![], 1, 1),
            ("larger", vec![], 0, 1),
            (
                "empty",
                vec![stale("paris", StaleReason::DroppedFromInventory)],
                0,
                1
            ),
            ("new", vec![], 0, 2),
            ("another platform", both(), 0, 0),
        ]
    );
}

#[test]
fn added_and_dropped_entries_have_effects() {
    let (_, plan) = plans().swap_remove(1);
    let change = |name: &str, change, effect| EntryChange {
        name: name.to_owned(),
        change,
        effect,
    };
    let text = |text: &str| text.to_owned();
    assert_eq!(
        plan.entries,
        [
            change("five", InventoryChange::Added, EntryEffect::Free),
            change("missing", InventoryChange::Added, EntryEffect::Missing),
            change(
                "theirs",
                InventoryChange::Added,
                EntryEffect::Shared {
                    with: vec![text("other")]
                }
            ),
            change(
                "one",
                InventoryChange::Dropped,
                EntryEffect::ClusterStale {
                    cluster: text("paris")
                }
            ),
            change(
                "two",
                InventoryChange::Dropped,
                EntryEffect::ClusterClaimed {
                    cluster: text("rome"),
                    claim: text("for-qa")
                }
            ),
            change(
                "three",
                InventoryChange::Dropped,
                EntryEffect::Held { by: text("oslo") }
            ),
            change("four", InventoryChange::Dropped, EntryEffect::Unused),
        ]
    );
}

#[test]
fn clusters_that_are_already_stale_are_no_effect() {
    let mut objects = objects();
    objects.clusters[0]["metadata"]["annotations"] = json!({});
    let mut changed = spec(&["one", "two", "three", "four"]);
    changed["baseDomain"] = "other-domain".into();
    let plan = planned(&objects, &changed);
    assert_eq!(plan.stale_clusters, [stale("bern", StaleReason::Version)]);
}

/// Without Hive, a cluster has no version if the platform has unknown fields.
#[test]
fn unmarked_clusters_become_stale_if_the_fields_of_their_version_change() {
    let vsphere = |datacenter: &str| {
        let mut spec = spec(&["one", "two", "three", "four"]);
        spec["platform"] = json!({"vsphere": {"new": datacenter}});
        spec
    };
    let mut objects = objects();
    objects.pools[0] = pool_object("pool", &vsphere("a"));
    for cluster in &mut objects.clusters {
        cluster["metadata"]["annotations"] = json!({});
    }
    let same = planned(&objects, &vsphere("a"));
    assert_eq!((same.version.is_changed, same.stale_clusters), (false, vec![]));
    let moved = planned(&objects, &vsphere("b"));
    let both = vec![
        stale("paris", StaleReason::Version),
        stale("bern", StaleReason::Version),
    ];
    assert_eq!((moved.version.is_changed, moved.stale_clusters), (true, both));
    // A new pool has no cluster that is known to be outdated.
    objects.pools.clear();
    assert_eq!(plan(&objects.snapshot(), &pool(&vsphere("b"))).stale_clusters, []);
}

#[test]
fn a_removed_inventory_changes_the_version() {
    let mut bare_spec = spec(&[]);
    bare_spec.as_object_mut().unwrap().remove("inventory");
    let plan = planned(&objects(), &bare_spec);
    assert_eq!(plan.version.after.as_deref(), Some("04a8f79a4a2e9733"));
    assert_eq!(plan.stale_clusters.len(), 2);
    assert!(plan.is_destructive());
    assert!(!plans().swap_remove(0).1.is_destructive());
}
