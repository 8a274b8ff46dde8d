use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use http::Method;
use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use serde_json::{Value, json};

use super::{
    Change, ObjectWrite, ReadObject, UpdateTarget, Updated, WriteMode, WriteResult, metadata, update,
    was_stored,
};
use crate::{Connection, Error, testing::failure};

#[derive(Debug)]
struct Text(String);

impl ReadObject for Text {
    fn object(&self) -> &str {
        &self.0
    }
}

/// An object that another client writes before each of the first `conflicts` writes; from its second write on the object
/// has this number of replicas.
fn written_by_another(conflicts: usize, replicas: i64) -> Connection {
    let writes = Arc::new(AtomicUsize::new(0));
    Connection::canned(move |method, _| {
        let version = writes.load(Relaxed);
        let replicas = if version < 2 { 3 } else { replicas };
        let object = json!({"metadata": {"name": "example", "uid": "u", "resourceVersion": version.to_string()},
            "spec": {"replicas": replicas}});
        if *method == Method::PATCH && writes.fetch_add(1, Relaxed) < conflicts {
            return failure(409, "Conflict", "changed");
        }
        (200, object)
    })
}

/// Writes five replicas; the decision is the version that it was made on.
async fn scale(connection: &Connection) -> Result<Updated<Text, String>, Error> {
    let resource = KUBEADM_CONTROL_PLANE.api_resource("v1beta2");
    let target = UpdateTarget {
        connection,
        resource: &resource,
        namespace: Some("d"),
        name: "example",
        field_manager: "kubectl-kcp",
        verb: "scale",
        mode: WriteMode::Store,
    };
    let read = async || Ok(Text(connection.get_text(&resource, "d", "example").await?));
    let decide = |text: &Text| {
        Ok(Change {
            write: Some(ObjectWrite::patch(json!({"spec": {"replicas": 5}}))),
            decision: metadata(text.object()).unwrap().resource_version.unwrap(),
        })
    };
    update(&target, read, decide).await
}

#[tokio::test]
async fn the_last_decision_counts() {
    for conflicts in [0, 1, 4] {
        let updated = scale(&written_by_another(conflicts, 3)).await.unwrap();
        assert_eq!(updated.result, WriteResult::Stored);
        assert_eq!(updated.decision, conflicts.to_string());
        assert_eq!(updated.other_changes, Vec::<String>::new());
    }
    assert_eq!(
        scale(&written_by_another(5, 3)).await.unwrap_err().to_string(),
        "cannot scale example: 5 attempts failed, because another client changed the object each time"
    );
}

#[tokio::test]
async fn another_value_of_the_same_field_is_a_conflict() {
    let updated = scale(&written_by_another(3, 7)).await.unwrap();
    let line = "spec.replicas was 3 when this command checked the change, and is now 7".to_owned();
    assert_eq!(updated.result, WriteResult::Conflict(vec![line]));
    // Another client wrote our value.
    let updated = scale(&written_by_another(3, 5)).await.unwrap();
    assert_eq!(updated.result, WriteResult::Stored);
}

#[tokio::test]
async fn a_write_without_an_answer_is_read_back_and_not_sent_again() {
    for (is_applied, version, expected) in [(true, "2", Some(1)), (false, "1", None), (false, "2", Some(2))] {
        let writes = Arc::new(AtomicUsize::new(0));
        let seen = writes.clone();
        let connection = Connection::canned(move |method, _| {
            let before = writes.load(Relaxed);
            if *method == Method::PATCH {
                writes.fetch_add(1, Relaxed);
                if before == 0 {
                    return failure(504, "Timeout", "no answer");
                }
            }
            let replicas = if before > 0 && is_applied { 5 } else { 3 };
            let version = if before > 0 { version } else { "1" };
            let metadata = json!({"name": "example", "uid": "u", "resourceVersion": version});
            (200, json!({"metadata": metadata, "spec": {"replicas": replicas}}))
        });
        let updated = scale(&connection).await;
        if let Some(sent) = expected {
            assert_eq!(updated.unwrap().result, WriteResult::Stored);
            assert_eq!(seen.load(Relaxed), sent);
        } else {
            let error = updated.unwrap_err();
            assert!(matches!(error, Error::OutcomeUnknown { .. }));
            let hint = "check with: kubectl kcp status example -n d".to_owned();
            assert_eq!(error.hint(), Some(hint));
            assert_eq!(seen.load(Relaxed), 1);
        }
    }
}

#[test]
fn a_patch_of_an_object_that_is_read_back() {
    let object = |version: &str, after: Option<&str>| {
        let rollout = json!({"strategy": {}, "after": after});
        json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": 3, "rollout": rollout}})
            .to_string()
    };
    let patch = ObjectWrite::patch(json!({"spec": {"rollout": {"after": "2026-08-21T12:00:00Z"}}}));
    let before = metadata(&object("12", None)).unwrap();
    for (name, now, expected) in [
        ("stored", object("13", Some("2026-08-21T12:00:00Z")), Some(true)),
        (
            "stored_and_changed_again",
            object("15", Some("2026-08-21T12:00:00Z")),
            Some(true),
        ),
        ("not_yet", object("12", None), None),
        ("conflict", object("13", None), Some(false)),
        (
            "conflict_in_the_same_field",
            object("13", Some("2026-08-21T12:00:01Z")),
            Some(false),
        ),
        ("no_object", "{}".to_owned(), None),
    ] {
        assert_eq!(was_stored(Some(&now), &before, &patch), expected, "{name}");
    }
}

#[test]
fn a_deletion_or_patch_of_an_object_that_may_be_replaced() {
    let object = |uid: &str, version: &str, is_deleting: bool, annotations: Value| {
        let mut metadata = json!({"name": "m1", "uid": uid, "resourceVersion": version,
            "annotations": annotations});
        if is_deleting {
            metadata["deletionTimestamp"] = json!("2026-08-21T12:00:00Z");
        }
        json!({ "metadata": metadata }).to_string()
    };
    let before = metadata(&object("u", "7", false, json!({}))).unwrap();
    let mark = |value: Value| ObjectWrite::patch(json!({"metadata": {"annotations": {"a": value}}}));
    let delete = ObjectWrite::Delete;
    for (now, write, expected) in [
        (object("u", "7", false, json!({})), &delete, None),
        (object("u", "8", true, json!({})), &delete, Some(true)),
        (object("u", "8", false, json!({})), &delete, Some(false)),
        (object("v", "9", false, json!({})), &delete, Some(true)),
        (object("u", "7", false, json!({})), &mark(json!("")), None),
        (
            object("u", "8", false, json!({"a": ""})),
            &mark(json!("")),
            Some(true),
        ),
        (object("u", "8", false, json!({})), &mark(json!("")), Some(false)),
        (
            object("v", "9", false, json!({"a": ""})),
            &mark(json!("")),
            Some(false),
        ),
        (object("u", "8", false, json!({})), &mark(Value::Null), Some(true)),
    ] {
        assert_eq!(
            was_stored(Some(&now), &before, write),
            expected,
            "{now} {write:?}"
        );
    }
    assert_eq!(was_stored(None, &before, &delete), Some(true));
    assert_eq!(was_stored(None, &before, &mark(json!(""))), Some(false));
}
