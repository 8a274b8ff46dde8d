//! Which missing clusters are created again, and when there is room for them.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{
    install_config::InstallConfig,
    repair::{
        decision::findings,
        options::{Clock, Options},
    },
    testing::objects::{
        JUST_NOW, LONG_AGO, NOW, Objects, cluster, creating, deleted, entry, pool_object, record, seen,
    },
};

/// `cause: remedy` of each entry, when clusters are created again and when entries are freed.
fn found(objects: &Objects, forced: &[String]) -> [Vec<String>; 2] {
    let install_config = InstallConfig::parse(b"metadata: {name: x}", "f").unwrap();
    [Some(&install_config), None].map(|install_config| {
        let options = Options {
            pool: Some("pool"),
            clock: Clock {
                now: NOW.parse().unwrap(),
                grace: SignedDuration::from_mins(10),
            },
            forced,
            install_config,
        };
        let found = findings(&objects.snapshot(), &options);
        let line =
            |finding: &super::Finding| format!("{}: {}", finding.cause.as_str(), finding.remedy.as_str());
        found.iter().map(line).collect()
    })
}

fn held() -> Value {
    entry("False", Some("us"), LONG_AGO)
}

fn endless() -> Value {
    record("us", LONG_AGO, None)
}

fn gone() -> Objects {
    Objects::entry(held()).record(seen(endless(), "gone"))
}

#[test]
fn where_there_was_a_cluster_there_is_one_again() {
    let of = |record: Value| Objects::entry(held()).record(record);
    let expired = || record("us", LONG_AGO, Some(60));
    let mut revoked = seen(endless(), "gone");
    revoked["metadata"]["annotations"]["kubectl-kcp.dev/revoked"] = NOW.into();
    for (case, objects, expected) in [
        (
            "seen and gone",
            gone(),
            ["cluster-gone: recreate", "cluster-gone: free"],
        ),
        (
            "broken off while it was made",
            of(creating(expired())),
            ["creation-broken-off: recreate", "lease-expired: free"],
        ),
        (
            "broken off, and the lease has not ended yet",
            of(creating(record("us", LONG_AGO, Some(7200)))),
            ["creation-broken-off: recreate", ""],
        ),
        (
            "broken off, and the lease has no end",
            of(creating(endless())),
            ["creation-broken-off: recreate", "unverifiable: force"],
        ),
        (
            "no namespace can have its name",
            Objects::entry(entry("False", Some("us.x"), LONG_AGO))
                .record(seen(record("us.x", LONG_AGO, None), "gone")),
            ["cluster-gone: blocked", "cluster-gone: free"],
        ),
        (
            "being made",
            of(creating(record("us", JUST_NOW, Some(600)))),
            ["", ""],
        ),
        ("its lease has ended", of(expired()), ["lease-expired: free"; 2]),
        (
            "its lease has ended, and its cluster is gone",
            of(seen(expired(), "gone")),
            ["lease-expired: free"; 2],
        ),
        ("its lease was revoked", of(revoked), ["lease-revoked: free"; 2]),
        ("unverifiable", of(endless()), ["unverifiable: force"; 2]),
        (
            "marked available",
            Objects::entry(entry("True", Some("us"), LONG_AGO)).record(seen(endless(), "gone")),
            ["cluster-gone: free"; 2],
        ),
        (
            "reserved without a holder",
            Objects::entry(entry("False", None, LONG_AGO)),
            ["holder-unknown: force"; 2],
        ),
        (
            "it is there",
            gone().cluster(cluster("us", "pool", Some("a"))),
            ["", ""],
        ),
        (
            "another was made with it",
            gone().cluster(cluster("them", "pool", Some("a"))),
            ["used-by-another: reserve"; 2],
        ),
    ] {
        let expected = expected.map(|line| Vec::from_iter((!line.is_empty()).then(|| line.to_owned())));
        assert_eq!(found(&objects, &[]), expected, "{case}");
    }
    let taken_down = gone().cluster(deleted(
        cluster("us", "pool", Some("a")),
        &["kubectl-kcp.dev/pool-lease"],
    ));
    let both = ["cluster-taken-down: free", "finalizer-left: remove-finalizer"].map(str::to_owned);
    assert_eq!(found(&taken_down, &[]), [both.to_vec(), both.to_vec()]);
}

#[test]
fn what_nothing_proves_gets_its_cluster_by_name_alone() {
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (objects, forced, expected) in [
        (
            Objects::entry(held()),
            of(&["a"]),
            ["unverifiable: recreate", "unverifiable: free"],
        ),
        (Objects::entry(held()), of(&["b"]), ["unverifiable: force"; 2]),
        (
            Objects::entry(entry("False", None, LONG_AGO)),
            of(&["a"]),
            ["holder-unknown: free"; 2],
        ),
    ] {
        let expected = expected.map(|line| vec![line.to_owned()]);
        assert_eq!(found(&objects, &forced), expected, "{forced:?}");
    }
}

#[test]
fn what_the_pool_no_longer_keeps_is_freed() {
    let with = |change: &dyn Fn(&mut Objects)| {
        let mut objects = gone();
        change(&mut objects);
        objects
    };
    for (case, objects) in [
        (
            "run by Hive",
            with(&|objects| {
                objects.pools[0]["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
            }),
        ),
        (
            "the pool is being deleted",
            with(&|objects| objects.pools[0]["metadata"]["deletionTimestamp"] = NOW.into()),
        ),
        ("the pool is gone", with(&|objects| objects.pools.clear())),
        (
            "not in the inventory",
            with(&|objects| {
                objects.pools = vec![pool_object("pool", &json!({"inventory": [{"name": "b"}]}))];
            }),
        ),
        (
            "the customization is being deleted",
            with(&|objects| objects.entries[0]["metadata"]["deletionTimestamp"] = NOW.into()),
        ),
    ] {
        let freed = vec!["cluster-gone: free".to_owned()];
        assert_eq!(found(&objects, &[]), [freed.clone(), freed], "{case}");
    }
}

/// Entries `a`, `b` and `c`, whose clusters are gone, in a pool with these limits and clusters.
fn three_gone(limits: &Value, clusters: Vec<Value>) -> Vec<String> {
    let mut spec = limits.clone();
    spec["inventory"] = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]);
    let mut objects = Objects {
        pools: vec![pool_object("pool", &spec)],
        clusters,
        ..Objects::default()
    };
    for name in ["a", "b", "c"] {
        let mut entry = entry("False", Some(&format!("of-{name}")), LONG_AGO);
        entry["metadata"]["name"] = name.into();
        objects.entries.push(entry);
        let mut record = seen(record(&format!("of-{name}"), LONG_AGO, None), "gone");
        record["metadata"]["name"] = format!("kcp-pool-{name}").into();
        objects.records.push(record);
    }
    let install_config = InstallConfig::parse(b"{}", "f").unwrap();
    let options = Options {
        pool: None,
        clock: Clock {
            now: NOW.parse().unwrap(),
            grace: SignedDuration::ZERO,
        },
        forced: &[],
        install_config: Some(&install_config),
    };
    let sentence = |finding: &super::Finding| {
        let sentence = finding.sentence();
        let why = sentence
            .split_once("; not created again: ")
            .map(|(_, why)| format!(": {why}"));
        format!("{}{}", finding.remedy.as_str(), why.unwrap_or_default())
    };
    findings(&objects.snapshot(), &options)
        .iter()
        .map(sentence)
        .collect()
}

#[test]
fn those_that_are_made_count_against_each_other() {
    let other = || vec![cluster("other", "pool", None)];
    let full = |clusters: usize, limit: usize| {
        let noun = if clusters == 1 { "cluster" } else { "clusters" };
        format!("blocked: pool pool is full: maxSize is {limit}, and it has {clusters} {noun}")
    };
    let busy = |changing: usize, limit: usize| {
        format!(
            "blocked: pool pool is full: maxConcurrent is {limit}, and {changing} of its clusters are being created or \
             deleted"
        )
    };
    let made = || "recreate".to_owned();
    for (limits, clusters, expected) in [
        (json!({}), other(), vec![made(), made(), made()]),
        (json!({"maxSize": 3}), other(), vec![made(), made(), full(3, 3)]),
        (json!({"maxSize": 1}), other(), vec![full(1, 1); 3]),
        (
            json!({"maxSize": 1}),
            vec![],
            vec![made(), full(1, 1), full(1, 1)],
        ),
        (
            json!({"maxConcurrent": 2}),
            other(),
            vec![made(), busy(2, 2), busy(2, 2)],
        ),
        (json!({"maxConcurrent": 0}), vec![], vec![busy(0, 0); 3]),
    ] {
        assert_eq!(three_gone(&limits, clusters), expected, "{limits}");
    }
}

#[test]
fn patches_that_cannot_be_applied_are_in_the_way() {
    let mut objects = gone();
    objects.entries[0]["spec"] = json!({"installConfigPatches": [{"op": "remove", "path": "/absent"}]});
    assert_eq!(
        found(&objects, &[]),
        [
            vec!["cluster-gone: blocked".to_owned()],
            vec!["cluster-gone: free".to_owned()]
        ]
    );
}
