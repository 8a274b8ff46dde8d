//! `kubectl kcp lint` and this server report the same findings with the same messages, for any write and any other objects.

use std::{future, sync::Arc};

use jiff::Timestamp;
use kcp_rules::{
    Configuration,
    testing::{
        case::{Base, V1BETA1, V1BETA2, Write},
        cases::written_cases,
    },
    topics::rules,
};
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::{
    decision::{Decision, ReviewResult, UNDECODABLE},
    limits::MAX_VALUES,
    metrics::Metrics,
    review::{
        admission::{Admission, Hook},
        decode::{Objects, decode_review},
    },
    testing::{admission, api_server, decoded},
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

/// The ids of `lint` findings that this server reports as notes.
const NOTES: [&str; 2] = ["override-ignored", "old-object-undecodable"];

/// A write, and the other objects in the API server.
#[derive(Clone, Debug)]
struct Scenario {
    base: Base,
    old: Option<Value>,
    new: Value,
    others: Vec<Value>,
}

/// The report on a write, in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    /// `action field: message`, without the message for an object that does not decode.
    findings: Vec<String>,
    notes: usize,
    /// Whether `lint` found a field of another API version.
    has_moved_fields: bool,
}

fn patch(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The patches of all cases for the kind of a base, in either version.
fn patches(base: Base) -> Vec<Value> {
    let cases = written_cases();
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

/// Other objects that rules read: some or none of each kind.
fn others() -> impl Strategy<Value = Vec<Value>> {
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

fn scenario() -> impl Strategy<Value = Scenario> {
    let with_patches = |base: Base| {
        let some = prop::collection::vec(select(patches(base)), 0..4);
        (Just(base), some.clone(), some, any::<bool>(), others())
    };
    select(BASES.to_vec()).prop_flat_map(with_patches).prop_map(
        |(base, of_old, of_new, is_update, others)| {
            let mut old = patched(base.object(), &of_old);
            let mut new = patched(old.clone(), &of_new);
            let named = |object: &Value| object["metadata"]["name"] == base.object()["metadata"]["name"];
            if is_update {
                // Lint and server match the two by name.
                for object in [&mut old, &mut new] {
                    for field in ["name", "namespace"] {
                        object["metadata"][field] = base.object()["metadata"][field].clone();
                    }
                }
                // An API server ignores a client's deletion timestamp.
                new["metadata"]["deletionTimestamp"] = old["metadata"]["deletionTimestamp"].clone();
            }
            let named = named(&new);
            Scenario {
                base,
                old: is_update.then_some(old),
                new,
                // The other objects refer to an object of this name.
                others: if named { others } else { Vec::new() },
            }
        },
    )
}

/// Answers of an API server that has `others`, and forbids to read anything else: `lint` does not know more either.
fn answer(others: &[Value], path: &str) -> (u16, Value) {
    let of_kind = |kind: &str| {
        let members: Vec<_> = others.iter().filter(|object| object["kind"] == kind).collect();
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
        Some("edge") => others.iter().find(|object| object["kind"] == "Cluster").cloned(),
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

fn server(others: Vec<Value>) -> Admission {
    let others = Arc::new(others);
    let client = api_server(move |path| future::ready(answer(&others, &path)));
    admission(Some(client), &Arc::new(Metrics::new()))
}

fn review_of(scenario: &Scenario, new: &Value) -> String {
    let (group, resource) = match scenario.base {
        Base::ControlPlane(_) => ("controlplane.cluster.x-k8s.io", "kubeadmcontrolplanes"),
        Base::Template(_) => ("controlplane.cluster.x-k8s.io", "kubeadmcontrolplanetemplates"),
        Base::ClusterPool => ("hive.openshift.io", "clusterpools"),
        Base::Customization => ("hive.openshift.io", "clusterdeploymentcustomizations"),
        Base::ClusterDeployment => ("hive.openshift.io", "clusterdeployments"),
        Base::Cluster => unreachable!("the webhook reviews only topologies"),
    };
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "resource": {"group": group, "version": scenario.base.version(), "resource": resource},
            "name": new["metadata"]["name"].as_str().unwrap_or_default(),
            "namespace": new["metadata"]["namespace"].as_str().unwrap_or("default"),
            "operation": if scenario.old.is_some() { "UPDATE" } else { "CREATE" },
            "object": new,
            "oldObject": scenario.old,
        }
    })
    .to_string()
}

async fn decide(server: &Admission, hook: Hook, scenario: &Scenario, new: &Value) -> Decision {
    let review = review_of(scenario, new);
    let decision = server.decide(hook, &mut decoded(&review)).await;
    // With too many values, no object is decoded together with the review.
    let mut undecoded = decode_review(review.as_bytes(), MAX_VALUES + 1).unwrap();
    assert!(matches!(undecoded.objects, Objects::Texts(_)));
    let alone = server.decide(hook, &mut undecoded).await;
    assert_eq!(format!("{decision:?}"), format!("{alone:?}"));
    decision
}

/// What the API server does between the two webhooks: it restores the status and some metadata.
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
                line(action.as_str().unwrap(), cause.rule, &cause.field, &cause.message),
            )
        })
        .collect()
}

fn line(action: &str, rule: &str, field: &str, message: &str) -> String {
    match rule {
        UNDECODABLE => format!("{action} {field}: {rule}"),
        "component-flag-unknown" | "kubeadm-feature-gate-unknown" => {
            // Only `lint` shows the key of a map.
            let unnamed = field.split_once('[').filter(|_| field.ends_with(']'));
            let field = unnamed.map_or(field, |(map, _)| map);
            format!("{action} {field}: {}", without_value(message))
        }
        _ => format!("{action} {field}: {}", without_value(message)),
    }
}

/// The message without its value, which only `lint` shows if it may be secret.
fn without_value(message: &str) -> String {
    let Some((reason, rest)) = message.split_once(": ") else {
        return message.to_owned();
    };
    let scalar = rest.split_once(": ").filter(|(value, _)| {
        let is_number = value.parse::<f64>().is_ok();
        is_number || ["a string", "true", "false"].contains(value)
    });
    let long = || rest.split_once("... (")?.1.split_once(" bytes): ");
    let quoted = || rest.strip_prefix('"')?.split_once("\": ").or_else(long);
    let after = scalar.or_else(quoted).map(|(_, after)| after);
    format!("{reason}: {}", after.unwrap_or(rest))
}

/// The server's report, and the causes of its mutating webhook's denial, if any.
async fn by_server(scenario: &Scenario) -> (Report, Option<Vec<String>>) {
    let server = server(scenario.others.clone());
    let mutated = decide(&server, Hook::Mutate, scenario, &scenario.new).await;
    let refused = matches!(mutated.verdict, ReviewResult::Invalid(_))
        .then(|| causes(&mutated).into_iter().map(|(_, cause)| cause).collect());
    let mut new = scenario.new.clone();
    if !mutated.patch.is_empty() {
        let patch: json_patch::Patch =
            serde_json::from_value(serde_json::to_value(&mutated.patch).unwrap()).unwrap();
        json_patch::patch(&mut new, &patch).unwrap();
    }
    let new = stored(new, scenario.old.as_ref());
    let validated = decide(&server, Hook::Validate, scenario, &new).await;
    let mut findings: Vec<_> = mutated
        .other_warnings
        .iter()
        .map(|note| format!("warn {note}"))
        .collect();
    // A decision has its causes ordered by action.
    findings.extend(causes(&validated).into_iter().map(|(_, cause)| cause));
    findings.retain(|finding| !finding.contains("could not check this rule"));
    // `lint` does not report which objects it did not get.
    let unread = |note: &&String| note.starts_with("could not read ");
    let report = Report {
        findings,
        notes: validated
            .other_warnings
            .iter()
            .filter(|note| !unread(note))
            .count(),
        has_moved_fields: false,
    };
    (report, refused)
}

fn by_lint(scenario: &Scenario) -> Report {
    let others = scenario
        .others
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n---\n");
    let old = scenario.old.as_ref().map(Value::to_string);
    let old: Vec<_> = old.iter().map(|old| ("old", old.as_bytes())).collect();
    let document = kubectl_kcp::commands::lint::document(
        &[
            ("new", scenario.new.to_string().as_bytes()),
            ("others", others.as_bytes()),
        ],
        &old,
        &Configuration::default(),
        Timestamp::now(),
    );
    let document: Value = serde_json::from_str(&document.unwrap()).unwrap();
    assert_eq!(document["errors"], json!([]));
    let mut report = Report::default();
    for finding in document["findings"].as_array().unwrap() {
        let text = |field: &str| finding[field].as_str().unwrap();
        // An API server says this before admission.
        let is_of_api_server = ["field-invalid", "field-moved", "field-unknown"].contains(&text("rule"));
        if text("file") != "new" {
            continue;
        }
        if is_of_api_server {
            report.has_moved_fields |= text("rule") == "field-moved";
            continue;
        }
        if NOTES.contains(&text("rule")) {
            report.notes += 1;
        } else {
            let line = line(text("action"), text("rule"), text("field"), text("message"));
            report.findings.push(line);
        }
    }
    report
}

fn needs_other_objects(line: &str) -> bool {
    let mut with_reads = rules().filter(|rule| !rule.reads().is_empty());
    with_reads.any(|rule| line.ends_with(&format!("({})", rule.id)))
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn lint_and_the_server_report_the_same(scenario in scenario()) {
        let (mut by_server, mut refused) = runtime().block_on(by_server(&scenario));
        let mut linted = by_lint(&scenario);
        // `lint` takes a control plane that lacks most of its spec for a patch of Kustomize.
        let is_patch = |object: &Value| {
            let alone = Scenario { old: None, new: object.clone(), others: Vec::new(), ..scenario.clone() };
            let report = by_lint(&alone);
            report.findings.iter().any(|line| line.ends_with("(manifest-unrendered)"))
        };
        if scenario.old.iter().chain([&scenario.new]).any(is_patch) {
            return Ok(());
        }
        // `lint` says instead that what is missing is in a field of another version.
        if std::mem::take(&mut linted.has_moved_fields) {
            let is_other = |line: &String| !line.contains(": Required value");
            linted.findings.retain(is_other);
            by_server.findings.retain(is_other);
            if let Some(refused) = &mut refused {
                refused.retain(is_other);
            }
        }
        let server_findings = refused.as_ref().unwrap_or(&by_server.findings);
        if scenario.base == Base::ClusterPool && server_findings.iter().any(|line| line.ends_with(UNDECODABLE)) {
            // `lint` checks the inventory of a pool that does not decode, because documents can have fragments of pools.
            linted.findings.retain(|line| line.ends_with(UNDECODABLE));
        }
        if let Some(refused) = refused {
            // The mutating webhook reports no repairs if it denies, and evaluates no rule that reads other objects.
            let denials = |mut found: Vec<String>| {
                found.retain(|line| line.starts_with("deny ") && !needs_other_objects(line));
                found
            };
            prop_assert_eq!(denials(refused), denials(linted.findings));
            return Ok(());
        }
        by_server.findings.sort();
        linted.findings.sort();
        prop_assert_eq!(by_server, linted);
    }
}
