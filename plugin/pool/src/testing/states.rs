//! States of pools.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    objects::record::{LeaseRecord, LeaseState},
    sources::secrets::{Comparison, SecretChange, SecretFacts},
    status::{PoolState, pool_state},
    testing::objects::{
        JUST_NOW, LONG_AGO, Objects, cluster, entry, in_use, lease, leased, named, pool_object, queue,
    },
};

/// The version of the busy pool below. Hive's own tests contain the same value.
const VERSION: &str = "a6dcbd6776a3c92b";

fn made_from(version: &str, mut cluster: Value, installed: bool) -> Value {
    cluster["metadata"]["annotations"] = json!({"hive.openshift.io/cluster-pool-spec-hash": version});
    cluster["metadata"]["creationTimestamp"] = LONG_AGO.into();
    cluster["spec"]["installed"] = installed.into();
    cluster
}

/// A pool with entries, clusters and claims in many states.
pub fn busy() -> Objects {
    let inventory: Vec<_> = ["host-1", "host-2", "host-3", "host-4", "host-5"]
        .map(|name| json!({ "name": name }))
        .into();
    let applied = |mut entry: Value, status: &str, reason: &str, message: &str| {
        let condition = json!({"type": "ApplySucceeded", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": LONG_AGO});
        entry["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(condition);
        entry
    };
    let mut claimed = made_from("0", cluster("rome", "pool", Some("host-2")), true);
    claimed["spec"]["clusterPoolRef"]["claimName"] = "for-qa".into();
    let held = LeaseRecord {
        state: LeaseState::Held,
        acquired: JUST_NOW.parse().unwrap(),
        ..lease("paris", Some("2026-11-21T05:09:00Z"))
    };
    Objects {
        pools: vec![
            pool_object(
                "pool",
                &json!({
                    "platform": {"aws": {"credentialsSecretRef": {"name": "aws-creds"}, "region": "region"}},
                    "baseDomain": "test-domain", "imageSetRef": {"name": "test-image-set"},
                    "inventory": inventory, "size": 6, "maxSize": 8, "maxConcurrent": 2,
                }),
            ),
            pool_object("other", &json!({"inventory": [{"name": "host-4"}]})),
        ],
        entries: vec![
            named("host-1", leased(&held)),
            applied(
                named(
                    "host-2",
                    leased(&in_use("rome", "2026-11-21T05:09:00Z", "uid-of-rome")),
                ),
                "True",
                "Succeeded",
                "",
            ),
            named("host-3", leased(&lease("oslo", Some(LONG_AGO)))),
            applied(
                named("host-4", entry("True", None)),
                "False",
                "BrokenBySyntax",
                "replace of /metadata/nmae, which is not there",
            ),
            named("host-9", entry("False", Some("lima"))),
        ],
        clusters: vec![
            claimed,
            made_from("0", cluster("bern", "pool", None), true),
            made_from(VERSION, cluster("kyiv", "pool", None), false),
            made_from(VERSION, cluster("lima", "pool", Some("host-9")), true),
        ],
        // Paris holds an entry, so it does not wait.
        queues: vec![queue(&[
            ("quito", JUST_NOW, 2),
            ("paris", LONG_AGO, 1),
            ("dakar", LONG_AGO, 1),
        ])],
        ..Objects::default()
    }
}

/// The state of the first pool.
pub fn state(objects: &Objects, claims: &[Value]) -> PoolState {
    let objects = Objects {
        claims: claims.to_vec(),
        ..objects.clone()
    };
    let snapshot = objects.snapshot();
    pool_state(&snapshot, snapshot.pools.first().unwrap())
}

pub fn claims() -> Vec<Value> {
    let claim = |name: &str, pool: &str, namespace: Option<&str>, created: &str| {
        let pending = if namespace.is_some() { "False" } else { "True" };
        json!({
            "metadata": {"name": name, "creationTimestamp": created, "annotations": {
                "kubectl-kcp.dev/lease-id": "k4x7", "kubectl-kcp.dev/lease-user": "jane",
            }},
            "spec": {"clusterPoolName": pool, "namespace": namespace, "lifetime": "75m"},
            "status": {"conditions": [{"type": "Pending", "status": pending, "lastTransitionTime": created}]},
        })
    };
    vec![
        claim("late", "pool", None, JUST_NOW),
        claim("early", "pool", None, LONG_AGO),
        claim("for-qa", "pool", Some("rome"), LONG_AGO),
        claim("of-other", "other", None, LONG_AGO),
    ]
}

/// A pool of hibernating clusters that Hive manages, whose only cluster has been resuming for an hour.
pub fn resuming() -> Objects {
    let mut objects = Objects {
        pools: vec![pool_object(
            "pool",
            &json!({"hibernationConfig": {"resumeTimeout": "30m0s"}}),
        )],
        clusters: vec![cluster("bern", "pool", None)],
        ..Objects::default()
    };
    objects.pools[0]["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
    let bern = &mut objects.clusters[0];
    bern["spec"]["installed"] = true.into();
    bern["spec"]["powerState"] = "Running".into();
    bern["status"] = json!({"powerState": "WaitingForNodes", "conditions": [
        {"type": "Hibernating", "status": "False", "reason": "ResumingOrRunning", "lastTransitionTime": LONG_AGO},
    ]});
    objects
}

/// A pool that Hive manages, whose template changed after its two clusters had been created.
pub fn changed_secrets() -> Objects {
    let mut objects = Objects {
        pools: vec![pool_object(
            "pool",
            &json!({
                "platform": {"aws": {"credentialsSecretRef": {"name": "aws-creds"}, "region": "region"}},
                "baseDomain": "test-domain", "imageSetRef": {"name": "test-image-set"},
                "inventory": [{"name": "host-1"}, {"name": "host-2"}], "size": 2,
            }),
        )],
        ..Objects::default()
    };
    objects.pools[0]["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
    for (name, host) in [("bern", "host-1"), ("kyiv", "host-2")] {
        objects.entries.push(named(host, entry("False", Some(name))));
        objects
            .clusters
            .push(made_from(VERSION, cluster(name, "pool", Some(host)), true));
    }
    let facts = SecretFacts {
        template: Some(SecretChange {
            name: "template".to_owned(),
            at: JUST_NOW.parse().ok(),
        }),
        credentials: None,
        comparisons: [
            ("bern".to_owned(), Comparison::Differs),
            (
                "kyiv".to_owned(),
                Comparison::Unknown("the key is missing".to_owned()),
            ),
        ]
        .into(),
        changed_workers: Some(0),
    };
    objects.secrets = [("pool".to_owned(), facts)].into();
    objects
}

/// One example of each kind, by name.
pub fn states() -> Vec<(&'static str, PoolState)> {
    let mut quiet = Objects::entry(entry("True", None));
    quiet.pools[0]["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
    let bare = Objects {
        pools: vec![pool_object("pool", &json!({}))],
        clusters: vec![cluster("bern", "pool", None)],
        ..Objects::default()
    };
    let mut stuck = Objects::entry(named("a", entry("True", None)));
    stuck.pools[0]["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
    stuck.pools[0]["status"] = json!({"conditions": [{"type": "MissingDependencies", "status": "True",
        "message": "cluster image set: clusterimagesets.hive.openshift.io \"v4\" not found"}]});
    let mut failed = cluster("bern", "pool", None);
    failed["status"] = json!({"conditions": [{"type": "ProvisionStopped", "status": "True"}]});
    stuck.clusters = vec![failed];
    let lost = Objects {
        pools: vec![pool_object("pool", &json!({}))],
        drops_inventory: Some(true),
        applied_inventories: [("pool".to_owned(), vec!["host-a".to_owned()])].into(),
        ..Objects::default()
    };
    let old_definition = Objects {
        applied_inventories: BTreeMap::new(),
        ..lost.clone()
    };
    vec![
        ("busy", state(&busy(), &claims())),
        ("stuck", state(&stuck, &[])),
        ("resuming", state(&resuming(), &[])),
        ("quiet", state(&quiet, &[])),
        ("without inventory", state(&bare, &[])),
        ("changed secrets", state(&changed_secrets(), &[])),
        ("lost inventory", state(&lost, &[])),
        ("old definition", state(&old_definition, &[])),
    ]
}
