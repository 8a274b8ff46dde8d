//! Compares the webhook configurations in `manifests/registration` with the kinds that rules check, and with our timeouts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use clap::Parser;
use kcp_rules::topics;
use serde_json::{Value, json};

use crate::{
    arguments::{Arguments, Command},
    cluster::SUPPORTED,
    hook::Hook,
    limits::LIVE_READ_TIMEOUT,
    review::{admission::ReviewedResource, decode::Request},
    testing::review,
};

/// The longest timeout: users wait for the write.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that live reads must leave for the connection, TLS and the answer.
const MARGIN: Duration = Duration::from_secs(2);

/// One entry of a webhook configuration.
struct Entry {
    hook: Hook,
    content: Value,
}

fn manifest(name: &str) -> Value {
    let path = format!("{}/../manifests/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn configuration(hook: Hook) -> Value {
    manifest(match hook {
        Hook::Mutate => "registration/mutatingwebhookconfiguration",
        Hook::Validate => "registration/validatingwebhookconfiguration",
    })
}

fn entries() -> Vec<Entry> {
    let hook_entries = |hook| {
        let webhooks = configuration(hook)["webhooks"].as_array().unwrap().clone();
        webhooks.into_iter().map(move |content| Entry { hook, content })
    };
    Hook::ALL.into_iter().flat_map(hook_entries).collect()
}

impl Entry {
    fn name(&self) -> &str {
        self.content["name"].as_str().unwrap()
    }

    /// The only rule of the entry.
    fn rule(&self) -> &Value {
        let rules = self.content["rules"].as_array().unwrap();
        assert_eq!(rules.len(), 1, "{}", self.name());
        &rules[0]
    }

    /// The only resource of the entry, and its subresource.
    fn resource(&self) -> (&str, &str) {
        let resources = self.rule()["resources"].as_array().unwrap();
        assert_eq!(resources.len(), 1, "{}", self.name());
        let resource = resources[0].as_str().unwrap();
        resource.split_once('/').unwrap_or((resource, ""))
    }

    fn operations(&self) -> BTreeSet<&str> {
        let operations = self.rule()["operations"].as_array().unwrap();
        operations
            .iter()
            .map(|operation| operation.as_str().unwrap())
            .collect()
    }

    fn target(&self) -> Option<ReviewedResource> {
        let (plural, sub_resource) = self.resource();
        let mut review = review("UPDATE", &Value::Null, &Value::Null);
        review["request"]["resource"] =
            json!({"group": self.rule()["apiGroups"][0], "version": "v1", "resource": plural});
        review["request"]["subResource"] = json!(sub_resource);
        let request = review["request"].to_string();
        ReviewedResource::from_request(&serde_json::from_str::<Request<'_>>(&request).unwrap())
    }
}

#[test]
fn every_entry_has_the_common_settings() {
    let mut names = BTreeSet::new();
    for entry in entries() {
        let Entry { hook, content } = &entry;
        let (name, rule) = (entry.name(), entry.rule());
        assert!(names.insert(name.to_owned()), "duplicate {name}");
        let (plural, sub_resource) = entry.resource();
        let prefix = match (sub_resource, entry.operations().contains("DELETE")) {
            ("", false) => String::new(),
            ("", true) => "deletion.".to_owned(),
            (sub_resource, _) => format!("{sub_resource}."),
        };
        let verb = hook.path().trim_start_matches('/');
        assert_eq!(name, format!("{prefix}{plural}.{verb}.kubectl-kcp.dev"));

        let service = json!({"namespace": "kcp-webhook-system", "name": "kcp-webhook", "path": hook.path()});
        assert_eq!(content["clientConfig"], json!({ "service": service }), "{name}");
        assert_eq!(content["admissionReviewVersions"], json!(["v1"]), "{name}");
        assert_eq!(content["matchPolicy"], "Equivalent", "{name}");
        assert_eq!(content["sideEffects"], "NoneOnDryRun", "{name}");
        let others = json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn",
            "values": ["kube-system"]}]});
        assert_eq!(content["namespaceSelector"], others, "{name}");
        assert_eq!(rule["scope"], "Namespaced", "{name}");
        let (group, versions) = match rule["apiGroups"].as_array().unwrap().as_slice() {
            [group] if group == "hive.openshift.io" => (group, json!(["v1"])),
            [group] => (group, json!([SUPPORTED[0]])),
            groups => panic!("{name}: {groups:?}"),
        };
        assert_eq!(rule["apiVersions"], versions, "{name} {group}");
        let timeout = Duration::from_secs(content["timeoutSeconds"].as_u64().unwrap());
        assert!(timeout <= LONGEST_TIMEOUT, "{name}");
        assert!(timeout >= LIVE_READ_TIMEOUT + MARGIN, "{name}");
    }
}

/// If the webhook is down, only writes that could do harm without a review must fail.
#[test]
fn only_writes_of_control_planes_fail_closed() {
    let closed: Vec<_> = entries()
        .iter()
        .filter(|entry| match entry.content["failurePolicy"].as_str().unwrap() {
            "Fail" => true,
            "Ignore" => false,
            other => panic!("{other}"),
        })
        .map(|entry| entry.name().to_owned())
        .collect();
    assert_eq!(
        closed,
        [
            "kubeadmcontrolplanes.mutate.kubectl-kcp.dev",
            "kubeadmcontrolplanes.validate.kubectl-kcp.dev",
            "scale.kubeadmcontrolplanes.validate.kubectl-kcp.dev",
            "kubeadmcontrolplanetemplates.validate.kubectl-kcp.dev",
        ]
    );
}

/// If a kind is not registered, its rules never run, and nothing reports it.
#[test]
fn registers_exactly_what_rules_check() {
    let mut checked: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for rule in topics::rules() {
        for kind in rule.kinds() {
            let operations = rule.operations.iter().map(|operation| operation.as_str());
            checked.entry(kind).or_default().extend(operations);
        }
    }
    for hook in Hook::ALL {
        let mut registered: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let entries = entries();
        for entry in entries.iter().filter(|entry| entry.hook == hook) {
            let kind = match entry.target().unwrap() {
                ReviewedResource::ControlPlane => "KubeadmControlPlane",
                ReviewedResource::Template => "KubeadmControlPlaneTemplate",
                ReviewedResource::Cluster => "Cluster",
                ReviewedResource::ClusterPool => "ClusterPool",
                ReviewedResource::Customization => "ClusterDeploymentCustomization",
                ReviewedResource::ClusterDeployment => "ClusterDeployment",
                ReviewedResource::ControlPlaneScale => {
                    assert_eq!(entry.operations(), ["UPDATE"].into());
                    continue;
                }
                ReviewedResource::Status | ReviewedResource::Canary => {
                    panic!("{} is not for a kind with rules", entry.name())
                }
            };
            registered.entry(kind).or_default().extend(entry.operations());
        }
        let mut expected = checked.clone();
        if hook == Hook::Mutate {
            // A topology has no defaults.
            expected.remove("Cluster");
            // A deletion needs no defaults, and Cluster API's webhooks do not check it earlier.
            for operations in expected.values_mut() {
                operations.remove("DELETE");
            }
        }
        assert_eq!(registered, expected, "{hook:?}");
        let scales = entries.iter().filter(|entry| {
            entry.hook == hook && entry.target() == Some(ReviewedResource::ControlPlaneScale)
        });
        assert_eq!(scales.count(), 1, "{hook:?}");
    }
}

#[test]
fn match_conditions_let_controllers_finish() {
    const NOT_DELETING: &str = "request.operation == 'CREATE' || !has(oldObject.metadata.deletionTimestamp)";
    for entry in entries() {
        let conditions: Vec<_> = entry.content["matchConditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|condition| {
                (
                    condition["name"].as_str().unwrap(),
                    condition["expression"].as_str().unwrap(),
                )
            })
            .collect();
        let about_spec = match entry.target().unwrap() {
            // Every write to it changes something.
            ReviewedResource::ControlPlaneScale => None,
            _ if entry.operations().contains("DELETE") => None,
            ReviewedResource::ClusterDeployment => Some("pool-reference-changes"),
            ReviewedResource::Cluster => Some("topology-changes"),
            _ => Some("spec-changes"),
        };
        let names: Vec<_> = conditions.iter().map(|(name, _)| *name).collect();
        let expected: Vec<_> = about_spec
            .map(|name| ["not-being-deleted", name])
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(names, expected, "{}", entry.name());
        for (name, expression) in conditions {
            match name {
                "not-being-deleted" => assert_eq!(expression, NOT_DELETING),
                "spec-changes" => assert!(
                    expression.contains("object.spec != oldObject.spec"),
                    "{expression}"
                ),
                "topology-changes" => assert!(
                    expression.contains("object.spec.topology[?key] != oldObject.?spec.?topology[?key]"),
                    "{expression}"
                ),
                _ => assert!(
                    expression.contains("object.spec.clusterPoolRef != oldObject.spec.clusterPoolRef"),
                    "{expression}"
                ),
            }
        }
    }
}

/// The API server calls mutating webhooks in order of their configurations' names. Cluster API's webhook fills in
/// replicas.
#[test]
fn is_called_before_cluster_apis_mutating_webhook() {
    let name = configuration(Hook::Mutate)["metadata"]["name"].clone();
    assert!(name.as_str().unwrap() < "capi-kubeadm-control-plane-mutating-webhook-configuration");
}

#[test]
fn the_deployment_lets_the_server_start_and_drain() {
    let deployment = manifest("base/deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments = container["args"].as_array().unwrap();
    let arguments = arguments.iter().map(|argument| argument.as_str().unwrap());
    let parsed = Arguments::try_parse_from(std::iter::once("kcp-webhook").chain(arguments)).unwrap();
    let Command::Serve(arguments) = parsed.command else {
        panic!("{parsed:?}")
    };
    let ports: Vec<_> = container["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| {
            (
                port["name"].as_str().unwrap(),
                port["containerPort"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        ports,
        [
            ("webhook", u64::from(arguments.secure_port)),
            ("health", u64::from(arguments.health_port))
        ]
    );
    assert_eq!(
        manifest("base/service")["spec"]["ports"][0]["targetPort"],
        "webhook"
    );
    let grace = Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().unwrap());
    assert!(grace > arguments.shutdown_delay + arguments.drain_timeout);
    // tests/server/memory.rs measures that the server stays below it.
    assert_eq!(container["resources"]["limits"]["memory"], "256Mi");
}
