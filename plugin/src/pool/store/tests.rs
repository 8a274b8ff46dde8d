//! What is read.

use serde_json::{Value, json};

use super::{Deployments, Pool};

fn pool(finalizers: &[&str], spec: &Value) -> Pool {
    serde_json::from_value(json!({"metadata": {"name": "p", "finalizers": finalizers}, "spec": spec}))
        .unwrap()
}

#[test]
fn an_inventory_names_each_customization_once() {
    let pool = pool(
        &[],
        &json!({"inventory": [{"name": "b"}, {"name": ""}, {"name": "a"}, {"name": "b"}]}),
    );
    assert_eq!(pool.inventory(), ["b", "a"]);
}

#[test]
fn no_inventory_and_an_empty_one_name_nothing() {
    for spec in [json!({}), json!({"inventory": null}), json!({"inventory": []})] {
        assert!(pool(&[], &spec).inventory().is_empty());
    }
}

#[test]
fn hive_is_known_by_its_finalizer() {
    assert!(pool(&["x", "hive.openshift.io/clusters"], &json!({})).is_run_by_hive());
    assert!(!pool(&["hive.openshift.io/p"], &json!({})).is_run_by_hive());
}

#[test]
fn clusters_of_pools_of_other_namespaces_do_not_count() {
    let deployment = |name: &str, reference: Value| {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"clusterPoolRef": reference}}))
            .unwrap()
    };
    let of = |namespace: &str, pool: &str, customization: Value| json!({"namespace": namespace, "poolName": pool, "clusterDeploymentCustomization": customization});
    let deployments = Deployments::of(
        "d",
        vec![
            deployment("a", of("d", "p", json!({"name": "one"}))),
            deployment("b", of("other", "p", json!({"name": "one"}))),
            deployment("c", of("d", "p", Value::Null)),
            deployment("e", of("d", "p", json!({"name": ""}))),
            deployment("f", Value::Null),
        ],
    );
    let made: Vec<_> = ["a", "b", "c", "e", "f"]
        .into_iter()
        .filter(|name| deployments.contains(name, "p"))
        .collect();
    assert_eq!(made, ["a", "c", "e"]);
    assert!(!deployments.contains("a", "q"));
    let references = deployments.by_customization();
    assert_eq!(references.keys().collect::<Vec<_>>(), ["one"]);
    assert_eq!(
        references["one"]
            .iter()
            .map(|deployment| deployment.name.as_str())
            .collect::<Vec<_>>(),
        ["a"]
    );
}
