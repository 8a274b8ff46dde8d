//! Checks whether the etcd members match the Machines, have no alarms, and are promoted in time.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};
use kcp_etcd::{Member, Status};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        components::diagnose_hint,
        controller::controller_suffix,
        etcd_agreement::is_in_sync,
        etcd_quorum::has_lost_quorum,
        finding::{CheckResult, Finding, NoResult, WORKLOAD, machine_object, require},
        left_behind::{unlisted_hint, unlisted_machine, unlisted_message},
        machine_grace::{
            Phase, are_machines_changing, machine_of_node, machines_without_node, require_machines,
        },
        machines::replacement_hint,
        membership::{ETCD, stacked_survey},
        membership::{ListedMember, Membership, member_object, queried_objects},
    },
    problem::{CONTROL_PLANE_CONTROLLER, CONTROLLER_HINT, alarm_hint, alarm_message},
    snapshot::{
        EtcdMembers, Snapshot, Workload,
        etcd::{Alarms, CORRUPT, EtcdSurvey, hexadecimal},
        management::describe_owner,
        workload::{Component, Node},
    },
    staleness::{OBSERVATION_LIMIT, age, format_age},
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "etcd-members-mismatch",
        "A Machine has no etcd member, or an etcd member has no Machine.",
        check_etcd_members_mismatch,
        Responsible::Fault(Actor::Person),
    )
    .effect_of(&[&["nodes-left-behind", "etcd-clusters-differ"]])
    .preflight(),
    Check::new(
        "etcd-alarms",
        "etcd has raised an alarm: NOSPACE or CORRUPT.",
        check_etcd_alarms,
        Responsible::Fault(Actor::Person),
    )
    .preflight(),
    Check::new(
        "etcd-learners-stuck",
        "A member of etcd does not vote, because it is a learner or has not started.",
        check_etcd_learners_stuck,
        Responsible::Step(Actor::Kubeadm),
    )
    .usually_within_join_limit()
    .effect_of(&[&["etcd-members-mismatch"]])
    .preflight(),
    Check::new(
        "machine-conditions-outdated",
        "The controller does not update the conditions of a Machine whose node has joined.",
        check_machine_conditions_outdated,
        Responsible::Fault(Actor::ControlPlaneController),
    )
    .effect_of(&[&[
        "controller-stopped",
        "workload-disconnected",
        "etcd-no-quorum",
        "etcd-no-leader",
    ]])
    .blocking(),
];

pub fn check_etcd_members_mismatch(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let survey = stacked_survey(observed)?;
    require_machines(observed)?;
    let membership = Membership::new(survey);
    if !membership.is_known() {
        return Err(membership.unknown_result());
    }
    let is_member = |node: &str| membership.listed().any(|listed| listed.member.name == node);
    let without_member = observed.machines.iter().filter_map(|machine| {
        let node = machine.node()?;
        if is_member(node) || Phase::of(observed, machine, now) == Phase::Deleting {
            return None;
        }
        let message = format!("node {node} has no etcd member");
        let object = machine_object(machine.name());
        if Phase::of(observed, machine, now) == Phase::Starting {
            return Some(Finding::info(object, format!("{message} yet")));
        }
        let finding = Finding::fail(object, message);
        // The node runs a member of another etcd cluster. A replacement of the Machine would delete the data of that
        // cluster. The check `etcd-clusters-differ` has the hint.
        let is_of_another = survey.responses().any(|(queried, response)| {
            queried.name == node
                && response.cluster_id().is_some()
                && response.cluster_id() != membership.cluster_id
        });
        Some(if is_of_another {
            finding
        } else {
            finding.with_hint(replacement_hint(observed, machine))
        })
    });
    let is_unmatched = |member: &Member| machine_of_node(observed, &member.name).is_none();
    // The check `etcd-learners-stuck` reports a learner whose Machine is known.
    let learns_on_machine =
        |member: &Member| member.is_learner && machine_of_learner(observed, &member.name).is_some();
    let (learners, unmatched): (Vec<ListedMember<'_>>, Vec<ListedMember<'_>>) = membership
        .listed()
        .filter(|ListedMember { member, .. }| is_unmatched(member))
        .partition(|ListedMember { member, .. }| learns_on_machine(member));
    let joining = machines_without_node(observed)
        .filter(|machine| Phase::of(observed, machine, now) == Phase::Starting);
    let may_be_joining = unmatched.len() + learners.len() <= joining.count();
    let without_machine = unmatched.into_iter().map(|ListedMember { member, .. }| {
        let object = member_object(member);
        if may_be_joining {
            return Finding::info(object, "has no Machine yet: a Machine is joining");
        }
        member_without_machine(observed, member, "has no known Machine", || {
            format!(
                "the controller removes the member when no Machine is joining; to remove it yourself: {}",
                removal_command(observed, member.id)
            )
        })
    });
    Ok(without_member.chain(without_machine).collect())
}

/// The command that removes the member with this id.
pub fn removal_command(observed: &Snapshot, id: u64) -> String {
    let control_plane = &observed.control_plane;
    format!(
        "kubectl kcp etcd remove-member {} {} -n {}",
        control_plane.name(),
        hexadecimal(id),
        control_plane.namespace()
    )
}

/// Returns a finding about a member without a Machine. The finding has no hint to remove the member while any Machine
/// has no node, because the member may be a healthy voter on that Machine.
fn member_without_machine(
    observed: &Snapshot,
    member: &Member,
    message: &str,
    removal_hint: impl FnOnce() -> String,
) -> Finding {
    let object = member_object(member);
    let runs_member = |other: &&Machine| other.node() == Some(&member.name);
    if let Some(other) = observed.machines_of_other_owners.iter().find(runs_member) {
        let message = format!(
            "runs on Machine {}, which {} controls",
            other.name(),
            describe_owner(other)
        );
        return Finding::fail(object, message)
            .with_hint("do not remove the member: see check machines-not-owned");
    }
    let of_node = |machine: &&Machine| observed.node_of(machine) == Some(&member.name);
    if let Some(machine) = observed
        .machines
        .iter()
        .chain(&observed.machines_of_other_owners)
        .find(of_node)
    {
        let message = format!(
            "{message}; its node has the providerID of Machine {}, but that Machine does not reference the \
             node",
            machine.name()
        );
        return Finding::fail(object, message)
            .with_object(machine_object(machine.name()))
            .with_hint(format!("do not remove the member; {}", diagnose_hint(machine)));
    }
    if let Some(machine) = unlisted_machine(observed, &member.name) {
        return Finding::fail(object, unlisted_message(machine)).with_hint(format!(
            "do not remove the member while the Machine exists; {}; if it does not exist, the controller removes the \
             member when no Machine is joining",
            unlisted_hint(observed, machine)
        ));
    }
    let nodes = observed.workload.value().map(|workload| &workload.nodes);
    if nodes.is_none_or(|nodes| nodes.value().is_none()) {
        return Finding::fail(object, message)
            .with_hint("do not remove the member: it is unknown whether its node has a Machine, because the nodes were not read");
    }
    let Some(first) = machines_without_node(observed).next() else {
        return Finding::fail(object, message).with_hint(removal_hint());
    };
    let names: Vec<&str> = machines_without_node(observed)
        .map(kcp_api::Object::name)
        .collect();
    Finding::fail(
        object,
        format!(
            "{message}; it may belong to a Machine without a node: {}",
            names.join(", ")
        ),
    )
    .with_hint(format!(
        "do not remove the member while a Machine has no node, because the member may belong to that Machine; {}",
        diagnose_hint(first)
    ))
}

pub fn check_etcd_alarms(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    let membership = Membership::new(survey);
    let of_members = survey.alarms_by_member().into_iter().map(|(id, kind)| {
        let listed = membership.listed().find(|listed| listed.member.id == id);
        let (name, objects) = match listed {
            Some(ListedMember {
                queried: Some(queried),
                ..
            }) => (Some(queried.name.clone()), queried_objects(queried)),
            Some(ListedMember { member, .. }) => (Some(member.name.clone()), vec![member_object(member)]),
            // etcd uses id 0 if it does not know which member's data is wrong.
            None if id == 0 => (None, vec![observed.object_name()]),
            None => {
                let id = hexadecimal(id);
                let object = format!("EtcdMember/{id}");
                (Some(id), vec![object])
            }
        };
        let control_plane = &observed.control_plane;
        Finding {
            objects,
            ..Finding::fail("", alarm_message(name.as_deref(), &kind))
        }
        .with_optional_hint(alarm_hint(&kind, control_plane.namespace(), control_plane.name()))
    });
    let mut findings: Vec<Finding> = of_members.collect();
    if let Alarms::Failed(failure) = &survey.alarms
        && failure.forbidden.is_none()
    {
        findings.push(Finding::from_failure(failure));
    }
    Ok(findings)
}

/// The Machine of a learner. Until the Machine references its node, this is the Machine without a node that has the learner's
/// name: kubeadm names a member like its node, and most providers name a node like its Machine.
fn machine_of_learner<'o>(observed: &'o Snapshot, name: &str) -> Option<&'o Machine> {
    let is_named = |machine: &&Machine| !machine.has_node() && machine.name() == name;
    machine_of_node(observed, name).or_else(|| observed.machines.iter().find(is_named))
}

pub fn check_etcd_learners_stuck(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    let membership = Membership::new(survey);
    let findings = membership
        .listed()
        .filter(|ListedMember { member, .. }| member.is_learner || member.name.is_empty())
        .map(|listed @ ListedMember { member, .. }| {
            let object = member_object(member);
            let message = if member.is_learner {
                "etcd member is a learner: it does not vote"
            } else {
                "was added but has not started"
            };
            let machine = machine_of_learner(observed, &member.name);
            let is_starting = machine.map_or_else(
                || are_machines_changing(observed, now),
                |machine| Phase::of(observed, machine, now) != Phase::Settled,
            );
            let with_machine = |finding: Finding| match machine {
                Some(machine) => finding.with_object(machine_object(machine.name())),
                None => finding,
            };
            if is_starting {
                return with_machine(Finding::info(object, format!("{message} yet")));
            }
            match machine {
                Some(machine) => {
                    let replace = replacement_hint(observed, machine);
                    with_machine(Finding::fail(object, message)).with_hint(
                        match promotion_command(observed, survey, listed, now) {
                            Some(promote) => format!("promote the member: {promote}; or {replace}"),
                            None => replace,
                        },
                    )
                }
                None => member_without_machine(observed, member, message, || {
                    format!(
                        "remove this member so that other members can join: {}",
                        removal_command(observed, member.id)
                    )
                }),
            }
        });
    Ok(findings.collect())
}

/// The command that promotes a learner of a Machine. `None` if the learner must not become a voter.
fn promotion_command(
    observed: &Snapshot,
    survey: &EtcdSurvey,
    learner: ListedMember<'_>,
    now: Timestamp,
) -> Option<String> {
    let control_plane = &observed.control_plane;
    (may_vote(survey, learner) && !has_lost_quorum(observed, now)).then(|| {
        format!(
            "kubectl kcp etcd promote {} {} -n {}",
            control_plane.name(),
            hexadecimal(learner.member.id),
            control_plane.namespace()
        )
    })
}

/// Whether a learner may get a vote, as far as the members of etcd show: it follows the leader of the latest term and has caught
/// up, and no member has raised CORRUPT.
pub fn may_vote(survey: &EtcdSurvey, learner: ListedMember<'_>) -> bool {
    let membership = Membership::new(survey);
    let statuses = || membership.statuses().map(|(_, status)| status);
    let elected = statuses().filter_map(|status| Some((status.raft_term, status.leader?)));
    let leader = elected.max().map(|(_, leader)| leader);
    let newest = statuses()
        .map(|status| status.raft_index)
        .max()
        .unwrap_or_default();
    let is_ready = |status: &Status| {
        status.member_id == learner.member.id
            && status.is_learner
            && status.leader.is_some()
            && status.leader == leader
            && is_in_sync(status, newest)
    };
    let are_alarms_read = !matches!(survey.alarms, Alarms::Failed(_));
    let alarms = survey.alarms_by_member();
    survey.stacked
        && are_alarms_read
        && !alarms.iter().any(|(_, alarm)| alarm == CORRUPT)
        && learner
            .queried
            .is_some_and(|queried| queried.status().is_ok_and(is_ready))
}

/// Checks whether the controller has noticed each etcd member that responds. A controller that has stopped no
/// longer updates the conditions of its Machines.
pub fn check_machine_conditions_outdated(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    if observed.control_plane.is_paused() || observed.is_cluster_paused() {
        return Err(NoResult::skipped("the control plane is paused"));
    }
    let members = match observed.members() {
        EtcdMembers::External => return Err(NoResult::skipped("etcd is external")),
        EtcdMembers::Unread => return Err(NoResult::unknown("the etcd members were not read")),
        EtcdMembers::Read(members) => members,
    };
    if has_lost_quorum(observed, now) {
        return Err(NoResult::skipped(
            "etcd has lost its quorum, so the controller cannot connect to members",
        ));
    }
    let workload = require(&observed.workload, WORKLOAD)?;
    let nodes = require(&workload.nodes, "nodes")?;
    let responds = |node: &Node| {
        let mut members = members.iter().filter(|member| member.name == node.name);
        members.any(|member| member.fault.is_none() && member.alarm.is_none() && !member.is_learner)
    };
    let findings = nodes.iter().filter_map(|node| {
        let joined = node.created.filter(|created| age(*created, now) > OBSERVATION_LIMIT)?;
        let machine = machine_of_node(observed, &node.name)?;
        let is_noticed = machine.is_condition_true("EtcdMemberHealthy") || machine.is_condition_false("EtcdMemberHealthy");
        if is_noticed || machine.is_deleting() || !responds(node) {
            return None;
        }
        let since = outdated_since(workload, machine, joined);
        if since.is_some_and(|since| age(since, now) <= OBSERVATION_LIMIT) {
            return None;
        }
        let lasts = since.map_or_else(String::new, |since| format!(" for {}", format_age(since, now)));
        let message = format!(
            "the etcd member responds, but {CONTROL_PLANE_CONTROLLER} has not updated the condition EtcdMemberHealthy{lasts}{}",
            controller_suffix(observed, now)
        );
        // After an error, the controller waits for up to ten minutes, even if the cause is gone.
        let hint = format!(
            "let the controller try again: {}; if this has no effect, {CONTROLLER_HINT}",
            observed.reconcile_command()
        );
        Some(
            Finding::fail(machine_object(machine.name()), message)
                .with_since(since)
                .with_hint(hint),
        )
    });
    Ok(findings.collect())
}

/// The earliest time at which the condition `EtcdMemberHealthy` of a Machine can have become outdated. While a
/// member did not run, the controller possibly had no connection, so the condition was not outdated. `None` if it is unknown when
/// the running members became ready.
fn outdated_since(workload: &Workload, machine: &Machine, joined: Timestamp) -> Option<Timestamp> {
    let pods = workload.static_pods.value()?.iter();
    let ready_since: Option<Vec<Timestamp>> = pods
        .filter(|pod| pod.component == Component::Etcd && pod.ready)
        .map(|pod| pod.ready_since)
        .collect();
    let condition = machine.condition("EtcdMemberHealthy");
    let changed = condition.and_then(|condition| condition.last_transition_time);
    let latest = ready_since?.into_iter().max()?;
    Some(latest.max(joined).max(changed.unwrap_or(joined)))
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::{ConditionStatus::Unknown, metadata::Time};
    use kcp_etcd::{Alarm, AlarmKind};

    use crate::{
        checks::tests::{Case, another_cluster, joins, starts},
        snapshot::{Reading, Snapshot, etcd::Alarms, workload::Component},
        testing::{
            objects::{condition, minutes_ago, set},
            snapshot::{failure, member},
        },
    };

    /// `m3` is an old Machine without a `nodeRef`: the member on that node may belong to it.
    fn names_no_node(observed: &mut Snapshot) {
        observed.machine(3).status.node_name = None;
        observed.survey().queried[2].machine = None;
    }

    /// The controller does not know the member of this Machine for so many minutes.
    fn is_unknown(observed: &mut Snapshot, number: usize, minutes: i64) {
        let mut unknown = condition("EtcdMemberHealthy", Unknown, "no connection");
        unknown.last_transition_time = Some(minutes_ago(minutes));
        set(&mut observed.machine(number).status.conditions, unknown);
    }

    pub(crate) const CASES: &[Case] = &[
        (
            "etcd-members-mismatch",
            "founded_its_own_cluster_and_was_removed",
            |o| {
                o.health_checks().clear();
                another_cluster(o);
                o.each_list_of(&[1, 2], |list| list.members.truncate(2));
            },
        ),
        (
            "etcd-members-mismatch",
            "member_that_may_be_of_a_machine_without_node",
            |o| {
                names_no_node(o);
            },
        ),
        (
            "etcd-members-mismatch",
            "member_of_a_machine_without_node_by_provider_id",
            |o| {
                names_no_node(o);
                o.nodes()[2].provider_id = Some("p://m3".to_owned());
            },
        ),
        ("etcd-members-mismatch", "machine_without_member", |o| {
            o.each_list_of(&[1, 2], |list| list.members.truncate(2));
            o.kill(3);
        }),
        (
            "etcd-members-mismatch",
            "machine_without_member_and_nobody_covers_it",
            |o| {
                o.health_checks().clear();
                o.each_list_of(&[1, 2], |list| list.members.truncate(2));
                o.kill(3);
            },
        ),
        ("etcd-members-mismatch", "member_without_machine", |o| {
            o.each_list(|list| list.members.push(member(0xab, "stray")));
        }),
        (
            "etcd-members-mismatch",
            "member_of_a_machine_that_lost_its_label",
            |o| {
                o.nodes()[2].machine = Some("m3".to_owned());
                o.machines.remove(2);
            },
        ),
        ("etcd-members-mismatch", "member_of_a_machine_that_starts", |o| {
            starts(o);
            o.each_list_of(&[1, 2], |list| list.members.push(member(3, "node-m3")));
        }),
        ("etcd-members-mismatch", "machine_that_leaves", |o| {
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
        ("etcd-learners-stuck", "left_behind", |o| {
            o.each_list(|list| list.members[2].is_learner = true);
            o.status(3).is_learner = true;
        }),
        ("etcd-learners-stuck", "left_behind_and_lags", |o| {
            o.each_list(|list| list.members[2].is_learner = true);
            o.status(3).is_learner = true;
            o.status(3).raft_applied_index -= 200_000;
        }),
        ("etcd-learners-stuck", "left_behind_beside_corrupt_data", |o| {
            o.each_list(|list| list.members[2].is_learner = true);
            o.status(3).is_learner = true;
            o.survey().alarms = Alarms::Listed(vec![Alarm {
                member_id: 1,
                kind: AlarmKind::Corrupt,
            }]);
        }),
        (
            "etcd-learners-stuck",
            "left_behind_and_follows_another_leader",
            |o| {
                o.each_list(|list| list.members[2].is_learner = true);
                let status = o.status(3);
                (status.is_learner, status.leader, status.raft_term) = (true, Some(2), 3);
            },
        ),
        ("etcd-learners-stuck", "joins", |o| {
            joins(o);
            o.each_list(|list| list.members[2].is_learner = true);
            o.status(3).is_learner = true;
        }),
        ("etcd-learners-stuck", "of_a_machine_without_node_for_long", |o| {
            names_no_node(o);
            o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(11)));
            o.each_list(|list| {
                list.members[2].name = "m3".to_owned();
                list.members[2].is_learner = true;
            });
        }),
        ("etcd-learners-stuck", "never_started", |o| {
            o.each_list(|list| list.members.push(member(0xab, "")));
        }),
        ("etcd-learners-stuck", "may_be_of_a_machine_without_node", |o| {
            names_no_node(o);
            o.each_list(|list| list.members[2].is_learner = true);
            o.status(3).is_learner = true;
        }),
        ("machine-conditions-outdated", "the_controller_has_stopped", |o| {
            o.nodes()[1].created = Some(minutes_ago(4));
            is_unknown(o, 2, 60);
        }),
        ("machine-conditions-outdated", "the_node_has_just_joined", |o| {
            o.nodes()[1].created = Some(minutes_ago(3));
            is_unknown(o, 2, 60);
        }),
        ("machine-conditions-outdated", "unknown_for_long", |o| {
            is_unknown(o, 2, 5);
        }),
        ("machine-conditions-outdated", "unknown_for_a_moment", |o| {
            is_unknown(o, 2, 1);
        }),
        ("machine-conditions-outdated", "the_member_has_restarted", |o| {
            is_unknown(o, 2, 50);
            o.pod(Component::Etcd, 2).ready_since = Some(minutes_ago(1));
        }),
        ("machine-conditions-outdated", "quorum_is_back", |o| {
            is_unknown(o, 2, 50);
            o.pod(Component::Etcd, 3).ready_since = Some(minutes_ago(1));
        }),
        ("machine-conditions-outdated", "the_pods_were_not_read", |o| {
            is_unknown(o, 2, 50);
            o.workload().static_pods = Reading::Failed(failure("Pod", "no answer"));
        }),
        ("machine-conditions-outdated", "quorum_is_lost", |o| {
            is_unknown(o, 1, 50);
            o.kill(2);
            o.kill(3);
        }),
        (
            "machine-conditions-outdated",
            "the_member_does_not_respond",
            |o| {
                o.nodes()[1].created = Some(minutes_ago(4));
                is_unknown(o, 2, 60);
                o.kill(2);
            },
        ),
    ];
}
