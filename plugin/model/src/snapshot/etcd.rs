//! What etcd says, each member by itself, and which report to believe where members contradict each other.
//!
//! Of several lists of one cluster: the list of the members that follow a leader, because raft has a leader only while most
//! voters follow it (etcd's raft, `CheckQuorum`). With several such lists or none, the list that most members report. Of
//! several clusters: the one that most members belong to, unless only another has a leader; a member that has created a
//! cluster of its own leads it without the data. Of equals none: the one that is taken for wrong may have the data.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kcp_etcd::{Alarm, AlarmKind, Member, Members, Status};

use crate::snapshot::Failure;

/// Every member that was asked, and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSurvey {
    /// Whether the members are pods of the control plane's Machines, or run elsewhere.
    pub stacked: bool,
    /// One for each control plane node (stacked) or endpoint (external), by name.
    pub asked: Vec<Asked>,
    pub alarms: Alarms,
    /// Whether the client certificate was signed with the key of etcd's CA.
    pub used_ca_key: bool,
    /// Whether the API server on the way to them says that etcd does not answer it.
    pub server_lacks_etcd: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The node's name, or the endpoint `host:port` of an external etcd.
    pub name: String,
    pub machine: Option<String>,
    pub answer: Result<Answer, Failure>,
}

/// How a listed member counts that could not be queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unqueried {
    /// Nothing is risked on it.
    Unhealthy,
    /// Its Machine may be coming up.
    Healthy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdMembers {
    /// It runs elsewhere: no concern of the controller's.
    External,
    /// Its members were not read: every Machine that has a node is taken for a member.
    Unread,
    Known(Vec<EtcdMember>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdMember {
    /// The name of its node; empty while it has not started.
    pub name: String,
    pub is_learner: bool,
    /// Whether it raises an alarm: no space, or corrupt.
    pub has_alarm: bool,
    pub is_leader: bool,
    /// Why it does not count as healthy: it does not respond, is cut off, or could not be queried; none where it does.
    pub fault: Option<String>,
}

impl EtcdMembers {
    /// Why the member on a node does not count as healthy; none where it does.
    pub fn fault(&self, node: &str) -> Option<&str> {
        match self {
            Self::External | Self::Unread => None,
            Self::Known(members) => {
                let member = members.iter().find(|member| member.name == node)?;
                member.fault.as_deref()
            }
        }
    }

    pub fn has_alarm(&self, node: &str) -> bool {
        match self {
            Self::External | Self::Unread => false,
            Self::Known(members) => {
                let mut members = members.iter();
                members.any(|member| member.name == node && member.has_alarm)
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: Result<Status, Failure>,
    /// Of its cluster, from its own memory: not by agreement.
    pub members: Result<Members, Failure>,
    /// Whether its certificate is for the requested name. Its chain was verified in any case.
    pub is_named: bool,
    pub certificate_expires: Option<Timestamp>,
}

/// Alarms, and how they were learned of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarms {
    /// By agreement of the members, asked of one that knows a leader.
    Listed(Vec<Alarm>),
    /// There is no leader to ask: from each member's own errors in `asked`.
    FromStatus,
    /// There is a leader, and it did not answer.
    Failed(Failure),
}

impl EtcdSurvey {
    pub fn answers(&self) -> impl Iterator<Item = (&Asked, &Answer)> {
        self.asked
            .iter()
            .filter_map(|asked| Some((asked, asked.answer.as_ref().ok()?)))
    }

    pub fn statuses(&self) -> impl Iterator<Item = (&Asked, &Status)> {
        self.answers()
            .filter_map(|(asked, answer)| Some((asked, answer.status.as_ref().ok()?)))
    }

    /// None if no member reports one, or it is unclear which is right.
    pub fn cluster_id(&self) -> Option<u64> {
        let answers = self.answers().map(|(_, answer)| answer);
        let reports = answers.filter_map(|answer| Some((answer.cluster_id()?, answer.is_led())));
        cluster_of(&supports(reports))
    }

    /// The list of members of that cluster; none if no member reports one, or it is unclear which is right.
    pub fn agreed_members(&self) -> Option<&Members> {
        let cluster_id = self.cluster_id()?;
        let reports = || {
            let answers = self.answers().map(|(_, answer)| answer);
            answers
                .filter(move |answer| answer.lists_members_of(cluster_id))
                .filter_map(|answer| Some((answer.members.as_ref().ok()?, answer.is_led())))
        };
        let supports = supports(reports().map(|(list, is_led)| (ids(list), is_led)));
        let best = first(&supports, |support| (support.is_led, support.members))?;
        reports().map(|(list, _)| list).find(|list| ids(list) == *best)
    }

    /// The members as a plan counts them: those on the agreed list.
    pub fn members(&self, unqueried: Unqueried) -> EtcdMembers {
        if !self.stacked {
            return EtcdMembers::External;
        }
        let Some(list) = self.agreed_members() else {
            return EtcdMembers::Unread;
        };
        let leader = self.leader_of(list);
        let alarmed = self.alarmed();
        EtcdMembers::Known(
            list.members
                .iter()
                .map(|member| EtcdMember {
                    name: member.name.clone(),
                    is_learner: member.is_learner,
                    has_alarm: alarmed.contains(&member.id),
                    is_leader: leader == Some(member.id),
                    fault: self.fault(member, unqueried),
                })
                .collect(),
        )
    }

    /// Why a member does not count as healthy. kubeadm names it after its node.
    fn fault(&self, member: &Member, unqueried: Unqueried) -> Option<String> {
        let Some(asked) = self.asked.iter().find(|asked| asked.name == member.name) else {
            // One that has yet to start or to be promoted is counted as such.
            let votes = !member.is_learner && !member.name.is_empty();
            return (votes && unqueried == Unqueried::Unhealthy)
                .then(|| "it could not be queried: no control plane node has its name".to_owned());
        };
        let status = asked.answer.as_ref().and_then(|answer| answer.status.as_ref());
        match status {
            Err(failure) => Some(failure.message.clone()),
            Ok(status) if status.leader.is_none() => Some("it has no leader".to_owned()),
            Ok(status) if status.member_id != member.id => {
                Some("a member of another etcd cluster responds instead".to_owned())
            }
            Ok(_) => None,
        }
    }

    /// By the latest election that any member reports.
    fn leader_of(&self, list: &Members) -> Option<u64> {
        let of_cluster = self
            .statuses()
            .filter(|(_, status)| status.cluster_id == list.cluster_id);
        let elected = of_cluster.filter_map(|(_, status)| Some((status.raft_term, status.leader?)));
        elected.max().map(|(_, leader)| leader)
    }

    /// Members with an alarm, by id.
    pub fn alarmed(&self) -> BTreeSet<u64> {
        self.raised().into_iter().map(|(id, _)| id).collect()
    }

    /// Alarms by member id: as listed by etcd, or else from the errors in the status of each member, which include those of
    /// the others.
    pub fn raised(&self) -> BTreeSet<(u64, String)> {
        match &self.alarms {
            Alarms::Listed(alarms) => alarms
                .iter()
                .map(|alarm| (alarm.member_id, alarm_name(alarm.kind)))
                .collect(),
            Alarms::FromStatus | Alarms::Failed(_) => self
                .asked
                .iter()
                .filter_map(|asked| asked.answer.as_ref().ok()?.status.as_ref().ok())
                .flat_map(|status| &status.errors)
                .filter_map(|error| alarm(error))
                .map(|(id, kind)| (id, kind.to_owned()))
                .collect(),
        }
    }
}

/// As etcd writes it, where it has a name.
pub fn alarm_name(kind: AlarmKind) -> String {
    match kind {
        AlarmKind::NoSpace => "NOSPACE".to_owned(),
        AlarmKind::Corrupt => "CORRUPT".to_owned(),
        AlarmKind::Other(number) => format!("number {number}"),
        _ => "unknown".to_owned(),
    }
}

/// Ids of members and clusters as `etcdctl` writes them. A number of 64 bits many readers of JSON would round.
pub fn hexadecimal(id: u64) -> String {
    format!("{id:x}")
}

impl Answer {
    pub fn cluster_id(&self) -> Option<u64> {
        let status = self.status.as_ref().map(|status| status.cluster_id);
        let members = self.members.as_ref().map(|members| members.cluster_id);
        status.ok().or(members.ok())
    }

    /// Whether it follows a leader who, as far as it says, votes.
    fn is_led(&self) -> bool {
        let status = self.status.as_ref().ok();
        let Some(leader) = status.and_then(|status| status.leader) else {
            return false;
        };
        self.members.as_ref().map_or(true, |list| {
            let mut members = list.members.iter();
            members.any(|member| member.id == leader && !member.is_learner)
        })
    }

    pub fn lists_members_of(&self, cluster_id: u64) -> bool {
        self.members
            .as_ref()
            .is_ok_and(|list| list.cluster_id == cluster_id)
    }
}

/// `memberID:123 alarm:NOSPACE`: how a status words an alarm (etcd, `api/etcdserverpb`, `AlarmMember`).
fn alarm(error: &str) -> Option<(u64, &str)> {
    let mut words = error.split_whitespace();
    let id = words.find_map(|word| word.strip_prefix("memberID:"))?;
    let kind = words.find_map(|word| word.strip_prefix("alarm:"))?;
    Some((id.parse().ok()?, kind))
}

pub fn ids(list: &Members) -> BTreeSet<u64> {
    list.members.iter().map(|member| member.id).collect()
}

fn cluster_of<T: Ord + Copy>(supports: &BTreeMap<T, Support>) -> Option<T> {
    let led = first(supports, |support| (support.is_led, support.members))?;
    let most = first(supports, |support| support.members)?;
    (led == most).then_some(*led)
}

/// The members that report the same.
#[derive(Clone, Copy, Debug, Default)]
struct Support {
    is_led: bool,
    members: usize,
}

/// From reports, each with whether the member that reports it follows a leader.
fn supports<T: Ord>(reports: impl Iterator<Item = (T, bool)>) -> BTreeMap<T, Support> {
    let mut supports: BTreeMap<T, Support> = BTreeMap::new();
    for (value, is_led) in reports {
        let support = supports.entry(value).or_default();
        support.is_led |= is_led;
        support.members += 1;
    }
    supports
}

/// The one that ranks before all others; none where two rank the same.
fn first<T, R: Ord>(supports: &BTreeMap<T, Support>, rank: impl Fn(&Support) -> R) -> Option<&T> {
    let best = supports.values().map(&rank).max()?;
    let mut of_best = supports.iter().filter(|(_, support)| rank(support) == best);
    let (first, _) = of_best.next()?;
    of_best.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use kcp_etcd::{Alarm, AlarmKind, Member, Members, Status};

    use super::{
        Alarms, Answer, Asked, EtcdMember, EtcdMembers, EtcdSurvey, Failure, Unqueried, cluster_of, first,
        supports,
    };

    /// What member `id` answers that knows these members, by number, and this leader.
    fn asked(id: u64, known: &[u64], leader: Option<u64>, raft_index: u64, errors: &[&str]) -> Asked {
        Asked {
            name: format!("n{id}"),
            machine: None,
            answer: Ok(Answer {
                status: Ok(Status {
                    cluster_id: 1,
                    member_id: id,
                    version: "3.6.8".to_owned(),
                    db_size: 0,
                    db_size_in_use: 0,
                    db_size_quota: None,
                    leader,
                    raft_index,
                    raft_term: 2,
                    raft_applied_index: raft_index,
                    errors: errors.iter().map(ToString::to_string).collect(),
                    is_learner: false,
                }),
                members: Ok(Members {
                    cluster_id: 1,
                    members: known.iter().map(|id| member(*id)).collect(),
                }),
                is_named: true,
                certificate_expires: None,
            }),
        }
    }

    fn member(id: u64) -> Member {
        Member {
            id,
            name: format!("n{id}"),
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner: id == 9,
        }
    }

    fn silent(name: &str) -> Asked {
        Asked {
            name: name.to_owned(),
            machine: None,
            answer: Err(Failure {
                object: format!("etcd member {name}"),
                message: "Status: no answer within 1 s".to_owned(),
                hint: None,
                forbidden: None,
            }),
        }
    }

    fn survey(asked: Vec<Asked>, alarms: Alarms) -> EtcdSurvey {
        EtcdSurvey {
            stacked: true,
            asked,
            alarms,
            used_ca_key: true,
            server_lacks_etcd: false,
        }
    }

    /// Names, each with `*` for the leader, `!` for an alarm, `~` for a learner, `?` for one that takes no part.
    fn shown(etcd: &EtcdMembers) -> String {
        let mark = |is: bool, mark: &'static str| if is { mark } else { "" };
        match etcd {
            EtcdMembers::External => "external".to_owned(),
            EtcdMembers::Unread => "unread".to_owned(),
            EtcdMembers::Known(members) => {
                let shown = members.iter().map(|member: &EtcdMember| {
                    let marks = [
                        mark(member.is_leader, "*"),
                        mark(member.has_alarm, "!"),
                        mark(member.is_learner, "~"),
                        mark(member.fault.is_some(), "?"),
                    ];
                    member.name.clone() + &marks.concat()
                });
                shown.collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn who_takes_no_part_is_told_with_the_reason() {
        let mut foreign = asked(7, &[1, 2, 3], Some(7), 9, &[]);
        foreign.name = "n2".to_owned();
        let cut_off = asked(3, &[1, 2, 3], None, 7, &[]);
        let asked = vec![asked(1, &[1, 2, 3], Some(1), 7, &[]), foreign, cut_off];
        let etcd = survey(asked, Alarms::FromStatus).members(Unqueried::Unhealthy);
        let silences = ["n1", "n2", "n3", "n4"].map(|node| etcd.fault(node));
        assert_eq!(
            silences,
            [
                None,
                Some("a member of another etcd cluster responds instead"),
                Some("it has no leader"),
                None
            ]
        );
        let etcd = survey(vec![silent("n1")], Alarms::FromStatus).members(Unqueried::Unhealthy);
        assert_eq!(etcd.fault("n1"), None, "nobody has told a list");
    }

    #[test]
    fn one_that_nobody_could_ask_is_silent_where_that_counts() {
        // The fourth is still listed, and its node is gone; the ninth is a learner.
        let known = &[1, 2, 4, 9];
        let asked = vec![asked(1, known, Some(1), 7, &[]), asked(2, known, Some(1), 7, &[])];
        let survey = survey(asked, Alarms::Listed(Vec::new()));
        assert_eq!(shown(&survey.members(Unqueried::Unhealthy)), "n1* n2 n4? n9~");
        assert_eq!(shown(&survey.members(Unqueried::Healthy)), "n1* n2 n4 n9~");
        assert_eq!(
            survey.members(Unqueried::Unhealthy).fault("n4"),
            Some("it could not be queried: no control plane node has its name")
        );
    }

    #[test]
    fn the_list_that_most_have_is_the_list() {
        let no_space = || {
            Alarms::Listed(vec![Alarm {
                member_id: 2,
                kind: AlarmKind::NoSpace,
            }])
        };
        let all = &[1, 2, 3];
        for (survey, members) in [
            (
                survey(
                    vec![
                        asked(1, all, Some(1), 7, &[]),
                        asked(2, all, Some(1), 7, &[]),
                        silent("n3"),
                    ],
                    no_space(),
                ),
                "n1* n2! n3?",
            ),
            // One that is cut off knows an old list.
            (
                survey(
                    vec![
                        asked(1, &[1, 2], None, 9, &[]),
                        asked(2, &[2, 3, 9], Some(3), 7, &[]),
                        asked(3, &[2, 3, 9], Some(3), 7, &[]),
                    ],
                    Alarms::Listed(Vec::new()),
                ),
                "n2 n3* n9~",
            ),
            // One that founded a cluster of its own is ahead in that.
            (
                survey(
                    vec![
                        asked(1, &[1], Some(1), 99, &[]),
                        asked(2, &[2, 3], Some(3), 7, &[]),
                        asked(3, &[2, 3], Some(3), 7, &[]),
                    ],
                    Alarms::Listed(Vec::new()),
                ),
                "n2 n3*",
            ),
            (
                survey(
                    vec![asked(1, &[1], None, 9, &[]), asked(2, &[1, 2], Some(2), 7, &[])],
                    Alarms::Listed(Vec::new()),
                ),
                "n1? n2*",
            ),
            (
                survey(
                    vec![asked(
                        1,
                        all,
                        None,
                        7,
                        &["etcdserver: no leader", "memberID:3 alarm:CORRUPT "],
                    )],
                    Alarms::FromStatus,
                ),
                "n1? n2 n3!",
            ),
            (survey(vec![silent("n1")], Alarms::FromStatus), "unread"),
            (
                EtcdSurvey {
                    stacked: false,
                    ..survey(vec![asked(1, all, Some(1), 7, &[])], no_space())
                },
                "external",
            ),
        ] {
            assert_eq!(shown(&survey.members(Unqueried::Healthy)), members);
        }
    }

    #[test]
    fn a_leader_decides_between_lists_and_not_against_most_between_clusters() {
        for (reported, list, cluster) in [
            (&[][..], None, None),
            (&[(1, false)], Some(1), Some(1)),
            (&[(1, false), (2, false)], None, None),
            (&[(1, true), (2, true)], None, None),
            (&[(1, false), (2, true)], Some(2), None),
            (&[(1, false), (1, false), (2, true)], Some(2), None),
            (&[(1, false), (1, false), (2, false)], Some(1), Some(1)),
            (&[(1, true), (2, true), (2, false)], Some(2), Some(2)),
            (&[(1, true), (2, true), (2, true), (3, false)], Some(2), Some(2)),
        ] {
            let supports = supports(reported.iter().copied());
            let of_lists = first(&supports, |support| (support.is_led, support.members));
            assert_eq!(
                (of_lists.copied(), cluster_of(&supports)),
                (list, cluster),
                "{reported:?}"
            );
        }
    }
}
