//! Servers besides webhooks on which API servers depend: aggregated APIs, conversion webhooks, encryption providers, and servers
//! that authenticate or authorize users.

use std::collections::BTreeSet;

use crate::{
    audit::{
        Assumptions, AuditCheck, Evidence, Facts,
        endpoint::host_of,
        evidence::{either, require},
        facts::{Backend, Conversion, Node, PodContainer},
        images::is_service_host,
        static_pods::{PODS, control_plane_nodes, pod_of},
    },
    snapshot::{Reading, workload::Component},
};

pub const CHECKS: &[AuditCheck] = &[
    AuditCheck {
        id: "api-services-unavailable",
        requirement: "each APIService with a server in the cluster is available",
        remedy: "repair the server, or delete the APIService: while an APIService is unavailable, namespaces are not deleted and \
            garbage is not collected",
        function: check_api_services_unavailable,
    },
    AuditCheck {
        id: "conversion-webhooks-fragile",
        requirement: "each conversion webhook that runs in the cluster has ready Pods on two Nodes",
        remedy: "run two Pods on different Nodes; while the webhook does not respond, the custom resource can neither be read \
            nor written in its other versions",
        function: check_conversion_webhooks_fragile,
    },
    AuditCheck {
        id: "encryption-provider-unknown",
        requirement: "API servers use no encryption provider (KMS) that runs in the cluster",
        remedy: "run the KMS plugin as a static Pod or a service of each control plane Node; an API server that cannot reach it \
            cannot read Secrets, and might not start",
        function: check_encryption_provider_unknown,
    },
    AuditCheck {
        id: "authentication-in-cluster",
        requirement: "API servers need no server in the cluster to authenticate or authorize users",
        remedy: "run the server outside of the cluster, or as a static Pod of each control plane Node; until then, keep a \
            kubeconfig of the group system:masters, which needs no such server: /etc/kubernetes/super-admin.conf of the first Node, \
            or the Secret CLUSTER-kubeconfig of Cluster API",
        function: check_authentication_in_cluster,
    },
];

fn check_api_services_unavailable(facts: &Facts, _: Assumptions) -> Evidence {
    either(require(&facts.api_services, "the APIServices").map(|services| {
        let mut evidence = Evidence::default();
        for service in services {
            let named = format!("APIService {} of {}", service.name, service.service);
            match service.available {
                Some(true) => {}
                Some(false) => evidence.fail(format!("{named} is not available: {}", service.message)),
                None => evidence.unknown(format!("{named} does not say whether it is available")),
            }
        }
        evidence.pass(match services.len() {
            0 => "no APIService has a server in the cluster".to_owned(),
            count => format!(
                "{count} APIServices have a server in the cluster and are available; they return after a restart only when their \
                 Pods run"
            ),
        });
        evidence
    }))
}

fn check_conversion_webhooks_fragile(facts: &Facts, _: Assumptions) -> Evidence {
    either(conversion_webhooks_fragile(facts))
}

fn conversion_webhooks_fragile(facts: &Facts) -> Result<Evidence, Evidence> {
    let conversions = require(&facts.conversions, "the CustomResourceDefinitions")?;
    let needed: Vec<&Conversion> = conversions
        .iter()
        .filter(|conversion| conversion.is_needed)
        .collect();
    let mut evidence = Evidence::default();
    for conversion in &needed {
        let crd = &conversion.crd;
        let name = match &conversion.backend {
            Backend::Service(name) => name,
            Backend::Url(url) if is_service_host(host_of(url)) => {
                evidence.unknown(format!("{crd} is converted at {url}, which names a Service"));
                continue;
            }
            Backend::Url(_) => continue,
        };
        match facts.services.get(name) {
            Some(Reading::Read(Some(service))) => {
                let Some(pods) = &service.pods else {
                    evidence.unknown(format!(
                        "{crd}: {name} has no selector, so the servers behind it are unknown"
                    ));
                    continue;
                };
                let ready: BTreeSet<&str> = pods
                    .iter()
                    .filter(|pod| pod.ready)
                    .map(|pod| pod.node.as_str())
                    .collect();
                match ready.len() {
                    0 => evidence.fail(format!("{crd}: no Pod behind {name} is ready")),
                    1 => evidence.fail(format!("{crd}: the ready Pods behind {name} run on one Node")),
                    _ => {}
                }
            }
            Some(Reading::Read(None)) => evidence.fail(format!("{crd}: {name} does not exist")),
            Some(Reading::Failed(failure) | Reading::OutOfReach(failure)) => {
                evidence.unknown(format!("{crd}: {}", failure.text()));
            }
            Some(Reading::Excluded { .. } | Reading::NotYet) | None => {
                evidence.unknown(format!("{crd}: {name} was not read"));
            }
        }
    }
    evidence.pass(format!(
        "{} custom resources need a conversion webhook",
        needed.len()
    ));
    Ok(evidence)
}

/// The container of an API server, and its Node.
type ApiServer<'f> = (&'f Node, &'f PodContainer);

/// The API server of each control plane Node whose Pod shows its flags, and evidence about the others.
fn api_servers(facts: &Facts) -> Result<(Vec<ApiServer<'_>>, Evidence), Evidence> {
    let nodes = control_plane_nodes(facts)?;
    require(&facts.system_pods, PODS)?;
    let (mut found, mut evidence) = (Vec::new(), Evidence::default());
    for node in nodes {
        let pod = pod_of(facts, Component::ApiServer, node);
        let container = pod.and_then(|pod| pod.container(Component::ApiServer.as_str()));
        match container.filter(|container| container.shows_flags()) {
            Some(container) => found.push((node, container)),
            None => evidence.unknown(format!("the API server of Node {} shows no flags", node.name)),
        }
    }
    Ok((found, evidence))
}

fn check_encryption_provider_unknown(facts: &Facts, _: Assumptions) -> Evidence {
    either(encryption_provider_unknown(facts))
}

fn encryption_provider_unknown(facts: &Facts) -> Result<Evidence, Evidence> {
    const FLAG: &str = "--encryption-provider-config";
    let (servers, mut evidence) = api_servers(facts)?;
    for (node, container) in servers {
        match container.flag(FLAG) {
            Some(file) => evidence.unknown(format!(
                "the API server of Node {} reads {FLAG}={file}, which cannot be read through the API",
                node.name
            )),
            None => evidence.pass(format!(
                "the API server of Node {} uses no encryption provider",
                node.name
            )),
        }
    }
    Ok(evidence)
}

/// The flags that name a file with the address of a server.
const FILES: [&str; 5] = [
    "--authentication-config",
    "--authentication-token-webhook-config-file",
    "--authorization-config",
    "--authorization-webhook-config-file",
    "--egress-selector-config-file",
];

fn check_authentication_in_cluster(facts: &Facts, _: Assumptions) -> Evidence {
    either(authentication_in_cluster(facts))
}

fn authentication_in_cluster(facts: &Facts) -> Result<Evidence, Evidence> {
    const ISSUER: &str = "--oidc-issuer-url";
    let (servers, mut evidence) = api_servers(facts)?;
    for (node, container) in servers {
        if let Some(url) = container.flag(ISSUER) {
            let host = host_of(url);
            let services = facts.services.values();
            let mut services = services.filter_map(|service| service.value()?.as_ref());
            if is_service_host(host)
                || services.any(|service| service.cluster_ips.iter().any(|ip| ip == host))
            {
                evidence.fail(format!(
                    "the API server of Node {} asks {url}, which is a Service",
                    node.name
                ));
            } else {
                evidence.unknown(format!(
                    "the API server of Node {} asks {url}; whether this server runs in the cluster is unknown",
                    node.name
                ));
            }
        }
        for flag in FILES {
            if let Some(file) = container.flag(flag) {
                evidence.unknown(format!(
                    "the API server of Node {} reads {flag}={file}, which cannot be read through the API",
                    node.name
                ));
            }
        }
        evidence.pass(format!(
            "the API server of Node {} asks no other server to authenticate or authorize users",
            node.name
        ));
    }
    Ok(evidence)
}

#[cfg(test)]
pub(super) mod test_cases {
    use crate::audit::{
        facts::{ApiService, Backend, BackendPod, Conversion, Service, ServiceName},
        tests::{Case, failed, service},
    };
    use crate::snapshot::Reading;

    fn api_service(available: Option<bool>) -> ApiService {
        ApiService {
            name: "v1beta1.metrics.k8s.io".to_owned(),
            service: metrics(),
            available,
            message: "no response from https://10.96.3.4:443".to_owned(),
        }
    }

    fn metrics() -> ServiceName {
        ServiceName {
            namespace: "kube-system".to_owned(),
            name: "metrics-server".to_owned(),
        }
    }

    fn converted(facts: &mut crate::audit::Facts, nodes: &[&str], is_needed: bool) {
        let name = ServiceName {
            namespace: "capi-system".to_owned(),
            name: "capi-webhook-service".to_owned(),
        };
        facts.conversions = Reading::Read(vec![Conversion {
            crd: "clusters.cluster.x-k8s.io".to_owned(),
            backend: Backend::Service(name.clone()),
            is_needed,
        }]);
        let pods = nodes.iter().map(|node| BackendPod {
            node: (*node).to_owned(),
            ready: true,
            ..BackendPod::default()
        });
        let found = Service {
            pods: Some(pods.collect()),
            ..service()
        };
        facts.services.insert(name, Reading::Read(Some(found)));
    }

    pub(crate) const CASES: &[Case] = &[
        ("api-services-unavailable", "none", |_| {}),
        ("api-services-unavailable", "one is available", |facts| {
            facts.api_services = Reading::Read(vec![api_service(Some(true))]);
        }),
        ("api-services-unavailable", "one is not", |facts| {
            facts.api_services = Reading::Read(vec![api_service(Some(false)), api_service(None)]);
        }),
        ("api-services-unavailable", "unread", |facts| {
            facts.api_services = failed("APIService");
        }),
        ("conversion-webhooks-fragile", "none", |_| {}),
        ("conversion-webhooks-fragile", "on two Nodes", |facts| {
            converted(facts, &["w1", "w2"], true);
        }),
        ("conversion-webhooks-fragile", "on one Node", |facts| {
            converted(facts, &["w1", "w1"], true);
        }),
        ("conversion-webhooks-fragile", "of a single version", |facts| {
            converted(facts, &["w1"], false);
        }),
        ("conversion-webhooks-fragile", "no ready Pod", |facts| {
            converted(facts, &[], true);
        }),
        ("conversion-webhooks-fragile", "no Service", |facts| {
            converted(facts, &[], true);
            facts
                .services
                .values_mut()
                .for_each(|service| *service = Reading::Read(None));
        }),
        (
            "conversion-webhooks-fragile",
            "a Service without a selector",
            |facts| {
                converted(facts, &[], true);
                facts
                    .services
                    .values_mut()
                    .for_each(|service| *service = Reading::Read(Some(Service::default())));
            },
        ),
        ("conversion-webhooks-fragile", "unread Service", |facts| {
            converted(facts, &[], true);
            facts
                .services
                .values_mut()
                .for_each(|service| *service = failed("Service"));
        }),
        ("encryption-provider-unknown", "none", |_| {}),
        ("encryption-provider-unknown", "a file", |facts| {
            facts.set_flag(
                "kube-apiserver-n1",
                "--encryption-provider-config",
                "/etc/kubernetes/kms.yaml",
            );
        }),
        ("authentication-in-cluster", "none", |_| {}),
        ("authentication-in-cluster", "an issuer in the cluster", |facts| {
            facts.set_flag(
                "kube-apiserver-n1",
                "--oidc-issuer-url",
                "https://dex.auth.svc:5556",
            );
        }),
        (
            "authentication-in-cluster",
            "an issuer elsewhere and a file",
            |facts| {
                facts.set_flag(
                    "kube-apiserver-n1",
                    "--oidc-issuer-url",
                    "https://login.example.com",
                );
                facts.set_flag(
                    "kube-apiserver-n2",
                    "--authorization-config",
                    "/etc/kubernetes/authz.yaml",
                );
            },
        ),
        ("authentication-in-cluster", "flags are not shown", |facts| {
            facts.pod("kube-apiserver-n1").containers[0].command.clear();
        }),
    ];
}
