//! Caches can allow a write. A denial always comes from live reads.

use std::sync::{Arc, Mutex};

use kcp_rules::testing::case::Base;
use serde_json::{Value, json};

use super::review_of;
use crate::{
    decision::{Decision, ReviewResult},
    metrics::Metrics,
    review::admission::{Admission, Hook},
    testing::{
        admission, api_server, control_plane, decoded, review as review_of_control_plane, scale_review,
    },
};

const HIVE: &str = "hive.openshift.io";

/// Admission with `cached` objects, at an API server with `live` ones. Also returns the plurals that are read live.
fn server(cached: &[Value], live: &[Value]) -> (Admission, Arc<Mutex<Vec<String>>>) {
    let requested = Arc::new(Mutex::new(Vec::new()));
    let (log, live) = (requested.clone(), live.to_vec());
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
                log.lock().unwrap().push(plural.to_owned());
                match (
                    plural,
                    of_kind("Cluster").first(),
                    of_kind("KubeadmControlPlane").first(),
                ) {
                    ("machines", ..) => (200, json!({"items": []})),
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
    admission.evaluator.cluster.fill_caches(cached);
    (admission, requested)
}

/// The decision on a review, and the sorted plurals that were read live for it.
async fn decide(cached: &[Value], live: &[Value], review: &Value) -> (String, Vec<String>) {
    let (admission, requested) = server(cached, live);
    let text = review.to_string();
    let decision = admission.decide(Hook::Validate, &mut decoded(&text)).await;
    let verdict = match &decision.verdict {
        ReviewResult::Allowed => "allowed",
        ReviewResult::Invalid(invalid) => invalid.causes.first().unwrap().rule,
        ReviewResult::Refused(refusal) => panic!("{}", refusal.message),
    };
    let warned = decision.warning_causes.iter().map(|cause| cause.rule.to_owned());
    let text = warned
        .chain(decision.other_warnings)
        .fold(verdict.to_owned(), |text, warning| format!("{text}; {warning}"));
    let mut requested = std::mem::take(&mut *requested.lock().unwrap());
    requested.sort();
    (text, requested)
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

/// A control plane during a rollout. It must not be scaled unless its Cluster is paused.
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

const SCALE: [&str; 2] = ["clusters", "machines"];
const INVENTORY: [&str; 2] = ["clusterdeploymentcustomizations", "clusterpools"];

#[tokio::test]
async fn allows_a_write_from_the_caches_without_live_reads() {
    let review = review_of(HIVE, "clusterpools", &pool("example"), &Value::Null);
    assert_eq!(
        decide(&[customization()], &[], &review).await,
        ("allowed".to_owned(), vec![])
    );
    let object = rolling();
    let review = review_of_control_plane("UPDATE", &object, &object);
    assert_eq!(
        decide(&[cluster(false)], &[], &review).await,
        ("allowed".to_owned(), vec![])
    );
}

#[tokio::test]
async fn stale_objects_neither_deny_nor_warn() {
    let review = review_of(HIVE, "clusterpools", &pool("example"), &Value::Null);
    for (cached, live, expected) in [
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
        let (decision, requested) = decide(&cached, &live, &review).await;
        assert_eq!(decision, expected);
        assert_eq!(requested, INVENTORY);
    }
}

#[tokio::test]
async fn stale_objects_do_not_lift_a_denial() {
    for (was, is, expected) in [
        (true, false, "replicas-during-rollout"),
        (false, true, "allowed; replicas-during-rollout"),
    ] {
        let (decision, requested) = decide(&[rolling(), cluster(was)], &[cluster(is)], &scale_at("7")).await;
        assert_eq!(
            (decision.as_str(), requested),
            (expected, SCALE.map(str::to_owned).to_vec()),
            "{was}"
        );
    }
}

#[tokio::test]
async fn a_stale_cluster_makes_no_copy() {
    let owner =
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "edge", "uid": "u"});
    let mut copy = rolling();
    copy["metadata"]["ownerReferences"] = json!([owner]);
    copy["spec"]["replicas"] = json!(4);
    let review = review_of_control_plane("CREATE", &copy, &Value::Null);
    let owning = |paused| {
        let mut cluster = cluster(paused);
        cluster["metadata"]["uid"] = json!("u");
        cluster
    };
    for (was, is, expected) in [
        (true, false, "replicas-even"),
        (false, true, "allowed; replicas-even"),
    ] {
        let (decision, requested) = decide(&[owning(was)], &[owning(is)], &review).await;
        assert_eq!(
            (decision.as_str(), &*requested),
            (expected, &["clusters".to_owned()][..]),
            "{was}"
        );
    }
}

#[tokio::test]
async fn a_scale_uses_the_cached_control_plane_only_at_the_same_resource_version() {
    let mut newer = rolling();
    newer["status"]["upToDateReplicas"] = json!(3);
    let live = [newer, cluster(false)];
    let cached = [rolling(), cluster(false)];
    let from_cache = (
        "replicas-during-rollout".to_owned(),
        SCALE.map(str::to_owned).to_vec(),
    );
    assert_eq!(decide(&cached, &live, &scale_at("7")).await, from_cache);
    let of_older_version = {
        let mut review = scale_at("7");
        review["request"]["resource"]["version"] = json!("v1beta1");
        review
    };
    for review in [scale_at("8"), scale_at(""), scale_review(5), of_older_version] {
        let (decision, requested) = decide(&cached, &live, &review).await;
        assert_eq!(
            (decision.as_str(), requested),
            (
                "allowed",
                vec!["kubeadmcontrolplanes".to_owned(), "machines".to_owned()],
            ),
            "{review}"
        );
    }
}

#[tokio::test]
async fn a_deletion_uses_live_reads() {
    let mut review = review_of_control_plane("DELETE", &Value::Null, &rolling());
    review["request"]["object"] = Value::Null;
    let (decision, requested) = decide(&[rolling(), cluster(false)], &[], &review).await;
    assert_eq!(decision, "control-plane-in-use");
    // "default" is the namespace.
    assert_eq!(requested, ["clusters", "default", "machinepools", "machines"]);
}

/// The decision about a pool of an API server that answers every read with this status code.
async fn decision_without_reads(code: u16) -> Decision {
    let failing = api_server(move |_| std::future::ready((code, json!("no"))));
    let admission = admission(Some(failing), &Arc::new(Metrics::new()));
    let text = review_of(HIVE, "clusterpools", &pool("example"), &Value::Null).to_string();
    admission.decide(Hook::Validate, &mut decoded(&text)).await
}

#[tokio::test]
async fn denies_what_it_cannot_check_unless_it_lacks_a_permission() {
    let forbidden = decision_without_reads(403).await;
    assert_eq!(
        forbidden.other_warnings,
        [
            "could not read the customizations in the namespace: forbidden; skipped the rules that need \
             this information",
            "could not read the other ClusterPools: forbidden; skipped the rules that need this information"
        ]
    );
    assert_eq!(
        forbidden.skipped_rules,
        ["inventory-name-unknown", "inventory-shared"]
    );
    assert!(matches!(forbidden.verdict, ReviewResult::Allowed));

    // With an expired token, the API server answers 401.
    for code in [401, 500] {
        let failed = decision_without_reads(code).await;
        assert_eq!(failed.skipped_rules, ["inventory-name-unknown"]);
        assert!(matches!(failed.verdict, ReviewResult::Invalid(_)));
    }
}

#[tokio::test]
async fn concurrent_reviews_share_their_live_reads() {
    const REVIEWS: usize = 50;
    let mut object = control_plane();
    object["metadata"]["resourceVersion"] = json!("8");
    let (admission, requested) = server(&[], &[object]);
    let admission = Arc::new(admission);
    let mut reviews = tokio::task::JoinSet::new();
    for _ in 0..REVIEWS {
        let admission = admission.clone();
        reviews.spawn(async move {
            let text = scale_at("7").to_string();
            let decision = admission.decide(Hook::Validate, &mut decoded(&text)).await;
            matches!(decision.verdict, ReviewResult::Allowed)
        });
    }
    assert_eq!(reviews.join_all().await, [true; REVIEWS]);
    // The first one reads, and the others share the next read.
    assert!(requested.lock().unwrap().len() <= 3, "{requested:?}");
}
