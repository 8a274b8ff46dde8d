//! Bodies that no API server sends.

use serde_json::{Value, json};

use crate::testing::{control_plane, post, review, router};

const PATHS: [&str; 2] = ["/mutate", "/validate"];

/// A review of a creation, of an update and of a deletion.
fn reviews(object: &Value) -> [String; 3] {
    [
        review("CREATE", object, &Value::Null).to_string(),
        review("UPDATE", object, &control_plane()).to_string(),
        review("DELETE", &Value::Null, object).to_string(),
    ]
}

/// Sends a body to both webhooks; each is to answer with the review's uid, and not to blame itself.
async fn is_answered(name: &str, body: &str) -> [Value; 2] {
    let mut answers = [Value::Null, Value::Null];
    for (path, answer) in PATHS.into_iter().zip(&mut answers) {
        let (code, text) = post(&router(), path, body.to_owned()).await;
        assert_eq!(code, 200, "{name} to {path}: {text:.300}");
        let response = &mut serde_json::from_str::<Value>(&text).unwrap()["response"];
        assert_eq!(response["uid"], "0f1e2d3c", "{name} to {path}");
        let expected: &[Value] = if response["allowed"] == true {
            &[Value::Null]
        } else {
            &[json!(400), json!(413), json!(422)]
        };
        assert!(
            expected.contains(&response["status"]["code"]),
            "{name} to {path}: {response:.300}"
        );
        *answer = response.take();
    }
    answers
}

/// All places of a document, itself among them.
fn pointers(document: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match document {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                pointers(value, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(entries) => {
            for (index, value) in entries.iter().enumerate() {
                pointers(value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn null_in_every_place() {
    let object = control_plane();
    let mut places = Vec::new();
    pointers(&object, "", &mut places);
    assert!(places.len() > 20, "{places:?}");
    for place in places {
        let mut object = object.clone();
        *object.pointer_mut(&place).unwrap() = Value::Null;
        for body in reviews(&object) {
            is_answered(&place, &body).await;
        }
    }
    let whole = review("UPDATE", &object, &object);
    let mut places = Vec::new();
    pointers(&whole["request"], "/request", &mut places);
    let of_the_review = places
        .iter()
        .filter(|place| !place.to_lowercase().contains("object/"));
    for place in of_the_review {
        let mut review = whole.clone();
        *review.pointer_mut(place).unwrap() = Value::Null;
        if matches!(place.as_str(), "/request" | "/request/uid") {
            let (code, _) = post(&router(), "/validate", review.to_string()).await;
            assert_eq!(code, 400, "{place}");
        } else {
            is_answered(place, &review.to_string()).await;
        }
    }
}

#[tokio::test]
async fn values_that_no_field_can_hold() {
    for value in [
        "1e400",
        "-1e400",
        "1e-400",
        "99999999999999999999",
        "-99999999999999999999",
        "9223372036854775807",
        "-9223372036854775808",
        "3.5",
        "true",
        r#""\ud800""#,
        r#""\ud800\ud800""#,
        r#""\u0000""#,
        "[]",
        "{}",
    ] {
        for field in ["replicas", "version", "kubeadmConfigSpec", "rollout"] {
            let mut object = control_plane();
            object["spec"][field] = json!("VALUE");
            for body in reviews(&object) {
                is_answered(&format!("{field}: {value}"), &body.replace("\"VALUE\"", value)).await;
            }
        }
    }
}

/// Of two fields of one name Go's decoder takes the last. Which it is does not matter here: the API server sends one.
#[tokio::test]
async fn fields_that_stand_twice() {
    for (once, twice) in [
        (r#""replicas":3"#, r#""replicas":3,"replicas":3"#),
        (r#""spec":"#, r#""spec":{},"spec":"#),
        (r#""metadata":"#, r#""metadata":{},"metadata":"#),
        (r#""object":"#, r#""object":{},"object":"#),
        (r#""operation":"#, r#""operation":"CREATE","operation":"#),
    ] {
        for body in reviews(&control_plane()) {
            let body = body.replacen(once, twice, 1);
            let [_, validated] = is_answered(twice, &body).await;
            let deletion = body.contains("\"DELETE\"");
            assert!(deletion || validated["allowed"] == false, "{twice}: {validated}");
        }
    }
    let body = review("CREATE", &control_plane(), &Value::Null).to_string();
    let body = body.replacen(r#""request":"#, r#""request":{"uid":"0f1e2d3c"},"request":"#, 1);
    is_answered("request twice", &body).await;
}

#[tokio::test]
async fn nesting_of_a_hundred_thousand() {
    const DEPTH: usize = 100_000;
    let open = ["[", "{\"a\":"].map(|bracket| bracket.repeat(DEPTH));
    for open in &open {
        for path in PATHS {
            let (code, text) = post(&router(), path, open.clone()).await;
            assert_eq!(code, 400, "{text:.300}");
            let (code, text) = post(&router(), path, format!("{{\"request\":{open}")).await;
            assert_eq!(code, 400, "{text:.300}");
        }
        is_answered(
            "unclosed",
            &format!("{{\"request\":{{\"uid\":\"0f1e2d3c\",\"object\":{open}"),
        )
        .await;
    }
    // Deeper, an object has more values than are judged.
    for depth in [40_000, DEPTH] {
        let lists = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let objects = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        for place in [
            "/spec",
            "/spec/kubeadmConfigSpec",
            "/metadata/labels",
            "/spec/unread",
            "/status",
        ] {
            for deep in [&lists, &objects] {
                let mut object = control_plane();
                object["status"] = json!({});
                object["spec"]["unread"] = json!({});
                object["metadata"]["labels"] = json!({});
                *object.pointer_mut(place).unwrap() = json!("DEEP");
                for body in reviews(&object) {
                    is_answered(place, &body.replace("\"DEEP\"", deep)).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_uid_that_is_no_text() {
    for uid in ["null", "7", "[]", "{}", "\"\\ud800\""] {
        for path in PATHS {
            let body = format!(r#"{{"request":{{"uid":{uid}}}}}"#);
            let (code, text) = post(&router(), path, body).await;
            assert_eq!(code, 400, "{uid}: {text}");
            assert!(
                text.starts_with("the body is no AdmissionReview: "),
                "{uid}: {text}"
            );
            assert_eq!(text.lines().count(), 1, "{uid}: {text}");
        }
    }
}
