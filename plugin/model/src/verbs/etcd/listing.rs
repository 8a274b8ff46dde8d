//! What is known about each etcd member, for `etcd members`.

use std::time::Duration;

use kcp_api::{Condition, Object as _};
use kcp_etcd::Status;
use serde::Serialize;

use crate::{
    change::decision::Refusal,
    checks::{
        finding::Finding,
        machine_grace::{are_machines_read, machine_of_node},
    },
    inspection::{Health, Inspection},
    snapshot::{
        Snapshot,
        etcd::{EtcdSurvey, QueriedMember, describe_unresponsive, hexadecimal},
    },
    verbs::etcd::members::{ClusterMember, EtcdCluster, require_survey},
};

/// The condition of a Machine that says what the controller thinks of its etcd member.
const MEMBER_CONDITION: &str = "EtcdMemberHealthy";

/// The members of etcd, and the nodes and endpoints that were queried and have no member in the list.
#[derive(Debug, PartialEq, Eq)]
pub struct EtcdListing {
    pub members: Vec<DescribedMember>,
    /// Why it is unknown which members etcd has. The listing then has what was queried. `None` if the members are known.
    pub unknown_because: Option<String>,
}

/// What is known about a member.
#[derive(Debug, PartialEq, Eq)]
pub struct DescribedMember {
    /// `None` if no list has the member, and it did not respond.
    pub id: Option<u64>,
    /// The name of the member's node, or `host:port` of an external etcd. Empty until the member has started.
    pub name: String,
    /// `None` if no Machine has the member, or etcd is external.
    pub machine: Option<Counterpart>,
    /// `None` if the workload cluster has no Node with the member's name, or etcd is external.
    pub node: Option<Counterpart>,
    /// `None` if the role is unknown.
    pub role: Option<MemberRole>,
    /// `None` if the member did not respond.
    pub status: Option<Status>,
    /// How long the member took to respond. `None` if it did not respond.
    pub latency: Option<Duration>,
    /// What the controller thinks of the member: the condition `EtcdMemberHealthy` of its Machine.
    pub condition: Option<Condition>,
    /// What is wrong with the member, as the end of a sentence about it.
    pub faults: Vec<String>,
}

/// The Machine or the Node of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Counterpart {
    Named(String),
    /// The objects of this kind could not be read.
    Unread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum MemberRole {
    Leader,
    Voter,
    Learner,
}

impl MemberRole {
    pub const fn new(member: &ClusterMember<'_>) -> Self {
        if !member.is_voter {
            Self::Learner
        } else if member.is_leader {
            Self::Leader
        } else {
            Self::Voter
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Voter => "voter",
            Self::Learner => "learner",
        }
    }
}

/// Describes each member.
pub fn list(observed: &Snapshot) -> Result<EtcdListing, Refusal> {
    let survey = require_survey(observed)?;
    let cluster = EtcdCluster::from_survey(survey);
    let listed = cluster.as_ref().map_or(&[][..], |cluster| &cluster.members);
    let is_listed = |queried: &&QueriedMember| listed.iter().any(|member| member.name == queried.name);
    let unlisted = survey.queried.iter().filter(|queried| !is_listed(queried));
    let why = cluster.as_ref().err().and_then(|refusal| refusal.why.first());
    let members = listed.iter().map(|member| describe(observed, survey, member));
    let unlisted = unlisted.map(|queried| describe_unlisted(observed, survey, queried, why.is_none()));
    Ok(EtcdListing {
        members: members.chain(unlisted).collect(),
        unknown_because: why.cloned(),
    })
}

impl EtcdListing {
    /// The health of etcd: that of its checks, unless something is wrong or unknown that no check reports.
    pub fn health(&self, inspection: &Inspection) -> Health {
        let is_reported = |member: &DescribedMember| {
            let object = format!("EtcdMember/{}", member.label());
            let mut findings = inspection.findings().into_iter();
            findings.any(|(_, Finding { objects, .. })| objects.contains(&object))
        };
        let is_unread =
            |member: &DescribedMember| [&member.machine, &member.node].contains(&&Some(Counterpart::Unread));
        let is_known =
            self.unknown_because.is_none() && !self.members.is_empty() && !self.members.iter().any(is_unread);
        let mut faulty = self.members.iter().filter(|member| !member.faults.is_empty());
        match inspection.health {
            Health::Healthy | Health::Unknown
                if self.unknown_because.is_none() && !faulty.all(is_reported) =>
            {
                Health::Degraded
            }
            Health::Healthy if !is_known => Health::Unknown,
            health => health,
        }
    }
}

impl DescribedMember {
    /// The name of the member, or its id if it has no name.
    pub fn label(&self) -> String {
        match self.id {
            Some(id) if self.name.is_empty() => hexadecimal(id),
            _ => self.name.clone(),
        }
    }
}

fn describe(observed: &Snapshot, survey: &EtcdSurvey, member: &ClusterMember<'_>) -> DescribedMember {
    let mut queried = survey.queried.iter();
    let queried = queried.find(|queried| queried.name == member.name);
    let alarms = survey.alarms_by_member().into_iter();
    let alarms = alarms.filter(|(id, _)| *id == member.id);
    let alarms = alarms.map(|(_, alarm)| format!("has raised the alarm {alarm}"));
    let has_name = member.has_started || queried.is_some();
    DescribedMember {
        id: Some(member.id),
        name: if has_name {
            member.name.clone()
        } else {
            String::new()
        },
        role: Some(MemberRole::new(member)),
        faults: member
            .health
            .as_ref()
            .err()
            .cloned()
            .into_iter()
            .chain(alarms)
            .collect(),
        ..respond(observed, survey, &member.name, queried, Some(member.id))
    }
}

/// Describes a node or an endpoint whose member is not in the list, or that was queried while the list is unknown.
fn describe_unlisted(
    observed: &Snapshot,
    survey: &EtcdSurvey,
    queried: &QueriedMember,
    is_list_known: bool,
) -> DescribedMember {
    let described = respond(observed, survey, &queried.name, Some(queried), None);
    let Some(status) = &described.status else {
        let why = queried
            .status()
            .err()
            .map(|failure| describe_unresponsive(&failure.message));
        return DescribedMember {
            faults: why.into_iter().collect(),
            ..described
        };
    };
    let role = if status.is_learner {
        MemberRole::Learner
    } else if status.leader == Some(status.member_id) {
        MemberRole::Leader
    } else {
        MemberRole::Voter
    };
    let faults = if is_list_known {
        vec!["is not in etcd's list of members".to_owned()]
    } else {
        Vec::new()
    };
    DescribedMember {
        role: Some(role),
        faults,
        ..described
    }
}

/// What a member responded, and the objects that belong to it. If `id` is given, a response from a member with
/// a different id does not count.
fn respond(
    observed: &Snapshot,
    survey: &EtcdSurvey,
    name: &str,
    queried: Option<&QueriedMember>,
    id: Option<u64>,
) -> DescribedMember {
    let response = queried.and_then(|queried| queried.response.as_ref().ok());
    let status = response.and_then(|response| response.status.as_ref().ok());
    let status = status.filter(|status| id.is_none_or(|id| status.member_id == id));
    let machine = machine_of_node(observed, name).or_else(|| {
        let machine = queried?.machine.as_deref()?;
        observed.machines.iter().find(|other| other.name() == machine)
    });
    DescribedMember {
        id: status.map(|status| status.member_id),
        name: name.to_owned(),
        machine: match machine {
            Some(machine) => Some(Counterpart::Named(machine.name().to_owned())),
            None => (survey.stacked && !are_machines_read(observed)).then_some(Counterpart::Unread),
        },
        node: survey.stacked.then(|| node(observed, name)).flatten(),
        role: None,
        status: status.cloned(),
        latency: status.and(response).map(|response| response.latency),
        condition: machine
            .and_then(|machine| machine.condition(MEMBER_CONDITION))
            .cloned(),
        faults: Vec::new(),
    }
}

fn node(observed: &Snapshot, name: &str) -> Option<Counterpart> {
    let nodes = observed
        .workload
        .value()
        .and_then(|workload| workload.nodes.value());
    let Some(nodes) = nodes else {
        return Some(Counterpart::Unread);
    };
    let exists = nodes.iter().any(|node| node.name == name);
    exists.then(|| Counterpart::Named(name.to_owned()))
}
