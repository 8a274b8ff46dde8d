//! What is read, and what a failed write tells.

use std::time::Duration;

use kube::core::Status;
use serde_json::{Value, json};

use super::{CUSTOMIZATION, Deployments, Pool, Written, outcome};
use crate::cluster::{Action, Error};

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

/// Contention is a changed or missing object, nothing else; and a refusal for what was asked, or by whom, is neither
/// contention nor unknown.
#[test]
fn what_a_failed_write_tells() {
    let action = || Action::new("patch", &CUSTOMIZATION.at("v1"));
    let server = || "https://s".to_owned();
    let cause = || "cut".to_owned();
    let message = || "no".to_owned();
    let answer = |code| Error::Answer {
        action: action(),
        code,
        message: message(),
    };
    let malformed = serde_json::from_str::<u8>("{").unwrap_err();
    for (error, expected) in [
        (Error::Conflict { action: action() }, Some(Written::Refused)),
        (Error::NotFound { action: action() }, Some(Written::Refused)),
        (
            Error::Timeout {
                action: Box::new(action()),
                server: server(),
                after: Duration::ZERO,
            },
            Some(Written::Unknown),
        ),
        (
            Error::Unreachable {
                server: server(),
                cause: cause(),
            },
            Some(Written::Unknown),
        ),
        (
            Error::Tls {
                server: server(),
                cause: cause(),
            },
            Some(Written::Unknown),
        ),
        (
            Error::Busy {
                action: Box::new(action()),
                message: message(),
                retry_after: None,
            },
            Some(Written::Unknown),
        ),
        (
            Error::Malformed {
                action: action(),
                source: malformed,
            },
            Some(Written::Unknown),
        ),
        (answer(500), Some(Written::Unknown)),
        (answer(502), Some(Written::Unknown)),
        (answer(415), None),
        (
            Error::Forbidden {
                action: action(),
                user: None,
            },
            None,
        ),
        (Error::Unauthorized { server: server() }, None),
        (
            Error::Rejected {
                action: action(),
                status: Status::failure("no", "Invalid").boxed(),
            },
            None,
        ),
        (
            Error::NotServed {
                resource: cause(),
                product: "Hive",
                server: server(),
            },
            None,
        ),
    ] {
        assert_eq!(outcome(&error), expected, "{error:?}");
    }
}
