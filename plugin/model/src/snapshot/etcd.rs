//! The status of each etcd member, and which report counts if members contradict each other.
//!
//! - [`metrics`]: the numbers that a member counts
//! - [`peer`]: on which Machine a member may run
//!
//! - If members of one cluster report different member lists, the list of the members that follow a leader counts: raft
//!   has a leader only while most voters follow it (etcd's raft, `CheckQuorum`). If several such lists exist, or none, the
//!   list that most members report counts.
//! - If members belong to different clusters, the cluster of most members counts, unless only another cluster has a leader:
//!   a member that was started as a new cluster leads that cluster, without the data.
//! - If two reports rank equal, neither counts, because the rejected report could come from the member with the data.

pub mod metrics;
pub mod peer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};
use kcp_etcd::{Alarm, AlarmKind, Member, Members, Status};
use kcp_rules::syntax::parse_version;
use semver::Version;

use crate::{
    quorum,
    snapshot::{Failure, etcd::metrics::EtcdMetrics},
};

/// The responses of all etcd members that were queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSurvey {
    /// Whether the etcd members run on the control plane's Machines. False for an external etcd.
    pub stacked: bool,
    /// The queried members, ordered by name: one for each control plane node (stacked etcd) or endpoint (external etcd).
    pub queried: Vec<QueriedMember>,
    pub alarms: Alarms,
    /// Whether the plugin signed its client certificate with the key of etcd's CA.
    pub used_ca_key: bool,
    /// Whether the workload cluster's API server reports that etcd does not respond to it.
    pub api_server_lacks_etcd: bool,
}

/// An etcd member to which a request was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueriedMember {
    /// The name of the member's node, or `host:port` for an external etcd.
    pub name: String,
    pub machine: Option<String>,
    pub response: Result<MemberResponse, Failure>,
    /// When the member's serving certificate expired, if no connection was possible for this reason. `None` if it is valid,
    /// or if it is unknown when it expired.
    pub certificate_expired_at: Option<Timestamp>,
}

impl QueriedMember {
    /// What the member reports about itself.
    pub fn status(&self) -> Result<&Status, &Failure> {
        let response = self.response.as_ref();
        response.and_then(|response| response.status.as_ref())
    }

    /// When the member's serving certificate expires or expired. `None` if this is unknown.
    pub fn certificate_expires_at(&self) -> Option<Timestamp> {
        let response = self.response.as_ref().ok();
        response
            .and_then(|response| response.certificate_expires_at)
            .or(self.certificate_expired_at)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdMembers {
    /// etcd is external, so the controller does not manage its members.
    External,
    /// The members could not be read. Every Machine with a node counts as a member.
    Unread,
    Read(Vec<EtcdMember>),
}

/// The alarm that a member raises when its database has reached the quota.
pub const NOSPACE: &str = "NOSPACE";

/// The name of etcd's alarm about members whose data differs.
pub const CORRUPT: &str = "CORRUPT";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent")]
pub struct EtcdMember {
    /// The name of the member's node. Empty until the member starts.
    pub name: String,
    pub is_learner: bool,
    /// The alarm that the member has raised, such as `NOSPACE`. `None` if it has raised none.
    pub alarm: Option<String>,
    pub is_leader: bool,
    /// Why the member counts as unhealthy, as the end of a sentence, such as `has no leader`. `None` if it is healthy.
    pub fault: Option<String>,
    /// Whether the member may belong to a Machine that is joining and does not reference its node yet.
    pub is_joining: bool,
    /// Whether only clients cannot connect to the member, because its serving certificate has expired.
    pub refuses_only_clients: bool,
    /// [`quorum::admits_by_quorum`] of the member's version; false if the version is unknown, or if kubeadm on a new Machine needs every
    /// member.
    pub admits_by_quorum: bool,
}

impl EtcdMember {
    /// Whether the other members are not connected to the member, as far as its responses show. A member that has not started
    /// never was connected, and etcd has other rules for it.
    pub const fn is_dead(&self) -> bool {
        let is_started_voter = !self.is_learner && !self.name.is_empty();
        is_started_voter
            && !self.is_leader
            && self.fault.is_some()
            && !self.is_joining
            && !self.refuses_only_clients
    }

    /// Returns the member as it counts for the quorum, with the Machine on which it runs. A leader that the others follow takes
    /// part in every vote, even if it answers no client.
    pub fn voter(&self, machine: Option<&str>) -> quorum::Member {
        quorum::Member {
            name: self.name.clone(),
            is_learner: self.is_learner,
            is_healthy: (self.fault.is_none() || self.is_leader) && self.alarm.is_none(),
            is_reported_unhealthy: false,
            is_joining: self.is_joining,
            is_dead: self.is_dead(),
            admits_by_quorum: self.admits_by_quorum,
            is_unknown: false,
            machine: machine.map(str::to_owned),
        }
    }
}

impl EtcdMembers {
    /// Why the member on a node counts as unhealthy. `None` if it is healthy or not listed.
    pub fn fault(&self, node: &str) -> Option<&str> {
        let member = self.read().iter().find(|member| member.name == node)?;
        member.fault.as_deref()
    }

    /// The leader, if it could not be queried. Cluster API then cannot move the leadership to another member. `None` if the leader
    /// could be queried.
    pub fn unreachable_leader(&self) -> Option<&EtcdMember> {
        let mut members = self.read().iter();
        members.find(|member| member.is_leader && member.fault.is_some())
    }

    /// The alarm of the member on a node. `None` if it has raised none, or is not listed.
    pub fn alarm(&self, node: &str) -> Option<&str> {
        let member = self.read().iter().find(|member| member.name == node)?;
        member.alarm.as_deref()
    }

    /// The member that has raised the alarm `NOSPACE`. Until the alarm is disarmed, etcd accepts only reads and
    /// deletions.
    pub fn member_out_of_space(&self) -> Option<&EtcdMember> {
        let mut members = self.read().iter();
        members.find(|member| member.alarm.as_deref() == Some(NOSPACE))
    }

    /// Whether every listed member has started, and none of them belongs to the node.
    pub fn lacks_member_on(&self, node: &str) -> bool {
        let Self::Read(members) = self else {
            return false;
        };
        members
            .iter()
            .all(|member| member.name != node && !member.name.is_empty())
    }

    /// The members, or none if etcd is external or was not read.
    pub(crate) fn read(&self) -> &[EtcdMember] {
        match self {
            Self::External | Self::Unread => &[],
            Self::Read(members) => members,
        }
    }
}

/// An etcd member's responses to the requests for its status and its member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberResponse {
    pub status: Result<Status, Failure>,
    /// The member's own copy of the member list, which may be outdated.
    pub members: Result<Members, Failure>,
    /// What the member has counted since it started.
    pub metrics: Result<EtcdMetrics, Failure>,
    /// Whether the member's certificate is for the requested host name. The certificate chain is always verified.
    pub has_matching_name: bool,
    pub certificate_expires_at: Option<Timestamp>,
    /// How long the member took to respond to the request for its status, or to fail.
    pub latency: Duration,
}

/// The alarms of all members, or why they could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarms {
    /// etcd's list of alarms, which a member with a leader has returned.
    Listed(Vec<Alarm>),
    /// No member has a leader, so the alarms are read from the errors in each member's status.
    FromStatus,
    /// A member with a leader exists, but the request for the alarms failed.
    Failed(Failure),
}

impl EtcdSurvey {
    /// The failure that makes every connection fail because of a Secret. Then no member is to blame.
    pub fn common_cause(&self) -> Option<&Failure> {
        let mut failures = self.queried.iter().map(|queried| queried.response.as_ref().err());
        let first = failures.next()??;
        (first.is_unusable_secret && failures.all(|other| other == Some(first))).then_some(first)
    }

    pub fn responses(&self) -> impl Iterator<Item = (&QueriedMember, &MemberResponse)> {
        self.queried
            .iter()
            .filter_map(|queried| Some((queried, queried.response.as_ref().ok()?)))
    }

    pub fn statuses(&self) -> impl Iterator<Item = (&QueriedMember, &Status)> {
        self.responses()
            .filter_map(|(queried, response)| Some((queried, response.status.as_ref().ok()?)))
    }

    /// The id of the etcd cluster. `None` if no member reports it, or members contradict each other.
    pub fn cluster_id(&self) -> Option<u64> {
        let responses = self.responses().map(|(_, response)| response);
        let reports =
            responses.filter_map(|response| Some((response.cluster_id()?, response.follows_leader())));
        preferred_cluster(&count_reports(reports))
    }

    /// The member list of the etcd cluster [`Self::cluster_id`]. `None` if no member reports it, or members contradict
    /// each other.
    pub fn agreed_members(&self) -> Option<&Members> {
        let cluster_id = self.cluster_id()?;
        let reports = || {
            let responses = self.responses().map(|(_, response)| response);
            responses
                .filter(move |response| response.lists_members_of(cluster_id))
                .filter_map(|response| Some((response.members.as_ref().ok()?, response.follows_leader())))
        };
        let tally = count_reports(reports().map(|(list, follows_leader)| (member_ids(list), follows_leader)));
        let best = highest_unless_tied(&tally, |support| (support.follows_leader, support.members))?;
        reports()
            .map(|(list, _)| list)
            .find(|list| member_ids(list) == *best)
    }

    /// Whether members contradict each other, and it is unknown whose report is correct.
    pub fn is_disputed(&self) -> bool {
        let mut responses = self.responses().map(|(_, response)| response);
        match self.cluster_id() {
            None => responses.any(|response| response.cluster_id().is_some()),
            Some(id) => {
                self.agreed_members().is_none() && responses.any(|response| response.lists_members_of(id))
            }
        }
    }

    /// The members in the agreed list, with the reasons why they are unhealthy. Every command uses these
    /// reasons. A member that was not queried is never healthy. `machines` are the Machines of the control
    /// plane.
    pub fn members(&self, machines: &[Machine]) -> EtcdMembers {
        if !self.stacked {
            return EtcdMembers::External;
        }
        let Some(list) = self.agreed_members() else {
            return EtcdMembers::Unread;
        };
        let leader = self.latest_leader(list);
        let alarms = self.alarms_by_member();
        let alarm = |id| {
            let mut alarms = alarms.iter();
            alarms.find(|(peer, _)| *peer == id).map(|(_, name)| name.clone())
        };
        let mut members: Vec<EtcdMember> = list
            .members
            .iter()
            .map(|member| EtcdMember {
                name: member.name.clone(),
                is_learner: member.is_learner,
                alarm: alarm(member.id),
                is_leader: leader == Some(member.id),
                fault: self.fault(member, list.cluster_id),
                is_joining: false,
                refuses_only_clients: self.refuses_only_clients(member),
                admits_by_quorum: self
                    .version(member)
                    .is_some_and(|version| quorum::admits_by_quorum(&version)),
            })
            .collect();
        mark_joining(&mut members, machines);
        EtcdMembers::Read(members)
    }

    /// Why a member is unhealthy. `None` if it is healthy. kubeadm gives a member the name of its node.
    fn fault(&self, member: &Member, cluster_id: u64) -> Option<String> {
        let is_own = |status: &Status| status.member_id == member.id && status.cluster_id == cluster_id;
        let own = self.statuses().find(|(_, status)| is_own(status));
        if let Some((_, status)) = own {
            return status.leader.is_none().then(|| "has no leader".to_owned());
        }
        let Some(queried) = self.queried.iter().find(|queried| queried.name == member.name) else {
            // A learner does not vote.
            return (!member.is_learner).then(|| why_not_queried(member).to_owned());
        };
        let status = queried
            .response
            .as_ref()
            .and_then(|response| response.status.as_ref());
        Some(match status {
            Err(failure) => describe_unresponsive(&failure.message),
            Ok(_) => "does not respond: a member of another etcd cluster responds on its node".to_owned(),
        })
    }

    /// `None` if the member has not reported its version.
    fn version(&self, member: &Member) -> Option<Version> {
        let mut statuses = self.statuses();
        let (_, status) = statuses.find(|(_, status)| status.member_id == member.id)?;
        parse_version(&status.version).ok()
    }

    /// Whether only clients cannot connect to the member, because its serving certificate has expired. The members use their peer
    /// certificates among themselves, so they stay connected.
    fn refuses_only_clients(&self, member: &Member) -> bool {
        let mut queried = self.queried.iter();
        queried.any(|queried| queried.name == member.name && queried.certificate_expired_at.is_some())
    }

    /// The leader of the latest raft term that any member reports.
    fn latest_leader(&self, list: &Members) -> Option<u64> {
        let of_cluster = self
            .statuses()
            .filter(|(_, status)| status.cluster_id == list.cluster_id);
        let elected = of_cluster.filter_map(|(_, status)| Some((status.raft_term, status.leader?)));
        elected.max().map(|(_, leader)| leader)
    }

    /// The alarms as pairs of member id and alarm name. They come from etcd's list of alarms, or else from the errors
    /// in the members' statuses, each of which contains the alarms of all members.
    pub fn alarms_by_member(&self) -> BTreeSet<(u64, String)> {
        match &self.alarms {
            Alarms::Listed(alarms) => alarms
                .iter()
                .map(|alarm| (alarm.member_id, alarm_name(alarm.kind)))
                .collect(),
            Alarms::FromStatus | Alarms::Failed(_) => self
                .queried
                .iter()
                .filter_map(|queried| queried.response.as_ref().ok()?.status.as_ref().ok())
                .flat_map(|status| &status.errors)
                .filter_map(|error| parse_alarm(error))
                .map(|(id, kind)| (id, kind.to_owned()))
                .collect(),
        }
    }
}

/// Marks members without a Machine as joining, at most one for each Machine that is joining. Healthy members and those
/// that have not started come first, because a member that does not respond was more likely left behind by a deleted
/// Machine.
fn mark_joining(members: &mut [EtcdMember], machines: &[Machine]) {
    let joining = machines
        .iter()
        .filter(|machine| !machine.has_node() && machine.deletion_timestamp().is_none())
        .count();
    let has_machine = |member: &EtcdMember| {
        machines
            .iter()
            .any(|machine| machine.node() == Some(&member.name))
    };
    let mut unmatched: Vec<&mut EtcdMember> =
        members.iter_mut().filter(|member| !has_machine(member)).collect();
    unmatched.sort_by_key(|member| member.fault.is_some() && !member.name.is_empty());
    for member in unmatched.into_iter().take(joining) {
        member.is_joining = true;
    }
}

/// Says that a member does not respond, as the end of a sentence about it. Checks, plans and refusals use this text.
pub fn describe_unresponsive(why: &str) -> String {
    format!("does not respond: {why}")
}

/// Why a listed member was not queried, as the end of a sentence about it.
pub const fn why_not_queried(member: &Member) -> &'static str {
    if member.name.is_empty() {
        "has not started"
    } else {
        "was not queried, because no control plane node has its name"
    }
}

/// The name of an alarm, as `etcdctl alarm list` prints it.
pub fn alarm_name(kind: AlarmKind) -> String {
    match kind {
        AlarmKind::NoSpace => NOSPACE.to_owned(),
        AlarmKind::Corrupt => CORRUPT.to_owned(),
        AlarmKind::Other(number) => format!("number {number}"),
        _ => "unknown".to_owned(),
    }
}

/// The id of a member or a cluster as `etcdctl` prints it. JSON output contains this text, because many JSON parsers round
/// 64-bit numbers.
pub fn hexadecimal(id: u64) -> String {
    format!("{id:x}")
}

impl MemberResponse {
    pub fn cluster_id(&self) -> Option<u64> {
        let status = self.status.as_ref().map(|status| status.cluster_id);
        let members = self.members.as_ref().map(|members| members.cluster_id);
        status.ok().or(members.ok())
    }

    /// Whether the member follows a leader that is a voter in the member's own list.
    fn follows_leader(&self) -> bool {
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

/// Parses an alarm in the errors of a status, such as `memberID:123 alarm:NOSPACE` (etcd, `api/etcdserverpb`, `AlarmMember`).
fn parse_alarm(error: &str) -> Option<(u64, &str)> {
    let mut words = error.split_whitespace();
    let id = words.find_map(|word| word.strip_prefix("memberID:"))?;
    let kind = words.find_map(|word| word.strip_prefix("alarm:"))?;
    Some((id.parse().ok()?, kind))
}

pub fn member_ids(list: &Members) -> BTreeSet<u64> {
    list.members.iter().map(|member| member.id).collect()
}

fn preferred_cluster<T: Ord + Copy>(tally: &BTreeMap<T, MemberSupport>) -> Option<T> {
    let led = highest_unless_tied(tally, |support| (support.follows_leader, support.members))?;
    let most = highest_unless_tied(tally, |support| support.members)?;
    (led == most).then_some(*led)
}

/// How many members report the same value, and whether any of them follows a leader.
#[derive(Clone, Copy, Debug, Default)]
struct MemberSupport {
    follows_leader: bool,
    members: usize,
}

/// Counts the reports of each value. The flag in a report says whether the member that reports it follows a leader.
fn count_reports<T: Ord>(reports: impl Iterator<Item = (T, bool)>) -> BTreeMap<T, MemberSupport> {
    let mut tally: BTreeMap<T, MemberSupport> = BTreeMap::new();
    for (value, follows_leader) in reports {
        let support = tally.entry(value).or_default();
        support.follows_leader |= follows_leader;
        support.members += 1;
    }
    tally
}

/// Returns the value with the highest rank. `None` if two values share that rank.
fn highest_unless_tied<T, R: Ord>(
    tally: &BTreeMap<T, MemberSupport>,
    rank: impl Fn(&MemberSupport) -> R,
) -> Option<&T> {
    let best = tally.values().map(&rank).max()?;
    let mut of_best = tally.iter().filter(|(_, support)| rank(support) == best);
    let (first, _) = of_best.next()?;
    of_best.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_etcd::{Alarm, AlarmKind, Member, Members, Status};

    use super::{
        Alarms, EtcdMember, EtcdMembers, EtcdMetrics, EtcdSurvey, Failure, MemberResponse, QueriedMember,
        count_reports, highest_unless_tied, mark_joining, preferred_cluster,
    };
    use crate::testing::objects::machine;

    /// The response of member `id`, with this list of members, by number, and this leader.
    fn queried(
        id: u64,
        known: &[u64],
        leader: Option<u64>,
        raft_index: u64,
        errors: &[&str],
    ) -> QueriedMember {
        QueriedMember {
            name: format!("n{id}"),
            machine: None,
            certificate_expired_at: None,
            response: Ok(MemberResponse {
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
                    revision: 100_000,
                    errors: errors.iter().map(ToString::to_string).collect(),
                    is_learner: false,
                }),
                members: Ok(Members {
                    cluster_id: 1,
                    members: known.iter().map(|id| member(*id)).collect(),
                }),
                metrics: Ok(EtcdMetrics::default()),
                has_matching_name: true,
                certificate_expires_at: None,
                latency: Duration::ZERO,
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

    fn silent(name: &str) -> QueriedMember {
        QueriedMember {
            name: name.to_owned(),
            machine: None,
            certificate_expired_at: None,
            response: Err(Failure {
                object: format!("etcd member {name}"),
                message: "Status: no answer within 1 s".to_owned(),
                hint: None,
                ..Failure::default()
            }),
        }
    }

    fn survey(queried: Vec<QueriedMember>, alarms: Alarms) -> EtcdSurvey {
        EtcdSurvey {
            stacked: true,
            queried,
            alarms,
            used_ca_key: true,
            api_server_lacks_etcd: false,
        }
    }

    /// The names of the members, with `*` for the leader, `!` for an alarm, `~` for a learner, and `?` for a member
    /// that does not respond.
    fn shown(etcd: &EtcdMembers) -> String {
        let mark = |is: bool, mark: &'static str| if is { mark } else { "" };
        match etcd {
            EtcdMembers::External => "external".to_owned(),
            EtcdMembers::Unread => "unread".to_owned(),
            EtcdMembers::Read(members) => {
                let shown = members.iter().map(|member: &EtcdMember| {
                    let marks = [
                        mark(member.is_leader, "*"),
                        mark(member.alarm.is_some(), "!"),
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
        let mut foreign = queried(7, &[1, 2, 3], Some(7), 9, &[]);
        foreign.name = "n2".to_owned();
        let cut_off = queried(3, &[1, 2, 3], None, 7, &[]);
        let queried = vec![queried(1, &[1, 2, 3], Some(1), 7, &[]), foreign, cut_off];
        let etcd = survey(queried, Alarms::FromStatus).members(&[]);
        let silences = ["n1", "n2", "n3", "n4"].map(|node| etcd.fault(node));
        assert_eq!(
            silences,
            [
                None,
                Some("does not respond: a member of another etcd cluster responds on its node"),
                Some("has no leader"),
                None
            ]
        );
        let etcd = survey(vec![silent("n1")], Alarms::FromStatus).members(&[]);
        assert_eq!(etcd.fault("n1"), None, "no member has reported a list");
    }

    #[test]
    fn one_that_nobody_could_ask_is_silent_where_that_counts() {
        // The fourth member is still listed, but its node no longer exists. The ninth member is a learner.
        let known = &[1, 2, 4, 9];
        let queried = vec![
            queried(1, known, Some(1), 7, &[]),
            queried(2, known, Some(1), 7, &[]),
        ];
        let survey = survey(queried, Alarms::Listed(Vec::new()));
        assert_eq!(shown(&survey.members(&[])), "n1* n2 n4? n9~");
        assert_eq!(
            survey.members(&[]).fault("n4"),
            Some("was not queried, because no control plane node has its name")
        );
    }

    #[test]
    fn a_member_that_has_not_started_joins_rather_than_one_left_behind() {
        let of_unhealthy = |name: &str| EtcdMember {
            name: name.to_owned(),
            fault: Some("does not respond".to_owned()),
            ..EtcdMember::default()
        };
        let mut members = ["left-behind", ""].map(of_unhealthy);
        let mut joining = machine("m1");
        joining.status.node_name = None;
        mark_joining(&mut members, &[joining]);
        assert_eq!(members.map(|member| member.is_joining), [false, true]);
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
                        queried(1, all, Some(1), 7, &[]),
                        queried(2, all, Some(1), 7, &[]),
                        silent("n3"),
                    ],
                    no_space(),
                ),
                "n1* n2! n3?",
            ),
            // A member that is disconnected from the others has an old list.
            (
                survey(
                    vec![
                        queried(1, &[1, 2], None, 9, &[]),
                        queried(2, &[2, 3, 9], Some(3), 7, &[]),
                        queried(3, &[2, 3, 9], Some(3), 7, &[]),
                    ],
                    Alarms::Listed(Vec::new()),
                ),
                "n2 n3* n9~",
            ),
            // A member that was started as a new cluster has a higher term in that cluster.
            (
                survey(
                    vec![
                        queried(1, &[1], Some(1), 99, &[]),
                        queried(2, &[2, 3], Some(3), 7, &[]),
                        queried(3, &[2, 3], Some(3), 7, &[]),
                    ],
                    Alarms::Listed(Vec::new()),
                ),
                "n2 n3*",
            ),
            (
                survey(
                    vec![
                        queried(1, &[1], None, 9, &[]),
                        queried(2, &[1, 2], Some(2), 7, &[]),
                    ],
                    Alarms::Listed(Vec::new()),
                ),
                "n1? n2*",
            ),
            (
                survey(
                    vec![queried(
                        1,
                        all,
                        None,
                        7,
                        &["etcdserver: no leader", "memberID:3 alarm:CORRUPT "],
                    )],
                    Alarms::FromStatus,
                ),
                "n1? n2? n3!?",
            ),
            (survey(vec![silent("n1")], Alarms::FromStatus), "unread"),
            (
                EtcdSurvey {
                    stacked: false,
                    ..survey(vec![queried(1, all, Some(1), 7, &[])], no_space())
                },
                "external",
            ),
        ] {
            assert_eq!(shown(&survey.members(&[])), members);
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
            let tally = count_reports(reported.iter().copied());
            let of_lists = highest_unless_tied(&tally, |support| (support.follows_leader, support.members));
            assert_eq!(
                (of_lists.copied(), preferred_cluster(&tally)),
                (list, cluster),
                "{reported:?}"
            );
        }
    }
}
