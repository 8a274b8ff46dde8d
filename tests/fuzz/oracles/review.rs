//! A review's bytes, put to both webhooks.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use kcp_rules::topics::rules;
use kcp_webhook::review::testing::Offline;
use serde_json::Value;

use super::ready;

/// The server.
pub(crate) static SERVER: LazyLock<Offline> = LazyLock::new(Offline::default);

/// What a server says of bytes.
pub(crate) fn holds(body: &[u8]) {
    let server = &*SERVER;
    answered(server, body);
    // As a writer of JSON would have sent it: no field twice, nothing after the end. Now its uid is known.
    let Ok(review) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    let normal = answered(server, review.to_string().as_bytes());
    let uid = review.pointer("/request/uid").and_then(Value::as_str);
    let Some(uid) = uid else { return };
    let Some([mutated, _]) = normal else {
        panic!("the server rejected a review with the uid {uid:?}");
    };
    assert_eq!(mutated["uid"], uid);
    completed(server, &review, &mutated);
}

/// The answers of both webhooks, each checked. `None` if both reject the body with HTTP 400.
pub(crate) fn answered(server: &Offline, body: &[u8]) -> Option<[Value; 2]> {
    match [ready(server.mutate(body)), ready(server.validate(body))] {
        [Ok(mutated), Ok(validated)] => {
            let answers = [mutated, validated].map(|answer| response(&answer));
            assert_eq!(answers[0]["uid"], answers[1]["uid"]);
            assert_eq!(answers[1].get("patch"), None);
            Some(answers)
        }
        [Err(mutated), Err(validated)] => {
            assert_eq!(mutated, validated);
            assert_eq!(mutated.code, 400, "{}", mutated.sentence);
            None
        }
        answers => panic!("only one webhook reads the uid: {answers:?}"),
    }
}

fn response(answer: &[u8]) -> Value {
    let mut answer: Value = serde_json::from_slice(answer).unwrap();
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    let response = answer["response"].take();
    assert!(response["uid"].is_string(), "{response}");
    let allowed = response["allowed"].as_bool().unwrap();
    let status = &response["status"];
    match status["code"].as_u64() {
        None => assert!(allowed, "{response}"),
        Some(400 | 413 | 422) => assert!(!allowed, "{response}"),
        // Without API access, the server refuses every scale.
        Some(503) => assert!(
            status["message"]
                .as_str()
                .unwrap()
                .starts_with("cannot check the scale of "),
            "{response}"
        ),
        Some(_) => panic!("{response}"),
    }
    assert!(response.to_string().len() < 1 << 20 || response["uid"].as_str().unwrap().len() > 1 << 19);
    response
}

/// The review with the patch applied to its object.
pub(crate) fn patched(review: &Value, mutated: &Value) -> Value {
    let mut review = review.clone();
    if let Some(patch) = mutated["patch"].as_str() {
        let patch: json_patch::Patch = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
        assert!(!patch.is_empty());
        json_patch::patch(&mut review["request"]["object"], &patch).unwrap();
    }
    review
}

/// A patch gives an object that has no fault of its own, and to which there is nothing to add.
fn completed(server: &Offline, review: &Value, mutated: &Value) {
    if mutated.get("patch").is_none() {
        return;
    }
    assert_eq!(mutated["patchType"], "JSONPatch");
    assert_eq!(mutated["allowed"], true);
    let patched = patched(review, mutated);
    assert_ne!(&patched, review);
    let [again, validated] = answered(server, patched.to_string().as_bytes()).unwrap();
    assert_eq!(again.get("patch"), None, "{patched}");
    assert_eq!(again["allowed"], true, "{patched}");
    let denied_by = validated["auditAnnotations"]["denied-by"].as_str();
    let mut denied_by = denied_by.into_iter().flat_map(|ids| ids.split(','));
    assert!(denied_by.all(is_about_others), "{patched}: {validated}");
    assert!(validated["allowed"] == true || validated["status"]["reason"] == "Invalid");
}

/// Rules that may look at other objects are left to the validating webhook.
fn is_about_others(id: &str) -> bool {
    rules().any(|rule| rule.id == id && !rule.reads().is_empty())
}
