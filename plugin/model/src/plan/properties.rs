//! Properties that hold for every plan.

use kcp_api::KubeadmControlPlaneSpec;
use proptest::{collection::vec, prelude::*};

use crate::{
    plan::{
        remediation::RemediationContext,
        simulate::{Choice, PlanStep, simulate},
        state::PlanState,
        step::{self, Action, Context, NoPlan, Purpose, Transition},
    },
    quorum::{Change, Member, Votes},
    testing::{
        objects::now,
        plan::{declared, spec, state, with_replicas},
    },
};

/// A control plane in any state, and the change that is planned for it.
#[derive(Clone, Debug)]
struct Start {
    state: PlanState,
    spec: KubeadmControlPlaneSpec,
    declared: Vec<String>,
    initialized: bool,
}

impl Start {
    fn context(&self) -> Context<'_> {
        Context {
            spec: &self.spec,
            declared: &self.declared,
            remediation: RemediationContext {
                limits: &self.spec.remediation,
                initialized: self.initialized,
                topology_version: None,
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
                            ..Member::default()
                        });
                    });
                }
                state.has_remediation_in_progress = in_progress;
                if external {
                    state.members = None;
                }
                Start {
                    initialized: initialized || state.replicas.len() > 1,
                    state,
                    spec: KubeadmControlPlaneSpec {
                        max_surge,
                        ..with_replicas(spec(), replicas)
                    },
                    declared: declared(domains),
                }
            },
        )
}

fn began_without_quorum(state: &PlanState) -> bool {
    state
        .members
        .as_deref()
        .and_then(Votes::lost_quorum_votes)
        .is_some()
}

fn is_at_target(state: &PlanState, spec: &KubeadmControlPlaneSpec) -> bool {
    state.replicas.len() == spec.replica_count()
        && state
            .replicas
            .iter()
            .all(|replica| !replica.is_outdated && !replica.is_deleting() && replica.node.is_some())
}

/// Whether the voters that run are a quorum, as etcd itself counts them.
fn keeps_quorum_in_etcd(state: &PlanState) -> bool {
    let voters = state.members.iter().flatten().filter(|member| !member.is_learner);
    let counted = Votes {
        voters: voters.clone().count(),
        unhealthy: voters.filter(|member| member.is_dead).count(),
        starting: 0,
    };
    counted.voters == 0 || counted.has_quorum()
}

/// What the controller does, step by step: the state before each step, and the state at the end.
struct Trace {
    taken: Vec<(PlanState, Transition)>,
    end: PlanState,
}

/// Simulates the controller, whose random choices `dice` makes, until it has nothing more to do.
fn follow(start: &Start, dice: &[usize]) -> Trace {
    let mut state = start.state.clone();
    let mut dice = dice.iter().cycle();
    let mut taken = Vec::new();
    loop {
        let transitions = step::next(&state, start.context()).expect("the plan goes on");
        let roll = dice.next().copied().unwrap_or_default();
        let Some(transition) = transitions.get(roll % transitions.len().max(1)) else {
            return Trace { taken, end: state };
        };
        taken.push((state, transition.clone()));
        state = transition.state.clone();
        if transition.refusal.is_some() {
            return Trace { taken, end: state };
        }
    }
}

/// The steps of the plan, and what the simulated controller does. `None` if there is no plan.
fn planned(start: &Start, dice: &[usize]) -> Option<(Vec<PlanStep>, Trace)> {
    let steps = simulate(start.state.clone(), start.context()).ok()?;
    Some((steps, follow(start, dice)))
}

fn dice() -> impl Strategy<Value = Vec<usize>> {
    vec(0..60_usize, 8)
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 1_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// No step endangers the quorum, even in the worst case.
    #[test]
    fn no_plan_passes_through_a_state_without_quorum(start in starts(), dice in dice()) {
        let Some((_, trace)) = planned(&start, &dice) else { return Ok(()) };
        let mut has_remediated = false;
        for (state, transition) in &trace.taken {
            // A control plane that was never initialized has no data.
            if transition.purpose == Purpose::Remediate && !start.initialized {
                continue;
            }
            let is_first = state.members.as_ref().is_some_and(Vec::is_empty);
            // The controller remediates by its own view, and etcd refuses what would cost its quorum.
            has_remediated |= transition.purpose == Purpose::Remediate;
            if has_remediated {
                prop_assert!(keeps_quorum_in_etcd(&transition.state), "{:?}", transition);
                continue;
            }
            let votes = [transition.votes_during, transition.state.votes(Change::Unchanged)];
            for votes in votes.into_iter().flatten() {
                prop_assert!(votes.has_quorum() || is_first, "{:?}: {:?}", transition, votes);
            }
            // What no node is known of takes no member with it.
            let takes_member =
                |name: &String| state.replica(name).is_none_or(|replica| replica.node.is_some());
            let is_safe = transition.votes_during.is_none_or(crate::quorum::Votes::is_safe);
            if transition.action != Action::Wait && transition.refusal.is_none() {
                prop_assert!(is_safe || !transition.names.iter().any(takes_member));
            }
        }
    }

    #[test]
    fn without_quorum_there_is_the_reason_and_no_step(start in starts()) {
        let steps = simulate(start.state.clone(), start.context());
        let is_lost = matches!(steps, Err(NoPlan::QuorumLost { .. }));
        prop_assert_eq!(is_lost, began_without_quorum(&start.state), "{:?}", steps);
    }

    #[test]
    fn every_plan_ends_at_its_target(start in starts(), dice in dice()) {
        let Some((_, trace)) = planned(&start, &dice) else { return Ok(()) };
        let is_endless = trace.taken.last().is_some_and(|(_, last)| last.refusal.is_some());
        prop_assert!(is_endless || is_at_target(&trace.end, &start.spec), "{:?}", trace.end);
    }

    /// The second limit does not apply to remediations, or to Machines that were already being deleted.
    #[test]
    fn max_surge_0_never_exceeds_the_number_asked_for_and_max_surge_1_never_goes_below(
        start in starts(), dice in dice()
    ) {
        let Some((_, trace)) = planned(&start, &dice) else { return Ok(()) };
        let desired = start.spec.replica_count();
        let surge = start.spec.max_surge;
        for (_, transition) in &trace.taken {
            let there = transition.state.replicas.len();
            match (transition.action, transition.purpose) {
                (Action::Create, _) => prop_assert!(there <= desired + surge, "{:?}", transition),
                (Action::Delete, Purpose::Rollout | Purpose::ScaleDown) => {
                    prop_assert!(there + 1 >= desired + surge, "{:?}", transition);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn what_is_told_of_the_steps_comes_about(start in starts(), dice in dice()) {
        let Some((steps, trace)) = planned(&start, &dice) else { return Ok(()) };
        // The property holds until the steps may differ.
        let reported = steps.iter().position(|step| step.may_differ).unwrap_or(steps.len());
        prop_assert!(trace.taken.len() >= reported);
        prop_assert!(reported < steps.len() || trace.taken.len() == reported);
        for (step, (_, transition)) in steps.iter().take(reported).zip(&trace.taken) {
            prop_assert_eq!((transition.action, transition.purpose), (step.action, step.purpose));
            prop_assert!(transition.names.iter().all(|name| step.names.contains(name)));
            prop_assert!(step.failure_domains.contains(&transition.failure_domain));
            prop_assert_eq!(transition.state.replicas.len(), step.replicas);
            prop_assert!(step.choice != Choice::None || transition.names == step.names);
        }
    }

    #[test]
    fn there_is_no_plan_only_for_a_reason(start in starts()) {
        match simulate(start.state.clone(), start.context()) {
            Ok(_) | Err(NoPlan::QuorumLost { .. }) => {}
            Err(NoPlan::LastMachine { .. }) => {
                let all_go = start.state.replicas.iter().all(crate::plan::state::Replica::is_deleting);
                let external = start.state.members.is_none() && start.spec.max_surge == 0 && start.spec.replica_count() == 1;
                prop_assert!(external || all_go && start.state.replicas.len() == 1);
            }
            Err(NoPlan::OnlyLeader { .. }) => {
                prop_assert!(start.spec.max_surge == 0 && start.spec.replica_count() == 1);
            }
            Err(NoPlan::AllHeld { machines }) => {
                prop_assert!(machines.len() > 1 && start.state.replicas.iter().all(crate::plan::state::Replica::is_deleting));
            }
            Err(NoPlan::HoldEachOther { machines }) => {
                prop_assert!(machines.len() > 1 && start.state.replicas.iter().any(|replica| !replica.is_deleting()));
            }
            Err(NoPlan::Stuck { .. }) => {
                let orphans = start.state.orphans();
                prop_assert!(!orphans.is_empty(), "stuck without reason");
            }
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }
}
