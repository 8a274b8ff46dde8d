//! Differences among the control plane Pods of one component. After a restart, any of them may become the leader.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    audit::{
        Assumptions, AuditCheck, Evidence, Facts,
        evidence::{either, require},
        facts::{Node, PodContainer},
        static_pods::{PODS, components, control_plane_nodes, pod_of},
    },
    snapshot::workload::Component,
};

pub const CHECKS: &[AuditCheck] = &[
    AuditCheck {
        id: "component-images-differ",
        requirement: "each component of the control plane has the same image on every Node",
        remedy: "finish the rollout, or bring the manifest of the Node back in line with the others; after a restart, either \
                 version may become the leader",
        function: check_component_images_differ,
    },
    AuditCheck {
        id: "component-flags-differ",
        requirement: "each component of the control plane has the same flags on every Node",
        remedy: "set the flags in the KubeadmControlPlane or in kubeadm's ClusterConfiguration, not in the manifests of \
            individual Nodes, and finish the rollout",
        function: check_component_flags_differ,
    },
];

/// The flags that differ from Node to Node by design: `--initial-cluster` lists the members that etcd had when the Node joined.
const OF_THE_NODE: [&str; 2] = ["--initial-cluster", "--initial-cluster-state"];

/// The placeholder that replaces the Node's name and addresses in a flag.
const NODE: &str = "NODE";

fn containers<'f>(
    facts: &'f Facts,
    nodes: &[&'f Node],
    component: Component,
) -> Vec<(&'f Node, &'f PodContainer)> {
    let of_node = |node: &&'f Node| {
        let pod = pod_of(facts, component, node)?;
        Some((*node, pod.container(component.as_str())?))
    };
    nodes.iter().filter_map(of_node).collect()
}

fn check_component_images_differ(facts: &Facts, _: Assumptions) -> Evidence {
    either(component_images_differ(facts))
}

fn component_images_differ(facts: &Facts) -> Result<Evidence, Evidence> {
    let nodes = control_plane_nodes(facts)?;
    require(&facts.system_pods, PODS)?;
    let mut evidence = Evidence::default();
    for component in components(facts) {
        let name = component.as_str();
        let mut images: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (node, container) in containers(facts, &nodes, component) {
            images.entry(&container.image).or_default().push(&node.name);
        }
        match images.len() {
            0 => evidence.unknown(format!("found no static Pod of {name}")),
            1 => evidence.pass(format!("{name}: {}", images.keys().copied().collect::<String>())),
            _ => {
                let images = images
                    .iter()
                    .map(|(image, nodes)| format!("{image} on {}", nodes.join(" and ")));
                evidence.fail(format!("{name}: {}", images.collect::<Vec<_>>().join(", ")));
            }
        }
    }
    Ok(evidence)
}

fn check_component_flags_differ(facts: &Facts, _: Assumptions) -> Evidence {
    either(component_flags_differ(facts))
}

fn component_flags_differ(facts: &Facts) -> Result<Evidence, Evidence> {
    let nodes = control_plane_nodes(facts)?;
    require(&facts.system_pods, PODS)?;
    let mut evidence = Evidence::default();
    for component in components(facts) {
        let name = component.as_str();
        let containers = containers(facts, &nodes, component);
        if containers.iter().all(|(_, container)| !container.shows_flags()) {
            evidence.unknown(format!("the Pods of {name} show no flags"));
            continue;
        }
        let flags: Vec<(&Node, BTreeSet<String>)> = containers
            .iter()
            .map(|(node, container)| (*node, comparable_flags(node, container)))
            .collect();
        let Some((first, expected)) = flags.first() else {
            continue;
        };
        let mut differ = false;
        for (node, own) in flags.iter().skip(1) {
            let more = own
                .difference(expected)
                .map(|flag| format!("{flag} on {}", node.name));
            let less = expected
                .difference(own)
                .map(|flag| format!("{flag} on {}", first.name));
            let differences: Vec<String> = less.chain(more).collect();
            if !differences.is_empty() {
                differ = true;
                evidence.fail(format!("{name}: only {}", differences.join(", ")));
            }
        }
        if !differ {
            evidence.pass(format!("{name}: {} equal flags", expected.len()));
        }
    }
    Ok(evidence)
}

/// The flags of a component. The Node's own name and addresses are replaced, because they differ by design.
fn comparable_flags(node: &Node, container: &PodContainer) -> BTreeSet<String> {
    let names: BTreeSet<&str> = node
        .addresses
        .iter()
        .map(String::as_str)
        .chain([node.name.as_str()])
        .filter(|name| !name.is_empty())
        .collect();
    let flags = container.command.iter().filter(|word| word.starts_with("--"));
    let flags = flags.filter(|word| {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        !OF_THE_NODE.contains(&name)
    });
    flags
        .map(|flag| {
            names
                .iter()
                .fold(flag.clone(), |flag, name| replace_word(&flag, name))
        })
        .collect()
}

/// Replaces a name, except where it is part of a longer name: `10.0.0.1` in `10.0.0.12` stays.
fn replace_word(text: &str, name: &str) -> String {
    let is_part = |character: Option<char>| {
        character.is_some_and(|character| {
            character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_')
        })
    };
    let mut replaced = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(name) {
        let whole = !is_part(before.chars().next_back()) && !is_part(after.chars().next());
        replaced.push_str(before);
        replaced.push_str(if whole { NODE } else { name });
        rest = after;
    }
    replaced + rest
}

#[cfg(test)]
pub(super) mod test_cases {
    use super::replace_word;
    use crate::audit::tests::{Case, failed};

    pub(crate) const CASES: &[Case] = &[
        ("component-images-differ", "healthy", |_| {}),
        ("component-images-differ", "one Node is older", |facts| {
            facts.pod("kube-scheduler-n2").containers[0].image =
                "registry.k8s.io/kube-scheduler:v1.35.9".to_owned();
        }),
        ("component-images-differ", "no Pods", |facts| {
            facts.pods().clear();
        }),
        ("component-images-differ", "unread Nodes", |facts| {
            facts.nodes = failed("Node");
        }),
        ("component-flags-differ", "healthy", |_| {}),
        ("component-flags-differ", "a flag on one Node", |facts| {
            facts.pod("kube-apiserver-n3").containers[0]
                .command
                .push("--profiling=false".to_owned());
        }),
        ("component-flags-differ", "another value on one Node", |facts| {
            let command = &mut facts.pod("kube-scheduler-n1").containers[0].command;
            command.retain(|word| !word.starts_with("--leader-elect"));
            command.push("--leader-elect=false".to_owned());
        }),
        ("component-flags-differ", "flags are not shown", |facts| {
            facts
                .pods()
                .iter_mut()
                .for_each(|pod| pod.containers[0].command.clear());
        }),
    ];

    #[test]
    fn only_whole_names_are_replaced() {
        for (text, name, expected) in [
            ("--a=https://10.0.0.1:2380", "10.0.0.1", "--a=https://NODE:2380"),
            ("--a=10.0.0.12,10.0.0.1", "10.0.0.1", "--a=10.0.0.12,NODE"),
            ("--name=n1", "n1", "--name=NODE"),
            ("--name=in1", "n1", "--name=in1"),
            ("--x=n1-b", "n1", "--x=n1-b"),
        ] {
            assert_eq!(replace_word(text, name), expected, "{text}");
        }
    }
}
