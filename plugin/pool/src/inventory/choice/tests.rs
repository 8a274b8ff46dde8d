//! Tables of inventories and the exact entries that a holder gets.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    install_config::patches::Unfit,
    inventory::choice::{Choice, Inventory, Slot, Standing},
    objects::{
        cluster_deployment::{Deployment, References},
        entry::{Entry, Holder},
        record::{LeaseClaim, Record, first},
    },
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

/// What was listed.
#[derive(Clone, Debug, Default)]
struct Listed {
    /// Named by the pool, but for those from `unnamed` on.
    names: Vec<String>,
    unnamed: usize,
    entries: Vec<Entry>,
    records: Vec<Record>,
    unfit: BTreeMap<String, Unfit>,
    references: Option<References>,
}

impl Listed {
    fn inventory(&self) -> Inventory<'_> {
        let slots = self.names.iter().enumerate().map(|(index, name)| Slot {
            name,
            is_named: index < self.unnamed,
            entry: self.entries.iter().find(|entry| entry.name() == name),
            record: self
                .records
                .iter()
                .find(|record| record.customization() == Some(name)),
            unfit: self.unfit.get(name).cloned(),
        });
        Inventory {
            slots: slots.collect(),
            references: self.references.as_ref(),
        }
    }
}

fn inventory(entries: impl IntoIterator<Item = Value>) -> Listed {
    let entries: Vec<Entry> = entries
        .into_iter()
        .map(|entry| serde_json::from_value(entry).unwrap())
        .collect();
    Listed {
        names: entries.iter().map(|entry| entry.name().to_owned()).collect(),
        unnamed: entries.len(),
        entries,
        ..Listed::default()
    }
}

fn referenced(mut listed: Listed, by: &[(&str, &str, &str)]) -> Listed {
    let references = listed.references.get_or_insert_default();
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
    listed
}

/// A record of `them`, as old as that.
fn sought(name: &str, seconds: i64) -> Record {
    let claim = LeaseClaim {
        holder: Holder {
            cluster_deployment: "them",
            ..HOLDER
        },
        duration: None,
        cluster_deployment_uid: None,
        is_creating: false,
    };
    let time = now() - jiff::SignedDuration::from_secs(seconds);
    serde_json::from_value(first(name, claim, time)).unwrap()
}

/// The names that are tried, `=` before one that is held already.
fn chosen(listed: &Listed, holder: Holder<'_>) -> Vec<String> {
    match listed.inventory().choose(holder, now()) {
        Choice::Held(entry) => vec![format!("={}", entry.name())],
        Choice::Free(entries) => entries.iter().map(|entry| entry.name().to_owned()).collect(),
        Choice::Bound { name, .. } => vec![format!("bound to {name}")],
        Choice::BeingReserved => vec!["sought".to_owned()],
        Choice::Exhausted(_) => vec![],
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
            "three failed ones are in a line, not in a circle",
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
            "scattered by holder where nothing else decides",
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
        let mut listed = inventory([free("a"), free("b")]);
        let record = |(slot, age): &(usize, i64)| sought(&listed.names[*slot], *age);
        listed.records = seconds.iter().map(record).collect();
        listed
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
    let mut listed = inventory([free("b")]);
    listed.names.insert(0, "a".to_owned());
    listed.unnamed = 2;
    assert_eq!(chosen(&listed, HOLDER), ["b"]);
    listed.names.truncate(1);
    let missing = Choice::Exhausted(vec![("a", Standing::Missing)]);
    assert_eq!(listed.inventory().choose(HOLDER, now()), missing);
}

#[test]
fn what_the_pool_does_not_name_is_kept_and_never_taken() {
    let unmarked = json!({"clusterDeploymentRef": {"name": "us"}, "clusterPoolRef": {"name": "pool"}});
    let us = [("b", "us", "pool")];
    for (case, entry, by, expected) in [
        ("held", Some(reserved("b", "us", "pool")), &us[..0], "=b"),
        (
            "held, with a cluster",
            Some(reserved("b", "us", "pool")),
            &us,
            "=b",
        ),
        ("a cluster's", Some(free("b")), &us, "bound to b"),
        (
            "a cluster's, held by another",
            Some(reserved("b", "them", "pool")),
            &us,
            "bound to b",
        ),
        ("a cluster's, and missing", None, &us, "bound to b"),
        (
            "marked available",
            Some(with_status("b", unmarked)),
            &us[..0],
            "bound to b",
        ),
        ("nobody's", Some(free("b")), &us[..0], "a"),
    ] {
        let mut listed = referenced(inventory([free("a")].into_iter().chain(entry)), by);
        listed.names = vec!["a".to_owned(), "b".to_owned()];
        listed.unnamed = 1;
        assert_eq!(chosen(&listed, HOLDER), [expected], "{case}");
    }
}

/// 64 holders and 64 entries that have never been used: no entry is the first choice of more than a few.
#[test]
fn first_choices_are_scattered() {
    let inventory = inventory((0..64).map(|entry| free(&format!("customization-{entry}"))));
    let mut first = BTreeMap::<_, usize>::new();
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

/// One slot as it is generated, and judged by what is written in it.
#[derive(Clone, Debug)]
struct Raw {
    name: String,
    is_named: bool,
    entry: Option<Value>,
    /// Name and pool of a cluster that was made with it.
    cluster: Option<(&'static str, &'static str)>,
    /// Seconds.
    record_age: Option<i64>,
    is_unfit: bool,
}

impl Raw {
    fn text(&self, pointer: &str) -> &str {
        let entry = self.entry.as_ref();
        entry
            .and_then(|entry| entry.pointer(pointer)?.as_str())
            .unwrap_or_default()
    }

    fn is_reserved(&self) -> bool {
        let conditions = self
            .entry
            .as_ref()
            .and_then(|entry| entry.pointer("/status/conditions"));
        let conditions = conditions.and_then(Value::as_array).into_iter().flatten();
        conditions
            .into_iter()
            .any(|condition| condition["type"] == "Available" && condition["status"] == "False")
    }

    fn users(&self) -> (&str, &str) {
        let cluster = self.text("/status/clusterDeploymentRef/name");
        (cluster, self.text("/status/clusterPoolRef/name"))
    }

    fn names_us(&self) -> bool {
        self.users() == ("us", "pool")
    }

    fn is_bound(&self) -> bool {
        self.cluster == Some(("us", "pool"))
    }

    fn is_free(&self) -> bool {
        self.is_named
            && self.entry.is_some()
            && !self.is_reserved()
            && self.users() == ("", "")
            && self.text("/metadata/deletionTimestamp").is_empty()
            && (self.cluster.is_none() || self.is_bound())
            && !self.is_unfit
    }

    fn is_being_reserved(&self) -> bool {
        self.record_age.is_some_and(|age| age < 10)
    }
}

/// What is chosen, free ones sorted by name.
fn expected(slots: &[Raw]) -> Vec<String> {
    let name = |raw: &Raw| raw.name.clone();
    if let Some(bound) = slots.iter().find(|raw| raw.is_bound()) {
        return vec![match bound {
            raw if raw.names_us() && raw.is_reserved() => format!("={}", raw.name),
            raw if raw.names_us() && raw.is_named => name(raw),
            raw if raw.is_free() && raw.is_being_reserved() => "sought".to_owned(),
            raw if raw.is_free() => name(raw),
            raw => format!("bound to {}", raw.name),
        }];
    }
    let mut ours = slots.iter().filter(|raw| raw.names_us());
    if let Some(held) = ours.clone().find(|raw| raw.is_reserved()) {
        return vec![format!("={}", held.name)];
    }
    if let Some(unmarked) = ours.clone().find(|raw| raw.is_named) {
        return vec![name(unmarked)];
    }
    if let Some(unnamed) = ours.next() {
        return vec![format!("bound to {}", unnamed.name)];
    }
    let free: Vec<_> = slots.iter().filter(|raw| raw.is_free()).collect();
    let mut unsought: Vec<_> = free
        .iter()
        .filter(|raw| !raw.is_being_reserved())
        .map(|raw| name(raw))
        .collect();
    if unsought.is_empty() && !free.is_empty() {
        return vec!["sought".to_owned()];
    }
    unsought.sort();
    unsought
}

fn listed(slots: &[Raw]) -> Listed {
    let entries = slots.iter().filter_map(|raw| raw.entry.clone());
    let mut listed = inventory(entries);
    listed.names = slots.iter().map(|raw| raw.name.clone()).collect();
    listed.unnamed = slots.iter().filter(|raw| raw.is_named).count();
    for raw in slots {
        if let Some((cluster, pool)) = raw.cluster {
            listed = referenced(listed, &[(&raw.name, cluster, pool)]);
        }
        listed
            .records
            .extend(raw.record_age.map(|age| sought(&raw.name, age)));
        if raw.is_unfit {
            listed
                .unfit
                .insert(raw.name.clone(), Unfit::Broken("it is".to_owned()));
        }
    }
    listed
}

fn any_slots() -> impl Strategy<Value = Vec<Raw>> {
    let slot = |index: usize, is_named: bool| {
        let name = format!("entry-{index}");
        let cluster = prop::sample::select(vec![("us", "pool"), ("us", "other"), ("them", "pool")]);
        (
            prop::option::weighted(0.9, any_entry(name.clone())),
            prop::option::weighted(0.1, cluster),
            prop::option::weighted(0.3, prop::sample::select(vec![1, 60])),
            prop::bool::weighted(0.2),
        )
            .prop_map(move |(entry, cluster, record_age, is_unfit)| Raw {
                name: name.clone(),
                is_named,
                entry,
                cluster,
                record_age,
                is_unfit,
            })
    };
    (0usize..8, 0usize..3).prop_flat_map(move |(named, unnamed)| {
        let slots = (0..named + unnamed).map(|index| slot(index, index < named));
        slots.collect::<Vec<_>>()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn what_is_chosen_is_what_the_objects_say(slots in any_slots()) {
        let listed = listed(&slots);
        let mut chosen = chosen(&listed, HOLDER);
        chosen.sort();
        prop_assert_eq!(chosen, expected(&slots));
    }

    /// The same for a holder however the server lists the entries; a free one is tried once.
    #[test]
    fn the_order_is_total((slots, shuffled) in any_slots().prop_flat_map(|slots| {
        let named: Vec<_> = slots.into_iter().filter(|raw| raw.is_named).collect();
        (Just(named.clone()), Just(named).prop_shuffle())
    })) {
        let is_ours = |raw: &Raw| raw.names_us() || raw.is_bound();
        prop_assume!(!slots.iter().any(is_ours));
        let one = chosen(&listed(&slots), HOLDER);
        prop_assert_eq!(&one, &chosen(&listed(&shuffled), HOLDER));
        let names: BTreeSet<_> = one.iter().collect();
        prop_assert_eq!(names.len(), one.len());
    }
}
