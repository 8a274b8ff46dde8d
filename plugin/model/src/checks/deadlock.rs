//! Checks whether the deletions of several Machines block each other.
//!
//! Since v1.13, Cluster API finishes the deletion of the Machine whose deletion began first only if the control plane and etcd
//! work without it (`reconcilePreTerminateHook`): another Machine must have healthy components, and enough healthy etcd members
//! must be left. It counts the components and members of all Machines that are being deleted as unhealthy. If too few are left,
//! it waits forever. Earlier releases finish the deletions one after the other.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _, names::annotation};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckResult, Finding, NoResult, machine_object},
        machine_grace::require_machines,
        membership::stacked_survey,
        membership::{ListedMember, Membership},
    },
    controller_release::Behaviour,
    plan::{messages, state::component_conditions, step::NoPlan},
    quorum::Votes,
    snapshot::{
        EtcdMembers, Snapshot,
        etcd::{EtcdMember, hexadecimal},
    },
};

pub const CHECKS: &[Check] = &[Check::new(
    "machine-deletions-deadlocked",
    "Machines that are being deleted block each other's deletion.",
    check_machine_deletions_deadlocked,
    Responsible::Fault(Actor::Person),
)
.blocking()];

pub fn check_machine_deletions_deadlocked(observed: &Snapshot, _: Timestamp) -> CheckResult {
    if !observed.release().has(Behaviour::HoldsUnsafeDeletions) {
        return Err(NoResult::skipped(
            "this release of Cluster API finishes each deletion",
        ));
    }
    // The deletion of a control plane waits for no Machine.
    if observed.control_plane.is_deleting() {
        return Ok(Vec::new());
    }
    require_machines(observed)?;
    let mut deleting: Vec<&Machine> = observed
        .machines
        .iter()
        .filter(|machine| machine.is_deleting())
        .collect();
    deleting.sort_by_key(|machine| (machine.deletion_timestamp(), machine.name()));
    // The member of a Machine without the hook has been removed: Cluster API waits until that Machine is gone, and then
    // continues.
    let have_hooks = deleting
        .iter()
        .all(|machine| machine.annotation(annotation::KCP_CLEANUP_HOOK).is_some());
    let names: Vec<&str> = deleting.iter().map(|machine| machine.name()).collect();
    let are_all = have_hooks && names.len() > 1 && names.len() == observed.machines.len();
    if are_all {
        let machines = names.iter().map(|name| (*name).to_owned()).collect();
        let all_held = messages::no_plan(&NoPlan::AllHeld { machines });
        let control_plane = &observed.control_plane;
        let hint = messages::all_held_hint(control_plane.namespace(), control_plane.name());
        return Ok(vec![finding(observed, &names, all_held).with_hint(hint)]);
    }
    if !observed.has_external_etcd() {
        stacked_survey(observed)?;
    }
    let ([first, _, ..], true) = (deleting.as_slice(), have_hooks) else {
        return Ok(Vec::new());
    };
    if !observed
        .machines
        .iter()
        .any(|machine| has_healthy_components(observed, machine))
    {
        return Ok(vec![without_components(observed, &names)]);
    }
    // Cluster API removes no member of an external etcd.
    if observed.has_external_etcd() {
        return Ok(Vec::new());
    }
    let EtcdMembers::Read(members) = observed.members() else {
        return Ok(Vec::new());
    };
    // A member has the name of its node, so the member of a Machine without a node is unknown.
    let Some(node) = first.node() else {
        return Ok(Vec::new());
    };
    let mut votes = Votes {
        voters: 0,
        unhealthy: 0,
        starting: 0,
    };
    // Cluster API counts no member that has not started.
    let others = || {
        let others = members.iter().filter(|member| member.name != node);
        others.filter(|member| !member.name.is_empty())
    };
    for member in others() {
        let is_deleting = deleting
            .iter()
            .any(|machine| machine.node() == Some(member.name.as_str()));
        votes.voters += 1;
        votes.unhealthy += usize::from(is_deleting || member.fault.is_some() || member.alarm.is_some());
    }
    if votes.has_quorum() {
        return Ok(Vec::new());
    }
    let message = format!(
        "the deletions of Machines {} block each other: Cluster API counts the etcd members of these \
         Machines as unhealthy, and does not remove a member if fewer than {} healthy members would be left",
        names.join(" and "),
        votes.quorum()
    );
    let finding = finding(observed, &names, message);
    let is_healthy = |member: &&EtcdMember| member.fault.is_none() && member.alarm.is_none();
    let survives = others().filter(is_healthy).any(|member| {
        !deleting
            .iter()
            .any(|machine| machine.node() == Some(member.name.as_str()))
    });
    let hint = if !survives {
        format!(
            "save a snapshot: {}; do not remove the pre-terminate hooks, because every Machine with a healthy \
             etcd member is being deleted, and etcd's data would be lost with the last of these Machines",
            snapshot_command(observed)
        )
    } else if !others().all(|member| is_healthy(&member)) {
        "first repair the etcd members that do not respond or have an alarm; to see them: kubectl kcp status"
            .to_owned()
    } else {
        deadlock_hint(observed, first, node)
    };
    Ok(vec![finding.with_hint(hint)])
}

fn finding(observed: &Snapshot, machines: &[&str], message: String) -> Finding {
    let finding = Finding::fail(observed.object_name(), message);
    let objects = machines.iter().map(|name| machine_object(name));
    objects.fold(finding, Finding::with_object)
}

fn without_components(observed: &Snapshot, names: &[&str]) -> Finding {
    let message = format!(
        "the deletions of Machines {} block each other: Cluster API finishes none of them until another Machine has healthy \
         control plane components",
        names.join(" and ")
    );
    finding(observed, names, message).with_hint(format!(
        "repair the other Machines; to see what is wrong with them: kubectl kcp status {} -n {}",
        observed.control_plane.name(),
        observed.control_plane.namespace()
    ))
}

/// Whether Cluster API counts the components of the Machine as healthy when it decides whether to finish the deletion of another
/// Machine.
fn has_healthy_components(observed: &Snapshot, machine: &Machine) -> bool {
    let stacked = !observed.has_external_etcd();
    let mut conditions = component_conditions(stacked).filter(|condition| *condition != "EtcdMemberHealthy");
    !machine.is_deleting() && conditions.all(|condition| machine.is_condition_true(condition))
}

fn snapshot_command(observed: &Snapshot) -> String {
    format!(
        "kubectl kcp etcd snapshot {} -n {} --output-file FILE",
        observed.control_plane.name(),
        observed.control_plane.namespace()
    )
}

/// Says how to end the deadlock. The user must remove the member before the hook: otherwise etcd would keep a
/// dead member, and could lose quorum with the next deletion.
fn deadlock_hint(observed: &Snapshot, first: &Machine, node: &str) -> String {
    let survey = observed.etcd.value();
    let id = survey.and_then(|survey| {
        let membership = Membership::new(survey);
        let mut listed = membership.listed();
        let of_node = listed.find(|ListedMember { member, .. }| member.name == node);
        of_node.map(|ListedMember { member, .. }| hexadecimal(member.id))
    });
    let machine = first.name();
    let hook = format!(
        "kubectl annotate machine {machine} -n {} {}-",
        observed.control_plane.namespace(),
        annotation::KCP_CLEANUP_HOOK
    );
    match id {
        Some(id) => format!(
            "save a snapshot: {}; then remove the etcd member of Machine {machine}: kubectl kcp etcd remove-member {} \
             {id} -n {}; then remove the pre-terminate hook of Machine {machine}: {hook}",
            snapshot_command(observed),
            observed.control_plane.name(),
            observed.control_plane.namespace()
        ),
        None => format!(
            "the etcd member of Machine {machine} has already been removed, so remove the pre-terminate hook of \
             the Machine: {hook}"
        ),
    }
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::{ConditionStatus::False, metadata::Time, names::annotation};

    use crate::{
        checks::tests::Case,
        snapshot::{Reading, Snapshot},
        testing::objects::{annotate, condition, minutes_ago, set, use_external_etcd},
    };

    fn delete(observed: &mut Snapshot, number: usize, minutes: i64) {
        let machine = observed.machine(number);
        machine.metadata.deletion_timestamp = Some(Time(minutes_ago(minutes)));
        annotate(&mut machine.metadata, annotation::KCP_CLEANUP_HOOK, "");
    }

    pub(crate) const CASES: &[Case] = &[
        ("machine-deletions-deadlocked", "two_of_three", |o| {
            delete(o, 1, 1);
            delete(o, 2, 2);
        }),
        ("machine-deletions-deadlocked", "two_of_three_and_one_dead", |o| {
            delete(o, 1, 1);
            delete(o, 2, 2);
            o.kill(1);
        }),
        ("machine-deletions-deadlocked", "three_of_three", |o| {
            delete(o, 1, 1);
            delete(o, 2, 2);
            delete(o, 3, 3);
        }),
        ("machine-deletions-deadlocked", "two_of_three_before_1_13", |o| {
            o.controller_version = Reading::Read(Some("v1.12.10".to_owned()));
            delete(o, 1, 1);
            delete(o, 2, 2);
        }),
        (
            "machine-deletions-deadlocked",
            "two_of_three_with_external_etcd",
            |o| {
                use_external_etcd(&mut o.control_plane().spec);
                delete(o, 1, 1);
                delete(o, 2, 2);
            },
        ),
        (
            "machine-deletions-deadlocked",
            "two_of_three_and_a_sick_one_with_external_etcd",
            |o| {
                use_external_etcd(&mut o.control_plane().spec);
                delete(o, 1, 1);
                delete(o, 2, 2);
                let crashed = condition("SchedulerPodHealthy", False, "crashed");
                set(&mut o.machine(3).status.conditions, crashed);
            },
        ),
        (
            "machine-deletions-deadlocked",
            "three_of_three_with_external_etcd",
            |o| {
                use_external_etcd(&mut o.control_plane().spec);
                delete(o, 1, 1);
                delete(o, 2, 2);
                delete(o, 3, 3);
            },
        ),
        ("machine-deletions-deadlocked", "one_of_three", |o| {
            delete(o, 1, 1);
        }),
        (
            "machine-deletions-deadlocked",
            "the_first_without_its_hook",
            |o| {
                delete(o, 1, 1);
                delete(o, 2, 2);
                let annotations = o.machine(2).metadata.annotations.as_mut();
                annotations
                    .expect("annotations")
                    .remove(annotation::KCP_CLEANUP_HOOK);
            },
        ),
    ];
}
