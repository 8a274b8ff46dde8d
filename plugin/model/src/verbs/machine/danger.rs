//! What a control plane cannot stand the loss of a Machine for.
//!
//! As `canSafelyRemediateMachine` of Cluster API, which `reconcilePreTerminateHook` asks too; but what was read of etcd
//! itself counts, and Machines that are being deleted do not count as help.

use crate::{
    plan::{
        observed::{Etcd, Observed},
        state::{Replica, State},
        wording::listed,
    },
    quorum::Votes,
};

/// Why a Machine must not go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Danger {
    /// The cluster's data would go with it.
    LastMachine,
    /// No API server would be left.
    NoOtherWorks,
    /// Nothing is known of etcd's members.
    MembersUnknown,
    /// Members have yet to start or to be promoted.
    Starting {
        /// Their names; empty for one that has not started.
        members: Vec<String>,
    },
    /// etcd would have no quorum.
    Quorum {
        /// How it would stand.
        votes: Votes,
        /// Those of the others that are not healthy, and why as far as that is known.
        unhealthy: Vec<String>,
    },
}

/// Whether the loss of exactly this Machine can be stood; none where it can.
pub fn danger(observed: &Observed, machine: &str) -> Option<Danger> {
    // A control plane that has never come up has nothing to lose.
    if !observed.control_plane.initialized {
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
    forget_what_never_joined(&mut state, &replica);
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
            .map(|member| told(observed, &member.name, member.machine.as_deref()))
            .collect(),
    })
}

/// The control plane as it is. The controller takes a member for healthy whose pod is not, as long as others list it:
/// where etcd has not told, the pod tells.
fn state(observed: &Observed) -> State {
    let mut state = State::of(observed, |_| false);
    if observed.etcd != Etcd::Unread {
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

/// A member that has yet to start, and that no Machine has, is that of the only Machine without a node: it goes with it,
/// as the controller removes members of no Machine.
fn forget_what_never_joined(state: &mut State, replica: &Replica) {
    let has_no_node = |other: &&Replica| other.node.is_none();
    if replica.node.is_none() && state.replicas.iter().filter(has_no_node).count() == 1 {
        let members = state.members.iter_mut();
        members.for_each(|members| {
            members.retain(|member| member.machine.is_some() || !member.is_starting());
        });
    }
}

fn told(observed: &Observed, member: &str, machine: Option<&str>) -> String {
    let what = machine.map_or_else(
        || format!("etcd member {member} of no Machine"),
        |machine| format!("etcd member {member} of Machine {machine}"),
    );
    match observed.etcd.silence(member) {
        Some(why) => format!("{what} is not healthy: {why}"),
        None if observed.etcd.has_alarm(member) => format!("{what} has raised an alarm"),
        None => format!("{what} is not healthy"),
    }
}

impl Danger {
    /// For people, a line each.
    pub fn why(&self) -> Vec<String> {
        match self {
            Self::LastMachine => {
                vec!["there is no other Machine: the cluster's data would go with it".to_owned()]
            }
            Self::NoOtherWorks => {
                vec!["no other Machine has an API server and all that belongs to it working".to_owned()]
            }
            Self::MembersUnknown => vec!["nothing is known of etcd's members".to_owned()],
            Self::Starting { members } => {
                let names: Vec<&str> = members
                    .iter()
                    .map(|name| if name.is_empty() { "(not started)" } else { name })
                    .collect();
                vec![format!(
                    "etcd has members that have yet to start or to be promoted: {}",
                    listed(&names, "and")
                )]
            }
            Self::Quorum { votes, unhealthy } => {
                let healthy = votes.voters.saturating_sub(votes.unhealthy);
                let mut lines = vec![format!(
                    "without it etcd would have no quorum: {healthy} of {} voting members healthy, {} needed",
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
    use super::{Danger, danger};
    use crate::{
        control_plane::{
            ConditionStatus::{False, Unknown},
            example::{condition, minutes_ago, set},
        },
        plan::{
            example::observed,
            observed::{Etcd, EtcdMember, Observed},
        },
    };

    /// Members on the nodes of such Machines: `?` takes no part, `~` a learner, `-` one that has not started.
    fn members(text: &str) -> Etcd {
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
        Etcd::Members(members.collect())
    }

    fn crashed(observed: &mut Observed, machine: usize, kind: &str) {
        let conditions = &mut observed.machines[machine - 1].machine.conditions;
        set(conditions, condition(kind, False, "crashed"));
    }

    type Case = (
        &'static str,
        fn(&mut Observed),
        &'static str,
        &'static [&'static str],
    );

    const DEAD: &str = "without it etcd would have no quorum: 1 of 2 voting members healthy, 2 needed";
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
            ("well", |o| o.etcd = members("m1 m2 m3"), "m1", &[]),
            ("one is dead: it", |o| o.etcd = members("m1 m2 m3?"), "m3", &[]),
            (
                "one is dead: another",
                |o| o.etcd = members("m1 m2 m3?"),
                "m1",
                &[DEAD, SILENT],
            ),
            (
                "two are dead: one of them",
                |o| o.etcd = members("m1 m2? m3?"),
                "m2",
                &[DEAD, SILENT],
            ),
            (
                "one raises an alarm: it",
                |o| o.etcd = members("m1 m2 m3!"),
                "m3",
                &[],
            ),
            (
                "one raises an alarm: another",
                |o| o.etcd = members("m1 m2 m3!"),
                "m1",
                &[DEAD, "etcd member node-m3 of Machine m3 has raised an alarm"],
            ),
            // The controller believes those that list it; nobody could ask etcd.
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
                    let conditions = &mut o.machines[2].machine.conditions;
                    set(conditions, condition("EtcdPodHealthy", Unknown, ""));
                },
                "m1",
                &[DEAD, SICK],
            ),
            // etcd itself is asked, and answers.
            (
                "one answers without a ready pod",
                |o| {
                    o.etcd = members("m1 m2 m3");
                    crashed(o, 3, "EtcdPodHealthy");
                },
                "m1",
                &[],
            ),
        ]);
    }

    #[test]
    fn no_member_has_yet_to_start_or_to_be_promoted() {
        assert_dangers(&[
            (
                "a learner: another",
                |o| o.etcd = members("m1 m2 m3~"),
                "m1",
                &["etcd has members that have yet to start or to be promoted: node-m3"],
            ),
            ("a learner: it", |o| o.etcd = members("m1 m2 m3~"), "m3", &[]),
            (
                "one that has not started",
                |o| o.etcd = members("m1 m2 m3 m4-"),
                "m1",
                &["etcd has members that have yet to start or to be promoted: (not started)"],
            ),
            (
                "one that has not started: it",
                |o| {
                    o.etcd = members("m1 m2 m3-");
                    o.machines[2].machine.node = None;
                },
                "m3",
                &[],
            ),
            (
                "one that has not started, of one of two",
                |o| {
                    o.etcd = members("m1 m3-");
                    o.machines[1].machine.node = None;
                    o.machines[2].machine.node = None;
                },
                "m3",
                &["etcd has members that have yet to start or to be promoted: (not started)"],
            ),
            (
                "a stray that is silent",
                |o| o.etcd = members("m1 m2 m3 stray?"),
                "m1",
                &[],
            ),
            (
                "a stray and one of ours are silent",
                |o| o.etcd = members("m1 m2 m3? stray?"),
                "m1",
                &[
                    "without it etcd would have no quorum: 1 of 3 voting members healthy, 2 needed",
                    SILENT,
                    "etcd member node-stray of no Machine is not healthy: no answer within 2s",
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
                &["there is no other Machine: the cluster's data would go with it"],
            ),
            (
                "the others go",
                |o| {
                    for machine in &mut o.machines[1..] {
                        machine.machine.deleting_since = Some(minutes_ago(1));
                    }
                },
                "m1",
                &["there is no other Machine: the cluster's data would go with it"],
            ),
            (
                "no other works",
                |o| {
                    crashed(o, 2, "SchedulerPodHealthy");
                    crashed(o, 3, "APIServerPodHealthy");
                },
                "m1",
                &["no other Machine has an API server and all that belongs to it working"],
            ),
            (
                "etcd is external",
                |o| {
                    o.etcd = Etcd::External;
                    crashed(o, 3, "APIServerPodHealthy");
                },
                "m1",
                &[],
            ),
            (
                "no member is known",
                |o| o.etcd = members(""),
                "m1",
                &["nothing is known of etcd's members"],
            ),
            (
                "it never came up",
                |o| {
                    o.control_plane.initialized = false;
                    o.machines.truncate(1);
                },
                "m1",
                &[],
            ),
        ]);
    }

    #[test]
    fn what_is_no_machine_of_it_is_no_danger() {
        assert_eq!(danger(&observed(), "other"), None::<Danger>);
    }
}
