//! Simulates the controller step by step until the control plane is as desired.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    plan::{
        deletion_order::Group,
        failure_domain::Why,
        state::State,
        step::{self, Action, NoPlan, Outcome, Purpose, Surroundings},
    },
    quorum::{Change, Votes},
};

/// States simulated side by side after random choices of the controller. Enough for nine Machines in three failure
/// domains; beyond it only the first states are simulated.
const MAX_STATES: usize = 2_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub action: Action,
    pub purpose: Purpose,
    /// The candidates: Machines, or for [`Purpose::RemoveMember`] members.
    pub names: Vec<String>,
    pub choice: Choice,
    /// None is a Machine without a failure domain.
    pub failure_domains: Vec<Option<String>>,
    pub why: Why,
    pub group: Option<Group>,
    /// Whether the controller may take another step instead, after earlier random choices.
    pub may_differ: bool,
    /// The number of Machines after the step.
    pub replicas: usize,
    /// None if etcd is external.
    pub votes: Option<StepVotes>,
}

/// How the Machine of a step is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Choice {
    /// The step is about every name.
    None,
    /// About one of the names, which follows from an earlier random choice.
    ByEarlier,
    /// About one of the names, chosen at random.
    AtRandom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepVotes {
    pub before: Votes,
    /// During the step, in the worst case.
    pub meanwhile: Votes,
    pub after: Votes,
}

impl StepVotes {
    /// Members that etcd can lose at any time during the step.
    pub fn may_fail_meanwhile(self) -> usize {
        self.meanwhile.may_fail().min(self.after.may_fail())
    }
}

/// The steps from a state.
///
/// # Errors
/// When there is no way that keeps etcd's quorum.
pub fn course(start: State, surroundings: Surroundings<'_>) -> Result<Vec<Step>, NoPlan> {
    let spec = surroundings.spec;
    if spec.size() == 0 {
        return Err(NoPlan::NoReplicas);
    }
    if spec.rolls_out_without_end() {
        return Err(NoPlan::Endless {
            expiry_days: spec.certificates_expiry_days.unwrap_or_default(),
            validity_days: spec.certificate_validity_days(),
        });
    }
    // Before the first member there is no quorum to lose.
    let has_members = start.members.as_ref().is_some_and(|members| !members.is_empty());
    if let Some(votes) = start
        .votes(Change::Unchanged)
        .filter(|votes| has_members && !votes.has_quorum())
    {
        return Err(NoPlan::QuorumLost { votes });
    }
    follow(start, surroundings, |_| false)
}

/// The waits before the next Machine is created or deleted, and that step. Unlike [`course`] it does not require that the
/// whole change is possible.
///
/// # Errors
/// When the controller cannot continue, or must not.
pub fn first_change(start: State, surroundings: Surroundings<'_>) -> Result<Vec<Step>, NoPlan> {
    follow(start, surroundings, |step| step.action != Action::Wait)
}

fn follow(
    start: State,
    surroundings: Surroundings<'_>,
    is_last: impl Fn(&Step) -> bool,
) -> Result<Vec<Step>, NoPlan> {
    // Each Machine is waited for, deleted and replaced once at most.
    let members = start.members.as_ref().map_or(0, Vec::len);
    let limit = 4 * (start.replicas.len() + members + surroundings.spec.size()) + 4;
    let mut steps = Vec::new();
    let mut states = BTreeSet::from([start]);
    for _ in 0..limit {
        let Some((ways, may_differ)) = ways(&states, surroundings)? else {
            return Ok(steps);
        };
        let step = step_of(&ways, may_differ);
        let is_last = is_last(&step);
        steps.push(step);
        if is_last {
            return Ok(steps);
        }
        states = ways.into_iter().map(|way| way.outcome.state).collect();
        while states.len() > MAX_STATES {
            states.pop_last();
        }
    }
    let names = states.first().map(|state| &state.replicas);
    Err(NoPlan::Stuck {
        names: names
            .into_iter()
            .flatten()
            .map(|replica| replica.name.clone())
            .collect(),
    })
}

struct Way {
    before: Option<Votes>,
    /// Whether the controller chooses this at random.
    is_chosen: bool,
    outcome: Outcome,
}

/// Every variant of the next step, and whether other steps are possible; none if nothing is left to do.
fn ways(
    states: &BTreeSet<State>,
    surroundings: Surroundings<'_>,
) -> Result<Option<(Vec<Way>, bool)>, NoPlan> {
    let mut ways: Vec<Way> = Vec::new();
    let mut has_ended = false;
    for state in states {
        let before = state.votes(Change::Unchanged);
        let outcomes = step::next(state, surroundings)?;
        has_ended |= outcomes.is_empty();
        let is_chosen = outcomes.len() > 1;
        ways.extend(outcomes.into_iter().map(|outcome| Way {
            before,
            is_chosen,
            outcome,
        }));
    }
    // States that came of random choices hardly ever differ in more than names.
    let kind = |way: &Way| (way.outcome.action, way.outcome.purpose);
    let first = ways.first().map(kind);
    let all = ways.len();
    ways.retain(|way| Some(kind(way)) == first);
    let may_differ = has_ended || ways.len() < all;
    Ok((!ways.is_empty()).then_some((ways, may_differ)))
}

fn step_of(ways: &[Way], may_differ: bool) -> Step {
    let outcomes = || ways.iter().map(|way| &way.outcome);
    let sets: BTreeSet<&[String]> = outcomes().map(|outcome| outcome.names.as_slice()).collect();
    let names: BTreeSet<&String> = sets.iter().copied().flatten().collect();
    let failure_domains: BTreeSet<&Option<String>> =
        outcomes().map(|outcome| &outcome.failure_domain).collect();
    let votes = ways.iter().filter_map(|way| {
        Some(StepVotes {
            before: way.before?,
            meanwhile: way.outcome.meanwhile?,
            after: way.outcome.state.votes(Change::Unchanged)?,
        })
    });
    let first = ways.first().map(|way| &way.outcome);
    Step {
        action: first.map_or(Action::Wait, |first| first.action),
        purpose: first.map_or(Purpose::Recover, |first| first.purpose),
        names: names.into_iter().cloned().collect(),
        choice: if ways.iter().any(|way| way.is_chosen) {
            Choice::AtRandom
        } else if sets.len() > 1 || failure_domains.len() > 1 {
            Choice::ByEarlier
        } else {
            Choice::None
        },
        failure_domains: failure_domains.into_iter().cloned().collect(),
        why: outcomes().map(|outcome| outcome.why).max().unwrap_or(Why::Given),
        group: first.and_then(|first| first.group),
        may_differ,
        replicas: first.map_or(0, |first| first.state.replicas.len()),
        votes: votes.min_by_key(|votes| votes.may_fail_meanwhile()),
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::KubeadmControlPlaneSpec;

    use super::{Action, Choice, NoPlan, Step, Surroundings, course};
    use crate::{
        plan::{remediation::Terms, state::State},
        quorum::Votes,
        testing::{
            objects::now,
            plan::{declared, spec, state, with_replicas},
        },
    };

    fn plan(state: State, spec: &KubeadmControlPlaneSpec) -> Result<Vec<Step>, NoPlan> {
        let declared = declared("a b c");
        course(
            state,
            Surroundings {
                spec,
                declared: &declared,
                terms: Terms {
                    limits: &spec.remediation,
                    initialized: true,
                    topology_version: None,
                    now: now(),
                },
            },
        )
    }

    fn spec_of(replicas: usize, max_surge: usize) -> KubeadmControlPlaneSpec {
        KubeadmControlPlaneSpec {
            max_surge,
            ..with_replicas(spec(), replicas)
        }
    }

    /// `+` for a Machine made, `-` for one deleted, `?` for a wait; then the Machines, or the domains of one made; then
    /// the members that may fail meanwhile and after.
    fn shown(step: &Step) -> String {
        let domains = step.failure_domains.iter();
        let domains: Vec<&str> = domains
            .map(|domain| domain.as_deref().unwrap_or_default())
            .collect();
        let (sign, names) = match step.action {
            Action::Create => ("+", domains.join("|")),
            Action::Delete => (
                "-",
                step.names
                    .join(if step.choice == Choice::None { "," } else { "|" }),
            ),
            Action::Wait => ("?", step.names.join(",")),
        };
        let votes = step.votes.map_or_else(String::new, |votes| {
            format!(" {}-{}", votes.may_fail_meanwhile(), votes.after.may_fail())
        });
        format!("{sign}{names}{votes}")
    }

    fn assert_steps(cases: &[(&str, usize, usize, &[&str])]) {
        for (machines, replicas, max_surge, expected) in cases {
            let steps = plan(state(machines), &spec_of(*replicas, *max_surge)).expect("there is a plan");
            let steps: Vec<String> = steps.iter().map(shown).collect();
            assert_eq!(steps, *expected, "{machines} to {replicas}, surge {max_surge}");
        }
    }

    #[test]
    fn scaling() {
        assert_steps(&[
            ("m1@a m2@b m3@c", 3, 1, &[]),
            ("", 3, 1, &["+a|b|c 0-0", "+a|b|c 0-0", "+a|b|c 0-1"]),
            // From one member none may fail until the third is there.
            ("m1@a", 3, 1, &["+b|c 0-0", "+b|c 0-1"]),
            ("m1@a m2@b m3@c", 5, 1, &["+a|b|c 0-1", "+a|b|c 1-2"]),
            ("m1@a m2@a m3@b", 5, 1, &["+c 0-1", "+b|c 1-2"]),
            ("m1@a m2@a m3@b", 1, 1, &["-m1 0-0", "-m2|m3 0-0"]),
            ("m1@a m2@b m3@c", 1, 1, &["-m1|m2|m3 0-0", "-m1|m2|m3 0-0"]),
            ("m1@a m2@bd m3@c", 1, 1, &["-m2 0-0", "-m1|m3 0-0"]),
            ("m1@a m2@b m3@c m4@z m5@c", 3, 1, &["-m4 1-1", "-m3 1-1"]),
        ]);
    }

    #[test]
    fn rolling_out() {
        assert_steps(&[
            ("m1@a!", 1, 1, &["+b|c 0-0", "-m1 0-0"]),
            (
                "m1@a! m2@b! m3@c!",
                3,
                1,
                &[
                    "+a|b|c 0-1",
                    "-m1|m2|m3 1-1",
                    "+a|b|c 0-1",
                    "-m1|m2|m3 1-1",
                    "+a|b|c 0-1",
                    "-m1|m2|m3 1-1",
                ],
            ),
            (
                "m1@a! m2@b! m3@c!",
                3,
                0,
                &[
                    "-m1|m2|m3 0-0",
                    "+a|b|c 0-1",
                    "-m1|m2|m3 0-0",
                    "+a|b|c 0-1",
                    "-m1|m2|m3 0-0",
                    "+a|b|c 0-1",
                ],
            ),
            // One outdated Machine of three.
            ("m1@a m2@b! m3@c", 3, 1, &["+b 0-1", "-m2 1-1"]),
            ("m1@a m2@b! m3@c", 3, 0, &["-m2 0-0", "+b 0-1"]),
            // Halfway: one new Machine is up.
            (
                "m1@a! m2@b! m3@c",
                2,
                1,
                &["-m1|m2 0-0", "+a|b 0-1", "-m1|m2 0-0"],
            ),
            // A rollout comes before scaling, and is part of it.
            (
                "m1@a! m2@b! m3@c!",
                1,
                1,
                &["-m1|m2|m3 0-0", "-m1|m2|m3 0-0", "+a|b|c 0-0", "-m1|m2|m3 0-0"],
            ),
            ("m1@a!", 3, 1, &["+b|c 0-0", "+b|c 0-1", "+a 0-1", "-m1 1-1"]),
            // The marked one goes first, up to date or not.
            (
                "m1@a! m2@bd m3@c",
                3,
                0,
                &["-m2 0-0", "+b 0-1", "-m1 0-0", "+a 0-1"],
            ),
            // A failed outdated one goes first, at once where none is made before.
            (
                "m1@a! m2@b! m3@c!f",
                3,
                0,
                &[
                    "-m3 0-0",
                    "+c 0-1",
                    "-m1|m2 0-0",
                    "+a|b 0-1",
                    "-m1|m2 0-0",
                    "+a|b 0-1",
                ],
            ),
        ]);
    }

    #[test]
    fn waits_for_what_keeps_the_controller() {
        assert_steps(&[
            ("m1@a m2@b m3@cp", 3, 1, &["?m3 0-1"]),
            ("m1@a m2@b m3@cl", 3, 1, &["?m3 0-1"]),
            ("m1@a m2@b m3@cx", 3, 1, &["?m3 0-0", "+c 0-1"]),
            // Unhealthy, and nothing is asked: nothing to do.
            ("m1@a m2@b m3@ce", 3, 1, &[]),
            ("m1@a! m2@b m3@ce", 3, 1, &["?m3 0-1", "+a 0-1", "-m1 1-1"]),
            ("m1@a! m2@b m3@ce", 3, 0, &["?m3 0-1", "-m1 0-0", "+a 0-1"]),
            ("m1@a m2@b m3@cu", 5, 1, &["?m3 1-1", "+a|b|c 0-1", "+a|b|c 1-2"]),
            // What is wrong with the one that goes does not count.
            (
                "m1@a! m2@b! m3@z!",
                3,
                0,
                &[
                    "-m3 0-0",
                    "+c 0-1",
                    "-m1|m2 0-0",
                    "+a|b 0-1",
                    "-m1|m2 0-0",
                    "+a|b 0-1",
                ],
            ),
            ("m1@a m2@b m3@zf", 1, 1, &["-m3 0-0", "-m1|m2 0-0"]),
            // Held until the other member is healthy.
            ("m1@a m2@bx m3@ce", 3, 1, &["?m3 0-1", "?m2 0-0", "+b 0-1"]),
            // Which goes is random, and the controller does not know who is silent.
            (
                "m1@a m2@bs m3@c",
                1,
                1,
                &["?m2 0-1", "-m1|m2|m3 0-0", "-m1|m2|m3 0-0"],
            ),
            ("m1 m2s m3", 1, 1, &["?m2 0-1", "-m1 0-0", "-m2 0-0"]),
            ("m1s m2 m3", 1, 1, &["-m1 0-0", "-m2 0-0"]),
            ("m1@a m2@bds m3@c", 1, 1, &["-m2 0-0", "-m1|m3 0-0"]),
            ("m1@a! m2@bs m3@c", 3, 1, &["?m2 0-1", "+a 0-1", "-m1 1-1"]),
            // Deleted by hand, the second too.
            (
                "m1@a m2@bx m3@cx",
                3,
                1,
                &["?m2 0-0", "?m3 0-0", "+b|c 0-0", "+b|c 0-1"],
            ),
        ]);
    }

    #[test]
    fn remediates_before_all_else() {
        assert_steps(&[
            ("m1@a m2@b m3@cre", 3, 1, &["-m3 0-0", "+c 0-1"]),
            (
                "m1@a! m2@b m3@cre",
                3,
                1,
                &["-m3 0-0", "+c 0-1", "+a 0-1", "-m1 1-1"],
            ),
            // Two at once, one after the other.
            (
                "m1@a m2@b m3@c m4@are m5@bre",
                5,
                1,
                &["-m4 0-0", "+a|c 0-1", "-m5 1-1", "+a|b|c 1-2"],
            ),
            // Beside another that is not healthy and awaits nothing.
            ("m1@ae m2@bre m3@c m4@a m5@b", 5, 1, &["-m2 0-0", "+b|c 0-1"]),
        ]);
    }

    #[test]
    fn no_step_is_told_where_the_controller_must_not_go() {
        let lost = |voters, unhealthy| NoPlan::QuorumLost {
            votes: Votes {
                voters,
                unhealthy,
                starting: 0,
            },
        };
        let only = |machine: &str| NoPlan::LastMachine {
            machine: machine.to_owned(),
        };
        for (machines, replicas, max_surge, expected) in [
            ("m1 m2e m3e", 3, 1, lost(3, 2)),
            ("m1e", 3, 1, lost(1, 1)),
            ("m1 m2e", 3, 1, lost(2, 1)),
            ("m1 m2 m3", 0, 1, NoPlan::NoReplicas),
            ("m1!", 1, 0, only("m1")),
            ("m1! m2! m3!", 1, 0, only("m3")),
            ("m1x", 1, 1, only("m1")),
            ("m1x m2x m3x", 3, 1, only("m1")),
        ] {
            let plan = plan(state(machines), &spec_of(replicas, max_surge));
            assert_eq!(plan, Err(expected), "{machines} to {replicas}, surge {max_surge}");
        }

        let mut expiring = spec();
        expiring.certificates_expiry_days = Some(400);
        assert_eq!(
            plan(state("m1 m2 m3"), &expiring),
            Err(NoPlan::Endless {
                expiry_days: 400,
                validity_days: 365
            })
        );
    }

    #[test]
    fn an_etcd_elsewhere_has_no_votes() {
        let elsewhere = State {
            members: None,
            ..state("m1@a! m2@b")
        };
        let steps = plan(elsewhere, &spec_of(2, 1)).expect("there is a plan");
        assert_eq!(steps.iter().map(shown).collect::<Vec<_>>(), ["+c", "-m1"]);
    }
}
