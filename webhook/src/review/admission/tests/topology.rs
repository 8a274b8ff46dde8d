//! The topology of a Cluster is reviewed with its control plane, or with the template of its class.

use std::sync::Arc;

use kcp_rules::testing::case::{Base, V1BETA2};
use serde_json::{Value, json};

use super::review_of;
use crate::{
    decision::Decision,
    metrics::Metrics,
    review::admission::Hook,
    testing::{admission, api_server, control_plane, decoded},
};

/// What the API server has; it forbids to read everything else.
#[derive(Clone, Copy, Default)]
struct Server {
    has_control_plane: bool,
    has_template: bool,
    has_patches: bool,
}

impl Server {
    fn answer(self, path: &str) -> (u16, Value) {
        let template = json!({"kind": "KubeadmControlPlaneTemplate", "name": "fleet"});
        let patches = if self.has_patches {
            json!([{"name": "p"}])
        } else {
            json!([])
        };
        match *path.split('/').skip(2).collect::<Vec<_>>().as_slice() {
            [_] => (
                200,
                json!({"versions": [], "preferredVersion": {"version": "v1beta2"}}),
            ),
            [_, _, "namespaces", "default", "kubeadmcontrolplanes", "edge-x"] if self.has_control_plane => {
                let mut object = control_plane();
                object["metadata"] = json!({"name": "edge-x", "namespace": "default"});
                (200, object)
            }
            [_, _, "namespaces", "default", "kubeadmcontrolplanes", "gone"] => (404, json!({"code": 404})),
            [_, _, "namespaces", "classes", "clusterclasses", "fleet"] if self.has_template => (
                200,
                json!({"metadata": {"name": "fleet"}, "spec": {"controlPlane": {"templateRef": template}, "patches": patches}}),
            ),
            [
                _,
                _,
                "namespaces",
                "classes",
                "kubeadmcontrolplanetemplates",
                "fleet",
            ] if self.has_template => (200, Base::Template(V1BETA2).object()),
            _ => (
                403,
                json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": path}),
            ),
        }
    }

    async fn decide(self, new: &Value, old: &Value) -> Decision {
        let client = api_server(move |path| std::future::ready(self.answer(&path)));
        let admission = admission(Some(client), &Arc::new(Metrics::new()));
        let mut review = review_of("cluster.x-k8s.io", "clusters", new, old);
        review["request"]["name"] = json!("edge");
        let text = review.to_string();
        admission.decide(Hook::Validate, &mut decoded(&text)).await
    }
}

fn cluster(control_plane: Option<&str>, topology: &Value) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {
            "controlPlaneRef": control_plane.map(|name| json!({"kind": "KubeadmControlPlane", "name": name})),
            "topology": {
                "classRef": {"name": "fleet", "namespace": "classes"}, "version": "v1.34.2", "controlPlane": topology,
            },
        },
    })
}

fn found(decision: &Decision) -> Vec<String> {
    let causes = decision.causes();
    let causes = causes.map(|(cause, action)| format!("{action:?} {} {}", cause.rule, cause.field));
    let warnings = decision.other_warnings.iter();
    causes
        .chain(warnings.map(|warning| warning.chars().take(44).collect()))
        .collect()
}

const EVEN: &str = "replicas-even spec.topology.controlPlane.replicas";

#[tokio::test]
async fn a_new_cluster_is_reviewed_with_the_template_of_its_class() {
    let known = Server {
        has_template: true,
        ..Server::default()
    };
    let patched = Server {
        has_patches: true,
        ..known
    };
    let two = json!({"replicas": 2});
    let paused = |control_plane| {
        let mut paused = cluster(control_plane, &two);
        paused["spec"]["paused"] = json!(true);
        paused
    };
    let could_not = "could not read the control plane: forbidden;";
    for (server, new, expected) in [
        (known, cluster(None, &two), vec![format!("Deny {EVEN}")]),
        (known, cluster(Some("gone"), &two), vec![format!("Deny {EVEN}")]),
        (known, cluster(None, &json!({"replicas": 3})), vec![]),
        (patched, cluster(None, &two), vec![format!("Warn {EVEN}")]),
        // clusterctl move pauses the Clusters that it copies, with their references.
        (known, paused(Some("gone")), vec![format!("Warn {EVEN}")]),
        (known, paused(None), vec![format!("Deny {EVEN}")]),
        (
            Server::default(),
            cluster(None, &two),
            vec![format!("Warn {EVEN}"), could_not.to_owned()],
        ),
    ] {
        assert_eq!(found(&server.decide(&new, &Value::Null).await), expected, "{new}");
    }
}

#[tokio::test]
async fn an_update_is_reviewed_with_the_control_plane() {
    let server = Server {
        has_control_plane: true,
        ..Server::default()
    };
    let count = |replicas: i64| cluster(Some("edge-x"), &json!({"replicas": replicas}));
    let mut deleted = count(3);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-06-01T00:00:00Z");
    for (old, new, expected) in [
        (count(3), count(2), vec![format!("Deny {EVEN}")]),
        (count(3), count(3), vec![]),
        // Nobody is denied for what an earlier write has left, nor for what the control plane has.
        (count(2), count(2), vec![]),
        (count(2), count(3), vec![]),
        (deleted, count(2), vec![]),
    ] {
        assert_eq!(found(&server.decide(&new, &old).await), expected, "{old} {new}");
    }
}

#[tokio::test]
async fn a_cluster_without_a_topology_and_a_deletion_are_allowed() {
    let mut plain = cluster(None, &json!({"replicas": 0}));
    plain["spec"]["topology"] = Value::Null;
    assert_eq!(
        found(&Server::default().decide(&plain, &Value::Null).await),
        [""; 0]
    );
    let mut review = review_of("cluster.x-k8s.io", "clusters", &Value::Null, &plain);
    review["request"]["operation"] = json!("DELETE");
    let text = review.to_string();
    let admission = admission(None, &Arc::new(Metrics::new()));
    let decision = admission.decide(Hook::Validate, &mut decoded(&text)).await;
    assert_eq!(found(&decision), [""; 0]);
}
