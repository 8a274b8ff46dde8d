//! Checks whether each control plane Node has a Machine.

use jiff::Timestamp;
use kcp_api::{Object as _, names::label};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckOutcome, CheckResult, Finding, WORKLOAD, node_object, require},
        machine_grace::{are_machines_changing, machines_without_node, require_machines},
        membership::Membership,
    },
    snapshot::{
        Snapshot,
        workload::{Component, Node},
    },
};

pub const CHECKS: &[Check] = &[Check::new(
    "nodes-left-behind",
    "A control plane Node has no Machine: it is left over from a deleted Machine, or Cluster API does not manage it.",
    check_nodes_left_behind,
    Responsible::Fault(Actor::Person),
)];

/// A control plane Node to which no Machine belongs.
struct NodeWithoutMachine<'o> {
    node: &'o Node,
    /// The Machine that Cluster API has recorded on the Node. `None` if it has recorded none.
    recorded: Option<&'o str>,
}

/// The control plane Nodes without a Machine. Most are left from a deleted Machine: Cluster API gives up the deletion of a Node
/// after `nodeDeletionTimeoutSeconds`, by default 10. It counts this time from the deletion of the Machine, so the time can be over
/// before Cluster API begins to delete the Node (kubernetes-sigs/cluster-api#14024).
fn nodes_without_machine(observed: &Snapshot) -> impl Iterator<Item = NodeWithoutMachine<'_>> {
    let nodes = observed
        .workload
        .value()
        .and_then(|workload| workload.nodes.value());
    let nodes = nodes.into_iter().flatten();
    let nodes = nodes.filter(|node| node.has_control_plane_label || runs_api_server(observed, node));
    nodes.filter_map(|node| {
        let mut machines = observed.machines.iter().chain(&observed.machines_of_other_owners);
        if machines.any(|machine| observed.node_of(machine) == Some(&node.name)) {
            return None;
        }
        let recorded = unlisted_machine(observed, &node.name);
        let may_be_joining = || node.machine.is_some() || machines_without_node(observed).next().is_some();
        (recorded.is_some() || !may_be_joining()).then_some(NodeWithoutMachine { node, recorded })
    })
}

fn runs_api_server(observed: &Snapshot, node: &Node) -> bool {
    let pods = observed
        .workload
        .value()
        .and_then(|workload| workload.static_pods.value());
    let mut pods = pods.into_iter().flatten();
    pods.any(|pod| pod.component == Component::ApiServer && pod.node == node.name)
}

/// Whether a control plane Node has no Machine.
pub fn is_left_behind(observed: &Snapshot, node: &str) -> bool {
    nodes_without_machine(observed).any(|entry| entry.node.name == node)
}

/// Whether any control plane Node has no Machine. The controller reports this in its conditions.
pub fn is_any_left_behind(observed: &Snapshot) -> bool {
    nodes_without_machine(observed).next().is_some()
}

impl NodeWithoutMachine<'_> {
    fn message(&self) -> String {
        match (self.node.ready, self.recorded) {
            (Some(true), Some(machine)) => unlisted_message(machine),
            (Some(true), None) => "has no Machine: Cluster API does not manage the node".to_owned(),
            (_, Some(machine)) => {
                format!("is not ready and has no Machine: it is left over from Machine {machine}")
            }
            (_, None) => "is not ready and has no Machine".to_owned(),
        }
    }

    /// Whether etcd lists a member with the name of the Node.
    fn has_member(&self, observed: &Snapshot) -> bool {
        let survey = observed.etcd.value();
        let mut listed = survey
            .into_iter()
            .flat_map(|survey| Membership::new(survey).listed());
        listed.any(|listed| listed.member.name == self.node.name)
    }

    /// The Node does no harm, unless it is ready, has an etcd member, or makes the controller report unhealthy components.
    fn outcome(&self, observed: &Snapshot, now: Timestamp) -> CheckOutcome {
        let is_reported = || {
            let conditions = ["ControlPlaneComponentsHealthy", "EtcdClusterHealthy"];
            let mut conditions = conditions
                .into_iter()
                .filter_map(|kind| observed.control_plane.condition(kind));
            conditions.any(|condition| !condition.is_true())
        };
        // A Machine that was deleted a moment ago may still be in one of the two lists.
        if are_machines_changing(observed, now) {
            CheckOutcome::Info
        } else if self.node.ready == Some(true) || self.has_member(observed) || is_reported() {
            CheckOutcome::Fail
        } else {
            CheckOutcome::Warn
        }
    }

    fn hint(&self, observed: &Snapshot, outcome: CheckOutcome) -> String {
        let delete = format!(
            "delete the Node: {}",
            observed.kubectl_in_workload(&format!("delete node {}", self.node.name))
        );
        let namespace = observed.control_plane.namespace();
        let hint = match (self.node.ready, self.recorded) {
            (Some(true), Some(machine)) => {
                format!(
                    "{}; if it does not exist, {delete}",
                    unlisted_hint(observed, machine)
                )
            }
            (Some(true), None) => {
                format!("if its host does not belong to the cluster, stop the host, and {delete}")
            }
            (_, Some(machine)) => format!(
                "if the Machine is gone (kubectl get machine {machine} -n {namespace} --ignore-not-found), {delete}"
            ),
            (_, None) => format!("if its host is gone, {delete}"),
        };
        // The controller does not watch Nodes.
        if outcome == CheckOutcome::Fail {
            format!(
                "{hint}; then make the controller reconcile now: {}",
                observed.reconcile_command()
            )
        } else {
            hint
        }
    }
}

pub fn check_nodes_left_behind(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let workload = require(&observed.workload, WORKLOAD)?;
    require(&workload.nodes, "nodes")?;
    require_machines(observed)?;
    let findings = nodes_without_machine(observed).map(|entry| {
        let name = &entry.node.name;
        let outcome = entry.outcome(observed, now);
        let finding = Finding::new(outcome, node_object(name), entry.message())
            .with_since(entry.node.ready_since.filter(|_| entry.node.ready != Some(true)))
            .with_hint(entry.hint(observed, outcome));
        if entry.has_member(observed) {
            finding.with_object(format!("EtcdMember/{name}"))
        } else {
            finding
        }
    });
    Ok(findings.collect())
}

/// The Machine that Cluster API has recorded in an annotation of the node, if the Cluster has no control
/// plane Machine of this name. The Machine has been deleted or has lost a label.
pub fn unlisted_machine<'o>(observed: &'o Snapshot, node: &str) -> Option<&'o str> {
    let nodes = observed.workload.value()?.nodes.value()?;
    let recorded = nodes
        .iter()
        .find(|other| other.name == node)?
        .machine
        .as_deref()?;
    let mut listed = observed.machines.iter().chain(&observed.machines_of_other_owners);
    (!listed.any(|machine| machine.name() == recorded)).then_some(recorded)
}

pub fn unlisted_message(machine: &str) -> String {
    format!(
        "belongs to Machine {machine} according to an annotation of the node, but the Cluster has no control \
         plane Machine of this name"
    )
}

pub fn unlisted_hint(observed: &Snapshot, machine: &str) -> String {
    format!(
        "if the Machine exists, restore its labels {} and {}={}; to see its labels: kubectl get machine \
         {machine} -n {} --show-labels",
        label::CONTROL_PLANE,
        label::CLUSTER_NAME,
        observed.control_plane.cluster().unwrap_or_default(),
        observed.control_plane.namespace()
    )
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::ConditionStatus::False;

    use crate::{
        checks::tests::{Case, says, starts},
        snapshot::{
            Snapshot,
            workload::{Node, StaticPod},
        },
        testing::{
            objects::minutes_ago,
            snapshot::{failure, member},
        },
    };

    /// The node of a Machine `m0` that was replaced.
    fn leave_node(observed: &mut Snapshot, ready: Option<bool>) {
        let node = observed.nodes()[0].clone();
        observed.nodes().push(Node {
            name: "node-m0".to_owned(),
            machine: Some("m0".to_owned()),
            ready,
            ready_since: Some(minutes_ago(50)),
            is_unreachable: ready.is_none(),
            ..node
        });
    }

    /// Every control plane node is asked for a member.
    fn ask_for_a_member(observed: &mut Snapshot) {
        let mut queried = observed.survey().queried[0].clone();
        queried.name = "node-m0".to_owned();
        queried.machine = None;
        queried.response = Err(failure("etcd member node-m0", "no pod etcd-node-m0"));
        observed.survey().queried.push(queried);
    }

    fn leave_pods(observed: &mut Snapshot) {
        let left = observed
            .pods()
            .iter()
            .filter(|pod| pod.node == "node-m1")
            .cloned();
        let left: Vec<_> = left
            .map(|pod| StaticPod {
                node: "node-m0".to_owned(),
                ready: false,
                ..pod
            })
            .collect();
        observed.pods().extend(left);
    }

    pub(crate) const CASES: &[Case] = &[
        ("nodes-left-behind", "without_its_pods", |o| leave_node(o, None)),
        ("nodes-left-behind", "with_its_pods", |o| {
            leave_node(o, None);
            leave_pods(o);
            ask_for_a_member(o);
        }),
        ("nodes-left-behind", "without_a_recorded_machine", |o| {
            leave_node(o, None);
            o.nodes()[4].machine = None;
            leave_pods(o);
            ask_for_a_member(o);
        }),
        ("nodes-left-behind", "with_a_listed_member", |o| {
            leave_node(o, None);
            leave_pods(o);
            ask_for_a_member(o);
            o.each_list_of(&[1, 2, 3], |list| list.members.push(member(9, "node-m0")));
        }),
        ("nodes-left-behind", "as_the_controller_reports", |o| {
            leave_node(o, None);
            let message = "Control plane Node node-m0 does not have a corresponding Machine";
            says(o, "ControlPlaneComponentsHealthy", False, message, 5);
        }),
        ("nodes-left-behind", "its_kubelet_runs_and_it_is_asked", |o| {
            leave_node(o, Some(true));
            o.nodes()[4].machine = None;
            leave_pods(o);
            ask_for_a_member(o);
        }),
        ("nodes-left-behind", "while_a_machine_joins", |o| {
            starts(o);
            leave_node(o, Some(false));
        }),
        ("nodes-left-behind", "its_kubelet_runs", |o| {
            leave_node(o, Some(true));
            leave_pods(o);
        }),
        ("nodes-left-behind", "of_a_machine_of_another_owner", |o| {
            leave_node(o, None);
            o.machines_of_other_owners
                .push(crate::testing::objects::machine("m0"));
        }),
        ("nodes-left-behind", "pod_without_machine", |o| {
            let mut pod = o.pods()[0].clone();
            pod.node = "node-m9".to_owned();
            o.pods().push(pod);
            let node = o.nodes()[0].clone();
            o.nodes().push(Node {
                name: "node-m9".to_owned(),
                ..node
            });
        }),
    ];
}
