//! Whether the first Machine that is created or deleted costs etcd its quorum, because of what the controller cannot see.
//!
//! The controller waits for the conditions of Machines, a plan for the etcd members as well: a member that does not
//! participate while its Machine's conditions are True does not stop the controller.

use crate::{
    plan::{
        course::Step,
        state::{Replica, State},
        step::{Action, Purpose},
    },
    quorum::{Change, Votes},
};

/// The votes after that step, if etcd is not safe then. Whatever the controller waits for has happened by then; what it
/// cannot see is unchanged.
pub fn risk(start: &State, steps: &[Step]) -> Option<Votes> {
    let mut state = start.clone();
    let mut steps = steps.iter();
    let first = loop {
        let step = steps.next()?;
        if step.action != Action::Wait {
            break step;
        }
        wait(&mut state, step);
    };
    let unsafe_after = |change| state.votes(change).filter(|votes| !votes.is_safe());
    if first.action == Action::Create {
        return unsafe_after(Change::Added);
    }
    let mut candidates = first.names.iter().filter_map(|name| state.replica(name));
    candidates.find_map(|replica| unsafe_after(state.removal(replica)))
}

fn wait(state: &mut State, step: &Step) {
    for name in &step.names {
        match step.purpose {
            Purpose::ComeUp | Purpose::Recover => {
                if !state.replica(name).is_some_and(Replica::fails_unseen) {
                    state.recover(name);
                }
            }
            Purpose::FinishDeletion => state.remove(name),
            Purpose::RemoveMember => {
                if let Some(members) = &mut state.members {
                    members.retain(|member| member.name != *name);
                }
            }
            Purpose::FinishUpdate
            | Purpose::Initialize
            | Purpose::ScaleUp
            | Purpose::ScaleDown
            | Purpose::Rollout
            | Purpose::Remediate => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::risk;
    use crate::{
        plan::{course::course, remediation::Terms, state::Fault, step::Surroundings},
        testing::{
            objects::now,
            plan::{spec, state, with_replicas},
        },
    };

    /// Voters, and those of them that are unhealthy, after the first step; none where that is safe.
    fn of(machines: &str, replicas: usize, pod_fails: bool) -> Option<(usize, usize)> {
        let mut start = state(machines);
        for replica in start.replicas.iter_mut().filter(|replica| replica.is_silent) {
            replica.faults.extend(pod_fails.then_some(Fault {
                condition: "EtcdPodHealthy",
                is_false: false,
            }));
        }
        let spec = with_replicas(spec(), replicas);
        let surroundings = Surroundings {
            spec: &spec,
            declared: &[],
            terms: Terms {
                limits: &spec.remediation,
                initialized: true,
                topology_version: None,
                now: now(),
            },
        };
        let steps = course(start.clone(), surroundings).expect("a plan");
        risk(&start, &steps).map(|votes| (votes.voters, votes.unhealthy))
    }

    #[test]
    fn what_the_controller_does_not_see_is_not_taken_to_pass() {
        for (machines, replicas, expected) in [
            ("m1 m2 m3", 1, None),
            ("m1 m2 m3", 5, None),
            ("m1 m2s m3", 1, Some((2, 1))),
            ("m1 m2s m3", 5, Some((4, 2))),
            ("m1 m2s m3", 3, None),
            ("m1 m2s m3 m4 m5", 3, None),
            ("m1 m2s m3 m4 m5", 7, None),
            // The one that goes is the one that takes no part.
            ("m1 m2ds m3", 1, None),
            // The controller waits for one of them, and not for the other.
            ("m1f m2s m3", 1, Some((2, 1))),
            ("m1 m2p m3s m4", 3, None),
            // The first that goes is gone by then.
            ("m1xs m2 m3 m4", 5, None),
            ("m1x m2s m3 m4", 5, Some((4, 2))),
        ] {
            assert_eq!(
                of(machines, replicas, false),
                expected,
                "{machines} to {replicas}"
            );
        }
    }

    #[test]
    fn for_what_conditions_tell_the_controller_waits() {
        for (machines, replicas) in [("m1 m2s m3", 1), ("m1 m2s m3", 5), ("m1f m2s m3", 5)] {
            assert_eq!(of(machines, replicas, true), None, "{machines} to {replicas}");
        }
        assert_eq!(of("m1 m2f m3e", 1, false), None);
    }
}
