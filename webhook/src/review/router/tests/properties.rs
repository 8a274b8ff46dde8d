use proptest::prelude::*;
use serde_json::{Value, json};

use crate::testing::{control_plane, post, review, router};

fn answered(path: &str, body: Vec<u8>) -> (u16, String) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let (code, text) = runtime.block_on(post(&router(), path, body));
    (code.as_u16(), text)
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        "(v1|CREATE|UPDATE|kubeadmcontrolplanes|scale)".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(
                "(spec|replicas|version|metadata|rollout|strategy|kubeadmConfigSpec|.{0,4})",
                inner,
                0..4
            )
            .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Any bytes get an answer, and never an internal error.
    #[test]
    fn answers_any_bytes(body: Vec<u8>, mutate: bool) {
        let path = if mutate { "/mutate" } else { "/validate" };
        let (code, _) = answered(path, body);
        prop_assert_eq!(code, 400);
    }

    /// A review with a byte changed, removed or cut off after its uid is answered with that uid.
    #[test]
    fn returns_the_uid_despite_later_errors(
        uid in "[ -~]{1,40}",
        at: prop::sample::Index,
        byte: u8,
        cut: bool,
    ) {
        let head = format!(r#"{{"request":{{"uid":{},"#, json!(uid));
        let whole = review("UPDATE", &control_plane(), &control_plane());
        let rest = whole["request"].to_string().replacen('{', "", 1).replace(r#","uid":"0f1e2d3c""#, "");
        let body = format!(
            r#"{head}{rest},"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}}"#
        );
        let mut body = body.into_bytes();
        let position = head.len() + at.index(body.len() - head.len());
        if cut {
            body.truncate(position);
        } else {
            body[position] = byte;
        }
        let (code, text) = answered("/validate", body);
        prop_assert_eq!(code, 200);
        let answer: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&answer["response"]["uid"], &json!(uid));
    }

    /// A review with any value in any place is answered with its uid and one of our codes.
    #[test]
    fn answers_any_value_in_any_field(
        value in any_json(),
        pointer in prop::sample::select(vec![
            "/apiVersion", "/kind", "/request/resource", "/request/resource/version", "/request/operation",
            "/request/name", "/request/namespace", "/request/object", "/request/oldObject",
            "/request/object/metadata", "/request/object/spec", "/request/object/spec/replicas",
            "/request/object/spec/version", "/request/object/spec/rollout",
            "/request/object/spec/kubeadmConfigSpec", "/request/oldObject/spec", "/request/oldObject/metadata",
        ]),
        mutate: bool,
    ) {
        let mut review = review("UPDATE", &control_plane(), &control_plane());
        *review.pointer_mut(pointer).unwrap() = value;
        let path = if mutate { "/mutate" } else { "/validate" };
        let (code, text) = answered(path, review.to_string().into_bytes());
        prop_assert_eq!(code, 200);
        let answer: Value = serde_json::from_str(&text).unwrap();
        let response = &answer["response"];
        prop_assert_eq!(&response["uid"], "0f1e2d3c");
        let expected: &[Value] = if response["allowed"] == json!(true) {
            &[Value::Null]
        } else {
            &[json!(400), json!(422)]
        };
        prop_assert!(expected.contains(&response["status"]["code"]), "{}", text);
    }
}
