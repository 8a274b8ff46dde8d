//! etcd's members, put together from what each of them says.

use jiff::Timestamp;
use kcp_api::Object as _;
use kcp_etcd::{Member, Members, Status};

use crate::{
    checks::{
        finding::{CheckOutcome, Finding, Unjudged},
        machine_grace::{Phase, is_turning, machine_of_node, phase_of_node},
    },
    quorum,
    snapshot::{
        Snapshot,
        etcd::{Answer, Asked, EtcdSurvey, hexadecimal, ids},
    },
};

/// The members of one etcd cluster: the one that those who answered agree on.
#[derive(Clone, Debug)]
pub struct Membership<'s> {
    survey: &'s EtcdSurvey,
    /// None if no member reports one, or it is unclear which is right.
    pub cluster_id: Option<u64>,
    list: Option<&'s Members>,
}

/// A member, and what it said when it was asked.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'s> {
    pub member: &'s Member,
    /// None when nothing is known of where it runs.
    pub asked: Option<&'s Asked>,
}

impl<'s> Membership<'s> {
    pub fn of(survey: &'s EtcdSurvey) -> Self {
        Self {
            survey,
            cluster_id: survey.cluster_id(),
            list: survey.agreed_members(),
        }
    }

    /// Empty without a list.
    pub fn listed(&self) -> impl Iterator<Item = Listed<'s>> + use<'s> {
        let survey = self.survey;
        self.list
            .into_iter()
            .flat_map(|list| &list.members)
            .map(move |member| Listed {
                member,
                asked: survey.asked.iter().find(|asked| is_same(asked, member)),
            })
    }

    /// Of the members of that cluster.
    pub fn statuses(&self) -> impl Iterator<Item = (&'s Asked, &'s Status)> + use<'s> {
        let cluster_id = self.cluster_id;
        let statuses = self.survey.statuses();
        statuses.filter(move |(_, status)| Some(status.cluster_id) == cluster_id)
    }

    pub const fn is_known(&self) -> bool {
        self.list.is_some()
    }

    /// Whether members contradict each other, and it is unclear which is right.
    pub fn is_disputed(&self) -> bool {
        let mut answers = self.survey.answers().map(|(_, answer)| answer);
        match self.cluster_id {
            None => answers.any(|answer| answer.cluster_id().is_some()),
            Some(id) => self.list.is_none() && answers.any(|answer| answer.lists_members_of(id)),
        }
    }

    pub fn unknown(&self) -> Unjudged {
        Unjudged::unknown(if self.is_disputed() {
            "members report different lists of members"
        } else {
            "no member has reported the list of members"
        })
    }

    /// An error if the members belong to several etcd clusters.
    pub fn one_cluster(&self) -> Result<(), Unjudged> {
        if self.cluster_id.is_none() && self.is_disputed() {
            return Err(Unjudged::unknown(
                "members belong to different etcd clusters, and it is unclear which is right",
            ));
        }
        Ok(())
    }

    /// Whether a member's list is the cluster's.
    pub fn is_usual(&self, list: &Members) -> bool {
        self.list.is_some_and(|usual| ids(usual) == ids(list))
    }

    /// The members as they count for quorum. Unhealthy is a member that does not respond, has an alarm, has no leader while
    /// others have one, or belongs to another cluster. A member that was not queried counts as healthy in an external etcd and
    /// while Machines start or are deleted; one that was queried, while its Machine has not named its node.
    pub fn members(&self, observed: &Snapshot, now: Timestamp) -> Vec<quorum::Member> {
        let is_open = !self.survey.stacked || is_turning(observed, now);
        let alarmed = self.survey.alarmed();
        self.listed()
            .map(|Listed { member, asked }| quorum::Member {
                name: member.name.clone(),
                is_learner: member.is_learner,
                is_healthy: asked.map_or(is_open, |asked| {
                    self.takes_part(asked) || self.may_be_starting(asked, observed, now)
                }) && !alarmed.contains(&member.id),
                machine: machine_of_node(observed, &member.name)
                    .filter(|_| self.survey.stacked)
                    .map(|machine| machine.name().to_owned()),
            })
            .collect()
    }

    /// Whether no Machine names the node of one that was asked, and one that starts may be on it.
    pub fn may_be_starting(&self, asked: &Asked, observed: &Snapshot, now: Timestamp) -> bool {
        machine_of_node(observed, &asked.name).is_none()
            && phase_of_asked(self.survey, asked, observed, now) == Phase::Starting
    }

    /// Whether a member answers, and is connected with the others.
    fn takes_part(&self, asked: &Asked) -> bool {
        let Ok(Answer {
            status: Ok(status), ..
        }) = &asked.answer
        else {
            return false;
        };
        let is_cut_off = status.leader.is_none() && self.survey.knows_leader();
        !is_cut_off && Some(status.cluster_id) == self.cluster_id
    }
}

impl EtcdSurvey {
    pub fn knows_leader(&self) -> bool {
        self.statuses().any(|(_, status)| status.leader.is_some())
    }
}

/// `EtcdMember/` and its name, or its number while it has none.
pub fn member_object(member: &Member) -> String {
    if member.name.is_empty() {
        format!("EtcdMember/{}", hexadecimal(member.id))
    } else {
        format!("EtcdMember/{}", member.name)
    }
}

/// The objects of one that was asked: the member, and the Machine that it runs on.
pub fn asked_objects(asked: &Asked) -> Vec<String> {
    let machine = asked.machine.iter().map(|machine| format!("Machine/{machine}"));
    [format!("EtcdMember/{}", asked.name)]
        .into_iter()
        .chain(machine)
        .collect()
}

/// Where the Machine of one that was asked is in its life: members of an etcd elsewhere have none, and are settled.
pub fn phase_of_asked(survey: &EtcdSurvey, asked: &Asked, observed: &Snapshot, now: Timestamp) -> Phase {
    if survey.stacked {
        phase_of_node(observed, &asked.name, now)
    } else {
        Phase::Settled
    }
}

pub fn of_member(asked: &Asked, outcome: CheckOutcome, message: &str) -> Finding {
    Finding {
        objects: asked_objects(asked),
        ..Finding::of(outcome, "", message)
    }
}

/// By what it says of itself, or else by the name that kubeadm gave it, or by where clients reach it.
fn is_same(asked: &Asked, member: &Member) -> bool {
    let status = asked
        .answer
        .as_ref()
        .ok()
        .and_then(|answer| answer.status.as_ref().ok());
    let serves = |url: &String| {
        url.split_once("://")
            .is_some_and(|(_, rest)| rest.trim_end_matches('/') == asked.name)
    };
    status.map_or_else(
        || member.name == asked.name || member.client_urls.iter().any(serves),
        |status| status.member_id == member.id,
    )
}
