//! The decision on the webhooks of well-known projects. Each fixture is written down from the facts in the project's public
//! manifest: names, policies, rules, selectors, time limits and Services. `source` names the manifest and its version; where the
//! manifest states no version, the commit.

use serde_json::{Value, json};

use super::verdict::{DeadlockRisk, judge};
use crate::{
    audit::{
        facts::{BackendPod, Labels, Service, Webhook},
        tests::healthy,
    },
    snapshot::Reading,
};

struct Project {
    name: &'static str,
    #[expect(dead_code, reason = "it says where the facts come from")]
    source: &'static str,
    namespace: &'static str,
    /// The labels of the Pods behind the webhook's Service, and of its namespace.
    pod_labels: &'static [(&'static str, &'static str)],
    namespace_labels: &'static [(&'static str, &'static str)],
    webhooks: fn() -> Value,
    /// For each webhook, the critical resources in the verdict: `safe`, or the first words of the reason.
    expected: &'static [&'static str],
}

const SAFE_IGNORE: &str = "safe: failurePolicy is Ignore";
const SAFE_RULES: &str = "safe: it is called for no request that a restart needs";

/// One rule for versions `*`, which are not what decides.
fn rule(group: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!([{"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources}])
}

fn not_in(key: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": "NotIn", "values": values})
}

fn absent(key: &str) -> Value {
    json!({"key": key, "operator": "DoesNotExist"})
}

fn all_of(expressions: &[Value]) -> Value {
    json!({"matchExpressions": expressions})
}

const CREATE: &[&str] = &["CREATE"];
const WRITE: &[&str] = &["CREATE", "UPDATE"];

/// The rules of Gatekeeper's validating webhook.
fn gatekeeper(policy: &str) -> Value {
    let not_ignored = all_of(&[
        absent("admission.gatekeeper.sh/ignore"),
        not_in("kubernetes.io/metadata.name", &["gatekeeper-system"]),
    ]);
    json!([
        {"name": "validation.gatekeeper.sh", "failurePolicy": policy, "timeoutSeconds": 3,
            "rules": rule("*", &["*", "pods/exec", "pods/eviction", "pods/binding", "deployments/scale", "nodes/proxy"], WRITE),
            "namespaceSelector": not_ignored},
        {"name": "check-ignore-label.gatekeeper.sh", "failurePolicy": "Fail", "timeoutSeconds": 3,
            "rules": rule("", &["namespaces"], WRITE),
            "namespaceSelector": all_of(&[not_in("kubernetes.io/metadata.name", &["gatekeeper-system"])])},
    ])
}

const PROJECTS: &[Project] = &[
    Project {
        name: "cert-manager",
        source: "cert-manager/cert-manager, deploy/charts/cert-manager/templates/webhook-validating-webhook.yaml, f20d9d752dba",
        namespace: "cert-manager",
        pod_labels: &[("app.kubernetes.io/component", "webhook")],
        namespace_labels: &[],
        webhooks: || {
            let selector = all_of(&[
                not_in("cert-manager.io/disable-validation", &["true"]),
                not_in("name", &["cert-manager"]),
            ]);
            json!([{"name": "webhook.cert-manager.io", "failurePolicy": "Fail", "namespaceSelector": selector,
                "rules": [{"apiGroups": ["cert-manager.io", "acme.cert-manager.io"], "apiVersions": ["v1alpha2"],
                    "operations": WRITE, "resources": ["*/*"]}]}])
        },
        expected: &[SAFE_RULES],
    },
    Project {
        name: "Gatekeeper",
        source: "open-policy-agent/gatekeeper v3.21.0, deploy/gatekeeper.yaml",
        namespace: "gatekeeper-system",
        pod_labels: &[
            ("control-plane", "controller-manager"),
            ("gatekeeper.sh/operation", "webhook"),
        ],
        namespace_labels: &[("admission.gatekeeper.sh/ignore", "no-self-managing")],
        webhooks: || gatekeeper("Ignore"),
        expected: &[SAFE_IGNORE, SAFE_RULES],
    },
    Project {
        name: "Gatekeeper with failurePolicy Fail",
        source: "open-policy-agent/gatekeeper v3.21.0, the chart's value validatingWebhookFailurePolicy",
        namespace: "gatekeeper-system",
        pod_labels: &[
            ("control-plane", "controller-manager"),
            ("gatekeeper.sh/operation", "webhook"),
        ],
        namespace_labels: &[("admission.gatekeeper.sh/ignore", "no-self-managing")],
        webhooks: || gatekeeper("Fail"),
        expected: &[
            "deadlock: it is called for apiservices, certificatesigningrequests, clusterrolebindings",
            SAFE_RULES,
        ],
    },
    Project {
        name: "ingress-nginx",
        source: "kubernetes/ingress-nginx 1.5.2, deploy/static/provider/cloud/deploy.yaml",
        namespace: "ingress-nginx",
        pod_labels: &[("app.kubernetes.io/name", "ingress-nginx")],
        namespace_labels: &[],
        webhooks: || {
            json!([{"name": "validate.nginx.ingress.kubernetes.io", "failurePolicy": "Fail",
                "rules": rule("networking.k8s.io", &["ingresses"], WRITE)}])
        },
        expected: &[SAFE_RULES],
    },
    Project {
        name: "Istio",
        source: "istio/istio, manifests/charts/istio-control/istio-discovery/templates/mutatingwebhook.yaml, 0681dccd896a, \
            without a revision",
        namespace: "istio-system",
        pod_labels: &[("app", "istiod")],
        namespace_labels: &[],
        webhooks: || {
            json!([{"name": "sidecar-injector.istio.io", "failurePolicy": "Fail", "rules": rule("", &["pods"], CREATE),
                "namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}}}])
        },
        expected: &[SAFE_RULES],
    },
    Project {
        name: "Linkerd with failurePolicy Fail",
        source: "linkerd/linkerd2, charts/linkerd-control-plane/templates/proxy-injector-rbac.yaml, 0a7101a25a32, with the \
            selectors of its values.yaml and the failurePolicy of its values-ha.yaml",
        namespace: "linkerd",
        pod_labels: &[("linkerd.io/control-plane-component", "proxy-injector")],
        namespace_labels: &[],
        webhooks: || {
            json!([{"name": "linkerd-proxy-injector.linkerd.io", "failurePolicy": "Fail", "timeoutSeconds": 10,
            "rules": rule("", &["pods", "services"], CREATE),
            "namespaceSelector": all_of(&[
                not_in("config.linkerd.io/admission-webhooks", &["disabled"]),
                not_in("kubernetes.io/metadata.name", &["kube-system", "cert-manager"]),
            ]),
            "objectSelector": all_of(&[
                absent("linkerd.io/control-plane-component"), absent("linkerd.io/cni-resource"),
            ])}])
        },
        expected: &[SAFE_RULES],
    },
    Project {
        name: "Kueue",
        source: "kubernetes-sigs/kueue, config/components/webhook/manifests.yaml, 014762081c48, without the patches of \
            config/default",
        namespace: "kueue-system",
        pod_labels: &[("control-plane", "controller-manager")],
        namespace_labels: &[],
        webhooks: || {
            json!([
                {"name": "mpod.kb.io", "failurePolicy": "Fail", "rules": rule("", &["pods"], CREATE)},
                {"name": "mjob.kb.io", "failurePolicy": "Fail", "rules": rule("batch", &["jobs"], CREATE)},
                {"name": "vworkload.kb.io", "failurePolicy": "Fail",
                    "rules": rule("kueue.x-k8s.io", &["workloads", "workloads/status"], WRITE)},
            ])
        },
        expected: &[
            "deadlock: it is called for pods, and its server is behind",
            SAFE_RULES,
            SAFE_RULES,
        ],
    },
    Project {
        name: "MetalLB",
        source: "metallb/metallb, config/webhook/manifests.yaml, 2e1b7f629377",
        namespace: "metallb-system",
        pod_labels: &[("component", "controller")],
        namespace_labels: &[],
        webhooks: || {
            json!([{"name": "bgppeersvalidationwebhook.metallb.io", "failurePolicy": "Fail",
                "rules": rule("metallb.io", &["bgppeers"], WRITE)}])
        },
        expected: &[SAFE_RULES],
    },
    Project {
        name: "Volcano",
        source: "volcano-sh/volcano, installer/helm/chart/volcano/templates/webhooks.yaml, 0b05bb71f19c",
        namespace: "volcano-system",
        pod_labels: &[("app", "volcano-admission")],
        namespace_labels: &[],
        webhooks: || {
            json!([{"name": "mutatepod.volcano.sh", "failurePolicy": "Fail", "timeoutSeconds": 10,
            "rules": rule("", &["pods"], CREATE),
            "namespaceSelector": all_of(&[
                not_in("kubernetes.io/metadata.name", &["volcano-system", "kube-system"]),
            ])}])
        },
        expected: &[SAFE_RULES],
    },
    Project {
        name: "Cluster API",
        source: "kubernetes-sigs/cluster-api v1.14.2, core/config/webhook/manifests.yaml",
        namespace: "capi-system",
        pod_labels: &[("cluster.x-k8s.io/provider", "cluster-api")],
        namespace_labels: &[],
        webhooks: || {
            json!([
                {"name": "validation.cluster.cluster.x-k8s.io", "failurePolicy": "Fail",
                    "rules": rule("cluster.x-k8s.io", &["clusters"], &["CREATE", "UPDATE", "DELETE"])},
                // The same resource name as in networking.k8s.io, in Cluster API's group.
                {"name": "validation.ipaddress.ipam.cluster.x-k8s.io", "failurePolicy": "Fail",
                    "rules": rule("ipam.cluster.x-k8s.io", &["ipaddresses"], &["CREATE", "UPDATE", "DELETE"])},
            ])
        },
        expected: &[SAFE_RULES, SAFE_RULES],
    },
    Project {
        name: "Amazon EKS Pod Identity Webhook",
        source: "aws/amazon-eks-pod-identity-webhook, deploy/mutatingwebhook.yaml, d3d1b4cbc58e",
        namespace: "default",
        pod_labels: &[("app", "pod-identity-webhook")],
        namespace_labels: &[],
        webhooks: || {
            json!([{"name": "pod-identity-webhook.amazonaws.com", "failurePolicy": "Ignore",
                "rules": rule("", &["pods"], CREATE)}])
        },
        expected: &[SAFE_IGNORE],
    },
    Project {
        name: "OpenTelemetry Operator",
        source: "open-telemetry/opentelemetry-operator, config/webhook/manifests.yaml, 122fbbcbcda5",
        namespace: "opentelemetry-operator-system",
        pod_labels: &[("app.kubernetes.io/name", "opentelemetry-operator")],
        namespace_labels: &[],
        webhooks: || {
            json!([
                {"name": "mpod.kb.io", "failurePolicy": "Ignore", "rules": rule("", &["pods"], WRITE)},
                {"name": "minstrumentation.kb.io", "failurePolicy": "Fail",
                    "rules": rule("opentelemetry.io", &["instrumentations"], WRITE)},
            ])
        },
        expected: &[SAFE_IGNORE, SAFE_RULES],
    },
    Project {
        name: "AWS Load Balancer Controller",
        source: "kubernetes-sigs/aws-load-balancer-controller, helm/aws-load-balancer-controller/templates/webhook.yaml, \
            010160b8cc8b",
        namespace: "kube-system",
        pod_labels: &[("app.kubernetes.io/name", "aws-load-balancer-controller")],
        namespace_labels: &[],
        webhooks: || {
            let own = not_in("app.kubernetes.io/name", &["aws-load-balancer-controller"]);
            let inject = "elbv2.k8s.aws/alb-target-control-agent-inject";
            json!([
                {"name": "mpod.elbv2.k8s.aws", "failurePolicy": "Fail", "rules": rule("", &["pods"], CREATE),
                    "namespaceSelector": all_of(&[
                        json!({"key": "elbv2.k8s.aws/pod-readiness-gate-inject", "operator": "In", "values": ["enabled"]}),
                    ]),
                    "objectSelector": all_of(std::slice::from_ref(&own))},
                // Selects Pods of kube-system by a label that none of them has.
                {"name": "alb-target-control.object.elbv2.k8s.aws", "failurePolicy": "Fail",
                    "rules": rule("", &["pods"], CREATE),
                    "namespaceSelector": all_of(&[absent("elbv2.k8s.aws/alb-target-control-agent-injection")]),
                    "objectSelector": all_of(&[own, json!({"key": inject, "operator": "In", "values": ["true"]})])},
            ])
        },
        expected: &[SAFE_RULES, SAFE_RULES],
    },
];

fn labels(pairs: &[(&str, &str)]) -> Labels {
    let owned = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    owned.collect()
}

#[test]
fn the_webhooks_of_well_known_projects_are_judged() {
    assert!(PROJECTS.len() >= 10);
    for project in PROJECTS {
        let mut facts = healthy();
        let Reading::Read(namespaces) = &mut facts.namespaces else {
            panic!("namespaces");
        };
        let mut own = labels(project.namespace_labels);
        own.insert(
            "kubernetes.io/metadata.name".to_owned(),
            project.namespace.to_owned(),
        );
        namespaces.insert(project.namespace.to_owned(), own);
        let webhooks = (project.webhooks)();
        let webhooks = webhooks.as_array().expect("webhooks").iter().map(|webhook| {
            let mut webhook = webhook.clone();
            webhook["clientConfig"] = json!({"service": {"namespace": project.namespace, "name": "webhook"}});
            webhook["admissionReviewVersions"] = json!(["v1"]);
            webhook["sideEffects"] = json!("None");
            let parsed = serde_json::from_value(webhook).expect("a webhook");
            Webhook::from_validating("project", parsed).expect("a client configuration")
        });
        let webhooks: Vec<Webhook> = webhooks.collect();
        let service = webhooks[0].backend.service().expect("a Service").clone();
        let pod = BackendPod {
            labels: labels(project.pod_labels),
            node: "w1".to_owned(),
            ready: true,
        };
        let behind = Service {
            pods: Some(vec![pod]),
            ..Service::default()
        };
        facts.services.insert(service, Reading::Read(Some(behind)));
        assert_eq!(webhooks.len(), project.expected.len(), "{}", project.name);
        for (webhook, expected) in webhooks.iter().zip(project.expected) {
            let verdict = match judge(webhook, &facts) {
                DeadlockRisk::Safe(why) => format!("safe: {why}"),
                DeadlockRisk::Deadlock(why) => format!("deadlock: {why}"),
                DeadlockRisk::Unknown(why) => format!("unknown: {why}"),
            };
            assert!(
                verdict.starts_with(expected),
                "{}: {}: {verdict}",
                project.name,
                webhook.name
            );
        }
    }
}
