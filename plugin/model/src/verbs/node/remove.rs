//! Decides whether a Node may be removed from a cluster.

use k8s_openapi::api::core::v1::Node;
use kcp_api::{DecodeError, decode, names::label};

use crate::{
    change::decision::{Refusal, RefusedBy},
    drain::node::NodeDrain,
    problem::alarm_message,
    snapshot::etcd::{EtcdSurvey, NOSPACE},
    verbs::{
        etcd::{
            members::{EtcdCluster, refusal},
            remove_member::{MemberRemoval, removal},
        },
        node::labelled_node::{LabelledNode, MachineOfNode},
    },
};

/// A Node that a user wants to remove.
#[derive(Clone, Debug)]
pub struct RemovableNode {
    pub json: String,
    pub name: String,
    pub machine: Option<MachineOfNode>,
    pub is_control_plane: bool,
    pub is_cordoned: bool,
}

impl RemovableNode {
    pub fn new(json: String) -> Result<Self, DecodeError> {
        let node: Node = decode(&json)?;
        let metadata = decode(&json)?;
        let labels = node.metadata.labels.unwrap_or_default();
        Ok(Self {
            name: node.metadata.name.unwrap_or_default(),
            machine: MachineOfNode::new(&metadata),
            is_control_plane: labels.contains_key(label::NODE_CONTROL_PLANE),
            is_cordoned: node.spec.and_then(|spec| spec.unschedulable) == Some(true),
            json,
        })
    }

    /// Refuses a Node of a Machine, because Cluster API would replace the Machine or lose track of it.
    pub fn refuse_machine(&self) -> Option<Refusal> {
        let machine = self.machine.as_ref()?;
        let (name, namespace) = (&machine.name, machine.namespace_in_command());
        let why = format!("Node {} belongs to {machine} of Cluster API", self.name);
        let remedies = if self.is_control_plane {
            vec![
                format!(
                    "in the management cluster, replace the Machine: kubectl kcp machine replace {name} -n {namespace}"
                ),
                format!(
                    "or reduce the number of Machines: kubectl kcp scale NAME --replicas N -n {namespace}"
                ),
            ]
        } else {
            vec![format!(
                "in the management cluster, delete the Machine, or reduce the replicas of its MachineDeployment: kubectl \
                 delete machine {name} -n {namespace}"
            )]
        };
        Some(Refusal {
            remedies,
            ..Refusal::new(RefusedBy::Command, vec![why])
        })
    }
}

/// Refuses to remove a member without a Node from a control plane of Cluster API, because the Machine of the member may exist.
pub fn refuse_member_of_machines(nodes: &[LabelledNode]) -> Option<Refusal> {
    let machine = nodes.iter().find_map(|node| node.machine.as_ref())?;
    let why = format!("the control plane consists of Machines that Cluster API manages, such as {machine}");
    let remedy = format!(
        "find out in the management cluster which Machine has the member: kubectl kcp status -n {}",
        machine.namespace_in_command()
    );
    Some(Refusal {
        remedies: vec![remedy],
        ..Refusal::new(RefusedBy::Command, vec![why])
    })
}

/// Refuses a drain that loses pods or data, unless the user forces it.
pub fn refuse_losses(drain: &NodeDrain, force: bool) -> Option<Refusal> {
    (!force && !drain.losses.is_empty()).then(|| Refusal {
        remedies: vec!["to evict these pods anyway, use --force".to_owned()],
        ..Refusal::new(RefusedBy::Command, drain.losses.clone())
    })
}

/// Decides whether etcd can lose the member of a Node. `None` if etcd has no such member.
///
/// As before a Machine is replaced, a quorum of healthy voters must remain, and every other member must have started.
pub fn decide_member<'s>(survey: &'s EtcdSurvey, node: &str) -> Result<Option<MemberRemoval<'s>>, Refusal> {
    let cluster = EtcdCluster::from_survey(survey)?;
    cluster.refuse_corruption()?;
    if survey
        .alarms_by_member()
        .iter()
        .any(|(_, alarm)| alarm == NOSPACE)
    {
        return Err(refusal(alarm_message(None, NOSPACE)));
    }
    let Some(member) = cluster.members.iter().find(|member| member.name == node) else {
        return Ok(None);
    };
    removal(&cluster, member).map(Some)
}

#[cfg(test)]
mod tests {
    use kcp_etcd::{Alarm, AlarmKind};
    use serde_json::{Value, json};

    use super::{RemovableNode, decide_member, refuse_losses};
    use crate::{
        drain::node::NodeDrain,
        snapshot::{Snapshot, etcd::Alarms},
        testing::snapshot::{member, observed},
    };

    /// The id of the removed member, the member that removes it, and the id of the next leader if it leads.
    type Decided = Result<Option<(u64, String, Option<u64>)>, Vec<String>>;

    fn decided(mut observed: Snapshot, node: &str) -> Decided {
        match decide_member(observed.survey(), node) {
            Ok(removal) => Ok(removal.map(|removal| {
                let leader = removal.leader.map(|(_, to)| to);
                (removal.id, removal.through.name.clone(), leader)
            })),
            Err(refusal) => Err(refusal.why),
        }
    }

    #[test]
    fn a_member_leaves_if_a_quorum_remains() {
        type Case = (&'static str, fn(&mut Snapshot), &'static str, Decided);
        let why = |lines: &[&str]| Err(lines.iter().map(ToString::to_string).collect());
        let silent =
            |name: &str| format!("etcd member {name} does not respond: cannot connect: connection refused");
        let cases: Vec<Case> = vec![
            (
                "a follower",
                |_| {},
                "node-m2",
                Ok(Some((2, "node-m1".to_owned(), None))),
            ),
            (
                "the leader",
                |_| {},
                "node-m1",
                Ok(Some((1, "node-m2".to_owned(), Some(2)))),
            ),
            ("no member", |_| {}, "worker", Ok(None)),
            (
                "a dead member",
                |o| o.kill(3),
                "node-m3",
                Ok(Some((3, "node-m1".to_owned(), None))),
            ),
            (
                "another dead member",
                |o| o.kill(3),
                "node-m2",
                why(&[
                    "without the member of node-m2, etcd loses quorum: 1 of 2 voting members healthy, 2 needed for quorum",
                    &silent("node-m3"),
                ]),
            ),
            (
                "the only member",
                |o| {
                    o.each_list(|list| list.members.truncate(1));
                    o.survey().queried.truncate(1);
                },
                "node-m1",
                why(&[
                    "node-m1 has the only voting member of etcd: its removal would delete the cluster's data",
                ]),
            ),
            (
                "two members",
                |o| {
                    o.each_list(|list| list.members.truncate(2));
                    o.survey().queried.truncate(2);
                },
                "node-m2",
                Ok(Some((2, "node-m1".to_owned(), None))),
            ),
            (
                "a member that starts",
                |o| o.each_list(|list| list.members.push(member(4, ""))),
                "node-m2",
                why(&["1 other members of etcd do not vote yet"]),
            ),
            (
                "no space",
                |o| {
                    o.survey().alarms = Alarms::Listed(vec![Alarm {
                        member_id: 1,
                        kind: AlarmKind::NoSpace,
                    }]);
                },
                "node-m2",
                why(&[
                    "etcd has raised the alarm NOSPACE: a database has reached its quota, so etcd rejects writes until the alarm is disarmed",
                ]),
            ),
            (
                "corrupt",
                |o| {
                    o.survey().alarms = Alarms::Listed(vec![Alarm {
                        member_id: 1,
                        kind: AlarmKind::Corrupt,
                    }]);
                },
                "node-m2",
                why(&[
                    "etcd member node-m1 has raised the alarm CORRUPT: its data differs from that of the other members",
                ]),
            ),
        ];
        for (name, change, node, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(decided(observed, node), expected, "{name}");
        }
    }

    fn node(metadata: &Value) -> RemovableNode {
        RemovableNode::new(json!({ "metadata": metadata }).to_string()).unwrap()
    }

    #[test]
    fn a_node_of_a_machine_is_refused_with_the_place_to_go() {
        let machine =
            json!({"cluster.x-k8s.io/machine": "edge-1", "cluster.x-k8s.io/cluster-namespace": "fleet"});
        let control_plane = json!({"node-role.kubernetes.io/control-plane": ""});
        let refused = |metadata: &Value| {
            node(metadata)
                .refuse_machine()
                .map(|refusal| (refusal.why, refusal.remedies))
        };
        assert_eq!(refused(&json!({"name": "w", "labels": control_plane})), None);
        let (why, remedies) =
            refused(&json!({"name": "w", "labels": control_plane, "annotations": machine})).unwrap();
        assert_eq!(why, ["Node w belongs to Machine fleet/edge-1 of Cluster API"]);
        assert_eq!(
            remedies,
            [
                "in the management cluster, replace the Machine: kubectl kcp machine replace edge-1 -n fleet",
                "or reduce the number of Machines: kubectl kcp scale NAME --replicas N -n fleet",
            ]
        );
        let (_, remedies) = refused(&json!({"name": "w", "annotations": machine})).unwrap();
        assert_eq!(
            remedies,
            [
                "in the management cluster, delete the Machine, or reduce the replicas of its MachineDeployment: kubectl \
                 delete machine edge-1 -n fleet"
            ]
        );
    }

    #[test]
    fn losses_are_refused_unless_forced() {
        let drain = NodeDrain {
            losses: vec!["a loss".to_owned()],
            ..NodeDrain::default()
        };
        assert_eq!(refuse_losses(&drain, false).unwrap().why, ["a loss"]);
        assert_eq!(refuse_losses(&drain, true), None);
        assert_eq!(refuse_losses(&NodeDrain::default(), false), None);
    }
}
