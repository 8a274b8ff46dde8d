//! The static Pods of the control plane. After a power failure, each kubelet starts them from files, before any API server runs.

use std::collections::BTreeSet;

use crate::{
    audit::{
        Assumptions, AuditCheck, Evidence, Facts,
        evidence::{either, require},
        facts::{Node, Pod},
    },
    snapshot::workload::Component,
};

pub const CHECKS: &[AuditCheck] = &[
    AuditCheck {
        id: "static-pods-missing",
        requirement: "each control plane Node runs etcd, kube-apiserver, kube-controller-manager and kube-scheduler as static \
            Pods that use the host network",
        remedy: "let kubeadm write the manifests to /etc/kubernetes/manifests; a component in an ordinary Pod cannot \
            start before the API server runs",
        function: check_static_pods_missing,
    },
    AuditCheck {
        id: "static-pods-not-ready",
        requirement: "each static Pod of the control plane is ready",
        remedy: "read the logs of the Pod before you switch off a machine; the restart may need the component that is already down",
        function: check_static_pods_not_ready,
    },
    AuditCheck {
        id: "static-pods-need-the-api",
        requirement: "no static Pod refers to a Secret, ConfigMap, ServiceAccount or PersistentVolumeClaim",
        remedy: "mount files of the Node with hostPath instead; the kubelet cannot read objects while no API server runs",
        function: check_static_pods_need_the_api,
    },
];

pub const NODES: &str = "Nodes";
pub const PODS: &str = "the Pods of kube-system";

/// The control plane Nodes. If there are none, or they could not be read, the error says that the result is unknown.
pub fn control_plane_nodes(facts: &Facts) -> Result<Vec<&Node>, Evidence> {
    require(&facts.nodes, NODES)?;
    match facts.control_plane_nodes() {
        Some(nodes) if !nodes.is_empty() => Ok(nodes),
        _ => Err(Evidence::unknown_because(
            "no Node has the label node-role.kubernetes.io/control-plane",
        )),
    }
}

/// The components that run as static Pods.
pub fn components(facts: &Facts) -> impl Iterator<Item = Component> {
    let is_stacked = !facts.has_external_etcd();
    Component::ALL
        .into_iter()
        .filter(move |component| is_stacked || *component != Component::Etcd)
}

/// The static Pod of a component on a Node. The kubelet names its mirror Pod `COMPONENT-NODE`.
pub fn pod_of<'f>(facts: &'f Facts, component: Component, node: &'f Node) -> Option<&'f Pod> {
    let name = format!("{}-{}", component.as_str(), node.name);
    facts.static_pods_on(&node.name).find(|pod| pod.name == name)
}

fn check_static_pods_missing(facts: &Facts, _: Assumptions) -> Evidence {
    either(static_pods_missing(facts))
}

fn static_pods_missing(facts: &Facts) -> Result<Evidence, Evidence> {
    let nodes = control_plane_nodes(facts)?;
    let pods = require(&facts.system_pods, PODS)?;
    let mut evidence = Evidence::default();
    for node in nodes {
        for component in components(facts) {
            let name = component.as_str();
            match pod_of(facts, component, node) {
                Some(pod) if pod.host_network => {}
                Some(pod) => evidence.fail(format!(
                    "Pod {} does not use the host network, so it waits for the network of the cluster",
                    pod.name
                )),
                None => {
                    let scheduled = pods
                        .iter()
                        .find(|pod| pod.node == node.name && !pod.is_static && pod.container(name).is_some());
                    match scheduled {
                        Some(pod) => evidence.fail(format!(
                            "Pod {} runs {name} on Node {}, but is not a static Pod",
                            pod.name, node.name
                        )),
                        None => evidence.fail(format!("Node {} has no static Pod of {name}", node.name)),
                    }
                }
            }
        }
        let found = components(facts).filter(|component| pod_of(facts, *component, node).is_some());
        evidence.pass(format!("Node {}: {} static Pods", node.name, found.count()));
    }
    Ok(evidence)
}

fn check_static_pods_not_ready(facts: &Facts, _: Assumptions) -> Evidence {
    either(static_pods_not_ready(facts))
}

fn static_pods_not_ready(facts: &Facts) -> Result<Evidence, Evidence> {
    let nodes = control_plane_nodes(facts)?;
    require(&facts.system_pods, PODS)?;
    let mut evidence = Evidence::default();
    for node in nodes {
        let pods: Vec<&Pod> = facts.static_pods_on(&node.name).collect();
        if pods.is_empty() {
            evidence.unknown(format!("Node {} has no static Pods", node.name));
        }
        for pod in pods {
            if pod.ready {
                evidence.pass(format!("Pod {} is ready", pod.name));
            } else {
                evidence.fail(format!("Pod {} is not ready", pod.name));
            }
        }
    }
    Ok(evidence)
}

fn check_static_pods_need_the_api(facts: &Facts, _: Assumptions) -> Evidence {
    either(static_pods_need_the_api(facts))
}

fn static_pods_need_the_api(facts: &Facts) -> Result<Evidence, Evidence> {
    let pods = require(&facts.system_pods, PODS)?;
    let mut evidence = Evidence::default();
    let mut checked = 0_usize;
    for pod in pods.iter().filter(|pod| pod.is_static) {
        checked += 1;
        let references: BTreeSet<&str> = pod.references.iter().map(String::as_str).collect();
        for reference in references {
            evidence.fail(format!("Pod {} needs {reference}", pod.name));
        }
    }
    if checked == 0 {
        evidence.unknown("found no static Pod in kube-system");
    }
    evidence.pass(format!("{checked} static Pods refer to files only"));
    Ok(evidence)
}

#[cfg(test)]
pub(super) mod test_cases {
    use crate::audit::tests::{Case, failed};

    pub(crate) const CASES: &[Case] = &[
        ("static-pods-missing", "healthy", |_| {}),
        ("static-pods-missing", "no scheduler on one Node", |facts| {
            facts.pods().retain(|pod| pod.name != "kube-scheduler-n2");
        }),
        (
            "static-pods-missing",
            "an API server of a DaemonSet without the host network",
            |facts| {
                let pod = facts.pod("kube-apiserver-n1");
                pod.is_static = false;
                pod.host_network = false;
                facts.pod("etcd-n3").host_network = false;
            },
        ),
        ("static-pods-missing", "external etcd", |facts| {
            facts.use_external_etcd();
        }),
        ("static-pods-missing", "Nodes without the label", |facts| {
            facts
                .nodes()
                .iter_mut()
                .for_each(|node| node.is_control_plane = false);
        }),
        ("static-pods-missing", "unread Nodes", |facts| {
            facts.nodes = failed("Node");
        }),
        ("static-pods-not-ready", "healthy", |_| {}),
        ("static-pods-not-ready", "one is not", |facts| {
            facts.pod("kube-scheduler-n2").ready = false;
        }),
        ("static-pods-not-ready", "unread Pods", |facts| {
            facts.system_pods = failed("Pod");
        }),
        ("static-pods-need-the-api", "healthy", |_| {}),
        ("static-pods-need-the-api", "a token and a Secret", |facts| {
            let pod = facts.pod("kube-apiserver-n1");
            pod.references = ["Secret/oidc", "the token in volume token"]
                .map(str::to_owned)
                .into();
        }),
        ("static-pods-need-the-api", "no static Pods", |facts| {
            facts.pods().iter_mut().for_each(|pod| pod.is_static = false);
        }),
    ];
}
