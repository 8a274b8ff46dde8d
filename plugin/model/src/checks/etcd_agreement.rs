//! Checks whether the etcd members agree on the cluster, the member list, the leader and the raft log.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kcp_api::Object as _;
use kcp_etcd::{Members, Status};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckOutcome, CheckResult, Finding, require},
        machine_grace::{Phase, are_machines_changing, machine_of_node},
        machines::replacement_hint,
        membership::ETCD,
        membership::{Membership, member_finding, phase_of_queried, queried_objects},
    },
    snapshot::{
        Snapshot,
        etcd::{QueriedMember, hexadecimal},
    },
    staleness::{OBSERVATION_LIMIT, age},
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "etcd-clusters-differ",
        "Members belong to different etcd clusters, which do not share their data.",
        check_etcd_clusters_differ,
        Responsible::Fault(Actor::Person),
    )
    .preflight(),
    Check::new(
        "etcd-member-lists-differ",
        "Members of etcd report different lists of members.",
        check_etcd_member_lists_differ,
        Responsible::Fault(Actor::Person),
    )
    .preflight(),
    Check::new(
        "etcd-no-leader",
        "A member of etcd has no leader, or follows a different leader from the other members.",
        check_etcd_no_leader,
        Responsible::Fault(Actor::Person),
    )
    .preflight(),
    Check::new(
        "etcd-raft-terms-differ",
        "A member of etcd has missed the last election of a leader.",
        check_etcd_raft_terms_differ,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "etcd-raft-lag",
        "A member of etcd is far behind the others, or has many log entries that it has not applied yet.",
        check_etcd_raft_lag,
        Responsible::Fault(Actor::Person),
    ),
];

/// The maximum number of raft log entries by which a member may lag behind another member, and of entries in its own log that
/// it still has to apply. Beyond this limit, a follower needs a full snapshot (etcd's
/// `DefaultSnapshotCatchUpEntries`), and a member that applies too slowly rejects requests (etcd's
/// `maxGapBetweenApplyAndCommitIndex`).
pub const RAFT_LAG_LIMIT: u64 = 5_000;

/// Whether a learner has applied at least nine tenths of the log (`readyPercentThreshold` of etcd), and is no more than
/// [`RAFT_LAG_LIMIT`] entries behind. This is stricter than etcd: etcd counts what the learner has received instead of what it has
/// applied, and has no second limit. `newest` is the highest raft index of all members.
pub const fn is_in_sync(learner: &Status, newest: u64) -> bool {
    learner.raft_applied_index.saturating_mul(10) >= newest.saturating_mul(9)
        && newest.saturating_sub(learner.raft_applied_index) <= RAFT_LAG_LIMIT
}

/// The outcome if members differ. A difference is normal while Machines are being created or deleted, because
/// members receive membership changes one after another.
fn outcome_by_change(are_machines_changing: bool) -> CheckOutcome {
    if are_machines_changing {
        CheckOutcome::Info
    } else {
        CheckOutcome::Fail
    }
}

/// Whether the controller has just received a change of the spec. It may then have added a member whose Machine was not there yet when
/// the Machines were listed.
fn is_change_new(observed: &Snapshot, now: Timestamp) -> bool {
    let since = observed.unprocessed_since();
    since.is_some_and(|since| age(since, now) < OBSERVATION_LIMIT)
}

pub fn check_etcd_clusters_differ(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    let (name, namespace) = (observed.control_plane.name(), observed.control_plane.namespace());
    let membership = Membership::new(survey);
    if membership.require_one_cluster().is_err() {
        let reported = survey
            .responses()
            .filter_map(|(queried, response)| Some((queried, hexadecimal(response.cluster_id()?))));
        let finding = conflicting_reports(
            reported,
            "members belong to different etcd clusters",
            CheckOutcome::Fail,
            &format!(
                "save a snapshot of one member of each cluster: kubectl kcp etcd snapshot {name} -n {namespace} --member NAME \
                 --output-file FILE; then find out which cluster has the data"
            ),
        );
        return Ok(vec![finding]);
    }
    let Some(usual) = membership.cluster_id else {
        return Ok(Vec::new());
    };
    let others = survey.responses().filter_map(|(queried, response)| {
        let own = response.cluster_id().filter(|own| *own != usual)?;
        let message = format!(
            "is a member of etcd cluster {}, but most members belong to {}",
            hexadecimal(own),
            hexadecimal(usual)
        );
        Some(member_finding(queried, CheckOutcome::Fail, &message).with_hint(format!(
            "writes through this member's API server do not reach the other members, so save the member's \
             data: kubectl kcp etcd snapshot {name} -n {namespace} --member {} --output-file FILE; then replace the \
             member's Machine",
            queried.name
        )))
    });
    Ok(others.collect())
}

pub fn check_etcd_member_lists_differ(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    let membership = Membership::new(survey);
    membership.require_one_cluster()?;
    let are_machines_changing = are_machines_changing(observed, now) || is_change_new(observed, now);
    // Members of another cluster are ignored.
    let lists = survey.responses().filter_map(|(queried, response)| {
        let list = response.members.as_ref().ok()?;
        (Some(list.cluster_id) == membership.cluster_id).then_some((queried, list))
    });
    if membership.is_disputed() {
        let reported = lists.map(|(queried, list)| (queried, join_names(member_names(list).iter())));
        let finding = conflicting_reports(
            reported,
            "members report different member lists",
            outcome_by_change(are_machines_changing),
            &format!(
                "before you remove a member or a Machine, find out which list is correct: it is the list of the leader that most \
                 voters follow; to see which leader each member follows: kubectl kcp etcd members {} -n {} -o wide",
                observed.control_plane.name(),
                observed.control_plane.namespace()
            ),
        );
        return Ok(vec![finding]);
    }
    let differing = lists.filter(|(_, list)| !membership.is_agreed_list(list));
    let findings = differing.map(|(queried, list)| {
        let usual: BTreeSet<String> = membership
            .listed()
            .map(|listed| name_or_id(&listed.member.name, listed.member.id))
            .collect();
        let own = member_names(list);
        let (lacks, adds) = (
            join_names(usual.difference(&own)),
            join_names(own.difference(&usual)),
        );
        let message = match (lacks.is_empty(), adds.is_empty()) {
            (false, true) => {
                format!(
                    "reports a member list that differs from the cluster's: the reported list lacks \
                    {lacks}"
                )
            }
            (true, false) => {
                format!(
                    "reports a member list that differs from the cluster's: the reported list also has \
                    {adds}"
                )
            }
            _ => {
                format!(
                    "reports a member list that differs from the cluster's: the reported list has {adds} \
                    instead of {lacks}"
                )
            }
        };
        member_finding(queried, outcome_by_change(are_machines_changing), &message)
    });
    Ok(findings.collect())
}

/// Returns a finding that lists what the members report, if they contradict each other.
fn conflicting_reports<'a>(
    reported: impl Iterator<Item = (&'a QueriedMember, String)>,
    what: &str,
    outcome: CheckOutcome,
    hint: &str,
) -> Finding {
    let reported: Vec<(&QueriedMember, String)> = reported.collect();
    let each: Vec<String> = reported
        .iter()
        .map(|(queried, own)| format!("{} reports {own}", queried.name))
        .collect();
    let message = format!(
        "{what}; it is unknown which report is correct: {}",
        each.join("; ")
    );
    let objects = reported.iter().flat_map(|(queried, _)| queried_objects(queried));
    Finding {
        objects: objects.collect(),
        ..Finding::new(outcome, "", message)
    }
    .with_hint(hint)
}

fn name_or_id(name: &str, id: u64) -> String {
    if name.is_empty() {
        hexadecimal(id)
    } else {
        name.to_owned()
    }
}

fn member_names(list: &Members) -> BTreeSet<String> {
    let members = list.members.iter();
    members
        .map(|member| name_or_id(&member.name, member.id))
        .collect()
}

fn join_names<'n>(names: impl Iterator<Item = &'n String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

pub fn check_etcd_no_leader(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    let membership = Membership::new(survey);
    membership.require_one_cluster()?;
    let are_machines_changing = are_machines_changing(observed, now);
    // The leader of the latest raft term counts. Members in an earlier term have missed the election.
    let latest = membership
        .statuses()
        .filter_map(|(_, status)| Some((status.raft_term, status.leader?)))
        .max();
    let name = |id: u64| {
        let listed = membership.listed().find(|listed| listed.member.id == id);
        listed.map_or_else(
            || hexadecimal(id),
            |listed| name_or_id(&listed.member.name, listed.member.id),
        )
    };
    let findings = membership.statuses().filter_map(|(queried, status)| {
        let message = match (status.leader, latest) {
            (None, None) => "has no leader; no other member has a leader either".to_owned(),
            (None, Some((_, leader))) => {
                format!(
                    "has no leader and is disconnected from the other members, which follow {}",
                    name(leader)
                )
            }
            (Some(own), Some((_, leader))) if own != leader => {
                format!(
                    "follows leader {}, but other members follow {}",
                    name(own),
                    name(leader)
                )
            }
            (Some(_), _) => return None,
        };
        let is_joining =
            status.is_learner || phase_of_queried(survey, queried, observed, now) == Phase::Starting;
        // No leader at all is a failure even while Machines change, because etcd then rejects writes.
        let outcome = outcome_by_change(latest.is_some() && (are_machines_changing || is_joining));
        let finding = member_finding(queried, outcome, &message);
        let machine = machine_of_node(observed, &queried.name);
        Some(
            match machine.filter(|_| latest.is_some() && outcome == CheckOutcome::Fail) {
                Some(machine) => finding.with_hint(format!(
                    "repair the network between this member and the others; or {}",
                    replacement_hint(observed, machine)
                )),
                None if latest.is_none() => finding.with_hint(format!(
                    "start the stopped members on their hosts; if most members of etcd can never run again, continue from a \
                     member that is left: {}",
                    observed.recover_command()
                )),
                None => finding,
            },
        )
    });
    Ok(findings.collect())
}

pub fn check_etcd_raft_terms_differ(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    let membership = Membership::new(survey);
    membership.require_one_cluster()?;
    let are_machines_changing = are_machines_changing(observed, now);
    let led = membership
        .statuses()
        .filter(|(_, status)| status.leader.is_some());
    let Some(latest) = led.map(|(_, status)| status.raft_term).max() else {
        return Ok(Vec::new());
    };
    let behind = membership
        .statuses()
        .filter(|(_, status)| status.raft_term < latest)
        .map(|(queried, status)| {
            let message = format!(
                "is in raft term {}, but other members are in term {latest}: this member missed the last \
                 election",
                status.raft_term
            );
            member_finding(
                queried,
                outcome_by_change(are_machines_changing || status.is_learner),
                &message,
            )
        });
    Ok(behind.collect())
}

pub fn check_etcd_raft_lag(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    let membership = Membership::new(survey);
    membership.require_one_cluster()?;
    let furthest = membership
        .statuses()
        .map(|(_, status)| status.raft_index)
        .max()
        .unwrap_or_default();
    let findings = membership.statuses().filter_map(|(queried, status)| {
        let behind_others = furthest.saturating_sub(status.raft_index);
        let behind_itself = status.raft_index.saturating_sub(status.raft_applied_index);
        let message = if behind_others > RAFT_LAG_LIMIT {
            format!(
                "is at raft index {}, {behind_others} entries behind the most advanced member",
                status.raft_index
            )
        } else if behind_itself > RAFT_LAG_LIMIT {
            format!("has {behind_itself} raft log entries that it has not applied yet")
        } else {
            return None;
        };
        let is_starting = phase_of_queried(survey, queried, observed, now) == Phase::Starting;
        Some(member_finding(
            queried,
            outcome_by_change(status.is_learner || is_starting),
            &message,
        ))
    });
    Ok(findings.collect())
}

#[cfg(test)]
pub(super) mod test_cases {
    use crate::{
        checks::tests::{Case, another_cluster, elsewhere, joins, joins_unnamed, starts},
        snapshot::etcd::Alarms,
        testing::{objects::minutes_ago, snapshot::member},
    };

    pub(crate) const CASES: &[Case] = &[
        ("etcd-member-lists-differ", "lacks_one", |o| {
            o.list(3).members.truncate(2);
        }),
        ("etcd-member-lists-differ", "has_one_besides", |o| {
            o.list(3).members.push(member(0xab, ""));
        }),
        ("etcd-member-lists-differ", "has_another", |o| {
            o.list(3).members[1] = member(0xab, "node-m9");
        }),
        ("etcd-member-lists-differ", "while_a_machine_starts", |o| {
            starts(o);
            o.list(1).members.push(member(3, ""));
        }),
        (
            "etcd-member-lists-differ",
            "right_after_a_change_of_the_spec",
            |o| {
                o.control_plane().metadata.generation = Some(8);
                o.unprocessed_seen = Some(minutes_ago(1));
                o.list(1).members.push(member(0xab, ""));
            },
        ),
        ("etcd-clusters-differ", "one_of_another", another_cluster),
        ("etcd-member-lists-differ", "as_many_tell_one_as_another", |o| {
            o.kill(2);
            o.list(3).members.truncate(2);
        }),
        ("etcd-member-lists-differ", "the_one_who_is_led_is_right", |o| {
            for number in [2, 3] {
                o.status(number).leader = None;
                o.list(number).members.push(member(0xab, "node-m9"));
            }
        }),
        ("etcd-clusters-differ", "as_many_of_one_as_of_another", |o| {
            another_cluster(o);
            o.kill(2);
        }),
        ("etcd-clusters-differ", "only_the_one_of_another_is_led", |o| {
            another_cluster(o);
            for number in [1, 2] {
                o.status(number).leader = None;
            }
        }),
        ("etcd-no-leader", "cut_off", |o| {
            o.status(3).leader = None;
            o.status(3).errors = vec!["etcdserver: no leader".to_owned()];
        }),
        ("etcd-no-leader", "nobody_leads", |o| {
            for number in 1..=3 {
                o.status(number).leader = None;
            }
            o.survey().alarms = Alarms::FromStatus;
        }),
        ("etcd-no-leader", "another", |o| {
            o.status(3).leader = Some(2);
            o.status(3).raft_term = 3;
        }),
        ("etcd-no-leader", "a_learner_knows_none", |o| {
            joins(o);
            o.each_list(|list| list.members[2].is_learner = true);
            o.status(3).is_learner = true;
            o.status(3).leader = None;
        }),
        ("etcd-raft-terms-differ", "behind", |o| o.status(3).raft_term = 3),
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
