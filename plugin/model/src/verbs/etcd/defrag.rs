//! The decision of `etcd defrag`: which member is defragmented next, and when the previous one has caught up.
//!
//! A member serves no client while it rewrites its database file. It keeps its vote, but it may fail, so etcd
//! must have quorum without it. etcd writes a new file beside the old one and renames it
//! (`server/storage/backend/backend.go`, `defrag`), so a member that crashes still has one of the two files,
//! and removes the other when it starts.
//!
//! - [`condition`]: which members are defragmented at all

pub mod condition;

use jiff::Timestamp;
use kcp_etcd::Status;
use serde::Serialize;

use crate::{
    change::decision::Refusal,
    snapshot::{Snapshot, etcd::QueriedMember},
    verbs::etcd::{
        changes::refuse_during_changes,
        defrag::condition::DefragCondition,
        members::{ClusterMember, EtcdCluster, HealthyMember},
    },
};

/// The defragmentation of all members of an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defragmentation {
    /// Whether a member may be defragmented even if etcd has no quorum without it.
    allows_pause: bool,
    /// Only members whose databases match are defragmented. `None` means all.
    condition: Option<DefragCondition>,
    /// The members that the user has confirmed. `None` means all.
    confirmed: Option<Vec<u64>>,
    /// The members that are complete, in the order in which they were defragmented.
    pub completed_members: Vec<DefragmentedMember>,
    in_progress: Option<InProgress>,
}

/// A member whose database file etcd has rewritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DefragmentedMember {
    /// The name of the member's node, or `host:port` of an external etcd.
    pub name: String,
    /// The size of the database before the defragmentation, in bytes.
    pub db_size_before: u64,
    /// The size of the database after the defragmentation, in bytes. In a dry run, the size that is in use.
    pub db_size_after: u64,
}

impl DefragmentedMember {
    /// The number of bytes by which the database has become smaller. Zero if the database has grown because
    /// clients wrote at the same time.
    pub const fn freed_bytes(&self) -> u64 {
        self.db_size_before.saturating_sub(self.db_size_after)
    }
}

/// The member that is being defragmented, or that has not caught up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InProgress {
    id: u64,
    name: String,
    db_size_before: u64,
    /// The newest raft index of any member when the first status was read after the defragmentation. `None`
    /// until then.
    raft_index: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefragStep {
    /// Defragment this member now.
    Defragment(Box<QueriedMember>),
    /// The previous member has not caught up yet, for this reason.
    Wait(String),
    /// Every member is complete.
    Complete,
}

impl Defragmentation {
    /// With `allows_pause`, an etcd cluster of one or two members may be defragmented too.
    pub fn new(allows_pause: bool, condition: Option<DefragCondition>) -> Self {
        Self {
            allows_pause,
            condition,
            ..Self::default()
        }
    }

    /// Leaves out every member that does not match the condition now, even if it matches later.
    pub fn confirm_members(&mut self, observed: &Snapshot) -> Result<(), Refusal> {
        if self.condition.is_some() {
            let cluster = EtcdCluster::new(observed)?;
            let open = self.open_members(&cluster);
            self.confirmed = Some(open.into_iter().map(|(member, _)| member.id).collect());
        }
        Ok(())
    }

    /// The members in the order in which they are defragmented, with the expected sizes.
    pub fn plan(&self, observed: &Snapshot, now: Timestamp) -> Result<Vec<DefragmentedMember>, Refusal> {
        self.clone().next(observed, now)?;
        let cluster = EtcdCluster::new(observed)?;
        let open = self.open_members(&cluster).into_iter();
        let planned = open.map(|(member, healthy)| DefragmentedMember {
            name: member.name.clone(),
            db_size_before: healthy.status.db_size,
            db_size_after: healthy.status.db_size_in_use,
        });
        Ok(planned.collect())
    }

    /// Returns the next step. After [`DefragStep::Defragment`], the caller defragments the member and calls
    /// this function again.
    pub fn next(&mut self, observed: &Snapshot, now: Timestamp) -> Result<DefragStep, Refusal> {
        let cluster = EtcdCluster::new(observed)?;
        if let Some(why) = self.why_to_wait(&cluster) {
            return Ok(DefragStep::Wait(why));
        }
        let open = self.open_members(&cluster);
        let Some((member, healthy)) = open.first() else {
            self.refuse_unknown_members(&cluster)?;
            return Ok(DefragStep::Complete);
        };
        cluster.refuse_corruption()?;
        refuse_during_changes(observed, &cluster, now)?;
        self.refuse_without_quorum(&cluster, &member.name)?;
        self.in_progress = Some(InProgress {
            id: member.id,
            name: member.name.clone(),
            db_size_before: healthy.status.db_size,
            raft_index: None,
        });
        Ok(DefragStep::Defragment(Box::new(healthy.queried.clone())))
    }

    /// The members that are still to be defragmented. The leader is last, so that the defragmentation causes at most one
    /// election.
    fn open_members<'c, 's>(
        &self,
        cluster: &'c EtcdCluster<'s>,
    ) -> Vec<(&'c ClusterMember<'s>, HealthyMember<'s>)> {
        let is_complete = |name: &str| self.completed_members.iter().any(|member| member.name == name);
        let is_confirmed = |id: u64| self.confirmed.as_ref().is_none_or(|ids| ids.contains(&id));
        let mut open: Vec<_> = cluster
            .healthy_voters()
            .filter(|(member, healthy)| {
                !is_complete(&member.name)
                    && is_confirmed(member.id)
                    && self.matches(healthy.status) == Some(true)
            })
            .collect();
        open.sort_by_key(|(member, _)| (member.is_leader, member.name.clone()));
        open
    }

    fn matches(&self, status: &Status) -> Option<bool> {
        let condition = self.condition.as_ref();
        condition.map_or(Some(true), |condition| condition.holds(status))
    }

    /// Fails if some members are not healthy, or do not report the size that the condition needs.
    fn refuse_unknown_members(&self, cluster: &EtcdCluster<'_>) -> Result<(), Refusal> {
        let why = match self.condition {
            None => "the other members are not healthy",
            Some(_) => "the condition of --when cannot be checked for these members",
        };
        let mut refusal = cluster.quorum_refusal(why.to_owned());
        let unknown = cluster
            .healthy_voters()
            .filter(|(_, healthy)| self.matches(healthy.status).is_none())
            .map(|(member, _)| {
                format!(
                    "etcd member {} does not report the size of its database",
                    member.name
                )
            });
        refusal.why.extend(unknown);
        if refusal.why.len() == 1 {
            Ok(())
        } else {
            Err(refusal)
        }
    }

    /// The name of the member that is not complete yet.
    pub fn member_in_progress(&self) -> Option<&str> {
        self.in_progress.as_ref().map(|member| member.name.as_str())
    }

    /// Why the member that was defragmented last has not caught up yet. If the member has caught up, marks it
    /// as complete.
    fn why_to_wait(&mut self, cluster: &EtcdCluster<'_>) -> Option<String> {
        let InProgress {
            id,
            name,
            db_size_before,
            raft_index,
        } = self.in_progress.as_mut()?;
        let mut members = cluster.members.iter();
        let Some(member) = members.find(|member| member.id == *id) else {
            return Some(format!("etcd member {name} is no longer listed"));
        };
        let healthy = match &member.health {
            Ok(healthy) => healthy,
            Err(why) => return Some(format!("etcd member {name} {why}")),
        };
        let newest = cluster.healthy_voters().map(|(_, other)| other.status.raft_index);
        let goal = *raft_index.get_or_insert(newest.max().unwrap_or_default());
        let applied = healthy.status.raft_applied_index;
        if applied < goal {
            return Some(format!(
                "etcd member {name} has applied raft index {applied} of {goal}"
            ));
        }
        self.completed_members.push(DefragmentedMember {
            name: name.clone(),
            db_size_before: *db_size_before,
            db_size_after: healthy.status.db_size,
        });
        self.in_progress = None;
        None
    }

    fn refuse_without_quorum(&self, cluster: &EtcdCluster<'_>, member: &str) -> Result<(), Refusal> {
        let votes = cluster.votes();
        if votes.failure_tolerance() > 0 {
            return Ok(());
        }
        let is_small = votes.voters < 3 && votes.unhealthy == 0;
        if self.allows_pause && is_small {
            return Ok(());
        }
        let mut refusal =
            cluster.quorum_refusal(format!("etcd has no quorum without member {member}: {votes}"));
        refusal.remedies.extend(if is_small {
            Some(
                "to accept that the API server pauses while the member is defragmented, use --allow-pause"
                    .to_owned(),
            )
        } else {
            None
        });
        Err(refusal)
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::metadata::Time;
    use kcp_etcd::{Alarm, AlarmKind};

    use super::{DefragStep, Defragmentation, DefragmentedMember};
    use crate::{
        change::decision::Refusal,
        snapshot::{Snapshot, etcd::Alarms},
        testing::{
            objects::{minutes_ago, now},
            snapshot::observed,
        },
    };

    const MEBIBYTE: u64 = 1024 * 1024;

    fn shown(step: Result<DefragStep, Refusal>) -> Result<String, Vec<String>> {
        match step {
            Ok(DefragStep::Defragment(member)) => Ok(member.name),
            Ok(DefragStep::Wait(why)) => Ok(format!("wait: {why}")),
            Ok(DefragStep::Complete) => Ok("complete".to_owned()),
            Err(refusal) => Err(refusal.why),
        }
    }

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_member_after_another_and_the_leader_last() {
        let mut observed = observed();
        let mut defragmentation = Defragmentation::default();
        let mut next =
            |observed: &Snapshot| shown(defragmentation.next(observed, now())).expect("not refused");
        assert_eq!(next(&observed), "node-m2", "node-m1 leads");
        // The other members have applied more entries.
        observed.status(1).raft_index += 10;
        observed.status(2).db_size = 51 * MEBIBYTE;
        assert_eq!(
            next(&observed),
            "wait: etcd member node-m2 has applied raft index 1000000 of 1000010"
        );
        // The member has caught up with the index that was the newest after its defragmentation, although
        // there is a newer index now.
        observed.status(1).raft_index += 10;
        observed.status(2).raft_applied_index += 10;
        assert_eq!(next(&observed), "node-m3");
        let mut silent = observed.clone();
        silent.kill(3);
        assert_eq!(
            next(&silent),
            "wait: etcd member node-m3 does not respond: cannot connect: connection refused"
        );
        observed.status(3).raft_applied_index += 20;
        assert_eq!(next(&observed), "node-m1");
        observed.status(1).raft_applied_index += 20;
        assert_eq!(next(&observed), "complete");
        let member = |name: &str, after: u64| DefragmentedMember {
            name: name.to_owned(),
            db_size_before: 60 * MEBIBYTE,
            db_size_after: after * MEBIBYTE,
        };
        let complete = [
            member("node-m2", 51),
            member("node-m3", 60),
            member("node-m1", 60),
        ];
        assert_eq!(
            complete.each_ref().map(|member| member.freed_bytes() / MEBIBYTE),
            [9, 0, 0]
        );
        assert_eq!(defragmentation.completed_members, complete);
        assert_eq!(defragmentation.member_in_progress(), None);
    }

    #[test]
    fn the_plan_has_the_order_and_the_expected_sizes() {
        let planned = Defragmentation::default()
            .plan(&observed(), now())
            .expect("not refused");
        let planned: Vec<_> = planned
            .iter()
            .map(|member| (member.name.as_str(), member.freed_bytes() / MEBIBYTE))
            .collect();
        assert_eq!(planned, [("node-m2", 10), ("node-m3", 10), ("node-m1", 10)]);
    }

    #[test]
    fn refuses_what_can_cost_quorum() {
        type Case = (&'static str, fn(&mut Snapshot), &'static [&'static str]);
        let cases: &[Case] = &[
            (
                "a member that does not respond",
                |o| o.kill(3),
                &[
                    "etcd has no quorum without member node-m2: 2 of 3 voting members healthy, 2 needed for quorum",
                    "etcd member node-m3 does not respond: cannot connect: connection refused",
                ],
            ),
            (
                "a member that lags behind",
                |o| o.status(3).raft_applied_index -= 5_001,
                &[
                    "etcd has no quorum without member node-m2: 2 of 3 voting members healthy, 2 needed for quorum",
                    "etcd member node-m3 is 5001 raft log entries behind",
                ],
            ),
            (
                "a Machine that is being deleted",
                |o| o.machine(3).metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                &["Machine m3 is being deleted"],
            ),
            (
                "corrupt data",
                |o| {
                    o.survey().alarms = Alarms::Listed(vec![Alarm {
                        member_id: 3,
                        kind: AlarmKind::Corrupt,
                    }]);
                },
                &[
                    "etcd member node-m3 has raised the alarm CORRUPT: its data differs from that of the other members",
                ],
            ),
            (
                "one member",
                |o| {
                    o.machines.truncate(1);
                    o.control_plane.spec.replicas = Some(1);
                    o.control_plane.status.replicas = 1;
                    o.control_plane.status.up_to_date_replicas = 1;
                    o.survey().queried.truncate(1);
                    o.list(1).members.truncate(1);
                },
                &[
                    "etcd has no quorum without member node-m1: 1 of 1 voting members healthy, 1 needed for quorum",
                ],
            ),
        ];
        for (name, change, why) in cases {
            let mut observed = observed();
            change(&mut observed);
            let mut defragmentation = Defragmentation::default();
            assert_eq!(
                shown(defragmentation.next(&observed, now())),
                Err(lines(why)),
                "{name}"
            );
            assert_eq!(
                defragmentation,
                Defragmentation::default(),
                "a refusal begins nothing: {name}"
            );
            let forced = shown(Defragmentation::new(true, None).next(&observed, now()));
            assert_eq!(forced.is_ok(), *name == "one member", "{name}");
        }
    }

    /// The members that are planned with `inUse < 50`, or why there is no plan.
    fn planned(observed: &Snapshot) -> Result<Vec<String>, Vec<String>> {
        let condition = "inUse < 50".parse().expect("parses");
        let planned = Defragmentation::new(false, Some(condition)).plan(observed, now());
        let names = planned.map(|planned| planned.into_iter().map(|member| member.name).collect());
        names.map_err(|refusal| refusal.why)
    }

    #[test]
    fn only_members_that_match_are_defragmented() {
        type Case = (
            &'static str,
            fn(&mut Snapshot),
            Result<&'static [&'static str], &'static [&'static str]>,
        );
        // Of the databases of the example, 50 of 60 MiB are in use.
        let cases: &[Case] = &[
            ("none", |_| {}, Ok(&[])),
            (
                "one",
                |o| o.status(3).db_size_in_use = 20 * MEBIBYTE,
                Ok(&["node-m3"]),
            ),
            (
                "the leader last",
                |o| (1..=3).for_each(|number| o.status(number).db_size_in_use = 20 * MEBIBYTE),
                Ok(&["node-m2", "node-m3", "node-m1"]),
            ),
            (
                "none, while Machines change",
                |o| o.machine(3).metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                Ok(&[]),
            ),
            (
                "none that responds",
                |o| o.kill(3),
                Err(&[
                    "the condition of --when cannot be checked for these members",
                    "etcd member node-m3 does not respond: cannot connect: connection refused",
                ]),
            ),
            (
                "an unknown size",
                |o| o.status(3).db_size = 0,
                Err(&[
                    "the condition of --when cannot be checked for these members",
                    "etcd member node-m3 does not report the size of its database",
                ]),
            ),
            (
                "one, without quorum",
                |o| {
                    o.status(2).db_size_in_use = 20 * MEBIBYTE;
                    o.kill(3);
                },
                Err(&[
                    "etcd has no quorum without member node-m2: 2 of 3 voting members healthy, 2 needed for quorum",
                    "etcd member node-m3 does not respond: cannot connect: connection refused",
                ]),
            ),
        ];
        for (name, change, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(planned(&observed), expected.map(lines).map_err(lines), "{name}");
        }
    }

    #[test]
    fn a_member_that_matches_only_later_is_not_defragmented() {
        let mut observed = observed();
        observed.status(2).db_size_in_use = 20 * MEBIBYTE;
        observed.status(3).db_size_in_use = 20 * MEBIBYTE;
        let condition = "inUse < 50".parse().expect("parses");
        let mut defragmentation = Defragmentation::new(false, Some(condition));
        defragmentation.confirm_members(&observed).expect("known");
        let mut next =
            |observed: &Snapshot| shown(defragmentation.next(observed, now())).expect("not refused");
        assert_eq!(next(&observed), "node-m2");
        // Someone else has defragmented member 3, and objects were deleted.
        observed.status(3).db_size = 20 * MEBIBYTE;
        observed.status(1).db_size_in_use = 20 * MEBIBYTE;
        assert_eq!(next(&observed), "complete");
    }

    #[test]
    fn a_full_database_is_defragmented() {
        let mut observed = observed();
        observed.survey().alarms = Alarms::Listed(vec![Alarm {
            member_id: 3,
            kind: AlarmKind::NoSpace,
        }]);
        let step = Defragmentation::default().next(&observed, now());
        assert_eq!(shown(step), Ok("node-m2".to_owned()));
    }

    #[test]
    fn a_change_between_two_members_stops() {
        let mut observed = observed();
        let mut defragmentation = Defragmentation::default();
        let first = defragmentation.next(&observed, now());
        assert_eq!(shown(first), Ok("node-m2".to_owned()));
        observed.machine(3).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        assert_eq!(
            shown(defragmentation.next(&observed, now())),
            Err(lines(&["Machine m3 is being deleted"]))
        );
        assert_eq!(defragmentation.completed_members.len(), 1);
    }
}
