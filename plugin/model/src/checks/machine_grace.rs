//! Grace periods of Machines. While a Machine starts or is being deleted, its missing parts are not problems.

use std::time::Duration;

use crate::{
    checks::finding::NoResult,
    join_times::JoinLimit,
    snapshot::Snapshot,
    staleness::{DELETION_LIMIT, SETTLING_LIMIT, age},
};

use jiff::Timestamp;
use kcp_api::{Condition, Machine, Object as _};

/// The type of the condition that says whether kubeadm has set the labels and taints of the node.
const LABELS_AND_TAINTS_SET: &str = "NodeKubeadmLabelsAndTaintsSet";

/// The phase of a Machine's lifecycle. From the phase, the checks decide whether missing parts are problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The Machine was created recently, and its node has not joined or has only just joined. Its missing parts are not
    /// problems.
    Starting,
    /// The Machine's deletion began less than [`DELETION_LIMIT`] ago.
    Deleting,
    /// The Machine is in neither of the other phases. Each of its missing parts is a problem.
    Settled,
}

impl Phase {
    pub fn of(observed: &Snapshot, machine: &Machine, now: Timestamp) -> Self {
        if let Some(since) = machine.deletion_timestamp() {
            return if age(since, now) > DELETION_LIMIT {
                Self::Settled
            } else {
                Self::Deleting
            };
        }
        let is_young = || {
            let created = machine.creation_timestamp();
            created.is_some_and(|created| age(created, now) < JoinLimit::of(observed).limit)
        };
        if !has_settled(machine, now) && is_young() {
            Self::Starting
        } else {
            Self::Settled
        }
    }
}

fn has_settled(machine: &Machine, now: Timestamp) -> bool {
    let marked = machine.condition(LABELS_AND_TAINTS_SET);
    let is_marked = marked
        .is_some_and(|condition| condition.is_true() && !has_changed_within(condition, now, SETTLING_LIMIT));
    machine.has_node() && (is_marked || machine.ready() == Some(true))
}

/// Whether the status of a condition changed less than `limit` ago.
pub fn has_changed_within(condition: &Condition, now: Timestamp, limit: Duration) -> bool {
    condition
        .last_transition_time
        .is_some_and(|since| age(since, now) < limit)
}

/// Whether any Machine is starting or being deleted. If so, etcd may have more or fewer members than there
/// are Machines, and the members may report different lists.
pub fn are_machines_changing(observed: &Snapshot, now: Timestamp) -> bool {
    observed
        .machines
        .iter()
        .any(|machine| Phase::of(observed, machine, now) != Phase::Settled)
}

/// Whether the Machines could be read. If not, the list of Machines is empty.
pub fn are_machines_read(observed: &Snapshot) -> bool {
    let mut unread = observed.failed_reads.iter();
    !unread.any(|failure| failure.object == "Machine")
}

pub fn require_machines(observed: &Snapshot) -> Result<(), NoResult> {
    if are_machines_read(observed) {
        Ok(())
    } else {
        Err(NoResult::unknown("could not read the Machines"))
    }
}

pub fn machine_of_node<'o>(observed: &'o Snapshot, node: &str) -> Option<&'o Machine> {
    observed
        .machines
        .iter()
        .find(|machine| machine.node() == Some(node))
}

/// The Machines without `status.nodeRef`. A node registers, and its etcd member may vote, before the Machine references
/// the node, because Cluster API needs the node's provider id for the reference.
pub fn machines_without_node(observed: &Snapshot) -> impl Iterator<Item = &Machine> {
    observed.machines.iter().filter(|machine| !machine.has_node())
}

/// The phase of the Machine on a node. A node that no Machine references may belong to a Machine that is starting.
pub fn phase_of_node(observed: &Snapshot, node: &str, now: Timestamp) -> Phase {
    if let Some(machine) = machine_of_node(observed, node) {
        return Phase::of(observed, machine, now);
    }
    if machines_without_node(observed).any(|machine| Phase::of(observed, machine, now) == Phase::Starting) {
        Phase::Starting
    } else {
        Phase::Settled
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{
        ConditionStatus::{False, True},
        Machine,
        metadata::Time,
    };

    use super::Phase::{self, Deleting, Settled, Starting};
    use crate::testing::{
        objects::{condition, healthy, minutes_ago, now, set},
        plan::machine,
    };

    #[test]
    fn a_machine_is_judged_once_it_has_settled() {
        type Case = (&'static str, fn(&mut Machine), Phase);
        let cases: &[Case] = &[
            ("old", |_| {}, Settled),
            ("old_without_node", |m| m.status.node_name = None, Settled),
            (
                "young_without_node",
                |m| {
                    m.metadata.creation_timestamp = Some(Time(minutes_ago(9)));
                    m.status.node_name = None;
                },
                Starting,
            ),
            (
                "young_and_joined_a_while_ago",
                |m| {
                    m.metadata.creation_timestamp = Some(Time(minutes_ago(9)));
                    set(&mut m.status.conditions, condition("Ready", False, ""));
                },
                Settled,
            ),
            (
                "young_and_joined_just_now",
                |m| {
                    m.metadata.creation_timestamp = Some(Time(minutes_ago(9)));
                    set(&mut m.status.conditions, condition("Ready", False, ""));
                    let mut marked = condition("NodeKubeadmLabelsAndTaintsSet", True, "");
                    marked.last_transition_time = Some(now());
                    set(&mut m.status.conditions, marked);
                },
                Starting,
            ),
            (
                "young_and_not_marked",
                |m| {
                    m.metadata.creation_timestamp = Some(Time(minutes_ago(9)));
                    set(&mut m.status.conditions, condition("Ready", False, ""));
                    set(
                        &mut m.status.conditions,
                        condition("NodeKubeadmLabelsAndTaintsSet", False, ""),
                    );
                },
                Starting,
            ),
            (
                "young_and_ready_before_it_is_marked",
                |m| {
                    m.metadata.creation_timestamp = Some(Time(minutes_ago(9)));
                    m.status
                        .conditions
                        .retain(|other| other.type_ != "NodeKubeadmLabelsAndTaintsSet");
                },
                Settled,
            ),
            (
                "leaving",
                |m| m.metadata.deletion_timestamp = Some(Time(minutes_ago(30))),
                Deleting,
            ),
            (
                "leaving_for_too_long",
                |m| m.metadata.deletion_timestamp = Some(Time(minutes_ago(31))),
                Settled,
            ),
        ];
        for (name, change, phase) in cases {
            let mut machine = machine("m1", "a", 5);
            change(&mut machine);
            assert_eq!(Phase::of(&healthy(3), &machine, now()), *phase, "{name}");
        }
    }
}
