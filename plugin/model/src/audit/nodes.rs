//! Nodes without a Machine, kubelets that have stopped renewing their Leases, and Machines that are not remediated.

use std::time::Duration;

use crate::{
    audit::{
        Assumptions, AuditCheck, Evidence, Facts,
        evidence::{either, require},
        facts::{MachineNode, Node},
        static_pods::NODES,
    },
    duration::format_duration,
    join_times::DEFAULT_JOIN_LIMIT,
    staleness::{age, format_age},
};

pub const CHECKS: &[AuditCheck] = &[
    AuditCheck {
        id: "nodes-without-machines",
        requirement: "each Node belongs to a Machine of the Cluster",
        remedy: "if the machine no longer exists, delete the Node: kubectl delete node NODE; Cluster API leaves a Node behind if \
            the API server does not respond during the deletion of the Machine",
        function: check_nodes_without_machines,
    },
    AuditCheck {
        id: "node-leases-stale",
        requirement: "the kubelet of each ready Node has renewed its Lease",
        remedy: "check the kubelet and the clock of the Node; a Node that is off is shown as ready until kube-controller-manager \
                 notices",
        function: check_node_leases_stale,
    },
    AuditCheck {
        id: "first-failure-not-remediated",
        requirement: "a MachineHealthCheck of the control plane remediates the first Machine that fails",
        remedy: "raise the limit in the MachineHealthCheck: kubectl edit machinehealthcheck NAME",
        function: check_first_failure_not_remediated,
    },
];

const MACHINES: &str = "the Machines of the Cluster";

/// A Node with this owner kind needs no Machine, because a `MachinePool` can exist without Machines.
const MACHINE_POOL: &str = "MachinePool";

fn check_nodes_without_machines(facts: &Facts, assumptions: Assumptions) -> Evidence {
    either(nodes_without_machines(facts, assumptions))
}

fn nodes_without_machines(facts: &Facts, assumptions: Assumptions) -> Result<Evidence, Evidence> {
    let nodes = require(&facts.nodes, NODES)?;
    let Some(machines) = require(&facts.machines, MACHINES)? else {
        return Ok(Evidence::passing(
            "does not apply: the Nodes were not created by Cluster API",
        ));
    };
    let mut evidence = Evidence::default();
    for node in nodes {
        if machines.iter().any(|machine| is_node_of(node, machine)) {
            continue;
        }
        if node.owner_kind.as_deref() == Some(MACHINE_POOL) {
            continue;
        }
        let left_behind = match &node.machine {
            Some(machine) => format!(
                "Node {} belonged to Machine {machine}, which no longer exists",
                node.name
            ),
            None => format!("Node {} belongs to no Machine", node.name),
        };
        match node.created.map(|created| age(created, assumptions.now)) {
            Some(age) if age < DEFAULT_JOIN_LIMIT && node.machine.is_none() => evidence.unknown(format!(
                "Node {} joined {} ago, and no Machine refers to it yet",
                node.name,
                format_duration(age)
            )),
            _ => evidence.fail(left_behind),
        }
    }
    evidence.pass(format!("{} Nodes, {} Machines", nodes.len(), machines.len()));
    Ok(evidence)
}

fn is_node_of(node: &Node, machine: &MachineNode) -> bool {
    let same_id = node.provider_id.is_some() && node.provider_id == machine.provider_id;
    machine.node.as_ref() == Some(&node.name) || same_id
}

/// How old the renewal of a kubelet's Lease may be. The kubelet renews it every 10 seconds, and kube-controller-manager waits
/// 50 seconds before it marks the Node as unreachable (`--node-monitor-grace-period`; 40 seconds before 1.32).
pub const LEASE_LIMIT: Duration = Duration::from_secs(50);

fn check_node_leases_stale(facts: &Facts, assumptions: Assumptions) -> Evidence {
    either(node_leases_stale(facts, assumptions))
}

fn node_leases_stale(facts: &Facts, assumptions: Assumptions) -> Result<Evidence, Evidence> {
    let nodes = require(&facts.nodes, NODES)?;
    let leases = require(&facts.node_leases, "the Leases in kube-node-lease")?;
    let mut evidence = Evidence::default();
    let mut renewed_nodes = 0_usize;
    for node in nodes {
        let lease = leases.iter().find(|lease| lease.name == node.name);
        let renewed = lease.and_then(|lease| lease.renewed);
        match (node.ready, renewed) {
            (Some(true), Some(renewed)) if age(renewed, assumptions.now) > LEASE_LIMIT => {
                evidence.fail(format!(
                    "Node {} is shown as ready, but its kubelet renewed its Lease {} ago",
                    node.name,
                    format_age(renewed, assumptions.now)
                ));
            }
            (Some(true), Some(_)) => renewed_nodes += 1,
            (Some(true), None) => evidence.fail(format!(
                "Node {} is shown as ready, but its kubelet has no Lease in kube-node-lease",
                node.name
            )),
            (Some(false) | None, _) => evidence.fail(format!("Node {} is not ready", node.name)),
        }
    }
    if nodes.is_empty() {
        evidence.unknown("the cluster has no Nodes");
    }
    evidence.pass(format!(
        "{renewed_nodes} Leases were renewed within {}",
        format_duration(LEASE_LIMIT)
    ));
    Ok(evidence)
}

fn check_first_failure_not_remediated(facts: &Facts, _: Assumptions) -> Evidence {
    either(first_failure_not_remediated(facts))
}

fn first_failure_not_remediated(facts: &Facts) -> Result<Evidence, Evidence> {
    let Some(found) = require(&facts.health_checks, "the MachineHealthChecks")? else {
        return Ok(Evidence::passing(
            "does not apply: Cluster API does not manage the cluster",
        ));
    };
    let mut evidence = Evidence::default();
    for check in &found.checks {
        match check.ignores_first_failure(found.replicas) {
            Some((why, remedy)) => {
                evidence.fail(format!("MachineHealthCheck {} {why}; {remedy}", check.name));
            }
            None => evidence.pass(format!(
                "MachineHealthCheck {} remediates the first of {} Machines that fails",
                check.name, found.replicas
            )),
        }
    }
    if found.checks.is_empty() {
        evidence.pass("does not apply: no MachineHealthCheck selects a Machine of the control plane");
    }
    Ok(evidence)
}

#[cfg(test)]
pub(super) mod test_cases {
    use crate::{
        audit::{
            facts::Node,
            tests::{Case, failed},
        },
        snapshot::{Reading, management::RemediationTrigger},
        testing::objects::{minutes_ago, now},
    };

    fn stray(facts: &mut crate::audit::Facts, change: fn(&mut Node)) {
        let mut node = Node {
            name: "n9".to_owned(),
            ready: Some(true),
            created: Some(minutes_ago(60)),
            ..Node::default()
        };
        change(&mut node);
        facts.nodes().push(node);
    }

    pub(crate) const CASES: &[Case] = &[
        ("nodes-without-machines", "healthy", |_| {}),
        ("nodes-without-machines", "a plain cluster", |facts| {
            facts.without_management();
        }),
        ("nodes-without-machines", "left behind", |facts| {
            stray(facts, |node| node.machine = Some("c1-gone".to_owned()));
        }),
        ("nodes-without-machines", "joined by hand", |facts| {
            stray(facts, |_| {});
        }),
        ("nodes-without-machines", "just joined", |facts| {
            stray(facts, |node| node.created = Some(now()));
        }),
        ("nodes-without-machines", "known by provider id", |facts| {
            stray(facts, |node| node.provider_id = Some("p://1".to_owned()));
            facts.machine("n1").provider_id = Some("p://1".to_owned());
        }),
        ("nodes-without-machines", "of a MachinePool", |facts| {
            stray(facts, |node| node.owner_kind = Some("MachinePool".to_owned()));
        }),
        ("nodes-without-machines", "unread Machines", |facts| {
            facts.machines = failed("Machine");
        }),
        ("first-failure-not-remediated", "healthy", |_| {}),
        ("first-failure-not-remediated", "a third of three", |facts| {
            facts.health_check().trigger = Some(RemediationTrigger::AtMostPercent(33));
        }),
        (
            "first-failure-not-remediated",
            "from the second one on",
            |facts| {
                facts.health_check().trigger = Some(RemediationTrigger::Between(2, 5));
            },
        ),
        (
            "first-failure-not-remediated",
            "without a health check",
            |facts| {
                if let Reading::Read(Some(found)) = &mut facts.health_checks {
                    found.checks.clear();
                }
            },
        ),
        ("first-failure-not-remediated", "a plain cluster", |facts| {
            facts.health_checks = Reading::Read(None);
        }),
        ("first-failure-not-remediated", "unread", |facts| {
            facts.health_checks = failed("MachineHealthCheck");
        }),
        ("node-leases-stale", "healthy", |_| {}),
        ("node-leases-stale", "not renewed for a minute", |facts| {
            facts.leases()[1].renewed = Some(minutes_ago(1));
        }),
        ("node-leases-stale", "no Lease, and not ready", |facts| {
            facts.leases().remove(0);
            facts.nodes()[2].ready = None;
        }),
        ("node-leases-stale", "unread", |facts| {
            facts.node_leases = failed("Lease");
        }),
    ];
}
