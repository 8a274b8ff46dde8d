//! The etcd members as the decisions of `kubectl kcp etcd` see them.

use kcp_etcd::{Member, Status};

use crate::{
    change::decision::{Refusal, RefusedBy},
    checks::{
        etcd_agreement::RAFT_LAG_LIMIT,
        membership::{ListedMember, Membership},
    },
    problem::alarm_message,
    quorum::Votes,
    snapshot::{
        Failure, Reading, Snapshot,
        etcd::{
            Alarms, CORRUPT, EtcdSurvey, QueriedMember, describe_unresponsive, hexadecimal, why_not_queried,
        },
    },
};

/// The members of one etcd cluster.
#[derive(Debug)]
pub struct EtcdCluster<'s> {
    pub survey: &'s EtcdSurvey,
    pub members: Vec<ClusterMember<'s>>,
    /// The highest raft index that a member has reached.
    pub newest: u64,
}

/// A member in the list of the etcd cluster.
#[derive(Debug)]
pub struct ClusterMember<'s> {
    pub id: u64,
    /// The name of the member's node, or `host:port` of an external etcd, or the id if the member has no name yet.
    pub name: String,
    pub machine: Option<&'s str>,
    /// Whether etcd counts the member for the quorum: it is not a learner.
    pub is_voter: bool,
    pub has_started: bool,
    pub is_leader: bool,
    /// The member's response. The error says why the member is not healthy.
    pub health: Result<HealthyMember<'s>, String>,
}

impl ClusterMember<'_> {
    /// Whether the member does not vote yet: it is a learner, or has not started.
    pub const fn is_starting(&self) -> bool {
        !self.is_voter || !self.has_started
    }

    /// Why the member is unhealthy, as a sentence. `None` if it is healthy, or a learner.
    pub fn fault(&self) -> Option<String> {
        let why = self.health.as_ref().err().filter(|_| self.is_voter)?;
        Some(format!("etcd member {} {why}", self.name))
    }
}

/// A member that responds, has a leader, and has applied the latest writes.
#[derive(Clone, Copy, Debug)]
pub struct HealthyMember<'s> {
    pub queried: &'s QueriedMember,
    pub status: &'s Status,
}

impl<'s> EtcdCluster<'s> {
    /// Fails if etcd could not be queried, or its members are unknown.
    pub fn new(observed: &'s Snapshot) -> Result<Self, Refusal> {
        Self::from_survey(require_survey(observed)?)
    }

    /// Fails if the members are unknown.
    pub fn from_survey(survey: &'s EtcdSurvey) -> Result<Self, Refusal> {
        let membership = Membership::new(survey);
        if let Err(no_result) = membership.require_one_cluster() {
            return Err(refusal(no_result.reason().to_owned()));
        }
        if !membership.is_known() {
            return Err(unknown_members(survey, membership.unknown_result().reason()));
        }
        let elected = membership
            .statuses()
            .filter_map(|(_, status)| Some((status.raft_term, status.leader?)));
        let leader = elected.max().map(|(_, leader)| leader);
        let newest = membership
            .statuses()
            .map(|(_, status)| status.raft_index)
            .max()
            .unwrap_or_default();
        let members = membership.listed().map(|ListedMember { member, queried }| {
            let has_started = !member.name.is_empty();
            let name = match queried {
                Some(queried) => queried.name.clone(),
                None if !has_started => hexadecimal(member.id),
                None => member.name.clone(),
            };
            ClusterMember {
                id: member.id,
                name,
                machine: queried.and_then(|queried| queried.machine.as_deref()),
                is_voter: !member.is_learner,
                has_started,
                is_leader: leader == Some(member.id),
                health: health(queried, member, leader, newest),
            }
        });
        Ok(Self {
            survey,
            members: members.collect(),
            newest,
        })
    }

    /// The member with this name or id, or on the Machine with this name. etcdctl prints ids as hexadecimal numbers. If etcd has
    /// no such member, the error lists the members.
    pub fn find_member(&self, name: &str) -> Result<&ClusterMember<'s>, Refusal> {
        let named = self
            .members
            .iter()
            .find(|member| member.name == name || member.machine == Some(name));
        let found = named.or_else(|| {
            let id = u64::from_str_radix(name, 16).ok()?;
            self.members.iter().find(|member| member.id == id)
        });
        found.ok_or_else(|| no_such_member(name, self.members.iter().map(|member| member.name.as_str())))
    }

    pub fn healthy_voters(&self) -> impl Iterator<Item = (&ClusterMember<'s>, HealthyMember<'s>)> {
        let voters = self.members.iter().filter(|member| member.is_voter);
        voters.filter_map(|member| Some((member, *member.health.as_ref().ok()?)))
    }

    pub fn leader(&self) -> Option<&ClusterMember<'s>> {
        self.members.iter().find(|member| member.is_leader)
    }

    /// The votes as the members report them. An alarm does not count: a member with an alarm votes.
    pub fn votes(&self) -> Votes {
        let voters = self.members.iter().filter(|member| member.is_voter);
        Votes {
            voters: voters.clone().count(),
            unhealthy: voters.filter(|member| member.health.is_err()).count(),
            starting: self.members.iter().filter(|member| !member.is_voter).count(),
        }
    }

    /// The unhealthy voters and why they are unhealthy, one line each.
    pub fn faults(&self) -> impl Iterator<Item = String> {
        self.members.iter().filter_map(ClusterMember::fault)
    }

    /// The name of a member by its id, or the id if the member is no longer listed.
    pub fn name_of(&self, id: u64) -> String {
        let mut members = self.members.iter();
        members
            .find(|member| member.id == id)
            .map_or_else(|| hexadecimal(id), |member| member.name.clone())
    }

    /// Fails if the alarms could not be read, or a member has raised CORRUPT.
    pub fn refuse_corruption(&self) -> Result<(), Refusal> {
        if let Alarms::Failed(failure) = &self.survey.alarms {
            return Err(read_refusal(failure));
        }
        let alarms = self.survey.alarms_by_member();
        let Some((id, _)) = alarms.iter().find(|(_, alarm)| alarm == CORRUPT) else {
            return Ok(());
        };
        // etcd uses id 0 if it does not know which member's data is wrong.
        let member = (*id != 0).then(|| self.name_of(*id));
        let mut refusal = refusal(alarm_message(member.as_deref(), CORRUPT));
        refusal.remedies.push(
            "save a snapshot of each member; then replace the Machine of the member whose data is wrong"
                .to_owned(),
        );
        Err(refusal)
    }

    /// The member through which calls to the whole cluster go: a follower, so that the leader gets no extra
    /// load. Fails if etcd has no quorum.
    pub fn select_voter(&self) -> Result<HealthyMember<'s>, Refusal> {
        let votes = self.votes();
        let best = self
            .healthy_voters()
            .min_by_key(|(member, _)| (member.is_leader, member.name.clone()));
        match best {
            Some((_, healthy)) if votes.has_quorum() => Ok(healthy),
            _ => Err(self.quorum_refusal(format!("etcd has no quorum: {votes}"))),
        }
    }

    /// A refusal that lists the unhealthy members.
    pub fn quorum_refusal(&self, why: String) -> Refusal {
        let mut refusal = refusal(why);
        refusal.why.extend(self.faults());
        refusal
    }
}

/// Fails if the member is not healthy. The error says why.
fn health<'s>(
    queried: Option<&'s QueriedMember>,
    member: &Member,
    leader: Option<u64>,
    newest: u64,
) -> Result<HealthyMember<'s>, String> {
    let queried = queried.ok_or_else(|| why_not_queried(member).to_owned())?;
    let status = queried
        .status()
        .map_err(|failure| describe_unresponsive(&failure.message))?;
    if status.leader.is_none() {
        return Err("has no leader".to_owned());
    }
    if status.leader != leader {
        return Err("does not follow the same leader as the other members".to_owned());
    }
    if status.member_id != member.id {
        return Err(describe_unresponsive("another member responds on its node"));
    }
    let behind = newest.saturating_sub(status.raft_applied_index);
    if behind > RAFT_LAG_LIMIT {
        return Err(format!("is {behind} raft log entries behind"));
    }
    Ok(HealthyMember { queried, status })
}

/// Fails if etcd was not queried.
pub fn require_survey(observed: &Snapshot) -> Result<&EtcdSurvey, Refusal> {
    match &observed.etcd {
        Reading::Read(survey) => Ok(survey),
        Reading::Failed(failure) | Reading::OutOfReach(failure) => Err(read_refusal(failure)),
        Reading::Excluded { .. } | Reading::NotYet => {
            Err(refusal("the control plane is not initialized yet".to_owned()))
        }
    }
}

fn unknown_members(survey: &EtcdSurvey, why: &str) -> Refusal {
    let mut refusal = refusal(why.to_owned());
    let failures = survey.queried.iter().filter_map(|queried| {
        let failure = queried.response.as_ref().err()?;
        Some(failure.text())
    });
    refusal.why.extend(failures);
    refusal
}

/// A refusal because something could not be read.
pub fn read_refusal(failure: &Failure) -> Refusal {
    let mut refusal = refusal(failure.text());
    refusal.remedies.extend(failure.hint.clone());
    refusal
}

pub fn refusal(why: String) -> Refusal {
    Refusal::new(RefusedBy::Command, vec![why])
}

pub fn no_such_member<'n>(name: &str, members: impl Iterator<Item = &'n str>) -> Refusal {
    let members: Vec<&str> = members.collect();
    refusal(format!(
        "etcd has no member {name}; the members are {}",
        members.join(", ")
    ))
}
