//! Each problem, and its remedy.

use kcp_client::ServerTime;
use serde_json::{Value, json};

use super::{findings, is_installed, updated_record};
use crate::{
    hive::Presence,
    lease::{rule::DEFAULT_GRACE, usage::Clusters},
    objects::{
        entry::EntryStatus as _,
        record::{LeaseRecord, LeaseState},
    },
    repair::{
        finding::{LeaseProblem, Remedy},
        options::RepairOptions,
    },
    testing::{
        fake::lost,
        objects::{
            JUST_NOW, LONG_AGO, NOW, Objects, asking, being_cleaned, cleaning, cluster, deleted, entry,
            entry_since, gone, in_use, lease, leased, named, pool_object,
        },
    },
};

const LATER: &str = "2026-11-22T05:00:00Z";

fn options(forced: &[String]) -> RepairOptions<'_> {
    RepairOptions {
        pool: None,
        grace: DEFAULT_GRACE,
        forced,
        recreate: false,
    }
}

fn described(finding: &LeaseProblem) -> String {
    let record = match &finding.remedy {
        Remedy::Record { record, .. } => {
            let until = record
                .deadline
                .map_or("never".to_owned(), |end| end.strftime("%dT%H:%M:%S").to_string());
            format!(" {} {} {until}", record.state.as_str(), record.holder)
        }
        _ => String::new(),
    };
    format!("{} {}{record}", finding.cause.as_str(), finding.remedy.as_str())
}

/// The problem of entry `a`, if it has one.
fn wrong(objects: &Objects, forced: &[String]) -> Vec<String> {
    findings(&objects.snapshot(), &options(forced))
        .iter()
        .map(described)
        .collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn each_fault_and_its_remedy() {
    let unmarked = |record: &LeaseRecord| {
        let mut object = leased(record);
        object["status"]["conditions"][0]["status"] = "True".into();
        object
    };
    let poolless = |available| {
        let mut object = entry(available, Some("us"));
        object["status"]["clusterPoolRef"].take();
        object
    };
    let mut newer = leased(&lease("us", Some(LONG_AGO)));
    newer["status"]["conditions"][1]["message"] = "v2 anything".into();
    let held = |deadline| leased(&lease("us", Some(deadline)));
    let without_cluster = LeaseRecord {
        cluster: None,
        ..lease("us", Some(LONG_AGO))
    };
    let ours = || cluster("us", "pool", Some("a"));
    let theirs = || cluster("them", "other", Some("a"));
    let alone = Objects::entry;
    for (case, objects, expected) in [
        ("free", alone(entry("True", None)), None),
        ("held", alone(held(LATER)), None),
        ("held, and its cluster", alone(held(LATER)).cluster(ours()), None),
        (
            "in use",
            alone(leased(&in_use("us", LONG_AGO, "uid-of-us"))).cluster(ours()),
            None,
        ),
        ("gone, reserved", alone(leased(&gone("us", LATER))), None),
        // A cluster with this name in another pool does not use the entry (fault 2).
        (
            "a namesake in another pool",
            alone(held(LATER)).cluster(cluster("us", "other", Some("b"))),
            None,
        ),
        (
            "gone, and its time is over",
            alone(leased(&gone("us", LONG_AGO))),
            Some("ended free"),
        ),
        (
            "ended, without a cluster",
            alone(leased(&without_cluster)),
            Some("ended free"),
        ),
        // The lease is ten minutes old, and the cluster was deleted to be installed again (fault 1).
        (
            "ended, first look",
            alone(held(LONG_AGO)),
            Some("cluster-gone record gone us 21T05:10:00"),
        ),
        (
            "its cluster is gone",
            alone(leased(&in_use("us", LONG_AGO, "u"))),
            Some("cluster-gone record gone us 21T05:10:00"),
        ),
        (
            "its cluster is gone early",
            alone(leased(&in_use("us", LATER, "u"))),
            Some("cluster-gone record gone us 22T05:00:00"),
        ),
        (
            "its cluster is deprovisioned",
            alone(leased(&in_use("us", LATER, "uid-of-us"))).cluster(deleted(ours(), &["other"])),
            None,
        ),
        (
            "without a record",
            alone(entry("False", Some("us"))),
            Some("unrecorded record gone us 21T05:10:00"),
        ),
        (
            "references alone",
            alone(entry("True", Some("us"))),
            Some("unrecorded record gone us 21T05:10:00"),
        ),
        (
            "without a record, in use",
            alone(entry("False", Some("us"))).cluster(ours()),
            None,
        ),
        (
            "without a holder",
            alone(entry("False", None)),
            Some("unknown force"),
        ),
        (
            "without a holder, in use",
            alone(entry("False", None)).cluster(theirs()),
            Some("unrecorded record in-use them 21T05:10:00"),
        ),
        (
            "marked available",
            alone(entry("True", None)).cluster(theirs()),
            Some("unrecorded record in-use them 21T05:10:00"),
        ),
        (
            "its mark is lost",
            alone(unmarked(&lease("us", Some(LATER)))),
            Some("unrecorded record held us 22T05:00:00"),
        ),
        (
            "its mark is lost, in use",
            alone(unmarked(&lease("us", Some(LATER)))).cluster(ours()),
            Some("unrecorded record in-use us 22T05:00:00"),
        ),
        (
            "another's cluster uses it",
            alone(held(LATER)).cluster(theirs()),
            Some("contested none"),
        ),
        (
            "another's cluster, after it ended",
            alone(held(LONG_AGO)).cluster(theirs()),
            Some("unrecorded record in-use them 21T05:10:00"),
        ),
        (
            "two clusters",
            alone(held(LATER)).cluster(ours()).cluster(theirs()),
            Some("contested none"),
        ),
        (
            "refers to no pool",
            alone(poolless("True")),
            Some("unknown force"),
        ),
        (
            "reserved for no pool",
            alone(poolless("False")),
            Some("unknown force"),
        ),
        (
            "refers to no pool, in use",
            alone(poolless("False")).cluster(ours()),
            None,
        ),
        ("newer", alone(newer.clone()), Some("unknown force")),
        (
            "newer, in use",
            alone(newer).cluster(ours()),
            Some("unknown none"),
        ),
    ] {
        assert_eq!(wrong(&objects, &[]), Vec::from_iter(expected), "{case}");
    }
}

#[test]
fn nothing_is_freed_while_the_clusters_are_unknown() {
    for object in [
        leased(&gone("us", LONG_AGO)),
        leased(&lease("us", Some(LONG_AGO))),
        entry("False", Some("us")),
    ] {
        let mut snapshot = Objects::entry(object).snapshot();
        snapshot.clusters = Clusters::Unknown(lost());
        assert_eq!(findings(&snapshot, &options(&[])), []);
    }
}

#[test]
fn nothing_is_freed_if_the_time_is_uncertain() {
    let mut snapshot = Objects::entry(leased(&gone("us", LONG_AGO))).snapshot();
    snapshot.now = ServerTime {
        is_certain: false,
        ..snapshot.now
    };
    assert_eq!(findings(&snapshot, &options(&[])), []);
}

fn by_hive(mut objects: Objects) -> Objects {
    for pool in &mut objects.pools {
        pool["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
    }
    objects
}

/// What a user who named the entry with `--force` does not know, and what frees the entry.
#[test]
fn force_names_what_frees_the_entry() {
    let forced = ["a".to_owned()];
    let sentence = |objects: &Objects| {
        let found = findings(&objects.snapshot(), &options(&forced));
        found
            .iter()
            .map(LeaseProblem::sentence)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let mut odd = gone("us; reboot", LATER);
    odd.holder = "us;reboot".to_owned();
    let release = "; to free the entry now, run: kubectl kcp pool release pool --cluster-deployment us -n d";
    for (object, expected) in [
        (
            leased(&gone("us", LATER)),
            format!(
                "not freed: the cluster of us no longer exists, and the entry stays reserved until \
                 2026-11-22T05:00:00Z{release}"
            ),
        ),
        (
            entry("False", Some("us")),
            format!(
                "not freed: the entry is reserved for ClusterDeployment us, which does not exist; another process \
                 may be about to create it{release}"
            ),
        ),
        (
            leased(&odd),
            "not freed: the cluster of us;reboot no longer exists, and the entry stays reserved until \
             2026-11-22T05:00:00Z"
                .to_owned(),
        ),
    ] {
        assert_eq!(sentence(&Objects::entry(object)), expected);
    }
}

#[test]
fn force_frees_only_unused_entries() {
    let forced = ["a".to_owned()];
    let mut newer = leased(&lease("us", Some(LONG_AGO)));
    newer["status"]["conditions"][1]["message"] = "v2 anything".into();
    let ours = || cluster("us", "pool", Some("a"));
    for (case, objects, expected) in [
        ("unreadable", Objects::entry(newer.clone()), Some("unknown free")),
        (
            "unreadable, in use",
            Objects::entry(newer).cluster(ours()),
            Some("unknown none"),
        ),
        (
            "without a holder",
            Objects::entry(entry("False", None)),
            Some("unknown free"),
        ),
        (
            "never ends",
            Objects::entry(leased(&lease("us", None))),
            Some("unknown free"),
        ),
        (
            "never ends, in use",
            Objects::entry(leased(&lease("us", None))).cluster(ours()),
            Some("in-use none"),
        ),
        (
            "held",
            Objects::entry(leased(&lease("us", Some(LATER)))),
            Some("in-use none"),
        ),
        (
            "gone, reserved",
            Objects::entry(leased(&gone("us", LATER))),
            Some("in-use none"),
        ),
        (
            "without a record",
            Objects::entry(entry("False", Some("us"))),
            Some("in-use none"),
        ),
        (
            "reserved by Hive",
            by_hive(Objects::entry(entry("False", Some("us")))),
            Some("in-use none"),
        ),
        ("free", Objects::entry(entry("True", None)), None),
    ] {
        assert_eq!(wrong(&objects, &forced), Vec::from_iter(expected), "{case}");
    }
}

#[test]
fn force_frees_nothing_if_the_clusters_are_unknown() {
    let forced = ["a".to_owned()];
    let mut newer = leased(&lease("us", Some(LONG_AGO)));
    newer["status"]["conditions"][1]["message"] = "v2 anything".into();
    // Without and with `--force`.
    for (case, object, without, with) in [
        ("unreadable", newer, Some("unknown none"), "unknown none"),
        (
            "without a holder",
            entry("False", None),
            Some("unknown none"),
            "unknown none",
        ),
        ("never ends", leased(&lease("us", None)), None, "in-use none"),
        (
            "without a record",
            entry("False", Some("us")),
            None,
            "in-use none",
        ),
    ] {
        let mut snapshot = Objects::entry(object).snapshot();
        snapshot.clusters = Clusters::Unknown(lost());
        for (names, expected) in [(&[][..], without), (&forced, Some(with))] {
            let found = findings(&snapshot, &options(names));
            let found: Vec<_> = found.iter().map(described).collect();
            assert_eq!(found, Vec::from_iter(expected), "{case} {names:?}");
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn problems_that_hive_causes_name_hive() {
    let applied = |available: &str, since: &str, reason: &str| {
        let mut object = entry_since(available, None, since);
        let conditions = object["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({"type": "ApplySucceeded", "status": "False", "reason": reason}));
        object
    };
    let used = || cluster("us", "pool", Some("a"));
    let installed = || {
        let mut installed = used();
        installed["spec"]["installed"] = true.into();
        installed
    };
    let stopped = || {
        let mut stopped = used();
        stopped["status"] = json!({"conditions": [{"type": "ProvisionStopped", "status": "True"}]});
        stopped
    };
    let with_pool_of_them = |mut objects: Objects| {
        objects
            .pools
            .push(pool_object("theirs", &json!({"inventory": []})));
        by_hive(objects.cluster(cluster("them", "theirs", Some("a"))))
    };
    let mut shared = Objects::entry(entry("True", None)).cluster(used());
    shared
        .pools
        .push(pool_object("other", &json!({"inventory": [{"name": "a"}]})));
    let mut orphan = entry("False", Some("us"));
    orphan["status"]["clusterPoolRef"]["name"] = "no-more".into();
    let dropped = |object| {
        let mut objects = Objects::entry(object);
        objects.pools[0]["spec"]["inventory"] = json!([]);
        by_hive(objects)
    };
    let deleting = |object| {
        let mut objects = by_hive(Objects::entry(object));
        objects.pools[0]["metadata"]["deletionTimestamp"] = LONG_AGO.into();
        objects
    };
    let going = || deleted(used(), &["hive.openshift.io/deprovision"]);
    let without_pool = |mut objects: Objects| {
        objects.pools = vec![];
        objects
    };
    for (case, objects, expected) in [
        (
            "flapping, available",
            by_hive(Objects::entry(applied("True", NOW, "InstallationPending")).cluster(used())),
            vec!["hive record"],
        ),
        (
            "flapping, reserved",
            by_hive(Objects::entry(applied("False", NOW, "InstallationPending")).cluster(used())),
            vec!["hive record"],
        ),
        (
            "flapping, installed",
            by_hive(Objects::entry(applied("False", NOW, "Succeeded")).cluster(installed())),
            vec!["hive record"],
        ),
        (
            "flapping, broken",
            by_hive(Objects::entry(applied("True", NOW, "BrokenByCloud")).cluster(stopped())),
            vec!["hive record"],
        ),
        (
            "flapping beside a cluster that goes",
            by_hive(Objects::entry(applied("True", NOW, "InstallationPending")).cluster(used())).cluster(
                deleted(
                    cluster("them", "pool", Some("a")),
                    &["hive.openshift.io/deprovision"],
                ),
            ),
            vec!["hive record"],
        ),
        (
            "the cluster has just been installed, so Hive sets the references with its next write",
            by_hive(Objects::entry(applied("False", NOW, "InstallationPending")).cluster(installed())),
            vec![],
        ),
        (
            "between the two writes of a reservation",
            by_hive(Objects::entry(applied("False", JUST_NOW, "BrokenByCloud")).cluster(used())),
            vec![],
        ),
        (
            "Hive stopped between the two writes",
            by_hive(Objects::entry(applied("False", LONG_AGO, "BrokenByCloud")).cluster(used())),
            vec!["hive record"],
        ),
        (
            "two clusters",
            by_hive(
                Objects::entry(entry("False", Some("us")))
                    .cluster(used())
                    .cluster(cluster("them", "pool", Some("a"))),
            ),
            vec!["contested none"],
        ),
        (
            "used by one cluster, reserved for another",
            by_hive(
                Objects::entry(entry("False", Some("us")))
                    .cluster(cluster("us", "pool", None))
                    .cluster(cluster("them", "pool", Some("a"))),
            ),
            vec!["contested none"],
        ),
        (
            "listed by another pool, reserved",
            with_pool_of_them(Objects::entry(entry("False", Some("them")))),
            vec!["hive none"],
        ),
        (
            "listed by another pool, freed",
            with_pool_of_them(Objects::entry(entry("True", None))),
            vec!["hive none"],
        ),
        ("shared", by_hive(shared), vec!["hive none"]),
        (
            "of a pool that is gone, listed by a pool that is being deleted",
            deleting(orphan.clone()),
            vec!["hive free"],
        ),
        (
            "of a pool that is gone, but listed by another",
            by_hive(Objects::entry(orphan)),
            vec!["hive none"],
        ),
        (
            "reserved for a cluster that Hive is about to create",
            by_hive(Objects::entry(entry_since("False", Some("us"), JUST_NOW))),
            vec![],
        ),
        (
            "Hive stopped before it created the cluster",
            by_hive(Objects::entry(entry("False", Some("us")))),
            vec!["hive none"],
        ),
        (
            "our lease",
            by_hive(Objects::entry(leased(&lease("us", Some(LONG_AGO))))),
            vec![],
        ),
        (
            "dropped while reserved",
            dropped(entry("False", Some("us"))),
            vec!["hive free"],
        ),
        (
            "dropped while reserved, a minute ago",
            dropped(entry_since("False", Some("us"), JUST_NOW)),
            vec![],
        ),
        (
            "dropped, in use",
            dropped(entry("False", Some("us"))).cluster(used()),
            vec![],
        ),
        (
            "reserved, its pool is being deleted",
            deleting(entry("False", Some("us"))),
            vec!["hive free"],
        ),
        (
            "reserved without references, its pool is being deleted",
            deleting(entry("False", None)),
            vec!["hive free"],
        ),
        (
            "refers to no cluster",
            by_hive(Objects::entry(entry("True", Some("us")))),
            vec!["hive free"],
        ),
        // Hive frees an entry shortly before it deletes the entry's cluster.
        (
            "dropped, freed, its cluster goes",
            dropped(entry("True", None)).cluster(going()),
            vec![],
        ),
        (
            "dropped, reserved without references, its cluster stays",
            dropped(entry("False", None)).cluster(used()),
            vec![],
        ),
        (
            "dropped, just freed, its cluster stays",
            dropped(entry_since("True", None, JUST_NOW)).cluster(used()),
            vec![],
        ),
        (
            "dropped, freed, its cluster stays",
            dropped(entry("True", None)).cluster(used()),
            vec!["hive record"],
        ),
    ] {
        assert_eq!(wrong(&objects, &[]), expected, "{case}");
    }
    let mut snapshot = without_pool(dropped(entry("True", None)).cluster(going())).snapshot();
    snapshot.hive.config = Presence::Found;
    assert_eq!(
        findings(&snapshot, &options(&[])),
        [],
        "Hive deletes a pool before its clusters"
    );
    let mut snapshot = dropped(entry("False", Some("us"))).snapshot();
    snapshot.clusters = Clusters::Unknown(lost());
    assert_eq!(findings(&snapshot, &options(&[])), [], "unknown clusters");
}

#[test]
fn an_existing_cluster_is_recorded_without_a_finding() {
    let ours = cluster("us", "pool", Some("a"));
    let seen = |objects: &Objects, pool| {
        let snapshot = objects.snapshot();
        let options = RepairOptions { pool, ..options(&[]) };
        updated_record(&snapshot, &snapshot.entries[0], &options)
            .map(|(pool, record)| (pool, record.state, record.holder))
    };
    let uid = "uid-of-us".to_owned();
    let expected = Some(("pool".to_owned(), LeaseState::InUse { uid }, "us".to_owned()));
    for held in [
        leased(&lease("us", Some(LATER))),
        leased(&gone("us", LATER)),
        entry("False", Some("us")),
    ] {
        let objects = Objects::entry(held).cluster(ours.clone());
        assert_eq!(seen(&objects, None), expected);
        assert_eq!(seen(&objects, Some("other")), None);
    }
    let known = Objects::entry(leased(&in_use("us", LATER, "uid-of-us"))).cluster(ours);
    assert_eq!(seen(&known, None), None);
}

#[test]
fn an_installed_cluster_is_reported_once() {
    let held = leased(&in_use("us", LATER, "uid-of-us"));
    let mut installed = cluster("us", "pool", Some("a"));
    installed["spec"]["installed"] = true.into();
    let is_reported = |held: &Value, cluster: &Value| {
        let snapshot = Objects::entry(held.clone()).cluster(cluster.clone()).snapshot();
        is_installed(&snapshot, &snapshot.entries[0], &options(&[]))
    };
    assert!(is_reported(&held, &installed));
    assert!(!is_reported(&held, &cluster("us", "pool", Some("a"))));
    assert!(!is_reported(&held, &deleted(installed.clone(), &["other"])));
    let snapshot = Objects::entry(held.clone()).snapshot();
    let mut after = held;
    json_patch::merge(&mut after, &snapshot.entries[0].succeeded(NOW.parse().unwrap()));
    assert!(!is_reported(&after, &installed));
}

#[test]
fn missing_clusters_are_recreated_before_their_deadline() {
    let recreate = RepairOptions {
        recreate: true,
        ..options(&[])
    };
    let remedies = |objects: &Objects| -> Vec<String> {
        findings(&objects.snapshot(), &recreate)
            .iter()
            .map(described)
            .collect()
    };
    let mut dropped = Objects::entry(named("b", leased(&in_use("us", LATER, "u"))));
    dropped.pools[0]["spec"]["inventory"] = json!([{"name": "a"}]);
    for (case, objects, expected) in [
        (
            "gone since a look",
            Objects::entry(leased(&gone("us", LATER))),
            "cluster-gone recreate",
        ),
        (
            "found gone now",
            Objects::entry(leased(&in_use("us", LATER, "u"))),
            "cluster-gone recreate",
        ),
        (
            "its time is over",
            Objects::entry(leased(&gone("us", LONG_AGO))),
            "ended free",
        ),
        (
            "dropped from the inventory",
            dropped,
            "cluster-gone record gone us 22T05:00:00",
        ),
    ] {
        assert_eq!(remedies(&objects), [expected], "{case}");
    }
    assert_eq!(
        remedies(&Objects::entry(leased(&lease("us", Some(LATER))))),
        Vec::<String>::new()
    );
}

#[test]
fn leftovers_are_removed_after_their_entry() {
    let copy = |created: &str| {
        json!({"metadata": {"name": "a", "namespace": "us", "creationTimestamp": created,
            "labels": {"hive.openshift.io/clusterpool-namespace": "d", "hive.openshift.io/clusterpool-name": "pool"}}})
    };
    let with_copy = |object, created: &str| Objects {
        copies: vec![copy(created)],
        ..Objects::entry(object)
    };
    let ended_cluster = deleted(cluster("us", "pool", Some("a")), &["kubectl-kcp.dev/pool-lease"]);
    for (case, objects, expected) in [
        (
            "a copy",
            with_copy(entry("True", None), LONG_AGO),
            vec!["left remove"],
        ),
        ("a new copy", with_copy(entry("True", None), JUST_NOW), vec![]),
        (
            "a copy of a lease",
            with_copy(leased(&lease("us", Some(LATER))), LONG_AGO),
            vec![],
        ),
        (
            "a copy of a lease that is over",
            with_copy(leased(&gone("us", LONG_AGO)), LONG_AGO),
            vec!["ended free", "left remove"],
        ),
        (
            "a copy of a cluster",
            with_copy(entry("True", None), LONG_AGO).cluster(cluster("us", "other", None)),
            vec![],
        ),
        (
            "a finalizer",
            Objects::entry(entry("True", None)).cluster(ended_cluster),
            vec!["left remove"],
        ),
        (
            "an old record",
            Objects {
                old_records: vec![json!({"metadata": {"name": "kcp-pool-a", "namespace": "d"}})],
                ..Objects::entry(entry("True", None))
            },
            vec!["left none"],
        ),
    ] {
        assert_eq!(wrong(&objects, &[]), expected, "{case}");
    }
}

#[test]
fn entries_are_cleaned_before_they_are_free() {
    let asked = |entry: Value| {
        let mut objects = Objects::entry(entry);
        objects.pools[0] = asking(objects.pools[0].clone(), "true");
        objects
    };
    let mut marked_available = being_cleaned(&cleaning(None, 0));
    marked_available["status"]["conditions"][0]["status"] = "True".into();
    let mut unreadable = being_cleaned(&cleaning(None, 0));
    unreadable["status"]["conditions"][1]["message"] = "v2".into();
    let mut unreadable_lease = leased(&lease("us", Some(LATER)));
    unreadable_lease["status"]["conditions"][1]["message"] = "v2".into();
    let dirty = |janitor| being_cleaned(&cleaning(janitor, 1));
    for (case, objects, plain, forced) in [
        (
            "ended",
            asked(leased(&gone("us", LONG_AGO))),
            vec!["ended clean"],
            vec!["ended clean"],
        ),
        (
            "held",
            asked(leased(&lease("us", Some(LATER)))),
            vec![],
            vec!["in-use none"],
        ),
        (
            "without end",
            asked(leased(&lease("us", None))),
            vec![],
            vec!["unknown clean"],
        ),
        ("waits", asked(dirty(None)), vec![], vec!["unknown free"]),
        (
            "a janitor",
            asked(dirty(Some(("k", LATER)))),
            vec![],
            vec!["in-use none"],
        ),
        (
            "a janitor that ended",
            asked(dirty(Some(("k", LONG_AGO)))),
            vec![],
            vec!["unknown free"],
        ),
        (
            "marked available",
            asked(marked_available),
            vec!["unrecorded clean"],
            vec!["unrecorded clean"],
        ),
        (
            "unreadable",
            asked(unreadable),
            vec!["unknown force"],
            vec!["unknown clean"],
        ),
        (
            "unreadable lease",
            asked(unreadable_lease),
            vec!["unknown force"],
            vec!["unknown clean"],
        ),
        (
            "a cluster uses it",
            asked(dirty(None)).cluster(cluster("them", "pool", Some("a"))),
            vec!["unrecorded record in-use them 21T05:10:00"],
            vec!["unrecorded record in-use them 21T05:10:00"],
        ),
    ] {
        assert_eq!(wrong(&objects, &[]), plain, "{case}");
        assert_eq!(wrong(&objects, &["a".to_owned()]), forced, "{case}, forced");
    }
}

/// The annotation is read when a lease ends. The record of a cleaning stays.
#[test]
fn what_becomes_of_an_entry_if_its_pool_asks_no_longer_or_was_deleted() {
    let ended = leased(&gone("us", LONG_AGO));
    let dirty = |janitor| being_cleaned(&cleaning(janitor, 1));
    for (is_deleted, entry, plain, forced) in [
        (false, ended.clone(), Some("ended free"), "ended free"),
        (true, ended, Some("ended free"), "ended free"),
        (false, dirty(None), None, "unknown free"),
        (true, dirty(None), Some("unknown force"), "unknown free"),
        (true, dirty(Some(("k", LATER))), None, "in-use none"),
    ] {
        let mut objects = Objects::entry(entry);
        objects.pools.retain(|_| !is_deleted);
        assert_eq!(wrong(&objects, &[]), Vec::from_iter(plain), "{objects:?}");
        assert_eq!(wrong(&objects, &["a".to_owned()]), [forced], "{objects:?}");
    }
}

#[test]
fn an_entry_of_a_pool_that_cannot_be_read_stays_reserved() {
    let mut snapshot = Objects::entry(leased(&gone("us", LONG_AGO))).snapshot();
    snapshot.pools.clear();
    snapshot.has_all_pools = false;
    let found: Vec<_> = findings(&snapshot, &options(&[]))
        .iter()
        .map(|found| (described(found), found.sentence()))
        .collect();
    let sentence = "the lease has ended, but pool pool cannot be read, so the entry may need cleaning first";
    assert_eq!(found, [("unknown force".to_owned(), sentence.to_owned())]);
}
