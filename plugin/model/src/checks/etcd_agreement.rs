//! Whether etcd's members agree: on being one cluster, on who is in it, on who leads and on what has been decided.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kcp_etcd::Members;

use crate::{
    checks::{
        Check,
        etcd_quorum::ETCD,
        finding::{CheckOutcome, Finding, Judgement, need},
        machine_grace::{Phase, is_turning},
        membership::{Membership, asked_objects, of_member, phase_of_asked},
    },
    snapshot::{
        Snapshot,
        etcd::{Asked, hexadecimal},
    },
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "etcd-one-cluster",
        "all members belong to one etcd cluster",
        cluster_id,
    )
    .preflight(),
    Check::new(
        "etcd-member-lists",
        "every member reports the same list of members",
        member_lists,
    )
    .preflight(),
    Check::new("etcd-leader", "members agree on a leader", leader).preflight(),
    Check::new("etcd-raft-term", "members are in the same raft term", raft_term),
    Check::new("etcd-raft-lag", "no member is far behind the others", raft_lag),
];

/// Entries of raft's log that a member may be behind another, or behind itself in applying them. A follower that is
/// further behind needs a whole snapshot (etcd's `DefaultSnapshotCatchUpEntries`), and a member that is further behind
/// in applying refuses requests (etcd's `maxGapBetweenApplyAndCommitIndex`).
const RAFT_LAG_LIMIT: u64 = 5_000;

/// While Machines start or are deleted, members learn of it one after another.
fn outcome(is_turning: bool) -> CheckOutcome {
    if is_turning {
        CheckOutcome::Info
    } else {
        CheckOutcome::Fail
    }
}

pub fn cluster_id(observed: &Snapshot, _: Timestamp) -> Judgement {
    let survey = need(&observed.etcd, ETCD)?;
    let membership = Membership::of(survey);
    if membership.one_cluster().is_err() {
        let reported = survey
            .answers()
            .filter_map(|(asked, answer)| Some((asked, hexadecimal(answer.cluster_id()?))));
        let finding = disputed(
            reported,
            "members belong to different etcd clusters",
            CheckOutcome::Fail,
            "first find out which cluster has the data; save a snapshot of one member of each: etcdctl snapshot save",
        );
        return Ok(vec![finding]);
    }
    let Some(usual) = membership.cluster_id else {
        return Ok(Vec::new());
    };
    let others = survey.answers().filter_map(|(asked, answer)| {
        let own = answer.cluster_id().filter(|own| *own != usual)?;
        let message = format!(
            "is a member of etcd cluster {}; most members belong to {}",
            hexadecimal(own),
            hexadecimal(usual)
        );
        Some(of_member(asked, CheckOutcome::Fail, &message).hint(
            "what is written through its API server is lost to the others: save what is needed of it with etcdctl \
             snapshot save, then replace its Machine",
        ))
    });
    Ok(others.collect())
}

pub fn member_lists(observed: &Snapshot, now: Timestamp) -> Judgement {
    let survey = need(&observed.etcd, ETCD)?;
    let membership = Membership::of(survey);
    membership.one_cluster()?;
    let is_turning = is_turning(observed, now);
    // What another cluster lists is no matter of this one.
    let lists = survey.answers().filter_map(|(asked, answer)| {
        let list = answer.members.as_ref().ok()?;
        (Some(list.cluster_id) == membership.cluster_id).then_some((asked, list))
    });
    if membership.is_disputed() {
        let reported = lists.map(|(asked, list)| (asked, joined(names(list).iter())));
        let finding = disputed(
            reported,
            "members report different lists of members",
            outcome(is_turning),
            "remove no member and no Machine before you know which list is right: that of the leader that most voters \
             follow (etcdctl endpoint status on each member)",
        );
        return Ok(vec![finding]);
    }
    let differing = lists.filter(|(_, list)| !membership.is_usual(list));
    let findings = differing.map(|(asked, list)| {
        let usual: BTreeSet<String> = membership
            .listed()
            .map(|listed| shown(&listed.member.name, listed.member.id))
            .collect();
        let own = names(list);
        let (lacks, adds) = (joined(usual.difference(&own)), joined(own.difference(&usual)));
        let message = match (lacks.is_empty(), adds.is_empty()) {
            (false, true) => {
                format!("reports a list of members that differs from the cluster's: it lacks {lacks}")
            }
            (true, false) => {
                format!("reports a list of members that differs from the cluster's: it also has {adds}")
            }
            _ => {
                format!("reports a list of members that differs from the cluster's: it has {adds} instead of {lacks}")
            }
        };
        of_member(asked, outcome(is_turning), &message)
    });
    Ok(findings.collect())
}

/// Contradicting reports of members, where it is unclear which is right.
fn disputed<'a>(
    reported: impl Iterator<Item = (&'a Asked, String)>,
    what: &str,
    outcome: CheckOutcome,
    hint: &str,
) -> Finding {
    let reported: Vec<(&Asked, String)> = reported.collect();
    let each: Vec<String> = reported
        .iter()
        .map(|(asked, own)| format!("{} reports {own}", asked.name))
        .collect();
    let message = format!("{what}, and it is unclear which is right: {}", each.join("; "));
    let objects = reported.iter().flat_map(|(asked, _)| asked_objects(asked));
    Finding {
        objects: objects.collect(),
        ..Finding::of(outcome, "", message)
    }
    .hint(hint)
}

fn shown(name: &str, id: u64) -> String {
    if name.is_empty() {
        hexadecimal(id)
    } else {
        name.to_owned()
    }
}

fn names(list: &Members) -> BTreeSet<String> {
    let members = list.members.iter();
    members.map(|member| shown(&member.name, member.id)).collect()
}

fn joined<'n>(names: impl Iterator<Item = &'n String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

pub fn leader(observed: &Snapshot, now: Timestamp) -> Judgement {
    let survey = need(&observed.etcd, ETCD)?;
    let membership = Membership::of(survey);
    membership.one_cluster()?;
    let is_turning = is_turning(observed, now);
    // The latest election counts: a member that reports an earlier one has missed it.
    let latest = membership
        .statuses()
        .filter_map(|(_, status)| Some((status.raft_term, status.leader?)))
        .max();
    let name = |id: u64| {
        let listed = membership.listed().find(|listed| listed.member.id == id);
        listed.map_or_else(
            || hexadecimal(id),
            |listed| shown(&listed.member.name, listed.member.id),
        )
    };
    let findings = membership.statuses().filter_map(|(asked, status)| {
        let message = match (status.leader, latest) {
            (None, None) => "has no leader, like all members".to_owned(),
            (None, Some((_, leader))) => {
                format!(
                    "has no leader while others follow {}: it is cut off from them",
                    name(leader)
                )
            }
            (Some(own), Some((_, leader))) if own != leader => {
                format!("follows {}, others follow {}", name(own), name(leader))
            }
            (Some(_), _) => return None,
        };
        let is_joining = status.is_learner || phase_of_asked(survey, asked, observed, now) == Phase::Starting;
        // Without a leader etcd decides nothing, whether Machines change or not.
        Some(of_member(
            asked,
            outcome(latest.is_some() && (is_turning || is_joining)),
            &message,
        ))
    });
    Ok(findings.collect())
}

pub fn raft_term(observed: &Snapshot, now: Timestamp) -> Judgement {
    let survey = need(&observed.etcd, ETCD)?;
    let membership = Membership::of(survey);
    membership.one_cluster()?;
    let is_turning = is_turning(observed, now);
    let led = membership
        .statuses()
        .filter(|(_, status)| status.leader.is_some());
    let Some(latest) = led.map(|(_, status)| status.raft_term).max() else {
        return Ok(Vec::new());
    };
    let behind = membership
        .statuses()
        .filter(|(_, status)| status.raft_term < latest)
        .map(|(asked, status)| {
            let message = format!(
                "is in raft term {}, others in {latest}: it missed the last election",
                status.raft_term
            );
            of_member(asked, outcome(is_turning || status.is_learner), &message)
        });
    Ok(behind.collect())
}

pub fn raft_lag(observed: &Snapshot, now: Timestamp) -> Judgement {
    let survey = need(&observed.etcd, ETCD)?;
    let membership = Membership::of(survey);
    membership.one_cluster()?;
    let furthest = membership
        .statuses()
        .map(|(_, status)| status.raft_index)
        .max()
        .unwrap_or_default();
    let findings = membership.statuses().filter_map(|(asked, status)| {
        let behind_others = furthest.saturating_sub(status.raft_index);
        let behind_itself = status.raft_index.saturating_sub(status.raft_applied_index);
        let message = if behind_others > RAFT_LAG_LIMIT {
            format!(
                "is {behind_others} entries behind the furthest member, at raft index {}",
                status.raft_index
            )
        } else if behind_itself > RAFT_LAG_LIMIT {
            format!("has {behind_itself} committed entries to apply")
        } else {
            return None;
        };
        let is_starting = phase_of_asked(survey, asked, observed, now) == Phase::Starting;
        Some(of_member(
            asked,
            outcome(status.is_learner || is_starting),
            &message,
        ))
    });
    Ok(findings.collect())
}

#[cfg(test)]
pub(super) mod cases {
    use crate::{
        checks::tests::{Case, another_cluster, elsewhere, joins, joins_unnamed, starts},
        snapshot::etcd::Alarms,
        testing::snapshot::member,
    };

    pub(crate) const CASES: &[Case] = &[
        ("etcd-member-lists", "lacks_one", |o| {
            o.list(3).members.truncate(2);
        }),
        ("etcd-member-lists", "has_one_besides", |o| {
            o.list(3).members.push(member(0xab, ""));
        }),
        ("etcd-member-lists", "has_another", |o| {
            o.list(3).members[1] = member(0xab, "node-m9");
        }),
        ("etcd-member-lists", "while_a_machine_starts", |o| {
            starts(o);
            o.list(1).members.push(member(3, ""));
        }),
        ("etcd-one-cluster", "one_of_another", another_cluster),
        ("etcd-member-lists", "as_many_tell_one_as_another", |o| {
            o.kill(2);
            o.list(3).members.truncate(2);
        }),
        ("etcd-member-lists", "the_one_who_is_led_is_right", |o| {
            for number in [2, 3] {
                o.status(number).leader = None;
                o.list(number).members.push(member(0xab, "node-m9"));
            }
        }),
        ("etcd-one-cluster", "as_many_of_one_as_of_another", |o| {
            another_cluster(o);
            o.kill(2);
        }),
        ("etcd-one-cluster", "only_the_one_of_another_is_led", |o| {
            another_cluster(o);
            for number in [1, 2] {
                o.status(number).leader = None;
            }
        }),
        ("etcd-leader", "cut_off", |o| {
            o.status(3).leader = None;
            o.status(3).errors = vec!["etcdserver: no leader".to_owned()];
        }),
        ("etcd-leader", "nobody_leads", |o| {
            for number in 1..=3 {
                o.status(number).leader = None;
            }
            o.survey().alarms = Alarms::FromStatus;
        }),
        ("etcd-leader", "another", |o| {
            o.status(3).leader = Some(2);
            o.status(3).raft_term = 3;
        }),
        ("etcd-leader", "a_learner_knows_none", |o| {
            joins(o);
            o.each_list(|list| list.members[2].is_learner = true);
            o.status(3).is_learner = true;
            o.status(3).leader = None;
        }),
        ("etcd-raft-term", "behind", |o| o.status(3).raft_term = 3),
        ("etcd-raft-lag", "behind_others", |o| {
            o.status(3).raft_index -= 5_001;
        }),
        ("etcd-raft-lag", "elsewhere_while_a_machine_starts", |o| {
            elsewhere(o);
            joins_unnamed(o);
            o.status(3).raft_index -= 5_001;
        }),
        ("etcd-raft-lag", "within_the_limit", |o| {
            o.status(3).raft_index -= 5_000;
        }),
        ("etcd-raft-lag", "behind_itself", |o| {
            o.status(3).raft_applied_index -= 5_001;
        }),
    ];
}
