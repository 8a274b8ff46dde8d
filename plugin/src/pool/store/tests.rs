//! What is read.

use serde_json::{Value, json};

use super::Pool;

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
