//! The images of static Pods. A Node that comes back must start them without a registry that runs in the cluster.

use std::net::IpAddr;

use crate::audit::{
    Assumptions, AuditCheck, Evidence, Facts,
    evidence::{either, require},
    facts::PodContainer,
    static_pods::PODS,
};

pub const CHECKS: &[AuditCheck] = &[
    AuditCheck {
        id: "images-always-pulled",
        requirement: "no static Pod has imagePullPolicy Always",
        remedy: "set imagePullPolicy: IfNotPresent in the manifest; with Always, the kubelet asks the registry at each start, and \
            the Pod does not start while the registry is unreachable",
        function: check_images_always_pulled,
    },
    AuditCheck {
        id: "images-from-the-cluster",
        requirement: "no image of a static Pod comes from a registry that runs in the cluster",
        remedy: "use a registry outside of the cluster, or load the images onto the Nodes; a Node without the image cannot pull \
            it before the cluster runs",
        function: check_images_from_the_cluster,
    },
];

fn static_containers(facts: &Facts) -> Result<Vec<(&str, &PodContainer)>, Evidence> {
    let pods = require(&facts.system_pods, PODS)?;
    let pods = pods.iter().filter(|pod| pod.is_static);
    let containers: Vec<_> = pods
        .flat_map(|pod| pod.containers.iter().map(|entry| (pod.name.as_str(), entry)))
        .collect();
    if containers.is_empty() {
        return Err(Evidence::unknown_because("found no static Pod in kube-system"));
    }
    Ok(containers)
}

fn check_images_always_pulled(facts: &Facts, _: Assumptions) -> Evidence {
    either(images_always_pulled(facts))
}

fn images_always_pulled(facts: &Facts) -> Result<Evidence, Evidence> {
    let containers = static_containers(facts)?;
    let mut evidence = Evidence::default();
    for (pod, container) in &containers {
        match container.pull_policy.as_deref() {
            Some("Always") => evidence.fail(format!(
                "container {} of Pod {pod} has imagePullPolicy Always",
                container.name
            )),
            Some(_) => {}
            None => evidence.unknown(format!(
                "container {} of Pod {pod} shows no imagePullPolicy",
                container.name
            )),
        }
    }
    evidence.pass(format!(
        "{} containers use the image that is already on the Node, if there is one",
        containers.len()
    ));
    Ok(evidence)
}

/// Where a registry runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registry {
    InCluster,
    Outside,
    /// A registry on the Node itself, which may run in the cluster.
    OnNode,
}

fn check_images_from_the_cluster(facts: &Facts, _: Assumptions) -> Evidence {
    either(images_from_the_cluster(facts))
}

fn images_from_the_cluster(facts: &Facts) -> Result<Evidence, Evidence> {
    let containers = static_containers(facts)?;
    let cluster_ips: Vec<&str> = facts
        .services
        .values()
        .filter_map(|service| service.value()?.as_ref())
        .flat_map(|service| service.cluster_ips.iter().map(String::as_str))
        .collect();
    let mut evidence = Evidence::default();
    for (pod, container) in &containers {
        let image = &container.image;
        match registry(image, &cluster_ips) {
            Registry::Outside => {}
            Registry::InCluster => {
                evidence.fail(format!("Pod {pod} uses {image}, from a registry in the cluster"));
            }
            Registry::OnNode => evidence.unknown(format!(
                "Pod {pod} uses {image}, from a registry on the Node, which may run in the cluster"
            )),
        }
    }
    evidence.pass(format!(
        "{} images come from outside of the cluster",
        containers.len()
    ));
    Ok(evidence)
}

/// Where the registry of an image runs. As in container runtimes, the part before the first slash is a host if it contains a dot
/// or a colon, or is `localhost`.
fn registry(image: &str, cluster_ips: &[&str]) -> Registry {
    let host = image
        .split_once('/')
        .map(|(host, _)| host)
        .filter(|host| host.contains(['.', ':']) || *host == "localhost");
    let Some(host) = host.map(without_port) else {
        return Registry::Outside;
    };
    if is_service_host(host) || cluster_ips.contains(&host) {
        return Registry::InCluster;
    }
    if host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
        return Registry::OnNode;
    }
    Registry::Outside
}

/// The host without a port, and without the brackets of an IPv6 address.
pub fn without_port(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    match host.split_once(':') {
        // A host with several colons is an IPv6 address without a port.
        Some((name, port)) if !port.contains(':') => name,
        _ => host,
    }
}

/// Whether a host is a DNS name of a Service.
pub fn is_service_host(host: &str) -> bool {
    let mut labels = host.trim_end_matches('.').split('.').skip(2);
    labels.next() == Some("svc")
}

#[cfg(test)]
pub(super) mod test_cases {
    use super::{Registry, registry, without_port};
    use crate::audit::tests::{Case, failed};

    pub(crate) const CASES: &[Case] = &[
        ("images-always-pulled", "healthy", |_| {}),
        ("images-always-pulled", "one is", |facts| {
            facts.pod("etcd-n2").containers[0].pull_policy = Some("Always".to_owned());
        }),
        ("images-always-pulled", "not shown", |facts| {
            facts.pod("etcd-n2").containers[0].pull_policy = None;
        }),
        ("images-from-the-cluster", "healthy", |_| {}),
        ("images-from-the-cluster", "a Service and the Node", |facts| {
            facts.pod("etcd-n1").containers[0].image = "registry.infra.svc:5000/etcd:3.6.8".to_owned();
            facts.pod("etcd-n2").containers[0].image = "localhost:5000/etcd:3.6.8".to_owned();
        }),
        ("images-from-the-cluster", "the Node only", |facts| {
            facts.pod("etcd-n2").containers[0].image = "127.0.0.1:5000/etcd:3.6.8".to_owned();
        }),
        ("images-from-the-cluster", "unread Pods", |facts| {
            facts.system_pods = failed("Pod");
        }),
    ];

    #[test]
    fn the_registry_of_an_image_is_known_by_its_host() {
        for (image, expected) in [
            ("registry.k8s.io/etcd:3.6.8-0", Registry::Outside),
            ("etcd:3.6", Registry::Outside),
            ("library/etcd", Registry::Outside),
            ("registry.infra.svc.cluster.local/etcd", Registry::InCluster),
            ("registry.infra.svc:5000/etcd", Registry::InCluster),
            ("svc.example.com/etcd", Registry::Outside),
            ("10.96.0.9:5000/etcd", Registry::InCluster),
            ("10.96.0.8:5000/etcd", Registry::Outside),
            ("localhost/etcd", Registry::OnNode),
            ("[::1]:5000/etcd", Registry::OnNode),
        ] {
            assert_eq!(registry(image, &["10.96.0.9"]), expected, "{image}");
        }
        for (host, expected) in [
            ("a:1", "a"),
            ("a", "a"),
            ("[fd00::1]:6443", "fd00::1"),
            ("fd00::1", "fd00::1"),
        ] {
            assert_eq!(without_port(host), expected);
        }
    }
}
