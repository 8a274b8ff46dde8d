//! etcd's votes: whether it can decide, and how many members may fail before it cannot.

use jiff::Timestamp;

use crate::checks::{
    components::machines_without_etcd,
    etcd_members::stacked,
    judgement::{Judgement, Unjudged, machine, or_else},
    membership::Membership,
    turnover::{Phase, machines, machines_read, phase_of_node},
};
use crate::{
    inspection::Finding,
    plan::quorum::{Change, Votes},
    snapshot::Observed,
};

/// etcd's votes; none where etcd is not the control plane's own, or its members are not known.
pub fn votes(observed: &Observed, now: Timestamp) -> Option<Votes> {
    let survey = observed.etcd.read().filter(|survey| survey.stacked)?;
    let membership = Membership::of(survey);
    membership
        .is_known()
        .then(|| Votes::after(&membership.members(observed, now), Change::Unchanged))
}

/// How etcd's votes stand, as well as can be told.
struct Standing {
    votes: Votes,
    /// The members, or Machines, that do not count as healthy.
    unhealthy: Vec<String>,
    /// Whether all of those are on their way out.
    are_leaving: bool,
    /// What it was told by; blank where the members themselves were asked.
    by: &'static str,
    /// Why the members could not be asked.
    unasked: Option<Unjudged>,
}

fn standing(observed: &Observed, now: Timestamp) -> Result<Standing, Unjudged> {
    if observed.management.control_plane.control_plane.external_etcd {
        return Err(Unjudged::skipped("etcd runs elsewhere"));
    }
    let unasked = match stacked(observed).map(Membership::of) {
        Ok(membership) if membership.is_known() => {
            let members = membership.members(observed, now);
            let unhealthy: Vec<&str> = members
                .iter()
                .filter(|member| !member.is_starting() && !member.is_healthy)
                .map(|member| member.name.as_str())
                .collect();
            return Ok(Standing {
                votes: Votes::after(&members, Change::Unchanged),
                are_leaving: unhealthy
                    .iter()
                    .all(|name| phase_of_node(observed, name, now) == Phase::Leaving),
                unhealthy: unhealthy
                    .iter()
                    .map(|name| format!("EtcdMember/{name}"))
                    .collect(),
                by: "",
                unasked: None,
            });
        }
        Ok(membership) => membership.unknown(),
        Err(unjudged) => unjudged,
    };
    machines_read(observed)?;
    let (votes, unhealthy) = votes_from_outside(observed, now);
    Ok(Standing {
        votes,
        // Of those that leave none is counted.
        are_leaving: false,
        unhealthy: unhealthy.iter().map(|name| machine(name)).collect(),
        by: if observed.workload.read().is_some() {
            ", by their pods and the Machines' conditions"
        } else {
            ", by the Machines' conditions"
        },
        unasked: Some(unasked),
    })
}

impl Standing {
    fn judged(self, observed: &Observed, message: Option<String>, hint: Option<&str>) -> Judgement {
        let name = &observed.management.control_plane.control_plane.name;
        let findings = message.map(|message| {
            let object = format!("KubeadmControlPlane/{name}");
            let finding = if self.are_leaving && self.votes.has_quorum() {
                Finding::info(object, message)
            } else {
                Finding::fail(object, message)
            };
            let finding = self.unhealthy.into_iter().fold(finding, Finding::and);
            match hint {
                Some(hint) => finding.hint(hint),
                None => finding,
            }
        });
        let findings = Vec::from_iter(findings);
        match self.unasked {
            Some(unasked) => or_else(unasked, findings),
            None => Ok(findings),
        }
    }

    /// `2 of 3 voting members are healthy, 2 are needed`
    fn told(&self) -> String {
        format!(
            "{} of {} voting members are healthy, {} are needed",
            self.votes.voters.saturating_sub(self.votes.unhealthy),
            self.votes.voters,
            self.votes.quorum()
        )
    }
}

/// Whether no member could be asked, and the API server says that it cannot either.
pub fn is_without_etcd(observed: &Observed) -> bool {
    let survey = observed.etcd.read();
    survey.is_some_and(|survey| survey.server_lacks_etcd && !Membership::of(survey).is_known())
}

pub fn quorum(observed: &Observed, now: Timestamp) -> Judgement {
    let standing = standing(observed, now)?;
    // Before the first member there is nothing to decide.
    let is_lost = standing.votes.voters > 0 && !standing.votes.has_quorum();
    let mut message = is_lost.then(|| format!("quorum is lost: {}{}", standing.told(), standing.by));
    if message.is_none() && is_without_etcd(observed) {
        let cut_off =
            "quorum is lost, or the API server is cut off from etcd: it says that etcd does not answer it";
        message = Some(cut_off.to_owned());
    }
    let hint = "bring members back first, the controller cannot; if they are gone for good, restore etcd from a snapshot";
    standing.judged(observed, message, Some(hint))
}

pub fn tolerance(observed: &Observed, now: Timestamp) -> Judgement {
    let standing = standing(observed, now)?;
    let is_less = standing.votes.unhealthy > 0 && standing.votes.has_quorum();
    let message = is_less.then(|| {
        let more = match standing.votes.may_fail() {
            0 => "no more may fail".to_owned(),
            more => format!("{more} more may fail"),
        };
        format!("{}: {more}{}", standing.told(), standing.by)
    });
    standing.judged(observed, message, None)
}

/// The votes as far as others know of them: each Machine with a node is taken for a member, and unhealthy when its pod or
/// its member is known not to be well. Without quorum that is all there is: the API server forwards to no member then.
fn votes_from_outside(observed: &Observed, now: Timestamp) -> (Votes, Vec<String>) {
    let without_etcd = machines_without_etcd(observed);
    let members = || {
        let joined = machines(observed).iter().filter(|machine| machine.has_node());
        joined.filter(|machine| Phase::of(machine, now) == Phase::Settled)
    };
    let unhealthy: Vec<String> = members()
        .filter(|of| {
            of.is_not("EtcdPodHealthy")
                || of.is_not("EtcdMemberHealthy")
                || without_etcd.contains(of.machine.name.as_str())
        })
        .map(|machine| machine.machine.name.clone())
        .collect();
    let votes = Votes {
        voters: members().count(),
        unhealthy: unhealthy.len(),
        starting: 0,
    };
    (votes, unhealthy)
}
