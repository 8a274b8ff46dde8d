//! Which entry a holder gets.

use kcp_client::ServerTime;
use serde_json::{Value, json};

use super::{Inventory, InventorySlot, LeaseChoice, SeveralEntries};
use crate::{
    lease::{
        reuse::Reuse,
        rule::{DEFAULT_GRACE, Rule, Transition},
        usage::Clusters,
    },
    objects::{Holder, cluster_deployment::ClusterDeployments, entry::Entry},
    testing::objects::{
        LONG_AGO, NOW, being_cleaned, cleaning, cluster, entry, gone, in_use, lease, leased, named, read,
    },
};

const LATER: &str = "2026-11-22T05:00:00Z";

/// What `us` gets from an inventory that lists `a`, `b` and `c`: `held a`, `free b a`, `bound to a (why)`, or
/// the state of each entry.
fn choice(entries: &[Value], clusters: &[Value]) -> String {
    choice_of(1, entries, clusters)
}

/// What `us` gets if it wants this number of entries.
fn choice_of(count: usize, entries: &[Value], clusters: &[Value]) -> String {
    let entries: Vec<Entry> = entries.iter().map(read).collect();
    let clusters = Clusters::All(ClusterDeployments::new("d", clusters.iter().map(read).collect()));
    let now = NOW.parse().unwrap();
    let find = |name: &str| {
        entries
            .iter()
            .find(|entry| entry.metadata.name.as_deref() == Some(name))
    };
    let slot = |name, is_in_inventory| InventorySlot {
        name,
        is_in_inventory,
        entry: find(name),
        patch_problem: None,
        reuse: Reuse::Free,
    };
    let unnamed = find("x").map(|_| slot("x", false));
    let inventory = Inventory {
        slots: ["a", "b", "c"]
            .map(|name| slot(name, true))
            .into_iter()
            .chain(unnamed)
            .collect(),
        clusters: &clusters,
        rule: Rule {
            now: ServerTime {
                earliest: now,
                latest: now,
                is_certain: true,
            },
            grace: DEFAULT_GRACE,
            reuse: Reuse::Free,
        },
    };
    let holder = Holder {
        pool: "pool",
        cluster_deployment: "us",
    };
    let name = |entry: &Entry| entry.metadata.name.clone().unwrap();
    let names = |entries: &[&Entry]| entries.iter().map(|entry| name(entry)).collect::<String>();
    match inventory.choose(holder, count) {
        LeaseChoice::Several(SeveralEntries {
            held,
            own,
            free,
            missing,
        }) => {
            let (held, own, free) = (names(&held), names(&own), names(&free));
            format!("held {held:?}, own {own:?}, and {missing} of {free:?}")
        }
        LeaseChoice::HeldMore(held) => format!("holds {}", names(&held)),
        LeaseChoice::Held(entry) => format!("held {}", name(entry)),
        LeaseChoice::Own(entry) => format!("own {}", name(entry)),
        LeaseChoice::Free(free) => {
            let mut free: Vec<_> = free.into_iter().map(name).collect();
            free.sort();
            format!("free {}", free.join(" "))
        }
        LeaseChoice::BoundButUnavailable { name, availability } => {
            format!("bound to {}", availability.describe_entry(name, "pool"))
        }
        LeaseChoice::Exhausted {
            availabilities,
            record_updates,
        } => {
            let availabilities: Vec<_> = availabilities
                .iter()
                .map(|(name, availability)| availability.describe_entry(name, "pool"))
                .collect();
            let record_updates: Vec<_> = record_updates
                .iter()
                .map(|update| {
                    let state = match &update.transition {
                        Transition::Write(record) => record.state.as_str(),
                        Transition::Clean(_) => "cleaning",
                        other => panic!("{other:?}"),
                    };
                    format!("{} {state}", name(update.entry))
                })
                .collect();
            format!("{}; {}", availabilities.join("; "), record_updates.join(", "))
        }
    }
}

fn free(name: &str) -> Value {
    named(name, entry("True", None))
}

fn held(name: &str, by: &str) -> Value {
    named(name, leased(&lease(by, Some(LATER))))
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn which_entry_a_holder_gets() {
    let mut cordoned = free("c");
    cordoned["metadata"]["annotations"] = json!({"kubectl-kcp.dev/cordoned": "fan"});
    let mut ours_and_cordoned = held("c", "us");
    ours_and_cordoned["metadata"]["annotations"] = json!({"kubectl-kcp.dev/cordoned": "fan"});
    let mut deleting = free("b");
    deleting["metadata"]["deletionTimestamp"] = NOW.into();
    let mut unreadable = held("a", "us");
    unreadable["status"]["conditions"][1]["message"] = "v2".into();
    let of_us = |entry| cluster("us", "pool", Some(entry));
    let of_them = |entry| cluster("them", "other", Some(entry));
    for (case, entries, clusters, expected) in [
        (
            "all free",
            vec![free("a"), free("b"), free("c")],
            vec![],
            "free a b c",
        ),
        (
            "held already",
            vec![free("a"), held("b", "us"), free("c")],
            vec![],
            "held b",
        ),
        (
            "held without a record",
            vec![free("a"), named("b", entry("False", Some("us")))],
            vec![],
            "held b",
        ),
        (
            "held and cordoned",
            vec![free("a"), ours_and_cordoned],
            vec![],
            "held c",
        ),
        (
            "held outside of the inventory",
            vec![free("a"), held("x", "us")],
            vec![],
            "held x",
        ),
        (
            "bound by its cluster",
            vec![free("a"), free("b")],
            vec![of_us("b")],
            "own b",
        ),
        (
            "bound to what another has",
            vec![free("a"), held("b", "them")],
            vec![of_us("b")],
            "bound to b, which is held by them until its cluster no longer exists",
        ),
        (
            "held, and used by another's cluster",
            vec![free("a"), held("b", "us")],
            vec![of_them("b")],
            "bound to b, which is used by them",
        ),
        (
            "held, and used by both clusters",
            vec![free("a"), held("b", "us")],
            vec![of_them("b"), of_us("b")],
            "held b",
        ),
        (
            "its record is unreadable",
            vec![unreadable],
            vec![],
            "bound to a, which is unreadable",
        ),
        (
            "used by another's cluster",
            vec![free("a"), free("b")],
            vec![of_them("a")],
            "free b",
        ),
        (
            "cordoned and deleting",
            vec![free("a"), deleting, cordoned],
            vec![],
            "free a",
        ),
        (
            "none free",
            vec![
                held("a", "them"),
                named("b", leased(&in_use("rome", LATER, "uid-of-rome"))),
                free("c"),
            ],
            vec![cluster("rome", "pool", Some("b")), of_them("c")],
            "a, which is held by them until 2026-11-22T05:00:00Z; b, which is held by rome until its cluster no longer exists; \
             c, which is used by them; ",
        ),
        (
            "ended, after its cluster was found gone",
            vec![named("a", leased(&gone("them", LONG_AGO)))],
            vec![],
            "free a",
        ),
        (
            "being cleaned",
            vec![named("a", being_cleaned(&cleaning(None, 1)))],
            vec![],
            "a, which is being cleaned since 2026-11-21T04:00:00Z, with 1 failure; b, which is missing; c, which is missing; ",
        ),
        (
            "being cleaned, and used",
            vec![named("a", being_cleaned(&cleaning(None, 0)))],
            vec![of_us("a")],
            "bound to a, which is being cleaned since 2026-11-21T04:00:00Z",
        ),
        (
            "being cleaned, and another is free",
            vec![named("a", being_cleaned(&cleaning(None, 0))), free("b")],
            vec![],
            "free b",
        ),
        (
            "ended, and the first look",
            vec![named("a", leased(&lease("them", Some(LONG_AGO))))],
            vec![],
            "a, which is held by them although the lease has ended; to free the entry, run: kubectl kcp pool repair --yes; b, which is missing; c, which \
             is missing; a gone",
        ),
        (
            "without a record",
            vec![named("a", entry("False", Some("them")))],
            vec![],
            "a, which is held by them; b, which is missing; c, which is missing; a gone",
        ),
    ] {
        assert_eq!(choice(&entries, &clusters), expected, "{case}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn which_entries_a_holder_of_several_gets() {
    let mut failed = free("a");
    let condition = json!({"type": "ApplySucceeded", "status": "False", "reason": "BrokenByCloud", "lastTransitionTime": NOW});
    failed["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(condition);
    let mut unreadable = held("a", "us");
    unreadable["status"]["conditions"][1]["message"] = "v2".into();
    let of_us = |entry| cluster("us", "pool", Some(entry));
    let of_them = |entry| cluster("them", "other", Some(entry));
    for (case, count, entries, clusters, expected) in [
        (
            "in the order of their names",
            2,
            vec![free("c"), free("b"), free("a")],
            vec![],
            r#"held "", own "", and 2 of "abc""#,
        ),
        (
            "the last use of one failed",
            2,
            vec![failed, free("b"), free("c")],
            vec![],
            r#"held "", own "", and 2 of "bca""#,
        ),
        (
            "one held already",
            3,
            vec![free("a"), held("b", "us"), free("c")],
            vec![],
            r#"held "b", own "", and 2 of "ac""#,
        ),
        (
            "all held already",
            2,
            vec![held("a", "us"), free("b"), held("c", "us")],
            vec![],
            r#"held "ac", own "", and 0 of "b""#,
        ),
        (
            "one held outside of the inventory",
            2,
            vec![free("a"), held("b", "them"), held("x", "us")],
            vec![],
            r#"held "x", own "", and 1 of "a""#,
        ),
        (
            "more held than wanted",
            2,
            vec![held("a", "us"), held("b", "us"), held("c", "us")],
            vec![],
            "holds abc",
        ),
        (
            "more held or used than wanted",
            2,
            vec![held("a", "us"), free("b"), held("c", "us")],
            vec![of_us("b")],
            "holds acb",
        ),
        (
            "its cluster uses one",
            2,
            vec![free("a"), free("b"), free("c")],
            vec![of_us("c")],
            r#"held "", own "c", and 1 of "ab""#,
        ),
        (
            "its cluster uses what another holds",
            2,
            vec![free("a"), held("b", "them"), free("c")],
            vec![of_us("b")],
            "bound to b, which is held by them until its cluster no longer exists",
        ),
        (
            "another's cluster uses one that it holds",
            2,
            vec![held("a", "us"), held("b", "us"), free("c")],
            vec![of_them("b")],
            "bound to b, which is used by them",
        ),
        (
            "the record of one is unreadable",
            2,
            vec![unreadable, free("b"), free("c")],
            vec![],
            "bound to a, which is unreadable",
        ),
        (
            "too few are free",
            2,
            vec![held("a", "them"), free("b"), held("c", "them")],
            vec![],
            "a, which is held by them until 2026-11-22T05:00:00Z; b, which is free; \
             c, which is held by them until 2026-11-22T05:00:00Z; ",
        ),
        (
            "another's cluster uses one",
            3,
            vec![free("a"), free("b"), free("c")],
            vec![of_them("b")],
            "a, which is free; b, which is used by them; c, which is free; ",
        ),
        (
            "one whose lease has ended",
            2,
            vec![named("a", leased(&gone("them", LONG_AGO))), free("b")],
            vec![],
            r#"held "", own "", and 2 of "ab""#,
        ),
    ] {
        assert_eq!(choice_of(count, &entries, &clusters), expected, "{case}");
    }
}
