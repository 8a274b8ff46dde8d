use std::sync::{Arc, Mutex};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{
    Limits,
    limits::MAX_RESPONSE_BYTES,
    testing::{api_server, control_plane, kubectl_output, post, router, router_with, scale_review, send},
};

const ALLOWED: &str = r#"{"uid":"0f1e2d3c","allowed":true}"#;

fn allowed() -> Value {
    serde_json::from_str(ALLOWED).unwrap()
}

/// The response to scaling `object` to `replicas`.
async fn scale(object: Value, replicas: u32) -> Value {
    let client = api_server(move |_| std::future::ready((200, object.clone())));
    let router = router_with(Some(client), Limits::default());
    send(&router, "/validate", &scale_review(replicas)).await
}

/// The response when the API server answers the read with this error.
async fn read_fails(code: u16, reason: &str, message: &str) -> Value {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message
    });
    let client = api_server(move |_| std::future::ready((code, status.clone())));
    let router = router_with(Some(client), Limits::default());
    send(&router, "/validate", &scale_review(3)).await
}

#[tokio::test]
async fn accepts_an_odd_number() {
    assert_eq!(scale(control_plane(), 5).await, allowed());
}

#[tokio::test]
async fn rejects_an_even_number() {
    assert_snapshot!(kubectl_output(&scale(control_plane(), 4).await));
}

#[tokio::test]
async fn rejects_zero_which_go_omits() {
    let response = scale(control_plane(), 0).await;
    assert_eq!(
        response["auditAnnotations"],
        json!({"denied-by": "replicas-not-positive"})
    );
}

#[tokio::test]
async fn accepts_an_even_number_with_external_etcd() {
    let mut object = control_plane();
    object["spec"]["kubeadmConfigSpec"] =
        json!({"clusterConfiguration": {"etcd": {"external": {"endpoints": ["https://etcd:2379"]}}}});
    assert_eq!(scale(object, 4).await, allowed());
}

#[tokio::test]
async fn allows_any_scale_of_a_control_plane_being_deleted() {
    let mut object = control_plane();
    object["metadata"]["deletionTimestamp"] = json!("2026-11-21T06:00:00Z");
    assert_eq!(scale(object, 4).await, allowed());
}

#[tokio::test]
async fn reads_the_control_plane_in_the_version_of_the_review() {
    let requested = Arc::new(Mutex::new(Vec::new()));
    let seen = requested.clone();
    let client = api_server(move |path| {
        seen.lock().unwrap().push(path);
        std::future::ready((200, control_plane()))
    });
    let router = router_with(Some(client), Limits::default());
    let mut review = scale_review(3);
    review["request"]["resource"]["version"] = json!("v1beta1");
    assert_eq!(send(&router, "/validate", &review).await, allowed());
    assert_eq!(
        *requested.lock().unwrap(),
        ["/apis/controlplane.cluster.x-k8s.io/v1beta1/namespaces/default/kubeadmcontrolplanes/example"]
    );
}

#[tokio::test]
async fn never_requests_a_name_that_would_change_the_path() {
    let client = api_server(|path| async move { panic!("unexpected request for {path}") });
    let router = router_with(Some(client), Limits::default());
    for (field, value) in [
        ("name", ""),
        ("name", ".."),
        ("name", "../../secrets/x"),
        ("name", "a/../../b"),
        ("name", "a?b"),
        ("name", "a%2fb"),
        ("name", "\u{e4}"),
        ("namespace", ""),
        ("namespace", ".."),
        ("namespace", "Upper"),
    ] {
        let mut review = scale_review(3);
        review["request"][field] = json!(value);
        let response = send(&router, "/validate", &review).await;
        assert_eq!(response["status"]["code"], 400, "{field} {value:?}");
    }
    let mut review = scale_review(3);
    review["request"]["resource"]["version"] = json!("..");
    assert_eq!(send(&router, "/validate", &review).await["status"]["code"], 400);
}

#[tokio::test]
async fn refuses_without_api_access() {
    assert_snapshot!(kubectl_output(
        &send(&router(), "/validate", &scale_review(3)).await
    ));
}

#[tokio::test]
async fn refuses_when_reading_is_forbidden() {
    assert_snapshot!(kubectl_output(
        &read_fails(
            403,
            "Forbidden",
            "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io \"example\" is forbidden: User \"kcp\" cannot get it"
        )
        .await
    ));
}

#[tokio::test]
async fn refuses_when_there_is_no_such_object() {
    assert_snapshot!(kubectl_output(&read_fails(404, "NotFound", "not found").await));
}

#[tokio::test(start_paused = true)]
async fn refuses_when_the_api_server_fails() {
    for code in [429, 500, 503] {
        let response = read_fails(code, "Whatever", "storage is (re)initializing").await;
        assert_eq!(
            response["status"],
            json!({
                "status": "Failure",
                "code": 503,
                "reason": "ServiceUnavailable",
                "message": format!(
                    "cannot check the scale of KubeadmControlPlane \"example\": the API server \
                     responded with {code}: storage is (re)initializing; try again"
                )
            })
        );
    }
}

#[tokio::test]
async fn refuses_when_the_answer_is_not_a_control_plane() {
    let response = scale(json!({"apiVersion": "v1", "spec": {"replicas": []}}), 3).await;
    assert_eq!(response["status"]["code"], 503);
    assert_eq!(
        response["status"]["message"],
        "cannot check the scale of KubeadmControlPlane \"example\": the object's spec.replicas does not have the type that its kind requires; correct the object first"
    );
}

#[tokio::test]
async fn refuses_when_the_answer_is_too_large() {
    let response = scale(json!("x".repeat(MAX_RESPONSE_BYTES)), 3).await;
    assert_eq!(
        response["status"]["message"],
        "cannot check the scale of KubeadmControlPlane \"example\": the API server's response is larger than 16777216 \
         bytes, too large to read"
    );
}

#[tokio::test(start_paused = true)]
async fn gives_the_api_server_one_second() {
    let client = api_server(|_| std::future::pending());
    let router = router_with(Some(client), Limits::default());
    let before = tokio::time::Instant::now();
    let response = send(&router, "/validate", &scale_review(3)).await;
    assert_eq!(before.elapsed().as_secs(), 1);
    assert_snapshot!(kubectl_output(&response));
}

#[tokio::test(start_paused = true)]
async fn all_reads_of_one_review_end_within_one_second() {
    let mut rolling = control_plane();
    rolling["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "edge"});
    rolling["status"] = json!({"replicas": 3, "upToDateReplicas": 1});
    let requested = Arc::new(Mutex::new(Vec::new()));
    let seen = requested.clone();
    let client = api_server(move |path| {
        seen.lock().unwrap().push(path);
        let rolling = rolling.clone();
        async move {
            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
            (200, rolling)
        }
    });
    let router = router_with(Some(client), Limits::default());
    let before = tokio::time::Instant::now();
    let response = send(&router, "/validate", &scale_review(5)).await;
    assert_eq!(before.elapsed().as_millis(), 1000);
    assert_eq!(
        response["auditAnnotations"],
        json!({"denied-by": "replicas-during-rollout,replicas-while-adopting"})
    );
    assert_eq!(
        *requested.lock().unwrap(),
        [
            "/apis/controlplane.cluster.x-k8s.io/v1beta2/namespaces/default/kubeadmcontrolplanes/example",
            "/apis/cluster.x-k8s.io"
        ]
    );
}

#[tokio::test]
async fn does_not_patch_a_scale() {
    assert_eq!(send(&router(), "/mutate", &scale_review(4)).await, allowed());
}

#[tokio::test]
async fn rejects_a_scale_that_does_not_decode() {
    let mut review = scale_review(3);
    review["request"]["object"]["spec"]["replicas"] = json!("three");
    let (_, body) = post(&router(), "/validate", review.to_string()).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        answer["response"]["status"]["details"]["causes"],
        json!([{
            "reason": "FieldValueInvalid",
            "field": "spec.replicas",
            "message": "Invalid value: found string \"three\", expected an integer; see the field's type with \
                        `kubectl explain` (object-undecodable)"
        }])
    );
}
