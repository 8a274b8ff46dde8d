//! Combines the responses of the etcd members into one member list.

use jiff::Timestamp;
use kcp_api::Object;
use kcp_etcd::{Member, Members, Status};

use crate::{
    checks::{
        finding::{CheckOutcome, Finding, NoResult, require},
        machine_grace::{Phase, machine_of_node, phase_of_node},
    },
    quorum,
    snapshot::{
        EtcdMembers, Snapshot,
        etcd::{EtcdSurvey, QueriedMember, hexadecimal, member_ids},
    },
};

pub const ETCD: &str = "etcd";

/// Returns the responses of a stacked etcd, or no result if etcd is external.
pub fn stacked_survey(observed: &Snapshot) -> Result<&EtcdSurvey, NoResult> {
    let survey = require(&observed.etcd, ETCD)?;
    if survey.stacked {
        Ok(survey)
    } else {
        Err(NoResult::skipped("etcd is external"))
    }
}

/// The members of the etcd cluster, as far as the responding members agree on them.
#[derive(Clone, Debug)]
pub struct Membership<'s> {
    survey: &'s EtcdSurvey,
    /// The id of the etcd cluster. `None` if no member reports one, or members contradict each other.
    pub cluster_id: Option<u64>,
    list: Option<&'s Members>,
}

/// A member in the agreed list, with the response from its node.
#[derive(Clone, Copy, Debug)]
pub struct ListedMember<'s> {
    pub member: &'s Member,
    /// The response from the member's node or endpoint. `None` if no node or endpoint belongs to the member.
    pub queried: Option<&'s QueriedMember>,
}

impl<'s> Membership<'s> {
    pub fn new(survey: &'s EtcdSurvey) -> Self {
        Self {
            survey,
            cluster_id: survey.cluster_id(),
            list: survey.agreed_members(),
        }
    }

    pub fn listed(&self) -> impl Iterator<Item = ListedMember<'s>> + use<'s> {
        let survey = self.survey;
        self.list
            .into_iter()
            .flat_map(|list| &list.members)
            .map(move |member| ListedMember {
                member,
                queried: survey
                    .queried
                    .iter()
                    .find(|queried| is_response_of(queried, member)),
            })
    }

    /// The statuses that members of the etcd cluster [`Self::cluster_id`] report.
    pub fn statuses(&self) -> impl Iterator<Item = (&'s QueriedMember, &'s Status)> + use<'s> {
        let cluster_id = self.cluster_id;
        let statuses = self.survey.statuses();
        statuses.filter(move |(_, status)| Some(status.cluster_id) == cluster_id)
    }

    pub const fn is_known(&self) -> bool {
        self.list.is_some()
    }

    /// Whether members contradict each other, and it is unknown whose report is correct.
    pub fn is_disputed(&self) -> bool {
        self.survey.is_disputed()
    }

    pub fn unknown_result(&self) -> NoResult {
        NoResult::unknown(if self.is_disputed() {
            "members report different member lists"
        } else {
            "no etcd member has reported a member list"
        })
    }

    /// Fails if the members belong to different etcd clusters, and it is unknown which cluster has the data.
    pub fn require_one_cluster(&self) -> Result<(), NoResult> {
        if self.cluster_id.is_none() && self.is_disputed() {
            return Err(NoResult::unknown(
                "members belong to different etcd clusters; it is unknown which one has the data",
            ));
        }
        Ok(())
    }

    /// Whether a member's own list equals the agreed list.
    pub fn is_agreed_list(&self, list: &Members) -> bool {
        self.list
            .is_some_and(|usual| member_ids(usual) == member_ids(list))
    }

    /// Whether the member may belong to a starting Machine that does not reference its node yet.
    pub fn may_be_starting(&self, queried: &QueriedMember, observed: &Snapshot, now: Timestamp) -> bool {
        machine_of_node(observed, &queried.name).is_none()
            && phase_of_queried(self.survey, queried, observed, now) == Phase::Starting
    }
}

/// The members of a stacked etcd, as counted for the quorum. `None` if the members are unknown.
pub fn voters(observed: &Snapshot) -> Option<Vec<quorum::Member>> {
    let survey = observed.etcd.value()?;
    let EtcdMembers::Read(members) = survey.members(&observed.machines) else {
        return None;
    };
    let voters = members.iter().map(|member| {
        let machine = machine_of_node(observed, &member.name);
        member.voter(machine.map(Object::name))
    });
    Some(voters.collect())
}

/// How findings name a member: `EtcdMember/` with the name of the member, or with its id if it has no name.
pub fn member_object(member: &Member) -> String {
    if member.name.is_empty() {
        format!("EtcdMember/{}", hexadecimal(member.id))
    } else {
        format!("EtcdMember/{}", member.name)
    }
}

/// How findings name a queried member, and the Machine on which it runs.
pub fn queried_objects(queried: &QueriedMember) -> Vec<String> {
    let machine = queried.machine.iter().map(|machine| format!("Machine/{machine}"));
    [format!("EtcdMember/{}", queried.name)]
        .into_iter()
        .chain(machine)
        .collect()
}

/// The phase of the Machine on which a member runs. Members of an external etcd have no Machine and count as settled.
pub fn phase_of_queried(
    survey: &EtcdSurvey,
    queried: &QueriedMember,
    observed: &Snapshot,
    now: Timestamp,
) -> Phase {
    if survey.stacked {
        phase_of_node(observed, &queried.name, now)
    } else {
        Phase::Settled
    }
}

pub fn member_finding(queried: &QueriedMember, outcome: CheckOutcome, message: &str) -> Finding {
    Finding {
        objects: queried_objects(queried),
        ..Finding::new(outcome, "", message)
    }
}

/// Whether a response belongs to the member. Compares the member id if the member responded, otherwise the name or the
/// client URL.
fn is_response_of(queried: &QueriedMember, member: &Member) -> bool {
    let status = queried
        .response
        .as_ref()
        .ok()
        .and_then(|response| response.status.as_ref().ok());
    let serves = |url: &String| {
        url.split_once("://")
            .is_some_and(|(_, rest)| rest.trim_end_matches('/') == queried.name)
    };
    status.map_or_else(
        || member.name == queried.name || member.client_urls.iter().any(serves),
        |status| status.member_id == member.id,
    )
}
