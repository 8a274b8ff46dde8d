//! Reports of repairs.

use kcp_client::{Action, Error};
use serde_json::json;

use crate::{
    creation::make::CreationObstacle,
    lease::rule::DEFAULT_GRACE,
    repair::{
        apply::RepairOutcome,
        decision::findings,
        options::RepairOptions,
        report::{FindingResult, NamespaceFailure, RepairRefusal, RepairReport},
    },
    store::CUSTOMIZATION,
    testing::objects::{
        LONG_AGO, Objects, cluster, deleted, entry, gone, in_use, lease, leased, named, pool_object,
    },
};

/// Tomorrow.
const LATER: &str = "2026-11-22T05:00:00Z";

/// Objects with one problem of each cause.
pub fn all_causes() -> Objects {
    let inventory: Vec<_> = ["host-1", "host-2"].map(|name| json!({ "name": name })).into();
    let mut newer = named("newer", leased(&lease("lima", Some(LATER))));
    newer["status"]["conditions"][1]["message"] = "v2 state=held".into();
    let mut unmarked = named("unmarked", leased(&lease("kyiv", Some(LATER))));
    unmarked["status"]["conditions"][0]["status"] = "True".into();
    Objects {
        pools: vec![pool_object("pool", &json!({ "inventory": inventory }))],
        entries: vec![
            named("host-1", leased(&gone("paris", LONG_AGO))),
            named("host-2", leased(&in_use("rome", LATER, "1"))),
            named("expired", leased(&lease("berlin", Some(LONG_AGO)))),
            named("by-hand", entry("False", Some("oslo"))),
            newer,
            named("nobodys", entry("False", None)),
            named("used", entry("True", None)),
            unmarked,
            named("taken-over", leased(&gone("cairo", LONG_AGO))),
            named("doubled", leased(&in_use("tokyo", LATER, "uid-of-tokyo"))),
            named("anothers", leased(&lease("quito", Some(LATER)))),
            named("free", entry("True", None)),
        ],
        clusters: vec![
            cluster("accra", "pool", Some("used")),
            cluster("dakar", "pool", Some("taken-over")),
            cluster("tokyo", "pool", Some("doubled")),
            cluster("osaka", "pool", Some("doubled")),
            cluster("lagos", "pool", Some("anothers")),
            deleted(
                cluster("delhi", "pool", Some("free")),
                &["kubectl-kcp.dev/pool-lease"],
            ),
        ],
        copies: vec![
            json!({"metadata": {"name": "free", "namespace": "bern", "creationTimestamp": LONG_AGO,
            "labels": {"hive.openshift.io/clusterpool-namespace": "d", "hive.openshift.io/clusterpool-name": "pool"}}}),
        ],
        claims: vec![json!({
            "metadata": {"name": "hanoi", "annotations": {"kubectl-kcp.dev/lease-id": "k4x7"}},
            "spec": {"clusterPoolName": "pool", "namespace": "pool-x", "lifetime": "15m"},
            "status": {"conditions": [{"type": "Pending", "status": "False", "lastTransitionTime": LONG_AGO}]},
        })],
        old_records: vec![json!({"metadata": {"name": "kcp-pool-host-1", "namespace": "d"}})],
        ..Objects::default()
    }
}

/// Problems in pools that Hive manages.
fn beside_hive() -> Objects {
    let inventory = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
        json!({ "inventory": names })
    };
    let mut flapping = named("host-1", entry("True", None));
    let pending = json!({"type": "ApplySucceeded", "status": "False", "reason": "InstallationPending"});
    flapping["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(pending);
    let mut objects = Objects {
        pools: vec![
            pool_object("pool", &inventory(&["host-1", "shared"])),
            pool_object("other", &inventory(&["shared"])),
        ],
        entries: vec![flapping, named("shared", entry("True", None))],
        clusters: vec![cluster("paris", "pool", Some("host-1"))],
        ..Objects::default()
    };
    for pool in &mut objects.pools {
        pool["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
    }
    objects
}

/// Leases whose clusters are missing.
fn missing_clusters() -> Objects {
    let names = ["host-1", "host-2"];
    let inventory: Vec<_> = names.map(|name| json!({ "name": name })).into();
    Objects {
        pools: vec![pool_object("pool", &json!({ "inventory": inventory }))],
        entries: vec![
            named("host-1", leased(&in_use("of-host-1", LATER, "1"))),
            named("host-2", leased(&gone("of-host-2", LATER))),
        ],
        ..Objects::default()
    }
}

/// A report about an entry that the user named with `--force`, although a cluster uses it.
fn named_and_kept() -> RepairReport {
    let held = Objects::entry(leased(&lease("us", Some(LATER))));
    let options = RepairOptions {
        forced: &["a".to_owned()],
        ..options(false)
    };
    report_of(&held, true, &options)
}

fn options(recreate: bool) -> RepairOptions<'static> {
    RepairOptions {
        pool: None,
        grace: DEFAULT_GRACE,
        forced: &[],
        recreate,
    }
}

fn report(objects: &Objects, is_applied: bool) -> RepairReport {
    report_of(objects, is_applied, &options(false))
}

fn report_of(objects: &Objects, is_applied: bool, options: &RepairOptions<'_>) -> RepairReport {
    let found = findings(&objects.snapshot(), options)
        .into_iter()
        .map(|finding| FindingResult {
            namespace: "d".to_owned(),
            finding,
            result: None,
        });
    RepairReport {
        namespace: Some("d".to_owned()),
        pool: None,
        is_confirmed: is_applied,
        results: found.collect(),
        failures: Vec::new(),
        refusal: None,
        cluster_list_error: None,
    }
}

/// One report of each kind, by name.
pub fn reports() -> Vec<(&'static str, RepairReport)> {
    let mut applied = report(&all_causes(), true);
    let mut results = [
        Ok(RepairOutcome::Repaired),
        Ok(RepairOutcome::Settled),
        Ok(RepairOutcome::Contended),
        Err(Error::Forbidden {
            kubectl: "kubectl".to_owned(),
            action: Box::new(
                Action::new("patch", &CUSTOMIZATION.api_resource("v1"))
                    .in_namespace("d")
                    .with_name("by-hand"),
            ),
            user: Some("ci".to_owned()),
        }),
    ]
    .into_iter();
    for found in applied
        .results
        .iter_mut()
        .filter(|found| found.finding.remedy.is_safe())
    {
        found.result = Some(results.next().unwrap_or(Ok(RepairOutcome::WaitsForCustomization)));
    }
    let mut everywhere = report(&all_causes(), false);
    everywhere.namespace = None;
    everywhere.results.truncate(2);
    let mut failed = report(&all_causes(), false);
    failed.namespace = None;
    failed.results.truncate(1);
    failed.failures.push(NamespaceFailure {
        namespace: "e".to_owned(),
        error: Error::Forbidden {
            kubectl: "kubectl".to_owned(),
            action: Box::new(Action::new("list", &CUSTOMIZATION.api_resource("v1")).in_namespace("e")),
            user: Some("ci".to_owned()),
        },
    });
    let mut refused = report(&Objects::default(), true);
    refused.refusal = Some(RepairRefusal::NoSuchEntry {
        name: "nope".to_owned(),
    });
    let mut empty = report(&Objects::default(), false);
    empty.pool = Some("pool".to_owned());
    let of_missing = |is_applied| report_of(&missing_clusters(), is_applied, &options(true));
    let mut recreated = of_missing(true);
    let foreign = CreationObstacle::ForeignNamespace {
        name: "of-host-2".to_owned(),
    };
    for (found, outcome) in
        (recreated.results.iter_mut()).zip([RepairOutcome::Repaired, RepairOutcome::Blocked(foreign)])
    {
        found.result = Some(Ok(outcome));
    }
    vec![
        ("missing clusters", of_missing(false)),
        ("clusters created again", recreated),
        ("every cause", report(&all_causes(), false)),
        ("what came of it", applied),
        ("beside Hive", report(&beside_hive(), false)),
        ("all namespaces", everywhere),
        ("nothing", empty),
        ("one namespace failed", failed),
        ("no such entry", refused),
        ("named and kept", named_and_kept()),
    ]
}
