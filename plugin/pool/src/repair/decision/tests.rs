//! Each cause, and what it is not taken for.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{
    repair::{
        decision::findings,
        options::{Clock, Options},
        sightings::{Sighting, sightings},
    },
    testing::objects::{
        JUST_NOW, LONG_AGO, NOW, Objects, cluster, deleted, entry, pool_object, record, seen,
    },
};

const OURS: &str = "kubectl-kcp.dev/pool-lease";

fn options<'w>(pool: Option<&'w str>, forced: &'w [String]) -> Options<'w> {
    Options {
        pool,
        clock: Clock {
            now: NOW.parse().unwrap(),
            grace: SignedDuration::from_mins(10),
        },
        forced,
        install_config: None,
    }
}

/// `resource: cause: remedy` of each finding.
fn found(objects: &Objects, options: &Options<'_>) -> Vec<String> {
    let line = |finding: &super::Finding| {
        let subject = finding.subject.resource_name();
        let kind = subject.split('.').next().unwrap_or_default().to_owned();
        let name = subject.rsplit('/').next().unwrap_or_default();
        format!(
            "{kind}/{name}: {}: {}",
            finding.cause.as_str(),
            finding.remedy.as_str()
        )
    };
    findings(&objects.snapshot(), options).iter().map(line).collect()
}

fn held() -> Value {
    entry("False", Some("us"), LONG_AGO)
}

fn user(name: &str) -> Value {
    cluster(name, "pool", Some("a"))
}

fn without(mut object: Value, pointer: &str, field: &str) -> Value {
    object
        .pointer_mut(pointer)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove(field);
    object
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

const ENTRY: &str = "clusterdeploymentcustomization/a";

/// What is wrong with entry `a`, and what repairs it.
fn assert_found<const N: usize>(cases: [(&str, Objects, Option<&str>); N]) {
    for (case, objects, expected) in cases {
        let expected: Vec<_> = expected
            .iter()
            .map(|expected| format!("{ENTRY}: {expected}"))
            .collect();
        let mut found = found(&objects, &options(None, &[]));
        found.retain(|line| line.starts_with(ENTRY));
        assert_eq!(found, expected, "{case}");
    }
}

fn of(entry: Value) -> Objects {
    Objects::entry(entry)
}

fn elsewhere(object: Value) -> Value {
    with(object, "/metadata/namespace", json!("x"))
}

fn of_no_pool(name: &str) -> Value {
    with(user(name), "/spec", json!({}))
}

const CUSTOMIZATION: &str = "/spec/clusterPoolRef/clusterDeploymentCustomization/name";

/// Our finalizer alone keeps the holder's cluster.
fn over() -> Value {
    deleted(user("us"), &[OURS])
}

fn recent() -> Value {
    entry("False", Some("us"), JUST_NOW)
}

fn stale() -> Value {
    entry("True", Some("us"), LONG_AGO)
}

fn expired() -> Value {
    record("us", LONG_AGO, Some(60))
}

fn lasting() -> Value {
    record("us", JUST_NOW, Some(600))
}

fn endless() -> Value {
    record("us", LONG_AGO, None)
}

fn revoked() -> Value {
    let mut record = endless();
    record["metadata"]["annotations"]["kubectl-kcp.dev/revoked"] = NOW.into();
    record
}

#[test]
fn who_is_there_keeps_what_it_has() {
    assert_found([
        ("free", of(entry("True", None, LONG_AGO)), None),
        (
            "never used",
            of(without(entry("True", None, LONG_AGO), "", "status")),
            None,
        ),
        ("its cluster is there", of(held()).cluster(user("us")), None),
        (
            "expired, but its cluster is there",
            of(held()).record(expired()).cluster(user("us")),
            None,
        ),
        (
            "its cluster, of no pool, is in the namespace of its name",
            of(held()).record(expired()).cluster(of_no_pool("us")),
            None,
        ),
        (
            "its cluster is in another namespace",
            of(held()).record(expired()).cluster(elsewhere(user("us"))),
            None,
        ),
        (
            "the cluster that was seen is elsewhere, of no pool",
            of(held())
                .record(seen(endless(), "uid-of-us"))
                .cluster(elsewhere(of_no_pool("us"))),
            None,
        ),
        (
            "its cluster is being taken down",
            of(held())
                .record(expired())
                .cluster(deleted(user("us"), &["other", OURS])),
            None,
        ),
        ("it renews its lease", of(held()).record(lasting()), None),
        (
            "it renews its lease, and its cluster went",
            of(held()).record(seen(lasting(), "gone")),
            None,
        ),
        (
            "it renews its lease, and a cluster of its name and another pool is deleted",
            of(held())
                .record(lasting())
                .cluster(with(over(), "/spec/clusterPoolRef/namespace", json!("x"))),
            None,
        ),
        (
            "it renews its lease, and its cluster is deleted",
            of(held()).record(seen(lasting(), "uid-of-us")).cluster(over()),
            None,
        ),
        (
            "leased for the next cluster, while the last one is deleted",
            of(recent()).cluster(deleted(user("them"), &["other"])),
            None,
        ),
        (
            "reserved for the next cluster, while the last one is deleted",
            of(recent())
                .cluster(deleted(user("them"), &["other"]))
                .cluster(user("us")),
            None,
        ),
        ("leased a minute ago", of(recent()), None),
        (
            "leased a minute ago, its cluster went",
            of(recent()).record(seen(endless(), "gone")),
            None,
        ),
    ]);
}

#[test]
fn who_is_gone_does_not() {
    assert_found([
        (
            "expired",
            of(held()).record(expired()),
            Some("lease-expired: free"),
        ),
        (
            "expired a minute after it was leased",
            of(recent()).record(expired()),
            Some("lease-expired: free"),
        ),
        (
            "its cluster was seen and is gone",
            of(held()).record(seen(endless(), "gone")),
            Some("cluster-gone: free"),
        ),
        (
            "a cluster of its name, of no pool, is elsewhere",
            of(held())
                .record(seen(endless(), "gone"))
                .cluster(elsewhere(of_no_pool("us"))),
            Some("cluster-gone: free"),
        ),
        (
            "revoked and not freed",
            of(held()).record(revoked()),
            Some("lease-revoked: free"),
        ),
        (
            "its cluster is taken down",
            of(held()).record(endless()).cluster(over()),
            Some("cluster-taken-down: free"),
        ),
        (
            "expired, and its cluster is taken down",
            of(held()).record(expired()).cluster(over()),
            Some("cluster-taken-down: free"),
        ),
        (
            "the cluster that was seen is taken down, made with another",
            of(held())
                .record(seen(endless(), "uid-of-us"))
                .cluster(with(over(), CUSTOMIZATION, json!("b"))),
            Some("cluster-taken-down: free"),
        ),
        (
            "a cluster of its name, made with another, is taken down",
            of(held())
                .record(endless())
                .cluster(with(over(), CUSTOMIZATION, json!("b"))),
            Some("unverifiable: force"),
        ),
        (
            "a cluster of its name and another pool is taken down",
            of(held())
                .record(endless())
                .cluster(with(over(), "/spec/clusterPoolRef/poolName", json!("q"))),
            Some("unverifiable: force"),
        ),
        ("nothing known", of(held()), Some("unverifiable: force")),
        (
            "leased until released, no cluster seen",
            of(held()).record(endless()),
            Some("unverifiable: force"),
        ),
        (
            "the record is another's",
            of(held()).record(record("them", NOW, Some(1))),
            Some("unverifiable: force"),
        ),
        (
            "reserved without a holder",
            of(entry("False", None, LONG_AGO)),
            Some("holder-unknown: force"),
        ),
        (
            "reserved without a holder a minute ago",
            of(entry("False", None, JUST_NOW)),
            None,
        ),
        (
            "for a pool, and no cluster",
            of(without(stale(), "/status", "clusterDeploymentRef")),
            Some("holder-unknown: force"),
        ),
    ]);
}

#[test]
fn what_is_marked_available_and_names_somebody() {
    assert_found([
        (
            "stale, expired",
            of(stale()).record(expired()),
            Some("lease-expired: free"),
        ),
        (
            "stale, its cluster was seen and is gone",
            of(stale()).record(seen(endless(), "gone")),
            Some("cluster-gone: free"),
        ),
        ("stale, nothing known", of(stale()), Some("unverifiable: force")),
        (
            "stale, the holder has a cluster",
            of(stale()).cluster(of_no_pool("us")),
            Some("marked-available: reserve"),
        ),
    ]);
}

#[test]
fn what_a_cluster_was_made_with_is_reserved_for_it() {
    assert_found([
        (
            "available, used by its holder",
            of(stale()).cluster(user("us")),
            Some("marked-available: reserve"),
        ),
        (
            "available, used",
            of(entry("True", None, JUST_NOW)).cluster(user("us")),
            Some("marked-available: reserve"),
        ),
        (
            "freed a minute ago, its cluster is going",
            of(entry("True", None, JUST_NOW)).cluster(deleted(user("us"), &["other"])),
            None,
        ),
        (
            "freed long ago, its cluster is going",
            of(entry("True", None, LONG_AGO)).cluster(deleted(user("us"), &["other"])),
            Some("marked-available: reserve"),
        ),
        (
            "reserved without a holder, used",
            of(entry("False", None, JUST_NOW)).cluster(user("us")),
            Some("references-missing: reserve"),
        ),
        (
            "for one who is gone, used by another",
            of(held()).record(expired()).cluster(user("them")),
            Some("used-by-another: reserve"),
        ),
    ]);
}

#[test]
fn what_two_have_is_told_alone() {
    assert_found([
        (
            "for one who is there, used by another",
            of(held()).cluster(user("them")).cluster(of_no_pool("us")),
            Some("contested: none"),
        ),
        (
            "for an unverifiable holder, used by another",
            of(held()).cluster(user("them")),
            Some("contested: none"),
        ),
        (
            "used by another that has been going since before the grace time",
            of(held())
                .cluster(deleted(user("them"), &["other"]))
                .cluster(user("us")),
            Some("contested: none"),
        ),
        (
            "for one who is gone, while another is going",
            of(recent())
                .record(expired())
                .cluster(deleted(user("them"), &["other"])),
            Some("used-by-another: reserve"),
        ),
        (
            "used by two",
            of(held()).cluster(user("them")).cluster(user("us")),
            Some("contested: none"),
        ),
    ]);
}

#[test]
fn what_the_inventory_no_longer_has_is_freed_by_the_same_proof() {
    let mut dropped = Objects::entry(held());
    dropped.pools = vec![pool_object("pool", &json!({"inventory": [{"name": "b"}]}))];
    let expired = dropped.clone().record(record("us", LONG_AGO, Some(60)));
    let mut without_pool = expired.clone();
    without_pool.pools.clear();
    let sentence =
        "not in the inventory of pool; reserved for us, whose lease expired at 2026-11-21T04:01:00Z";
    for objects in [expired, without_pool] {
        let found = findings(&objects.snapshot(), &options(None, &[]));
        assert_eq!(
            found.iter().map(super::Finding::sentence).collect::<Vec<_>>(),
            [sentence]
        );
    }
    assert_eq!(
        found(&dropped.clone().cluster(user("us")), &options(None, &[])),
        Vec::<String>::new()
    );
    assert_eq!(
        found(&dropped, &options(None, &[])),
        ["clusterdeploymentcustomization/a: unverifiable: force"]
    );
}

#[test]
fn what_nothing_proves_is_freed_by_name_alone() {
    for (objects, name, remedy) in [
        (Objects::entry(held()), "a", "free"),
        (Objects::entry(held()), "b", "force"),
        (Objects::entry(entry("False", None, LONG_AGO)), "a", "free"),
    ] {
        let forced = [name.to_owned()];
        let found = findings(&objects.snapshot(), &options(None, &forced));
        let [finding] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(finding.remedy.as_str(), remedy, "{name}");
    }
    let forced = ["a".to_owned()];
    for (kept, why) in [
        (
            Objects::entry(held()).cluster(user("us")),
            "whose ClusterDeployment exists, in namespace us",
        ),
        (
            Objects::entry(held()).record(record("us", JUST_NOW, Some(600))),
            "whose lease ends at 2026-11-21T05:09:00Z",
        ),
        (
            Objects::entry(entry("False", Some("us"), JUST_NOW)),
            "which has held it for less than the grace period",
        ),
    ] {
        let told = findings(&kept.snapshot(), &options(None, &forced));
        let told: Vec<_> = told.iter().map(super::Finding::sentence).collect();
        assert_eq!(told, [format!("not freed: held by us, {why}")]);
        assert_eq!(
            found(&kept, &options(None, &forced)),
            [format!("{ENTRY}: in-use: keep")]
        );
        assert_eq!(
            found(&kept, &options(None, &["b".to_owned()])),
            Vec::<String>::new()
        );
    }
    let unverifiable = Objects::entry(held());
    assert_eq!(
        found(&unverifiable, &options(Some("other"), &forced)),
        [format!("{ENTRY}: in-use: keep")]
    );
    // It is as it was to be.
    let free = Objects::entry(entry("True", None, LONG_AGO));
    assert_eq!(found(&free, &options(None, &forced)), Vec::<String>::new());
}

#[test]
fn what_follows_an_entry() {
    let free = || entry("True", None, LONG_AGO);
    for (case, objects, expected) in [
        (
            "its cluster waits for us",
            of(held()).cluster(over()),
            vec![
                "clusterdeploymentcustomization/a: cluster-taken-down: free",
                "clusterdeployment/us: finalizer-left: remove-finalizer",
            ],
        ),
        (
            "its cluster waits for us, and the entry is free",
            of(free()).cluster(over()),
            vec!["clusterdeployment/us: finalizer-left: remove-finalizer"],
        ),
        (
            "its cluster waits for another too",
            of(held()).cluster(deleted(user("us"), &["other", OURS])),
            vec![],
        ),
        (
            "a cluster waits for us that is of another namespace's pool",
            of(free()).cluster(with(over(), "/spec/clusterPoolRef/namespace", json!("x"))),
            vec![],
        ),
        (
            "a record of an entry without a holder",
            of(free()).record(record("us", LONG_AGO, None)),
            vec!["lease/kcp-pool-a: record-left: delete"],
        ),
        (
            "a record that was written a minute ago",
            of(free()).record(record("us", JUST_NOW, None)),
            vec![],
        ),
        (
            "a record without an entry",
            Objects::default().record(record("us", LONG_AGO, None)),
            vec!["lease/kcp-pool-a: record-left: delete"],
        ),
        (
            "a record of one who had it before",
            of(held())
                .record(record("them", LONG_AGO, None))
                .cluster(user("us")),
            vec!["lease/kcp-pool-a: record-left: delete"],
        ),
    ] {
        assert_eq!(found(&objects, &options(None, &[])), expected, "{case}");
    }
}

#[test]
fn when_a_copy_is_left() {
    let free = || entry("True", None, LONG_AGO);
    let copy = |namespace: &str, created: &str| {
        json!({"metadata": {"name": "a", "namespace": namespace, "creationTimestamp": created, "labels": {
            "hive.openshift.io/clusterpool-namespace": "d", "hive.openshift.io/clusterpool-name": "pool"}}})
    };
    let copied = |objects: Objects, copy: Value| Objects {
        copies: vec![copy],
        ..objects
    };
    for (case, objects, expected) in [
        (
            "a copy of which the cluster is gone",
            copied(of(free()), copy("us", LONG_AGO)),
            vec!["clusterdeploymentcustomization/a: copy-left: delete"],
        ),
        (
            "a copy made a minute ago",
            copied(of(free()), copy("us", JUST_NOW)),
            vec![],
        ),
        (
            "a copy with its cluster",
            copied(of(held()), copy("us", LONG_AGO)).cluster(user("us")),
            vec![],
        ),
        (
            "a copy whose cluster is about to be made",
            copied(of(held()), copy("us", LONG_AGO)).record(record("us", JUST_NOW, Some(600))),
            vec![],
        ),
        (
            "a copy whose cluster was not made in time",
            copied(of(held()), copy("us", LONG_AGO)).record(expired()),
            vec![
                "clusterdeploymentcustomization/a: lease-expired: free",
                "clusterdeploymentcustomization/a: copy-left: delete",
            ],
        ),
        (
            "a copy of an entry that is freed by its name",
            copied(of(held()), copy("us", LONG_AGO)),
            vec!["clusterdeploymentcustomization/a: unverifiable: force"],
        ),
        (
            "a copy whose cluster is taken down",
            copied(of(held()), copy("us", LONG_AGO)).cluster(deleted(user("us"), &[OURS])),
            vec![
                "clusterdeploymentcustomization/a: cluster-taken-down: free",
                "clusterdeployment/us: finalizer-left: remove-finalizer",
                "clusterdeploymentcustomization/a: copy-left: delete",
            ],
        ),
        (
            "a copy whose cluster is being taken down",
            copied(of(held()), copy("us", LONG_AGO)).cluster(deleted(user("us"), &[OURS, "other"])),
            vec![],
        ),
        (
            "a copy for a pool of another namespace",
            copied(
                of(free()),
                with(
                    copy("us", LONG_AGO),
                    "/metadata/labels",
                    json!({"hive.openshift.io/clusterpool-namespace": "x"}),
                ),
            ),
            vec![],
        ),
        (
            "a copy without our mark",
            copied(
                of(free()),
                with(copy("us", LONG_AGO), "/metadata/labels", json!({})),
            ),
            vec![],
        ),
    ] {
        assert_eq!(found(&objects, &options(None, &[])), expected, "{case}");
    }
}

#[test]
fn a_grace_of_nothing_leaves_the_time_of_a_status_write() {
    let clock = Clock {
        grace: SignedDuration::ZERO,
        ..options(None, &[]).clock
    };
    for (renewed, count) in [("2026-11-21T04:59:01Z", 0), ("2026-11-21T04:59:00Z", 1)] {
        let objects = Objects::entry(entry("True", None, NOW)).record(record("us", renewed, None));
        let options = Options {
            clock,
            ..options(None, &[])
        };
        assert_eq!(findings(&objects.snapshot(), &options).len(), count, "{renewed}");
    }
}

#[test]
fn one_pool_is_asked_for() {
    let of_pool = |pool: &str| {
        let mut objects = Objects::entry(with(held(), "/status/clusterPoolRef/name", json!(pool)));
        objects = objects.cluster(deleted(cluster("over", pool, None), &[OURS]));
        objects
    };
    for (pool, asked, count) in [
        ("pool", Some("pool"), 2),
        ("other", Some("pool"), 0),
        ("other", None, 2),
    ] {
        let found = findings(&of_pool(pool).snapshot(), &options(asked, &[]));
        assert_eq!(found.len(), count, "{pool} {asked:?}");
    }
    let nobodys = Objects::entry(entry("False", None, LONG_AGO));
    assert_eq!(
        findings(&nobodys.snapshot(), &options(Some("pool"), &[])).len(),
        1
    );
    assert_eq!(
        findings(&nobodys.snapshot(), &options(Some("other"), &[])).len(),
        0
    );
}

#[test]
fn a_cluster_is_recorded_once_it_is_seen() {
    let sighting = |uid: &str| Sighting {
        customization: "a".to_owned(),
        pool: "pool".to_owned(),
        cluster_deployment: "us".to_owned(),
        uid: uid.to_owned(),
    };
    let run_by_hive = |mut objects: Objects| {
        objects.pools[0]["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
        objects
    };
    let of = |record: Option<Value>| {
        let objects = Objects::entry(held()).cluster(user("us"));
        record.into_iter().fold(objects, Objects::record)
    };
    let ours = || record("us", LONG_AGO, None);
    for (case, objects, expected) in [
        ("without a record", of(None), Some(sighting("uid-of-us"))),
        ("not recorded", of(Some(ours())), Some(sighting("uid-of-us"))),
        (
            "created again",
            of(Some(seen(ours(), "before"))),
            Some(sighting("uid-of-us")),
        ),
        ("recorded", of(Some(seen(ours(), "uid-of-us"))), None),
        ("another's record", of(Some(record("them", LONG_AGO, None))), None),
        ("Hive's", run_by_hive(of(None)), None),
        ("no cluster", Objects::entry(held()), None),
    ] {
        let found = sightings(&objects.snapshot(), &options(None, &[]));
        assert_eq!(found, Vec::from_iter(expected), "{case}");
    }
}
