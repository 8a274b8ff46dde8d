//! Changes to a pool.

use serde_json::{Value, json};

use crate::{
    plan::{PoolPlan, plan},
    testing::objects::{Objects, cluster, entry, named, pool, pool_object},
};

/// The version of the pool below. Hive's own tests contain the same value.
pub const VERSION: &str = "a6dcbd6776a3c92b";

/// The spec before the change.
pub fn spec(names: &[&str]) -> Value {
    let inventory: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "platform": {"aws": {"credentialsSecretRef": {"name": "aws-creds"}, "region": "region"}},
        "baseDomain": "test-domain", "imageSetRef": {"name": "test-image-set"},
        "inventory": inventory, "size": 2, "maxSize": 6,
    })
}

/// Pool `pool` with `one` (used by an unclaimed cluster), `two` (by a claimed cluster), `three` (leased by a script)
/// and `four`.
pub fn objects() -> Objects {
    let made = |name: &str, entry: Option<&str>, claim: Option<&str>| {
        let mut cluster = cluster(name, "pool", entry);
        cluster["metadata"]["annotations"] = json!({"hive.openshift.io/cluster-pool-spec-hash": VERSION});
        if let Some(claim) = claim {
            cluster["spec"]["clusterPoolRef"]["claimName"] = claim.into();
        }
        cluster
    };
    let mut objects = Objects {
        pools: vec![
            pool_object("pool", &spec(&["one", "two", "three", "four"])),
            pool_object("other", &json!({"inventory": [{"name": "theirs"}]})),
        ],
        entries: vec![
            named("one", entry("False", Some("paris"))),
            named("two", entry("False", Some("rome"))),
            named("three", entry("False", Some("oslo"))),
            named("four", entry("True", None)),
            named("five", entry("True", None)),
            named("theirs", entry("True", None)),
        ],
        clusters: vec![
            made("paris", Some("one"), None),
            made("rome", Some("two"), Some("for-qa")),
            made("bern", None, None),
        ],
        ..Objects::default()
    };
    objects.pools[0]["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
    objects
}

pub fn planned(objects: &Objects, spec: &Value) -> PoolPlan {
    plan(&objects.snapshot(), &pool(spec))
}

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    spec[field] = value;
    spec
}

/// One example of each kind, by name.
pub fn plans() -> Vec<(&'static str, PoolPlan)> {
    let all = ["one", "two", "three", "four"];
    let by_hand = |mut objects: Objects| {
        objects.pools[0]["metadata"]["finalizers"] = json!([]);
        objects
    };
    vec![
        ("nothing", planned(&objects(), &spec(&all))),
        (
            "entries",
            planned(&objects(), &spec(&["five", "missing", "theirs"])),
        ),
        (
            "version",
            planned(&objects(), &with(spec(&all), "baseDomain", json!("other-domain"))),
        ),
        (
            "smaller",
            planned(
                &by_hand(objects()),
                &with(with(spec(&all), "size", json!(1)), "maxSize", json!(2)),
            ),
        ),
        ("larger", planned(&objects(), &with(spec(&all), "size", json!(5)))),
        ("empty", planned(&objects(), &spec(&[]))),
        ("new", planned(&Objects::default(), &spec(&["one"]))),
        (
            "another platform",
            planned(&objects(), &with(spec(&all), "platform", json!({"none": {}}))),
        ),
    ]
}
