//! The grace that a Machine has while it starts or is deleted: what is missing of it then is no fault.

use std::time::Duration;

use crate::{
    checks::finding::Unjudged,
    snapshot::Snapshot,
    staleness::{DELETION_LIMIT, JOIN_LIMIT, SETTLING_LIMIT, age},
};

use jiff::Timestamp;
use kcp_api::{Condition, Machine, Object as _};

/// Says that a Machine's node has been marked by kubeadm.
const MARKED: &str = "NodeKubeadmLabelsAndTaintsSet";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Made a short while ago, and has not joined, or has only just: what it lacks says nothing.
    Starting,
    /// On its way out, for not too long.
    Leaving,
    Settled,
}

impl Phase {
    pub fn of(machine: &Machine, now: Timestamp) -> Self {
        if let Some(since) = machine.deletion_timestamp() {
            return if age(since, now) > DELETION_LIMIT {
                Self::Settled
            } else {
                Self::Leaving
            };
        }
        let is_young = machine
            .creation_timestamp()
            .is_some_and(|created| age(created, now) < JOIN_LIMIT);
        if is_young && !has_settled(machine, now) {
            Self::Starting
        } else {
            Self::Settled
        }
    }
}

fn has_settled(machine: &Machine, now: Timestamp) -> bool {
    let marked = machine.condition(MARKED);
    let is_marked =
        marked.is_some_and(|condition| condition.is_true() && !is_fresh(condition, now, SETTLING_LIMIT));
    machine.has_node() && (is_marked || machine.ready() == Some(true))
}

/// Whether a condition is as it is since a short while only.
pub fn is_fresh(condition: &Condition, now: Timestamp, limit: Duration) -> bool {
    condition
        .last_transition_time
        .is_some_and(|since| age(since, now) < limit)
}

/// Whether any Machine starts or is being deleted. Until then etcd's members may differ from the Machines and from each
/// other.
pub fn is_turning(observed: &Snapshot, now: Timestamp) -> bool {
    observed
        .machines
        .iter()
        .any(|machine| Phase::of(machine, now) != Phase::Settled)
}

/// Whether the Machines are known: where they could not be read there are none of them to compare with.
pub fn are_machines_read(observed: &Snapshot) -> bool {
    let mut unread = observed.unread.iter();
    !unread.any(|failure| failure.object == "Machine")
}

pub fn machines_read(observed: &Snapshot) -> Result<(), Unjudged> {
    if are_machines_read(observed) {
        Ok(())
    } else {
        Err(Unjudged::unknown("Machines: could not be read"))
    }
}

pub fn machine_of_node<'o>(observed: &'o Snapshot, node: &str) -> Option<&'o Machine> {
    observed
        .machines
        .iter()
        .find(|machine| machine.node() == Some(node))
}

/// The Machines that name no node: a node that no Machine names may be of one of them, as may the member on it. A node
/// registers before its Machine names it, which waits for the provider's id of the node.
pub fn without_node(observed: &Snapshot) -> impl Iterator<Item = &Machine> {
    observed.machines.iter().filter(|machine| !machine.has_node())
}

/// Where the Machine on a node is in its life. A node that no Machine names is taken for that of one that starts, and is
/// settled where there is none.
pub fn phase_of_node(observed: &Snapshot, node: &str, now: Timestamp) -> Phase {
    if let Some(machine) = machine_of_node(observed, node) {
        return Phase::of(machine, now);
    }
    if without_node(observed).any(|machine| Phase::of(machine, now) == Phase::Starting) {
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

    use super::Phase::{self, Leaving, Settled, Starting};
    use crate::testing::{
        objects::{condition, minutes_ago, now, set},
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
                Leaving,
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
            assert_eq!(Phase::of(&machine, now()), *phase, "{name}");
        }
    }
}
