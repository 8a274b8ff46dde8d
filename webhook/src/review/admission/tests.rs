mod cached;
mod registration;
mod topology;
mod verdicts;

use base64::{Engine, engine::general_purpose::STANDARD};
use insta::assert_snapshot;
use kcp_rules::testing::case::Base;
use serde_json::{Value, json};

use crate::{
    limits::MAX_VALUES,
    testing::{control_plane, kubectl_output, review, router, send},
};

#[tokio::test]
async fn denies_with_every_cause() {
    let mut object = control_plane();
    object["spec"]["replicas"] = json!(4);
    object["spec"]["version"] = json!("v1.36.0");
    object["spec"]["rollout"]["strategy"]["type"] = json!("OnDelete");
    let response = send(
        &router(),
        "/validate",
        &review("UPDATE", &object, &control_plane()),
    )
    .await;
    assert_snapshot!(kubectl_output(&response));
}

#[tokio::test]
async fn denies_an_object_that_does_not_decode() {
    let mut object = control_plane();
    object["spec"]["replicas"] = json!("three");
    let review = review("CREATE", &object, &Value::Null);
    let router = router();
    let denied = send(&router, "/validate", &review).await;
    assert_snapshot!(kubectl_output(&denied));
    // The mutating webhook denies it too, before Cluster API's webhook answers with a Go error.
    assert_eq!(send(&router, "/mutate", &review).await, denied);
}

#[tokio::test]
async fn names_an_object_with_a_generated_name_by_its_prefix() {
    let mut object = control_plane();
    object["metadata"] = json!({"generateName": "cp-"});
    object["spec"]["replicas"] = json!(2);
    let mut review = review("CREATE", &object, &Value::Null);
    review["request"]["name"] = json!("");
    let response = send(&router(), "/validate", &review).await;
    assert_eq!(response["status"]["details"]["name"], "cp-");
}

#[tokio::test]
async fn answers_a_canary_with_its_nonce() {
    let long = "1".repeat(65);
    for (name, nonce, code, warnings) in [
        (
            "kcp-webhook-canary",
            "17",
            200,
            json!(["kcp-webhook has received the canary 17"]),
        ),
        ("kcp-webhook-canary", &long, 200, Value::Null),
        ("another", "17", 400, Value::Null),
    ] {
        let lease = json!({"metadata": {"name": name, "annotations": {"kubectl-kcp.dev/canary": nonce}}});
        let mut review = review_of("coordination.k8s.io", "leases", &lease, &lease);
        review["request"]["name"] = json!(name);
        let response = send(&router(), "/validate", &review).await;
        let status = response["status"]["code"].as_u64().unwrap_or(200);
        assert_eq!((status, &response["warnings"]), (code, &warnings), "{response}");
    }
}

/// A review of a write to an object of another kind.
fn review_of(group: &str, resource: &str, object: &Value, old_object: &Value) -> Value {
    let operation = if old_object.is_null() { "CREATE" } else { "UPDATE" };
    let mut review = review(operation, object, old_object);
    review["request"]["resource"] = json!({"group": group, "version": "v1", "resource": resource});
    review
}

#[tokio::test]
async fn both_webhooks_check_every_kind() {
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
            let response = send(&router, path, &review_of(group, resource, &good, &old)).await;
            assert_eq!(
                response,
                json!({"uid": "0f1e2d3c", "allowed": true}),
                "{resource} to {path}"
            );
            let response = send(&router, path, &review_of(group, resource, &faulty, &old)).await;
            assert_eq!(
                response["auditAnnotations"],
                json!({ "denied-by": rules }),
                "{resource} to {path}"
            );
            assert_eq!(response["status"]["code"], 422, "{resource} to {path}");
        }
        let with_version = |mut object: Value, version: &str| {
            object["metadata"]["resourceVersion"] = version.into();
            object
        };
        for (path, sent, allowed) in [
            ("/mutate", "6", true),
            ("/mutate", "7", false),
            // The API server accepts this for version 7.
            ("/mutate", "07", false),
            ("/mutate", "", false),
            ("/validate", "6", false),
        ] {
            let (stale, stored) = (
                with_version(faulty.clone(), sent),
                with_version(good.clone(), "7"),
            );
            let response = send(&router, path, &review_of(group, resource, &stale, &stored)).await;
            assert_eq!(response["allowed"], allowed, "{resource} at {sent:?} to {path}");
        }
    }
}

#[tokio::test]
async fn allows_writes_that_no_rule_checks() {
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
        (
            "update of an object being deleted",
            review("UPDATE", &bad, &deleting),
        ),
        (
            "update of an object being deleted that does not decode",
            review("UPDATE", &bad, &unreadable_deleting),
        ),
        ("status", status),
    ] {
        for path in ["/validate", "/mutate"] {
            assert_eq!(send(&router(), path, &review).await, allowed, "{name} to {path}");
        }
    }
}

#[tokio::test]
async fn ignores_the_deletion_timestamp_of_the_new_object() {
    let mut object = control_plane();
    object["spec"]["replicas"] = json!(4);
    object["metadata"]["deletionTimestamp"] = json!("2026-11-21T06:00:00Z");
    let review = review("UPDATE", &object, &control_plane());
    let response = send(&router(), "/validate", &review).await;
    assert_eq!(
        response["auditAnnotations"],
        json!({"denied-by": "replicas-even"})
    );
}

#[tokio::test]
async fn checks_only_the_new_object_if_the_stored_one_does_not_decode() {
    let mut old = control_plane();
    old["spec"]["replicas"] = json!("three");
    assert_eq!(
        send(&router(), "/validate", &review("UPDATE", &control_plane(), &old)).await,
        json!({
            "uid": "0f1e2d3c",
            "allowed": true,
            "warnings": [
                "spec.replicas: cannot decode the stored object, so kcp-webhook checked only the new object, and did \
                 not compare the two"
            ]
        })
    );
    // The stored number of replicas is unknown, so a default could scale the control plane.
    let mut new = control_plane();
    new["spec"].as_object_mut().unwrap().remove("replicas");
    assert_eq!(
        send(&router(), "/mutate", &review("UPDATE", &new, &old)).await,
        json!({"uid": "0f1e2d3c", "allowed": true})
    );
}

#[tokio::test]
async fn patches_omitted_fields() {
    let mut object = control_plane();
    object["spec"].as_object_mut().unwrap().remove("replicas");
    let mut response = send(&router(), "/mutate", &review("UPDATE", &object, &control_plane())).await;
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
async fn does_not_patch_fields_that_are_set() {
    assert_eq!(
        send(
            &router(),
            "/mutate",
            &review("CREATE", &control_plane(), &Value::Null)
        )
        .await,
        json!({"uid": "0f1e2d3c", "allowed": true})
    );
}

#[tokio::test]
async fn lists_warnings_of_denying_rules_first() {
    let mut old = Base::ClusterPool.object();
    old["spec"]["inventory"] = json!([{"name": "foo"}, {"name": "foo"}]);
    let mut new = old.clone();
    new["spec"]["size"] = json!(7);
    let response = send(
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
    // In the order of the rules, the pool's size would come first.
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
async fn both_webhooks_explain_an_ignored_override() {
    let mut object = control_plane();
    object["spec"]["replicas"] = json!(4);
    object["metadata"]["annotations"] =
        json!({"kubectl-kcp.dev/override-rules": "replicas-evn=2126-06-01T13:00:00Z"});
    for path in ["/mutate", "/validate"] {
        let response = send(&router(), path, &review("CREATE", &object, &Value::Null)).await;
        assert_eq!(response["status"]["code"], 422, "{path}");
        assert_eq!(
            response["warnings"],
            json!(["there is no rule \"replicas-evn\" to override; did you mean replicas-even?"]),
            "{path}"
        );
    }
}

#[tokio::test]
async fn refuses_objects_with_too_many_values_but_allows_to_shrink_or_delete_them() {
    let mut large = control_plane();
    large["spec"]["kubeadmConfigSpec"]["files"] = json!(vec![json!({}); MAX_VALUES]);
    for path in ["/mutate", "/validate"] {
        for (operation, old) in [("CREATE", Value::Null), ("UPDATE", control_plane())] {
            let response = send(&router(), path, &review(operation, &large, &old)).await;
            assert_eq!(
                response["status"],
                json!({
                    "status": "Failure", "code": 413, "reason": "RequestEntityTooLarge",
                    "message": "the object has more than 50000 values, too many to check; split it into smaller objects"
                }),
                "{operation} to {path}"
            );
        }
        for (operation, new) in [("UPDATE", control_plane()), ("DELETE", Value::Null)] {
            let response = send(&router(), path, &review(operation, &new, &large)).await;
            let warning = "the stored object has more than 50000 values, too many to check; kcp-webhook evaluated no \
                 rule";
            assert_eq!(
                response,
                json!({"uid": "0f1e2d3c", "allowed": true, "warnings": [warning]}),
                "{operation} to {path}"
            );
        }
    }
}
