use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use http::Method;
use kcp_rules::case::{Base, V1BETA2};
use serde_json::{Value, json};

use crate::commands::machine::change::{
    Changed, Decision, Fate, MachineChange, MachineObject, MachineWrite, Outcome, Proposal, fate,
};
use crate::{
    arguments::{DryRun, global::ColorWhen},
    commands::machine::read::NoSuchMachine,
    terminal::Terminal,
};
use kcp_client::{Connection, canned::failure, reader::Reader};
use kcp_control_plane::change::{
    decision::{Refusal, RefusedBy},
    event::Occurrence,
};

/// What was asked of a canned cluster beside reads: `METHOD path`.
type Writes = Arc<Mutex<Vec<String>>>;

/// A management cluster with Machine `m1` of control plane `example` and the worker `w1`, to whose writes `answer`
/// answers by how many there were before.
fn cluster(answer: impl Fn(usize) -> (u16, Value) + Send + 'static) -> (Connection, Writes) {
    cluster_of(false, answer)
}

/// The same; where somebody else is at it too, Machine `m2` goes as soon as anything was written.
fn cluster_of(
    others_go: bool,
    answer: impl Fn(usize) -> (u16, Value) + Send + 'static,
) -> (Connection, Writes) {
    let writes = Writes::default();
    let (seen, count) = (writes.clone(), AtomicUsize::new(0));
    let group = |name: &str| {
        let version = json!({"groupVersion": format!("{name}/v1beta2"), "version": "v1beta2"});
        json!({"name": name, "versions": [version], "preferredVersion": version})
    };
    let names = [
        "cluster.x-k8s.io",
        "controlplane.cluster.x-k8s.io",
        "bootstrap.cluster.x-k8s.io",
    ];
    let groups = json!({"groups": names.map(group)});
    let connection = Connection::canned(move |method, path| {
        let version = count.load(Relaxed).to_string();
        let machine = json!({
            "metadata": {"name": "m1", "namespace": "d", "uid": "u", "resourceVersion": version,
                "labels": {"cluster.x-k8s.io/control-plane": ""},
                "ownerReferences": [{"kind": "KubeadmControlPlane", "name": "example", "controller": true}]},
            "spec": {"clusterName": "c1"},
        });
        let worker = json!({"metadata": {"name": "w1", "namespace": "d",
            "ownerReferences": [{"kind": "MachineSet", "name": "md-0", "controller": true}]}, "spec": {}});
        if *method == Method::GET {
            return match path.rsplit('/').next().unwrap_or_default() {
                "apis" => (200, groups.clone()),
                "m1" => (200, machine),
                "w1" => (200, worker),
                "machines" => {
                    let mut other = machine.clone();
                    other["metadata"]["name"] = json!("m2");
                    if others_go && count.load(Relaxed) > 0 {
                        other["metadata"]["deletionTimestamp"] = json!("2026-08-21T12:00:00Z");
                    }
                    let others = others_go.then_some(other);
                    let items: Vec<Value> = [machine].into_iter().chain(others).collect();
                    (200, json!({ "items": items }))
                }
                "kubeadmconfigs" => (200, json!({"items": []})),
                "example" => {
                    let mut object = Base::ControlPlane(V1BETA2).object();
                    object["metadata"]["namespace"] = json!("d");
                    object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "c1"});
                    (200, object)
                }
                name => {
                    let (code, mut status) = failure(404, "NotFound", "no");
                    status["details"] = json!({"name": name});
                    (code, status)
                }
            };
        }
        let mut writes = seen.lock().expect("a lock");
        writes.push(format!("{method} {path}"));
        if *method == Method::POST {
            return (201, json!({}));
        }
        answer(count.fetch_add(1, Relaxed))
    });
    (connection, writes)
}

fn conflict() -> (u16, Value) {
    failure(409, "Conflict", "changed")
}

async fn deleted(connection: &Connection, name: &str, dry_run: Option<DryRun>) -> anyhow::Result<Changed> {
    let reader = Reader::discover(connection).await?;
    let change = MachineChange {
        name,
        verb: "replace",
        dry_run,
        field_manager: "kubectl-kcp",
        with_health_checks: false,
    };
    let terminal = Terminal::new(ColorWhen::Never);
    let decide = |of: &crate::commands::machine::change::MachineSituation| {
        Decision::Write(Proposal {
            write: MachineWrite::Delete,
            warnings: vec![format!("at {}", of.object.resource_version)],
            consequences: Vec::new(),
            occurrence: Occurrence {
                reason: "MachineReplaced",
                action: "ReplaceMachine",
                done: "replacement requested",
                detail: String::new(),
            },
        })
    };
    change.make(&reader, &terminal, decide).await
}

const DELETE: &str = "DELETE /apis/cluster.x-k8s.io/v1beta2/namespaces/d/machines/m1";
const EVENT: &str = "POST /apis/events.k8s.io/v1/namespaces/d/events";
const WHO: &str = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";

#[tokio::test]
async fn a_conflict_is_judged_anew_and_one_event_tells_of_it() {
    let (connection, writes) = cluster(|before| if before < 2 { conflict() } else { (200, json!({})) });
    let changed = deleted(&connection, "m1", None).await.expect("deleted");
    assert_eq!(changed.control_plane.as_deref(), Some("example"));
    assert_eq!(changed.warnings, ["at 2"]);
    let Outcome::Made { object, patch: None } = &changed.outcome else {
        panic!("not deleted: {changed:?}");
    };
    // As it was judged last.
    let judged = MachineObject::decode(object).expect("a Machine");
    assert_eq!(
        (judged.name.as_str(), judged.resource_version.as_str()),
        ("m1", "2")
    );
    assert_eq!(
        *writes.lock().expect("a lock"),
        [DELETE, DELETE, DELETE, WHO, EVENT]
    );
}

#[tokio::test]
async fn another_that_goes_at_the_same_time_is_told() {
    let (connection, _) = cluster_of(true, |_| (200, json!({})));
    let changed = deleted(&connection, "m1", None).await.expect("deleted");
    assert_eq!(
        changed.warnings,
        [
            "at 0",
            "Machine m2 is being deleted too, and was not when this was judged: etcd loses the members of both"
        ]
    );
    // A dry run deletes none.
    let (connection, _) = cluster_of(true, |_| (200, json!({})));
    let changed = deleted(&connection, "m1", Some(DryRun::Server))
        .await
        .expect("judged");
    assert_eq!(changed.warnings, ["at 0"]);
}

#[tokio::test]
async fn others_who_never_leave_off_are_given_way_to() {
    let (connection, writes) = cluster(|_| conflict());
    let error = deleted(&connection, "m1", None).await.expect_err("contended");
    assert_eq!(
        error.to_string(),
        "cannot replace m1: others changed it at each of 5 attempts"
    );
    assert_eq!(writes.lock().expect("a lock").len(), 5);
}

#[tokio::test]
async fn what_a_webhook_refuses_is_told() {
    let (connection, writes) = cluster(|_| failure(422, "Invalid", "not this one"));
    let changed = deleted(&connection, "m1", None).await.expect("decided");
    assert_eq!(
        changed.outcome,
        Outcome::Rejected(vec!["not this one".to_owned()])
    );
    assert_eq!(*writes.lock().expect("a lock"), [DELETE]);
}

#[tokio::test]
async fn a_dry_run_leaves_no_trace() {
    for (dry_run, sent) in [(DryRun::Client, &[][..]), (DryRun::Server, &[DELETE])] {
        let (connection, writes) = cluster(|_| (200, json!({})));
        let changed = deleted(&connection, "m1", Some(dry_run)).await.expect("decided");
        assert!(matches!(changed.outcome, Outcome::Made { .. }), "{changed:?}");
        assert_eq!(*writes.lock().expect("a lock"), sent, "{dry_run:?}");
    }
}

#[tokio::test]
async fn a_worker_is_left_alone_and_a_name_that_nobody_has_is_told() {
    let (connection, writes) = cluster(|_| (200, json!({})));
    let changed = deleted(&connection, "w1", None).await.expect("decided");
    let refusal = Refusal::new(
        RefusedBy::Command,
        vec!["it is no Machine of a control plane, but of MachineSet md-0".to_owned()],
    );
    assert_eq!(
        (changed.control_plane, changed.outcome),
        (None, Outcome::Refused(refusal))
    );
    let error = deleted(&connection, "m2", None).await.expect_err("nobody");
    let error = error.downcast_ref::<NoSuchMachine>().expect("no such Machine");
    assert_eq!(error.hint(), "Machines of control planes in namespace d: m1");
    assert_eq!(*writes.lock().expect("a lock"), Vec::<String>::new());
}

#[test]
fn what_a_machine_tells_of_a_write_without_an_answer() {
    let object = |uid: &str, version: &str, is_deleting: bool, annotations: Value| {
        let mut metadata = json!({"name": "m1", "uid": uid, "resourceVersion": version,
            "annotations": annotations});
        if is_deleting {
            metadata["deletionTimestamp"] = json!("2026-08-21T12:00:00Z");
        }
        json!({ "metadata": metadata }).to_string()
    };
    let before = MachineObject::decode(&object("u", "7", false, json!({}))).expect("decodes");
    let mark = |value: Value| MachineWrite::Patch(json!({"metadata": {"annotations": {"a": value}}}));
    let delete = MachineWrite::Delete;
    for (now, write, expected) in [
        (object("u", "7", false, json!({})), &delete, None),
        (object("u", "8", true, json!({})), &delete, Some(Fate::Made)),
        (object("u", "8", false, json!({})), &delete, Some(Fate::Overtaken)),
        (object("v", "9", false, json!({})), &delete, Some(Fate::Made)),
        (object("u", "7", false, json!({})), &mark(json!("")), None),
        (
            object("u", "8", false, json!({"a": ""})),
            &mark(json!("")),
            Some(Fate::Made),
        ),
        (
            object("u", "8", false, json!({})),
            &mark(json!("")),
            Some(Fate::Overtaken),
        ),
        (
            object("v", "9", false, json!({"a": ""})),
            &mark(json!("")),
            Some(Fate::Overtaken),
        ),
        (
            object("u", "8", false, json!({})),
            &mark(Value::Null),
            Some(Fate::Made),
        ),
    ] {
        assert_eq!(fate(&now, &before, write), expected, "{now} {write:?}");
    }
}
