//! Whether a control plane survives the loss of one Machine.
//!
//! As `canSafelyRemediateMachine` of Cluster API, which `reconcilePreTerminateHook` calls too; but etcd's own answers
//! count, and Machines that are being deleted do not.

use kcp_api::Object as _;

use crate::{
    plan::{
        state::{Replica, State},
        wording::listed,
    },
    quorum::Votes,
    snapshot::{EtcdMembers, Snapshot},
};

/// Why a Machine must not be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Danger {
    /// It holds the only copy of the cluster's data.
    LastMachine,
    NoOtherWorks,
    MembersUnknown,
    /// Members have not started, or are learners.
    Starting {
        /// A member that has not started has an empty name.
        members: Vec<String>,
    },
    Quorum {
        /// After the loss.
        votes: Votes,
        /// Members of other Machines that are not healthy, each with the reason if known.
        unhealthy: Vec<String>,
    },
}

/// None if the control plane survives the loss of this Machine.
pub fn danger(observed: &Snapshot, machine: &str) -> Option<Danger> {
    // A control plane that was never initialized has no data.
    if !observed.control_plane.status.initialized {
        return None;
    }
    let mut state = state(observed);
    let replica = state.replica(machine)?.clone();
    let stays = |other: &&Replica| other.name != machine && !other.is_deleting();
    let others = state.replicas.iter().filter(stays);
    if others.clone().next().is_none() {
        return Some(Danger::LastMachine);
    }
    if !others.clone().any(Replica::runs_components) {
        return Some(Danger::NoOtherWorks);
    }
    remove_unstarted_member(&mut state, &replica);
    let votes = state.votes(state.removal(&replica))?;
    if state.members.as_ref().is_some_and(Vec::is_empty) {
        return Some(Danger::MembersUnknown);
    }
    let left = state.members.iter().flatten();
    let left = left.filter(|member| member.machine.as_deref() != Some(machine));
    if votes.starting > 0 {
        let starting = left.filter(|member| member.is_starting());
        return Some(Danger::Starting {
            members: starting.map(|member| member.name.clone()).collect(),
        });
    }
    let unhealthy = left.filter(|member| !member.is_healthy);
    (!votes.has_quorum()).then(|| Danger::Quorum {
        votes,
        unhealthy: unhealthy
            .map(|member| unhealthy_member(observed, &member.name, member.machine.as_deref()))
            .collect(),
    })
}

/// A warning if the Machine's etcd member is the leader.
pub fn leader_warning(observed: &Snapshot, machine: &str) -> Option<String> {
    let EtcdMembers::Known(members) = &observed.etcd_members else {
        return None;
    };
    let mut machines = observed.machines.iter();
    let machine_of = machines.find(|other| other.name() == machine)?;
    let node = machine_of.status.node_name.as_ref()?;
    let mut leaders = members.iter().filter(|member| member.is_leader);
    leaders.any(|member| member.name == *node).then(|| {
        format!(
            "etcd member {node} of Machine {machine} is the leader: Cluster API moves the leadership before it removes the \
             member, and writes wait for that moment"
        )
    })
}

/// The state of the control plane. If etcd did not answer, the controller counts a member as healthy while other members
/// list it; here a member without a healthy pod is unhealthy.
fn state(observed: &Snapshot) -> State {
    let mut state = State::of(observed, |_| false);
    if observed.etcd_members != EtcdMembers::Unread {
        return state;
    }
    let has_no_pod = |replica: &&Replica| replica.has_fault("EtcdPodHealthy");
    let without_pod = state.replicas.iter().filter(has_no_pod);
    let without_pod: Vec<String> = without_pod.map(|replica| replica.name.clone()).collect();
    for member in state.members.iter_mut().flatten() {
        let is_of = |name: &String| member.machine.as_ref() == Some(name);
        member.is_healthy &= !without_pod.iter().any(is_of);
    }
    state
}

/// A member that has not started belongs to the only Machine without a node. It is removed with that Machine: the
/// controller removes members without a Machine.
fn remove_unstarted_member(state: &mut State, replica: &Replica) {
    let has_no_node = |other: &&Replica| other.node.is_none();
    if replica.node.is_none() && state.replicas.iter().filter(has_no_node).count() == 1 {
        let members = state.members.iter_mut();
        members.for_each(|members| {
            members.retain(|member| member.machine.is_some() || !member.is_starting());
        });
    }
}

fn unhealthy_member(observed: &Snapshot, member: &str, machine: Option<&str>) -> String {
    let what = machine.map_or_else(
        || format!("etcd member {member}, which has no Machine,"),
        |machine| format!("etcd member {member} of Machine {machine}"),
    );
    match observed.etcd_members.silence(member) {
        Some(why) => format!("{what} is not healthy: {why}"),
        None if observed.etcd_members.has_alarm(member) => format!("{what} has raised an alarm"),
        None => format!("{what} is not healthy"),
    }
}

impl Danger {
    /// A line each.
    pub fn why(&self) -> Vec<String> {
        match self {
            Self::LastMachine => {
                vec!["it is the only Machine: deleting it deletes the cluster's data".to_owned()]
            }
            Self::NoOtherWorks => {
                vec![
                    "no other Machine runs a working API server, controller manager and scheduler".to_owned(),
                ]
            }
            Self::MembersUnknown => vec!["etcd's members are unknown".to_owned()],
            Self::Starting { members } => {
                let names: Vec<&str> = members
                    .iter()
                    .map(|name| if name.is_empty() { "(not started)" } else { name })
                    .collect();
                vec![format!(
                    "etcd members have not started or are still learners: {}",
                    listed(&names, "and")
                )]
            }
            Self::Quorum { votes, unhealthy } => {
                let healthy = votes.voters.saturating_sub(votes.unhealthy);
                let mut lines = vec![format!(
                    "without it etcd loses quorum: {healthy} of {} voting members healthy, {} needed",
                    votes.voters,
                    votes.quorum()
                )];
                lines.extend(unhealthy.iter().cloned());
                lines
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{
        ConditionStatus::{False, Unknown},
        metadata::Time,
    };

    use super::{Danger, danger};
    use crate::{
        snapshot::{EtcdMember, EtcdMembers, Snapshot},
        testing::{
            objects::{condition, minutes_ago, set},
            plan::observed,
        },
    };

    /// Members on the nodes of these Machines: `?` does not respond, `~` is a learner, `-` has not started, `!` has an alarm.
    fn members(text: &str) -> EtcdMembers {
        let members = text.split_whitespace().map(|text| {
            let name = text.trim_end_matches(['?', '~', '-', '!']);
            EtcdMember {
                name: if text.ends_with('-') {
                    String::new()
                } else {
                    format!("node-{name}")
                },
                is_learner: text.ends_with('~'),
                has_alarm: text.ends_with('!'),
                silence: text.ends_with('?').then(|| "no answer within 2s".to_owned()),
                ..EtcdMember::default()
            }
        });
        EtcdMembers::Known(members.collect())
    }

    fn crashed(observed: &mut Snapshot, machine: usize, kind: &str) {
        let conditions = &mut observed.machines[machine - 1].status.conditions;
        set(conditions, condition(kind, False, "crashed"));
    }

    type Case = (
        &'static str,
        fn(&mut Snapshot),
        &'static str,
        &'static [&'static str],
    );

    const DEAD: &str = "without it etcd loses quorum: 1 of 2 voting members healthy, 2 needed";
    const SILENT: &str = "etcd member node-m3 of Machine m3 is not healthy: no answer within 2s";
    const SICK: &str = "etcd member node-m3 of Machine m3 is not healthy";

    fn assert_dangers(cases: &[Case]) {
        for (name, change, machine, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            let why = danger(&observed, machine).map_or_else(Vec::new, |danger| danger.why());
            assert_eq!(why, *expected, "{name}");
        }
    }

    #[test]
    fn a_quorum_of_healthy_voters_is_left() {
        assert_dangers(&[
            ("healthy", |o| o.etcd_members = members("m1 m2 m3"), "m1", &[]),
            (
                "one is dead: it",
                |o| o.etcd_members = members("m1 m2 m3?"),
                "m3",
                &[],
            ),
            (
                "one is dead: another",
                |o| o.etcd_members = members("m1 m2 m3?"),
                "m1",
                &[DEAD, SILENT],
            ),
            (
                "two are dead: one of them",
                |o| o.etcd_members = members("m1 m2? m3?"),
                "m2",
                &[DEAD, SILENT],
            ),
            (
                "one raises an alarm: it",
                |o| o.etcd_members = members("m1 m2 m3!"),
                "m3",
                &[],
            ),
            (
                "one raises an alarm: another",
                |o| o.etcd_members = members("m1 m2 m3!"),
                "m1",
                &[DEAD, "etcd member node-m3 of Machine m3 has raised an alarm"],
            ),
            // etcd could not be asked.
            (
                "one has no pod: it",
                |o| crashed(o, 3, "EtcdPodHealthy"),
                "m3",
                &[],
            ),
            (
                "one has no pod: another",
                |o| crashed(o, 3, "EtcdPodHealthy"),
                "m1",
                &[DEAD, SICK],
            ),
            (
                "one is not known: another",
                |o| {
                    let conditions = &mut o.machines[2].status.conditions;
                    set(conditions, condition("EtcdPodHealthy", Unknown, ""));
                },
                "m1",
                &[DEAD, SICK],
            ),
            // etcd itself answers.
            (
                "one answers without a ready pod",
                |o| {
                    o.etcd_members = members("m1 m2 m3");
                    crashed(o, 3, "EtcdPodHealthy");
                },
                "m1",
                &[],
            ),
        ]);
    }

    #[test]
    fn every_member_is_a_started_voter() {
        assert_dangers(&[
            (
                "a learner: another",
                |o| o.etcd_members = members("m1 m2 m3~"),
                "m1",
                &["etcd members have not started or are still learners: node-m3"],
            ),
            (
                "a learner: it",
                |o| o.etcd_members = members("m1 m2 m3~"),
                "m3",
                &[],
            ),
            (
                "one that has not started",
                |o| o.etcd_members = members("m1 m2 m3 m4-"),
                "m1",
                &["etcd members have not started or are still learners: (not started)"],
            ),
            (
                "one that has not started: it",
                |o| {
                    o.etcd_members = members("m1 m2 m3-");
                    o.machines[2].status.node_name = None;
                },
                "m3",
                &[],
            ),
            (
                "one that has not started, of one of two",
                |o| {
                    o.etcd_members = members("m1 m3-");
                    o.machines[1].status.node_name = None;
                    o.machines[2].status.node_name = None;
                },
                "m3",
                &["etcd members have not started or are still learners: (not started)"],
            ),
            (
                "a stray that is silent",
                |o| o.etcd_members = members("m1 m2 m3 stray?"),
                "m1",
                &[],
            ),
            (
                "a stray and one of ours are silent",
                |o| o.etcd_members = members("m1 m2 m3? stray?"),
                "m1",
                &[
                    "without it etcd loses quorum: 1 of 3 voting members healthy, 2 needed",
                    SILENT,
                    "etcd member node-stray, which has no Machine, is not healthy: no answer within 2s",
                ],
            ),
        ]);
    }

    #[test]
    fn an_api_server_is_left() {
        assert_dangers(&[
            (
                "alone",
                |o| o.machines.truncate(1),
                "m1",
                &["it is the only Machine: deleting it deletes the cluster's data"],
            ),
            (
                "the others go",
                |o| {
                    for machine in &mut o.machines[1..] {
                        machine.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
                    }
                },
                "m1",
                &["it is the only Machine: deleting it deletes the cluster's data"],
            ),
            (
                "no other works",
                |o| {
                    crashed(o, 2, "SchedulerPodHealthy");
                    crashed(o, 3, "APIServerPodHealthy");
                },
                "m1",
                &["no other Machine runs a working API server, controller manager and scheduler"],
            ),
            (
                "etcd is external",
                |o| {
                    o.etcd_members = EtcdMembers::External;
                    crashed(o, 3, "APIServerPodHealthy");
                },
                "m1",
                &[],
            ),
            (
                "no member is known",
                |o| o.etcd_members = members(""),
                "m1",
                &["etcd's members are unknown"],
            ),
            (
                "it never came up",
                |o| {
                    o.control_plane.status.initialized = false;
                    o.machines.truncate(1);
                },
                "m1",
                &[],
            ),
        ]);
    }

    #[test]
    fn another_machine_is_no_danger() {
        assert_eq!(danger(&observed(), "other"), None::<Danger>);
    }
}
