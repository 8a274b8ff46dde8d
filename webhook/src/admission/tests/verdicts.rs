//! `kubectl kcp lint` says of a write what this server says of it, word for word: any write, in any surroundings.

use std::{future, sync::Arc};

use jiff::Timestamp;
use kcp_rules::{
    Configuration, Scope,
    case::{Base, V1BETA1, V1BETA2, Write},
    topics::{TOPICS, rules},
};
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::{
    admission::{Admission, Hook},
    decision::{Decision, Outcome, UNDECODABLE},
    metrics::Metrics,
    review,
    testing::{admission, api_server},
};

const BASES: [Base; 7] = [
    Base::ControlPlane(V1BETA2),
    Base::ControlPlane(V1BETA1),
    Base::Template(V1BETA2),
    Base::Template(V1BETA1),
    Base::ClusterPool,
    Base::Customization,
    Base::ClusterDeployment,
];

/// `lint`'s ids for what this server says as a note.
const NOTES: [&str; 2] = ["override-ignored", "old-object-undecodable"];

/// A write, and what surrounds it.
#[derive(Clone, Debug)]
struct Asked {
    base: Base,
    old: Option<Value>,
    new: Value,
    neighbours: Vec<Value>,
}

/// What is said of a write, in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    /// `action field: message`, of an object that cannot be decoded without the message.
    findings: Vec<String>,
    notes: usize,
}

fn patch(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The patches of all examples for the kind of a base, of either version.
fn patches(base: Base) -> Vec<Value> {
    let cases = TOPICS.iter().flat_map(|topic| topic.cases);
    let of_kind = cases.filter(|case| {
        let kind = std::mem::discriminant(&base);
        case.bases
            .iter()
            .any(|other| std::mem::discriminant(other) == kind)
    });
    let mut patches: Vec<Value> = of_kind
        .flat_map(|case| match case.write {
            Write::Create(new) | Write::Delete(new) => vec![patch(new)],
            Write::Update(old, new) => vec![patch(old), patch(new)],
            Write::Scale(old, replicas) => vec![patch(old), json!({"spec": {"replicas": replicas}})],
        })
        .collect();
    patches.extend([
        json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "edge"}}}),
        json!({"metadata": {"ownerReferences": [{"kind": "Cluster", "name": "edge"}]}}),
        json!({"metadata": {"name": null, "generateName": "example-"}}),
        json!({"metadata": {"annotations": {"kubectl-kcp.dev/override-rules": "replicas-even=tomorrow"}}}),
        json!({"metadata": {"deletionTimestamp": "2026-05-01T00:00:00Z"}}),
        json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2}}),
        json!({"spec": {"replicas": null}}),
        json!({"spec": {"replicas": "three"}}),
        json!({"spec": {"version": "1.35.0"}}),
        json!({"spec": null}),
    ]);
    patches
}

fn patched(base: Value, patches: &[Value]) -> Value {
    patches.iter().fold(base, |mut object, patch| {
        json_patch::merge(&mut object, patch);
        object
    })
}

/// Objects that rules look at, of each kind some or none.
fn neighbours() -> impl Strategy<Value = Vec<Value>> {
    let machine = |name: &str, owner: &str, version: &str| {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {
                "name": name, "namespace": "default", "creationTimestamp": "2026-05-01T00:00:00Z",
                "labels": {"cluster.x-k8s.io/cluster-name": "edge", "cluster.x-k8s.io/control-plane": ""},
                "ownerReferences": [{"kind": "KubeadmControlPlane", "name": owner, "controller": true}]
            },
            "spec": {"version": version}, "status": {"nodeRef": {"name": name}}
        })
    };
    let machines = vec![
        machine("m1", "example", "v1.34.2"),
        machine("m2", "example", "v1.33.0"),
        machine("m3", "before", "v1.36.0"),
    ];
    let cluster = |paused: bool, control_plane: &str| {
        vec![json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"paused": paused, "controlPlaneRef": {"kind": "KubeadmControlPlane", "name": control_plane}}
        })]
    };
    let hive = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "hive.openshift.io/v1", "kind": kind,
            "metadata": {"name": name, "namespace": "default"}, "spec": spec
        })
    };
    let pool = hive(
        "ClusterPool",
        "neighbour",
        json!({"inventory": [{"name": "bar"}, {"name": "foo"}]}),
    );
    let customizations = ["foo", "bar"].map(|name| hive("ClusterDeploymentCustomization", name, json!({})));
    let deployment = |name: &str, pool: &str, claim: &str, customization: &str| {
        let reference = json!({
            "namespace": "default", "poolName": pool, "claimName": claim,
            "clusterDeploymentCustomization": {"name": customization}
        });
        hive("ClusterDeployment", name, json!({ "clusterPoolRef": reference }))
    };
    let deployments = vec![
        deployment("c1", "example", "", "foo"),
        deployment("c2", "example", "us", "bar"),
        deployment("c3", "neighbour", "", "example"),
    ];
    (
        select(vec![vec![], machines]),
        select(vec![vec![], cluster(false, "example"), cluster(true, "other")]),
        select(vec![vec![], vec![pool]]),
        select(vec![vec![], customizations.to_vec()]),
        select(vec![vec![], deployments]),
    )
        .prop_map(|(a, b, c, d, e)| [a, b, c, d, e].concat())
}

fn asked() -> impl Strategy<Value = Asked> {
    let with_patches = |base: Base| {
        let some = prop::collection::vec(select(patches(base)), 0..4);
        (Just(base), some.clone(), some, any::<bool>(), neighbours())
    };
    select(BASES.to_vec()).prop_flat_map(with_patches).prop_map(
        |(base, of_old, of_new, is_update, neighbours)| {
            let mut old = patched(base.object(), &of_old);
            let mut new = patched(old.clone(), &of_new);
            let named = |object: &Value| object["metadata"]["name"] == base.object()["metadata"]["name"];
            if is_update {
                // Both are found by their name.
                for object in [&mut old, &mut new] {
                    for field in ["name", "namespace"] {
                        object["metadata"][field] = base.object()["metadata"][field].clone();
                    }
                }
                // An API server takes no other from a client.
                new["metadata"]["deletionTimestamp"] = old["metadata"]["deletionTimestamp"].clone();
            }
            let named = named(&new);
            Asked {
                base,
                old: is_update.then_some(old),
                new,
                // They are made for an object of this name.
                neighbours: if named { neighbours } else { Vec::new() },
            }
        },
    )
}

/// Lists and objects of an API server that has the neighbours, and forbids to look for any others: to `lint` they are
/// unknown.
fn answer(neighbours: &[Value], path: &str) -> (u16, Value) {
    let of_kind = |kind: &str| {
        let members: Vec<_> = neighbours
            .iter()
            .filter(|object| object["kind"] == kind)
            .collect();
        match members.as_slice() {
            [] => None,
            members => Some(json!({ "items": members })),
        }
    };
    let found = match path.rsplit('/').next() {
        Some("cluster.x-k8s.io" | "controlplane.cluster.x-k8s.io") => Some(json!({
            "versions": [{"version": "v1beta2"}], "preferredVersion": {"version": "v1beta2"}
        })),
        Some("hive.openshift.io") => Some(json!({
            "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}
        })),
        Some("machines") => of_kind("Machine"),
        Some("edge") => neighbours
            .iter()
            .find(|object| object["kind"] == "Cluster")
            .cloned(),
        Some("clusterpools") => of_kind("ClusterPool"),
        Some("clusterdeploymentcustomizations") => of_kind("ClusterDeploymentCustomization"),
        Some("clusterdeployments") => of_kind("ClusterDeployment"),
        _ => None,
    };
    found.map_or_else(
        || {
            (
                403,
                json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": path}),
            )
        },
        |found| (200, found),
    )
}

fn server(neighbours: Vec<Value>) -> Admission {
    let neighbours = Arc::new(neighbours);
    let client = api_server(move |path| future::ready(answer(&neighbours, &path)));
    admission(Some(client), &Arc::new(Metrics::new()))
}

fn review_of(asked: &Asked, new: &Value) -> String {
    let (group, resource) = match asked.base {
        Base::ControlPlane(_) => ("controlplane.cluster.x-k8s.io", "kubeadmcontrolplanes"),
        Base::Template(_) => ("controlplane.cluster.x-k8s.io", "kubeadmcontrolplanetemplates"),
        Base::ClusterPool => ("hive.openshift.io", "clusterpools"),
        Base::Customization => ("hive.openshift.io", "clusterdeploymentcustomizations"),
        Base::ClusterDeployment => ("hive.openshift.io", "clusterdeployments"),
        Base::Cluster => unreachable!("no webhook is asked about a Cluster"),
    };
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "resource": {"group": group, "version": asked.base.version(), "resource": resource},
            "name": new["metadata"]["name"].as_str().unwrap_or_default(),
            "namespace": new["metadata"]["namespace"].as_str().unwrap_or("default"),
            "operation": if asked.old.is_some() { "UPDATE" } else { "CREATE" },
            "object": new,
            "oldObject": asked.old,
        }
    })
    .to_string()
}

async fn decide(server: &Admission, hook: Hook, asked: &Asked, new: &Value) -> Decision {
    let review = review_of(asked, new);
    server
        .decide(hook, &review::read(review.as_bytes()).unwrap())
        .await
}

/// What an API server does between the two webhooks: the status and some metadata stay its own.
fn stored(mut new: Value, old: Option<&Value>) -> Value {
    let Some(old) = old else { return new };
    for pointer in ["/status", "/metadata/generation", "/metadata/deletionTimestamp"] {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let Some(Value::Object(parent)) = new.pointer_mut(parent) else {
            continue;
        };
        match old.pointer(pointer) {
            Some(value) => parent.insert(field.to_owned(), value.clone()),
            None => parent.remove(field),
        };
    }
    new
}

fn causes(decision: &Decision) -> Vec<(&'static str, String)> {
    decision
        .causes()
        .map(|(cause, action)| {
            let action = serde_json::to_value(action).unwrap();
            (
                cause.rule,
                said(action.as_str().unwrap(), cause.rule, &cause.field, &cause.message),
            )
        })
        .collect()
}

fn said(action: &str, rule: &str, field: &str, message: &str) -> String {
    match rule {
        UNDECODABLE => format!("{action} {field}: {rule}"),
        _ => format!("{action} {field}: {message}"),
    }
}

/// What the server says; when its mutating webhook refuses, this too.
async fn by_server(asked: &Asked) -> (Said, Option<Vec<String>>) {
    let server = server(asked.neighbours.clone());
    let mutated = decide(&server, Hook::Mutate, asked, &asked.new).await;
    let refused = matches!(mutated.outcome, Outcome::Invalid(_))
        .then(|| causes(&mutated).into_iter().map(|(_, cause)| cause).collect());
    let mut new = asked.new.clone();
    if !mutated.patch.is_empty() {
        let patch: json_patch::Patch =
            serde_json::from_value(serde_json::to_value(&mutated.patch).unwrap()).unwrap();
        json_patch::patch(&mut new, &patch).unwrap();
    }
    let new = stored(new, asked.old.as_ref());
    let judged = decide(&server, Hook::Validate, asked, &new).await;
    let mut findings: Vec<_> = mutated.notes.iter().map(|note| format!("warn {note}")).collect();
    // By their actions, for that is how a decision keeps them.
    findings.extend(causes(&judged).into_iter().map(|(_, cause)| cause));
    // `lint` does not say of each rule what it was not given.
    let unread = |note: &&String| note.contains(" could not be checked: ");
    let said = Said {
        findings,
        notes: judged.notes.iter().filter(|note| !unread(note)).count(),
    };
    (said, refused)
}

fn by_lint(asked: &Asked) -> Said {
    let neighbours = asked
        .neighbours
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n---\n");
    let old = asked.old.as_ref().map(Value::to_string);
    let old: Vec<_> = old.iter().map(|old| ("old", old.as_bytes())).collect();
    let document = kubectl_kcp::commands::lint::document(
        &[
            ("new", asked.new.to_string().as_bytes()),
            ("neighbours", neighbours.as_bytes()),
        ],
        &old,
        &Configuration::default(),
        Timestamp::now(),
    );
    let document: Value = serde_json::from_str(&document.unwrap()).unwrap();
    assert_eq!(document["errors"], json!([]));
    let mut said_of_it = Said::default();
    for finding in document["findings"].as_array().unwrap() {
        let text = |field: &str| finding[field].as_str().unwrap();
        if text("file") != "new" {
            continue;
        }
        if NOTES.contains(&text("rule")) {
            said_of_it.notes += 1;
        } else {
            let said = said(text("action"), text("rule"), text("field"), text("message"));
            said_of_it.findings.push(said);
        }
    }
    said_of_it
}

fn is_about_other_objects(said: &str) -> bool {
    let mut about_others = rules().filter(|rule| rule.scope == Scope::Cluster);
    about_others.any(|rule| said.ends_with(&format!("({})", rule.id)))
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn lint_says_what_the_server_says(asked in asked()) {
        let (mut by_server, refused) = runtime().block_on(by_server(&asked));
        let mut by_lint = by_lint(&asked);
        let server_says = refused.as_ref().unwrap_or(&by_server.findings);
        if asked.base == Base::ClusterPool && server_says.iter().any(|said| said.ends_with(UNDECODABLE)) {
            // Of a pool that is not whole `lint` judges the inventory, for the fragments in documents.
            by_lint.findings.retain(|said| said.ends_with(UNDECODABLE));
        }
        if let Some(refused) = refused {
            // What would have been mended is not said any more, and warnings are given without a look at the cluster.
            let denials = |mut found: Vec<String>| {
                found.retain(|said| said.starts_with("deny ") && !is_about_other_objects(said));
                found
            };
            prop_assert_eq!(denials(refused), denials(by_lint.findings));
            return Ok(());
        }
        by_server.findings.sort();
        by_lint.findings.sort();
        prop_assert_eq!(by_server, by_lint);
    }
}
