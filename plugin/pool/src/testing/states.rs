//! States of pools.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{
    objects::cluster_pool::Claim,
    repair::options::Clock,
    status::{PoolState, pool_state},
    testing::objects::{JUST_NOW, LONG_AGO, NOW, Objects, cluster, entry, named, pool_object, record},
};

/// Of the busy pool below; Hive's own tests contain the same value.
const VERSION: &str = "a6dcbd6776a3c92b";

pub const CLOCK: Clock = Clock {
    now: jiff::Timestamp::UNIX_EPOCH,
    grace: SignedDuration::from_mins(10),
};

fn made_from(version: &str, mut cluster: Value, installed: bool) -> Value {
    cluster["metadata"]["annotations"] = json!({"hive.openshift.io/cluster-pool-spec-hash": version});
    cluster["metadata"]["creationTimestamp"] = LONG_AGO.into();
    cluster["spec"]["installed"] = installed.into();
    cluster
}

/// Something of everything.
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
            named("host-1", entry("False", Some("paris"), JUST_NOW)),
            applied(
                named("host-2", entry("False", Some("rome"), LONG_AGO)),
                "True",
                "Succeeded",
                "",
            ),
            named("host-3", entry("False", Some("oslo"), LONG_AGO)),
            applied(
                named("host-4", entry("True", None, LONG_AGO)),
                "False",
                "BrokenBySyntax",
                "replace of /metadata/nmae, which is not there",
            ),
            named("host-9", entry("False", Some("lima"), LONG_AGO)),
        ],
        records: vec![
            named("host-1", record("paris", JUST_NOW, Some(600))),
            named("host-3", record("oslo", LONG_AGO, Some(600))),
        ],
        clusters: vec![
            claimed,
            made_from("0", cluster("bern", "pool", None), true),
            made_from(VERSION, cluster("kyiv", "pool", None), false),
            made_from(VERSION, cluster("lima", "pool", Some("host-9")), true),
        ],
        copies: Vec::new(),
    }
}

/// The state of the first pool.
pub fn state(objects: &Objects, claims: &[Value]) -> PoolState {
    let snapshot = objects.snapshot();
    let claims: Vec<Claim> = claims
        .iter()
        .map(|claim| serde_json::from_value(claim.clone()).unwrap())
        .collect();
    let clock = Clock {
        now: NOW.parse().unwrap(),
        ..CLOCK
    };
    pool_state(&snapshot, &claims, snapshot.pools.first().unwrap(), clock)
}

pub fn claims() -> Vec<Value> {
    let claim = |name: &str, pool: &str, namespace: Option<&str>, created: &str| {
        json!({"metadata": {"name": name, "creationTimestamp": created},
            "spec": {"clusterPoolName": pool, "namespace": namespace}})
    };
    vec![
        claim("late", "pool", None, JUST_NOW),
        claim("early", "pool", None, LONG_AGO),
        claim("for-qa", "pool", Some("rome"), LONG_AGO),
        claim("of-other", "other", None, LONG_AGO),
    ]
}

/// One of each sort, by name.
pub fn states() -> Vec<(&'static str, PoolState)> {
    let mut quiet = Objects::entry(entry("True", None, LONG_AGO));
    quiet.pools[0]["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
    let bare = Objects {
        pools: vec![pool_object("pool", &json!({}))],
        clusters: vec![cluster("bern", "pool", None)],
        ..Objects::default()
    };
    vec![
        ("busy", state(&busy(), &claims())),
        ("quiet", state(&quiet, &[])),
        ("without inventory", state(&bare, &[])),
    ]
}
