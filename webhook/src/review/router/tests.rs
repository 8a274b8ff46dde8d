mod bad_input;
mod exemptions;
mod overridden;
mod properties;
mod secrets;

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::body::Frame;
use serde_json::{Value, json};

use super::*;
use crate::testing::{
    Chunks, admission, caller, control_plane, phase, post, read, review, router, router_with, send,
};

/// A review without a request.
const NO_REQUEST: &[u8] = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}"#;

/// The `response` of a refusal.
fn refused(uid: &str, code: u16, reason: &str, message: &str) -> Value {
    json!({
        "uid": uid,
        "allowed": false,
        "status": {"status": "Failure", "code": code, "reason": reason, "message": message}
    })
}

#[tokio::test]
async fn accepts_only_posts_of_json_to_two_paths() {
    const JSON: &str = "application/json";
    const NOT_FOUND: &str = "not found; this port serves /mutate and /validate\n";
    const METHOD: &str = "send reviews with POST\n";
    const MEDIA_TYPE: &str = "send reviews as application/json\n";
    for (method, path, content_type, code, sentence) in [
        ("POST", "/", JSON, 404, NOT_FOUND),
        ("POST", "/validate/x", JSON, 404, NOT_FOUND),
        ("POST", "/Validate", JSON, 404, NOT_FOUND),
        ("GET", "/readyz", JSON, 404, NOT_FOUND),
        ("GET", "/validate", JSON, 405, METHOD),
        ("PUT", "/mutate?timeout=5s", JSON, 405, METHOD),
        ("POST", "/validate", "", 415, MEDIA_TYPE),
        ("POST", "/validate", "application/yaml", 415, MEDIA_TYPE),
        ("POST", "/mutate", "text/plain", 415, MEDIA_TYPE),
        ("POST", "/mutate", "application/jsonp", 415, MEDIA_TYPE),
        (
            "POST",
            "/mutate?timeout=5s",
            "Application/JSON; charset=utf-8",
            400,
            "the AdmissionReview has no request\n",
        ),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .body(Full::new(Bytes::from_static(NO_REQUEST)))
            .unwrap();
        let response = router().answer(request, &caller()).await;
        assert_eq!(response.headers()[header::CONNECTION], "close");
        let (status, text) = read(response).await;
        assert_eq!(
            (status.as_u16(), text.as_str()),
            (code, sentence),
            "{method} {path} {content_type}"
        );
    }
}

#[tokio::test]
async fn rejects_a_content_encoding() {
    let request = Request::post("/validate")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONTENT_ENCODING, "gzip")
        .body(Full::new(Bytes::from_static(NO_REQUEST)))
        .unwrap();
    assert_eq!(
        read(router().answer(request, &caller()).await).await,
        (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send reviews without a content encoding\n".to_owned()
        )
    );
}

#[tokio::test]
async fn rejects_a_body_without_a_uid_with_http_400() {
    let cases: [(&[u8], &str); 8] = [
        (
            b"",
            "the body is not an AdmissionReview: EOF while parsing a value at line 1 column 0\n",
        ),
        (
            b"{\"apiVersion\": ",
            "the body is not an AdmissionReview: EOF while parsing a value at line 1 column 15\n",
        ),
        (
            b"\xff",
            "the body is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0\n",
        ),
        (
            b"[1]",
            "the body is not an AdmissionReview: invalid type: integer `1`, expected a string at line 1 column 2\n",
        ),
        (
            b"{}",
            "expected apiVersion admission.k8s.io/v1 and kind AdmissionReview, found \"\" and \"\"\n",
        ),
        (NO_REQUEST, "the AdmissionReview has no request\n"),
        (
            br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}"#,
            "the body is not an AdmissionReview: missing field `uid` at line 1 column 73\n",
        ),
        (
            br#"{"request":{"uid":"\ud800"}}"#,
            "the body is not an AdmissionReview: unexpected end of hex escape at line 1 column 26\n",
        ),
    ];
    for (body, sentence) in cases {
        let (code, text) = post(&router(), "/validate", body).await;
        assert_eq!(
            (code, text.as_str()),
            (StatusCode::BAD_REQUEST, sentence),
            "{}",
            String::from_utf8_lossy(body)
        );
    }
}

#[tokio::test]
async fn answers_bad_reviews_with_their_uid() {
    let created = || review("CREATE", &control_plane(), &Value::Null);
    let changed = |pointer: &str, value: Value| {
        let mut review = created();
        *review.pointer_mut(pointer).unwrap() = value;
        review.to_string()
    };
    let cases = [
        (
            "truncated",
            r#"{"request":{"uid":"7","object":{"#.to_owned(),
            "7",
            "the body is not an AdmissionReview: EOF while parsing an object at line 1 column 32",
        ),
        (
            "uid twice",
            r#"{"request":{"uid":"7","uid":"8"}}"#.to_owned(),
            "7",
            "the body is not an AdmissionReview: duplicate field `uid` at line 1 column 27",
        ),
        (
            "nothing but a uid",
            r#"{"request":{"uid":"7"}}"#.to_owned(),
            "7",
            "the body is not an AdmissionReview: missing field `resource` at line 1 column 22",
        ),
        (
            "v1beta1",
            changed("/apiVersion", json!("admission.k8s.io/v1beta1")),
            "0f1e2d3c",
            "expected apiVersion admission.k8s.io/v1 and kind AdmissionReview, found \"admission.k8s.io/v1beta1\" and \"AdmissionReview\"",
        ),
        (
            "another kind",
            changed("/kind", json!("ConversionReview")),
            "0f1e2d3c",
            "expected apiVersion admission.k8s.io/v1 and kind AdmissionReview, found \"admission.k8s.io/v1\" and \"ConversionReview\"",
        ),
        (
            "no object",
            changed("/request/object", Value::Null),
            "0f1e2d3c",
            "the review has no request.object",
        ),
        (
            "no old object",
            changed("/request/operation", json!("UPDATE")),
            "0f1e2d3c",
            "the review has no request.oldObject",
        ),
        (
            "another resource",
            changed("/request/resource", json!({"version": "v1", "resource": "pods"})),
            "0f1e2d3c",
            "kcp-webhook does not review pods; remove the resource from the rules of the webhook configuration",
        ),
        (
            "another group",
            changed("/request/resource/group", json!("example.com")),
            "0f1e2d3c",
            "kcp-webhook does not review kubeadmcontrolplanes.example.com; remove the resource from the rules of \
             the webhook configuration",
        ),
    ];
    for path in ["/validate", "/mutate"] {
        for (name, body, uid, message) in &cases {
            let (code, text) = post(&router(), path, body.clone()).await;
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(code, StatusCode::OK, "{name} to {path}");
            assert_eq!(
                answer["response"],
                refused(uid, 400, "BadRequest", message),
                "{name} to {path}"
            );
        }
    }
    let (_, text) = post(
        &router(),
        "/validate",
        changed("/request/operation", json!("PATCH")),
    )
    .await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["response"]["uid"], "0f1e2d3c");
    assert_eq!(answer["response"]["status"]["code"], 400);
}

#[tokio::test]
async fn finds_a_uid_after_invalid_utf8() {
    let body = b"{\"request\":{\"name\":\"\xff\",\"uid\":\"7\"}}";
    let (code, text) = post(&router(), "/validate", &body[..]).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, StatusCode::OK);
    assert_eq!(
        answer["response"],
        refused(
            "7",
            400,
            "BadRequest",
            "the body is not UTF-8: invalid utf-8 sequence of 1 bytes from index 20"
        )
    );
}

#[tokio::test]
async fn returns_the_longest_uid_and_refuses_a_longer_one() {
    let uid = "u".repeat(crate::limits::MAX_UID);
    let mut review = review("CREATE", &control_plane(), &Value::Null);
    review["request"]["uid"] = json!(uid);
    assert_eq!(
        send(&router(), "/validate", &review).await,
        json!({"uid": uid, "allowed": true})
    );
    review["request"]["uid"] = json!(format!("{uid}u"));
    let (code, text) = post(&router(), "/validate", review.to_string()).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{text}");
}

#[tokio::test]
async fn skips_deep_nesting_in_a_field_that_no_rule_reads() {
    let deep = format!("{}1{}", "[".repeat(40_000), "]".repeat(40_000));
    let mut object = control_plane();
    object["spec"]["unknown"] = json!("DEEP");
    let body = review("CREATE", &object, &Value::Null)
        .to_string()
        .replace("\"DEEP\"", &deep);
    let (code, text) = post(&router(), "/validate", body).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(
        text,
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"0f1e2d3c","allowed":true}}"#
    );
}

#[tokio::test]
async fn rejects_a_body_above_the_limit() {
    let limits = || Limits {
        body_bytes: 1000,
        ..Limits::default()
    };
    let too_large = (
        StatusCode::PAYLOAD_TOO_LARGE,
        "the body of the request is larger than 1000 bytes\n".to_owned(),
    );
    let router = router_with(None, limits());
    assert_eq!(post(&router, "/validate", vec![b' '; 1001]).await, too_large);
    assert_eq!(
        post(&router, "/validate", vec![b' '; 1000]).await.0,
        StatusCode::BAD_REQUEST
    );
    // Without a content length, in chunks.
    let request = Request::post("/validate")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Chunks(vec![Bytes::from_static(&[b' '; 400]); 3].into()))
        .unwrap();
    let response = router.answer(request, &caller()).await;
    assert_eq!(response.headers()[header::CONNECTION], "close");
    assert_eq!(read(response).await, too_large);
}

#[tokio::test]
async fn joins_the_chunks_of_a_body() {
    let body = review("CREATE", &control_plane(), &Value::Null).to_string();
    let chunks = body.as_bytes().chunks(7).map(Bytes::copy_from_slice).collect();
    let request = Request::post("/validate")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Chunks(chunks))
        .unwrap();
    let (code, text) = read(router().answer(request, &caller()).await).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(
        text,
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"0f1e2d3c","allowed":true}}"#
    );
}

#[tokio::test(start_paused = true)]
async fn live_reads_end_before_the_time_limit_of_the_review() {
    for (query, expected) in [
        (None, 1000),
        (Some("timeout=3s"), 2500),
        (Some("dryRun=All&timeout=5s"), 4500),
        (Some("timeout=0s"), 0),
        (Some("timeout=9999s"), 9500),
        (Some("timeout=500ms"), 1000),
    ] {
        let now = Instant::now();
        let left = read_limits(Peer::SELF, query).deadline - now;
        assert_eq!(left.as_millis(), expected, "{query:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn limits_all_bodies_together_and_frees_their_bytes() {
    let body = review("CREATE", &control_plane(), &Value::Null).to_string();
    let limits = |held_bytes| Limits {
        held_bytes,
        ..Limits::default()
    };
    let router = router_with(None, limits(4 * (REVIEW_BYTES + body.len()) - 1));
    assert_eq!(
        post(&router, "/validate", body.clone()).await,
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "other reviews use all memory reserved for reviews; try again\n".to_owned()
        )
    );
    let router = router_with(None, limits(8 * (REVIEW_BYTES + body.len())));
    for _ in 0..3 {
        assert_eq!(post(&router, "/validate", body.clone()).await.0, StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn times_out_on_a_body_that_does_not_arrive() {
    let request = Request::post("/validate")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Never)
        .unwrap();
    assert_eq!(
        read(router().answer(request, &caller()).await).await,
        (
            StatusCode::REQUEST_TIMEOUT,
            "the body of the request did not arrive within 5 s\n".to_owned()
        )
    );
}

#[tokio::test]
async fn rejects_requests_above_the_limits() {
    let body = review("CREATE", &control_plane(), &Value::Null).to_string();
    let none = router_with(
        None,
        Limits {
            reviews: 0,
            ..Limits::default()
        },
    );
    assert_eq!(
        post(&none, "/validate", body.clone()).await,
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "too many reviews are in progress; try again\n".to_owned()
        )
    );
}

#[tokio::test]
async fn asks_clients_to_disconnect_while_draining() {
    for (phase_now, expected) in [
        (Phase::Serving, None),
        (Phase::Draining, Some("close")),
        (Phase::Closing, Some("close")),
    ] {
        let metrics = Arc::new(Metrics::new());
        let router = Router::new(
            Admissions::for_all(admission(None, &metrics)),
            metrics,
            Limits::default(),
            phase(phase_now),
        );
        let request = Request::post("/validate")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(
                review("CREATE", &control_plane(), &Value::Null).to_string(),
            )))
            .unwrap();
        let response = router.answer(request, &caller()).await;
        let connection = response.headers().get(header::CONNECTION);
        assert_eq!(
            connection.map(|value| value.to_str().unwrap()),
            expected,
            "{phase_now:?}"
        );
        assert_eq!(response.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn counts_requests_decisions_and_rules() {
    let router = router();
    let mut bad = control_plane();
    bad["spec"]["replicas"] = json!(4);
    send(
        &router,
        "/validate",
        &review("CREATE", &control_plane(), &Value::Null),
    )
    .await;
    send(&router, "/validate", &review("CREATE", &bad, &Value::Null)).await;
    post(&router, "/validate", "{").await;
    let skipped = Decision {
        skipped_rules: vec!["inventory-shared"],
        ..Decision::allowed()
    };
    router.metrics.count_decision(Hook::Mutate, &skipped);
    let text = router.metrics.encode().unwrap();
    for line in [
        r#"controller_runtime_webhook_requests_total{webhook="/validate",code="200"} 2"#,
        r#"controller_runtime_webhook_requests_total{webhook="/validate",code="400"} 1"#,
        r#"controller_runtime_webhook_requests_in_flight{webhook="/validate"} 0"#,
        r#"controller_runtime_webhook_latency_seconds_count{webhook="/validate"} 3"#,
        r#"kcp_webhook_decisions_total{webhook="/validate",decision="allowed"} 1"#,
        r#"kcp_webhook_decisions_total{webhook="/validate",decision="denied"} 1"#,
        r#"kcp_webhook_rule_findings_total{rule="replicas-even",decision="deny"} 1"#,
        r#"kcp_webhook_rule_findings_total{rule="replicas-not-positive",decision="deny"} 0"#,
        r#"kcp_webhook_rules_skipped_total{rule="inventory-shared"} 1"#,
        r#"kcp_webhook_rules_skipped_total{rule="inventory-name-unknown"} 0"#,
        "certwatcher_read_certificate_total 0",
        "certwatcher_read_certificate_errors_total 0",
    ] {
        assert!(
            text.lines().any(|present| present == line),
            "{line} is missing from:\n{text}"
        );
    }
}

/// A body that panics.
struct Panics;

impl Body for Panics {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("a panic for the test")
    }
}

#[tokio::test]
async fn answers_500_to_a_review_that_panics_and_counts_it() {
    let router = router();
    let request = Request::post("/validate")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Panics)
        .unwrap();
    let response = router.answer(request, &caller()).await;
    assert_eq!(response.headers()[header::CONNECTION], "close");
    assert_eq!(
        read(response).await,
        (
            StatusCode::INTERNAL_SERVER_ERROR,
            "kcp-webhook failed to review this write; report this as a bug, with the log of kcp-webhook\n"
                .to_owned()
        )
    );
    let text = router.metrics.encode().unwrap();
    for line in [
        "kcp_webhook_panics_total 1",
        r#"controller_runtime_webhook_requests_total{webhook="/validate",code="500"} 1"#,
        r#"controller_runtime_webhook_requests_in_flight{webhook="/validate"} 0"#,
    ] {
        assert!(
            text.lines().any(|present| present == line),
            "{line} is missing from:\n{text}"
        );
    }
    let review = review("CREATE", &control_plane(), &Value::Null);
    assert_eq!(send(&router, "/validate", &review).await["allowed"], true);
}

/// A body that never comes.
struct Never;

impl Body for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}
