//! What holds of every plan.

use proptest::{collection::vec, prelude::*};

use super::{
    course::{Choice, Step, course},
    example::{declared, spec, state},
    quorum::{Change, Member},
    remediation::Terms,
    spec::Spec,
    state::State,
    step::{self, Action, NoPlan, Purpose, Surroundings},
};
use crate::control_plane::example::now;

/// A control plane with anything wrong, and what is asked of it.
#[derive(Clone, Debug)]
struct Start {
    state: State,
    spec: Spec,
    declared: Vec<String>,
    initialized: bool,
}

impl Start {
    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            spec: &self.spec,
            declared: &self.declared,
            terms: Terms {
                limits: &self.spec.remediation,
                initialized: self.initialized,
                topology_moves: false,
                now: now(),
            },
        }
    }
}

fn marks() -> impl Strategy<Value = String> {
    let often = |mark: &'static str| prop_oneof![9 => Just(""), 1 => Just(mark)];
    let outdated = prop_oneof![Just(""), Just("!")];
    let rare = (
        often("d"),
        often("x"),
        often("p"),
        often("f"),
        often("u"),
        often("e"),
        often("l"),
        often("r"),
        often("s"),
    );
    (outdated, rare)
        .prop_map(|(outdated, (d, x, p, f, u, e, l, r, s))| [outdated, d, x, p, f, u, e, l, r, s].concat())
}

fn starts() -> impl Strategy<Value = Start> {
    let domain = prop_oneof![Just(""), Just("@a"), Just("@b"), Just("@c"), Just("@z")];
    let machines = vec((domain, marks()), 0..6);
    let domains = prop_oneof![Just(""), Just("a b"), Just("a b c")];
    let orphans = vec((any::<bool>(), any::<bool>(), any::<bool>()), 0..2);
    let orphans = prop_oneof![4 => Just(Vec::new()), 1 => orphans];
    let external = prop_oneof![5 => Just(false), 1 => Just(true)];
    let in_progress = prop_oneof![4 => Just(false), 1 => Just(true)];
    let flags = (any::<bool>(), in_progress);
    (
        machines,
        domains,
        orphans,
        external,
        1..6_usize,
        0..2_usize,
        flags,
    )
        .prop_map(
            |(machines, domains, orphans, external, replicas, max_surge, (initialized, in_progress))| {
                let machines: Vec<String> = machines
                    .into_iter()
                    .enumerate()
                    .map(|(index, (domain, marks))| format!("m{index}{domain}{marks}"))
                    .collect();
                let mut state = state(&machines.join(" "));
                for (index, (named, is_learner, is_healthy)) in orphans.into_iter().enumerate() {
                    state.members.iter_mut().for_each(|members| {
                        members.push(Member {
                            name: if named {
                                format!("orphan-{index}")
                            } else {
                                String::new()
                            },
                            is_learner,
                            is_healthy,
                            machine: None,
                        });
                    });
                }
                state.remediation_in_progress = in_progress;
                if external {
                    state.members = None;
                }
                Start {
                    initialized: initialized || state.replicas.len() > 1,
                    state,
                    spec: Spec {
                        replicas,
                        max_surge,
                        ..spec()
                    },
                    declared: declared(domains),
                }
            },
        )
}

fn began_without_quorum(state: &State) -> bool {
    let has_members = state.members.as_ref().is_some_and(|members| !members.is_empty());
    has_members
        && !state
            .votes(Change::Unchanged)
            .is_some_and(super::quorum::Votes::has_quorum)
}

fn is_at_target(state: &State, spec: &Spec) -> bool {
    state.replicas.len() == spec.replicas
        && state
            .replicas
            .iter()
            .all(|replica| !replica.is_outdated && !replica.is_deleting() && replica.node.is_some())
}

/// Follows the controller with its choices made by `dice`, beside the steps that the plan tells.
fn follow(start: &Start, steps: &[Step], dice: &[usize]) -> Result<(), TestCaseError> {
    let mut state = start.state.clone();
    let mut dice = dice.iter().cycle();
    // What is told of the steps holds until they may differ.
    let mut told = steps.iter().take_while(|step| !step.may_differ);
    loop {
        let outcomes = step::next(&state, start.surroundings()).expect("the plan goes on");
        let roll = dice.next().copied().unwrap_or_default();
        let Some(outcome) = outcomes.get(roll % outcomes.len().max(1)) else {
            break;
        };
        if let Some(step) = told.next() {
            prop_assert_eq!((outcome.action, outcome.purpose), (step.action, step.purpose));
            prop_assert!(outcome.names.iter().all(|name| step.names.contains(name)));
            prop_assert!(step.failure_domains.contains(&outcome.failure_domain));
            prop_assert_eq!(outcome.state.replicas.len(), step.replicas);
            prop_assert!(step.choice != Choice::None || outcome.names == step.names);
        }

        // A control plane that has never come up has nothing to lose.
        let removes_only = outcome.purpose == Purpose::Remediate && !start.initialized;
        let votes = [outcome.meanwhile, outcome.state.votes(Change::Unchanged)];
        for votes in votes.into_iter().flatten() {
            let is_first = state.members.as_ref().is_some_and(Vec::is_empty);
            prop_assert!(
                votes.has_quorum() || is_first || removes_only,
                "{:?}: {:?}",
                outcome,
                votes
            );
        }
        // What no node is known of takes no member with it.
        let takes_member = |name: &String| state.replica(name).is_none_or(|replica| replica.node.is_some());
        let is_safe = outcome.meanwhile.is_none_or(super::quorum::Votes::is_safe);
        if outcome.action != Action::Wait && !removes_only {
            prop_assert!(is_safe || !outcome.names.iter().any(takes_member));
        }
        if outcome.action == Action::Create {
            prop_assert!(outcome.state.replicas.len() <= start.spec.most_replicas());
        }
        let is_asked_for = matches!(outcome.purpose, Purpose::Rollout | Purpose::ScaleDown);
        if outcome.action == Action::Delete && is_asked_for {
            let least = start.spec.replicas - usize::from(start.spec.max_surge == 0);
            prop_assert!(outcome.state.replicas.len() >= least);
        }
        state = outcome.state.clone();
    }
    prop_assert!(told.next().is_none());
    prop_assert!(is_at_target(&state, &start.spec), "{:?}", state);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every plan ends where it should, keeps etcd's quorum all the way, and names what the controller may choose.
    #[test]
    fn a_plan_keeps_quorum_and_ends_at_its_target(start in starts(), dice in vec(0..60_usize, 8)) {
        match course(start.state.clone(), start.surroundings()) {
            Ok(steps) => {
                prop_assert!(!began_without_quorum(&start.state));
                follow(&start, &steps, &dice)?;
            }
            Err(NoPlan::QuorumLost { .. }) => prop_assert!(began_without_quorum(&start.state)),
            Err(NoPlan::LastMachine { .. }) => {
                let all_go = start.state.replicas.iter().all(super::state::Replica::is_deleting);
                prop_assert!(all_go || (start.spec.max_surge == 0 && start.spec.replicas == 1));
            }
            Err(NoPlan::Stuck { .. }) => {
                let orphans = start.state.orphans();
                prop_assert!(!orphans.is_empty(), "stuck without reason");
            }
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }
}
