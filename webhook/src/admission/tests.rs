mod verdicts;

use base64::{Engine, engine::general_purpose::STANDARD};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::testing::{ask, control_plane, review, router, screen};

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
    assert_snapshot!(screen(&ask(&router, "/validate", &review).await));
    assert_eq!(
        ask(&router, "/mutate", &review).await,
        json!({"uid": "0f1e2d3c", "allowed": true})
    );
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

#[tokio::test]
async fn judges_the_kinds_of_hive() {
    for (resource, base, pointer, bad, rule) in [
        (
            "clusterpools",
            kcp_rules::case::Base::ClusterPool,
            "/spec/inventory",
            json!([]),
            "inventory-empty",
        ),
        (
            "clusterdeploymentcustomizations",
            kcp_rules::case::Base::Customization,
            "/spec",
            json!({"installConfigPatches": [{"op": "change", "path": "/a"}]}),
            "patch-op-unknown",
        ),
    ] {
        let mut review = review("CREATE", &base.object(), &Value::Null);
        review["request"]["resource"] =
            json!({"group": "hive.openshift.io", "version": "v1", "resource": resource});
        let allowed = json!({"uid": "0f1e2d3c", "allowed": true});
        assert_eq!(ask(&router(), "/validate", &review).await, allowed);
        assert_eq!(ask(&router(), "/mutate", &review).await, allowed);
        *review["request"]["object"].pointer_mut(pointer).unwrap() = bad;
        let response = ask(&router(), "/validate", &review).await;
        assert_eq!(response["auditAnnotations"], json!({"denied-by": rule}));
        assert_eq!(response["status"]["code"], 422);
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
