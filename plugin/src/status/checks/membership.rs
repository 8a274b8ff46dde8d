//! etcd's members, put together from what each of them says.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kcp_etcd::{Member, Members, Status};

use super::turnover::{is_turning, machine_of_node};
use crate::{
    plan::quorum,
    status::{
        inspection::{Finding, Outcome},
        observed::{
            Observed,
            etcd::{Answer, Asked, EtcdSurvey},
        },
    },
};

/// The members of one etcd cluster: the one that most of those who answered are members of.
#[derive(Clone, Debug)]
pub(in crate::status) struct Membership<'s> {
    survey: &'s EtcdSurvey,
    /// Most members say that they are of it.
    pub(super) cluster_id: Option<u64>,
    /// The list that most members tell; none when none has told one.
    list: Option<&'s Members>,
}

/// A member, and what it said when it was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed<'s> {
    pub(super) member: &'s Member,
    /// None when nothing is known of where it runs.
    pub(super) asked: Option<&'s Asked>,
}

impl<'s> Membership<'s> {
    pub(in crate::status) fn of(survey: &'s EtcdSurvey) -> Self {
        let answers: Vec<&Answer> = survey.answers().map(|(_, answer)| answer).collect();
        let cluster_id = commonest(answers.iter().filter_map(|answer| answer.cluster_id()));
        let lists = || {
            let lists = answers.iter().filter_map(|answer| answer.members.as_ref().ok());
            lists.filter(|list| Some(list.cluster_id) == cluster_id)
        };
        let told = commonest(lists().map(ids));
        let list = lists().find(|list| Some(ids(list)) == told);
        Self {
            survey,
            cluster_id,
            list,
        }
    }

    /// Members that are listed; empty when none has told a list.
    pub(super) fn listed(&self) -> impl Iterator<Item = Listed<'s>> + use<'s> {
        let survey = self.survey;
        self.list
            .into_iter()
            .flat_map(|list| &list.members)
            .map(move |member| Listed {
                member,
                asked: survey.asked.iter().find(|asked| is_same(asked, member)),
            })
    }

    /// Whether anything is known of the members.
    pub(super) const fn is_known(&self) -> bool {
        self.list.is_some()
    }

    /// Whether the list that one member tells is the one that most tell.
    pub(super) fn is_usual(&self, list: &Members) -> bool {
        self.list.is_some_and(|usual| ids(usual) == ids(list))
    }

    /// The members, as they count: one that does not answer, has an alarm, knows no leader while others do, or is of
    /// another cluster is not healthy. Those that nobody asked are taken for healthy in an etcd elsewhere, and while a
    /// Machine that they may belong to comes or goes.
    pub(in crate::status) fn members(&self, observed: &Observed, now: Timestamp) -> Vec<quorum::Member> {
        let is_open = !self.survey.stacked || is_turning(observed, now);
        let alarmed = self.survey.alarmed();
        self.listed()
            .map(|Listed { member, asked }| quorum::Member {
                name: member.name.clone(),
                is_learner: member.is_learner,
                is_healthy: asked.map_or(is_open, |asked| self.takes_part(asked))
                    && !alarmed.contains(&member.id),
                machine: machine_of_node(observed, &member.name)
                    .filter(|_| self.survey.stacked)
                    .map(|machine| machine.machine.name.clone()),
            })
            .collect()
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
    /// Those who answered, and what.
    pub(in crate::status) fn answers(&self) -> impl Iterator<Item = (&Asked, &Answer)> {
        self.asked
            .iter()
            .filter_map(|asked| Some((asked, asked.answer.as_ref().ok()?)))
    }

    /// Those who told of themselves, and what.
    pub(in crate::status) fn statuses(&self) -> impl Iterator<Item = (&Asked, &Status)> {
        self.answers()
            .filter_map(|(asked, answer)| Some((asked, answer.status.as_ref().ok()?)))
    }

    /// Whether any member knows a leader.
    pub(in crate::status) fn knows_leader(&self) -> bool {
        self.statuses().any(|(_, status)| status.leader.is_some())
    }
}

impl Answer {
    /// Of which cluster it says that it is.
    pub(super) fn cluster_id(&self) -> Option<u64> {
        let status = self.status.as_ref().map(|status| status.cluster_id);
        let members = self.members.as_ref().map(|members| members.cluster_id);
        status.ok().or(members.ok())
    }
}

/// As etcd writes them.
pub(super) fn hexadecimal(id: u64) -> String {
    format!("{id:x}")
}

/// `EtcdMember/` and its name, or its number while it has none.
pub(super) fn member_object(member: &Member) -> String {
    if member.name.is_empty() {
        format!("EtcdMember/{}", hexadecimal(member.id))
    } else {
        format!("EtcdMember/{}", member.name)
    }
}

/// The objects of one that was asked: the member, and the Machine that it runs on.
pub(super) fn asked_objects(asked: &Asked) -> Vec<String> {
    let machine = asked.machine.iter().map(|machine| format!("Machine/{machine}"));
    [format!("EtcdMember/{}", asked.name)]
        .into_iter()
        .chain(machine)
        .collect()
}

/// A finding about one that was asked.
pub(super) fn of_member(asked: &Asked, outcome: Outcome, message: &str) -> Finding {
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

fn ids(list: &Members) -> BTreeSet<u64> {
    list.members.iter().map(|member| member.id).collect()
}

/// Of two that are as common as each other, the first in order: any would do, and it must always be the same.
fn commonest<T: Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let most = counts.values().max().copied()?;
    counts
        .into_iter()
        .find(|(_, count)| *count == most)
        .map(|(value, _)| value)
}
