//! Reports of repairs.

use jiff::SignedDuration;
use kcp_client::{Action, Error};
use serde_json::json;

use crate::{
    creation::make::Obstacle,
    install_config::InstallConfig,
    repair::{
        apply::RepairOutcome,
        decision::findings,
        options::{Clock, Options},
        report::{Failure, Found, RepairRefusal, RepairReport},
    },
    store::CUSTOMIZATION,
    testing::objects::{
        LONG_AGO, NOW, Objects, cluster, creating, deleted, entry, named, pool_object, record, seen,
    },
};

/// Every cause once.
pub fn all_causes() -> Objects {
    let held = |name: &str, holder| named(name, entry("False", Some(holder), LONG_AGO));
    let stale = |name: &str, holder| named(name, entry("True", Some(holder), LONG_AGO));
    let mut revoked = named("taken-away", record("oslo", LONG_AGO, None));
    revoked["metadata"]["annotations"]["kubectl-kcp.dev/revoked"] = NOW.into();
    let inventory: Vec<_> = ["host-1", "host-2"].map(|name| json!({ "name": name })).into();
    Objects {
        pools: vec![pool_object("pool", &json!({ "inventory": inventory }))],
        entries: vec![
            held("host-1", "paris"),
            held("host-2", "rome"),
            held("dropped", "berlin"),
            held("taken-away", "oslo"),
            held("unknown", "lima"),
            named("nobodys", entry("False", None, LONG_AGO)),
            stale("marked", "quito"),
            named("unmarked", entry("False", None, LONG_AGO)),
            held("used", "cairo"),
            held("doubled", "tokyo"),
            held("over", "delhi"),
            named("free", entry("True", None, LONG_AGO)),
        ],
        records: vec![
            named("host-1", record("paris", LONG_AGO, Some(60))),
            named("host-2", seen(record("rome", LONG_AGO, None), "1")),
            named("dropped", record("berlin", LONG_AGO, Some(60))),
            revoked,
            named("used", record("cairo", LONG_AGO, Some(60))),
            named("free", record("bern", LONG_AGO, None)),
        ],
        clusters: vec![
            cluster("quito", "pool", Some("marked")),
            cluster("accra", "pool", Some("unmarked")),
            cluster("dakar", "pool", Some("used")),
            cluster("tokyo", "pool", Some("doubled")),
            cluster("osaka", "pool", Some("doubled")),
            deleted(
                cluster("delhi", "pool", Some("over")),
                &["kubectl-kcp.dev/pool-lease"],
            ),
        ],
        copies: vec![
            json!({"metadata": {"name": "free", "namespace": "bern", "creationTimestamp": LONG_AGO,
            "labels": {"hive.openshift.io/clusterpool-namespace": "d", "hive.openshift.io/clusterpool-name": "pool"}}}),
        ],
    }
}

/// Missing clusters: the third exceeds maxSize, and the last has patches that cannot be applied.
fn missing_clusters() -> Objects {
    let names = ["host-1", "host-2", "host-3", "host-4"];
    let inventory: Vec<_> = names.map(|name| json!({ "name": name })).into();
    let mut objects = Objects {
        pools: vec![pool_object(
            "pool",
            &json!({"inventory": inventory, "maxSize": 2}),
        )],
        ..Objects::default()
    };
    for name in names {
        let cluster = format!("of-{name}");
        let mut entry = entry("False", Some(&cluster), LONG_AGO);
        entry["metadata"]["name"] = name.into();
        let mut record = match name {
            "host-2" => creating(record(&cluster, LONG_AGO, Some(600))),
            _ => seen(record(&cluster, LONG_AGO, None), "1"),
        };
        record["metadata"]["name"] = format!("kcp-pool-{name}").into();
        if name == "host-4" {
            entry["spec"] = json!({"installConfigPatches": [{"op": "remove", "path": "/absent"}]});
        }
        objects.entries.push(entry);
        objects.records.push(record);
    }
    objects
}

/// Named with --force, and in use.
fn named_and_kept() -> RepairReport {
    let leased = Objects::entry(entry("False", Some("us"), LONG_AGO)).record(record("us", NOW, Some(600)));
    let options = Options {
        forced: &["a".to_owned()],
        ..options(None)
    };
    report_of(&leased, true, &options)
}

fn options(install_config: Option<&InstallConfig>) -> Options<'_> {
    Options {
        pool: None,
        clock: Clock {
            now: NOW.parse().unwrap(),
            grace: SignedDuration::from_mins(10),
        },
        forced: &[],
        install_config,
    }
}

fn report(objects: &Objects, is_applied: bool, install_config: Option<&InstallConfig>) -> RepairReport {
    report_of(objects, is_applied, &options(install_config))
}

fn report_of(objects: &Objects, is_applied: bool, options: &Options<'_>) -> RepairReport {
    let found = findings(&objects.snapshot(), options)
        .into_iter()
        .map(|finding| Found {
            namespace: "d".to_owned(),
            finding,
            result: None,
        });
    RepairReport {
        namespace: Some("d".to_owned()),
        pool: None,
        is_applied,
        found: found.collect(),
        failures: Vec::new(),
        refusal: None,
    }
}

/// One of each sort, by name.
pub fn reports() -> Vec<(&'static str, RepairReport)> {
    let mut applied = report(&all_causes(), true, None);
    let mut results = [
        Ok(RepairOutcome::Repaired),
        Ok(RepairOutcome::Settled),
        Ok(RepairOutcome::Contended),
        Err(Error::Forbidden {
            action: Action::new("patch", &CUSTOMIZATION.at("v1"))
                .in_namespace("d")
                .named("taken-away"),
            user: Some("ci".to_owned()),
        }),
    ]
    .into_iter();
    for found in applied
        .found
        .iter_mut()
        .filter(|found| found.finding.remedy.is_safe())
    {
        found.result = Some(results.next().unwrap_or(Ok(RepairOutcome::Waits)));
    }
    let mut everywhere = report(&all_causes(), false, None);
    everywhere.namespace = None;
    everywhere.found.truncate(2);
    let mut failed = report(&all_causes(), false, None);
    failed.namespace = None;
    failed.found.truncate(1);
    failed.failures.push(Failure {
        namespace: "e".to_owned(),
        error: Error::Forbidden {
            action: Action::new("list", &CUSTOMIZATION.at("v1")).in_namespace("e"),
            user: Some("ci".to_owned()),
        },
    });
    let mut refused = report(&Objects::default(), true, None);
    refused.refusal = Some(RepairRefusal::NoSuchEntry {
        name: "nope".to_owned(),
    });
    let mut nothing = report(&Objects::default(), false, None);
    nothing.pool = Some("pool".to_owned());
    let install_config = InstallConfig::parse(b"{}", "f").unwrap();
    let of_missing = |is_applied| report(&missing_clusters(), is_applied, Some(&install_config));
    let mut recreated = of_missing(true);
    let foreign = Obstacle::ForeignNamespace {
        name: "of-host-2".to_owned(),
    };
    for (found, outcome) in
        (recreated.found.iter_mut()).zip([RepairOutcome::Repaired, RepairOutcome::Blocked(foreign)])
    {
        found.result = Some(Ok(outcome));
    }
    vec![
        ("missing clusters", of_missing(false)),
        ("clusters created again", recreated),
        ("every cause", report(&all_causes(), false, None)),
        ("what came of it", applied),
        ("all namespaces", everywhere),
        ("nothing", nothing),
        ("one namespace failed", failed),
        ("no such entry", refused),
        ("named and kept", named_and_kept()),
    ]
}
