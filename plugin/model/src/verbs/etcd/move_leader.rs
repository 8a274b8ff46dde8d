//! The decision of `etcd move-leader`: which member becomes the leader.
//!
//! Unlike a defragmentation, a move is safe during a change: no member pauses, and the move takes the
//! leadership away from a Machine that is about to be deleted.

use std::cmp::Reverse;

use jiff::Timestamp;
use kcp_api::{Machine, Object};

use crate::{
    change::decision::Refusal,
    snapshot::{Snapshot, etcd::QueriedMember},
    verbs::etcd::members::{ClusterMember, EtcdCluster, refusal},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderMove {
    /// The leader, which receives the call.
    pub from: QueriedMember,
    /// The name of the new leader.
    pub to: String,
    pub to_id: u64,
}

/// Returns the move to the member with this name or on this Machine, or to the best member. `None` if that
/// member is already the leader.
pub fn decide(observed: &Snapshot, requested: Option<&str>) -> Result<Option<LeaderMove>, Refusal> {
    let cluster = EtcdCluster::new(observed)?;
    cluster.refuse_corruption()?;
    let votes = cluster.votes();
    let leader = cluster
        .leader()
        .ok_or_else(|| cluster.quorum_refusal(format!("etcd has no leader: {votes}")))?;
    let target = match requested {
        Some(name) => {
            let target = cluster.find_member(name)?;
            if target.id == leader.id {
                return Ok(None);
            }
            if let Some(why) = why_not(observed, target) {
                return Err(refusal(format!(
                    "etcd member {} cannot become the leader: it {why}",
                    target.name
                )));
            }
            target
        }
        None => best(observed, &cluster)?,
    };
    let from = match &leader.health {
        Ok(healthy) => healthy.queried.clone(),
        Err(why) => {
            return Err(refusal(format!(
                "this command cannot ask the leader {} to move the leadership: it {why}",
                leader.name
            )));
        }
    };
    Ok(Some(LeaderMove {
        from,
        to: target.name.clone(),
        to_id: target.id,
    }))
}

/// Whether the move is complete.
pub fn is_moved(observed: &Snapshot, to_id: u64) -> bool {
    EtcdCluster::new(observed).is_ok_and(|cluster| cluster.leader().is_some_and(|leader| leader.id == to_id))
}

/// The member that Cluster API selects, too (1.14, `kubeadmcontrolplane_controller.go`, `getCandidatesForEtcdLeadership`).
fn best<'c, 's>(observed: &Snapshot, cluster: &'c EtcdCluster<'s>) -> Result<&'c ClusterMember<'s>, Refusal> {
    let others = || cluster.members.iter().filter(|member| !member.is_leader);
    let suitable = others().filter(|member| why_not(observed, member).is_none());
    let best = suitable.min_by_key(|member| (Reverse(rank(observed, member)), &member.name));
    best.ok_or_else(|| {
        let mut refusal = refusal("no other etcd member can become the leader".to_owned());
        refusal.why.extend(others().filter_map(|member| {
            Some(format!(
                "etcd member {}: {}",
                member.name,
                why_not(observed, member)?
            ))
        }));
        refusal
    })
}

/// Why a member must not become the leader. `None` if it may.
fn why_not(observed: &Snapshot, member: &ClusterMember<'_>) -> Option<String> {
    if !member.is_voter {
        return Some("does not vote".to_owned());
    }
    if let Err(why) = &member.health {
        return Some(why.clone());
    }
    let machine = machine(observed, member)?;
    machine
        .deletion_timestamp()
        .is_some()
        .then(|| format!("is on Machine {}, which is being deleted", machine.name()))
}

fn machine<'o>(observed: &'o Snapshot, member: &ClusterMember<'_>) -> Option<&'o Machine> {
    let name = member.machine?;
    observed.machines.iter().find(|machine| machine.name() == name)
}

/// Ranks a member by its Machine. Cluster API soon replaces a Machine that fails its health check or is outdated, and of the others
/// the newest last.
fn rank(observed: &Snapshot, member: &ClusterMember<'_>) -> (bool, bool, Option<Timestamp>) {
    let machine = machine(observed, member);
    let is_true = |type_| machine.is_some_and(|machine| machine.is_condition_true(type_));
    let created = machine.and_then(Object::creation_timestamp);
    (is_true("HealthCheckSucceeded"), is_true("UpToDate"), created)
}

#[cfg(test)]
mod tests {
    use kcp_api::{ConditionStatus, metadata::Time};
    use kcp_etcd::{Alarm, AlarmKind};

    use super::{decide, is_moved};
    use crate::{
        snapshot::{Snapshot, etcd::Alarms},
        testing::{
            objects::{condition, minutes_ago, set},
            snapshot::observed,
        },
    };

    fn decided(observed: &Snapshot, to: Option<&str>) -> Result<Option<(String, String, u64)>, Vec<String>> {
        match decide(observed, to) {
            Ok(moved) => Ok(moved.map(|moved| (moved.from.name, moved.to, moved.to_id))),
            Err(refusal) => Err(refusal.why),
        }
    }

    /// A move from the leader of [`observed`].
    fn to(name: &str, id: u64) -> (String, String, u64) {
        ("node-m1".to_owned(), name.to_owned(), id)
    }

    fn set_condition(observed: &mut Snapshot, machine: usize, type_: &str, status: ConditionStatus) {
        let conditions = &mut observed.machine(machine).status.conditions;
        set(conditions, condition(type_, status, ""));
    }

    fn lines(why: &[&str]) -> Vec<String> {
        why.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_leadership_moves_to_the_newest_suitable_machine() {
        let mut observed = observed();
        observed.machine(2).metadata.creation_timestamp = Some(Time(minutes_ago(500)));
        observed.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(400)));
        assert_eq!(decided(&observed, None), Ok(Some(to("node-m3", 3))));
        let mut outdated = observed.clone();
        set_condition(&mut outdated, 3, "UpToDate", ConditionStatus::False);
        assert_eq!(decided(&outdated, None), Ok(Some(to("node-m2", 2))));
        set_condition(&mut outdated, 3, "HealthCheckSucceeded", ConditionStatus::True);
        assert_eq!(decided(&outdated, None), Ok(Some(to("node-m3", 3))));
        set_condition(&mut outdated, 2, "HealthCheckSucceeded", ConditionStatus::True);
        assert_eq!(decided(&outdated, None), Ok(Some(to("node-m2", 2))));
        assert_eq!(decided(&observed, Some("node-m2")), Ok(Some(to("node-m2", 2))));
        assert_eq!(
            decided(&observed, Some("m2")),
            Ok(Some(to("node-m2", 2))),
            "by its Machine"
        );
        assert_eq!(decided(&observed, Some("m1")), Ok(None), "it leads");
        observed.machine(3).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        assert_eq!(decided(&observed, None), Ok(Some(to("node-m2", 2))));
        assert_eq!(
            decided(&observed, Some("node-m3")),
            Err(lines(&[
                "etcd member node-m3 cannot become the leader: it is on Machine m3, which is being deleted"
            ]))
        );
        assert!(is_moved(&observed, 1) && !is_moved(&observed, 2));
    }

    #[test]
    fn only_a_healthy_voter_in_step_leads() {
        type Case = (&'static str, fn(&mut Snapshot), &'static str);
        let cases: &[Case] = &[
            (
                "dead",
                |o| o.kill(3),
                "etcd member node-m3 cannot become the leader: it does not respond: cannot connect: \
                 connection refused",
            ),
            (
                "behind",
                |o| o.status(3).raft_applied_index -= 5_001,
                "etcd member node-m3 cannot become the leader: it is 5001 raft log entries behind",
            ),
            (
                "a learner",
                |o| o.each_list(|list| list.members[2].is_learner = true),
                "etcd member node-m3 cannot become the leader: it does not vote",
            ),
            (
                "unknown",
                |o| {
                    o.each_list(|list| list.members.truncate(2));
                    o.survey().queried.truncate(2);
                },
                "etcd has no member node-m3; the members are node-m1, node-m2",
            ),
            (
                "corrupt",
                |o| {
                    o.survey().alarms = Alarms::Listed(vec![Alarm {
                        member_id: 1,
                        kind: AlarmKind::Corrupt,
                    }]);
                },
                "etcd member node-m1 has raised the alarm CORRUPT: its data differs from that of the other members",
            ),
        ];
        for (name, change, why) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(decided(&observed, Some("node-m3")), Err(lines(&[why])), "{name}");
        }
    }

    #[test]
    fn a_leader_that_does_not_respond_moves_nothing() {
        let mut observed = observed();
        observed.kill(1);
        assert_eq!(
            decided(&observed, None),
            Err(lines(&[
                "this command cannot ask the leader node-m1 to move the leadership: it does not respond: cannot connect: \
                 connection refused"
            ]))
        );
        observed.kill(2);
        observed.kill(3);
        assert!(decided(&observed, None).is_err());
    }
}
