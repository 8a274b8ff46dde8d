//! Checks whether etcd has quorum, and how many members can fail before it is lost.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        components,
        etcd_refusals::{RefusedDeletion, refused_deletion},
        finding::{CheckOutcome, CheckResult, Finding, NoResult, fall_back_to, machine_object, require},
        left_behind::is_left_behind,
        machine_grace::{Phase, machine_of_node, phase_of_node, require_machines},
        machines::replacement_hint,
        membership::{ETCD, Membership, member_finding, phase_of_queried, stacked_survey, voters},
    },
    controller_release::Behaviour,
    problem::leader_hint,
    quorum::{self, Votes},
    snapshot::{
        Failure, Snapshot,
        etcd::{MemberResponse, QueriedMember, describe_unresponsive},
        workload::Component,
    },
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "etcd-no-quorum",
        "etcd has lost its quorum, so it accepts no writes.",
        check_etcd_no_quorum,
        Responsible::Fault(Actor::Person),
    )
    .preflight()
    .blocking(),
    Check::new(
        "etcd-voters-unhealthy",
        "A voting member of etcd is not healthy; the message says whether etcd can lose another member.",
        check_etcd_voters_unhealthy,
        Responsible::Fault(Actor::Person),
    )
    .preflight()
    .as_summary(),
    Check::new(
        "etcd-members-unresponsive",
        "A member of etcd does not respond.",
        check_etcd_members_unresponsive,
        Responsible::Fault(Actor::Person),
    )
    .effect_of(&[&[
        "nodes-left-behind",
        "etcd-certificates-expiring",
        "etcd-members-mismatch",
        "etcd-clusters-differ",
    ]])
    .preflight(),
    Check::new(
        "etcd-pods-not-ready",
        "The static pod of an etcd member is not ready.",
        check_etcd_pods_not_ready,
        Responsible::Fault(Actor::Kubelet),
    )
    .effect_of(&[&["etcd-members-unresponsive"]])
    .preflight(),
];

/// Whether the lists of members were read, and contain no member with this name.
fn is_no_member(membership: &Membership<'_>, name: &str) -> bool {
    let mut listed = membership.listed().peekable();
    listed.peek().is_some() && listed.all(|listed| listed.member.name != name)
}

pub fn check_etcd_members_unresponsive(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let survey = match require(&observed.etcd, ETCD) {
        Ok(survey) => survey,
        Err(no_result) => {
            let condition_findings =
                components::condition_findings(observed, "EtcdMemberHealthy", "etcd member", now);
            return fall_back_to(no_result, condition_findings);
        }
    };
    if let Some(cause) = survey.common_cause() {
        return Ok(vec![Finding {
            outcome: CheckOutcome::Fail,
            ..Finding::from_failure(cause)
        }]);
    }
    let membership = Membership::new(survey);
    let has_lost_quorum = has_lost_quorum(observed, now);
    let members = observed.members();
    let leader = members.unreachable_leader();
    let findings = survey.queried.iter().filter_map(|queried| {
        let failure = first_failure(&queried.response)?;
        // The check `permissions-missing` reports missing permissions.
        if failure.forbidden.is_some() {
            return None;
        }
        let is_listed = membership
            .listed()
            .any(|listed| listed.member.name == queried.name && !listed.member.is_learner);
        if is_no_member(&membership, &queried.name) && is_left_behind(observed, &queried.name) {
            return None;
        }
        let are_machines_changing = match phase_of_queried(survey, queried, observed, now) {
            // The member of a deleted Machine stops shortly before or after it is removed from the list.
            Phase::Deleting => true,
            // A member may vote before its Machine references the node.
            Phase::Starting => !is_listed || membership.may_be_starting(queried, observed, now),
            Phase::Settled => false,
        };
        let leads = leader.is_some_and(|leader| leader.name == queried.name);
        let outcome = if are_machines_changing && !leads {
            CheckOutcome::Info
        } else if survey.statuses().next().is_some() {
            CheckOutcome::Fail
        } else {
            // No member responded. Perhaps the members are healthy, and only the connection to them fails.
            CheckOutcome::Unknown
        };
        let unresponsive = describe_unresponsive(&failure.message);
        let message = if leads {
            format!("etcd member {unresponsive}; {}", consequence_of_leader(observed))
        } else {
            format!("etcd member {unresponsive}")
        };
        let finding = member_finding(queried, outcome, &message);
        // The failure may concern a Secret instead of the member.
        let finding = if failure.object.contains('/') {
            finding.with_object(&failure.object)
        } else {
            finding
        };
        Some(match &failure.hint {
            // Without quorum, the API server forwards no connections, even to members that are running.
            _ if has_lost_quorum && components::is_etcd_pod_ready(observed, &queried.name) => finding,
            _ if has_lost_quorum && !failure.object.contains('/') => {
                finding.with_hint(host_hint(observed, &queried.name))
            }
            Some(hint) if leads => finding.with_hint(format!("{hint}; or {}", leader_hint(&queried.name))),
            None if leads => finding.with_hint(leader_hint(&queried.name)),
            Some(hint) => finding.with_hint(hint.clone() + &or_replace(observed, queried, failure, outcome)),
            None if survey.stacked && observed.are_static_pods_read() => {
                let examine = components::pod_hint(observed, Component::Etcd, &queried.name);
                finding.with_hint(examine + &or_replace(observed, queried, failure, outcome))
            }
            None => finding,
        })
    });
    Ok(findings.collect())
}

/// What happens to deletions if the leader does not respond, but the other members still follow it.
fn consequence_of_leader(observed: &Snapshot) -> &'static str {
    if observed.release().has(Behaviour::LearnsLeaderFromFollowers) {
        "it leads etcd, and Cluster API cannot move the leadership, so the deletion of the member's Machine does not finish"
    } else {
        "it leads etcd, and Cluster API cannot move the leadership, so the controller deletes no Machine"
    }
}

/// The end of a hint, with the command that replaces the member's Machine. Empty if a new member would not
/// help: the member may be healthy, or a Secret is the cause, or quorum is lost.
fn or_replace(
    observed: &Snapshot,
    queried: &QueriedMember,
    failure: &Failure,
    outcome: CheckOutcome,
) -> String {
    let is_of_member = outcome == CheckOutcome::Fail && !failure.object.contains('/');
    let machine = machine_of_node(observed, &queried.name).filter(|_| is_of_member);
    // While the deletion of another Machine waits because this member is dead, the Machine of this member cannot be replaced.
    // The check `etcd-refuses-removal` has the hint.
    let is_obstacle = |refused: &RefusedDeletion| {
        let mut dead = refused.refusal.dead.iter();
        dead.any(|dead| dead.member == queried.name)
    };
    if refused_deletion(observed).as_ref().is_some_and(is_obstacle) {
        return String::new();
    }
    machine.map_or_else(String::new, |machine| {
        format!("; or {}", replacement_hint(observed, machine))
    })
}

fn first_failure(response: &Result<MemberResponse, Failure>) -> Option<&Failure> {
    let MemberResponse { status, members, .. } = match response {
        Ok(response) => response,
        Err(failure) => return Some(failure),
    };
    match status {
        Err(failure) => Some(failure),
        // A learner does not serve the member list.
        Ok(status) if status.is_learner => None,
        Ok(_) => members.as_ref().err(),
    }
}

pub fn check_etcd_pods_not_ready(observed: &Snapshot, now: Timestamp) -> CheckResult {
    if observed.has_external_etcd() {
        return Err(NoResult::skipped("etcd is external"));
    }
    let has_lost_quorum = has_lost_quorum(observed, now);
    let hint = |observed: &Snapshot, component: Component, node: &str| {
        if has_lost_quorum {
            host_hint(observed, node)
        } else {
            components::pod_hint(observed, component, node)
        }
    };
    components::check_pods_ready(observed, Component::Etcd, hint, now)
}

/// How to examine an etcd member after quorum is lost: without etcd, the API server serves neither pods nor
/// their logs.
fn host_hint(observed: &Snapshot, node: &str) -> String {
    let host = machine_of_node(observed, node).map_or_else(|| format!("node {node}"), host);
    format!(
        "while etcd has no quorum, read its logs on the host of {host}: crictl logs $(crictl ps -aq --name etcd | head -n 1)"
    )
}

/// How a hint names the host of a Machine, such as `Machine m2 (node node-m2, 10.0.0.2)`.
fn host(machine: &Machine) -> String {
    let node = machine.node().map(|node| format!("node {node}"));
    let place: Vec<String> = node
        .into_iter()
        .chain(machine.status.host_address.clone())
        .collect();
    if place.is_empty() {
        format!("Machine {}", machine.name())
    } else {
        format!("Machine {} ({})", machine.name(), place.join(", "))
    }
}

/// Counts etcd's votes. `None` if etcd is external or its members are unknown.
pub fn votes(observed: &Snapshot) -> Option<Votes> {
    voters(observed).map(|members| Votes::by_status(&members))
}

/// etcd's votes, with the source from which they were counted.
struct VoteCount {
    votes: Votes,
    /// The unhealthy members, or the Machines with unhealthy members, as `Kind/name`.
    unhealthy: Vec<String>,
    /// Whether etcd has lost quorum.
    is_lost: bool,
    /// Whether every unhealthy member belongs to a Machine that is joining or being deleted.
    clears_on_its_own: bool,
    /// A suffix of the message that names the source of the votes. Empty if the members were queried.
    source: &'static str,
    unread: Option<NoResult>,
}

fn count_votes(observed: &Snapshot, now: Timestamp) -> Result<VoteCount, NoResult> {
    if observed.has_external_etcd() {
        return Err(NoResult::skipped("etcd is external"));
    }
    if let Some(members) = voters(observed) {
        let is_unhealthy = |member: &&quorum::Member| !member.is_learner && !member.is_healthy;
        let unhealthy: Vec<&quorum::Member> = members.iter().filter(is_unhealthy).collect();
        return Ok(VoteCount {
            votes: Votes::by_status(&members),
            is_lost: Votes::lost_quorum_votes(&members).is_some(),
            clears_on_its_own: unhealthy
                .iter()
                .all(|member| clears_on_its_own(member, observed, now)),
            // `etcd-learners-stuck` names a member without a name by its id.
            unhealthy: unhealthy
                .iter()
                .filter(|member| !member.name.is_empty())
                .map(|member| format!("EtcdMember/{}", member.name))
                .collect(),
            source: "",
            unread: None,
        });
    }
    let unread = match stacked_survey(observed) {
        Ok(survey) => Membership::new(survey).unknown_result(),
        Err(no_result) => no_result,
    };
    require_machines(observed)?;
    let (votes, unhealthy) = votes_from_machines(observed, now);
    Ok(VoteCount {
        votes,
        is_lost: votes.voters > 0 && !votes.has_quorum(),
        // Machines that are being deleted are not counted.
        clears_on_its_own: false,
        unhealthy: unhealthy.iter().map(|name| machine_object(name)).collect(),
        source: if observed.workload.value().is_some() {
            " (from pods and Machine conditions)"
        } else {
            " (from Machine conditions)"
        },
        unread: Some(unread),
    })
}

/// Whether the Machine of an unhealthy member is joining or being deleted. The problem ends when the Machine
/// has joined or has been deleted.
fn clears_on_its_own(member: &quorum::Member, observed: &Snapshot, now: Timestamp) -> bool {
    match machine_of_node(observed, &member.name) {
        Some(machine) => Phase::of(observed, machine, now) == Phase::Deleting,
        None => member.is_joining && phase_of_node(observed, &member.name, now) == Phase::Starting,
    }
}

impl VoteCount {
    fn into_result(self, observed: &Snapshot, message: Option<String>, hint: Option<&str>) -> CheckResult {
        let findings = message.map(|message| {
            let object = observed.object_name();
            let finding = if self.clears_on_its_own && !self.is_lost {
                Finding::info(object, message)
            } else {
                Finding::fail(object, message)
            };
            self.unhealthy
                .into_iter()
                .fold(finding, Finding::with_object)
                .with_optional_hint(hint)
        });
        let findings = Vec::from_iter(findings);
        match self.unread {
            Some(unread) => fall_back_to(unread, findings),
            None => Ok(findings),
        }
    }
}

/// Whether no member has responded, and the API server also reports that etcd does not respond.
pub fn only_api_server_responds(observed: &Snapshot) -> bool {
    let survey = observed.etcd.value();
    survey.is_some_and(|survey| survey.api_server_lacks_etcd && !Membership::new(survey).is_known())
}

pub(super) fn has_lost_quorum(observed: &Snapshot, now: Timestamp) -> bool {
    count_votes(observed, now).is_ok_and(|count| count.is_lost) || only_api_server_responds(observed)
}

/// Whether the etcd member of a Machine runs, with or without a leader.
fn responds(observed: &Snapshot, machine: &Machine) -> bool {
    let queried = observed
        .etcd
        .value()
        .into_iter()
        .flat_map(|survey| &survey.queried);
    let mut of_machine = queried.filter(|queried| machine.node() == Some(queried.name.as_str()));
    of_machine.any(|queried| queried.response.is_ok())
}

pub fn check_etcd_no_quorum(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let count = count_votes(observed, now)?;
    let mut message = count
        .is_lost
        .then(|| format!("quorum is lost: {}{}", count.votes, count.source));
    if message.is_none() && only_api_server_responds(observed) {
        let cut_off = "the API server reports that etcd does not respond: either quorum is lost, or the API server \
            cannot connect to etcd";
        message = Some(cut_off.to_owned());
    }
    let down = observed.machines.iter().filter(|machine| {
        let named = [
            machine_object(machine.name()),
            format!("EtcdMember/{}", machine.node().unwrap_or_default()),
        ];
        named.iter().any(|object| count.unhealthy.contains(object)) && !responds(observed, machine)
    });
    let hosts: Vec<String> = down.map(host).collect();
    let hosts = if hosts.is_empty() {
        String::new()
    } else {
        format!("the hosts are those of {}; ", hosts.join(", "))
    };
    let hint = sole_machine(observed).map_or_else(
        || {
            format!(
                "start the stopped members on their hosts, because the controller cannot; {hosts}etcd recovers once most members \
                 are running; if most members can never run again, continue from a member that is left: {}; if the data of all \
                 members is lost, restore a snapshot: {}",
                observed.recover_command(),
                observed.restore_command()
            )
        },
        |machine| sole_member_hint(observed, machine),
    );
    count.into_result(observed, message, Some(&hint))
}

/// The only Machine with a node, if its own etcd member does not explain the loss of quorum: etcd then has members whose
/// Machines no longer exist.
fn sole_machine(observed: &Snapshot) -> Option<&Machine> {
    let mut joined = observed.machines.iter().filter(|machine| machine.has_node());
    let machine = joined.next().filter(|_| joined.next().is_none())?;
    let is_left_alone = match voters(observed) {
        Some(members) => {
            let others = members.iter().filter(|member| member.machine.is_none());
            let mut others = others.filter(|member| !member.is_learner).peekable();
            others.peek().is_some() && others.all(|member| !member.is_healthy && !member.is_joining)
        }
        None => !observed.is_etcd_reported_down(machine),
    };
    is_left_alone.then_some(machine)
}

/// How to make the member on this Machine the only member of etcd.
fn sole_member_hint(observed: &Snapshot, machine: &Machine) -> String {
    format!(
        "on the host of {}, start etcd if it does not run; if it runs and waits for a member whose Machine no longer exists or is \
         being deleted, make the member on this host the only member: {} --survivor {}",
        host(machine),
        observed.recover_command(),
        machine.name()
    )
}

pub fn check_etcd_voters_unhealthy(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let count = count_votes(observed, now)?;
    let is_less = count.votes.unhealthy > 0 && !count.is_lost;
    let message = is_less.then(|| {
        let more = match count.votes.failure_tolerance() {
            0 => "cannot lose another member".to_owned(),
            more => format!("can lose {more} more"),
        };
        format!("{}: {more}{}", count.votes, count.source)
    });
    count.into_result(observed, message, None)
}

/// Counts the votes if no member could be queried: every Machine with a node counts as a member. The member
/// counts as unhealthy if the Machine's etcd pod or etcd member is known to be unhealthy. Without quorum, the
/// API server does not forward connections to members.
fn votes_from_machines(observed: &Snapshot, now: Timestamp) -> (Votes, Vec<String>) {
    let members = || {
        let joined = observed.machines.iter().filter(|machine| machine.has_node());
        joined.filter(|machine| Phase::of(observed, machine, now) == Phase::Settled)
    };
    let unhealthy: Vec<String> = members()
        .filter(|machine| observed.is_etcd_reported_down(machine))
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
pub(super) mod test_cases {
    use kcp_api::{
        ConditionStatus::{False, Unknown},
        metadata::Time,
    };

    use crate::{
        checks::tests::{Case, elsewhere, joins, joins_unnamed, unread},
        snapshot::{EtcdMembers, Reading, Snapshot, etcd::Alarms, workload::Component},
        testing::{
            objects::{condition, minutes_ago, set, use_external_etcd},
            snapshot::failure,
        },
    };

    fn kill_two(observed: &mut Snapshot) {
        observed.machine(2).status.host_address = Some("10.0.0.2".to_owned());
        observed.kill(2);
        observed.kill(3);
        observed.status(1).leader = None;
        observed.status(1).errors = vec!["etcdserver: no leader".to_owned()];
        observed.survey().alarms = Alarms::FromStatus;
    }

    /// Without quorum, the API server cannot look up pods, so it forwards no connections, even to the member
    /// that is running.
    fn kill_two_and_reach_none(observed: &mut Snapshot) {
        kill_two(observed);
        reach_no_member(observed);
    }

    fn reach_no_member(observed: &mut Snapshot) {
        observed.survey().alarms = Alarms::FromStatus;
        for (queried, machine) in observed.survey().queried.iter_mut().zip(["m1", "m2", "m3"]) {
            queried.response = Err(failure(
                &format!("etcd member node-{machine}"),
                "connecting: no answer within 2.2 s",
            ));
        }
    }

    /// Cluster API has deleted the Machines of all other members, and left their members.
    fn leave_one(observed: &mut Snapshot) {
        observed.machines.truncate(1);
        observed.machine(1).status.host_address = Some("10.0.0.1".to_owned());
        observed.survey().queried.truncate(1);
        observed.each_list_of(&[1], |list| list.members.truncate(2));
        observed.status(1).leader = None;
        observed.survey().alarms = Alarms::FromStatus;
    }

    fn pod_failed(observed: &mut Snapshot, number: usize) {
        let failed = condition("EtcdPodHealthy", False, "pod etcd-node: CrashLoopBackOff");
        set(&mut observed.machine(number).status.conditions, failed);
    }

    pub(crate) const CASES: &[Case] = &[
        ("etcd-no-quorum", "two_killed", kill_two),
        (
            "etcd-no-quorum",
            "two_killed_and_none_reached",
            kill_two_and_reach_none,
        ),
        ("etcd-no-quorum", "one_machine_is_left", leave_one),
        ("etcd-no-quorum", "one_machine_is_left_and_not_reached", |o| {
            leave_one(o);
            reach_no_member(o);
            o.workload = Reading::Failed(failure("Secret/c1-kubeconfig", "no answer within 1.9s"));
            o.survey().api_server_lacks_etcd = true;
        }),
        ("etcd-no-quorum", "the_api_server_lacks_etcd", |o| {
            reach_no_member(o);
            o.workload = Reading::Failed(failure("Secret/c1-kubeconfig", "no answer within 1.9s"));
            o.survey().api_server_lacks_etcd = true;
        }),
        (
            "etcd-no-quorum",
            "a_member_answers_though_the_api_server_lacks_etcd",
            |o| {
                o.kill(2);
                o.survey().api_server_lacks_etcd = true;
            },
        ),
        ("etcd-no-quorum", "two_killed_and_nothing_read", |o| {
            unread(o);
            pod_failed(o, 2);
            pod_failed(o, 3);
        }),
        ("etcd-no-quorum", "one_killed", |o| o.kill(2)),
        ("etcd-no-quorum", "one_killed_and_nothing_read", |o| {
            unread(o);
            pod_failed(o, 2);
        }),
        ("etcd-voters-unhealthy", "leaves_and_is_still_listed", |o| {
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
            o.kill(2);
        }),
        ("etcd-voters-unhealthy", "one_killed", |o| o.kill(2)),
        ("etcd-voters-unhealthy", "one_killed_and_etcd_left_out", |o| {
            o.etcd = Reading::Excluded { flag: "--no-etcd" };
            pod_failed(o, 2);
        }),
        ("etcd-voters-unhealthy", "none_answers", |o| {
            for queried in &mut o.survey().queried {
                queried.response = Err(failure("etcd", "no TLS connection: unknown CA"));
            }
            o.survey().alarms = Alarms::FromStatus;
        }),
        (
            "etcd-voters-unhealthy",
            "of_a_machine_that_has_yet_to_name_its_node",
            |o| {
                joins_unnamed(o);
                o.kill(3);
            },
        ),
        ("etcd-members-unresponsive", "killed", |o| o.kill(2)),
        ("etcd-members-unresponsive", "exited", |o| {
            o.kill(2);
            if let Err(failure) = &mut o.survey().queried[1].response {
                failure.hint = Some("etcd has exited: read the logs of pod etcd-node-m2".to_owned());
            }
        }),
        ("etcd-members-unresponsive", "the_secret_is_the_cause", |o| {
            let mut cause = failure("Secret/c1-etcd", "key tls.key is empty");
            cause.hint = Some("restore the Secret".to_owned());
            o.survey().queried[1].response = Err(cause);
        }),
        (
            "etcd-members-unresponsive",
            "the_secret_is_the_cause_of_all",
            |o| {
                let mut cause = failure(
                    "Secret/c1-etcd",
                    "contains a CA that did not issue the certificate of any member",
                );
                cause.hint = Some("restore the Secret".to_owned());
                cause.is_unusable_secret = true;
                for queried in &mut o.survey().queried {
                    queried.response = Err(cause.clone());
                }
            },
        ),
        ("etcd-members-unresponsive", "stopped", |o| {
            o.answer(2).status = Err(failure("etcd member node-m2", "Status: no answer within 2s"));
            o.answer(2).members = Err(failure("etcd member node-m2", "MemberList: no answer within 2s"));
        }),
        ("etcd-members-unresponsive", "tells_no_list", |o| {
            o.answer(2).members = Err(failure("etcd member node-m2", "MemberList: no answer within 2s"));
        }),
        ("etcd-members-unresponsive", "a_learner_tells_no_list", |o| {
            joins(o);
            o.answer(3).members = Err(failure("etcd", "rpc not supported for learner"));
            o.status(3).is_learner = true;
            o.each_list_of(&[1, 2], |list| list.members[2].is_learner = true);
        }),
        (
            "etcd-members-unresponsive",
            "killed_soon_after_it_was_made",
            |o| {
                o.machine(2).metadata.creation_timestamp = Some(Time(minutes_ago(2)));
                o.kill(2);
            },
        ),
        ("etcd-members-unresponsive", "leaves_and_is_still_listed", |o| {
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
            o.kill(2);
        }),
        ("etcd-members-unresponsive", "comes_up", |o| {
            joins(o);
            o.kill(3);
            o.each_list_of(&[1, 2], |list| {
                list.members.truncate(2);
            });
        }),
        ("etcd-members-unresponsive", "none_answers", |o| {
            for queried in &mut o.survey().queried {
                queried.response = Err(failure("etcd", "no TLS connection: unknown CA"));
            }
            o.survey().alarms = Alarms::FromStatus;
        }),
        ("etcd-members-unresponsive", "by_the_condition", |o| {
            o.etcd = Reading::Excluded { flag: "--no-etcd" };
            let unknown = condition("EtcdMemberHealthy", Unknown, "no connection");
            set(&mut o.machine(2).status.conditions, unknown);
        }),
        ("etcd-members-unresponsive", "elsewhere", |o| {
            elsewhere(o);
            o.survey().queried[1].response = Err(failure("etcd", "connection refused"));
        }),
        (
            "etcd-members-unresponsive",
            "elsewhere_while_a_machine_starts",
            |o| {
                elsewhere(o);
                joins_unnamed(o);
                o.survey().queried[1].response = Err(failure("etcd", "connection refused"));
            },
        ),
        (
            "etcd-members-unresponsive",
            "of_a_machine_that_has_yet_to_name_its_node",
            |o| {
                joins_unnamed(o);
                o.kill(3);
            },
        ),
        (
            "etcd-pods-not-ready",
            "not_ready_while_the_member_responds",
            |o| {
                let pod = o.pod(Component::Etcd, 2);
                pod.ready = false;
                pod.message = Some("readiness probe failed".to_owned());
            },
        ),
        ("etcd-pods-not-ready", "external_etcd", |o| {
            use_external_etcd(&mut o.control_plane().spec);
            o.secrets().insert("c1-apiserver-etcd-client".to_owned());
            o.etcd_members = EtcdMembers::External;
            o.survey().stacked = false;
            o.pods().retain(|pod| pod.component != Component::Etcd);
        }),
        ("etcd-pods-not-ready", "two_not_ready_without_quorum", |o| {
            kill_two_and_reach_none(o);
            for number in [2, 3] {
                o.pod(Component::Etcd, number).ready = false;
            }
        }),
    ];
}
