//! Input that no API server sends. Every one gets an answer, and none causes an internal error.

use std::{fs, iter};

use kcp_rules::testing::case::Base;
use serde_json::{Value, json};

use crate::testing::{control_plane, post, review, router, send};

/// HTTP 400 with one line of plain text, because there is no uid to answer with.
const HTTP_400: &str = "HTTP 400";
/// A refusal with the uid.
const INVALID_REVIEW: &str = "invalid review";
const ALLOWED: &str = "allowed";
/// A refusal of an object with too many values to check.
const TOO_MANY_VALUES: &str = "too many values";

/// The class of the answer to a body. For an object that does not decode, the field at fault.
async fn answer(path: &str, body: String) -> String {
    let (code, text) = post(&router(), path, body).await;
    let Ok(answer) = serde_json::from_str::<Value>(&text) else {
        assert_eq!(code, 400, "{text}");
        assert!(text.ends_with('\n') && text.lines().count() == 1, "{text}");
        return HTTP_400.to_owned();
    };
    assert_eq!(code, 200, "{text}");
    let response = &answer["response"];
    assert_eq!(response["uid"], "7", "{text}");
    if response["allowed"] == json!(true) {
        return ALLOWED.to_owned();
    }
    let status = &response["status"];
    if status["code"] == 400 {
        return INVALID_REVIEW.to_owned();
    }
    if status["code"] == 413 {
        return TOO_MANY_VALUES.to_owned();
    }
    assert_eq!(status["code"], 422, "{text}");
    assert_eq!(
        response["auditAnnotations"]["denied-by"], "object-undecodable",
        "{text}"
    );
    status["details"]["causes"][0]["field"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// A review of an update with `raw` in place of one value. The uid comes first, as the API server writes it.
fn update_with(pointer: &str, raw: &str) -> String {
    let mut review = review("UPDATE", &control_plane(), &control_plane());
    review["request"]["uid"] = json!("7");
    *review.pointer_mut(pointer).unwrap() = json!("PLACE");
    let mut request = review["request"].take();
    let uid = request.as_object_mut().unwrap().remove("uid").unwrap();
    let request = request.to_string().replacen('{', &format!("{{\"uid\":{uid},"), 1);
    review["request"] = json!("REQUEST");
    let text = review.to_string().replace("\"REQUEST\"", &request);
    text.replace("\"PLACE\"", raw)
}

#[tokio::test]
async fn answers_unlimited_nesting() {
    const DEPTH: usize = 100_000;
    let closed = format!("{}{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
    let (open, open_objects) = ("[".repeat(DEPTH), "{\"a\":".repeat(DEPTH));
    for body in [&closed, &open, &open_objects] {
        assert_eq!(answer("/validate", body.clone()).await, HTTP_400);
    }
    for (pointer, when_closed) in [
        ("/request/uid", HTTP_400),
        ("/request/name", INVALID_REVIEW),
        ("/request/userInfo", INVALID_REVIEW),
        ("/request/options", INVALID_REVIEW),
        ("/request/oldObject", ALLOWED),
        ("/request/object", TOO_MANY_VALUES),
        ("/request/object/metadata", TOO_MANY_VALUES),
        ("/request/object/spec", TOO_MANY_VALUES),
        ("/request/object/spec/version", TOO_MANY_VALUES),
    ] {
        for path in ["/validate", "/mutate"] {
            let body = update_with(pointer, &closed);
            assert_eq!(answer(path, body).await, when_closed, "{pointer} to {path}");
            for open in [&open, &open_objects] {
                let expected = if pointer == "/request/uid" {
                    HTTP_400
                } else {
                    INVALID_REVIEW
                };
                let body = update_with(pointer, open);
                assert_eq!(answer(path, body).await, expected, "{pointer} to {path}, open");
            }
        }
    }
}

#[tokio::test]
async fn answers_values_that_no_field_can_have() {
    let digits = "9".repeat(1000);
    let numbers = [
        "1e400",
        "1e5",
        "0.5",
        "9223372036854775808",
        "-9223372036854775809",
        &digits,
    ];
    let strings = [r#""\ud800""#, r#""\udc00""#, r#""\ud800\ud800""#, r#""three""#];
    for raw in numbers.into_iter().chain(strings) {
        for (pointer, validated, mutated) in [
            ("/request/object/spec/replicas", "spec.replicas", ALLOWED),
            ("/request/options", INVALID_REVIEW, INVALID_REVIEW),
            // No rule reads it.
            ("/request/object/kind", ALLOWED, ALLOWED),
            ("/request/dryRun", ALLOWED, ALLOWED),
        ] {
            let body = update_with(pointer, raw);
            assert_eq!(
                answer("/validate", body.clone()).await,
                validated,
                "{pointer}: {raw}"
            );
            assert_eq!(answer("/mutate", body).await, mutated, "{pointer}: {raw}");
        }
    }
}

#[tokio::test]
async fn rejects_duplicate_fields() {
    let good = update_with("/request/dryRun", "false");
    for (field, twice, validated, mutated) in [
        ("request", "null", HTTP_400, HTTP_400),
        ("object", "null", INVALID_REVIEW, INVALID_REVIEW),
        ("operation", "\"DELETE\"", INVALID_REVIEW, INVALID_REVIEW),
        ("replicas", "4", "spec", ALLOWED),
    ] {
        let field = format!("\"{field}\":");
        let body = good.replace(&field, &format!("{field}{twice},{field}"));
        assert_eq!(answer("/validate", body.clone()).await, validated, "{field}");
        assert_eq!(answer("/mutate", body).await, mutated, "{field}");
    }
}

#[tokio::test]
async fn answers_extra_bytes_around_a_review() {
    let good = update_with("/request/dryRun", "false");
    for (name, body, expected) in [
        ("alone", good.clone(), ALLOWED),
        ("white space", format!("\n {good}\r\n\t"), ALLOWED),
        ("byte order mark", format!("\u{feff}{good}"), HTTP_400),
        ("zero bytes", "\0".repeat(1000), HTTP_400),
        ("blanks", " ".repeat(1000), HTTP_400),
        ("text after it", format!("{good}x"), INVALID_REVIEW),
        ("another review after it", format!("{good}{good}"), INVALID_REVIEW),
    ] {
        assert_eq!(answer("/validate", body).await, expected, "{name}");
    }
}

/// JSON pointers to a value and all values in it.
fn pointers(value: &Value) -> Vec<String> {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.replace('/', "~1"), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, value)| (index.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    let nested = children.into_iter().flat_map(|(key, value)| {
        pointers(value)
            .into_iter()
            .map(move |rest| format!("/{key}{rest}"))
    });
    iter::once(String::new()).chain(nested).collect()
}

/// Go's JSON accepts null for any field: it means absent, or has the wrong type. It never causes an internal error.
#[tokio::test]
async fn answers_null_for_any_field() {
    const CLUSTER_API: &str = "controlplane.cluster.x-k8s.io";
    const HIVE: &str = "hive.openshift.io";
    let mut reviews = 0;
    for (base, group, resource) in [
        (Base::ControlPlane("v1beta1"), CLUSTER_API, "kubeadmcontrolplanes"),
        (Base::ControlPlane("v1beta2"), CLUSTER_API, "kubeadmcontrolplanes"),
        (
            Base::Template("v1beta2"),
            CLUSTER_API,
            "kubeadmcontrolplanetemplates",
        ),
        (Base::ClusterPool, HIVE, "clusterpools"),
        (Base::Customization, HIVE, "clusterdeploymentcustomizations"),
        (Base::ClusterDeployment, HIVE, "clusterdeployments"),
    ] {
        let mut whole = review("UPDATE", &base.object(), &base.object());
        whole["request"]["uid"] = json!("7");
        whole["request"]["resource"] =
            json!({"group": group, "version": base.version(), "resource": resource});
        for pointer in pointers(&whole) {
            let mut review = whole.clone();
            *review.pointer_mut(&pointer).unwrap() = Value::Null;
            for path in ["/validate", "/mutate"] {
                let (code, text) = post(&router(), path, review.to_string()).await;
                reviews += 1;
                if ["", "/request", "/request/uid"].contains(&&*pointer) {
                    assert_eq!(code, 400, "{pointer} to {path}");
                    continue;
                }
                assert_eq!(code, 200, "{pointer} to {path}: {text}");
                let answer: Value = serde_json::from_str(&text).unwrap();
                let response = &answer["response"];
                assert_eq!(response["uid"], "7", "{pointer} to {path}");
                let answered = response["status"]["code"].as_u64();
                assert!(
                    matches!(answered, None | Some(400 | 422)),
                    "{pointer} to {path}: {text}"
                );
                let of_object = pointer.starts_with("/request/object/");
                assert!(!of_object || answered != Some(400), "{pointer} to {path}: {text}");
            }
        }
    }
    assert!(reviews > 300, "{reviews}");
}

/// Sets the field at a path of `tests/fixtures/fields`, such as `spec.files[].path`, to null. Returns the path of that field,
/// the object with null, and the object without the field.
fn with_null(base: &Value, path: &str) -> (String, Value, Value) {
    let (mut field, mut nulled, mut omitted) = (String::new(), base.clone(), base.clone());
    let (mut in_with, mut in_without) = (&mut nulled, &mut omitted);
    let steps = path.replace("[]", ".[]").replace("{}", ".{}");
    let mut steps = steps.split('.').peekable();
    while let Some(step) = steps.next() {
        let is_last = steps.peek().is_none();
        if step == "[]" {
            field.push_str("[0]");
            for place in [&mut *in_with, &mut *in_without] {
                *place = json!([{}]);
            }
            if is_last {
                in_with[0] = Value::Null;
                *in_without = json!([]);
                break;
            }
            (in_with, in_without) = (&mut in_with[0], &mut in_without[0]);
            continue;
        }
        let key = if step == "{}" { "key" } else { step };
        field = if field.is_empty() {
            key.to_owned()
        } else {
            format!("{field}.{key}")
        };
        for place in [&mut *in_with, &mut *in_without] {
            if !place.is_object() {
                *place = json!({});
            }
        }
        if is_last {
            in_with[key] = Value::Null;
            in_without.as_object_mut().unwrap().remove(key);
            break;
        }
        (in_with, in_without) = (&mut in_with[key], &mut in_without[key]);
    }
    (field, nulled, omitted)
}

/// As in Go, null means that the field is absent. The answer is the same as without the field, or reports exactly that
/// field.
#[tokio::test]
async fn treats_null_as_absent_or_reports_exactly_that_field() {
    const CLUSTER_API: &str = "controlplane.cluster.x-k8s.io";
    const HIVE: &str = "hive.openshift.io";
    let router = router();
    let (mut fields, mut faults) = (0, 0);
    for (base, group, resource, kind) in [
        (
            Base::ControlPlane("v1beta1"),
            CLUSTER_API,
            "kubeadmcontrolplanes",
            "kubeadmcontrolplane-v1beta1",
        ),
        (
            Base::ControlPlane("v1beta2"),
            CLUSTER_API,
            "kubeadmcontrolplanes",
            "kubeadmcontrolplane-v1beta2",
        ),
        (
            Base::Template("v1beta1"),
            CLUSTER_API,
            "kubeadmcontrolplanetemplates",
            "kubeadmcontrolplanetemplate-v1beta1",
        ),
        (
            Base::Template("v1beta2"),
            CLUSTER_API,
            "kubeadmcontrolplanetemplates",
            "kubeadmcontrolplanetemplate-v1beta2",
        ),
        (Base::ClusterPool, HIVE, "clusterpools", "clusterpool-v1"),
        (
            Base::Customization,
            HIVE,
            "clusterdeploymentcustomizations",
            "clusterdeploymentcustomization-v1",
        ),
        (
            Base::ClusterDeployment,
            HIVE,
            "clusterdeployments",
            "clusterdeployment-v1",
        ),
    ] {
        let list = format!(
            "{}/../tests/fixtures/fields/{kind}.txt",
            env!("CARGO_MANIFEST_DIR")
        );
        let list = fs::read_to_string(list).unwrap();
        let mut whole = review("CREATE", &base.object(), &Value::Null);
        whole["request"]["resource"] =
            json!({"group": group, "version": base.version(), "resource": resource});
        for path in list.lines().filter_map(|line| line.split('\t').next()) {
            if !["spec", "metadata", "status"]
                .iter()
                .any(|top| path.starts_with(top))
            {
                continue;
            }
            let (field, nulled, omitted) = with_null(&base.object(), path);
            fields += 1;
            for hook in ["/validate", "/mutate"] {
                let mut answers = Vec::new();
                for object in [nulled.clone(), omitted.clone()] {
                    let mut review = whole.clone();
                    review["request"]["object"] = object;
                    answers.push(send(&router, hook, &review).await);
                }
                if answers[0] == answers[1] {
                    continue;
                }
                let answer = &answers[0];
                assert_eq!(answer["uid"], "0f1e2d3c", "{kind} {field} to {hook}");
                let denied_by = answer["auditAnnotations"]["denied-by"].as_str().unwrap();
                // The key of the maps in the list is the name of no flag and no feature gate.
                if ["component-flag-unknown", "kubeadm-feature-gate-unknown"].contains(&denied_by) {
                    continue;
                }
                assert_eq!(
                    denied_by, "object-undecodable",
                    "{kind} {field} to {hook}: {answer}"
                );
                let named = answer["status"]["details"]["causes"][0]["field"]
                    .as_str()
                    .unwrap();
                assert!(field.starts_with(named), "{kind} {field} to {hook}: {answer}");
                faults += 1;
            }
        }
    }
    assert_eq!((fields, faults), (2360, 180));
}
