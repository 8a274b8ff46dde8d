//! The control plane's nodes.

use jiff::Timestamp;

use crate::{
    checks::{
        Check,
        components::{WORKLOAD, of_node},
        finding::{Judgement, need},
        machine_grace::{machine_of_node, machines},
    },
    snapshot::Snapshot,
};

pub const CHECKS: &[Check] = &[Check::new(
    "nodes-ready",
    "every control plane node exists and is ready",
    ready,
)];

pub fn ready(observed: &Snapshot, now: Timestamp) -> Judgement {
    let workload = need(&observed.workload, WORKLOAD)?;
    let nodes = need(&workload.nodes, "nodes")?;
    let present = nodes.iter().filter_map(|of| {
        machine_of_node(observed, &of.name)?;
        let message = match (of.ready, of.is_unreachable) {
            (_, true) => "the node is unreachable",
            (Some(true), false) => return None,
            (Some(false), false) => "the node is not ready",
            (None, false) => "the node does not report whether it is ready",
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
        .filter_map(|machine| machine.node())
        .filter(|on| !nodes.iter().any(|of| of.name == *on))
        .filter_map(|on| of_node(observed, on, "its node is not in the workload cluster", now));
    Ok(present.chain(gone).collect())
}

#[cfg(test)]
pub(super) mod cases {
    use crate::checks::tests::Case;

    pub(crate) const CASES: &[Case] = &[
        ("nodes-ready", "not_ready", |o| o.nodes()[1].ready = Some(false)),
        ("nodes-ready", "does_not_say", |o| o.nodes()[1].ready = None),
        ("nodes-ready", "unreachable", |o| {
            o.nodes()[1].ready = None;
            o.nodes()[1].is_unreachable = true;
        }),
        ("nodes-ready", "gone", |o| {
            o.nodes().remove(1);
        }),
        ("nodes-ready", "of_a_worker", |o| o.nodes()[3].ready = Some(false)),
    ];
}
