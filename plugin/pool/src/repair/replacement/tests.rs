//! Which clusters are older than the Secrets of their pool, and when one is replaced.

use std::sync::{Arc, Mutex};

use kcp_client::{Connection, testing::failure};
use serde_json::{Value, json};

use super::{obstacle, replace_cluster};
use crate::{
    objects::cluster_deployment::ClusterDeployments,
    repair::{apply::RepairOutcome, old_secrets::check_secrets, options::RepairOptions},
    sources::secrets::{Comparison, SecretChange, SecretFacts},
    store::Store,
    testing::objects::{JUST_NOW, LONG_AGO, NOW, Objects, cluster, pool, pool_object, read},
};
/// The version of the pool below.
const VERSION: &str = "a6dcbd6776a3c92b";

fn of_hive(name: &str, created: &str) -> Value {
    let mut cluster = cluster(name, "pool", Some("one"));
    cluster["metadata"]["creationTimestamp"] = created.into();
    cluster["metadata"]["resourceVersion"] = "7".into();
    cluster["metadata"]["annotations"] = json!({"hive.openshift.io/cluster-pool-spec-hash": VERSION});
    cluster["spec"]["installed"] = true.into();
    cluster
}

fn spec() -> Value {
    json!({
        "platform": {"aws": {"credentialsSecretRef": {"name": "aws-creds"}, "region": "region"}},
        "baseDomain": "test-domain", "imageSetRef": {"name": "test-image-set"},
        "inventory": [{"name": "one"}], "size": 2,
    })
}

/// A pool of Hive's, whose template and credentials changed just now.
fn changed() -> Objects {
    let mut pool = pool_object("pool", &spec());
    pool["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
    let mut claimed = of_hive("claimed", LONG_AGO);
    claimed["spec"]["clusterPoolRef"]["claimName"] = "c".into();
    let mut of_another_version = of_hive("stale", LONG_AGO);
    of_another_version["metadata"]["annotations"] = json!({});
    let clusters = [
        of_hive("later", JUST_NOW),
        of_hive("early", LONG_AGO),
        claimed,
        of_another_version,
        of_hive("same", LONG_AGO),
        of_hive("unknown", LONG_AGO),
        of_hive("new", NOW),
    ];
    let names = ["later", "early", "claimed", "stale"];
    let differs = names.map(|name| (name.to_owned(), Comparison::Differs));
    let unknown = ("unknown".to_owned(), Comparison::Unknown("no key".to_owned()));
    let same = ("same".to_owned(), Comparison::Same);
    let change = |name: &str| {
        Some(SecretChange {
            name: name.to_owned(),
            at: NOW.parse().ok(),
        })
    };
    let facts = SecretFacts {
        template: change("template"),
        credentials: change("aws-creds"),
        comparisons: differs.into_iter().chain([unknown, same]).collect(),
        changed_workers: None,
    };
    Objects {
        pools: vec![pool],
        clusters: clusters.to_vec(),
        secrets: [("pool".to_owned(), facts)].into(),
        ..Objects::default()
    }
}

fn options(pool: &str) -> RepairOptions<'_> {
    RepairOptions {
        pool: Some(pool),
        grace: crate::lease::rule::DEFAULT_GRACE,
        forced: &[],
        recreate: false,
    }
}

fn found(objects: &Objects, pool: &str) -> Vec<String> {
    let found = check_secrets(&objects.snapshot(), &options(pool));
    let found = found.iter().map(|found| {
        let secret = found.sentence();
        let (secret, _) = secret.split_once(',').unwrap();
        format!(
            "{} {} {} {secret}",
            found.subject,
            found.cause.as_str(),
            found.remedy.as_str()
        )
    });
    found.collect()
}

#[test]
fn only_unclaimed_clusters_with_another_install_config_are_replaced() {
    let objects = changed();
    let expected = [
        "cd/early old-secret replace secret/template",
        "cd/same old-secret none secret/aws-creds",
        "cd/unknown old-secret none secret/template",
        "cd/later old-secret replace secret/template",
    ];
    assert_eq!(found(&objects, "pool"), expected);
    assert_eq!(found(&objects, "other"), Vec::<String>::new());
    let mut without_hive = objects.clone();
    without_hive.pools[0]["metadata"]["finalizers"] = json!([]);
    assert_eq!(found(&without_hive, "pool"), Vec::<String>::new());
    let mut deleting = objects;
    deleting.pools[0]["metadata"]["deletionTimestamp"] = NOW.into();
    assert_eq!(found(&deleting, "pool"), Vec::<String>::new());
}

#[test]
fn a_cluster_is_replaced_only_while_the_pool_has_all_of_its_clusters() {
    let [early, other] = ["early", "other"].map(|name| of_hive(name, LONG_AGO));
    let altered = |pointer: &str, value: Value| {
        let mut cluster = early.clone();
        *cluster.pointer_mut(pointer).unwrap() = value;
        cluster
    };
    let installing = {
        let mut cluster = other.clone();
        cluster["spec"]["installed"] = false.into();
        cluster
    };
    let mut claimed = early.clone();
    claimed["spec"]["clusterPoolRef"]["claimName"] = "c".into();
    let limit = |limit: i32| {
        let mut spec = spec();
        spec["maxConcurrent"] = limit.into();
        spec
    };
    let waits = Some(RepairOutcome::WaitsForClusters);
    let settled = Some(RepairOutcome::Settled);
    for (case, spec, others, now, expected) in [
        ("complete", spec(), vec![other.clone()], early.clone(), None),
        (
            "one at a time",
            limit(1),
            vec![other.clone()],
            early.clone(),
            None,
        ),
        (
            "none at a time",
            limit(0),
            vec![other.clone()],
            early.clone(),
            waits.clone(),
        ),
        ("short", spec(), vec![], early.clone(), waits.clone()),
        (
            "installing",
            spec(),
            vec![other.clone(), installing],
            early.clone(),
            waits,
        ),
        ("claimed", spec(), vec![other.clone()], claimed, settled.clone()),
        (
            "another cluster with its name",
            spec(),
            vec![other.clone()],
            altered("/metadata/uid", "u".into()),
            settled.clone(),
        ),
        (
            "of another pool",
            spec(),
            vec![other],
            altered("/spec/clusterPoolRef/poolName", "b".into()),
            settled,
        ),
    ] {
        let all = others.iter().chain([&now]).map(read).collect();
        let clusters = ClusterDeployments::new("d", all);
        let outcome = obstacle(&pool(&spec), &clusters, &read(&early), &read(&now));
        assert_eq!(outcome, expected, "{case}");
    }
}

#[tokio::test]
async fn a_cluster_that_changes_is_judged_again() {
    for (claimed_at_read, expected, expected_deletions) in [
        (None, RepairOutcome::Repaired, 2),
        (Some(1), RepairOutcome::Settled, 1),
    ] {
        let requests = Arc::new(Mutex::new((0_usize, 0)));
        let seen = Arc::clone(&requests);
        let mut pool = pool_object("pool", &spec());
        pool["spec"]["size"] = 1.into();
        let connection = Connection::canned(move |method, path| {
            let mut seen = seen.lock().unwrap();
            let (reads, deletions) = &mut *seen;
            let mut early = of_hive("early", LONG_AGO);
            match (method.as_str(), path) {
                ("DELETE", _) => {
                    *deletions += 1;
                    if *deletions == 1 {
                        return failure(409, "Conflict", "changed");
                    }
                    (200, json!({}))
                }
                (_, path) if path.ends_with("/clusterpools/pool") => (200, pool.clone()),
                (_, path) if path.ends_with("/clusterdeployments/early") => {
                    if claimed_at_read == Some(*reads) {
                        early["spec"]["clusterPoolRef"]["claimName"] = "c".into();
                    }
                    *reads += 1;
                    (200, early)
                }
                _ => (200, json!({"metadata": {}, "items": [early]})),
            }
        });
        let snapshot = changed().snapshot();
        let finding = check_secrets(&snapshot, &options("pool")).remove(0);
        let outcome = replace_cluster(&Store::new(&connection, "m"), &snapshot, &finding).await;
        assert_eq!(outcome.ok(), Some(expected));
        assert_eq!(requests.lock().unwrap().1, expected_deletions);
    }
}
