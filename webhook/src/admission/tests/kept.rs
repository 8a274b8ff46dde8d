//! What is kept of the cluster lets a write through, and never has the last word against one.

use std::sync::{Arc, Mutex};

use kcp_rules::case::Base;
use serde_json::{Value, json};

use super::review_of;
use crate::{
    admission::{Admission, Hook},
    decision::Outcome,
    metrics::Metrics,
    review,
    testing::{admission, api_server, control_plane, review as review_of_control_plane, scale_review},
};

const HIVE: &str = "hive.openshift.io";

/// Admission that keeps some objects, at an API server that has others; and what is read there, by plural.
fn server(kept: &[Value], live: &[Value]) -> (Admission, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (seen, live) = (asked.clone(), live.to_vec());
    let client = api_server(move |path| {
        let of_kind = |kind: &str| {
            live.iter()
                .filter(|object| object["kind"] == kind)
                .collect::<Vec<_>>()
        };
        let segments: Vec<_> = path.split('/').skip(2).collect();
        let answer = match *segments.as_slice() {
            [_] => (
                200,
                json!({"versions": [], "preferredVersion": {"version": "v1beta2"}}),
            ),
            [_, _, "namespaces", _, plural, ..] | [_, _, plural] => {
                seen.lock().unwrap().push(plural.to_owned());
                match (
                    plural,
                    of_kind("Cluster").first(),
                    of_kind("KubeadmControlPlane").first(),
                ) {
                    ("clusterpools", ..) => (200, json!({"items": of_kind("ClusterPool")})),
                    ("clusterdeploymentcustomizations", ..) => {
                        (200, json!({"items": of_kind("ClusterDeploymentCustomization")}))
                    }
                    ("clusters", Some(cluster), _) => (200, json!(cluster)),
                    ("kubeadmcontrolplanes", _, Some(control_plane)) => (200, json!(control_plane)),
                    _ => (500, json!("no")),
                }
            }
            _ => (500, json!("no")),
        };
        std::future::ready(answer)
    });
    let admission = admission(Some(client), &Arc::new(Metrics::new()));
    admission.cluster.knows(kept);
    (admission, asked)
}

/// What is said of a review, and the plurals that were read live for it, in order of their names.
async fn said(kept: &[Value], live: &[Value], review: &Value) -> (String, Vec<String>) {
    let (admission, asked) = server(kept, live);
    let text = review.to_string();
    let request = review::read(text.as_bytes()).unwrap();
    let decision = admission.decide(Hook::Validate, &request).await;
    let verdict = match &decision.outcome {
        Outcome::Allowed => "allowed",
        Outcome::Invalid(invalid) => invalid.causes.first().unwrap().rule,
        Outcome::Refused(refusal) => panic!("{}", refusal.message),
    };
    let warned = decision.warned.iter().map(|cause| cause.rule.to_owned());
    let said = warned
        .chain(decision.notes)
        .fold(verdict.to_owned(), |said, warning| format!("{said}; {warning}"));
    let mut asked = std::mem::take(&mut *asked.lock().unwrap());
    asked.sort();
    (said, asked)
}

fn named(base: Base, name: &str) -> Value {
    let mut object = base.object();
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!("default");
    object["metadata"]["resourceVersion"] = json!("7");
    object
}

fn pool(name: &str) -> Value {
    let mut pool = named(Base::ClusterPool, name);
    pool["spec"]["inventory"] = json!([{"name": "foo"}]);
    pool
}

fn customization() -> Value {
    named(Base::Customization, "foo")
}

fn cluster(paused: bool) -> Value {
    json!({
        "kind": "Cluster", "metadata": {"name": "edge", "namespace": "default", "resourceVersion": "7"},
        "spec": {"paused": paused, "controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "example"}}
    })
}

/// In the middle of a rollout: it is not scaled now, unless its Cluster is paused.
fn rolling() -> Value {
    let mut object = control_plane();
    object["metadata"]["namespace"] = json!("default");
    object["metadata"]["resourceVersion"] = json!("7");
    object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "edge"});
    object["status"] = json!({"replicas": 3, "upToDateReplicas": 1});
    object
}

fn scale_at(resource_version: &str) -> Value {
    let mut review = scale_review(5);
    review["request"]["oldObject"]["metadata"]["resourceVersion"] = json!(resource_version);
    review
}

const INVENTORY: [&str; 2] = ["clusterdeploymentcustomizations", "clusterpools"];

#[tokio::test]
async fn what_no_rule_speaks_against_is_let_through_without_a_read() {
    let review = review_of(HIVE, "clusterpools", &pool("example"), &Value::Null);
    assert_eq!(
        said(&[customization()], &[], &review).await,
        ("allowed".to_owned(), vec![])
    );
    let object = rolling();
    let review = review_of_control_plane("UPDATE", &object, &object);
    assert_eq!(
        said(&[cluster(false)], &[], &review).await,
        ("allowed".to_owned(), vec![])
    );
}

#[tokio::test]
async fn what_is_kept_and_not_so_any_more_neither_denies_nor_warns() {
    let review = review_of(HIVE, "clusterpools", &pool("example"), &Value::Null);
    for (kept, live, expected) in [
        (
            vec![customization(), pool("gone")],
            vec![customization()],
            "allowed",
        ),
        (vec![], vec![customization()], "allowed"),
        (
            vec![customization(), pool("other")],
            vec![customization(), pool("other")],
            "inventory-shared",
        ),
        (vec![], vec![], "allowed; inventory-name-unknown"),
    ] {
        let (said, asked) = said(&kept, &live, &review).await;
        assert_eq!(said, expected);
        assert_eq!(asked, INVENTORY);
    }
}

#[tokio::test]
async fn what_is_kept_and_not_so_any_more_does_not_lift_a_denial() {
    for (was, is, expected) in [
        (true, false, "replicas-during-rollout"),
        (false, true, "allowed; replicas-during-rollout"),
    ] {
        let (said, asked) = said(&[rolling(), cluster(was)], &[cluster(is)], &scale_at("7")).await;
        assert_eq!(
            (said.as_str(), asked),
            (expected, vec!["clusters".to_owned()]),
            "{was}"
        );
    }
}

#[tokio::test]
async fn a_scale_is_judged_on_the_very_control_plane_that_it_is_for() {
    let mut newer = rolling();
    newer["status"]["upToDateReplicas"] = json!(3);
    let live = [newer, cluster(false)];
    let kept = [rolling(), cluster(false)];
    let kept_is_judged = ("replicas-during-rollout".to_owned(), vec!["clusters".to_owned()]);
    assert_eq!(said(&kept, &live, &scale_at("7")).await, kept_is_judged);
    let of_older_version = {
        let mut review = scale_at("7");
        review["request"]["resource"]["version"] = json!("v1beta1");
        review
    };
    for review in [scale_at("8"), scale_at(""), scale_review(5), of_older_version] {
        let (said, asked) = said(&kept, &live, &review).await;
        assert_eq!(
            (said.as_str(), asked),
            ("allowed", vec!["kubeadmcontrolplanes".to_owned()]),
            "{review}"
        );
    }
}

#[tokio::test]
async fn a_deletion_is_judged_on_live_reads() {
    let mut review = review_of_control_plane("DELETE", &Value::Null, &rolling());
    review["request"]["object"] = Value::Null;
    let (said, asked) = said(&[rolling(), cluster(false)], &[], &review).await;
    assert_eq!(
        said,
        "allowed; its Cluster could not be checked: error; its namespace could not be checked: error; the workers of its \
         Cluster could not be checked: error"
    );
    // The second is the namespace.
    assert_eq!(asked, ["clusters", "default", "machines"]);
}

#[tokio::test]
async fn what_cannot_be_kept_nor_read_is_said() {
    let failing = api_server(|_| std::future::ready((403, json!("no"))));
    let admission = admission(Some(failing), &Arc::new(Metrics::new()));
    let text = review_of(HIVE, "clusterpools", &pool("example"), &Value::Null).to_string();
    let decision = admission
        .decide(Hook::Validate, &review::read(text.as_bytes()).unwrap())
        .await;
    assert_eq!(
        decision.notes,
        [
            "other ClusterPools could not be checked: forbidden",
            "the customizations of its namespace could not be checked: forbidden"
        ]
    );
}
