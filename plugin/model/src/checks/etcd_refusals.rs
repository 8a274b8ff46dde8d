//! Checks whether a Machine waits for a change of etcd's members that etcd refuses. etcd refuses changes while a voting
//! member is dead. Cluster API starts such changes, because it does not know that the member is dead.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _, names::annotation};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckResult, Finding, machine_object},
        machine_grace::{machines_without_node, require_machines},
        membership::stacked_survey,
    },
    plan::state::{PlanState, Replica},
    quorum::{DeadMember, EtcdRefusal},
    snapshot::Snapshot,
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "etcd-refuses-removal",
        "A Machine cannot be deleted, because etcd refuses to remove its member while another member does not respond.",
        check_etcd_refuses_removal,
        Responsible::Fault(Actor::Person),
    )
    .blocking(),
    Check::new(
        "etcd-refuses-join",
        "A Machine cannot join, because etcd admits no member while another member does not respond.",
        check_etcd_refuses_join,
        Responsible::Fault(Actor::Person),
    )
    .blocking(),
];

/// A Machine whose deletion has begun, and cannot end because etcd refuses to remove its member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedDeletion {
    pub machine: String,
    pub refusal: EtcdRefusal,
}

/// The deletion that etcd refuses. Cluster API removes the member of the Machine whose deletion began first, and no other.
pub fn refused_deletion(observed: &Snapshot) -> Option<RefusedDeletion> {
    let deleting = observed.machines.iter().filter(|machine| machine.is_deleting());
    let first = deleting.min_by_key(|machine| (machine.deletion_timestamp(), machine.name().to_owned()))?;
    // Without the hook, its member has been removed.
    first.annotation(annotation::KCP_CLEANUP_HOOK)?;
    let state = PlanState::new(observed, &[]);
    let refusal = state.refused_removal(state.replica(first.name())?)?;
    Some(RefusedDeletion {
        machine: first.name().to_owned(),
        refusal,
    })
}

pub fn check_etcd_refuses_removal(observed: &Snapshot, _: Timestamp) -> CheckResult {
    stacked_survey(observed)?;
    require_machines(observed)?;
    let finding = refused_deletion(observed).map(|RefusedDeletion { machine, refusal }| {
        let since = observed.machines.iter().find(|other| other.name() == machine);
        let message = format!("its deletion cannot finish: {refusal}");
        about(&machine, &refusal, message)
            .with_since(since.and_then(Machine::deletion_timestamp))
            .with_hint(hint(observed, &refusal, Some(&machine)))
    });
    Ok(finding.into_iter().collect())
}

pub fn check_etcd_refuses_join(observed: &Snapshot, _: Timestamp) -> CheckResult {
    stacked_survey(observed)?;
    require_machines(observed)?;
    let state = PlanState::new(observed, &[]);
    let Some(refusal) = state.refused_join().filter(|_| !state.has_joining_member()) else {
        return Ok(Vec::new());
    };
    // Cluster API removes the dead member of a Machine that is being deleted.
    let is_going = |dead: &DeadMember| {
        let replica = dead.machine.as_deref().and_then(|name| state.replica(name));
        replica.is_some_and(Replica::is_deleting)
    };
    if refusal.dead.iter().all(is_going) {
        return Ok(Vec::new());
    }
    let joining = machines_without_node(observed)
        .filter(|machine| !machine.is_deleting() && observed.node_of(machine).is_none());
    let findings = joining.map(|machine| {
        let message = format!("cannot join: {refusal}");
        about(machine.name(), &refusal, message).with_hint(hint(observed, &refusal, None))
    });
    Ok(findings.collect())
}

fn hint(observed: &Snapshot, refusal: &EtcdRefusal, waiting: Option<&str>) -> String {
    let control_plane = &observed.control_plane;
    refusal.hint(waiting, control_plane.namespace(), control_plane.name())
}

fn about(machine: &str, refusal: &EtcdRefusal, message: String) -> Finding {
    let members = refusal
        .dead
        .iter()
        .map(|dead| format!("EtcdMember/{}", dead.member));
    members.fold(
        Finding::fail(machine_object(machine), message),
        Finding::with_object,
    )
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::{metadata::Time, names::annotation};

    use crate::{
        checks::tests::{Case, starts},
        snapshot::Snapshot,
        testing::objects::{annotate, minutes_ago},
    };

    fn delete(observed: &mut Snapshot, number: usize) {
        let machine = observed.machine(number);
        machine.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        annotate(&mut machine.metadata, annotation::KCP_CLEANUP_HOOK, "");
    }

    pub(crate) const CASES: &[Case] = &[
        (
            "etcd-refuses-removal",
            "of_a_live_member_beside_a_dead_one",
            |o| {
                delete(o, 2);
                o.kill(3);
            },
        ),
        ("etcd-refuses-removal", "not_of_the_dead_member", |o| {
            delete(o, 2);
            o.kill(2);
        }),
        ("etcd-refuses-removal", "not_after_the_member_has_gone", |o| {
            delete(o, 2);
            o.machine(2).metadata.annotations = None;
            o.kill(3);
        }),
        ("etcd-refuses-join", "beside_a_dead_member", |o| {
            starts(o);
            o.control_plane.spec.replicas = Some(3);
            add_fourth(o);
            o.kill(2);
        }),
        ("etcd-refuses-join", "not_while_the_dead_member_goes", |o| {
            starts(o);
            add_fourth(o);
            o.kill(2);
            delete(o, 2);
        }),
    ];

    /// A third member, so that etcd keeps its quorum without the second.
    fn add_fourth(observed: &mut Snapshot) {
        let mut machine = observed.machine(1).clone();
        machine.metadata.name = Some("m4".to_owned());
        machine.metadata.uid = Some("u4".to_owned());
        machine.status.node_name = Some("node-m4".to_owned());
        observed.machines.push(machine);
        let mut node = observed.nodes()[0].clone();
        node.name = "node-m4".to_owned();
        observed.nodes().push(node);
        let member = crate::testing::snapshot::member(4, "node-m4");
        for number in 1..=2 {
            observed.list(number).members.push(member.clone());
        }
        let mut queried = observed.survey().queried[0].clone();
        queried.name = "node-m4".to_owned();
        queried.machine = Some("m4".to_owned());
        observed.survey().queried.push(queried);
        let status = &mut observed.survey().queried[2];
        if let Ok(response) = &mut status.response
            && let Ok(status) = &mut response.status
        {
            status.member_id = 4;
        }
        let list = observed.list(1).clone();
        if let Ok(response) = &mut observed.survey().queried[2].response {
            response.members = Ok(list);
        }
    }
}
