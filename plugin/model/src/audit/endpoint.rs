//! How clients and kubelets find an API server after a restart.
//!
//! Airship's Promenade requires that the cluster depends on no external load balancer. Cluster API requires a stable control
//! plane endpoint, and most infrastructure providers create a load balancer for it. So `endpoint-external` fails by design in
//! the clusters of these providers.

use std::net::IpAddr;

use kcp_rules::api_proxy;

use crate::{
    audit::{
        Assumptions, AuditCheck, Evidence, Facts,
        evidence::{either, require, some_of},
        facts::{KubeadmSettings, Node},
        images::without_port,
        static_pods::{NODES, PODS, control_plane_nodes},
    },
    checks::workload::minor_version,
    snapshot::{Reading, workload::Component},
};

pub const CHECKS: &[AuditCheck] = &[
    AuditCheck {
        id: "endpoint-external",
        requirement: "static Pods on the Nodes serve the control plane endpoint, or kubelets do not need the endpoint, so the \
            cluster needs no external load balancer",
        remedy: "serve the endpoint from the Nodes, for example with kube-vip or HAProxy as static Pods; or accept that the \
            cluster comes back only after the load balancer or DNS server does; or let kubelets use a proxy on their own Node: \
            kubectl kcp generate api-proxy",
        function: check_endpoint_external,
    },
    AuditCheck {
        id: "kubelets-use-endpoint",
        requirement: "the kubelets of control plane Nodes use the API server of their own Node",
        remedy: "on each control plane Node, set server in /etc/kubernetes/kubelet.conf to the Node's own API server; kubeadm does \
            so from 1.31 on with the feature gate ControlPlaneKubeletLocalMode, and always from 1.36 on",
        function: check_kubelets_use_endpoint,
    },
];

const KUBEADM: &str = "the ConfigMap kubeadm-config";

/// Parts of the names or images of static Pods that serve a control plane endpoint.
const BALANCERS: [&str; 6] = ["kube-vip", "haproxy", "keepalived", "nginx", "envoy", "traefik"];

fn check_endpoint_external(facts: &Facts, _: Assumptions) -> Evidence {
    either(endpoint_external(facts))
}

fn endpoint_external(facts: &Facts) -> Result<Evidence, Evidence> {
    let control_plane = control_plane_nodes(facts)?;
    let nodes = require(&facts.nodes, NODES)?;
    require(&facts.system_pods, PODS)?;
    let kubeadm = require(&facts.kubeadm, KUBEADM)?;
    let endpoint = kubeadm
        .as_ref()
        .and_then(|settings| settings.control_plane_endpoint.clone())
        .unwrap_or_else(|| facts.server.clone());
    let host = host_of(&endpoint);
    let mut evidence = Evidence::default();
    let is_loopback = host
        .parse::<IpAddr>()
        .map_or(host == "localhost", |address| address.is_loopback());
    // On each Node, a loopback address reaches only that Node, so each Node needs a static Pod that serves the endpoint.
    let bare_nodes: Vec<&Node> = if is_loopback {
        nodes
            .iter()
            .filter(|node| balancer_on(facts, node).is_none())
            .collect()
    } else {
        control_plane
            .iter()
            .copied()
            .filter(|node| balancer_on(facts, node).is_none())
            .collect()
    };
    let owners: Vec<&Node> = control_plane
        .iter()
        .copied()
        .filter(|node| node.name == host || node.addresses.iter().any(|address| address == host))
        .collect();
    let names = |nodes: &[&Node]| some_of(nodes.iter().map(|node| node.name.as_str()), 3);
    if bare_nodes.is_empty() {
        let balancers = control_plane.iter().filter_map(|node| balancer_on(facts, node));
        evidence.pass(format!(
            "{endpoint} is served by static Pods: {}",
            some_of(balancers, 3)
        ));
    } else if have_workers_proxies(facts, nodes) {
        evidence.pass(format!(
            "the kubelet of each worker uses the proxy on its own Node; clients outside of the cluster use the endpoint {endpoint}"
        ));
    } else if is_loopback {
        evidence.fail(format!(
            "the endpoint {endpoint} is a loopback address, but no static Pod serves it on {}",
            names(&bare_nodes)
        ));
    } else if let ([owner], [_]) = (owners.as_slice(), control_plane.as_slice()) {
        evidence.pass(format!(
            "{endpoint} is an address of the only control plane Node, {}",
            owner.name
        ));
    } else if let [owner] = owners.as_slice() {
        evidence.fail(format!(
            "the endpoint {endpoint} is an address of Node {} only, so if this Node is lost, the endpoint is lost",
            owner.name
        ));
    } else {
        evidence.fail(format!(
            "no static Pod serves the endpoint {endpoint} on {}, so it depends on something outside of the cluster; Cluster \
             API requires a stable endpoint, and does not say what serves it",
            names(&bare_nodes)
        ));
    }
    Ok(evidence)
}

/// Whether there are workers, and each has the local proxy. Another check covers the kubelets of control plane Nodes, which use
/// the API server of their own Node.
fn have_workers_proxies(facts: &Facts, nodes: &[Node]) -> bool {
    let mut workers = nodes.iter().filter(|node| !node.is_control_plane).peekable();
    let has_proxy = |node: &Node| facts.static_pods_on(&node.name).any(|pod| is_proxy(&pod.name));
    workers.peek().is_some() && workers.all(has_proxy)
}

/// Whether this is the mirror Pod of the local proxy, which serves its own Node only.
fn is_proxy(pod: &str) -> bool {
    let node = pod.strip_prefix(api_proxy::NAME);
    node.is_some_and(|node| node.starts_with('-'))
}

/// The static Pod on a Node that can serve the endpoint.
fn balancer_on<'f>(facts: &'f Facts, node: &'f Node) -> Option<&'f str> {
    let is_component = |name: &str| Component::ALL.iter().any(|part| name.starts_with(part.as_str()));
    let mut pods = facts
        .static_pods_on(&node.name)
        .filter(|pod| !is_component(&pod.name) && !is_proxy(&pod.name));
    let pod = pods.find(|pod| {
        let images = pod.containers.iter().map(|container| container.image.as_str());
        images
            .chain([pod.name.as_str()])
            .any(|text| BALANCERS.iter().any(|balancer| text.contains(balancer)))
    })?;
    Some(&pod.name)
}

/// The host of an endpoint: `https://host:port`, `host:port` or a host.
pub fn host_of(endpoint: &str) -> &str {
    let authority = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    without_port(authority.split('/').next().unwrap_or_default())
}

/// The feature gate of kubeadm with which kubelets of control plane Nodes use their own API server. Off by default from 1.31,
/// on from 1.33, and always on from 1.36, where the gate no longer exists (kubeadm's `features.go`).
const LOCAL_MODE: &str = "ControlPlaneKubeletLocalMode";

fn check_kubelets_use_endpoint(facts: &Facts, _: Assumptions) -> Evidence {
    either(kubelets_use_endpoint(facts))
}

fn kubelets_use_endpoint(facts: &Facts) -> Result<Evidence, Evidence> {
    let kubeadm = require(&facts.kubeadm, KUBEADM)?;
    let Some(settings) = kubeadm else {
        return Err(Evidence::unknown_because(
            "the cluster has no ConfigMap kubeadm-config",
        ));
    };
    let version = settings.kubernetes_version.as_deref().unwrap_or_default();
    let Some(minor) = minor_version(version) else {
        return Err(Evidence::unknown_because(
            "the ConfigMap kubeadm-config names no Kubernetes version",
        ));
    };
    let has_machines = matches!(facts.machines, Reading::Read(Some(_)));
    let mut evidence = Evidence::default();
    match (uses_local_mode(settings, minor), has_machines) {
        (Err(why), _) => evidence.fail(why),
        // An upgrade by Cluster API replaces each Machine, so kubeadm of this version wrote the kubelet's configuration.
        (Ok(why), true) => evidence.pass(why),
        (Ok(why), false) => evidence.unknown(format!(
            "{why}, but Nodes that joined with an older kubeadm may use the endpoint, and kubelet.conf cannot be read through \
             the API"
        )),
    }
    Ok(evidence)
}

/// Whether kubeadm of this minor version lets kubelets use the local API server, and why.
fn uses_local_mode(settings: &KubeadmSettings, minor: (u64, u64)) -> Result<String, String> {
    let (_, number) = minor;
    match (number, settings.feature_gates.get(LOCAL_MODE)) {
        (36.., _) => Ok(format!(
            "kubeadm 1.{number} always lets kubelets use the local API server"
        )),
        (31..36, Some(true)) => Ok(format!("the feature gate {LOCAL_MODE} is on")),
        (33..36, None) => Ok(format!(
            "the feature gate {LOCAL_MODE} is on by default in kubeadm 1.{number}"
        )),
        (31..36, _) => Err(format!("the feature gate {LOCAL_MODE} is off")),
        _ => Err(format!(
            "kubeadm 1.{number} lets all kubelets use the control plane endpoint"
        )),
    }
}

#[cfg(test)]
pub(super) mod test_cases {
    use crate::audit::tests::{Case, failed};

    pub(crate) const CASES: &[Case] = &[
        ("endpoint-external", "kube-vip on each Node", |_| {}),
        ("endpoint-external", "a load balancer", |facts| {
            facts.pods().retain(|pod| !pod.name.starts_with("kube-vip"));
        }),
        ("endpoint-external", "kube-vip on two of three Nodes", |facts| {
            facts.pods().retain(|pod| pod.name != "kube-vip-n2");
        }),
        (
            "endpoint-external",
            "a proxy for kubelets on each worker",
            |facts| {
                facts.pods().retain(|pod| !pod.name.starts_with("kube-vip"));
                facts.run_static_pod("kcp-api-proxy", "w1");
            },
        ),
        (
            "endpoint-external",
            "a proxy for kubelets on the control plane only",
            |facts| {
                facts.pods().retain(|pod| !pod.name.starts_with("kube-vip"));
                for node in ["n1", "n2", "n3"] {
                    facts.run_static_pod("kcp-api-proxy", node);
                }
            },
        ),
        ("endpoint-external", "the first Node", |facts| {
            facts.pods().retain(|pod| !pod.name.starts_with("kube-vip"));
            facts.kubeadm().control_plane_endpoint = Some("10.0.0.1:6443".to_owned());
        }),
        ("endpoint-external", "a cluster of one Node", |facts| {
            facts.pods().retain(|pod| !pod.name.starts_with("kube-vip"));
            facts.nodes().retain(|node| node.name == "n1");
            facts.kubeadm().control_plane_endpoint = Some("10.0.0.1:6443".to_owned());
        }),
        (
            "endpoint-external",
            "a loopback address without a proxy on the worker",
            |facts| {
                facts.kubeadm().control_plane_endpoint = Some("127.0.0.1:7443".to_owned());
            },
        ),
        ("endpoint-external", "unread kubeadm-config", |facts| {
            facts.kubeadm = failed("ConfigMap/kubeadm-config");
        }),
        ("kubelets-use-endpoint", "1.36", |_| {}),
        ("kubelets-use-endpoint", "1.36 without Machines", |facts| {
            facts.without_management();
        }),
        ("kubelets-use-endpoint", "1.32 without the gate", |facts| {
            facts.kubeadm().kubernetes_version = Some("v1.32.4".to_owned());
        }),
        ("kubelets-use-endpoint", "1.32 with the gate", |facts| {
            facts.kubeadm().kubernetes_version = Some("v1.32.4".to_owned());
            facts.gate("ControlPlaneKubeletLocalMode", true);
        }),
        ("kubelets-use-endpoint", "1.34 by default", |facts| {
            facts.kubeadm().kubernetes_version = Some("v1.34.0".to_owned());
        }),
        ("kubelets-use-endpoint", "1.34 switched off", |facts| {
            facts.kubeadm().kubernetes_version = Some("v1.34.0".to_owned());
            facts.gate("ControlPlaneKubeletLocalMode", false);
        }),
        ("kubelets-use-endpoint", "1.30", |facts| {
            facts.kubeadm().kubernetes_version = Some("v1.30.1".to_owned());
        }),
        ("kubelets-use-endpoint", "no version", |facts| {
            facts.kubeadm().kubernetes_version = None;
        }),
    ];
}
