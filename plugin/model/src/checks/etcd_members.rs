//! etcd's members: those that should be there are, and answer.

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    checks::{
        Check,
        components::describe,
        etcd_quorum::{ETCD, stacked},
        finding::{Finding, Judgement, machine, need},
        machine_grace::{Phase, is_turning, machine_of_node, machines_read, without_node},
        machines::replacement_hint,
        membership::{Listed, Membership, asked_objects, member_object},
    },
    snapshot::{
        Snapshot,
        etcd::{Alarms, hexadecimal},
    },
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "etcd-members-match",
        "every Machine has an etcd member, and every member a Machine",
        match_machines,
    )
    .preflight(),
    Check::new("etcd-alarms", "no member has raised an alarm", alarms).preflight(),
    Check::new("etcd-learners", "every learner is promoted in time", learners).preflight(),
];

pub fn match_machines(observed: &Snapshot, now: Timestamp) -> Judgement {
    let survey = stacked(observed)?;
    machines_read(observed)?;
    let membership = Membership::of(survey);
    if !membership.is_known() {
        return Err(membership.unknown());
    }
    let is_member = |node: &str| membership.listed().any(|listed| listed.member.name == node);
    let without_member = observed.machines.iter().filter_map(|of| {
        let node = of.node()?;
        if is_member(node) || Phase::of(of, now) == Phase::Leaving {
            return None;
        }
        let message = format!("node {node} has no etcd member");
        let object = machine(of.name());
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
            // It may belong to a Machine that has not named its node yet, or to one that was just deleted.
            if is_turning(observed, now) {
                return Finding::info(object, "has no Machine at the moment");
            }
            unowned(observed, object, "has no Machine", || {
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
    observed: &Snapshot,
    object: String,
    message: &str,
    removal_hint: impl FnOnce() -> String,
) -> Finding {
    let Some(first) = without_node(observed).next() else {
        return Finding::fail(object, message).hint(removal_hint());
    };
    let names: Vec<&str> = without_node(observed).map(kcp_api::Object::name).collect();
    Finding::fail(
        object,
        format!(
            "{message}; it may belong to a Machine without a node: {}",
            names.join(", ")
        ),
    )
    .hint(format!(
        "do not remove it before that Machine has a node; {}",
        describe(first)
    ))
}

pub fn alarms(observed: &Snapshot, _: Timestamp) -> Judgement {
    let survey = need(&observed.etcd, ETCD)?;
    let membership = Membership::of(survey);
    let of_members = survey.raised().into_iter().map(|(id, kind)| {
        let listed = membership.listed().find(|listed| listed.member.id == id);
        let objects = match listed {
            Some(Listed {
                asked: Some(asked), ..
            }) => asked_objects(asked),
            Some(Listed { member, .. }) => vec![member_object(member)],
            // With id 0 etcd reports that it cannot tell which member's data is wrong.
            None if id == 0 => vec![observed.object()],
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
    let who = if is_of_all { "the etcd cluster " } else { "" };
    let (means, hint) = match alarm {
        "NOSPACE" => (
            ": its database has reached the quota, and etcd rejects writes",
            Some("compact; then run etcdctl defrag on that member; then etcdctl alarm disarm"),
        ),
        "CORRUPT" => (
            if is_of_all {
                ": the data of its members differ, and etcd cannot tell which is wrong"
            } else {
                ": its data differ from the leader's"
            },
            // Followers are compared with the leader, whose own data may be what is wrong.
            Some(
                "first save a snapshot and compare the hashes of all members: etcdctl endpoint hashkv --cluster; then \
                 replace the Machine of the one that differs from most",
            ),
        ),
        _ => ("", None),
    };
    Finding {
        objects,
        ..Finding::fail("", format!("{who}has alarm {alarm}{means}"))
    }
    .hint_if(hint)
}

pub fn learners(observed: &Snapshot, now: Timestamp) -> Judgement {
    let survey = need(&observed.etcd, ETCD)?;
    let findings = Membership::of(survey)
        .listed()
        .filter(|Listed { member, .. }| member.is_learner || member.name.is_empty())
        .map(|Listed { member, .. }| {
            let object = member_object(member);
            let message = if member.is_learner {
                "etcd member is a learner: it does not vote"
            } else {
                "was added and never started"
            };
            let of = machine_of_node(observed, &member.name);
            let is_starting = of.map_or_else(
                || is_turning(observed, now),
                |machine| Phase::of(machine, now) != Phase::Settled,
            );
            let about = |finding: Finding| match of {
                Some(of) => finding.and(machine(of.name())),
                None => finding,
            };
            if is_starting {
                return about(Finding::info(object, format!("{message} yet")));
            }
            match of {
                Some(of) => about(Finding::fail(object, message)).hint(replacement_hint(observed, of)),
                None => unowned(observed, object, message, || {
                    format!(
                        "no other member can join before you remove it: etcdctl member remove {}",
                        hexadecimal(member.id)
                    )
                }),
            }
        });
    Ok(findings.collect())
}

#[cfg(test)]
pub(super) mod cases {
    use kcp_api::metadata::Time;
    use kcp_etcd::{Alarm, AlarmKind};

    use crate::{
        checks::tests::{Case, another_cluster, joins, starts},
        snapshot::{Snapshot, etcd::Alarms},
        testing::{
            objects::minutes_ago,
            snapshot::{failure, member},
        },
    };

    /// `m3` is settled, and does not name its node: the member there may be its own.
    fn names_no_node(observed: &mut Snapshot) {
        observed.machine(3).status.node_name = None;
        observed.survey().asked[2].machine = None;
    }

    pub(crate) const CASES: &[Case] = &[
        (
            "etcd-members-match",
            "founded_its_own_cluster_and_was_removed",
            |o| {
                o.health_checks().clear();
                another_cluster(o);
                o.each_list_of(&[1, 2], |list| list.members.truncate(2));
            },
        ),
        (
            "etcd-members-match",
            "member_that_may_be_of_a_machine_without_node",
            |o| {
                names_no_node(o);
            },
        ),
        ("etcd-members-match", "machine_without_member", |o| {
            o.each_list_of(&[1, 2], |list| list.members.truncate(2));
            o.kill(3);
        }),
        (
            "etcd-members-match",
            "machine_without_member_and_nobody_covers_it",
            |o| {
                o.health_checks().clear();
                o.each_list_of(&[1, 2], |list| list.members.truncate(2));
                o.kill(3);
            },
        ),
        ("etcd-members-match", "member_without_machine", |o| {
            o.each_list(|list| list.members.push(member(0xab, "stray")));
        }),
        ("etcd-members-match", "member_of_a_machine_that_starts", |o| {
            starts(o);
            o.each_list_of(&[1, 2], |list| list.members.push(member(3, "node-m3")));
        }),
        ("etcd-members-match", "machine_that_leaves", |o| {
            o.machine(3).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
            o.each_list_of(&[1, 2], |list| list.members.truncate(2));
            o.kill(3);
        }),
        ("etcd-alarms", "no_space", |o| {
            for number in 1..=3 {
                o.status(number).errors = vec!["memberID:2 alarm:NOSPACE ".to_owned()];
            }
            o.survey().alarms = Alarms::Listed(vec![Alarm {
                member_id: 2,
                kind: AlarmKind::NoSpace,
            }]);
        }),
        ("etcd-alarms", "corrupt_by_its_own_word", |o| {
            o.survey().alarms = Alarms::FromStatus;
            o.status(2).errors = vec!["memberID:2 alarm:CORRUPT".to_owned()];
        }),
        ("etcd-alarms", "corrupt_and_nobody_is_blamed", |o| {
            o.survey().alarms = Alarms::Listed(vec![Alarm {
                member_id: 0,
                kind: AlarmKind::Corrupt,
            }]);
        }),
        ("etcd-alarms", "one_without_space_by_the_word_of_all", |o| {
            o.survey().alarms = Alarms::FromStatus;
            for number in 1..=3 {
                o.status(number).errors = vec!["memberID:2 alarm:NOSPACE ".to_owned()];
            }
        }),
        ("etcd-alarms", "not_told", |o| {
            o.survey().alarms =
                Alarms::Failed(failure("etcd member node-m1", "AlarmList: no answer within 2s"));
        }),
        ("etcd-learners", "left_behind", |o| {
            o.each_list(|list| list.members[2].is_learner = true);
            o.status(3).is_learner = true;
        }),
        ("etcd-learners", "joins", |o| {
            joins(o);
            o.each_list(|list| list.members[2].is_learner = true);
            o.status(3).is_learner = true;
        }),
        ("etcd-learners", "never_started", |o| {
            o.each_list(|list| list.members.push(member(0xab, "")));
        }),
        ("etcd-learners", "may_be_of_a_machine_without_node", |o| {
            names_no_node(o);
            o.each_list(|list| list.members[2].is_learner = true);
            o.status(3).is_learner = true;
        }),
    ];
}
