mod kept;
mod registration;
mod verdicts;

use base64::{Engine, engine::general_purpose::STANDARD};
use insta::assert_snapshot;
use kcp_rules::case::Base;
use serde_json::{Value, json};

use crate::{
    limits::VALUES,
    testing::{ask, control_plane, review, router, screen},
};

#[tokio::test]
async fn denies_with_every_cause() {
    let mut object = control_plane();
    object["spec"]["replicas"] = json!(4);
    object["spec"]["version"] = json!("v1.36.0");
    object["spec"]["rollout"]["strategy"]["type"] = json!("OnDelete");
    let response = ask(
        &router(),
        "/validate",
        &review("UPDATE", &object, &control_plane()),
    )
    .await;
    assert_snapshot!(screen(&response));
}

#[tokio::test]
async fn denies_an_object_that_does_not_decode() {
    let mut object = control_plane();
    object["spec"]["replicas"] = json!("three");
    let review = review("CREATE", &object, &Value::Null);
    let router = router();
    let denied = ask(&router, "/validate", &review).await;
    assert_snapshot!(screen(&denied));
    // Before Cluster API's webhook says the same in the words of Go.
    assert_eq!(ask(&router, "/mutate", &review).await, denied);
}

#[tokio::test]
async fn names_an_object_whose_name_is_yet_to_be_generated() {
    let mut object = control_plane();
    object["metadata"] = json!({"generateName": "cp-"});
    object["spec"]["replicas"] = json!(2);
    let mut review = review("CREATE", &object, &Value::Null);
    review["request"]["name"] = json!("");
    let response = ask(&router(), "/validate", &review).await;
    assert_eq!(response["status"]["details"]["name"], "cp-");
}

/// A review of a write to an object of another kind.
fn review_of(group: &str, resource: &str, object: &Value, old_object: &Value) -> Value {
    let operation = if old_object.is_null() { "CREATE" } else { "UPDATE" };
    let mut review = review(operation, object, old_object);
    review["request"]["resource"] = json!({"group": group, "version": "v1", "resource": resource});
    review
}

#[tokio::test]
async fn both_webhooks_judge_every_kind() {
    const CLUSTER_API: &str = "controlplane.cluster.x-k8s.io";
    const HIVE: &str = "hive.openshift.io";
    let router = router();
    for (group, resource, base, created, pointer, bad, rules) in [
        (
            HIVE,
            "clusterpools",
            Base::ClusterPool,
            true,
            "/spec/inventory",
            json!([]),
            "inventory-empty",
        ),
        (
            HIVE,
            "clusterpools",
            Base::ClusterPool,
            true,
            "/spec/inventory",
            json!({"ClusterDeploymentCustomizations": [{"name": "foo"}, {"name": "bar"}]}),
            "inventory-not-a-list",
        ),
        (
            HIVE,
            "clusterdeploymentcustomizations",
            Base::Customization,
            true,
            "/spec",
            json!({"installConfigPatches": [{"op": "change", "path": "/a"}]}),
            "patch-op-unknown",
        ),
        (
            HIVE,
            "clusterdeployments",
            Base::ClusterDeployment,
            false,
            "/spec/clusterPoolRef/poolName",
            json!("other"),
            "pool-ref-changed",
        ),
        (
            CLUSTER_API,
            "kubeadmcontrolplanetemplates",
            Base::Template("v1beta2"),
            false,
            "/spec/template/spec/kubeadmConfigSpec",
            json!({"files": [{"path": "/a", "content": "a"}]}),
            "template-spec-immutable",
        ),
    ] {
        let good = base.object();
        let old = if created { Value::Null } else { good.clone() };
        let mut faulty = good.clone();
        *faulty.pointer_mut(pointer).unwrap() = bad;
        for path in ["/validate", "/mutate"] {
            let response = ask(&router, path, &review_of(group, resource, &good, &old)).await;
            assert_eq!(
                response,
                json!({"uid": "0f1e2d3c", "allowed": true}),
                "{resource} to {path}"
            );
            let response = ask(&router, path, &review_of(group, resource, &faulty, &old)).await;
            assert_eq!(
                response["auditAnnotations"],
                json!({ "denied-by": rules }),
                "{resource} to {path}"
            );
            assert_eq!(response["status"]["code"], 422, "{resource} to {path}");
        }
    }
}

#[tokio::test]
async fn lets_through_what_is_not_judged() {
    let allowed = json!({"uid": "0f1e2d3c", "allowed": true});
    let mut bad = control_plane();
    bad["spec"]["replicas"] = json!(4);
    let mut deleting = control_plane();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-11-21T06:00:00Z");
    let mut unreadable_deleting = deleting.clone();
    unreadable_deleting["spec"] = json!(7);
    let mut status = review("UPDATE", &bad, &bad);
    status["request"]["subResource"] = json!("status");
    for (name, review) in [
        ("deletion", review("DELETE", &Value::Null, &bad)),
        ("connection", review("CONNECT", &Value::Null, &Value::Null)),
        ("update of a deleting object", review("UPDATE", &bad, &deleting)),
        (
            "update of a deleting object that cannot be read",
            review("UPDATE", &bad, &unreadable_deleting),
        ),
        ("status", status),
    ] {
        for path in ["/validate", "/mutate"] {
            assert_eq!(ask(&router(), path, &review).await, allowed, "{name} to {path}");
        }
    }
}

#[tokio::test]
async fn a_deletion_timestamp_of_the_new_object_alone_does_not_count() {
    let mut object = control_plane();
    object["spec"]["replicas"] = json!(4);
    object["metadata"]["deletionTimestamp"] = json!("2026-11-21T06:00:00Z");
    let review = review("UPDATE", &object, &control_plane());
    let response = ask(&router(), "/validate", &review).await;
    assert_eq!(
        response["auditAnnotations"],
        json!({"denied-by": "replicas-even"})
    );
}

#[tokio::test]
async fn judges_an_update_of_an_unreadable_object_by_what_it_becomes() {
    let mut old = control_plane();
    old["spec"]["replicas"] = json!("three");
    assert_eq!(
        ask(&router(), "/validate", &review("UPDATE", &control_plane(), &old)).await,
        json!({
            "uid": "0f1e2d3c",
            "allowed": true,
            "warnings": [
                "spec.replicas: the object as it was cannot be read, and the change to it was not judged"
            ]
        })
    );
    // Its number of replicas is not known; any default would scale it.
    let mut new = control_plane();
    new["spec"].as_object_mut().unwrap().remove("replicas");
    assert_eq!(
        ask(&router(), "/mutate", &review("UPDATE", &new, &old)).await,
        json!({"uid": "0f1e2d3c", "allowed": true})
    );
}

#[tokio::test]
async fn patches_what_is_left_out() {
    let mut object = control_plane();
    object["spec"].as_object_mut().unwrap().remove("replicas");
    let mut response = ask(&router(), "/mutate", &review("UPDATE", &object, &control_plane())).await;
    let patch = STANDARD
        .decode(response["patch"].take().as_str().unwrap())
        .unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&patch).unwrap(),
        json!([{"op": "add", "path": "/spec/replicas", "value": 3}])
    );
    assert_eq!(
        response,
        json!({"uid": "0f1e2d3c", "allowed": true, "patchType": "JSONPatch", "patch": null})
    );
}

#[tokio::test]
async fn patches_nothing_that_is_there() {
    assert_eq!(
        ask(
            &router(),
            "/mutate",
            &review("CREATE", &control_plane(), &Value::Null)
        )
        .await,
        json!({"uid": "0f1e2d3c", "allowed": true})
    );
}

#[tokio::test]
async fn warns_first_of_what_is_denied_otherwise() {
    let mut old = Base::ClusterPool.object();
    old["spec"]["inventory"] = json!([{"name": "foo"}, {"name": "foo"}]);
    let mut new = old.clone();
    new["spec"]["size"] = json!(7);
    let response = ask(
        &router(),
        "/validate",
        &review_of("hive.openshift.io", "clusterpools", &new, &old),
    )
    .await;
    let warnings = response["warnings"].as_array().unwrap();
    let rules: Vec<_> = warnings
        .iter()
        .map(|warning| warning.as_str().unwrap().rsplit(['(', ')']).nth(1).unwrap())
        .collect();
    // In the order of the table, the pool's size comes first.
    assert_eq!(
        rules,
        [
            "inventory-duplicate",
            "size-above-inventory",
            "running-count-not-size"
        ]
    );
}

#[tokio::test]
async fn whichever_webhook_denies_says_why_an_override_does_not_count() {
    let mut object = control_plane();
    object["spec"]["replicas"] = json!(4);
    object["metadata"]["annotations"] =
        json!({"kubectl-kcp.dev/override-rules": "replicas-evn=2126-06-01T13:00:00Z"});
    for path in ["/mutate", "/validate"] {
        let response = ask(&router(), path, &review("CREATE", &object, &Value::Null)).await;
        assert_eq!(response["status"]["code"], 422, "{path}");
        assert_eq!(
            response["warnings"],
            json!(["there is no rule \"replicas-evn\" to override; did you mean replicas-even?"]),
            "{path}"
        );
    }
}

#[tokio::test]
async fn refuses_an_object_of_too_many_values_and_lets_one_be_made_smaller_and_deleted() {
    let mut large = control_plane();
    large["spec"]["kubeadmConfigSpec"]["files"] = json!(vec![json!({}); VALUES]);
    for path in ["/mutate", "/validate"] {
        for (operation, old) in [("CREATE", Value::Null), ("UPDATE", control_plane())] {
            let response = ask(&router(), path, &review(operation, &large, &old)).await;
            assert_eq!(
                response["status"],
                json!({
                    "status": "Failure", "code": 413, "reason": "RequestEntityTooLarge",
                    "message": "the object has more than 50000 values, and is not judged; split it into smaller ones"
                }),
                "{operation} to {path}"
            );
        }
        for (operation, new) in [("UPDATE", control_plane()), ("DELETE", Value::Null)] {
            let response = ask(&router(), path, &review(operation, &new, &large)).await;
            let warning = "the object had more than 50000 values, and its change was not judged";
            assert_eq!(
                response,
                json!({"uid": "0f1e2d3c", "allowed": true, "warnings": [warning]}),
                "{operation} to {path}"
            );
        }
    }
}
