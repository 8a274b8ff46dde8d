//! Which labels of a Node belong to Cluster API or to the kubelet, and where to set them instead.
//!
//! Cluster API's keys follow its Machine controller (v1.14, `core/reconcilers/machine/machine_controller_noderef.go`). The
//! kubelet's keys follow Kubernetes v1.36 (`pkg/kubelet/kubelet_node_status.go`, `updateDefaultLabels`).

use kcp_rules::syntax::is_in_domain;

use crate::{ownership::last_writer, verbs::node::labelled_node::LabelledNode};

/// Domains of Kubernetes and its projects. As in Promenade's node-labels API, replacing the labels of a Node removes no key
/// of these domains or their subdomains unless the user names it.
const PROTECTED_DOMAINS: [&str; 3] = ["kubernetes.io", "k8s.io", "x-k8s.io"];

/// The domain whose labels Cluster API copies from a Machine to its Node. Subdomains do not match.
const ROLE_DOMAIN: &str = "node-role.kubernetes.io";
/// More domains whose labels Cluster API copies from a Machine to its Node. Their subdomains match, too.
const MACHINE_DOMAINS: [&str; 2] = ["node-restriction.kubernetes.io", "node.cluster.x-k8s.io"];

/// The kubelet writes these labels at each start, with values that it finds on its host.
const HOST_KEYS: [&str; 6] = [
    HOSTNAME,
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
];

const HOSTNAME: &str = "kubernetes.io/hostname";

/// The kubelet or a cloud controller manager writes these labels on some clusters. On others, people do.
const PLACE_KEYS: [&str; 6] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
];

const KUBELET_DOMAIN: &str = "kubelet.kubernetes.io";

/// Where kubeadm and Cluster API configure the labels with which a kubelet registers its Node.
const NODE_LABELS: &str = "node-labels in nodeRegistration.kubeletExtraArgs of kubeadm's configuration";

/// Who owns a label that `kubectl kcp node labels` must not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelOwner {
    /// Such as `Cluster API` or `kubelet`.
    pub name: String,
    /// Where the user can set the label instead, such as `set the label on Machine default/edge-1: …`.
    pub place: String,
}

/// Whether the key is in a domain of Kubernetes, so that only a user who names the key changes it.
pub fn is_protected(key: &str) -> bool {
    PROTECTED_DOMAINS.iter().any(|domain| is_in_domain(key, domain))
}

/// The owner of the label. `None` if users may change it.
pub fn label_owner(node: &LabelledNode, key: &str) -> Option<LabelOwner> {
    if let Some(machine) = &node.machine {
        let is_copied = node.from_machine.contains(key)
            || domain(key) == Some(ROLE_DOMAIN)
            || MACHINE_DOMAINS.iter().any(|domain| is_in_domain(key, domain));
        if is_copied {
            return Some(LabelOwner {
                name: "Cluster API".to_owned(),
                place: format!(
                    "Cluster API copies this label from the Machine: set it in metadata.labels of {machine}, or in the \
                     template of its MachineDeployment or control plane"
                ),
            });
        }
    }
    let kubelet = |place: String| {
        Some(LabelOwner {
            name: "kubelet".to_owned(),
            place,
        })
    };
    if key == HOSTNAME {
        return kubelet(
            "the kubelet writes this label at each start: set hostname-override in \
             nodeRegistration.kubeletExtraArgs of kubeadm's configuration"
                .to_owned(),
        );
    }
    if HOST_KEYS.contains(&key) {
        return kubelet(
            "the kubelet writes this label at each start, and its value describes the host: choose another host"
                .to_owned(),
        );
    }
    if is_in_domain(key, KUBELET_DOMAIN) {
        return kubelet(format!(
            "only a kubelet sets the labels of this domain: set {NODE_LABELS}"
        ));
    }
    if !PLACE_KEYS.contains(&key) {
        return None;
    }
    let writer = last_writer(&node.json, &["metadata", "labels", key])?;
    if writer == "kubelet" {
        return kubelet(format!(
            "the kubelet writes this label at each start: set {NODE_LABELS}"
        ));
    }
    writer.contains("cloud").then(|| LabelOwner {
        place: format!("{writer} copies this label from the cloud: change the host in the cloud"),
        name: writer,
    })
}

/// The part of a key before the slash. `None` for a key without a domain.
fn domain(key: &str) -> Option<&str> {
    key.split_once('/').map(|(domain, _)| domain)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{is_protected, label_owner};
    use crate::verbs::node::labelled_node::LabelledNode;

    #[test]
    fn keys_of_kubernetes_are_protected() {
        for (key, expected) in [
            ("kubernetes.io/hostname", true),
            ("node-role.kubernetes.io/control-plane", true),
            ("node.kubernetes.io/exclude-from-external-load-balancers", true),
            ("feature.node.kubernetes.io/cpu", true),
            ("k8s.io/a", true),
            ("node.cluster.x-k8s.io/rack", true),
            ("rack", false),
            ("kubernetes.io", false),
            ("notkubernetes.io/a", false),
            ("kubernetes.io.example.com/a", false),
            ("example.com/kubernetes.io", false),
        ] {
            assert_eq!(is_protected(key), expected, "{key}");
        }
    }

    fn node(annotations: &Value, writers: &[(&str, &str)]) -> LabelledNode {
        let managed = writers.iter().map(|(manager, key)| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-08-21T10:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {format!("f:{key}"): {}}}}})
        });
        let managed: Vec<_> = managed.collect();
        let object = json!({"metadata": {"name": "a", "annotations": annotations, "managedFields": managed}});
        LabelledNode::new(object.to_string()).unwrap()
    }

    #[test]
    fn a_label_names_its_owner_and_the_place_to_set_it() {
        let plain = node(&json!({}), &[]);
        let of_machine = node(
            &json!({
                "cluster.x-k8s.io/machine": "edge-1",
                "cluster.x-k8s.io/cluster-namespace": "fleet",
                "cluster.x-k8s.io/labels-from-machine": "node-role.kubernetes.io/gateway,rack",
            }),
            &[],
        );
        let zoned = node(
            &json!({}),
            &[
                ("kubelet", "topology.kubernetes.io/zone"),
                ("aws-cloud-controller-manager", "topology.kubernetes.io/region"),
                ("kubectl-label", "node.kubernetes.io/instance-type"),
            ],
        );
        let shown = |node: &LabelledNode, key: &str| {
            label_owner(node, key).map_or_else(
                || "free".to_owned(),
                |owner| format!("{}: {}", owner.name, owner.place),
            )
        };
        let machine = "Cluster API: Cluster API copies this label from the Machine: set it in metadata.labels of Machine \
            fleet/edge-1, or in the template of its MachineDeployment or control plane";
        let host = "kubelet: the kubelet writes this label at each start, and its value describes the host: choose another \
            host";
        let kubelet_labels = "node-labels in nodeRegistration.kubeletExtraArgs of kubeadm's configuration";
        for (node, key, expected) in [
            (&plain, "rack", "free"),
            (&plain, "node-role.kubernetes.io/worker", "free"),
            (&plain, "node-restriction.kubernetes.io/a", "free"),
            (&plain, "node.cluster.x-k8s.io/a", "free"),
            (
                &plain,
                "node.kubernetes.io/exclude-from-external-load-balancers",
                "free",
            ),
            (&plain, "topology.kubernetes.io/zone", "free"),
            (
                &plain,
                "kubernetes.io/hostname",
                "kubelet: the kubelet writes this label at each start: set hostname-override in \
                 nodeRegistration.kubeletExtraArgs of kubeadm's configuration",
            ),
            (&plain, "kubernetes.io/os", host),
            (&plain, "beta.kubernetes.io/arch", host),
            (
                &plain,
                "kubelet.kubernetes.io/a",
                &format!("kubelet: only a kubelet sets the labels of this domain: set {kubelet_labels}"),
            ),
            (&of_machine, "zone", "free"),
            (&of_machine, "rack", machine),
            (&of_machine, "node-role.kubernetes.io/worker", machine),
            (&of_machine, "node-restriction.kubernetes.io/a", machine),
            (&of_machine, "a.node-restriction.kubernetes.io/a", machine),
            (&of_machine, "node.cluster.x-k8s.io/a", machine),
            (
                &zoned,
                "topology.kubernetes.io/zone",
                &format!("kubelet: the kubelet writes this label at each start: set {kubelet_labels}"),
            ),
            (
                &zoned,
                "topology.kubernetes.io/region",
                "aws-cloud-controller-manager: aws-cloud-controller-manager copies this label from the cloud: change the \
                 host in the cloud",
            ),
            (&zoned, "node.kubernetes.io/instance-type", "free"),
        ] {
            assert_eq!(shown(node, key), expected, "{key}");
        }
    }
}
