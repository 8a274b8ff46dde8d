//! The decision about one webhook.
//!
//! | failurePolicy | is called for a critical request | its server | verdict |
//! |---|---|---|---|
//! | Ignore | | | safe |
//! | Fail | no | | safe |
//! | Fail | yes, unless a matchCondition excludes it | | unknown, because the conditions are not evaluated |
//! | Fail | yes | a Service, or a URL of a Service | deadlock |
//! | Fail | yes | a loopback URL, with a static Pod on each control plane Node | safe |
//! | Fail | yes | a loopback URL, with a static Pod on some of them | deadlock |
//! | Fail | yes | a loopback URL, without a static Pod | unknown, because another program may listen |
//! | Fail | yes | any other URL | unknown, because the server may depend on the cluster |

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::{
    audit::{
        Facts,
        endpoint::host_of,
        evidence::some_of,
        facts::{Backend, BackendPod, Labels, Node, Webhook},
        images::is_service_host,
        webhooks::{
            critical::{CRITICAL, CriticalResource, OWN, Objects, Scope},
            matching::{matches_rules, names_everything, selects},
        },
    },
    snapshot::Reading,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadlockRisk {
    Safe(&'static str),
    Deadlock(String),
    Unknown(String),
}

/// The longest `timeoutSeconds` that is not reported. Components give up their leadership if they cannot renew it for ten seconds.
const MAX_TIMEOUT_SECONDS: i32 = 10;

/// The maximum number of critical resources in a message.
const MAX_NAMED: usize = 3;

/// Where the server of a webhook runs.
enum Place<'f> {
    InCluster { namespace: Option<String>, what: String },
    Loopback { port: i32 },
    Elsewhere { host: &'f str },
}

/// Decides whether a webhook can prevent a restart.
pub fn judge(webhook: &Webhook, facts: &Facts) -> DeadlockRisk {
    if !webhook.fails {
        return DeadlockRisk::Safe("failurePolicy is Ignore");
    }
    let place = place(&webhook.backend, facts);
    let own_namespace = match &place {
        Place::InCluster { namespace, .. } => namespace.clone(),
        Place::Loopback { .. } | Place::Elsewhere { .. } => None,
    };
    let called = match critical_requests(webhook, facts, own_namespace.as_deref()) {
        Ok(called) => called,
        Err(why) => return DeadlockRisk::Unknown(why),
    };
    let Some(first) = called.first() else {
        return DeadlockRisk::Safe("it is called for no request that a restart needs");
    };
    let names: BTreeSet<&str> = called.iter().map(|target| target.resource).collect();
    let requests = format!("it is called for {}", some_of(names.iter().copied(), MAX_NAMED));
    if webhook.match_conditions > 0 {
        return DeadlockRisk::Unknown(format!(
            "{requests}, unless one of its {} matchConditions excludes them",
            webhook.match_conditions
        ));
    }
    match place {
        Place::InCluster { what, .. } => DeadlockRisk::Deadlock(format!(
            "{requests}, and its server is behind {what}: until the server runs, {}",
            first.needed_for
        )),
        Place::Loopback { port } => {
            let (server_count, bare_nodes) = static_servers(facts, port);
            match (server_count, bare_nodes.as_slice()) {
                (1.., []) => DeadlockRisk::Safe("a static Pod on each control plane Node serves it"),
                (0, _) => DeadlockRisk::Unknown(format!(
                    "{requests}, at port {port} of each control plane Node, where no static Pod listens"
                )),
                (_, bare_nodes) => DeadlockRisk::Deadlock(format!(
                    "{requests}, at port {port} of each control plane Node, but no static Pod listens there on {}",
                    some_of(bare_nodes.iter().map(|node| node.name.as_str()), MAX_NAMED)
                )),
            }
        }
        Place::Elsewhere { host } => DeadlockRisk::Unknown(format!(
            "{requests}, at {host}; whether this server starts without the cluster is unknown"
        )),
    }
}

/// Why requests to the webhook can fail even without a restart of the whole cluster. Fails if the Service could not be read.
pub fn fragilities(webhook: &Webhook, facts: &Facts) -> Result<Vec<String>, String> {
    let mut reasons = Vec::new();
    if names_everything(&webhook.rules) {
        reasons.push(
            "its rules name all resources (\"*\"), including those of future Kubernetes versions".to_owned(),
        );
    }
    if webhook.timeout_seconds > MAX_TIMEOUT_SECONDS {
        reasons.push(format!("its timeoutSeconds is {}", webhook.timeout_seconds));
    }
    match &webhook.backend {
        Backend::Service(name) => match facts.services.get(name) {
            Some(Reading::Read(Some(service))) => match &service.pods {
                Some(pods) => reasons.extend(service_fragilities(pods, service.budgets)),
                None => {
                    return Err(format!(
                        "{name} has no selector, so the servers behind it are unknown"
                    ));
                }
            },
            Some(Reading::Read(None)) => reasons.push(format!("{name} does not exist")),
            Some(Reading::Failed(failure) | Reading::OutOfReach(failure)) => return Err(failure.text()),
            Some(Reading::Excluded { .. } | Reading::NotYet) | None => {
                return Err(format!("{name} was not read"));
            }
        },
        Backend::Url(url) => {
            if let Place::Loopback { port } = place(&webhook.backend, facts) {
                let (server_count, bare_nodes) = static_servers(facts, port);
                if server_count > 0 && !bare_nodes.is_empty() {
                    let nodes = some_of(bare_nodes.iter().map(|node| node.name.as_str()), MAX_NAMED);
                    reasons.push(format!("no static Pod serves {url} on {nodes}"));
                }
            }
        }
    }
    Ok(reasons)
}

fn service_fragilities(pods: &[BackendPod], budgets: usize) -> Vec<String> {
    let ready: Vec<_> = pods.iter().filter(|pod| pod.ready).collect();
    let nodes: BTreeSet<&str> = ready.iter().map(|pod| pod.node.as_str()).collect();
    let mut reasons = Vec::new();
    match (ready.len(), nodes.len()) {
        (0, _) => reasons.push("no Pod behind its Service is ready".to_owned()),
        (1, _) => reasons.push("only one Pod behind its Service is ready".to_owned()),
        (count, 1) => reasons.push(format!("all {count} Pods behind its Service run on one Node")),
        _ => {}
    }
    if budgets == 0 && !ready.is_empty() {
        reasons.push("no PodDisruptionBudget protects its Pods".to_owned());
    }
    reasons
}

fn place<'f>(backend: &'f Backend, facts: &Facts) -> Place<'f> {
    let url = match backend {
        Backend::Service(name) => {
            return Place::InCluster {
                namespace: Some(name.namespace.clone()),
                what: name.to_string(),
            };
        }
        Backend::Url(url) => url,
    };
    let host = host_of(url);
    let service = facts.services.iter().find(|(_, service)| {
        let service = service.value().and_then(Option::as_ref);
        service.is_some_and(|service| service.cluster_ips.iter().any(|address| address == host))
    });
    if let Some((name, _)) = service {
        return Place::InCluster {
            namespace: Some(name.namespace.clone()),
            what: name.to_string(),
        };
    }
    if is_service_host(host) {
        return Place::InCluster {
            namespace: host.split('.').nth(1).map(str::to_owned),
            what: format!("{host}, which is a Service"),
        };
    }
    let is_loopback = host
        .parse::<std::net::IpAddr>()
        .map_or(host == "localhost", |address| address.is_loopback());
    if is_loopback {
        return Place::Loopback { port: port_of(url) };
    }
    Place::Elsewhere { host }
}

/// The port in a URL. 443 if it has none.
fn port_of(url: &str) -> i32 {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or_default();
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    port.and_then(|port| port.parse().ok()).unwrap_or(443)
}

/// The number of control plane Nodes on which a static Pod of the host network listens on a port, and the other Nodes.
fn static_servers(facts: &Facts, port: i32) -> (usize, Vec<&Node>) {
    let nodes = facts.control_plane_nodes().unwrap_or_default();
    let listens = |node: &&Node| {
        let mut pods = facts.static_pods_on(&node.name);
        pods.any(|pod| {
            pod.host_network
                && pod.ready
                && pod
                    .containers
                    .iter()
                    .any(|container| container.ports.contains(&port))
        })
    };
    let (servers, bare_nodes): (Vec<&Node>, Vec<&Node>) = nodes.into_iter().partition(listens);
    (servers.len(), bare_nodes)
}

/// The critical resources for which the API server calls the webhook, if no `matchCondition` excludes the request. Fails if the
/// webhook's `namespaceSelector` cannot be evaluated, because the namespaces could not be read.
fn critical_requests(
    webhook: &Webhook,
    facts: &Facts,
    own_namespace: Option<&str>,
) -> Result<Vec<&'static CriticalResource>, String> {
    let mut called = Vec::new();
    for resource in CRITICAL {
        if !matches_rules(&webhook.rules, resource) {
            continue;
        }
        let is_called = match resource.scope {
            Scope::Cluster => selects_object(webhook, resource, facts, ""),
            Scope::Namespaces(namespaces) => {
                let mut is_called = false;
                for namespace in namespaces {
                    let namespace = match (*namespace, own_namespace) {
                        (OWN, None) => continue,
                        (OWN, Some(own)) => own,
                        (namespace, _) => namespace,
                    };
                    is_called |= selects_namespace(webhook, facts, namespace)?
                        && selects_object(webhook, resource, facts, namespace);
                }
                is_called
            }
        };
        if is_called {
            called.push(resource);
        }
    }
    Ok(called)
}

/// The label with which Kubernetes marks each namespace with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

fn selects_namespace(webhook: &Webhook, facts: &Facts, namespace: &str) -> Result<bool, String> {
    if webhook.namespace_selector == LabelSelector::default() {
        return Ok(true);
    }
    let known = match &facts.namespaces {
        Reading::Read(namespaces) => namespaces.get(namespace),
        Reading::Failed(failure) | Reading::OutOfReach(failure) => {
            return Err(format!(
                "its namespaceSelector cannot be evaluated: {}",
                failure.text()
            ));
        }
        Reading::Excluded { .. } | Reading::NotYet => {
            return Err("its namespaceSelector cannot be evaluated: the namespaces were not read".to_owned());
        }
    };
    let by_name: Labels = [(NAME_LABEL.to_owned(), namespace.to_owned())].into();
    Ok(selects(&webhook.namespace_selector, known.unwrap_or(&by_name)))
}

/// Whether the selector for objects selects one of the objects that a restart writes.
fn selects_object(webhook: &Webhook, resource: &CriticalResource, facts: &Facts, namespace: &str) -> bool {
    let bootstrap_roles = Labels::from([(
        "kubernetes.io/bootstrapping".to_owned(),
        "rbac-defaults".to_owned(),
    )]);
    let labels: Vec<&Labels> = match resource.objects {
        Objects::WithoutLabels => Vec::new(),
        Objects::BootstrapRoles => vec![&bootstrap_roles],
        Objects::Nodes => {
            let nodes = facts.nodes.value().into_iter().flatten();
            nodes.map(|node| &node.labels).collect()
        }
        Objects::Pods => {
            let of_system = facts.system_pods.value().into_iter().flatten();
            let of_system = of_system
                .filter(|pod| pod.namespace == namespace)
                .map(|pod| &pod.labels);
            let own = webhook
                .backend
                .service()
                .and_then(|name| facts.services.get(name)?.value()?.as_ref());
            let is_own = webhook
                .backend
                .service()
                .is_some_and(|name| name.namespace == namespace);
            let own = own.filter(|_| is_own).and_then(|service| service.pods.as_ref());
            of_system
                .chain(own.into_iter().flatten().map(|pod| &pod.labels))
                .collect()
        }
    };
    let selector = &webhook.object_selector;
    if labels.is_empty() {
        return selects(selector, &Labels::new());
    }
    labels.into_iter().any(|labels| selects(selector, labels))
}
