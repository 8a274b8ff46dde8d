//! The decision of `etcd promote`: whether a learner may get a vote.
//!
//! kubeadm promotes the learner of a Machine that joins, so the command is for a learner on which kubeadm gave up. etcd itself
//! promotes a learner that no longer runs, if it received most of the log before it stopped. Its vote would only raise the
//! quorum, so the command requires that the learner responds.

use kcp_api::{Machine, Object as _};

use crate::{
    change::decision::Refusal,
    checks::{
        etcd_members::{may_vote, removal_command},
        machines::replacement_hint,
        membership::Membership,
    },
    quorum::Votes,
    snapshot::{Snapshot, etcd::QueriedMember},
    verbs::etcd::{
        members::{ClusterMember, EtcdCluster, refusal},
        owner::{Owner, owner},
    },
};

/// Why etcd does not promote a learner. The text follows the member's name.
pub const NOT_IN_SYNC: &str =
    "is not in sync with the leader yet: wait until it has caught up, then run the command again";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// The member votes already.
    Unchanged(PromotedMember),
    Promote {
        member: PromotedMember,
        /// The healthy member that receives the request.
        through: Box<QueriedMember>,
    },
}

/// A member that votes, or will vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromotedMember {
    pub id: u64,
    /// The name of the member, or its id if it has not started.
    pub name: String,
    pub quorum: QuorumChange,
}

/// etcd's votes before and after a change of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumChange {
    pub before: Votes,
    pub after: Votes,
}

/// Decides whether the member with this name or id may be promoted.
pub fn decide(observed: &Snapshot, requested: &str) -> Result<Promotion, Refusal> {
    let cluster = EtcdCluster::new(observed)?;
    if !cluster.survey.stacked {
        return Err(refusal(
            "etcd is external: Cluster API does not manage its members".to_owned(),
        ));
    }
    let member = cluster.find_member(requested)?;
    let before = cluster.votes();
    let promoted = |after| PromotedMember {
        id: member.id,
        name: member.name.clone(),
        quorum: QuorumChange { before, after },
    };
    if member.is_voter {
        return Ok(Promotion::Unchanged(promoted(before)));
    }
    cluster.refuse_corruption()?;
    let machine = require_machine(observed, &cluster, member)?;
    cluster.select_voter()?;
    refuse_unready(observed, &cluster, member, machine)?;
    // The leader alone knows how far the learner is. The other members would forward the request to it.
    let mut voters: Vec<_> = cluster.healthy_voters().collect();
    voters.sort_by_key(|(voter, _)| (!voter.is_leader, &voter.name));
    let Some((_, through)) = voters.first() else {
        return Err(cluster.quorum_refusal("no voting member of etcd is healthy".to_owned()));
    };
    Ok(Promotion::Promote {
        member: promoted(Votes {
            voters: before.voters + 1,
            starting: before.starting.saturating_sub(1),
            ..before
        }),
        through: Box::new(through.queried.clone()),
    })
}

/// Whether etcd lists the member as a voter.
pub fn is_promoted(observed: &Snapshot, id: u64) -> bool {
    let cluster = EtcdCluster::new(observed);
    cluster.is_ok_and(|cluster| {
        cluster
            .members
            .iter()
            .any(|member| member.id == id && member.is_voter)
    })
}

/// The Machine that owns the member, or may own it. Fails if Cluster API is about to remove the member, or it is unknown whether
/// a Machine owns it.
fn require_machine<'o>(
    observed: &'o Snapshot,
    cluster: &EtcdCluster<'_>,
    member: &ClusterMember<'_>,
) -> Result<&'o Machine, Refusal> {
    let mut refusal = match owner(observed, cluster, member)? {
        Owner::Living(machine) | Owner::Joining(machine) => return Ok(machine),
        Owner::Deleting(machine) => refusal(format!(
            "etcd member {} belongs to Machine {}, which is being deleted",
            member.name,
            machine.name()
        )),
        Owner::Unowned => refusal(format!(
            "etcd member {} belongs to no Machine: Cluster API does not replace it when it fails",
            member.name
        )),
    };
    refusal.remedies.push(format!(
        "remove the member: {}",
        removal_command(observed, member.id)
    ));
    Err(refusal)
}

/// Fails if the learner does not run, or has not caught up.
fn refuse_unready(
    observed: &Snapshot,
    cluster: &EtcdCluster<'_>,
    member: &ClusterMember<'_>,
    machine: &Machine,
) -> Result<(), Refusal> {
    let name = &member.name;
    match &member.health {
        Ok(_) if may_get_vote(cluster, member.id) => Ok(()),
        Ok(_) => Err(refusal(format!("etcd member {name} {NOT_IN_SYNC}"))),
        Err(why) => {
            let mut refusal = refusal(format!("etcd member {name} {why}"));
            refusal.remedies.push(if observed.node_of(machine).is_some() {
                format!("repair the member; or {}", replacement_hint(observed, machine))
            } else {
                format!("wait until Machine {} has joined", machine.name())
            });
            Err(refusal)
        }
    }
}

fn may_get_vote(cluster: &EtcdCluster<'_>, id: u64) -> bool {
    let membership = Membership::new(cluster.survey);
    membership
        .listed()
        .any(|listed| listed.member.id == id && may_vote(cluster.survey, listed))
}

#[cfg(test)]
mod tests {
    use kcp_api::metadata::Time;
    use kcp_etcd::{Alarm, AlarmKind};

    use super::{PromotedMember, Promotion, QuorumChange, decide, is_promoted};
    use crate::{
        inspection::inspect,
        quorum::Votes,
        snapshot::{Reading, Snapshot, etcd::Alarms},
        testing::{
            objects::{minutes_ago, now, use_external_etcd},
            snapshot::{failure, member, observed},
        },
    };

    /// The member that receives the request, and the healthy of all voters before and after. `None` instead of the member if
    /// there is nothing to do.
    fn promoted(observed: &Snapshot, requested: &str) -> (Option<String>, String) {
        let shown = |member: &PromotedMember| {
            let QuorumChange { before, after } = member.quorum;
            let text = |votes: Votes| format!("{}/{}", votes.voters - votes.unhealthy, votes.voters);
            format!("{} -> {}", text(before), text(after))
        };
        match decide(observed, requested).expect("a promotion") {
            Promotion::Unchanged(member) => (None, shown(&member)),
            Promotion::Promote { member, through } => {
                assert_eq!(member.id, 3);
                (Some(through.name), shown(&member))
            }
        }
    }

    /// The member of `m3` is a learner that has caught up.
    fn learns(observed: &mut Snapshot) {
        observed.status(3).is_learner = true;
        observed.each_list(|list| {
            for member in list.members.iter_mut().filter(|member| member.id == 3) {
                member.is_learner = true;
            }
        });
    }

    fn is_corrupt(observed: &mut Snapshot) {
        observed.survey().alarms = Alarms::Listed(vec![Alarm {
            member_id: 1,
            kind: AlarmKind::Corrupt,
        }]);
    }

    /// The log has 100 entries, of which the learner has applied so many.
    fn has_applied(observed: &mut Snapshot, entries: u64) {
        for number in 1..=3 {
            let status = observed.status(number);
            (status.raft_index, status.raft_applied_index) = (100, 100);
        }
        observed.status(3).raft_applied_index = entries;
    }

    /// Whether a hint of `status` names the command.
    fn is_suggested(observed: &Snapshot) -> bool {
        let inspection = inspect(observed, now());
        let mut hints = inspection
            .findings()
            .into_iter()
            .filter_map(|(_, finding)| finding.hint.as_ref());
        hints.any(|hint| hint.contains("kubectl kcp etcd promote c1-cp 3 -n d"))
    }

    #[test]
    fn a_learner_that_has_caught_up_gets_a_vote() {
        type Case = (&'static str, fn(&mut Snapshot), &'static str, bool);
        let cases: &[Case] = &[
            ("by its name", |_| {}, "node-m3", true),
            ("by its Machine", |_| {}, "m3", true),
            ("by its id", |_| {}, "3", true),
            (
                "of a Machine that has no node yet",
                |o| {
                    o.machine(3).status.node_name = None;
                    o.survey().queried[2].machine = None;
                },
                "node-m3",
                true,
            ),
            (
                "nine tenths of a short log",
                |o| has_applied(o, 90),
                "node-m3",
                true,
            ),
            ("a voter", |_| {}, "node-m2", false),
            ("a voter beside a corrupt member", is_corrupt, "node-m2", false),
        ];
        for (name, change, requested, is_promoted) in cases {
            let mut observed = observed();
            learns(&mut observed);
            assert!(is_suggested(&observed));
            change(&mut observed);
            let expected = if *is_promoted {
                (Some("node-m1".to_owned()), "2/2 -> 3/3".to_owned())
            } else {
                (None, "2/2 -> 2/2".to_owned())
            };
            assert_eq!(promoted(&observed, requested), expected, "{name}");
        }
    }

    /// The change of the control plane, the requested member, the reason and the first remedy.
    type Refused = (
        fn(&mut Snapshot),
        &'static str,
        &'static str,
        Option<&'static str>,
    );

    const REFUSED: &[Refused] = &[
        (
            |o| o.kill(2),
            "node-m3",
            "etcd has no quorum: 1 of 2 voting members healthy, 2 needed for quorum, 1 not voting yet; etcd member node-m2 does not \
             respond: cannot connect: connection refused",
            None,
        ),
        (
            is_corrupt,
            "node-m3",
            "etcd member node-m1 has raised the alarm CORRUPT: its data differs from that of the other members",
            Some(
                "save a snapshot of each member; then replace the Machine of the member whose data is wrong",
            ),
        ),
        (
            |o| o.survey().alarms = Alarms::Failed(failure("etcd", "no response")),
            "node-m3",
            "no response",
            None,
        ),
        (
            |o| o.kill(3),
            "node-m3",
            "etcd member node-m3 does not respond: cannot connect: connection refused",
            Some("repair the member; or replace the Machine: kubectl kcp machine remediate m3 -n d"),
        ),
        (
            |o| o.status(3).raft_applied_index -= 5_001,
            "node-m3",
            "etcd member node-m3 is 5001 raft log entries behind",
            Some("repair the member; or replace the Machine: kubectl kcp machine remediate m3 -n d"),
        ),
        (
            |o| {
                let status = o.status(3);
                (status.leader, status.raft_term) = (Some(2), 3);
            },
            "node-m3",
            "etcd member node-m3 does not follow the same leader as the other members",
            Some("repair the member; or replace the Machine: kubectl kcp machine remediate m3 -n d"),
        ),
        (
            |o| has_applied(o, 89),
            "node-m3",
            "etcd member node-m3 is not in sync with the leader yet: wait until it has caught up, then run the command again",
            None,
        ),
        (
            |o| o.machine(3).metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
            "node-m3",
            "etcd member node-m3 belongs to Machine m3, which is being deleted",
            Some("remove the member: kubectl kcp etcd remove-member c1-cp 3 -n d"),
        ),
        (
            |o| drop(o.machines.remove(2)),
            "node-m3",
            "etcd member node-m3 belongs to no Machine: Cluster API does not replace it when it fails",
            Some("remove the member: kubectl kcp etcd remove-member c1-cp 3 -n d"),
        ),
        (
            |o| {
                let mut ghost = member(0xab, "");
                ghost.is_learner = true;
                o.each_list(|list| list.members.push(ghost.clone()));
                o.machine(3).status.node_name = None;
            },
            "ab",
            "etcd member ab has not started",
            Some("wait until Machine m3 has joined"),
        ),
        (
            |o| {
                o.machines.remove(2);
                o.workload().nodes = Reading::Failed(failure("Node", "no response"));
            },
            "node-m3",
            "it is unknown whether a Machine owns the member: could not read the Nodes",
            None,
        ),
        (
            |o| {
                use_external_etcd(&mut o.control_plane.spec);
                o.survey().stacked = false;
            },
            "node-m3",
            "etcd is external: Cluster API does not manage its members",
            None,
        ),
        (
            |_| {},
            "stray",
            "etcd has no member stray; the members are node-m1, node-m2, node-m3",
            None,
        ),
    ];

    #[test]
    fn any_other_learner_gets_none() {
        for (change, requested, why, remedy) in REFUSED {
            let mut observed = observed();
            learns(&mut observed);
            change(&mut observed);
            let refusal = decide(&observed, requested).expect_err(why);
            assert!(*requested != "node-m3" || !is_suggested(&observed), "{why}");
            let remedies = refusal.remedies.iter().map(String::as_str);
            assert_eq!(
                (refusal.why.join("; ").as_str(), remedies.collect::<Vec<_>>()),
                (*why, remedy.iter().copied().collect())
            );
        }
    }

    #[test]
    fn a_member_is_promoted_once_it_is_listed_as_a_voter() {
        let mut observed = observed();
        assert!(is_promoted(&observed, 3));
        learns(&mut observed);
        assert!(!is_promoted(&observed, 3));
        assert!(!is_promoted(&observed, 4));
    }
}
