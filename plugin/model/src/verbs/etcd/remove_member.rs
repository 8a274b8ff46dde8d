//! The decision of `etcd remove-member`: whether a member may be removed from etcd.
//!
//! Cluster API removes the member of each Machine that it deletes. So the command removes only a member that Cluster API does
//! not remove:
//!
//! - a member that belongs to no Machine, or to a Machine that is being deleted;
//! - a dead member of a Machine that exists, if the deletion of another Machine waits because etcd refuses to remove a member
//!   that runs while this one is dead. Cluster API deletes no other Machine until then, so the Machine of the dead member
//!   cannot be replaced first.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};

use crate::{
    change::{decision::Refusal, replaceable::replacement_blockers},
    checks::etcd_refusals::refused_deletion,
    quorum::Votes,
    snapshot::{Snapshot, etcd::QueriedMember},
    verbs::etcd::{
        members::{ClusterMember, EtcdCluster, refusal},
        owner::{Owner, owner},
    },
};

/// A member that may be removed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovableMember {
    pub id: u64,
    /// The name of the member, or its id if it has not started.
    pub name: String,
    /// The healthy member that receives the request.
    pub through: QueriedMember,
    /// If the member is the leader: the member itself, and the id of the one that takes over.
    pub leader: Option<(QueriedMember, u64)>,
    /// The Machine that exists on without an etcd member. `None` if the member has no such Machine.
    pub left_machine: Option<String>,
    /// The Machine whose deletion waits for the removal. `None` if none waits.
    pub waiting_machine: Option<String>,
}

/// Decides whether the member with this name or id may be removed.
pub fn decide(observed: &Snapshot, requested: &str, now: Timestamp) -> Result<RemovableMember, Refusal> {
    let cluster = EtcdCluster::new(observed)?;
    if !cluster.survey.stacked {
        return Err(refusal(
            "etcd is external: Cluster API does not manage its members".to_owned(),
        ));
    }
    cluster.refuse_corruption()?;
    let member = cluster.find_member(requested)?;
    let waiting = refused_deletion(observed).filter(|refused| {
        let mut dead = refused.refusal.dead.iter();
        dead.any(|dead| dead.member == member.name)
    });
    let left_machine = match owner(observed, &cluster, member)? {
        Owner::Living(machine) if waiting.is_some() => Some(machine.name().to_owned()),
        Owner::Living(machine) => return Err(living_refusal(observed, member, machine, now)),
        // While the control plane is paused, no controller deletes the Machine.
        Owner::Joining(machine) if !observed.is_paused() => {
            return Err(joining_refusal(observed, member, machine));
        }
        Owner::Joining(_) | Owner::Deleting(_) | Owner::Unowned => None,
    };
    let MemberRemoval { id, through, leader } = removal(&cluster, member)?;
    Ok(RemovableMember {
        id,
        name: member.name.clone(),
        through: through.clone(),
        leader: leader.map(|(leader, successor)| (leader.clone(), successor)),
        left_machine,
        waiting_machine: waiting.map(|refused| refused.machine),
    })
}

/// Whether etcd no longer lists the member.
pub fn is_removed(observed: &Snapshot, id: u64) -> bool {
    EtcdCluster::new(observed).is_ok_and(|cluster| cluster.members.iter().all(|member| member.id != id))
}

fn joining_refusal(observed: &Snapshot, member: &ClusterMember<'_>, machine: &Machine) -> Refusal {
    let mut refusal = refusal(format!(
        "etcd member {} may belong to Machine {}, which has no node yet",
        member.name,
        machine.name()
    ));
    let control_plane = &observed.control_plane;
    refusal.remedies.push(format!(
        "wait until the Machine has joined; to give up the Machine instead, pause the control plane before you remove the \
         Machine's member: kubectl kcp rollout pause {} -n {}",
        control_plane.name(),
        control_plane.namespace()
    ));
    refusal
}

fn living_refusal(
    observed: &Snapshot,
    member: &ClusterMember<'_>,
    machine: &Machine,
    now: Timestamp,
) -> Refusal {
    let (name, namespace) = (machine.name(), machine.namespace());
    let mut refusal = refusal(format!(
        "etcd member {} belongs to Machine {name}, and Cluster API removes the member when it deletes the Machine",
        member.name
    ));
    if replacement_blockers(observed, name, now).is_empty() {
        refusal.remedies.push(format!(
            "replace the Machine: kubectl kcp machine replace {name} -n {namespace}"
        ));
    }
    refusal
}

/// How to remove a member.
#[derive(Clone, Copy, Debug)]
pub struct MemberRemoval<'s> {
    /// The id of the member to remove.
    pub id: u64,
    /// The healthy member that receives the request to remove the other.
    pub through: &'s QueriedMember,
    /// If the member to remove is the leader: the member, and the id of the one that takes over.
    pub leader: Option<(&'s QueriedMember, u64)>,
}

/// Decides whether etcd can lose a member: a quorum of healthy voters must remain, and if the member runs, every other
/// member must vote. etcd itself requires less of the other members (`mayRemoveMember`).
pub fn removal<'s>(
    cluster: &EtcdCluster<'s>,
    member: &ClusterMember<'s>,
) -> Result<MemberRemoval<'s>, Refusal> {
    let others = || cluster.members.iter().filter(|other| other.id != member.id);
    let remaining = || others().filter(|other| other.is_voter);
    let votes = Votes {
        voters: remaining().count(),
        unhealthy: remaining().filter(|other| other.health.is_err()).count(),
        starting: others().filter(|other| other.is_starting()).count(),
    };
    let name = &member.name;
    if votes.voters == 0 {
        return Err(refusal(format!(
            "{name} has the only voting member of etcd: its removal would delete the cluster's data"
        )));
    }
    if votes.starting > 0 && member.is_voter && member.health.is_ok() {
        return Err(refusal(format!(
            "{} other members of etcd do not vote yet",
            votes.starting
        )));
    }
    if !votes.has_quorum() {
        return Err(cluster.quorum_refusal(format!(
            "without the member of {name}, etcd loses quorum: {}",
            Votes { starting: 0, ..votes }
        )));
    }
    // Without quorum, etcd removes no member.
    cluster.select_voter()?;
    let healthy = remaining().filter_map(|other| Some((other, other.health.as_ref().ok()?)));
    let Some((successor, through)) = healthy.min_by_key(|(other, _)| (!other.is_leader, &other.name)) else {
        return Err(cluster.quorum_refusal("no other member of etcd is healthy".to_owned()));
    };
    let own = member.health.as_ref().ok().map(|healthy| healthy.queried);
    Ok(MemberRemoval {
        id: member.id,
        through: through.queried,
        leader: own.filter(|_| member.is_leader).map(|own| (own, successor.id)),
    })
}

#[cfg(test)]
mod tests {
    use kcp_api::{metadata::Time, names::annotation};

    use super::decide;
    use crate::{
        snapshot::Snapshot,
        testing::{
            objects::{annotate, minutes_ago, now},
            snapshot::{member, observed},
        },
    };

    /// The id of the removed member, the member that receives the request, and the Machine that stays.
    type Decided = Result<(u64, String, Option<String>), Vec<String>>;

    fn decided(observed: &Snapshot, requested: &str) -> Decided {
        match decide(observed, requested, now()) {
            Ok(removable) => Ok((removable.id, removable.through.name, removable.left_machine)),
            Err(refusal) => Err(refusal.why),
        }
    }

    fn is_deleted(observed: &mut Snapshot, number: usize) {
        let machine = observed.machine(number);
        machine.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        annotate(&mut machine.metadata, annotation::KCP_CLEANUP_HOOK, "");
    }

    /// A learner that was added and has never started.
    fn ghost(observed: &mut Snapshot) {
        let mut ghost = member(0xab, "");
        ghost.is_learner = true;
        ghost.peer_urls = vec!["https://10.0.0.99:2380".to_owned()];
        observed.each_list(|list| list.members.push(ghost.clone()));
    }

    fn joins_from(observed: &mut Snapshot, addresses: &[&str]) {
        let mut machine = observed.machine(1).clone();
        machine.metadata.name = Some("m4".to_owned());
        machine.status.node_name = None;
        machine.status.addresses = addresses.iter().map(ToString::to_string).collect();
        observed.machines.push(machine);
    }

    #[test]
    fn a_member_is_removed_only_if_cluster_api_does_not_remove_it() {
        type Case = (&'static str, fn(&mut Snapshot), &'static str, Decided);
        let removed =
            |id, through: &str, left: Option<&str>| Ok((id, through.to_owned(), left.map(str::to_owned)));
        let why = |lines: &[&str]| Err(lines.iter().map(ToString::to_string).collect());
        let of_machine = |number: u8| {
            why(&[&format!(
                "etcd member node-m{number} belongs to Machine m{number}, and Cluster API removes the member when it deletes the Machine"
            )])
        };
        let cases: Vec<Case> = vec![
            ("healthy", |_| {}, "node-m3", of_machine(3)),
            ("healthy, by its Machine", |_| {}, "m3", of_machine(3)),
            ("dead", |o| o.kill(3), "3", of_machine(3)),
            (
                "dead, and a live one is being deleted",
                |o| {
                    o.kill(3);
                    is_deleted(o, 2);
                },
                "node-m3",
                removed(3, "node-m1", Some("m3")),
            ),
            (
                "live, of a Machine that is being deleted beside a dead one",
                |o| {
                    o.kill(3);
                    is_deleted(o, 2);
                },
                "node-m2",
                why(&[
                    "without the member of node-m2, etcd loses quorum: 1 of 2 voting members healthy, 2 needed for quorum",
                    "etcd member node-m3 does not respond: cannot connect: connection refused",
                ]),
            ),
            (
                "of a Machine that is being deleted",
                |o| is_deleted(o, 2),
                "2",
                removed(2, "node-m1", None),
            ),
            (
                "of no Machine",
                |o| drop(o.machines.remove(2)),
                "node-m3",
                removed(3, "node-m1", None),
            ),
            ("never started", ghost, "ab", removed(0xab, "node-m1", None)),
            (
                "never started, beside a Machine that may own it",
                |o| {
                    ghost(o);
                    joins_from(o, &[]);
                },
                "ab",
                why(&["etcd member ab may belong to Machine m4, which has no node yet"]),
            ),
            (
                "never started, beside the Machine that owns it",
                |o| {
                    ghost(o);
                    joins_from(o, &["10.0.0.99", "m4"]);
                },
                "ab",
                why(&["etcd member ab may belong to Machine m4, which has no node yet"]),
            ),
            (
                "never started, beside another Machine",
                |o| {
                    ghost(o);
                    joins_from(o, &["10.0.0.4"]);
                },
                "ab",
                removed(0xab, "node-m1", None),
            ),
            (
                "never started, and one is dead",
                |o| {
                    ghost(o);
                    o.kill(3);
                },
                "ab",
                removed(0xab, "node-m1", None),
            ),
            (
                "unknown",
                |_| {},
                "stray",
                why(&["etcd has no member stray; the members are node-m1, node-m2, node-m3"]),
            ),
        ];
        for (name, change, requested, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(decided(&observed, requested), expected, "{name}");
        }
    }
}
