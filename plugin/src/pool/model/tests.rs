//! Tables of inventories and the exact entries that a holder gets.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Candidate, Choice, Deployment, Inventory, Slot, Standing};
use crate::pool::{
    entry::{Entry, Holder},
    record::{LeaseClaim, first},
};

const HOLDER: Holder<'_> = Holder {
    pool: "pool",
    cluster_deployment: "us",
};

fn now() -> Timestamp {
    "2026-11-21T05:00:00Z".parse().unwrap()
}

fn free(name: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": "1"}})
}

fn with_status(name: &str, status: Value) -> Value {
    let mut entry = free(name);
    entry["status"] = status;
    entry
}

fn reserved(name: &str, holder: &str, pool: &str) -> Value {
    with_status(
        name,
        json!({
            "conditions": [{"type": "Available", "status": "False"}],
            "clusterDeploymentRef": {"name": holder}, "clusterPoolRef": {"name": pool},
        }),
    )
}

fn used(name: &str, succeeded: &str, time: &str) -> Value {
    let status = json!({"conditions": [
        {"type": "Available", "status": "True"},
        {"type": "ApplySucceeded", "status": succeeded, "lastTransitionTime": time},
    ]});
    with_status(name, status)
}

fn deleting(mut entry: Value) -> Value {
    entry["metadata"]["deletionTimestamp"] = "2026-11-21T04:00:00Z".into();
    entry
}

fn inventory(entries: impl IntoIterator<Item = Value>) -> Inventory {
    let slots = entries.into_iter().map(|entry| {
        let entry: Entry = serde_json::from_value(entry).unwrap();
        Slot {
            name: entry.name().to_owned(),
            entry: Some(entry),
            record: None,
            unfit: None,
        }
    });
    Inventory {
        slots: slots.collect(),
        references: None,
    }
}

fn referenced(mut inventory: Inventory, by: &[(&str, &str, &str)]) -> Inventory {
    let references = inventory.references.get_or_insert_default();
    for (customization, name, pool) in by {
        let deployment = Deployment {
            name: (*name).to_owned(),
            pool: (*pool).to_owned(),
        };
        references
            .entry((*customization).to_owned())
            .or_default()
            .insert(deployment);
    }
    inventory
}

/// The names that are tried, `=` before one that is held already.
fn chosen(inventory: &Inventory, holder: Holder<'_>) -> Vec<String> {
    match inventory.choose(holder, now()) {
        Choice::Held(entry) => vec![format!("={}", entry.name())],
        Choice::Free(entries) => entries.iter().map(|entry| entry.name().to_owned()).collect(),
        Choice::Bound(name) => vec![format!("bound to {name}")],
        Choice::Sought => vec!["sought".to_owned()],
        Choice::Exhausted => vec![],
    }
}

#[test]
fn what_is_free() {
    let available = |status: &str| {
        with_status(
            "a",
            json!({"conditions": [{"type": "Available", "status": status}]}),
        )
    };
    for (case, entry, expected) in [
        ("never touched", free("a"), true),
        ("available", available("True"), true),
        (
            "unknown counts as available, as for Hive",
            available("Unknown"),
            true,
        ),
        (
            "reserved, the references not yet written",
            available("False"),
            false,
        ),
        ("reserved by another", reserved("a", "them", "pool"), false),
        (
            "reserved by our name in another pool",
            reserved("a", "us", "other"),
            false,
        ),
        (
            "stale reference to a cluster",
            with_status("a", json!({"clusterDeploymentRef": {"name": "x"}})),
            false,
        ),
        (
            "stale reference to a pool",
            with_status("a", json!({"clusterPoolRef": {"name": "x"}})),
            false,
        ),
        (
            "empty references are none",
            with_status("a", json!({"clusterDeploymentRef": {"name": ""}})),
            true,
        ),
        ("being deleted", deleting(free("a")), false),
    ] {
        assert_eq!(chosen(&inventory([entry]), HOLDER) == ["a"], expected, "{case}");
    }
}

#[test]
fn order_of_choice() {
    for (case, entries, expected) in [
        (
            "the longest rest first",
            vec![
                used("a", "True", "2026-03-01T00:00:00Z"),
                used("b", "True", "2026-01-01T00:00:00Z"),
                used("c", "True", "2026-02-01T00:00:00Z"),
            ],
            vec!["b", "c", "a"],
        ),
        (
            "never used counts as used now",
            vec![free("a"), used("b", "True", "2026-01-01T00:00:00Z")],
            vec!["b", "a"],
        ),
        (
            "failed last, however old",
            vec![
                used("a", "False", "2020-01-01T00:00:00Z"),
                used("b", "True", "2026-01-01T00:00:00Z"),
                free("c"),
                used("d", "Unknown", "2019-01-01T00:00:00Z"),
            ],
            vec!["b", "c", "d", "a"],
        ),
        (
            "three failed ones stand in a line, not in a circle",
            vec![
                used("a", "False", "2026-01-03T00:00:00Z"),
                used("b", "False", "2026-01-01T00:00:00Z"),
                used("c", "False", "2026-01-02T00:00:00Z"),
            ],
            vec!["b", "c", "a"],
        ),
        (
            "a time that cannot be read counts as now",
            vec![
                used("a", "True", "yesterday"),
                used("b", "True", "2026-01-01T00:00:00Z"),
            ],
            vec!["b", "a"],
        ),
        (
            "scattered by holder where nothing else tells",
            vec![free("a"), free("b"), free("c")],
            vec!["b", "c", "a"],
        ),
    ] {
        assert_eq!(chosen(&inventory(entries), HOLDER), expected, "{case}");
    }
}

#[test]
fn the_holders_own_entry_comes_first() {
    for (case, entries, expected) in [
        ("held", vec![free("a"), reserved("b", "us", "pool")], "=b"),
        (
            "held twice: the first in the inventory",
            vec![reserved("b", "us", "pool"), reserved("a", "us", "pool")],
            "=b",
        ),
        (
            "held and being deleted",
            vec![free("a"), deleting(reserved("b", "us", "pool"))],
            "=b",
        ),
        (
            "named but marked available: completed",
            vec![
                free("a"),
                with_status(
                    "b",
                    json!({"clusterDeploymentRef": {"name": "us"}, "clusterPoolRef": {"name": "pool"}}),
                ),
            ],
            "b",
        ),
    ] {
        assert_eq!(chosen(&inventory(entries), HOLDER), [expected], "{case}");
    }
}

#[test]
fn what_a_cluster_was_made_with_is_not_free() {
    let entries = || inventory([free("a"), reserved("b", "them", "pool")]);
    for (case, references, expected) in [
        ("by another cluster", vec![("a", "them", "pool")], vec![]),
        ("by our name in another pool", vec![("a", "us", "other")], vec![]),
        (
            "by ourselves: that one or none",
            vec![("a", "us", "pool")],
            vec!["a"],
        ),
        (
            "by ourselves, but held by another",
            vec![("b", "us", "pool")],
            vec!["bound to b"],
        ),
        (
            "by ourselves and by another",
            vec![("a", "us", "pool"), ("a", "them", "pool")],
            vec!["bound to a"],
        ),
        ("by nobody", vec![], vec!["a"]),
    ] {
        assert_eq!(
            chosen(&referenced(entries(), &references), HOLDER),
            expected,
            "{case}"
        );
    }
}

#[test]
fn what_another_is_about_to_take_is_not_free_yet() {
    let records = |seconds: &[(usize, i64)]| {
        let mut inventory = inventory([free("a"), free("b")]);
        for (slot, age) in seconds {
            let claim = LeaseClaim {
                holder: Holder {
                    cluster_deployment: "them",
                    ..HOLDER
                },
                duration: None,
                cluster_deployment_uid: None,
                is_creating: false,
            };
            let time = now() - jiff::SignedDuration::from_secs(*age);
            let slot = &mut inventory.slots[*slot];
            slot.record = Some(serde_json::from_value(first(&slot.name, claim, time)).unwrap());
        }
        inventory
    };
    assert_eq!(chosen(&records(&[(0, 1)]), HOLDER), ["b"]);
    assert_eq!(chosen(&records(&[(0, 1), (1, 1)]), HOLDER), ["sought"]);
    assert_eq!(chosen(&records(&[(0, 60), (1, 1)]), HOLDER), ["a"]);
    let bound = referenced(records(&[(0, 1)]), &[("a", "us", "pool")]);
    assert_eq!(chosen(&bound, HOLDER), ["sought"]);
    let bound = referenced(records(&[(0, 60)]), &[("a", "us", "pool")]);
    assert_eq!(chosen(&bound, HOLDER), ["a"]);
}

#[test]
fn a_missing_customization_is_passed_over() {
    let mut inventory = inventory([free("b")]);
    inventory.slots.insert(
        0,
        Slot {
            name: "a".to_owned(),
            entry: None,
            record: None,
            unfit: None,
        },
    );
    assert_eq!(chosen(&inventory, HOLDER), ["b"]);
    inventory.slots.truncate(1);
    assert_eq!(inventory.choose(HOLDER, now()), Choice::Exhausted);
}

/// 64 holders and 64 entries that have never been used: no entry is the first choice of more than a few.
#[test]
fn first_choices_are_scattered() {
    let inventory = inventory((0..64).map(|entry| free(&format!("customization-{entry}"))));
    let mut first = std::collections::BTreeMap::<_, usize>::new();
    for lessee in 0..64 {
        let name = format!("cluster-{lessee}");
        let order = chosen(
            &inventory,
            Holder {
                pool: "pool",
                cluster_deployment: &name,
            },
        );
        *first.entry(order[0].clone()).or_default() += 1;
    }
    // At random 64 * (1 - 1/e) = 40 different ones, and seldom more than five times the same.
    assert!(first.len() >= 36, "{first:?}");
    assert!(first.values().all(|times| *times <= 5), "{first:?}");
}

fn any_entry(name: String) -> impl Strategy<Value = Value> {
    let names = || prop::option::of(prop::sample::select(vec!["us", "them", ""]));
    let status = || prop::option::of(prop::sample::select(vec!["True", "False", "Unknown"]));
    (names(), names(), status(), status(), any::<bool>(), -40i64..40).prop_map(
        move |(holder, pool, available, succeeded, is_deleting, days)| {
            let time = now() + jiff::SignedDuration::from_hours(24 * days);
            let conditions: Vec<_> = [("Available", available), ("ApplySucceeded", succeeded)]
                .into_iter()
                .filter_map(|(kind, status)| {
                    Some(json!({"type": kind, "status": status?, "lastTransitionTime": time}))
                })
                .collect();
            let reference = |name: Option<&str>| name.map(|name| json!({"name": name}));
            let pool = pool.map(|name| if name == "us" { "pool" } else { name });
            let entry = with_status(
                &name,
                json!({"conditions": conditions, "clusterDeploymentRef": reference(holder),
                    "clusterPoolRef": reference(pool)}),
            );
            if is_deleting { deleting(entry) } else { entry }
        },
    )
}

fn any_inventory() -> impl Strategy<Value = Inventory> {
    (0usize..8)
        .prop_flat_map(|count| {
            (0..count)
                .map(|index| any_entry(format!("entry-{index}")))
                .collect::<Vec<_>>()
        })
        .prop_map(inventory)
}

proptest! {
    #[test]
    fn never_an_entry_of_another(inventory in any_inventory()) {
        if let Choice::Free(entries) = inventory.choose(HOLDER, now()) {
            prop_assert!(!entries.is_empty());
            for entry in entries {
                let (_, standing) = inventory.standings(HOLDER).find(|(name, _)| *name == entry.name()).unwrap();
                prop_assert!(matches!(standing, Standing::Free | Standing::OursUnmarked), "{entry:?}");
                prop_assert!(!entry.entry.is_reserved());
            }
        }
    }

    #[test]
    fn nothing_only_when_nothing_is_free(inventory in any_inventory()) {
        let exhausted = inventory.choose(HOLDER, now()) == Choice::Exhausted;
        let any = inventory.standings(HOLDER).any(|(_, standing)| {
            matches!(standing, Standing::Free | Standing::Ours | Standing::OursUnmarked)
        });
        prop_assert_eq!(exhausted, !any);
    }

    /// The same for a holder however the server lists the entries; a free one is tried once.
    #[test]
    fn the_order_is_total((inventory, shuffled) in any_inventory().prop_flat_map(|inventory| {
        let slots = Just(inventory.slots.clone()).prop_shuffle();
        (Just(inventory), slots)
    })) {
        let shuffled = Inventory { slots: shuffled, references: None };
        let (one, other) = (inventory.choose(HOLDER, now()), shuffled.choose(HOLDER, now()));
        if let (Choice::Free(one), Choice::Free(other)) = (&one, &other) {
            if !one.iter().any(|candidate| candidate.entry.names(HOLDER)) {
                prop_assert_eq!(one, other);
            }
            let names: std::collections::BTreeSet<_> = one.iter().map(Candidate::name).collect();
            prop_assert_eq!(names.len(), one.len());
        } else {
            prop_assert_eq!(std::mem::discriminant(&one), std::mem::discriminant(&other));
        }
    }
}
