//! Checks for a Machine without a node whose etcd member already votes.
//!
//! kubeadm makes the member a voter before the kubelet registers the node. If the Machine becomes unwanted in between, Cluster
//! API deletes it without its member (kubernetes-sigs/cluster-api#11772).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kcp_api::{Machine, Object as _, names::annotation};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckResult, Finding, NoResult, machine_object},
        machine_grace::{machines_without_node, require_machines},
        machines::machine_of,
        membership::Membership,
        membership::stacked_survey,
        remediation::startup_deadline,
    },
    duration::format_duration,
    problem::diagnose_command,
    quorum::Votes,
    snapshot::{EtcdMembers, Snapshot, etcd::EtcdMember},
};

pub const CHECKS: &[Check] = &[Check::new(
    "joining-member-needed",
    "etcd would lose its quorum if Cluster API deleted a Machine that has no node yet, because the Machine's member would stay.",
    check_joining_member_needed,
    Responsible::StepBy(who_acts),
)
.usually_within_join_limit()];

/// How long before the deadline of a `MachineHealthCheck` a person must act.
const NOTICE: Duration = Duration::from_secs(5 * 60);

fn check_joining_member_needed(observed: &Snapshot, _: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let Some(machine) = needed_joining_machine(observed)? else {
        return Ok(Vec::new());
    };
    let (name, namespace) = (machine.name(), machine.namespace());
    let deadline = startup_deadline(observed, machine);
    let limit = match &deadline {
        Some(due) => format!(
            "MachineHealthCheck {} marks the Machine as unhealthy at {} (nodeStartupTimeout {}), and Cluster API then deletes it",
            due.check.name,
            due.at,
            format_duration(due.timeout)
        ),
        None => "no MachineHealthCheck limits the time until its node appears".to_owned(),
    };
    let message = format!(
        "its etcd member votes, but the Machine has no node yet: if the Machine is deleted, Cluster API does not remove the \
         member, and etcd loses its quorum; {limit}"
    );
    let keep = deadline.map_or_else(String::new, |_| {
        format!(
            "to keep the Machine: kubectl annotate machine {name} -n {namespace} {}=; ",
            annotation::SKIP_REMEDIATION
        )
    });
    let hint = format!(
        "{keep}until the Machine has a node, change neither the version nor the configuration; to see why it has no node: {}",
        diagnose_command(name, namespace)
    );
    let finding = Finding::fail(machine_object(name), message)
        .with_since(machine.creation_timestamp())
        .with_hint(hint);
    Ok(vec![finding])
}

/// The Machine that has no node, but whose member etcd needs for its quorum. Cluster API would leave the member behind. Fails
/// if it is unknown which members vote.
pub fn needed_joining_machine(observed: &Snapshot) -> Result<Option<&Machine>, NoResult> {
    let Some(machine) = joining_machine(observed) else {
        return Ok(None);
    };
    let survey = stacked_survey(observed)?;
    let EtcdMembers::Read(members) = survey.members(&observed.machines) else {
        return Err(Membership::new(survey).unknown_result());
    };
    Ok(is_joining_voter_needed(&members).then_some(machine))
}

/// The Machine without a node that may already run an etcd member. A Machine that waits for bootstrap data runs none, because
/// kubeadm cannot run without this data.
fn joining_machine(observed: &Snapshot) -> Option<&Machine> {
    machines_without_node(observed)
        .find(|machine| !machine.is_deleting() && !machine.spec.awaits_bootstrap_data)
}

/// Whether etcd has a quorum with the voters that may belong to joining Machines, but not without them.
fn is_joining_voter_needed(members: &[EtcdMember]) -> bool {
    let voters = || members.iter().filter(|member| !member.is_learner);
    let is_healthy = |member: &&EtcdMember| member.fault.is_none() && member.alarm.is_none();
    let joining = voters().filter(|member| member.is_joining).count();
    let others = voters()
        .filter(|member| !member.is_joining)
        .filter(is_healthy)
        .count();
    let with_healthy = |healthy: usize| Votes {
        voters: voters().count(),
        unhealthy: voters().count().saturating_sub(healthy),
        starting: 0,
    };
    !with_healthy(others).has_quorum() && with_healthy(others + joining).has_quorum()
}

/// Returns kubeadm, which waits for the kubelet, or a person if a `MachineHealthCheck` is about to act.
fn who_acts(observed: &Snapshot, finding: &Finding, now: Timestamp) -> Actor {
    let due = machine_of(observed, finding).and_then(|machine| startup_deadline(observed, machine));
    let notice = SignedDuration::try_from(NOTICE).unwrap_or_default();
    match due {
        Some(due) if due.at.duration_since(now) < notice => Actor::Person,
        _ => Actor::Kubeadm,
    }
}

#[cfg(test)]
pub(crate) mod test_cases {
    use std::time::Duration;

    use kcp_api::metadata::Time;

    use crate::{
        checks::tests::{Case, elsewhere},
        snapshot::Snapshot,
        testing::objects::minutes_ago,
    };

    /// The Machines `m1` and `m2`; `m2` was created this many minutes ago, and its member votes.
    pub(crate) fn second_joins(observed: &mut Snapshot, minutes: i64) {
        observed.machines.truncate(2);
        observed.survey().queried.truncate(1);
        observed.each_list_of(&[1], |list| list.members.truncate(2));
        let machine = observed.machine(2);
        machine.metadata.creation_timestamp = Some(Time(minutes_ago(minutes)));
        machine.status.node_name = None;
        machine.status.conditions.clear();
    }

    fn starts_within(observed: &mut Snapshot, minutes: u64) {
        observed.health_checks()[0].node_startup_timeout = Some(Duration::from_secs(60 * minutes));
    }

    pub(crate) const CASES: &[Case] = &[
        ("joining-member-needed", "the_second_member", |o| {
            second_joins(o, 2);
        }),
        ("joining-member-needed", "with_a_health_check", |o| {
            second_joins(o, 2);
            starts_within(o, 10);
        }),
        ("joining-member-needed", "shortly_before_the_deadline", |o| {
            second_joins(o, 6);
            starts_within(o, 10);
        }),
        ("joining-member-needed", "as_a_learner", |o| {
            second_joins(o, 2);
            o.each_list_of(&[1], |list| list.members[1].is_learner = true);
        }),
        ("joining-member-needed", "before_it_is_a_member", |o| {
            second_joins(o, 2);
            o.each_list_of(&[1], |list| list.members.truncate(1));
        }),
        ("joining-member-needed", "without_bootstrap_data", |o| {
            second_joins(o, 2);
            o.machine(2).spec.awaits_bootstrap_data = true;
        }),
        ("joining-member-needed", "the_third_of_three", |o| {
            o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(2)));
            o.machine(3).status.node_name = None;
            o.survey().queried.truncate(2);
        }),
        ("joining-member-needed", "the_third_while_another_is_dead", |o| {
            o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(2)));
            o.machine(3).status.node_name = None;
            o.survey().queried.truncate(2);
            o.kill(2);
        }),
        ("joining-member-needed", "of_an_external_etcd", |o| {
            second_joins(o, 2);
            elsewhere(o);
        }),
    ];
}

#[cfg(test)]
mod tests {
    use super::test_cases::second_joins;
    use crate::{change::quorum_guard::fatal_loss, testing::snapshot::observed};

    #[test]
    fn a_needed_member_keeps_its_machine_even_if_it_responds() {
        let why = "the Machine has no node yet, so Cluster API would leave its etcd member behind, and etcd would lose its quorum";
        for responding in [1, 2] {
            let mut observed = observed();
            second_joins(&mut observed, 2);
            observed.survey().queried =
                crate::testing::snapshot::observed().survey().queried[..responding].to_vec();
            observed.each_list_of(&[1, 2][..responding], |list| list.members.truncate(2));
            let loss = fatal_loss(&observed, "m2").map(|loss| loss.why);
            assert_eq!(loss, Some(vec![why.to_owned()]), "{responding} respond");
        }
    }
}
