use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use http::Method;
use kcp_api::Object as _;
use kcp_rules::testing::case::{Base, V1BETA2};
use serde_json::{Value, json};

use crate::{
    arguments::{DryRun, global::ColorWhen},
    change::{
        arguments::WriteArguments,
        engine::{ChangeOutcome, Changed, Engine, MachineScope, Verb},
    },
    output::{OutputArguments, OutputFormat},
    terminal::Terminal,
    verdict::Verdict::Met,
};
use kcp_client::{
    Connection, reader::Reader, reads::machine::NoSuchMachine, testing::failure, update::ReadObject as _,
};
use kcp_control_plane::{
    change::decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
    review::ReviewContext,
    snapshot::change::{ChangeSnapshot, MachineObject, MachineSnapshot, ReadScope},
};

/// The annotation of a canned control plane with the number of writes before it was read.
const WRITES_BEFORE: &str = "example.com/writes-before";

/// The writes that a canned cluster received: `METHOD path`.
type Writes = Arc<Mutex<Vec<String>>>;

/// A management cluster with Machine `m1` of control plane `example` and the worker `w1`. `answer` answers a write, given
/// the number of writes before it.
fn cluster(answer: impl Fn(usize) -> (u16, Value) + Send + 'static) -> (Connection, Writes) {
    cluster_of(false, answer)
}

/// Like [`cluster`], but with `others_go`, Machine `m2` is being deleted after the first write.
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
                "labels": {"cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/control-plane": ""},
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
                    object["metadata"]["annotations"] = json!({ WRITES_BEFORE: version });
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

fn verb<'v>(name: &'v str, infinitive: &'static str) -> Verb<'v> {
    Verb {
        name,
        infinitive,
        not_done: "not done",
        force_effect: None,
        waits_for_replacement: false,
    }
}

fn arguments(dry_run: Option<DryRun>, output: Option<OutputFormat>) -> WriteArguments {
    WriteArguments {
        dry_run,
        output: OutputArguments {
            output,
            no_headers: false,
        },
        field_manager: "kubectl-kcp".to_owned(),
    }
}

fn engine<'e>(reader: &'e Reader<'e>, terminal: &'e Terminal, arguments: &'e WriteArguments) -> Engine<'e> {
    Engine {
        reader,
        terminal,
        arguments,
        configuration: None,
    }
}

fn conflict() -> (u16, Value) {
    failure(409, "Conflict", "changed")
}

async fn deleted(connection: &Connection, name: &str, dry_run: Option<DryRun>) -> anyhow::Result<Changed> {
    deleted_with(connection, name, dry_run, MachineScope::Machine).await
}

async fn deleted_with(
    connection: &Connection,
    name: &str,
    dry_run: Option<DryRun>,
    scope: MachineScope,
) -> anyhow::Result<Changed> {
    deleted_unless(connection, name, dry_run, scope, |_| false).await
}

async fn deleted_unless(
    connection: &Connection,
    name: &str,
    dry_run: Option<DryRun>,
    scope: MachineScope,
    is_refused: impl Fn(&MachineSnapshot) -> bool,
) -> anyhow::Result<Changed> {
    let reader = Reader::discover(connection).await?;
    let decide = |machine: &MachineSnapshot, _| {
        if is_refused(machine) {
            return Decision::Refused(Refusal::new(RefusedBy::Command, vec!["not now".to_owned()]));
        }
        Decision::Write(Proposal {
            write: ObjectWrite::Delete,
            outcome: "deleted".to_owned(),
            warnings: vec![format!("at {}", machine.object.resource_version())],
            consequences: Vec::new(),
            event: ChangeEvent {
                reason: "MachineReplaced",
                action: "ReplaceMachine",
                note_verb: "replacement requested",
                detail: String::new(),
            },
        })
    };
    let verb = verb(name, "replace");
    let arguments = arguments(dry_run, None);
    let terminal = Terminal::new(ColorWhen::Never);
    engine(&reader, &terminal, &arguments)
        .change_machine(&verb, scope, decide)
        .await
}

const DELETE: &str = "DELETE /apis/cluster.x-k8s.io/v1beta2/namespaces/d/machines/m1";
const ANNOUNCEMENT: &str =
    "PATCH /apis/controlplane.cluster.x-k8s.io/v1beta2/namespaces/d/kubeadmcontrolplanes/example";
const EVENT: &str = "POST /apis/events.k8s.io/v1/namespaces/d/events";
const WHO: &str = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";

#[tokio::test]
async fn a_change_is_decided_again_after_a_conflict_and_recorded_once() {
    let (connection, writes) = cluster(|before| if before < 2 { conflict() } else { (200, json!({})) });
    let changed = deleted(&connection, "m1", None).await.expect("deleted");
    assert_eq!(changed.control_plane.as_deref(), Some("example"));
    assert_eq!(changed.warnings, ["at 2"]);
    assert!(
        matches!(changed.outcome, ChangeOutcome::Done { .. }),
        "{changed:?}"
    );
    // The version that was checked last.
    let checked = MachineObject::decode(&changed.json).expect("a Machine");
    assert_eq!((checked.name(), checked.resource_version()), ("m1", "2"));
    assert_eq!(
        *writes.lock().expect("a lock"),
        [DELETE, DELETE, DELETE, WHO, EVENT]
    );
}

#[tokio::test]
async fn a_replacement_is_announced_on_the_control_plane_before_the_deletion() {
    let (connection, writes) = cluster(|before| if before == 0 { conflict() } else { (200, json!({})) });
    let changed = deleted_with(&connection, "m1", None, MachineScope::Replacement).await;
    changed.expect("deleted");
    assert_eq!(
        *writes.lock().expect("a lock"),
        [ANNOUNCEMENT, ANNOUNCEMENT, DELETE, WHO, EVENT]
    );
    let (connection, writes) = cluster(|_| (200, json!({})));
    let dry = deleted_with(&connection, "m1", Some(DryRun::Server), MachineScope::Replacement);
    dry.await.expect("checked");
    assert_eq!(*writes.lock().expect("a lock"), [ANNOUNCEMENT, DELETE]);
}

const WITHDRAWAL: &str = "PATCH /apis/cluster.x-k8s.io/v1beta2/namespaces/d/machines/m1";

#[tokio::test]
async fn after_the_announcement_everything_is_read_and_decided_again() {
    let (connection, writes) = cluster(|_| (200, json!({})));
    let was_written = |machine: &MachineSnapshot| {
        machine
            .control_plane_snapshot
            .control_plane()
            .annotation(WRITES_BEFORE)
            != Some("0")
    };
    let scope = MachineScope::Replacement;
    let changed = deleted_unless(&connection, "m1", None, scope, was_written).await;
    let outcome = changed.expect("decided").outcome;
    assert!(matches!(outcome, ChangeOutcome::Refused(_)), "{outcome:?}");
    assert_eq!(*writes.lock().expect("a lock"), [ANNOUNCEMENT, WITHDRAWAL]);
}

#[tokio::test]
async fn a_replacement_whose_deletion_fails_is_withdrawn() {
    let forbidden = |before| match before {
        1 => failure(403, "Forbidden", "no"),
        _ => (200, json!({})),
    };
    let (connection, writes) = cluster(forbidden);
    let changed = deleted_with(&connection, "m1", None, MachineScope::Replacement).await;
    assert!(changed.is_err(), "{changed:?}");
    assert_eq!(
        *writes.lock().expect("a lock"),
        [ANNOUNCEMENT, DELETE, WITHDRAWAL]
    );
}

#[tokio::test]
async fn warns_about_another_deletion_at_the_same_time() {
    let (connection, _) = cluster_of(true, |_| (200, json!({})));
    let changed = deleted(&connection, "m1", None).await.expect("deleted");
    assert_eq!(
        changed.warnings,
        [
            "at 0",
            "Machine m2 is also being deleted; its deletion began after this command's checks, and etcd loses the members of both Machines"
        ]
    );
    // A dry run deletes no Machine.
    let (connection, _) = cluster_of(true, |_| (200, json!({})));
    let changed = deleted(&connection, "m1", Some(DryRun::Server))
        .await
        .expect("judged");
    assert_eq!(changed.warnings, ["at 0"]);
}

#[tokio::test]
async fn gives_up_if_another_client_keeps_writing() {
    let (connection, writes) = cluster(|_| conflict());
    let error = deleted(&connection, "m1", None).await.expect_err("contended");
    assert_eq!(
        error.to_string(),
        "cannot replace m1: 5 attempts failed, because another client changed the object each time"
    );
    assert_eq!(writes.lock().expect("a lock").len(), 5);
}

#[tokio::test]
async fn reports_what_a_webhook_refuses() {
    let (connection, writes) = cluster(|_| failure(422, "Invalid", "not this one"));
    let changed = deleted(&connection, "m1", None).await.expect("decided");
    assert_eq!(
        changed.outcome,
        ChangeOutcome::Rejected(vec!["not this one".to_owned()])
    );
    assert_eq!(*writes.lock().expect("a lock"), [DELETE]);
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    for (dry_run, sent) in [(DryRun::Client, &[][..]), (DryRun::Server, &[DELETE])] {
        let (connection, writes) = cluster(|_| (200, json!({})));
        let changed = deleted(&connection, "m1", Some(dry_run)).await.expect("decided");
        assert!(
            matches!(changed.outcome, ChangeOutcome::Done { .. }),
            "{changed:?}"
        );
        assert_eq!(*writes.lock().expect("a lock"), sent, "{dry_run:?}");
    }
}

#[tokio::test]
async fn refuses_a_worker_and_an_unknown_name() {
    let (connection, writes) = cluster(|_| (200, json!({})));
    let changed = deleted(&connection, "w1", None).await.expect("decided");
    let refusal = Refusal::new(
        RefusedBy::Command,
        vec!["the Machine is owned by MachineSet md-0, not by a control plane".to_owned()],
    );
    assert_eq!(
        (changed.control_plane, changed.outcome),
        (None, ChangeOutcome::Refused(refusal))
    );
    let error = deleted(&connection, "m2", None).await.expect_err("nobody");
    let error = error.downcast_ref::<NoSuchMachine>().expect("no such Machine");
    assert_eq!(error.hint(), "Machines of control planes in namespace d: m1");
    assert_eq!(*writes.lock().expect("a lock"), Vec::<String>::new());
}

/// A management cluster with one control plane, which `control_plane` answers for, and no Machine.
fn with_control_plane(control_plane: impl Fn(&Method) -> (u16, Value) + Send + 'static) -> Connection {
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
    Connection::canned(move |method, path| {
        let is_list = ["/machines", "/kubeadmconfigs"]
            .iter()
            .any(|end| path.ends_with(end));
        match *method {
            Method::GET if path == "/apis" => (200, groups.clone()),
            Method::GET if is_list => (200, json!({"items": []})),
            Method::GET if path.contains("/clusters/") => failure(404, "NotFound", "no"),
            Method::POST => (201, json!({})),
            _ => control_plane(method),
        }
    })
}

/// A control plane with this number of replicas on the first read, and 7 later.
fn scaled_while_reading() -> Connection {
    let reads = Arc::new(AtomicUsize::new(0));
    with_control_plane(move |method| {
        assert_eq!(*method, Method::GET, "nothing is written");
        let mut object = Base::ControlPlane(V1BETA2).object();
        object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "c1"});
        let is_first = reads.fetch_add(1, Relaxed) == 0;
        object["spec"]["replicas"] = json!(if is_first { 3 } else { 7 });
        (200, object)
    })
}

async fn decided(connection: &Connection, decision: Decision) -> ChangeOutcome {
    let reader = Reader::discover(connection).await.unwrap();
    let terminal = Terminal::new(ColorWhen::Never);
    let arguments = arguments(None, None);
    let decide = |_: &ChangeSnapshot, _: ReviewContext<'_>| Ok(decision.clone());
    let verb = verb("example", "scale");
    let change = engine(&reader, &terminal, &arguments);
    let changed = Box::pin(change.change_control_plane(&verb, ReadScope::All, decide)).await;
    changed.unwrap().outcome
}

#[tokio::test]
async fn a_change_of_the_same_field_while_we_read_is_a_conflict() {
    let proposal = Proposal {
        write: ObjectWrite::patch(json!({"spec": {"replicas": 5}})),
        outcome: "scaled".to_owned(),
        warnings: Vec::new(),
        consequences: Vec::new(),
        event: ChangeEvent {
            reason: "Scaled",
            action: "Scale",
            note_verb: "scaled",
            detail: String::new(),
        },
    };
    let outcome = decided(&scaled_while_reading(), Decision::Write(proposal)).await;
    let line = "spec.replicas was 3 when this command checked the change, and is now 7".to_owned();
    assert_eq!(outcome, ChangeOutcome::Conflict(vec![line]));
}

#[tokio::test]
async fn a_refusal_names_what_another_client_changed() {
    let refusal = |why: &[&str]| {
        let why = why.iter().map(ToString::to_string).collect();
        Refusal::new(RefusedBy::Preflight, why)
    };
    let outcome = decided(&scaled_while_reading(), Decision::Refused(refusal(&["no"]))).await;
    let expected = refusal(&[
        "no",
        "another client changed spec.replicas in the meantime, so this command checked its own change again",
    ]);
    assert_eq!(outcome, ChangeOutcome::Refused(expected));
}

#[tokio::test]
async fn a_scope_without_machines_reads_none() {
    for (scope, after, reads_machines) in [
        (ReadScope::ControlPlane, Some("2020-01-01T00:00:00Z"), false),
        (ReadScope::AllOnceRollingOut, None, false),
        (ReadScope::AllOnceRollingOut, Some("2999-01-01T00:00:00Z"), false),
        (ReadScope::AllOnceRollingOut, Some("2020-01-01T00:00:00Z"), true),
        (ReadScope::All, None, true),
    ] {
        let connection = with_control_plane(move |_| {
            let mut object = Base::ControlPlane(V1BETA2).object();
            object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "c1"});
            object["spec"]["rollout"]["after"] = json!(after);
            (200, object)
        });
        let reader = Reader::discover(&connection).await.unwrap();
        let terminal = Terminal::new(ColorWhen::Never);
        let arguments = arguments(None, None);
        let read = engine(&reader, &terminal, &arguments)
            .read("example", scope)
            .await;
        let read = read.unwrap();
        assert_eq!(read.are_machines_read, reads_machines, "{scope:?} {after:?}");
        assert_eq!(read.object(), read.object_at_start());
    }
}

#[tokio::test]
async fn a_stored_change_is_reported_though_it_cannot_be_read_back() {
    for (code, reason) in [(200, ""), (403, "Forbidden"), (500, "InternalError")] {
        let connection = with_control_plane(move |_| {
            if code == 200 {
                return (200, Base::ControlPlane(V1BETA2).object());
            }
            failure(code, reason, "no")
        });
        let reader = Reader::discover(&connection).await.unwrap();
        let terminal = Terminal::new(ColorWhen::Never);
        let arguments = arguments(None, Some(OutputFormat::Name));
        let done = ChangeOutcome::Done {
            done: "done".to_owned(),
            write: ObjectWrite::patch(json!({})),
        };
        let changed = Changed::without_write(&kcp_control_plane::testing::change::snapshot(), done);
        let verb = verb("example", "scale");
        let change = engine(&reader, &terminal, &arguments);
        let verdict = change.report(&verb, &changed).await;
        assert_eq!(verdict.expect("reported"), Met, "{code}");
    }
}
