//! etcd's votes: whether it can decide, and how many members may fail before it cannot.

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    checks::{
        Check,
        components::{self, machines_without_etcd},
        finding::{CheckOutcome, Finding, Judgement, Unjudged, machine, need, or_else},
        machine_grace::{Phase, machines_read, phase_of_node},
        membership::{Membership, of_member, phase_of_asked},
    },
    quorum::{Change, Votes},
    snapshot::{
        Failure, Snapshot,
        etcd::{Answer, EtcdSurvey},
    },
};

pub const CHECKS: &[Check] = &[
    Check::new("etcd-quorum", "etcd has quorum", quorum)
        .preflight()
        .blocking(),
    Check::new("etcd-tolerance", "no voting member is unhealthy", tolerance)
        .preflight()
        .summing_up(),
    Check::new("etcd-members-answer", "every member responds", answer).preflight(),
];

pub const ETCD: &str = "etcd";

/// The survey, where every member of it is the control plane's own.
pub fn stacked(observed: &Snapshot) -> Result<&EtcdSurvey, Unjudged> {
    let survey = need(&observed.etcd, ETCD)?;
    if survey.stacked {
        Ok(survey)
    } else {
        Err(Unjudged::skipped("etcd is external"))
    }
}

pub fn answer(observed: &Snapshot, now: Timestamp) -> Judgement {
    let survey = match need(&observed.etcd, ETCD) {
        Ok(survey) => survey,
        Err(unjudged) => {
            let by_conditions = components::by_conditions(observed, "EtcdMemberHealthy", "etcd member", now);
            return or_else(unjudged, by_conditions);
        }
    };
    let membership = Membership::of(survey);
    let findings = survey.asked.iter().filter_map(|asked| {
        let failure = first_failure(&asked.answer)?;
        // Another check reports missing permissions.
        if failure.forbidden.is_some() {
            return None;
        }
        let is_listed = membership
            .listed()
            .any(|listed| listed.member.name == asked.name && !listed.member.is_learner);
        let is_turning = match phase_of_asked(survey, asked, observed, now) {
            // It is removed from the list and its machine from the world, one shortly after the other.
            Phase::Leaving => true,
            // It may vote before its Machine names the node.
            Phase::Starting => !is_listed || membership.may_be_starting(asked, observed, now),
            Phase::Settled => false,
        };
        let outcome = if is_turning {
            CheckOutcome::Info
        } else if survey.statuses().next().is_some() {
            CheckOutcome::Fail
        } else {
            // None has answered: it may be the way to them that is broken.
            CheckOutcome::Unknown
        };
        let finding = of_member(
            asked,
            outcome,
            &format!("etcd member does not respond: {}", failure.message),
        );
        // A Secret may be the cause.
        let finding = if failure.object.contains('/') {
            finding.and(&failure.object)
        } else {
            finding
        };
        Some(match &failure.hint {
            Some(hint) => finding.hint(hint),
            None if survey.stacked => finding.hint(pod_hint(&asked.name)),
            None => finding,
        })
    });
    Ok(findings.collect())
}

fn first_failure(answer: &Result<Answer, Failure>) -> Option<&Failure> {
    let Answer { status, members, .. } = match answer {
        Ok(answer) => answer,
        Err(failure) => return Some(failure),
    };
    match status {
        Err(failure) => Some(failure),
        // A learner reports no list.
        Ok(status) if status.is_learner => None,
        Ok(_) => members.as_ref().err(),
    }
}

/// Commands for the workload cluster say so: `-n` alone would send them to the management cluster.
fn pod_hint(node: &str) -> String {
    format!("in the workload cluster: kubectl describe pod etcd-{node} -n kube-system")
}

/// etcd's votes; none where etcd is not the control plane's own, or its members are not known.
pub fn votes(observed: &Snapshot, now: Timestamp) -> Option<Votes> {
    let survey = observed.etcd.read().filter(|survey| survey.stacked)?;
    let membership = Membership::of(survey);
    membership
        .is_known()
        .then(|| Votes::after(&membership.members(observed, now), Change::Unchanged))
}

/// etcd's votes, as far as they are known.
struct VoteCount {
    votes: Votes,
    /// The members, or Machines, that do not count as healthy.
    unhealthy: Vec<String>,
    /// Whether all of those are on their way out.
    are_leaving: bool,
    /// The source; empty if the members themselves were queried.
    by: &'static str,
    unasked: Option<Unjudged>,
}

fn count_votes(observed: &Snapshot, now: Timestamp) -> Result<VoteCount, Unjudged> {
    if observed.has_external_etcd() {
        return Err(Unjudged::skipped("etcd is external"));
    }
    let unasked = match stacked(observed).map(Membership::of) {
        Ok(membership) if membership.is_known() => {
            let members = membership.members(observed, now);
            let unhealthy: Vec<&str> = members
                .iter()
                .filter(|member| !member.is_starting() && !member.is_healthy)
                .map(|member| member.name.as_str())
                .collect();
            return Ok(VoteCount {
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
    Ok(VoteCount {
        votes,
        // Of those that leave none is counted.
        are_leaving: false,
        unhealthy: unhealthy.iter().map(|name| machine(name)).collect(),
        by: if observed.workload.read().is_some() {
            ", judged from pods and Machine conditions"
        } else {
            ", judged from Machine conditions"
        },
        unasked: Some(unasked),
    })
}

impl VoteCount {
    fn judged(self, observed: &Snapshot, message: Option<String>, hint: Option<&str>) -> Judgement {
        let findings = message.map(|message| {
            let object = observed.object();
            let finding = if self.are_leaving && self.votes.has_quorum() {
                Finding::info(object, message)
            } else {
                Finding::fail(object, message)
            };
            self.unhealthy
                .into_iter()
                .fold(finding, Finding::and)
                .hint_if(hint)
        });
        let findings = Vec::from_iter(findings);
        match self.unasked {
            Some(unasked) => or_else(unasked, findings),
            None => Ok(findings),
        }
    }
}

/// Whether no member could be asked, and the API server says that it cannot either.
pub fn is_without_etcd(observed: &Snapshot) -> bool {
    let survey = observed.etcd.read();
    survey.is_some_and(|survey| survey.server_lacks_etcd && !Membership::of(survey).is_known())
}

pub fn quorum(observed: &Snapshot, now: Timestamp) -> Judgement {
    let count = count_votes(observed, now)?;
    // Before the first member there is nothing to decide.
    let is_lost = count.votes.voters > 0 && !count.votes.has_quorum();
    let mut message = is_lost.then(|| format!("quorum is lost: {}{}", count.votes, count.by));
    if message.is_none() && is_without_etcd(observed) {
        let cut_off =
            "quorum is lost, or the API server is cut off from etcd: it reports that etcd does not respond";
        message = Some(cut_off.to_owned());
    }
    let hint = "recover members first, the controller cannot; if they are lost, restore etcd from a snapshot";
    count.judged(observed, message, Some(hint))
}

pub fn tolerance(observed: &Snapshot, now: Timestamp) -> Judgement {
    let count = count_votes(observed, now)?;
    let is_less = count.votes.unhealthy > 0 && count.votes.has_quorum();
    let message = is_less.then(|| {
        let more = match count.votes.may_fail() {
            0 => "cannot lose another member".to_owned(),
            more => format!("{more} more may fail"),
        };
        format!("{}: {more}{}", count.votes, count.by)
    });
    count.judged(observed, message, None)
}

/// The votes judged from Machines and pods: every Machine with a node counts as a member, unhealthy if its pod or its member
/// is known to be unhealthy. Without quorum there is no other source: the API server forwards to no member then.
fn votes_from_outside(observed: &Snapshot, now: Timestamp) -> (Votes, Vec<String>) {
    let without_etcd = machines_without_etcd(observed);
    let members = || {
        let joined = observed.machines.iter().filter(|machine| machine.has_node());
        joined.filter(|machine| Phase::of(machine, now) == Phase::Settled)
    };
    let unhealthy: Vec<String> = members()
        .filter(|of| {
            of.is_not("EtcdPodHealthy") || of.is_not("EtcdMemberHealthy") || without_etcd.contains(of.name())
        })
        .map(|machine| machine.name().to_owned())
        .collect();
    let votes = Votes {
        voters: members().count(),
        unhealthy: unhealthy.len(),
        starting: 0,
    };
    (votes, unhealthy)
}

#[cfg(test)]
pub(super) mod cases {
    use kcp_api::{
        ConditionStatus::{False, Unknown},
        metadata::Time,
    };

    use crate::{
        checks::tests::{Case, elsewhere, joins, joins_unnamed, unread},
        snapshot::{Reading, Snapshot, etcd::Alarms},
        testing::{
            objects::{condition, minutes_ago, set},
            snapshot::failure,
        },
    };

    fn kill_two(observed: &mut Snapshot) {
        observed.kill(2);
        observed.kill(3);
        observed.status(1).leader = None;
        observed.status(1).errors = vec!["etcdserver: no leader".to_owned()];
        observed.survey().alarms = Alarms::FromStatus;
    }

    /// Without quorum the API server finds no pod to forward to, not even that of the member that runs.
    fn kill_two_and_reach_none(observed: &mut Snapshot) {
        kill_two(observed);
        none_reached(observed);
    }

    fn none_reached(observed: &mut Snapshot) {
        observed.survey().alarms = Alarms::FromStatus;
        for (asked, machine) in observed.survey().asked.iter_mut().zip(["m1", "m2", "m3"]) {
            asked.answer = Err(failure(
                &format!("etcd member node-{machine}"),
                "connecting: no answer within 2.2 s",
            ));
        }
    }

    fn pod_failed(observed: &mut Snapshot, number: usize) {
        let failed = condition("EtcdPodHealthy", False, "pod etcd-node: CrashLoopBackOff");
        set(&mut observed.machine(number).status.conditions, failed);
    }

    pub(crate) const CASES: &[Case] = &[
        ("etcd-quorum", "two_killed", kill_two),
        (
            "etcd-quorum",
            "two_killed_and_none_reached",
            kill_two_and_reach_none,
        ),
        ("etcd-quorum", "the_api_server_lacks_etcd", |o| {
            none_reached(o);
            o.workload = Reading::Failed(failure("Secret/c1-kubeconfig", "no answer within 1.9s"));
            o.survey().server_lacks_etcd = true;
        }),
        (
            "etcd-quorum",
            "a_member_answers_though_the_api_server_lacks_etcd",
            |o| {
                o.kill(2);
                o.survey().server_lacks_etcd = true;
            },
        ),
        ("etcd-quorum", "two_killed_and_nothing_read", |o| {
            unread(o);
            pod_failed(o, 2);
            pod_failed(o, 3);
        }),
        ("etcd-quorum", "one_killed", |o| o.kill(2)),
        ("etcd-quorum", "one_killed_and_nothing_read", |o| {
            unread(o);
            pod_failed(o, 2);
        }),
        ("etcd-tolerance", "leaves_and_is_still_listed", |o| {
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
            o.kill(2);
        }),
        ("etcd-tolerance", "one_killed", |o| o.kill(2)),
        ("etcd-tolerance", "one_killed_and_etcd_left_out", |o| {
            o.etcd = Reading::Excluded { flag: "--no-etcd" };
            pod_failed(o, 2);
        }),
        ("etcd-tolerance", "none_answers", |o| {
            for asked in &mut o.survey().asked {
                asked.answer = Err(failure("etcd", "no TLS connection: unknown CA"));
            }
            o.survey().alarms = Alarms::FromStatus;
        }),
        (
            "etcd-tolerance",
            "of_a_machine_that_has_yet_to_name_its_node",
            |o| {
                joins_unnamed(o);
                o.kill(3);
            },
        ),
        ("etcd-members-answer", "killed", |o| o.kill(2)),
        ("etcd-members-answer", "stopped", |o| {
            o.answer(2).status = Err(failure("etcd member node-m2", "Status: no answer within 2s"));
            o.answer(2).members = Err(failure("etcd member node-m2", "MemberList: no answer within 2s"));
        }),
        ("etcd-members-answer", "tells_no_list", |o| {
            o.answer(2).members = Err(failure("etcd member node-m2", "MemberList: no answer within 2s"));
        }),
        ("etcd-members-answer", "a_learner_tells_no_list", |o| {
            joins(o);
            o.answer(3).members = Err(failure("etcd", "rpc not supported for learner"));
            o.status(3).is_learner = true;
            o.each_list_of(&[1, 2], |list| list.members[2].is_learner = true);
        }),
        ("etcd-members-answer", "killed_soon_after_it_was_made", |o| {
            o.machine(2).metadata.creation_timestamp = Some(Time(minutes_ago(2)));
            o.kill(2);
        }),
        ("etcd-members-answer", "leaves_and_is_still_listed", |o| {
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
            o.kill(2);
        }),
        ("etcd-members-answer", "comes_up", |o| {
            joins(o);
            o.kill(3);
            o.each_list_of(&[1, 2], |list| {
                list.members.truncate(2);
            });
        }),
        ("etcd-members-answer", "none_answers", |o| {
            for asked in &mut o.survey().asked {
                asked.answer = Err(failure("etcd", "no TLS connection: unknown CA"));
            }
            o.survey().alarms = Alarms::FromStatus;
        }),
        ("etcd-members-answer", "by_the_condition", |o| {
            o.etcd = Reading::Excluded { flag: "--no-etcd" };
            let unknown = condition("EtcdMemberHealthy", Unknown, "no connection");
            set(&mut o.machine(2).status.conditions, unknown);
        }),
        ("etcd-members-answer", "elsewhere", |o| {
            elsewhere(o);
            o.survey().asked[1].answer = Err(failure("etcd", "connection refused"));
        }),
        ("etcd-members-answer", "elsewhere_while_a_machine_starts", |o| {
            elsewhere(o);
            joins_unnamed(o);
            o.survey().asked[1].answer = Err(failure("etcd", "connection refused"));
        }),
        (
            "etcd-members-answer",
            "of_a_machine_that_has_yet_to_name_its_node",
            |o| {
                joins_unnamed(o);
                o.kill(3);
            },
        ),
    ];
}
