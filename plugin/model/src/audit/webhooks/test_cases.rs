//! Cases of the checks of webhooks.

use serde_json::{Value, json};

use crate::{
    audit::{
        Facts,
        facts::{Service, ServiceName, Webhook},
        tests::{Case, backend_pod, failed, service},
    },
    snapshot::Reading,
};

pub(super) fn hook_service() -> ServiceName {
    ServiceName {
        namespace: "hooks".to_owned(),
        name: "hook".to_owned(),
    }
}

/// A webhook with failurePolicy Fail for one resource, changed by a merge patch.
fn webhook(group: &str, resource: &str, patch: &Value) -> Webhook {
    let mut webhook = json!({
        "name": "hook.example.com",
        "clientConfig": {"service": {"namespace": "hooks", "name": "hook"}},
        "rules": [{"apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": [resource]}],
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
    });
    json_patch::merge(&mut webhook, patch);
    let parsed = serde_json::from_value(webhook).expect("a webhook");
    Webhook::from_validating("hooks", parsed).expect("a client configuration")
}

fn install(facts: &mut Facts, group: &str, resource: &str, patch: &Value) {
    facts.webhooks = Reading::Read(vec![webhook(group, resource, patch)]);
    facts
        .services
        .insert(hook_service(), Reading::Read(Some(service())));
}

fn url(url: &str) -> Value {
    json!({"clientConfig": {"service": null, "url": url}})
}

fn excluding(namespaces: &[&str]) -> Value {
    let expression = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": namespaces});
    json!({"namespaceSelector": {"matchExpressions": [expression]}})
}

fn listen(facts: &mut Facts, nodes: &[&str]) {
    for node in nodes {
        let pod = facts.pod(&format!("kube-vip-{node}"));
        pod.containers[0].ports.insert(9443);
    }
}

pub(crate) const CASES: &[Case] = &[
    ("webhooks-deadlock", "no webhooks", |_| {}),
    ("webhooks-deadlock", "a custom resource", |facts| {
        install(facts, "example.com", "*", &json!({}));
    }),
    ("webhooks-deadlock", "Leases", |facts| {
        install(facts, "coordination.k8s.io", "leases", &json!({}));
    }),
    ("webhooks-deadlock", "Leases, but Ignore", |facts| {
        install(
            facts,
            "coordination.k8s.io",
            "leases",
            &json!({"failurePolicy": "Ignore"}),
        );
    }),
    (
        "webhooks-deadlock",
        "Leases outside of the system's namespaces",
        |facts| {
            install(
                facts,
                "coordination.k8s.io",
                "leases",
                &excluding(&["kube-system", "kube-node-lease"]),
            );
        },
    ),
    ("webhooks-deadlock", "Leases of kubelets", |facts| {
        install(
            facts,
            "coordination.k8s.io",
            "leases",
            &excluding(&["kube-system"]),
        );
    }),
    (
        "webhooks-deadlock",
        "everything, although kube-system is excluded",
        |facts| {
            install(
                facts,
                "*",
                "*",
                &excluding(&["kube-system", "kube-node-lease", "default", "hooks"]),
            );
        },
    ),
    ("webhooks-deadlock", "Pods of its own namespace", |facts| {
        install(facts, "", "pods", &excluding(&["kube-system"]));
    }),
    ("webhooks-deadlock", "Pods, but not its own", |facts| {
        let selector = json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["hook"]}]});
        let mut patch = excluding(&["kube-system"]);
        patch["objectSelector"] = selector;
        install(facts, "", "pods", &patch);
    }),
    ("webhooks-deadlock", "Pods of labelled namespaces", |facts| {
        install(
            facts,
            "",
            "pods",
            &json!({"namespaceSelector": {"matchLabels": {"inject": "true"}}}),
        );
    }),
    ("webhooks-deadlock", "the status of Nodes", |facts| {
        install(facts, "", "nodes/status", &json!({}));
    }),
    ("webhooks-deadlock", "Nodes with a label", |facts| {
        install(
            facts,
            "",
            "nodes",
            &json!({"objectSelector": {"matchLabels": {"pool": "gpu"}}}),
        );
    }),
    ("webhooks-deadlock", "roles of the API server", |facts| {
        install(facts, "rbac.authorization.k8s.io", "*", &json!({}));
    }),
    ("webhooks-deadlock", "ServiceCIDRs", |facts| {
        install(facts, "networking.k8s.io", "servicecidrs", &json!({}));
    }),
    ("webhooks-deadlock", "deletions only", |facts| {
        let rule =
            json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["*"]}]);
        install(facts, "*", "*", &json!({"rules": rule}));
    }),
    ("webhooks-deadlock", "a matchCondition", |facts| {
        let condition =
            json!([{"name": "not-nodes", "expression": "!('system:nodes' in request.userInfo.groups)"}]);
        install(facts, "", "nodes", &json!({"matchConditions": condition}));
    }),
    ("webhooks-deadlock", "a URL of a Service", |facts| {
        install(facts, "", "pods", &url("https://hook.hooks.svc:8443/validate"));
    }),
    ("webhooks-deadlock", "the address of a Service", |facts| {
        install(facts, "", "nodes", &url("https://10.96.0.77/validate"));
    }),
    ("webhooks-deadlock", "a server outside", |facts| {
        install(facts, "", "nodes", &url("https://hooks.example.com/validate"));
    }),
    ("webhooks-deadlock", "a static Pod on each Node", |facts| {
        install(facts, "", "nodes", &url("https://127.0.0.1:9443/validate"));
        listen(facts, &["n1", "n2", "n3"]);
    }),
    (
        "webhooks-deadlock",
        "a static Pod on two of three Nodes",
        |facts| {
            install(facts, "", "nodes", &url("https://127.0.0.1:9443/validate"));
            listen(facts, &["n1", "n3"]);
        },
    ),
    ("webhooks-deadlock", "a local server that is no Pod", |facts| {
        install(facts, "", "nodes", &url("https://127.0.0.1:9443/validate"));
    }),
    ("webhooks-deadlock", "unread namespaces", |facts| {
        install(facts, "", "pods", &excluding(&["kube-system"]));
        facts.namespaces = failed("Namespace");
    }),
    ("webhooks-deadlock", "unread", |facts| {
        facts.webhooks = failed("ValidatingWebhookConfiguration");
    }),
    ("webhooks-fragile", "no webhooks", |_| {}),
    ("webhooks-fragile", "two Pods on two Nodes", |facts| {
        install(facts, "example.com", "*", &json!({}));
    }),
    (
        "webhooks-fragile",
        "one Pod, no budget, slow, all resources",
        |facts| {
            install(facts, "*", "*", &json!({"timeoutSeconds": 30}));
            let one = Service {
                pods: Some(vec![backend_pod("w1")]),
                budgets: 0,
                ..service()
            };
            facts.services.insert(hook_service(), Reading::Read(Some(one)));
        },
    ),
    ("webhooks-fragile", "the same with Ignore", |facts| {
        install(
            facts,
            "*",
            "*",
            &json!({"timeoutSeconds": 30, "failurePolicy": "Ignore"}),
        );
    }),
    ("webhooks-fragile", "two Pods on one Node", |facts| {
        install(facts, "example.com", "*", &json!({}));
        let found = Service {
            pods: Some(vec![backend_pod("w1"), backend_pod("w1")]),
            ..service()
        };
        facts.services.insert(hook_service(), Reading::Read(Some(found)));
    }),
    ("webhooks-fragile", "no ready Pod", |facts| {
        install(facts, "example.com", "*", &json!({}));
        let none = Service {
            pods: Some(Vec::new()),
            ..service()
        };
        facts.services.insert(hook_service(), Reading::Read(Some(none)));
    }),
    ("webhooks-fragile", "a Service without a selector", |facts| {
        install(facts, "example.com", "*", &json!({}));
        facts
            .services
            .insert(hook_service(), Reading::Read(Some(Service::default())));
    }),
    ("webhooks-fragile", "no Service", |facts| {
        install(facts, "example.com", "*", &json!({}));
        facts.services.insert(hook_service(), Reading::Read(None));
    }),
    ("webhooks-fragile", "unread Service", |facts| {
        install(facts, "example.com", "*", &json!({}));
        facts.services.insert(hook_service(), failed("Service/hook"));
    }),
    (
        "webhooks-fragile",
        "a static Pod on two of three Nodes",
        |facts| {
            install(facts, "example.com", "*", &url("https://127.0.0.1:9443/validate"));
            listen(facts, &["n1", "n3"]);
        },
    ),
];
