//! The control plane's nodes.

use jiff::Timestamp;

use crate::checks::{
    components::{WORKLOAD, by_conditions, of_node},
    judgement::{Judgement, need, or_else},
    turnover::{machine_of_node, machines},
};
use crate::snapshot::Observed;

pub fn labels_and_taints(observed: &Observed, now: Timestamp) -> Judgement {
    let nodes = need(&observed.workload, WORKLOAD).and_then(|workload| need(&workload.nodes, "nodes"));
    let nodes = match nodes {
        Ok(nodes) => nodes,
        Err(unjudged) => {
            let kind = "NodeKubeadmLabelsAndTaintsSet";
            return or_else(
                unjudged,
                by_conditions(observed, kind, "node labels and taints", now),
            );
        }
    };
    let taint_is_wanted = wants_taint(observed);
    let findings = nodes.iter().filter_map(|of| {
        machine_of_node(observed, &of.name)?;
        let label = "label node-role.kubernetes.io/control-plane";
        let taint = "taint node-role.kubernetes.io/control-plane:NoSchedule";
        let missing = match (
            of.has_control_plane_label,
            of.has_control_plane_taint || !taint_is_wanted,
        ) {
            (true, true) => return None,
            (false, true) => label.to_owned(),
            (true, false) => taint.to_owned(),
            (false, false) => format!("{label} and {taint}"),
        };
        of_node(observed, &of.name, &format!("the node lacks {missing}"), now)
    });
    Ok(findings.collect())
}

/// kubeadm taints the nodes unless `nodeRegistration.taints` says otherwise.
fn wants_taint(observed: &Observed) -> bool {
    let fields = &observed.management.control_plane.spec.config.fields;
    ["initConfiguration", "joinConfiguration"]
        .iter()
        .filter_map(|section| fields.pointer(&format!("/{section}/nodeRegistration/taints")))
        .all(serde_json::Value::is_null)
}

pub fn ready(observed: &Observed, now: Timestamp) -> Judgement {
    let workload = need(&observed.workload, WORKLOAD)?;
    let nodes = need(&workload.nodes, "nodes")?;
    let present = nodes.iter().filter_map(|of| {
        machine_of_node(observed, &of.name)?;
        let message = match (of.ready, of.is_unreachable) {
            (_, true) => "the node is unreachable",
            (Some(true), false) => return None,
            (Some(false), false) => "the node is not ready",
            (None, false) => "the node does not say whether it is ready",
        };
        of_node(observed, &of.name, message, now).map(|finding| {
            finding.hint(format!(
                "in the workload cluster: kubectl describe node {}",
                of.name
            ))
        })
    });
    let gone = machines(observed)
        .iter()
        .filter_map(|machine| machine.machine.node.as_deref())
        .filter(|on| !nodes.iter().any(|of| of.name == *on))
        .filter_map(|on| of_node(observed, on, "its node is not in the workload cluster", now));
    Ok(present.chain(gone).collect())
}
