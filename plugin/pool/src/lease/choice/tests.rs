//! Which entry a holder gets.

use kcp_client::ServerTime;
use serde_json::{Value, json};

use super::{Inventory, InventorySlot, LeaseChoice};
use crate::{
    lease::{
        rule::{DEFAULT_GRACE, Rule},
        usage::Clusters,
    },
    objects::{Holder, cluster_deployment::ClusterDeployments, entry::Entry},
    testing::objects::{LONG_AGO, NOW, cluster, entry, gone, in_use, lease, leased, named, read},
};

const LATER: &str = "2026-11-22T05:00:00Z";

/// What `us` gets from an inventory that lists `a`, `b` and `c`: `held a`, `free b a`, `bound to a (why)`, or
/// the state of each entry.
fn choice(entries: &[Value], clusters: &[Value]) -> String {
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
        },
    };
    let holder = Holder {
        pool: "pool",
        cluster_deployment: "us",
    };
    let name = |entry: &Entry| entry.metadata.name.clone().unwrap();
    match inventory.choose(holder) {
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
                .map(|transition| format!("{} {}", name(transition.entry), transition.record.state.as_str()))
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
