//! etcd's members: those that should be there are, and answer.

use jiff::Timestamp;

use crate::checks::{
    components::describe,
    judgement::{Judgement, Unjudged, machine, need, or_else},
    machines::replacement_hint,
    membership::{Listed, Membership, asked_objects, member_object, of_member, phase_of_asked},
    turnover::{Phase, is_turning, machine_of_node, machines, machines_read, without_node},
};
use crate::{
    checks::components,
    inspection::{Finding, Outcome},
    snapshot::{
        Failure, Observed,
        etcd::{Alarms, Answer, EtcdSurvey, hexadecimal},
    },
};

/// What etcd was asked, in words.
pub const ETCD: &str = "etcd";

/// The survey, where every member of it is the control plane's own.
pub fn stacked(observed: &Observed) -> Result<&EtcdSurvey, Unjudged> {
    let survey = need(&observed.etcd, ETCD)?;
    if survey.stacked {
        Ok(survey)
    } else {
        Err(Unjudged::skipped("etcd runs elsewhere"))
    }
}

pub fn answer(observed: &Observed, now: Timestamp) -> Judgement {
    let survey = match need(&observed.etcd, ETCD) {
        Ok(survey) => survey,
        Err(unjudged) => {
            let by_conditions = components::by_conditions(observed, "EtcdMemberHealthy", "etcd member", now);
            return or_else(unjudged, by_conditions);
        }
    };
    let membership = Membership::of(survey);
    let findings = survey.asked.iter().filter_map(|asked| {
        let failure = silence(&asked.answer)?;
        // A check of its own tells of permissions.
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
            Outcome::Info
        } else if survey.statuses().next().is_some() {
            Outcome::Fail
        } else {
            // None has answered: it may be the way to them that is broken.
            Outcome::Unknown
        };
        let finding = of_member(
            asked,
            outcome,
            &format!("etcd member does not answer: {}", failure.message),
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

/// What a member did not tell; none where it told all that it can.
fn silence(answer: &Result<Answer, Failure>) -> Option<&Failure> {
    let Answer { status, members, .. } = match answer {
        Ok(answer) => answer,
        Err(failure) => return Some(failure),
    };
    match status {
        Err(failure) => Some(failure),
        // A learner tells no list.
        Ok(status) if status.is_learner => None,
        Ok(_) => members.as_ref().err(),
    }
}

/// Commands for the workload cluster say so: `-n` alone would send them to the management cluster.
fn pod_hint(node: &str) -> String {
    format!("in the workload cluster: kubectl describe pod etcd-{node} -n kube-system")
}

pub fn match_machines(observed: &Observed, now: Timestamp) -> Judgement {
    let survey = stacked(observed)?;
    machines_read(observed)?;
    let membership = Membership::of(survey);
    if !membership.is_known() {
        return Err(membership.unknown());
    }
    let is_member = |node: &str| membership.listed().any(|listed| listed.member.name == node);
    let without_member = machines(observed).iter().filter_map(|of| {
        let node = of.machine.node.as_deref()?;
        if is_member(node) || Phase::of(of, now) == Phase::Leaving {
            return None;
        }
        let message = format!("node {node} has no etcd member");
        let object = machine(&of.machine.name);
        if Phase::of(of, now) == Phase::Starting {
            return Some(Finding::info(object, format!("{message} yet")));
        }
        let finding = Finding::fail(object, message);
        // What another cluster on it holds would go with the Machine: the check of that says what to do.
        let is_of_another = survey.answers().any(|(asked, answer)| {
            asked.name == node
                && answer.cluster_id().is_some()
                && answer.cluster_id() != membership.cluster_id
        });
        Some(if is_of_another {
            finding
        } else {
            finding.hint(replacement_hint(observed, of))
        })
    });
    let without_machine = membership
        .listed()
        .filter(|Listed { member, .. }| machine_of_node(observed, &member.name).is_none())
        .map(|Listed { member, .. }| {
            let object = member_object(member);
            // It may be the member of a Machine whose node has yet to be told, or that has just gone.
            if is_turning(observed, now) {
                return Finding::info(object, "belongs to no Machine yet, or no longer");
            }
            unowned(observed, object, "belongs to no Machine", || {
                format!(
                    "the controller removes it when no Machine is coming up; by hand, on a healthy member: etcdctl \
                     member remove {}",
                    hexadecimal(member.id)
                )
            })
        });
    Ok(without_member.chain(without_machine).collect())
}

/// A finding about a member that no Machine is known to have, with a hint to remove it: unless it may be that of a Machine
/// which names no node, and a healthy voter.
fn unowned(
    observed: &Observed,
    object: String,
    message: &str,
    removal_hint: impl FnOnce() -> String,
) -> Finding {
    let Some(first) = without_node(observed).next() else {
        return Finding::fail(object, message).hint(removal_hint());
    };
    let names: Vec<&str> = without_node(observed)
        .map(|of| of.machine.name.as_str())
        .collect();
    Finding::fail(
        object,
        format!(
            "{message}; it may be that of a Machine without node: {}",
            names.join(", ")
        ),
    )
    .hint(format!(
        "do not remove it before that Machine names its node; {}",
        describe(first)
    ))
}

pub fn alarms(observed: &Observed, _: Timestamp) -> Judgement {
    let survey = need(&observed.etcd, ETCD)?;
    let membership = Membership::of(survey);
    let of_members = survey.raised().into_iter().map(|(id, kind)| {
        let listed = membership.listed().find(|listed| listed.member.id == id);
        let objects = match listed {
            Some(Listed {
                asked: Some(asked), ..
            }) => asked_objects(asked),
            Some(Listed { member, .. }) => vec![member_object(member)],
            // etcd's way to say that it cannot tell whose data is wrong.
            None if id == 0 => {
                let name = &observed.management.control_plane.control_plane.name;
                vec![format!("KubeadmControlPlane/{name}")]
            }
            None => vec![format!("EtcdMember/{}", hexadecimal(id))],
        };
        of_alarm(objects, &kind, id == 0)
    });
    let mut findings: Vec<Finding> = of_members.collect();
    if let Alarms::Failed(failure) = &survey.alarms
        && failure.forbidden.is_none()
    {
        findings.push(Finding::unread(failure));
    }
    Ok(findings)
}

fn of_alarm(objects: Vec<String>, alarm: &str, is_of_all: bool) -> Finding {
    let who = if is_of_all { "etcd as a whole " } else { "" };
    let (means, hint) = match alarm {
        "NOSPACE" => (
            ": its database has reached the quota, writes are refused",
            Some("compact, then on that member: etcdctl defrag, and last: etcdctl alarm disarm"),
        ),
        "CORRUPT" => (
            if is_of_all {
                ": its members' data differ, and it cannot tell whose is wrong"
            } else {
                ": its data and the leader's differ"
            },
            // Followers are compared with the leader, whose own data may be what is wrong.
            Some(
                "first save a snapshot and compare the hashes of all members: etcdctl endpoint hashkv --cluster; then \
                 replace the Machine of the one that differs from most",
            ),
        ),
        _ => ("", None),
    };
    let finding = Finding {
        objects,
        ..Finding::fail("", format!("{who}raises alarm {alarm}{means}"))
    };
    match hint {
        Some(hint) => finding.hint(hint),
        None => finding,
    }
}

pub fn learners(observed: &Observed, now: Timestamp) -> Judgement {
    let survey = need(&observed.etcd, ETCD)?;
    let findings = Membership::of(survey)
        .listed()
        .filter(|Listed { member, .. }| member.is_learner || member.name.is_empty())
        .map(|Listed { member, .. }| {
            let object = member_object(member);
            let message = if member.is_learner {
                "etcd member is a learner: it does not vote"
            } else {
                "has been added and has never started"
            };
            let of = machine_of_node(observed, &member.name);
            let is_starting = of.map_or_else(
                || is_turning(observed, now),
                |machine| Phase::of(machine, now) != Phase::Settled,
            );
            let about = |finding: Finding| match of {
                Some(of) => finding.and(machine(&of.machine.name)),
                None => finding,
            };
            if is_starting {
                return about(Finding::info(object, format!("{message} yet")));
            }
            match of {
                Some(of) => about(Finding::fail(object, message)).hint(replacement_hint(observed, of)),
                None => unowned(observed, object, message, || {
                    format!(
                        "no other member can join before it is gone: etcdctl member remove {}",
                        hexadecimal(member.id)
                    )
                }),
            }
        });
    Ok(findings.collect())
}
